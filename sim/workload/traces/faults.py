"""What is wrong with a trace file, every fault with its line, all of them at once."""

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

SHOWN = 20


class TraceError(ValueError):
    """A trace that cannot be read. `errors` holds (path, line, message); line 0 is the file as a whole."""

    def __init__(self, errors: list[tuple[str, int, str]]) -> None:
        self.errors = errors
        super().__init__(
            "\n".join(f"{path}:{line}: {text}" if line else f"{path}: {text}" for path, line, text in errors)
        )

    def __reduce__(self) -> Any:
        return type(self), (self.errors,)


class Faults:
    """Collects the faults of one file; the first 20 in line order are shown, the others counted."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._found: list[tuple[int, str]] = []
        self._hidden = 0

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, line: int, message: str) -> None:
        """One fault."""
        self._found.append((line, message))

    def add_rows(self, rows: NDArray[np.intp], lines: Sequence[int], message: Callable[[int], str]) -> None:
        """One kind of fault in many rows. Only the first ones get a text: a file may be wrong a million times."""
        for row in rows[:SHOWN].tolist():
            self._found.append((lines[row], message(row)))
        self._hidden += max(0, len(rows) - SHOWN)

    def stop_if_any(self) -> None:
        """Raises TraceError if a fault has been found."""
        if self._found:
            raise self.error()

    def error(self) -> TraceError:
        """All that was found."""
        found = sorted(self._found)
        errors = [(self._path, line, message) for line, message in found[:SHOWN]]
        if more := len(found) - len(errors) + self._hidden:
            errors.append((self._path, 0, f"and {more} more"))
        return TraceError(errors)


def unreadable(path: str, error: OSError | UnicodeDecodeError) -> TraceError:
    """The file is missing, may not be read or is no text."""
    if isinstance(error, UnicodeDecodeError):
        return TraceError([(path, 0, "is no UTF-8 text")])
    return TraceError([(path, 0, f"cannot be read: {(error.strerror or str(error)).lower()}")])


def misnamed(kind: str, found: Sequence[str], required: Sequence[str], optional: Sequence[str] = ()) -> list[str]:
    """What is wrong with the names in *found*, a line each; *kind* is what such a name is called."""
    unknown = [name for name in found if name not in required and name not in optional]
    complaints: list[str] = []
    for name in required:
        if name in found:
            continue
        nearest = get_close_matches(name, unknown, 1)
        complaints.append(f"missing {kind} {name!r}" + (f"; is {nearest[0]!r} meant?" if nearest else ""))
        unknown = [other for other in unknown if other not in nearest]
    for name in unknown:
        nearest = get_close_matches(name, [other for other in (*required, *optional) if other not in found], 1)
        complaints.append(f"unknown {kind} {name!r}" + (f"; did you mean {nearest[0]!r}?" if nearest else ""))
    return complaints
