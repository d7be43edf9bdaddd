"""Progress of commands on stderr: a bar on terminals and in notebooks, an occasional line elsewhere."""

import sys
import time
from importlib.util import find_spec
from math import isfinite
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar

from sim.language import N_, _
from sim.report.words.money import cash
from sim.units import HOURS_PER_MONTH

EVERY_S = 10.0
"""Interval between lines of progress [s]."""


class _Live:
    """Bar or occasional lines for the duration of a `with` block; nothing if quiet."""

    def __init__(self, quiet: bool, doing: str, *columns: ProgressColumn) -> None:
        self._quiet = quiet
        console = Console(stderr=True)
        # in notebooks rich needs ipywidgets
        live = console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)
        self._bar = Bar(*columns, console=console, transient=True, disable=quiet or not live)
        self._task = self._bar.add_task(_(doing), total=None)
        self._lines = not quiet and not live
        self._started_s = self._told_s = time.monotonic()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def _line_is_due(self) -> bool:
        now_s = time.monotonic()
        if not self._lines or now_s - self._told_s <= EVERY_S:
            return False
        self._told_s = now_s
        return True


class CaseProgress(_Live):
    """Progress of cases: called with (finished cases, all cases, cases found on disk); the total may grow."""

    def __init__(
        self, quiet: bool, doing: str = N_("simulating"), unit: str = N_("cases"), goes_on: bool = False
    ) -> None:
        """Set up the bar; with *goes_on*, cases found on disk may be the command's own, and are not announced."""
        self._unit, self._goes_on = _(unit), goes_on
        columns = (
            *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()),
            *(TimeElapsedColumn(), TextColumn(_("left")), TimeRemainingColumn()),
        )
        super().__init__(quiet, doing, *columns)

    def __call__(self, done: int, total: int, found: int) -> None:
        """Show the progress."""
        if done == found and found and not self._quiet and not self._goes_on:
            self._bar.console.print(
                _(
                    "{found} of {total} {unit} are finished already; going on from there",
                    found=found,
                    total=total,
                    unit=self._unit,
                )
            )
        self._bar.update(self._task, completed=done, total=total)
        if self._line_is_due():
            left = time_left(done - found, total - done, time.monotonic() - self._started_s)
            text = _("{done} of {total} {unit}{left}", done=done, total=total, unit=self._unit, left=left)
            sys.stderr.write(f"{text}\n")


class SearchProgress(_Live):
    """Progress of a search of unknown length: called with (cases simulated, lowest cost so far [USD/h])."""

    def __init__(self, quiet: bool) -> None:
        super().__init__(quiet, N_("searching"), SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())

    def __call__(self, simulated: int, cheapest_usd_per_h: float) -> None:
        """Show the progress."""
        text = _("{simulated} cases simulated", simulated=simulated)
        if isfinite(cheapest_usd_per_h):
            text += _(", cheapest so far {cash} a month", cash=cash(cheapest_usd_per_h * HOURS_PER_MONTH))
        self._bar.update(self._task, description=text)
        if self._line_is_due():
            sys.stderr.write(f"{text}\n")


def time_left(done: int, to_do: int, elapsed_s: float) -> str:
    """Estimate the remaining time at the pace so far; empty before anything is *done*.

    >>> time_left(10, 30, 20.0), time_left(1, 30, 20.0), time_left(0, 5, 20.0)
    (', about 60 s left', ', about 10 min left', '')
    """
    if not done or not to_do:
        return ""
    left_s = elapsed_s / done * to_do
    return (
        _(", about {left_s:.0f} s left", left_s=left_s)
        if left_s < 100
        else _(", about {left_s:.0f} min left", left_s=left_s / 60)
    )
