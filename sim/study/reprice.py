"""Repricing of a finished run: its intervals are billed at other prices, without a new simulation."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from math import isclose, nan
from pathlib import Path
from typing import Any, TypeVar

from sim.case.result import CaseResult, price_case
from sim.catalogue.catalog import Catalog
from sim.message import Message
from sim.records import BusyTime, FleetLog, Interval, Meters, ReplicaVisit, Request
from sim.scenario.reading.errors import InputError, ScenarioErrors
from sim.scenario.reading.layers import place_of, value_at
from sim.scenario.reading.load import load
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.resolved import CasePlan
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case, as_data, points
from sim.study.execution.cases import missing_case
from sim.study.execution.digest import MONEY, SCENARIO, digest, rests_on
from sim.study.execution.durable import POINTS
from sim.study.execution.precision import key_of, with_further
from sim.study.execution.store import SHARES, VISITS, StoredCase, load_case, read_case, save_repriced
from sim.study.metrics.case_metrics import with_bill
from sim.validation import Place, dotted
from sim.yamlio import YamlError, dump, read

Work = TypeVar("Work")
"""Scenario with a job or jobs."""

SCENARIO_FILE = "scenario.yaml"


def keep_scenario(folder: Path, scenario: Scenario) -> None:
    """Write the scenario as it was run, with bases and options merged, to the run's *folder*."""
    (folder / SCENARIO_FILE).write_text(dump(as_data(scenario)), encoding="utf-8")


def load_repriced(run: Path, sets: Sequence[str], catalog: Catalog) -> Scenario:
    """Return the scenario of the finished run in *run* with the values *sets*; raises as `read_repriced`."""
    return read_repriced(run, sets, catalog)[0]


def read_repriced(run: Path, sets: Sequence[str], catalog: Catalog) -> tuple[Scenario, list[tuple[Case, StoredCase]]]:
    """Return the scenario of the finished run in *run* with the values *sets*, and its cases.

    Raises
    ------
    ScenarioErrors
        Where there is not a finished run, or where a value is not a cost input.

    """
    path, data = _kept(run, sets)
    scenario = load(path, sets, catalog=catalog)
    moved = [InputError(f"fleet {name}", 0, "site.timezone", text) for name, text in moved_schedules(data, scenario)]
    if moved:
        raise ScenarioErrors(moved)
    changed: dict[str, None] = {}
    finished = list(finished_cases(run, scenario))
    inputs: dict[str, dict[str, str]] = {}
    for case, stored in finished:
        key = repr((case.fleet, case.overrides))  # replications have equal inputs
        now = inputs[key] = inputs.get(key) or rests_on(scenario, case, catalog)
        changed |= dict.fromkeys(
            what for what in {**stored.rests_on, **now} if stored.rests_on.get(what) != now.get(what)
        )
    if changed:
        raise ScenarioErrors(changed_input(run, what) for what in changed)
    return scenario, finished


def load_repriced_work(run: Path, sets: Sequence[str], catalog: Catalog, read: Callable[..., Work]) -> Work:
    """Return the scenario with a job or jobs of the finished run in *run*, with the values *sets*.

    Raises
    ------
    ScenarioErrors
        Where there is not a finished run, or where a value is not a cost input.

    """
    path, _ = _kept(run, sets)
    return read(path, sets, catalog=catalog)


def _kept(run: Path, sets: Sequence[str]) -> tuple[Path, dict[str, Any]]:
    """Return the scenario file of the run, and its data.

    Raises
    ------
    ScenarioErrors
        Where one of *sets* is not a cost input.

    """
    path = run / SCENARIO_FILE
    if not path.is_file():
        raise ScenarioErrors(
            [InputError(str(run), 0, "", Message("is not a finished run: it has no {file}", SCENARIO_FILE))]
        )
    try:
        data = read(path).data
    except YamlError as error:
        raise ScenarioErrors([InputError(error.path, error.line, "", error.message)]) from None
    wrong = [one for item in sets if (one := refusal(data, item)) is not None]
    if wrong:
        raise ScenarioErrors(wrong)
    return path, data


def changed_input(run: Path, what: str) -> InputError:
    """Return the error that the input *what* of the run has changed."""
    if what == SCENARIO:
        text = Message(
            "differs from what was simulated in more than {money} and a fleet's cost: simulate it anew",
            ", ".join(MONEY),
        )
        return InputError(str(run / SCENARIO_FILE), 0, "", text)
    return InputError(
        str(run), 0, "", Message("{input} has changed since this run was simulated: run its scenario again", what)
    )


def moved_schedules(data: dict[str, Any], scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yield (name, reason) of the fleets whose schedule would switch replicas at other times than in the run."""
    for i, fleet in enumerate(scenario.fleets):
        old = value_at(data, ("fleets", i, "site")) or data.get("site") or {}
        site = fleet.site or scenario.site
        if any(pool.schedule for pool in fleet.pools) and old.get("timezone") != (site.timezone if site else None):
            yield fleet.name, "decides when the schedule switches replicas: simulate it anew"


def refusal(data: dict[str, Any], item: str) -> InputError | None:
    """Return why the option *item* cannot be set without a simulation; None if it can."""
    path = item.partition("=")[0].strip()
    try:
        place = place_of(data, path)
    except LookupError:
        return None  # `load` reports the error with its line
    axes = [place_of(data, axis) for point in points(data.get("sweep")) for axis in point]
    if not _is_money(place):
        text = Message(
            "is not a cost input: only {money} and a fleet's cost can change without a simulation", ", ".join(MONEY)
        )
        return InputError(f"--set {path}", 0, "", text)
    if any(place[: len(axis)] == axis or axis[: len(place)] == place for axis in axes):
        return InputError(f"--set {path}", 0, "", "is swept: the run has a point for each of its values")
    return None


def _is_money(place: Place) -> bool:
    if place[0] == "fleets" and len(place) > 2:
        return place[2] == "cost" or place[2] in MONEY or (place[2] == "pools" and place[4:5] == ("cost",))
    return place[0] in MONEY


def reprice(run: Path, scenario: Scenario, catalog: Catalog, out: Path) -> list[StoredCase]:
    """Return every case of *run* billed under *scenario*, stored in `out/points`.

    Raises
    ------
    ScenarioErrors
        Where the run lacks a case, or where a term changes the simulation.

    """
    result = []
    for case, stored in finished_cases(run, scenario):
        plan = resolve(scenario, case, catalog)
        folder = out / POINTS / digest(scenario, case, catalog)
        billed = _billed(plan, stored) if stored.status == "ok" else None
        metrics = None if billed is None else with_bill(stored.metrics, billed)
        save_repriced(folder, stored, billed, metrics)
        result.append(read_case(folder))
    return result


def finished_cases(run: Path, scenario: Scenario) -> Iterator[tuple[Case, StoredCase]]:
    """Yield the cases of *scenario* with their results in *run*.

    Raises
    ------
    ScenarioErrors
        Where a case is missing.

    """
    finished = (run / POINTS).glob("[!.]*")
    found = {key_of(one): one for path in finished if (one := load_case(path)) is not None}
    for case in with_further(scenario, found):
        stored = found.get(key_of(case))
        if stored is None:
            raise ScenarioErrors([InputError(str(run), 0, "", missing_case(case))])
        yield case, stored


def _billed(plan: CasePlan, stored: StoredCase) -> CaseResult:
    """Return *stored* under the prices of *plan*, in the window that the run has measured."""
    plan, log = measured(plan, stored)
    refuse_other_meters(plan, log.intervals)
    return price_case(plan, log)


def measured(plan: CasePlan, stored: StoredCase) -> tuple[CasePlan, FleetLog]:
    """Return *plan* with the window that the run has measured, and the log of its meters."""
    plan = replace(plan, warmup_s=stored.metrics["warmup_s"])
    intervals = [Interval(**row) for row in stored.usage().to_pylist()]
    requests = _requests(stored) if plan.cost_per_request else []
    pools = [position for position, pool in enumerate(plan.pools) for _ in range(_engines(plan, position))]
    end_s = max((interval.end_s for interval in intervals), default=0.0)
    log = FleetLog(requests, intervals, [], pools, end_s)
    start_s, stop_s = plan.window_s(log.end_s)
    log.meters = _totals([i for i in intervals if i.is_within(start_s, stop_s)])
    return plan, log


def refuse_other_meters(plan: CasePlan, intervals: Sequence[Interval]) -> None:
    """Check that *plan* would meter the same *intervals* as the run.

    Raises
    ------
    ScenarioErrors
        Where power or reading times differ.

    """
    if any(not isclose(interval.peak_w, peak_w) for interval in intervals for peak_w in [_peak_w(plan, interval)]):
        text = "cost.share changes how many servers run and what they draw: simulate it anew"
        raise ScenarioErrors([InputError(f"fleet {plan.fleet}", 0, dotted(("cost", "share")), text)])
    if plan.clock is not None and any(plan.clock.crosses_the_hour(i.start_s, i.end_s) for i in intervals):
        text = "meters of the run were not read at the full hours: simulate it anew with starts_at"
        raise ScenarioErrors([InputError(f"fleet {plan.fleet}", 0, "starts_at", text)])


def _peak_w(plan: CasePlan, interval: Interval) -> float:
    """Return the peak power of the interval's replica under *plan* [W]."""
    position = next(i for i, pool in enumerate(plan.pools) if pool.name == interval.pool)
    pool = plan.pools[position]
    return pool.power.peak_w * pool.replicas / _engines(plan, position) if pool.power is not None else 0.0


def _engines(plan: CasePlan, position: int) -> int:
    pool = plan.pools[position]
    return pool.replicas * (1 if pool.lockstep else pool.data_parallel_size)


def _totals(intervals: Sequence[Interval]) -> list[Meters]:
    """Return the sums of the intervals' meters by replica, in order."""
    names = {f.name for f in fields(Meters)} & {f.name for f in fields(Interval)}
    totals: dict[int, Meters] = {}
    for interval in intervals:
        meters = totals.setdefault(interval.replica, Meters())
        for name in names:
            setattr(meters, name, getattr(meters, name) + getattr(interval, name))
    return [totals[replica] for replica in sorted(totals)]


DATES = ("started_s", "first_token_s", "finished_s")
COUNTS = ("cached_tokens", "preemptions")


def _requests(stored: StoredCase) -> list[Request]:
    """Return the stored requests with the fields that their bill needs."""
    columns = ["request", "service", "arrived_s", *DATES, "prompt_tokens", "output_tokens", "replica", *COUNTS, *SHARES]
    table, requests = stored.requests(), []
    for row in table.select([name for name in (*columns, VISITS) if name in table.column_names]).to_pylist():
        request = Request(row["request"], row["arrived_s"], row["prompt_tokens"], row["output_tokens"])
        request.replica, request.service = row["replica"], row["service"]
        for name in DATES:
            setattr(request, name, nan if row[name] is None else row[name])
        for name in COUNTS:
            setattr(request, name, row[name])
        request.busy = BusyTime(**{name: row[name] for name in SHARES})
        request.left = tuple(_visit(**visit) for visit in row.get(VISITS, ()))
        requests.append(request)
    return requests


def _visit(replica: int, **seconds: float) -> ReplicaVisit:
    """Return a visit with the fields that its bill needs."""
    return ReplicaVisit(replica, nan, nan, None, BusyTime(**seconds))
