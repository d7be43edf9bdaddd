"""Messages: English sentences that keep their template and values, so that they can be translated."""

from collections.abc import Iterable, Mapping
from functools import cache
from string import Formatter
from typing import Any


class Message(str):
    """English sentence that can be translated: *template* with *values* in its places.

    The values come in the order in which the template first names them, as in calls of a logger. A message compares
    and is written as its text. A value that is a message keeps its own template, and so do the parts of a sum.

    Examples
    --------
    >>> message = Message("must be above {low:g}, not {given}", 1.0, "'a'")
    >>> message
    "must be above 1, not 'a'"
    >>> message.template, message.values
    ('must be above {low}, not {given}', {'low': '1', 'given': "'a'"})
    >>> ("fleets.0: " + message).values["then"].template
    'must be above {low}, not {given}'

    """

    __slots__ = ("template", "values")
    template: str
    """Text with named places, without formats: the key of catalogues."""
    values: Mapping[str, str]
    """Name of a place -> text in it."""

    def __new__(cls, template: str, /, *values: Any) -> "Message":
        """Fill the places of *template*, in the order of their first appearance, with *values*."""
        key, places = parsed(template)
        texts = {name: _text(value, how) for (name, how), value in zip(places.items(), values, strict=True)}
        return _of(key.format_map(texts), key, texts)

    def __reduce__(self) -> Any:
        return _of, (str.__str__(self), self.template, self.values)

    def __str__(self) -> str:
        return self  # the text of an exception stays a message

    def __add__(self, then: str) -> "Message":
        return Message("{first}{then}", self, then) if then else self

    def __radd__(self, first: str) -> "Message":
        return Message("{first}{then}", first, self) if first else self


def _of(text: str, template: str, values: Mapping[str, str]) -> Message:
    message = str.__new__(Message, text)
    message.template, message.values = template, values
    return message


def capital(text: str) -> str:
    """Return *text* with a capital as its first letter; a message keeps its template."""
    begun = text[:1].upper() + text[1:]
    return _of(begun, text.template, text.values) if isinstance(text, Message) else begun


def joined(mark: str, parts: Iterable[str]) -> str:
    """Return *parts* with *mark* between them; each remains a message.

    >>> joined("; ", ["is missing", Message("must be above {low}", 0)]).values["part1"].template
    'must be above {low}'
    """
    first, *others = [*parts] or [""]
    template = "{part0}" + "".join(f"{{mark}}{{part{place}}}" for place, _ in enumerate(others, 1))
    return Message(template, first, mark, *others) if others else first


def placed(place: object, text: str) -> str:
    """Return `place: text`; *text* remains a message."""
    return Message("{place}: {text}", place, text)


def located(problems: Iterable[tuple[str, int, str]]) -> str:
    """Return a line `file:line: mistake` for each of *problems*, (file, line, mistake); line 0 is the whole file.

    >>> print(located([("a.csv", 3, "is missing"), ("b.csv", 0, "is empty")]))
    a.csv:3: is missing
    b.csv: is empty
    """
    return joined("\n", [placed(f"{file}:{line}" if line else file, text) for file, line, text in problems])


def os_reason(error: OSError) -> str:
    """Return the reason of *error* in lower case, as a message where it is a common one.

    >>> os_reason(FileNotFoundError(2, "No such file or directory")).template
    'no such file or directory'
    """
    text = (error.strerror or str(error)).lower()
    return next((one for one in OS_REASONS if one == text), text)


def first_line(text: str) -> str:
    """Return *text* up to its first line break; that line stays a message."""
    if isinstance(text, Message) and text.values.get("mark") == "\n":
        return text.values["part0"]
    return text if "\n" not in text else text.splitlines()[0]


@cache
def parsed(template: str) -> tuple[str, Mapping[str, str]]:
    """Return *template* without formats, and for each of its places a template of the value alone.

    >>> parsed("{low:g} lies above {high!r}")
    ('{low} lies above {high}', {'low': '{:g}', 'high': '{!r}'})
    """
    key, places = "", dict[str, str]()
    for literal, name, how, conversion in Formatter().parse(template):
        key += literal.replace("{", "{{").replace("}", "}}")
        if name is not None:
            key += f"{{{name}}}"
            places.setdefault(name, f"{{{f'!{conversion}' if conversion else ''}{f':{how}' if how else ''}}}")
    return key, places


def _text(value: Any, how: str) -> str:
    return str(value) if how == "{}" else how.format(value)


OR = Message(" or ")
"""Mark between alternatives, for `joined`."""
OS_REASONS = (
    Message("no such file or directory"),
    Message("is a directory"),
    Message("not a directory"),
    Message("permission denied"),
    Message("file exists"),
    Message("no space left on device"),
    Message("address already in use"),
)
"""Common reasons of the operating system."""
