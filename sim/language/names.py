"""Names that a scenario gives, as "2x A100 bought": in a sentence that is retold they stay as they are."""

import re
from collections.abc import Iterable
from contextvars import ContextVar, Token
from functools import cache

_NAMES: ContextVar[tuple[str, ...]] = ContextVar("names", default=())
_FIRST = 0xF0000
"""Characters for private use, one for each name."""

Kept = Token[tuple[str, ...]]


def keep(names: Iterable[str]) -> Kept:
    """From here on *names* stay as they are; what `release` needs to end that."""
    return _NAMES.set(tuple(sorted({name for name in names if name.strip()}, key=len, reverse=True)))


def release(kept: Kept) -> None:
    """Ends what `keep` began."""
    _NAMES.reset(kept)


def hidden(text: str, words: bool = True) -> str:
    """*text* with one character in the place of each name, without *words* only of names of several words."""
    names = _NAMES.get()
    taken = names if words else tuple(name for name in names if " " in name.strip())
    if not taken:
        return text
    return _any_of(taken).sub(lambda found: chr(_FIRST + names.index(found[0])), text)


def shown(text: str) -> str:
    """*text*, whose names `hidden` has taken out, with its names."""
    for index, name in enumerate(_NAMES.get()):
        text = text.replace(chr(_FIRST + index), name)
    return text


@cache
def _any_of(names: tuple[str, ...]) -> re.Pattern[str]:
    """One of *names*, the longest that fits, as words of its own."""
    return re.compile(rf"(?<![A-Za-z0-9_])(?:{'|'.join(map(re.escape, names))})(?![A-Za-z0-9_])")
