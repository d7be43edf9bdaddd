"""Measured rows simulated under trial factors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed

from sim.benchdata.row import BenchRow
from sim.catalogue.catalog import Catalog, load_catalog
from sim.scenario.resolving.resolved import CasePlan, PoolPlan
from sim.steptime import Calibration, Factor, RooflineStepTime
from sim.study.fidelity.validate.case import case_of
from sim.study.fidelity.validate.names import NotCovered
from sim.study.fidelity.validate.predict import Prediction, campaigns_of, prepared, simulate

Theta = dict[str, float]
"""Logarithm of each factor, by its dotted name."""

ROWS_ALONE = 4
"""So few rows are simulated in this process."""


@dataclass(frozen=True, slots=True)
class Simulator:
    """Runs the rows of a table as those of one GPU (an id)."""

    catalog: Catalog
    gpu: str
    workers: int

    def why_not(self, row: BenchRow) -> str:
        """Why *row* is no run of this GPU that can be simulated; empty if it is."""
        try:
            case = case_of(row, self.catalog, campaigns_of(self.catalog))
        except NotCovered as error:
            return str(error)
        if case.names.gpu.id != self.gpu:
            return f"ran on {case.names.gpu.id}"
        drafted = "speculative" in case.data["fleets"][0]["pools"][0]["batching"]
        return case.notes[0] if row.spec_decode and not drafted else ""

    def runs(self, rows: Sequence[BenchRow], thetas: Sequence[Sequence[Theta]]) -> list[list[Prediction]]:
        """Every row under each of its own *thetas*."""
        if self.workers == 1 or len(rows) <= ROWS_ALONE:
            return [_simulate(row, self.gpu, self.catalog, own) for row, own in zip(rows, thetas, strict=True)]
        work = zip(rows, thetas, strict=True)
        parallel = Parallel(n_jobs=min(self.workers, len(rows)))
        found: list[list[Prediction]] = parallel(
            delayed(_in_worker)(row, self.gpu, self.catalog.root, own) for row, own in work
        )
        return found


def _in_worker(row: BenchRow, gpu: str, root: Path, thetas: Sequence[Theta]) -> list[Prediction]:
    return _simulate(row, gpu, _catalog(root), thetas)


@cache
def _catalog(root: Path) -> Catalog:
    """One catalogue per process: it remembers what it has read."""
    return load_catalog(root)


def _simulate(row: BenchRow, gpu: str, catalog: Catalog, thetas: Sequence[Theta]) -> list[Prediction]:
    try:
        with prepared(row, catalog) as ready:
            return [simulate(ready, adjusted(_of_theta(gpu, theta))) for theta in thetas]
    except NotCovered as error:
        return [Prediction(row.id, "not_covered", str(error))] * len(thetas)


def _of_theta(gpu: str, theta: Theta) -> Calibration:
    return calibration_of(gpu, {name: Factor(factor=float(np.exp(value))) for name, value in theta.items()})


def calibration_of(gpu: str, factors: dict[str, Factor]) -> Calibration:
    """From factors by dotted name: `memory_efficiency`, `links.pcie4-x16.latency`."""
    data: dict[str, dict[str, dict[str, Factor]]] = {"engines": {}, "links": {}}
    alone: dict[str, Factor] = {}
    for name, factor in factors.items():
        kind, _, rest = name.partition(".")
        if not rest:
            alone[name] = factor
            continue
        holder, _, last = rest.rpartition(".")
        data[kind].setdefault(holder, {})[last] = factor
    return Calibration.model_validate({"gpu": gpu, **alone, **data})


def adjusted(calibration: Calibration) -> Callable[[CasePlan], CasePlan]:
    """Puts a calibration into a plan made without one."""

    def pool_with(pool: PoolPlan) -> PoolPlan:
        steptime = pool.steptime
        if not isinstance(steptime, RooflineStepTime):
            return pool
        inputs = calibration.inputs(steptime.inputs)
        overhead_s = pool.request_overhead_s
        if overhead_s:
            overhead_s = steptime.spec.request_overhead_s(
                inputs.engine, inputs.model, inputs.tensor_parallel_size, inputs.gpu
            )
        return replace(pool, steptime=steptime.spec.build(inputs), request_overhead_s=overhead_s)

    return lambda plan: replace(plan, pools=tuple(pool_with(pool) for pool in plan.pools))
