"""Prediction and scores of MLPerf results of one-pass services.

data/mlperf.yaml describes the benchmarks. Errors are medians over pairs of accelerator and benchmark; the folder gets
validation.csv, summary_by_*.csv and validation.png.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from sim.batchtime.coefficients import BatchTimeCoefficients, load_coefficients
from sim.batchtime.roofline import (
    Device,
    Precision,
    batch_time_s,
    device_of,
    largest_batch_within,
    slice_of,
    speed_of,
    work_of,
)
from sim.benchdata.mlperf import SERVICE_METRICS, MlperfRow
from sim.catalogue.catalog import Catalog
from sim.catalogue.data_folder import UnknownId
from sim.catalogue.gpu import Gpu
from sim.catalogue.model import OtherModel
from sim.catalogue.value import Sourced, Value
from sim.csvio import write_csv
from sim.fidelity.picture import Points, key_of, scatter
from sim.language import N_, _, translate_rendered
from sim.message import OR, Message, joined
from sim.report.charts.panels import style
from sim.report.charts.picture import picture
from sim.report.terminal_table import FittedTable
from sim.spec import Positive, Spec
from sim.yamlio import read

MIG = re.compile(r"\(\s*(\d+)\s*x\s*(\d+g\.\d+gb)(?:\s*MIG)?\s*\)|MIG\D*(\d+)x(\d+g\.\d+gb)", re.IGNORECASE)
"""Pattern of the MIG slices in an accelerator's name, such as `(1x1g.10gb MIG)`: number and profile."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """GPU, or MIG slices of one profile."""

    gpu: Gpu
    profile: str | None = None
    slices: int = 0
    """Number of slices in use in the whole system; 0 for whole GPUs."""


def accelerator_of(name: str, catalog: Catalog) -> Accelerator:
    """Return the accelerator called *name*. Raises UnknownId, also for a profile that the GPU lacks."""
    found = MIG.search(name)
    gpu = _gpu(MIG.sub("", name).strip(), catalog)
    if found is None:
        return Accelerator(gpu)
    count, profile = (found[1], found[2]) if found[1] else (found[3], found[4])
    profiles = {} if gpu.mig is None else gpu.mig.profiles
    if profile.lower() not in profiles:
        raise UnknownId("MIG profile", profile, tuple(profiles)[:4])
    return Accelerator(gpu, profile.lower(), int(count))


def _gpu(name: str, catalog: Catalog) -> Gpu:
    first: UnknownId | None = None
    for spelling in spellings(name):
        try:
            return catalog.gpu(spelling)
        except UnknownId as error:
            first = first or error
    raise first or UnknownId("gpu", name, ())


def spellings(name: str) -> list[str]:
    """Return *name* and variants without maker, form factor and memory, the least changed first.

    >>> spellings("AMD Instinct MI300X 192GB HBM3")
    ['AMD Instinct MI300X 192GB HBM3', 'MI300X 192GB HBM3', 'MI300X']
    """
    plain = re.sub(r"\s*\(.*?\)", "", name).strip()
    maker = re.sub(
        r"^(virtualized\s+)?(nvidia|amd)\s+(instinct\s+|geforce\s+|tesla\s+)?", "", plain, flags=re.IGNORECASE
    )
    memory = re.sub(r"[\s_-]*\d+\s?GB\S*(\s+HBM\S*)?$", "", maker, flags=re.IGNORECASE)
    return [spelling for spelling in dict.fromkeys((name, plain, maker, memory)) if spelling]


class Benchmark(Sourced):
    """MLPerf benchmark: its model, and the precision, batch and latency limit of its submissions."""

    aliases: tuple[str, ...] = ()
    model: str
    """Id in data/models."""
    precisions: tuple[Precision, ...]
    """Precisions in order of preference; the first that the accelerator supports is used."""
    samples: Positive = 1.0
    """Number of the model's samples per sample of the benchmark."""
    batch: Positive
    """Batch in samples of the benchmark, if no latency limits it."""
    server_limit_s: Positive | None = None
    """Latency limit of 99 % of the queries of a Server run [s]."""
    server_share: Value
    """Server rate relative to back-to-back batches of the size that the limit allows."""


class Benchmarks(Spec):
    """Contents of data/mlperf.yaml: benchmarks of services, and the effect of power caps."""

    benchmarks: dict[str, Benchmark]
    power_limited_speed: Value
    """Speed under a power cap (MaxQ), relative to the same GPUs without a cap."""

    def find(self, name: str) -> Benchmark | None:
        """Return the benchmark called *name*; None if it is not a service."""
        wanted = name.strip().lower()
        for key, one in self.benchmarks.items():
            if wanted == key or wanted in one.aliases:
                return one
        return None


def load_benchmarks(path: Path) -> Benchmarks:
    """Read data/mlperf.yaml.

    Raises
    ------
    pydantic.ValidationError, sim.yamlio.YamlError
        The file is invalid.

    """
    return Benchmarks.model_validate(read(path).data)


STREAMS = {"singlestream": 1, "multistream": 8}
"""Samples per query of scenarios in which each query follows the previous answer."""
SCENARIOS = ("offline", "server", *STREAMS)


@dataclass(frozen=True, slots=True)
class ServiceCase:
    """Result row with its catalogue entries."""

    row: MlperfRow
    benchmark: Benchmark
    model: OtherModel
    accelerator: Accelerator
    device: Device

    @property
    def units(self) -> int:
        """Number of GPUs or slices that share the work; a query of a stream uses one."""
        return self.accelerator.slices or self.row.n_accelerators


@dataclass(frozen=True, slots=True)
class ServiceOutcome:
    """Result row with its prediction."""

    row: MlperfRow
    status: str
    """Status: covered or not_covered."""
    reason: str = ""
    gpu: str = ""
    """GPU id, with the MIG profile after a slash."""
    model: str = ""
    precision: str = ""
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def pair(self) -> tuple[str, str]:
        """Accelerator and benchmark, from the catalogue or else from the row."""
        return self.gpu or self.row.accelerator, self.row.benchmark

    def error(self, metric: str) -> float | None:
        """Return predicted / measured - 1; None if either is missing."""
        measured, predicted = self.row.measured.get(metric), self.metrics.get(metric)
        return None if not measured or predicted is None else predicted / measured - 1


class ServiceNotCovered(ValueError):
    """Error for a row that cannot be predicted; the message states the reasons."""


def case_of(row: MlperfRow, catalog: Catalog, benchmarks: Benchmarks) -> ServiceCase:
    """Return the catalogue entries of *row*. Raises ServiceNotCovered with everything that is unknown."""
    missing = []
    benchmark = benchmarks.find(row.benchmark)
    if benchmark is None:
        missing.append(Message("benchmark {benchmark!r} is not a one-pass service", row.benchmark))
    elif row.scenario not in SCENARIOS or (row.scenario == "server" and benchmark.server_limit_s is None):
        missing.append(
            Message("the scenario {scenario!r} of {benchmark} is not predicted", row.scenario, row.benchmark)
        )
    accelerator = None
    try:
        accelerator = accelerator_of(row.accelerator, catalog)
    except UnknownId:
        missing.append(Message("unknown accelerator {accelerator!r}", row.accelerator))
    if benchmark is None or accelerator is None or missing:
        raise ServiceNotCovered(joined("; ", missing))
    model = catalog.any_model(benchmark.model)
    assert isinstance(model, OtherModel)
    for precision in benchmark.precisions:
        gpu, profile = accelerator.gpu, accelerator.profile
        device = device_of(gpu, precision) if profile is None else slice_of(gpu, profile, precision)
        if device is not None:
            return ServiceCase(row, benchmark, model, accelerator, device)
    raise ServiceNotCovered(
        Message("{id} has no {precisions} rate", accelerator.gpu.id, joined(OR, benchmark.precisions))
    )


def metrics_of(case: ServiceCase, time_s: Callable[[float], float], server_share: float) -> dict[str, float]:
    """Return the predicted columns of *case*.

    *time_s* is the time of a batch of a given number of the benchmark's samples. Offline runs have back-to-back
    batches, Server runs batches as large as the limit allows, and streams one query after the other.
    """
    scenario, benchmark = case.row.scenario, case.benchmark
    if scenario in STREAMS:
        return {"mean_latency_ms": 1e3 * time_s(STREAMS[scenario])}
    if scenario == "offline" or benchmark.server_limit_s is None:
        return {"samples_s": case.units * benchmark.batch / time_s(benchmark.batch)}
    batch = largest_batch_within(time_s, benchmark.server_limit_s, benchmark.batch)
    return {"samples_s": server_share * case.units * batch / time_s(batch)}


def predict(row: MlperfRow, catalog: Catalog) -> ServiceOutcome:
    """Return the outcome of *row*: its prediction, or the reasons why there is none."""
    benchmarks, coefficients = _constants(catalog.root)
    try:
        case = case_of(row, catalog, benchmarks)
    except ServiceNotCovered as error:
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
    """Predict every row; *workers* is ignored, as a thousand rows need well under a second."""
    outcomes = []
    for done, row in enumerate(rows, 1):
        outcomes.append(predict(row, catalog))
        progress(done, len(rows), 0)
    return outcomes


@cache
def _constants(root: Path) -> tuple[Benchmarks, BatchTimeCoefficients]:
    return load_benchmarks(root / "mlperf.yaml"), load_coefficients(root / "batchtime.yaml")


@dataclass(frozen=True, slots=True)
class ServiceScore:
    """Score of one metric in one group of rows with a prediction."""

    group: str
    metric: str
    rows: int
    pairs: int
    median_error: float
    """Median over pairs of the pair's median absolute error."""
    p90_error: float
    bias: float
    """Median over pairs of the pair's median signed error."""


def service_scores(outcomes: Sequence[ServiceOutcome], group: Callable[[ServiceOutcome], str]) -> list[ServiceScore]:
    """Return the scores of all metrics in all groups, sorted by name."""
    members: dict[tuple[str, str], dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for outcome in outcomes:
        for metric in SERVICE_METRICS:
            error = outcome.error(metric)
            if error is not None:
                members[group(outcome), metric][outcome.pair].append(error)
    return [_score(*key, found) for key, found in sorted(members.items())]


def _score(group: str, metric: str, pairs: dict[tuple[str, str], list[float]]) -> ServiceScore:
    sizes = [float(np.median(np.abs(errors))) for errors in pairs.values()]
    return ServiceScore(
        group,
        metric,
        rows=sum(map(len, pairs.values())),
        pairs=len(pairs),
        median_error=float(np.median(sizes)),
        p90_error=float(np.percentile(sizes, 90)),
        bias=float(np.median([np.median(errors) for errors in pairs.values()])),
    )


GROUPS: dict[str, Callable[[ServiceOutcome], str]] = {
    "scenario": lambda one: one.row.scenario,
    "benchmark": lambda one: one.row.benchmark,
    "accelerator": lambda one: one.gpu,
}
SCORE_COLUMNS = ("metric", "rows", "pairs", "median_error", "p90_error", "bias")
TITLES = {"samples_s": N_("Samples per second of the system"), "mean_latency_ms": N_("Mean latency of a query [ms]")}
MOST_REASONS = 12


def write_services(folder: Path, outcomes: Sequence[ServiceOutcome]) -> None:
    """Write validation.csv, summary_by_*.csv and validation.png to *folder*."""
    metrics = [f"{metric}{tail}" for metric in SERVICE_METRICS for tail in ("", "_predicted", "_error")]
    leading = (
        "id",
        "status",
        "reason",
        "accelerator",
        "n_accelerators",
        "benchmark",
        "scenario",
        "gpu",
        "model",
        "precision",
    )
    write_csv(folder / "validation.csv", (*leading, *metrics), (_cells(one) for one in outcomes))
    for name, group in GROUPS.items():
        lines = (
            [score.group, *(getattr(score, column) for column in SCORE_COLUMNS)]
            for score in service_scores(outcomes, group)
        )
        write_csv(folder / f"summary_by_{name}.csv", (name, *SCORE_COLUMNS), lines)
    _write_picture(folder / "validation.png", outcomes)


def service_tables(outcomes: Sequence[ServiceOutcome]) -> list[FittedTable | str]:
    """Return the output for the terminal: coverage, reasons, errors by scenario and by benchmark."""
    covered = sum(one.status == "covered" for one in outcomes)
    parts: list[FittedTable | str] = [_("{covered:,} of {len:,} rows predicted", covered=covered, len=len(outcomes))]
    reasons = Counter(one.reason for one in outcomes if one.reason).most_common()
    if reasons:
        listed = _("; ").join(f"{translate_rendered(reason)} ({count})" for reason, count in reasons[:MOST_REASONS])
        more = len(reasons) - MOST_REASONS
        parts.append(
            _(
                "no prediction: {reasons}{more}",
                reasons=listed,
                more=_("; {more} more reasons", more=more) if more > 0 else "",
            )
        )
    return [*parts, *(_table(name, service_scores(outcomes, GROUPS[name])) for name in ("scenario", "benchmark"))]


def _table(name: str, scores: Sequence[ServiceScore]) -> FittedTable:
    heads = (name, _("metric"), _("rows"), _("pairs"), _("median |error|"), _("90 % of pairs"), _("bias"))
    rows = [
        [one.group, one.metric, str(one.rows), str(one.pairs), f"{100 * one.median_error:.1f} %",
         f"{100 * one.p90_error:.1f} %", f"{100 * one.bias:+.0f} %"]
        for one in scores
    ]  # fmt: skip
    return FittedTable(heads, rows, frozenset({0, 1}), 2)


def _cells(one: ServiceOutcome) -> list[Any]:
    row = one.row
    leading = [row.id, one.status, one.reason, row.accelerator, row.n_accelerators, row.benchmark, row.scenario]
    figures = [
        value
        for metric in SERVICE_METRICS
        for value in (row.measured.get(metric), one.metrics.get(metric), one.error(metric))
    ]
    return [*leading, one.gpu, one.model, one.precision, *figures]


def _write_picture(path: Path, outcomes: Sequence[ServiceOutcome]) -> None:
    """Write predicted against measured values, with a panel per metric and a colour per model."""
    shown = [one for one in outcomes if any(one.error(metric) is not None for metric in TITLES)]
    marks = style(sorted({one.model for one in shown}))
    scores = {one.metric: one for one in service_scores(outcomes, lambda _: "")}
    figures = []
    for metric, title in TITLES.items():
        suffix = (
            _(", median error {median_error:.0f} %", median_error=100 * scores[metric].median_error)
            if metric in scores
            else ""
        )
        figures.append(scatter(_(title) + suffix, _("predicted"), _("measured"), _points(metric, outcomes), marks))
    picture(figures, "", [], key_of(marks)).save(path)


def _points(metric: str, outcomes: Sequence[ServiceOutcome]) -> Points:
    points: Points = {}
    for one in outcomes:
        if one.error(metric) is not None:
            points.setdefault(one.model, []).append((one.row.measured[metric], one.metrics[metric]))
    return points
