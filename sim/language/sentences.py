"""Translation of English sentences that the rooms below the report make.

A sentence is translated by template and values where it is a `Message`. A sentence read back from the file of a run, or
of the library of the command line, is text alone: its template is recognised where such text is shown. Names that a
scenario gives, such as "2x A100 bought", are never translated within such a sentence.
"""

import re
from collections.abc import Iterable
from contextvars import ContextVar, Token
from functools import cache
from string import Formatter
from typing import NamedTuple

from sim.language.catalogue import ENGLISH, catalogue
from sim.language.messages import current
from sim.message import Message

_NAMES: ContextVar[tuple[str, ...]] = ContextVar("names", default=())
_FIRST = 0xF0000
"""First of the characters for private use that stand for names, one for each name."""

Kept = Token[tuple[str, ...]]


def keep(names: Iterable[str]) -> Kept:
    """Keep *names* untranslated from now on; return the token that `release` needs to undo it."""
    return _NAMES.set(tuple(sorted({name for name in names if name.strip()}, key=len, reverse=True)))


def release(kept: Kept) -> None:
    """Undo the call of `keep` that returned *kept*."""
    _NAMES.reset(kept)


def hidden(text: str, words: bool = True) -> str:
    """Replace each name in *text* by a private character; without *words*, only names of several words."""
    names = _NAMES.get()
    taken = names if words else tuple(name for name in names if " " in name.strip())
    if not taken:
        return text
    return _any_of(taken).sub(lambda found: chr(_FIRST + names.index(found[0])), text)


def shown(text: str) -> str:
    """Restore the names that `hidden` has replaced in *text*."""
    for index, name in enumerate(_NAMES.get()):
        text = text.replace(chr(_FIRST + index), name)
    return text


@cache
def _any_of(names: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern of *names* as whole words, the longest match first."""
    return re.compile(rf"(?<![A-Za-z0-9_])(?:{'|'.join(map(re.escape, names))})(?![A-Za-z0-9_])")


LEAST = 6
"""Number of letters that a message needs besides its fields for its template to be recognised."""


NOTHING = "nothing"
"""Word of a message for an empty value; all other single words are names."""


class _Sentence(NamedTuple):
    message: str
    pieces: tuple[str, ...]
    """Texts around the fields, the longest first."""


def translate_message(text: str) -> str:
    """Translate *text*: a `Message` by its template, plain text where it is a message as a whole.

    Plain values may be text read from a file: their templates are recognised, as by `translate_rendered`.
    """
    code = current()
    if code == ENGLISH:
        return text
    known = catalogue(code)
    if not isinstance(text, Message):
        return known.get(text, text)
    values = {name: _part(value, known, code, name) for name, value in text.values.items()}
    return _places_filled(known.get(text.template, text.template), values)


def translate_rendered(text: str) -> str:
    """Translate *text*, an English sentence.

    A `Message` is translated by its template. For text read from a file or a library, the template is recognised.
    Values that are sentences are translated too, and text after a colon. Text that no message matches stays unchanged,
    and so do names that a scenario gives (`keep`).
    """
    code = current()
    if code == ENGLISH or isinstance(text, Message):
        return translate_message(text)
    sentence = _translated(hidden(text), code)
    if (fewer := hidden(text, words=False)) != hidden(text):
        # a one-word name may also be a word of the message: the translation with less English left is right
        sentence = min(sentence, _translated(fewer, code), key=lambda one: len(re.findall("[A-Za-z]", hidden(one))))
    return shown(sentence)


def _translated(text: str, code: str) -> str:
    """Translate *text*, whose names are hidden, into the language *code*."""
    if not text.strip():
        return text
    return _sentence(text, code) or _one_by_one(text, code) or _behind_a_colon(text, code) or text


def _sentence(text: str, code: str) -> str | None:
    """Translate *text* as a message, also with an added capital or full stop; None if none matches."""
    small = text[:1].lower() + text[1:]
    stop = "." if text.endswith(".") else ""
    for one in dict.fromkeys((text, small)):
        if translation := _whole(one, code, stop):
            return translation
    for one in dict.fromkeys((text[:-1], small[:-1])) if stop else ():
        if translation := _whole(one, code):
            return translation + catalogue(code).get(stop, stop)
    return _whole(text, code) if stop else None


def _one_by_one(text: str, code: str) -> str | None:
    """Translate several sentences or clauses if the first of them is recognised; else None."""
    for mark, kept in ((". ", 1), ("; ", 0)):
        at = text.find(mark)
        while at >= 0:
            if translation := _sentence(text[: at + kept], code):
                return (
                    translation
                    + (catalogue(code).get(mark, mark) if not kept else "")
                    + _translated(text[at + 2 :], code)
                )
            at = text.find(mark, at + 1)
    return None


WORDS = frozenset({"costs"})
"""Fields of messages whose values are words, never names."""
CODES = frozenset({"allowed"})
"""Fields of messages whose values are keys, ids or values to be written as they are, though they may be words too."""


def _whole(text: str, code: str, end: str = "") -> str | None:
    """Translate *text* by the message it was made from, among those that end with *end*; None if none matches."""
    known = catalogue(code)
    if text in known:
        return known[text]
    for sentence in _sentences(code):
        if (
            sentence.message.endswith(end)
            and all(piece in text for piece in sentence.pieces)
            and (found := _pattern(sentence.message).fullmatch(text))
        ):
            values = {name: _value(value, known, code, name) for name, value in found.groupdict().items()}
            return _places_filled(known[sentence.message], values)
    return None


def _part(text: str, known: dict[str, str], code: str, name: str) -> str:
    """Translate the value of a message's field *name*: a message, or text as by `_value`."""
    return translate_rendered(text) if isinstance(text, Message) else shown(_value(hidden(text), known, code, name))


def _value(text: str, known: dict[str, str], code: str, name: str = "") -> str:
    """Translate the value of the field *name*: a sentence or a list of names; other names and numbers stay unchanged.

    A single word is translated in fields whose values are always words (`WORDS`), and nothing in those of `CODES`.
    """
    if name in CODES:
        return text
    if name in WORDS and text in known:
        return known[text]
    if not re.search("[A-Za-z]", text):  # punctuation between sentences
        return known.get(text, text)
    if text == NOTHING or " " in text:
        parts = text.split(", ")
        if len(parts) > 1 and all(part in known for part in parts):
            return known.get(", ", ", ").join(known[part] for part in parts)
        head, mark, rest = text.partition("; ")  # a clause appended to the value
        if mark and (sentence := _translated(rest, code)) != rest:
            return _value(head, known, code) + known.get(mark, mark) + sentence
        return _translated(text, code)
    return text


def _behind_a_colon(text: str, code: str) -> str | None:
    """Translate a sentence after a path, a name or an option with a colon; None if none is recognised."""
    at = text.find(": ")
    while at >= 0:
        if translation := _whole(text[at + 2 :], code):
            return text[: at + 2] + translation
        at = text.find(": ", at + 1)
    return None


@cache
def _sentences(code: str) -> tuple[_Sentence, ...]:
    """Return the messages with fields, the longest fixed text first."""
    found = []
    for message in catalogue(code):
        try:
            parts = list(Formatter().parse(message))
        except ValueError:  # the message contains literal braces
            continue
        pieces = tuple(sorted((part[0] for part in parts if part[0]), key=len, reverse=True))
        least = 2 if message.startswith((" ", ", ", "; ")) else LEAST  # suffixes of sentences are short
        if any(part[1] for part in parts) and len(re.findall("[A-Za-z]", "".join(pieces))) >= least:
            found.append(_Sentence(message, pieces))
    return tuple(sorted(found, key=lambda one: -sum(map(len, one.pieces))))


@cache
def _pattern(message: str) -> re.Pattern[str]:
    parts, seen = [], set()
    for literal, name, *_ in Formatter().parse(message):
        parts.append(re.escape(literal))
        if name:
            parts.append(f"(?P={name})" if name in seen else f"(?P<{name}>.*?)")
            seen.add(name)
    return re.compile("".join(parts), re.DOTALL)


def _places_filled(message: str, values: dict[str, str]) -> str:
    """Fill the fields of *message* with *values*, texts whose number format was chosen in English."""
    return "".join(literal + (values[name] if name else "") for literal, name, *_ in Formatter().parse(message))
