"""Location of the catalogue's data files, and the errors of a look-up in them."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from sim.message import OR, Message, joined

SHOWN = 60
"""Maximum length of a name shown in a message [characters]."""


class UnknownId(ValueError, KeyError):
    """Unknown catalogue name; the most similar ids are searched only if the message or `suggestions` is read."""

    def __init__(self, kind: str, name: str, suggestions: tuple[str, ...] | Callable[[], tuple[str, ...]]) -> None:
        super().__init__(kind, name)
        self.kind, self.name, self._suggestions = kind, name, suggestions

    @cached_property
    def suggestions(self) -> tuple[str, ...]:
        """Most similar ids, likeliest first."""
        return self._suggestions() if callable(self._suggestions) else self._suggestions

    def __str__(self) -> str:
        hint = Message("; did you mean {near}?", joined(OR, self.suggestions)) if self.suggestions else ""
        shown = self.name if len(self.name) <= SHOWN else f"{self.name[: SHOWN - 3]}..."
        return Message("unknown {kind} {id!r}{hint}", self.kind, shown, hint)

    def __reduce__(self) -> Any:
        return type(self), (self.kind, self.name, self.suggestions)


class CatalogError(ValueError):
    """Invalid data file; the message has one line `file:line: path: message` per error."""


def data_root() -> Path:
    """Return the catalogue's folder: in the installed package, else in the repository. Raises FileNotFoundError."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "data", package.parent / "data"):
        if (folder / "sources.yaml").is_file():
            return folder
    raise FileNotFoundError(
        Message(
            "no catalogue: neither {package} nor {parent} holds sources.yaml", package / "data", package.parent / "data"
        )
    )
