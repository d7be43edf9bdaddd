"""Progress of commands on stderr: a bar on terminals and in notebooks, an occasional line elsewhere."""

import sys
import threading
import time
from contextvars import copy_context
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
)
from rich.progress import Progress as Bar

from sim.language import N_, _, ngettext
from sim.report.words.money import cash
from sim.study.execution.worker_progress import running
from sim.study.size.search_state import SearchState
from sim.units import HOURS_PER_MONTH

FIRST_S, EVERY_S = 5.0, 10.0
"""Time before the first line of progress, and the interval between lines [s]."""


class _Live:
    """Bar or occasional lines for the duration of a `with` block; nothing if quiet."""

    def __init__(self, quiet: bool, doing: str, *columns: ProgressColumn) -> None:
        self._quiet = quiet
        console = Console(stderr=True)
        # in notebooks, rich needs ipywidgets
        live = console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)
        self._bar = Bar(*columns, console=console, transient=True, disable=quiet or not live)
        self._task = self._bar.add_task(_(doing), total=None, inside="")
        self._lines = not quiet and not live
        self._started_s = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=copy_context().run, args=(self._report,), daemon=True)
        self._last_line = _(doing)
        """Progress as a line of text without the time left, as last written."""

    def __enter__(self) -> Self:
        self._bar.start()
        if self._lines or not self._bar.disable:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self._bar.stop()

    def _report(self) -> None:
        """Write a line from time to time, also while a single simulation lasts; on a terminal update the bar."""
        wait_s = FIRST_S if self._lines else 1.0
        while not self._ended.wait(wait_s):
            wait_s = EVERY_S if self._lines else 1.0
            if self._lines:
                passed_s = time.monotonic() - self._started_s
                sys.stderr.write(f"{passed_s:.0f} s: {self._last_line}{self._left(passed_s)}{simulation_progress()}\n")
                sys.stderr.flush()
            else:
                self._update()

    def _update(self) -> None:
        left = self._left(time.monotonic() - self._started_s)
        self._bar.update(self._task, inside=f"{left}{simulation_progress()}".lstrip(",;，； "))

    def _left(self, passed_s: float) -> str:
        """Return an estimate of the time left after *passed_s* seconds, as text; empty where it is not known."""
        return ""


class CaseProgress(_Live):
    """Progress of cases: called with (finished cases, all cases, cases found on disk); the total may grow."""

    def __init__(
        self, quiet: bool, doing: str = N_("simulating"), unit: str = N_("cases"), later_stage: bool = False
    ) -> None:
        """Set up the bar; with *later_stage*, cases found on disk may be the command's own, and are not announced."""
        self._unit, self._later_stage = _(unit), later_stage
        self._done, self._total, self._found = 0, 0, 0
        columns = (
            *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()),
            TextColumn("{task.fields[inside]}"),
        )
        super().__init__(quiet, doing, *columns)

    def __call__(self, done: int, total: int, found: int) -> None:
        """Show the progress."""
        if done == found and found and not self._quiet and not self._later_stage:
            self._bar.console.print(
                _(
                    "{found} of {total} {unit} are finished already; continuing from there",
                    found=found,
                    total=total,
                    unit=self._unit,
                )
            )
        self._bar.update(self._task, completed=done, total=total)
        self._done, self._total, self._found = done, total, found
        self._last_line = _("{done} of {total} {unit}", done=done, total=total, unit=self._unit)

    def _left(self, passed_s: float) -> str:
        # running simulations count by the simulated fraction of their horizon
        done = self._done - self._found + sum(one.fraction for one in running())
        return time_left(done, self._total - self._found - done, passed_s)


class SearchProgress(_Live):
    """Progress of a search: called with its state."""

    def __init__(self, quiet: bool) -> None:
        self._state = SearchState()
        self._bounding_s = 0.0
        """Time until the last bound was computed, since the start [s]: simulations began then."""
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        super().__init__(quiet, N_("searching"), *columns, TextColumn("{task.fields[inside]}"))

    def __call__(self, state: SearchState) -> None:
        """Show the progress; each queued fleet is counted as one more case in the time left."""
        if state.bounded != self._state.bounded:
            self._bounding_s = time.monotonic() - self._started_s
        self._state = state
        parts = []
        if state.bounded < state.kinds or not state.simulated:
            parts.append(_("bounds of {done} of {total} kinds of fleets", done=state.bounded, total=state.kinds))
        if state.simulated:
            parts.append(ngettext("{count} case simulated", "{count} cases simulated", state.simulated))
        if isfinite(state.cheapest_usd_per_h):
            cheapest = cash(state.cheapest_usd_per_h * HOURS_PER_MONTH)
            parts.append(_("cheapest so far {cash} a month", cash=cheapest))
        elif state.simulated:
            queued = ngettext("{count} fleet", "{count} fleets", state.queued)
            parts.append(_("none meets the service level so far, {fleets} queued", fleets=queued))
        self._last_line = _(", ").join(parts)
        self._bar.update(self._task, description=self._last_line)

    def _left(self, passed_s: float) -> str:
        state = self._state
        if state.bounded < state.kinds:
            return time_left(state.bounded, state.kinds - state.bounded, passed_s) if not state.simulated else ""
        if not state.queued or not isfinite(state.cheapest_usd_per_h):
            return ""  # any number of larger fleets may follow before one meets the service level
        done = state.simulated + sum(one.fraction for one in running())
        left = time_left(done, state.queued, passed_s - self._bounding_s)
        if not left:
            return ""
        fleets = ngettext("{count} fleet", "{count} fleets", state.queued)
        return _("{left} for the {fleets} that may be cheaper", left=left, fleets=fleets)


def simulation_progress() -> str:
    """Describe the simulations that run now, here and in workers: time and requests; empty if none runs."""
    found = running()
    if not found:
        return ""
    one = found[0]
    now_s, horizon_s, requests = one.now_s, one.horizon_s, one.requests
    if horizon_s is None:
        text = _("; this case: {now_s:,.0f} s simulated, {requests:,} requests done", now_s=now_s, requests=requests)
    elif now_s >= horizon_s:
        text = _(
            "; this case: {horizon_s:,.0f} s simulated, {requests:,} requests done, {waiting:,} still to be answered",
            horizon_s=horizon_s,
            requests=requests,
            waiting=one.waiting,
        )
    else:
        text = _(
            "; this case: {now_s:,.0f} of {horizon_s:,.0f} s simulated, {requests:,} requests done",
            now_s=now_s,
            horizon_s=horizon_s,
            requests=requests,
        )
    others = len(found) - 1
    return text + (ngettext("; {count} more case runs", "; {count} more cases run", others) if others else "")


def time_left(done: float, to_do: float, elapsed_s: float) -> str:
    """Estimate the remaining time at the pace so far; empty before a hundredth of a case is *done*.

    >>> time_left(10, 30, 20.0), time_left(1, 30, 20.0), time_left(0, 5, 20.0)
    (', about 60 s left', ', about 10 min left', '')
    """
    if done < 0.01 or to_do <= 0:
        return ""
    left_s = elapsed_s / done * to_do
    if left_s < 100:
        return _(", about {left_s:.0f} s left", left_s=left_s)
    if left_s < 100 * 60:
        return _(", about {left_s:.0f} min left", left_s=left_s / 60)
    return _(", about {hours:.0f} h left", hours=left_s / 3600)
