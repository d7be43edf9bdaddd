"""Errors of benchmark files, and the check for runs whose load was not the stated one."""

from collections.abc import Sequence
from typing import Any

from sim.message import Message, located


class BenchdataError(ValueError):
    """Error of a benchmark file; the message has a line `file:line: mistake` per mistake."""

    def __init__(self, problems: Sequence[tuple[str, int, str]]) -> None:
        self.problems = tuple(problems)
        """Mistakes as (file, line or 0, message)."""
        super().__init__(located(self.problems))

    def __reduce__(self) -> Any:
        return type(self), (self.problems,)


NO_TRACE = "its requests arrived at the times of a trace, which is not simulated"
MOST_FAILED = 0.1
"""Largest ratio of failed to answered requests at which the stated load still applies."""


def why_unusable(answered: float, failed: float) -> str:
    """Return the reason why a run with these numbers of requests cannot be used; empty if it can."""
    if not answered:
        return "no request was answered"
    return (
        Message("{failed:.0f} requests failed, {answered:.0f} were answered", failed, answered)
        if failed > MOST_FAILED * answered
        else ""
    )
