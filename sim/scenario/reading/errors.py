"""Mistakes in the input, with file or option and line."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sim.language import translate_message

MOST_SHOWN = 600
"""Longest message [characters]."""


@dataclass(frozen=True, slots=True)
class InputError:
    """Mistake in the input, with its file or option and its line.

    `path` is the file, or the option that gave the value; `line` counts from 1, and is 0 where no line applies.
    """

    path: str
    line: int
    where: str
    """Dotted path of the value; empty if the whole file is meant."""
    message: str

    def __str__(self) -> str:
        parts = [
            f"{self.path}:{self.line}" if self.line else self.path,
            _cut(self.where),
            _cut(translate_message(self.message)),
        ]
        return ": ".join(part for part in parts if part)


def _cut(text: str) -> str:
    """Shorten *text* to MOST_SHOWN characters by leaving out its middle."""
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 60]} ... {text[-50:]}"


class ScenarioErrors(ValueError):
    """All mistakes of one scenario; the text has one line per error."""

    def __init__(self, errors: Iterable[InputError]) -> None:
        self.errors = list(dict.fromkeys(errors))
        super().__init__("\n".join(map(str, self.errors)))

    def __reduce__(self) -> Any:
        return type(self), (self.errors,)
