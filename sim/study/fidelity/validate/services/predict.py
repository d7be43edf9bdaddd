"""One MLPerf row predicted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from sim.batchtime import Coefficients, Device, batch_time_s, device_of, load_coefficients, slice_of, speed_of, work_of
from sim.batchtime.served import largest_batch_within
from sim.benchdata.mlperf import MlperfRow
from sim.catalogue.catalog import Catalog, UnknownId
from sim.catalogue.entries.model import OtherModel
from sim.study.fidelity.validate.services.accelerator import Accelerator, accelerator_of
from sim.study.fidelity.validate.services.benchmarks import Benchmark, Benchmarks, load_benchmarks

STREAMS = {"singlestream": 1, "multistream": 8}
"""Samples of a query, where the next one is sent when the last was answered."""
SCENARIOS = ("offline", "server", *STREAMS)


@dataclass(frozen=True, slots=True)
class Case:
    """A row whose names are all known."""

    row: MlperfRow
    benchmark: Benchmark
    model: OtherModel
    accelerator: Accelerator
    device: Device

    @property
    def units(self) -> int:
        """GPUs or slices that share the work; a query of a stream is answered by one."""
        return self.accelerator.slices or self.row.n_accelerators


@dataclass(frozen=True, slots=True)
class ServiceOutcome:
    """A row and its prediction."""

    row: MlperfRow
    status: str
    """covered or not_covered."""
    reason: str = ""
    gpu: str = ""
    """Id, with the MIG profile behind a slash."""
    model: str = ""
    precision: str = ""
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def pair(self) -> tuple[str, str]:
        """(accelerator, benchmark), as far as known."""
        return self.gpu or self.row.accelerator, self.row.benchmark

    def error(self, metric: str) -> float | None:
        """predicted / measured - 1; None where either is missing."""
        measured, predicted = self.row.measured.get(metric), self.metrics.get(metric)
        return None if not measured or predicted is None else predicted / measured - 1


class NotCovered(ValueError):
    """A row that cannot be predicted, and why."""


def case_of(row: MlperfRow, catalog: Catalog, benchmarks: Benchmarks) -> Case:
    """What *row* names. Raises NotCovered with all that is unknown."""
    missing = []
    benchmark = benchmarks.find(row.benchmark)
    if benchmark is None:
        missing.append(f"benchmark {row.benchmark!r} is no service that answers in one pass")
    elif row.scenario not in SCENARIOS or (row.scenario == "server" and benchmark.server_limit_s is None):
        missing.append(f"{row.benchmark} has no scenario {row.scenario!r} here")
    accelerator = None
    try:
        accelerator = accelerator_of(row.accelerator, catalog)
    except UnknownId:
        missing.append(f"unknown accelerator {row.accelerator!r}")
    if benchmark is None or accelerator is None or missing:
        raise NotCovered("; ".join(missing))
    model = catalog.any_model(benchmark.model)
    assert isinstance(model, OtherModel)
    for precision in benchmark.precisions:
        gpu, profile = accelerator.gpu, accelerator.profile
        device = device_of(gpu, precision) if profile is None else slice_of(gpu, profile, precision)
        if device is not None:
            return Case(row, benchmark, model, accelerator, device)
    raise NotCovered(f"{accelerator.gpu.id} has no {' or '.join(benchmark.precisions)} rate")


def metrics_of(case: Case, time_s: Callable[[float], float], server_share: float) -> dict[str, float]:
    """Predicted columns of *case*, whose batches of b of the benchmark's samples take time_s(b).

    Offline: batches without a gap. Server: batches as large as the limit allows. Streams: one query after the other.
    """
    scenario, benchmark = case.row.scenario, case.benchmark
    if scenario in STREAMS:
        return {"mean_latency_ms": 1e3 * time_s(STREAMS[scenario])}
    if scenario == "offline" or benchmark.server_limit_s is None:
        return {"samples_s": case.units * benchmark.batch / time_s(benchmark.batch)}
    batch = largest_batch_within(time_s, benchmark.server_limit_s, benchmark.batch)
    return {"samples_s": server_share * case.units * batch / time_s(batch)}


def predict(row: MlperfRow, catalog: Catalog) -> ServiceOutcome:
    """*row* with its prediction."""
    benchmarks, coefficients = _constants(catalog.root)
    try:
        case = case_of(row, catalog, benchmarks)
    except NotCovered as error:
        return ServiceOutcome(row, "not_covered", str(error))
    speed = speed_of(case.device, coefficients.factors(case.model, case.device))
    slow = 1 / benchmarks.power_limited_speed.value if row.power_limited else 1.0

    def time_s(samples: float) -> float:
        return slow * batch_time_s(work_of(case.model, case.device.precision, samples * case.benchmark.samples), speed)

    profile = case.accelerator.profile
    return ServiceOutcome(
        row,
        "covered",
        gpu=f"{case.accelerator.gpu.id}/{profile}" if profile else case.accelerator.gpu.id,
        model=case.model.id,
        precision=case.device.precision,
        metrics=metrics_of(case, time_s, case.benchmark.server_share.value),
    )


def predict_all(
    rows: Sequence[MlperfRow], catalog: Catalog, workers: int, progress: Callable[[int, int, int], None]
) -> list[ServiceOutcome]:
    """Every row with its prediction; a thousand rows take well under a second, so *workers* do not matter."""
    outcomes = []
    for done, row in enumerate(rows, 1):
        outcomes.append(predict(row, catalog))
        progress(done, len(rows), 0)
    return outcomes


@cache
def _constants(root: Path) -> tuple[Benchmarks, Coefficients]:
    return load_benchmarks(root / "mlperf.yaml"), load_coefficients(root / "batchtime.yaml")
