"""Rounds of `gpufleet watch`: read new hours, compare them with their prediction, recalibrate, forecast, answer.

Reading and evaluation are separate: an evaluation depends on the stored hours, the scenario and the catalogue alone, so
that a command that was killed gives the same answers after its restart.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from sim.catalogue.catalog import Catalog
from sim.language import N_
from sim.message import Message
from sim.scenario.schema import Fleet, Scenario
from sim.study.execution.cases import Progress, Workplace
from sim.study.execution.durable import write_atomically
from sim.units import HOURS_PER_WEEK
from sim.watch.answer import ComparedHour, WatchAnswer, moment
from sim.watch.drift import DriftState, drift_of, threshold
from sim.watch.forecast import forecast_of
from sim.watch.observed import BRIDGED_S, HOUR_S, STEP_S, HourObserved, observed_hours
from sim.watch.orders import DAY_S, lead_time_days, outlook_of
from sim.watch.predicted import Twin, at_power, usd_per_million
from sim.watch.recalibration import LEAST_HOURS, CannotCalibrate, is_biased, recalibrated
from sim.watch.source import LacksMetrics, Source
from sim.watch.storage import Storage, StoredCalibration

SETTLED_S = 120
"""Time after the end of an hour at which its samples are complete [s]."""
HOURS_AT_ONCE = 6
"""Hours of one query."""
READ_AGAIN_H = 24
"""Time for which hours with gaps are read again: a server may deliver samples late [h]."""
WATCHED = ("ttft_s_mean", "tpot_s_mean", "gpu_power_w_mean")
"""Metrics whose ratios raise an alarm."""
LEAST_REQUESTS = 30
"""Fewest requests of an hour that is compared."""
MOST_RECALIBRATIONS = 8
"""Most calibrations of one evaluation."""


ShowProgress = Callable[[str, str], AbstractContextManager[Progress]]
"""Function that shows the progress of a stage, from its name and the noun of its parts."""


def no_progress(stage: str, unit: str) -> AbstractContextManager[Progress]:
    """Show no progress."""
    return nullcontext(lambda *_: None)


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """Options of a watch."""

    history_days: float = 28.0
    """Time before the first round that is read [days]."""
    ahead_days: float = 120.0
    """Length of the forecast [days]."""
    cover_days: float = 30.0
    """Time after the capacity is reached that an order covers [days]."""
    lead_days: float | None = None
    """Time from order to delivery [days]; None: that of the scenario."""
    recalibrate: bool = True
    workers: int = 1


@dataclass(slots=True)
class Watch:
    """Watched fleet: its scenario, its metrics and what is stored of them."""

    scenario: Scenario
    fleet: Fleet
    catalog: Catalog
    out: Path
    workplace: Workplace
    source: Source
    storage: Storage
    options: WatchOptions
    clock: Callable[[], float] = time.time
    notes: tuple[str, ...] = ()
    """Notes on the last reading."""
    progress: ShowProgress = no_progress
    """Display of the progress of simulations."""

    def read(self) -> int:
        """Store the hours that have ended since the last reading, and return their number.

        Raises
        ------
        SourceError
            The source has none of the metrics, or cannot be read.

        """
        now_s = self.source.now_s()
        notes = self.source.clock_notes(now_s, self.clock())
        end = settled_end(now_s)
        known = self.storage.hours()
        if known and end < known[-1].hour + HOUR_S:
            if now_s < known[-1].hour:
                notes.append(
                    "the newest samples are before the last stored hour: nothing is read until there are later ones"
                )
            self.notes = tuple(notes)
            return 0
        first = self._first(known, now_s)
        before = {one.hour: one for one in known}
        count = 0
        for hours in hours_between(self.source, first, end):
            kept = [one for one in hours if one.hour not in before or one.covered_s > before[one.hour].covered_s]
            self.storage.keep(kept)
            count += len(kept)
        self.notes = tuple(notes)
        return count

    def _first(self, known: Sequence[HourObserved], now_s: float) -> int:
        """Return the first hour to read [Unix s]."""
        if known:
            late = known[-1].hour + HOUR_S - READ_AGAIN_H * HOUR_S
            return next((one.hour for one in known if one.hour >= late and not one.usable), known[-1].hour + HOUR_S)
        return first_hour(self.source, self.options.history_days, now_s)

    def evaluate(self) -> WatchAnswer:
        """Return the answer after the stored hours. Raises SourceError if a calibration cannot be read."""
        hours = self.storage.hours()
        notes = list(self.notes)
        twin, compared = self._compared(hours)
        states = self._drift(compared)
        for _ in range(MOST_RECALIBRATIONS):
            self.storage.keep_alarms([one.alarm for one in states if one.alarm is not None])
            if not self._recalibrated(compared, states):
                break
            twin, compared = self._compared(hours)
            states = self._drift(compared)
        usable = [one for one in hours if one.usable]
        week = usable[-1].hour - (HOURS_PER_WEEK - 1) * HOUR_S if usable else 0
        recent = [one for one in usable if one.hour >= week and one.requests]
        forecast = forecast_of([one.hour for one in usable], [one.rate_rps for one in usable], self.options.ahead_days)
        capacity = outlook = None
        lead = self.options.lead_days
        stated = lead_time_days(self.scenario, self.fleet)
        if recent:
            with self.progress("searching", "searches") as progress:
                lengths = (_mean(recent, "prompt_tokens"), _mean(recent, "output_tokens"))
                capacity = twin.capacity(recent[-1].hour, *lengths, progress)
        if capacity is not None and forecast is not None and not capacity.reason and capacity.at_least > 0:
            outlook = outlook_of(
                forecast,
                capacity.at_least,
                capacity.half_width,
                max(one.rate_rps for one in recent),
                twin.replicas,
                lead if lead is not None else stated or 0.0,
                self.options.cover_days,
            )
        if capacity is not None and capacity.reason:
            notes.append(Message("no capacity: {reason}", capacity.reason))
        if lead is None and stated is None:
            notes.append("no lead time is stated: set cost.lead_time_months, or give --lead-time-days")
        return WatchAnswer(
            name=self.scenario.name,
            fleet=self.fleet.name,
            replicas=twin.replicas,
            gpus=twin.per_replica(),
            hours=tuple(hours),
            compared=tuple(compared),
            drift=tuple(states),
            alarms=tuple(self.storage.alarms()),
            calibrations=tuple(self.storage.calibrations()),
            forecast=forecast,
            outlook=outlook,
            notes=(*notes, *self._remarks(hours, twin)),
        )

    def _compared(self, hours: Sequence[HourObserved]) -> tuple[Twin, list[ComparedHour]]:
        """Return the twin with its calibrations, and the usable hours with their predictions."""
        files = []
        for one in self.storage.calibrations():
            if one.text:
                file = self.out / f"calibration-{one.since // HOUR_S}.yaml"
                if not file.exists() or file.read_text(encoding="utf-8") != one.text:
                    write_atomically(file, one.text)
                files.append((one.since, file.absolute()))
        twin = Twin.of(self.scenario, self.fleet, self.catalog, self.out, self.workplace)
        twin = replace(twin, calibrations=tuple(files))
        usable = [one for one in hours if one.usable]
        found = []
        with self.progress("simulating", "cases") as progress:
            predictions = twin.predictions(usable, progress)
        for hour, predicted in zip(usable, predictions, strict=True):
            usd_per_h, usd = at_power(predicted, hour)
            known = {name: predicted[name] for name in predicted}
            known["usd_per_million_output_tokens"] = usd_per_million(
                predicted["cost_usd_per_h"], predicted["output_tokens_per_s"]
            )
            found.append(ComparedHour(hour, known, usd_per_h, usd, hour.completed >= LEAST_REQUESTS))
        return twin, found

    def _segment(self, compared: Sequence[ComparedHour]) -> list[ComparedHour]:
        """Return the hours since the last calibration, or since the last one that failed."""
        since = max((one.since for one in self.storage.calibrations()), default=0)
        return [one for one in compared if one.hour.hour >= since]

    def _drift(self, compared: Sequence[ComparedHour]) -> list[DriftState]:
        segment, limit = self._segment(compared), threshold(2 * len(WATCHED))
        hours = [one.hour.hour for one in segment]
        return [drift_of(name, hours, [one.ratio(name) for one in segment], limit) for name in WATCHED]

    def _recalibrated(self, compared: Sequence[ComparedHour], states: Sequence[DriftState]) -> bool:
        """Make the calibration that an alarm or a bias asks for; return whether a calibration was stored.

        It rests on the first LEAST_HOURS compared hours since the change, and at least on those until the alarm.
        """
        if not self.options.recalibrate:
            return False
        segment = self._segment(compared)
        alarms = [one.alarm for one in states if one.alarm is not None]
        begun = {one.since for one in self.storage.calibrations()}
        if alarms:
            since, until = min(one.since for one in alarms), max(one.raised for one in alarms)
        else:
            since, until = segment[0].hour.hour if segment else 0, 0
            biased = any(is_biased(_ratios(segment[:LEAST_HOURS], name)) for name in WATCHED[:2])
            if since in begun or not biased:
                return False
        after = [one for one in segment if one.hour.hour >= since and one.enough]
        if len(after) < LEAST_HOURS:
            return False
        until = max(until, after[LEAST_HOURS - 1].hour.hour)
        chosen = [one.hour for one in after if one.hour.hour <= until]
        alone = self.scenario.model_copy(update={"fleets": (self.fleet,), "sweep": None})
        try:
            with self.progress(N_("recalibrating"), "cases"):
                made = recalibrated(alone, self.catalog, self.source, chosen, self.options.workers)
            stored = StoredCalibration(since, until, made.text, "")
        except CannotCalibrate as error:
            stored = StoredCalibration(since, until, "", str(error))
        self.storage.keep_calibration(stored)
        return True

    def _remarks(self, hours: Sequence[HourObserved], twin: Twin) -> list[str]:
        """Return notes on gaps, restarts and the number of servers."""
        notes: list[str] = []
        if missing := [one for one in hours if not one.usable]:
            notes.append(
                Message(
                    "{count} of {all} hours have less than 45 minutes of data and are left out (last: {last})",
                    len(missing),
                    len(hours),
                    moment(missing[-1].hour),
                )
            )
        if restarts := sum(one.restarts for one in hours):
            notes.append(Message("servers restarted {count} times; their counters are continued", restarts))
        last = next((one for one in reversed(hours) if one.usable), None)
        if twin.scaled:
            notes.append(
                Message("the capacity is that of all {replicas} replicas that the autoscaler may start", twin.replicas)
            )
        servers_seen = float(twin.replicas) if last is None else last.servers
        fewer = twin.scaled and servers_seen < twin.replicas
        if abs(servers_seen - twin.replicas) >= 0.5 and len(self.fleet.pools) == 1 and not fewer:
            servers = f"{servers_seen:.0f}"
            notes.append(
                Message(
                    "the scenario has {replicas} replicas, but {servers} servers have metrics", twin.replicas, servers
                )
            )
        if not self.source.match and any(pool.role == "prefill" for pool in self.fleet.pools):
            notes.append(
                "prefill servers may count each request again: choose one role by --match 'pod=~\".*decode.*\"'"
            )
        if last is not None and last.ttft_s_mean is None:
            notes.append("the server has no histogram of TTFT: it is not compared")
        if last is not None and last.tpot_s_mean is None:
            notes.append("the server has no histogram of the time between tokens: TPOT is not compared")
        return notes


def _mean(hours: Sequence[HourObserved], name: str) -> float | None:
    """Return the mean of a length over *hours*, weighted by requests; None where it is not known."""
    pairs = [(getattr(one, name), one.requests) for one in hours if getattr(one, name) is not None]
    total = sum(count for _, count in pairs)
    return sum(value * count for value, count in pairs) / total if total else None


def _ratios(compared: Sequence[ComparedHour], name: str) -> list[float]:
    return [ratio for one in compared if (ratio := one.ratio(name)) is not None]


def settled_end(now_s: float) -> int:
    """Return the end of the last hour whose samples have arrived at *now_s* [Unix s]."""
    return int((now_s - SETTLED_S) // HOUR_S) * HOUR_S


def hours_between(source: Source, first: int, end: int, with_power: bool = True) -> Iterator[list[HourObserved]]:
    """Yield the hours from *first* to *end* [Unix s], those of one query together; GPU power only *with_power*."""
    for start in range(first, end, HOURS_AT_ONCE * HOUR_S):
        number = min(HOURS_AT_ONCE, (end - start) // HOUR_S)
        span = (start - BRIDGED_S, start + number * HOUR_S, STEP_S)
        series = source.engine_series(*span, every=False)
        yield observed_hours(series, source.gpu_power(*span) if with_power else [], start, number, source.shown)


def first_hour(source: Source, history_days: float, now_s: float | None = None) -> int:
    """Return the first hour of the last *history_days* days that has metrics [Unix s].

    Raises
    ------
    SourceError
        The source has none of the metrics, or cannot be read.

    """
    now_s = source.now_s() if now_s is None else now_s
    first_s = source.first_s(now_s - history_days * DAY_S, now_s)
    if first_s is None:
        raise LacksMetrics(
            Message(
                "{url}: has no metrics of vLLM or SGLang in the last {days:g} days "
                "(vllm:e2e_request_latency_seconds_count{match}): check the scrape job and --match",
                source.shown,
                history_days,
                f"{{{source.match}}}" if source.match else "",
            )
        )
    return int(first_s // HOUR_S) * HOUR_S
