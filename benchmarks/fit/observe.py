"""Observations from measured rows: each row is simulated once by gpufleet's own engine, and its steps are recorded."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import inf, log

import numpy as np
from numpy.typing import NDArray
from parameters import Priors, with_parameters
from posterior import Observation
from record import Steps, simulate
from rows import left_out, pair
from stages import Names, Stages, request_names, stages

from sim.benchdata import BenchRow
from sim.benchdata.campaigns import Campaigns
from sim.catalogue.catalog import Catalog, load_catalog
from sim.fidelity.prediction import PreparedRow, SimulatedRun, campaigns_of, prepared, with_client_pause

Floats = NDArray[np.float64]

MS_PER_S = 1000.0
THROUGHPUT = ("output_tok_s", "total_tok_s", "req_s")
LOADED = 16
"""Number of clients of a closed loop above which TTFT depends on the schedule rather than the step time."""
CALM_WAIT_S = 0.02
MIDDLE = (0.4, 0.6)
NEARLY = 0.9
"""Fraction of the offered rate above which a client's throughput is limited by its rate only."""
OF_HOST = ("per_step:", "per_sequence_", "launch_layer")
"""Prefixes of the names of stages on the host."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Row with the plan of its simulation."""

    row: BenchRow
    prepared: PreparedRow


@dataclass(frozen=True, slots=True)
class Simulated:
    """Row with the steps of its simulation."""

    row: BenchRow
    metrics: dict[str, float]
    saturated: bool
    wait_s: float
    steps: Steps
    stages: Stages
    request_s: float
    tokenising_s: float
    request_names: tuple[str, ...]


def prepare(rows: list[BenchRow], catalog: Catalog) -> tuple[list[Ready], Counter[str]]:
    """Return the rows that can be simulated, and the number of the others by reason."""
    ready, refused = [], Counter[str]()
    for row in rows:
        try:
            with prepared(row, catalog) as one:
                plan = getattr(one, "plan", None)
                if plan is None or plan.infeasible:
                    refused[getattr(one, "reason", "") or plan.infeasible] += 1
                else:
                    ready.append(Ready(row, one))
        except ValueError as error:
            refused[str(error)] += 1
    return ready, refused


def simulate_row(ready: Ready, priors: Priors, theta: Mapping[str, float]) -> Simulated | None:
    """Simulate the row under *theta*; None if no request was answered."""
    plan = with_client_pause(with_parameters(ready.prepared.plan, priors, theta), ready.row.isl)
    pool = plan.pools[0]
    case = ready.prepared.case
    fleet_log, steps = simulate(plan)
    run = SimulatedRun(fleet_log, case)
    offered = case.open_loop(run.metrics()["req_s"]) if run.answered else None
    if offered is not None:
        fleet_log, steps = simulate(replace(plan, workload=offered))
        run = SimulatedRun(fleet_log, case)
    if not run.answered:
        return None
    wait_s = float((run.started_s - run.arrived_s).mean())
    steptime = pool.steptime
    host = f"{ready.row.source_key}/{ready.row.gpu}"
    return Simulated(
        ready.row, run.metrics(), run.saturated, wait_s, steps,
        stages(steptime, steps).named(lambda names: _with_host(priors.with_common(names), host)),  # type: ignore[arg-type]
        pool.request_overhead_s,
        pool.tokenising_s * float(run.prompt_tokens.mean()),
        (*priors.with_common(request_names(steptime)), f"host_request:{host}"),  # type: ignore[arg-type]
    )  # fmt: skip


def _with_host(names: Names, host: str) -> Names:
    """Return *names* of a stage with the row's host parameter if the stage is on the host."""
    return (*names, f"host:{host}") if names[0].startswith(OF_HOST) else names


def compared(row: BenchRow, saturated: bool) -> list[tuple[str, str]]:
    """Return the (metric class, column) pairs in which a row is compared, one per class.

    The throughput of an open loop, or of a closed loop limited by its client's rate, is the offered rate; TTFT of a
    saturated row is the length of a queue; TPOT of a burst repeats its throughput.
    """
    measured, offered = row.measured, row.rate_req_s or inf
    answered = measured.get("req_s") or measured.get("output_tok_s", 0.0) / (row.osl or inf)
    paced = row.load in ("poisson", "constant") or answered > NEARLY * offered
    found = [("tput", name) for name in THROUGHPUT if measured.get(name) and not paced][:1]
    if row.load != "burst":
        found += [("tpot", name) for name in ("tpot_mean_ms", "tpot_p50_ms") if measured.get(name)][:1]
    if not saturated:
        found += [("ttft", name) for name in _ttft_columns(row) if measured.get(name)][:1]
    return found


def _ttft_columns(row: BenchRow) -> tuple[str, ...]:
    """Return the columns of TTFT in which *row* is compared, the preferred one first.

    Without warm-up, kernels are compiled during the first wave of prompts: the median is compared if that wave is less
    than half of the requests, else nothing.
    """
    setup = _campaigns().setup(row)
    if not setup.cold_start:
        return "ttft_mean_ms", "ttft_p50_ms"
    return ("ttft_p50_ms",) if (setup.num_requests or 0) > 2 * (row.concurrency or inf) else ()


def observations(simulated: list[Simulated]) -> list[Observation]:
    """Return all observations of the rows."""
    found = []
    for index, one in enumerate(simulated):
        times, _ = one.stages.seconds({})
        weights = {"tput": one.steps.steps, "tpot": one.steps.decodes, "ttft": one.steps.prompts}
        for kind, column in compared(one.row, one.saturated):
            weight, value = weights[kind], one.metrics.get(column, 0.0)
            if column == "tpot_p50_ms" and _campaigns().setup(one.row).tpot_is_itl:
                weight = about_median(times, weight)
                value = MS_PER_S * float(weight @ times / weight.sum()) if weight.sum() > 0 else 0.0
            if value <= 0 or weight.sum() <= 0:
                continue
            scale = MS_PER_S if kind == "ttft" else 1.0
            found.append(
                Observation(
                    row=index, pair=pair(one.row), gpu=one.row.gpu, metric=kind,
                    log_measured=log(one.row.measured[column] / scale), log_simulated=log(value / scale),
                    stages=one.stages, weights=weight, base_s=float(weight @ times / weight.sum()),
                    request_names=one.request_names if kind == "ttft" else (),
                    request_s=one.request_s if kind == "ttft" else 0.0,
                    tokenising_s=one.tokenising_s if kind == "ttft" else 0.0,
                    simulated_s=value / scale if kind == "ttft" else 0.0,
                )
            )  # fmt: skip
    return found


def about_median(times: Floats, weight: Floats) -> Floats:
    """Return *weight* restricted to the steps of the middle fifth of all gaps between tokens.

    A campaign that reports the median gap excludes most steps with prompts, however long these are.
    """
    order = np.argsort(times)
    below = np.cumsum(weight[order]) / max(weight.sum(), 1e-12)
    low, high = MIDDLE
    inside = np.minimum(below, high) - np.maximum(below - weight[order] / max(weight.sum(), 1e-12), low)
    found = np.zeros_like(weight)
    found[order] = np.maximum(inside, 0.0)
    return found


@cache
def _campaigns() -> Campaigns:
    return campaigns_of(load_catalog())


def fittable(observation: Observation, simulated: list[Simulated]) -> bool:
    """Return whether *observation* may be fitted: trusted rows, and TTFT only without a queue."""
    one = simulated[observation.row]
    if left_out(one.row):
        return False
    if observation.metric != "ttft":
        return True
    if _campaigns().setup(one.row).prompts_held_steps:
        return False
    if one.row.load == "closed_loop":
        return (one.row.concurrency or 0) <= LOADED
    return one.row.load == "single" or (one.row.load == "poisson" and one.wait_s < CALM_WAIT_S)
