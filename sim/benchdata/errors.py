"""Benchmark files that cannot be used: all that is wrong with a file, and runs that stand for no simulated load."""

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


NO_TRACE = "its requests came at the times of a trace, which is not simulated"
MOST_FAILED = 0.1
"""Failed requests over answered ones; above it the load was not the one that the file states."""


def why_unusable(answered: float, failed: float) -> str:
    """Why a run with these numbers of requests cannot be used; empty if it can."""
    if not answered:
        return "no request was answered"
    return f"{failed:.0f} requests failed, {answered:.0f} were answered" if failed > MOST_FAILED * answered else ""
