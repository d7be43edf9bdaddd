"""How far a run has come, on stderr: a bar on a terminal, a line now and then elsewhere."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

EVERY_S = 10.0


class Progress:
    """Called with (finished cases, all cases, those found on disk)."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Bar(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)
        self._task = self._bar.add_task("simulating", total=None)
        self._lines = not quiet and not console.is_terminal
        self._told_s = time.monotonic()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, done: int, total: int, found: int) -> None:
        """Show it."""
        if done == found and found and not self._quiet:
            self._bar.console.print(f"{found} of {total} cases were finished before; going on from there")
        self._bar.update(self._task, completed=done, total=total)
        if self._lines and time.monotonic() - self._told_s > EVERY_S:
            self._told_s = time.monotonic()
            sys.stderr.write(f"{done} of {total} cases\n")
