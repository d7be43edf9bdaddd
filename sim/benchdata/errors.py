"""What is wrong with a benchmark file, all of it at once."""

from collections.abc import Sequence
from typing import Any


class BenchdataError(ValueError):
    """One line an error: `file:line: what is wrong`."""

    def __init__(self, problems: Sequence[tuple[str, int, str]]) -> None:
        self.problems = tuple(problems)
        """(file, line or 0, message)."""
        super().__init__("\n".join(f"{path}{f':{line}' if line else ''}: {text}" for path, line, text in self.problems))

    def __reduce__(self) -> Any:
        return type(self), (self.problems,)
