"""What a table of somebody's own runs was measured with: models, layouts and loads."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from sim.benchdata.row import BenchRow
from sim.catalogue.catalog import Catalog
from sim.scenario.resolving.bind import bind
from sim.steptime import OwnRuns
from sim.study.fidelity.marks.own import SERVER, server_of
from sim.study.fidelity.validate.case import BenchCase, case_of
from sim.study.fidelity.validate.predict import MS_PER_S, campaigns_of


def own_runs(rows: Sequence[BenchRow], catalog: Catalog) -> Iterator[OwnRuns]:
    """A line for each model, format, engine and layout of *rows*, in their order."""
    groups: dict[tuple[object, ...], list[BenchRow]] = defaultdict(list)
    for row in rows:
        case = case_of(row, catalog, campaigns_of(catalog))
        groups[_server(case, catalog)].append(case.row)
    for server, members in groups.items():
        flights = [flight for row in members if (flight := _in_flight(row))]
        prompts = [row.isl for row in members if row.isl]
        loads = {"runs": run_count(members), "prompt": (min(prompts), max(prompts))}
        loads["sequences"] = (min(flights), max(flights)) if len(flights) == len(members) else None
        yield OwnRuns.model_validate(dict(zip(SERVER, server, strict=True)) | loads)


def run_count(rows: Sequence[BenchRow]) -> int:
    """Parts of one stretch of a server are one run."""
    parts = [row.counted.stretch for row in rows if row.counted]
    return len(rows) - len(parts) + len(set(parts))


def _server(case: BenchCase, catalog: Catalog) -> tuple[object, ...]:
    scenario = case.scenario()
    fleet = scenario.fleets[0]
    return server_of(bind(scenario, fleet, fleet.pools[0], catalog))


def _in_flight(row: BenchRow) -> float | None:
    """Requests in flight: those that the client keeps there, or by Little's law; None if neither is known."""
    if row.load == "single":
        return 1.0
    return row.concurrency or row.avg_batch or (row.rate_req_s or 0.0) * _served_s(row) or None


def _served_s(row: BenchRow) -> float:
    told = row.measured
    answer_ms = told.get("ttft_mean_ms", 0.0) + told.get("tpot_mean_ms", 0.0) * (row.osl or 0.0)
    return told.get("e2e_mean_ms", answer_ms) / MS_PER_S
