"""From measured rows to observations: each row simulated once by gpufleet's own engine, its steps recorded."""

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
"""A closed loop with more clients than this has a TTFT that the schedule makes, not the step."""
CALM_WAIT_S = 0.02
MIDDLE = (0.4, 0.6)
NEARLY = 0.9
"""A client that is answered this share of the requests per second that it offers is held back by nothing else."""
OF_HOST = ("per_step:", "per_sequence_", "launch_layer")
"""Stages that are the host's: what their names begin with."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A row with the plan of its simulation."""

    row: BenchRow
    prepared: PreparedRow


@dataclass(frozen=True, slots=True)
class Simulated:
    """A row, simulated."""

    row: BenchRow
    metrics: dict[str, float]
    saturated: bool
    wait_s: float
    steps: Steps
    stages: Stages
    request_s: float
    request_names: tuple[str, ...]


def prepare(rows: list[BenchRow], catalog: Catalog) -> tuple[list[Ready], Counter[str]]:
    """The rows that can be simulated, and how many cannot for which reason."""
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
    """The row's simulation under *theta*; None if nothing was answered."""
    plan = with_client_pause(with_parameters(ready.prepared.plan, priors, theta))
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
        (*priors.with_common(request_names(steptime)), f"host_request:{host}"),  # type: ignore[arg-type]
    )  # fmt: skip


def _with_host(names: Names, host: str) -> Names:
    """*names* of a stage, with the row's host where the stage is the host's."""
    return (*names, f"host:{host}") if names[0].startswith(OF_HOST) else names


def compared(row: BenchRow, saturated: bool) -> list[tuple[str, str]]:
    """(class of metric, column) that a row is judged by: one of each class.

    The throughput of an open loop, or of a closed one whose client sends more slowly than it might, is its offered
    rate; TTFT of a saturated row is the length of a queue; TPOT of a burst is its throughput once more.
    """
    measured, offered = row.measured, row.rate_req_s or inf
    paced = row.load in ("poisson", "constant") or measured.get("req_s", 0.0) > NEARLY * offered
    found = [("tput", name) for name in THROUGHPUT if measured.get(name) and not paced][:1]
    if row.load != "burst":
        found += [("tpot", name) for name in ("tpot_mean_ms", "tpot_p50_ms") if measured.get(name)][:1]
    if not saturated:
        found += [("ttft", name) for name in ("ttft_mean_ms", "ttft_p50_ms") if measured.get(name)][:1]
    return found


def observations(simulated: list[Simulated]) -> list[Observation]:
    """All that the rows are compared in."""
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
                    simulated_s=value / scale if kind == "ttft" else 0.0,
                )
            )  # fmt: skip
    return found


def about_median(times: Floats, weight: Floats) -> Floats:
    """*weight* of the steps in which the gaps between tokens lie that are next to the median of all: the middle fifth.

    A campaign that gives the median gap has left out most steps with prompts, however long these are.
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
    """Whether a parameter may learn from *observation*: trusted rows, and TTFT only where no queue makes it."""
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
