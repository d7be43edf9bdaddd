"""Location of the catalogue's data files, and the errors of a look-up in them."""

from pathlib import Path
from typing import Any

from sim.message import OR, Message, joined

SHOWN = 60
"""Maximum length of a name shown in a message [characters]."""


class UnknownId(ValueError, KeyError):
    """Unknown catalogue name; `suggestions` lists the most similar ids."""

    def __init__(self, kind: str, name: str, suggestions: tuple[str, ...]) -> None:
        self.kind, self.name, self.suggestions = kind, name, suggestions
        hint = Message("; did you mean {near}?", joined(OR, suggestions)) if suggestions else ""
        shown = name if len(name) <= SHOWN else f"{name[: SHOWN - 3]}..."
        super().__init__(Message("unknown {kind} {id!r}{hint}", kind, shown, hint))

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError itself puts the message in quotes

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
