"""The folder of the catalogue's data files, and the errors of looking something up in it."""

from pathlib import Path
from typing import Any

SHOWN = 60
"""Characters of a name in a message."""


class UnknownId(ValueError, KeyError):
    """A name that the catalogue does not know; `suggestions` are the ids that come nearest."""

    def __init__(self, kind: str, name: str, suggestions: tuple[str, ...]) -> None:
        self.kind, self.name, self.suggestions = kind, name, suggestions
        hint = f"; did you mean {' or '.join(suggestions)}?" if suggestions else ""
        shown = name if len(name) <= SHOWN else f"{name[: SHOWN - 3]}..."
        super().__init__(f"unknown {kind} {shown!r}{hint}")

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError would quote it

    def __reduce__(self) -> Any:
        return type(self), (self.kind, self.name, self.suggestions)


class CatalogError(ValueError):
    """A data file that does not say what it should: one line an error, `file:line: path: message`."""


def data_root() -> Path:
    """Folder of the catalogue: inside the installed package, else at the repository root. Raises FileNotFoundError."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "data", package.parent / "data"):
        if (folder / "sources.yaml").is_file():
            return folder
    raise FileNotFoundError(
        f"no catalogue: neither {package / 'data'} nor {package.parent / 'data'} holds sources.yaml"
    )
