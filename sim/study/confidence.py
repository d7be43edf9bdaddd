"""Confidence of predictions: their distance from measurements, and the error to expect on a real server.

`fleet_confidence` assesses a fleet of a scenario, `point_confidences` the points of its sweep, and `worst` selects the
least certain assessment.

data/fidelity/measured.csv, written by benchmarks/fit/intervals.py, is an index of the measured servers, without
results. A line is one GPU, model, number format, engine and parallel layout. A setting is compared with it in six
directions: GPU, model, format, layout, engine and load.

- measured near here: in each direction something similar was measured on the same GPU, and also all together
- interpolated: between measurements (another model of its kind and size, another card of its architecture, a format or
  an engine that was measured elsewhere)
- extrapolated: outside of all measurements in at least one direction

A pool with a calibration is also compared with its owner's runs: the same model in the same layout, at a load near the
calibration runs.

data/fidelity/intervals.yaml has the error for each of these marks: for an engine on a class of GPUs, for a class of
GPUs, and for all servers. The first of these with enough measurements applies; a class of GPUs with too few has the
widest ends of all. An interval holds 80 % of measured over predicted, from the 10th percentile to the 90th. It was
computed from measurements whose publisher was left out of the fit, each with the mark that it had without them.

`probability_cheaper` computes whether the result of a sizing is robust against this error. A draw gives each fleet a
speed relative to the predicted one, from the interval of its mark; a part of the error is common to both fleets, as
both run on hosts of the same kind. A fleet that meets the service level with n replicas but not with n - 1 needs a
number drawn uniformly between these at the predicted speed; at another speed it needs that number over the speed, and
its cost is proportional to its replicas.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sim.catalogue.catalog import Catalog
from sim.catalogue.engine import family_of
from sim.catalogue.gpu import Gpu
from sim.catalogue.link import Link
from sim.catalogue.model import Model, params_total
from sim.catalogue.value import Sourced
from sim.message import Message, joined
from sim.rng import stream
from sim.scenario.experiment import Experiment, Fleet, Pool
from sim.scenario.resolving.bind import BoundPool, bind
from sim.scenario.resolving.hardware import network_of
from sim.scenario.schema import Scenario
from sim.scenario.sweep import at_point, cases
from sim.spec import Count, NonNegative, Positive, Spec
from sim.steptime.calibration import CalibrationRuns
from sim.steptime.options import Roofline
from sim.study.metrics.expected_load import mean_tokens
from sim.study.metrics.statistics import normal_quantile
from sim.study.points import Point
from sim.yamlio import read

LAYOUT_COLUMNS = ("tp", "pp", "dp")
RANGES = ("sequences_low", "sequences_high", "prompt_low", "prompt_high")
TEXTS = ("gpu", "architecture", "family", "kind", "kernel", "engine", "link")


@dataclass(frozen=True, slots=True)
class MeasuredSetup:
    """Measured rows that differ only in their load."""

    gpu: str
    """Catalogue id of the GPU."""
    architecture: str
    family: str
    """Family of the model."""
    kind: str
    """Kind of the model; see `model_kind`."""
    params_billion: float
    """Number of all parameters [billions]."""
    kernel: str
    """Catalogue id of the kernel that multiplies with weights in their format."""
    engine: str
    """Family of the engine, without version."""
    link: str
    """Class of the link between the GPUs; empty on one GPU."""
    tp: int
    pp: int
    dp: int
    sequences_low: float
    """Least number of sequences in flight (and most, in `sequences_high`); infinite where only rates are known."""
    sequences_high: float
    prompt_low: float
    """Shortest mean prompt (and longest, in `prompt_high`) [tokens]."""
    prompt_high: float
    rows: int
    campaigns: int

    @property
    def gpus(self) -> int:
        """Number of GPUs of a replica."""
        return self.tp * self.pp * self.dp


COLUMNS: tuple[str, ...] = (*TEXTS, "params_billion", *LAYOUT_COLUMNS, *RANGES, "rows", "campaigns")


@cache
def read_index(path: Path) -> tuple[MeasuredSetup, ...]:
    """Return all entries of the index in the file *path*."""
    with path.open(newline="", encoding="utf-8") as file:
        return tuple(_entry(line) for line in csv.DictReader(file))


def _entry(line: dict[str, str]) -> MeasuredSetup:
    return MeasuredSetup(
        **{name: line[name] for name in TEXTS},  # type: ignore[arg-type]
        **{name: int(line[name]) for name in (*LAYOUT_COLUMNS, "rows", "campaigns")},  # type: ignore[arg-type]
        **{name: float(line[name]) for name in (*RANGES, "params_billion")},  # type: ignore[arg-type]
    )


SERVER = ("model", "quantization", "engine", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
SIXTEEN_BIT, PLAIN_KERNEL = "bf16", "dense-16bit"
LEAST_RUNS = 2
"""Least number of calibrated loads with which the error at other loads is known."""
NEAR_SEQUENCES, NEAR_PROMPT = 4.0, 2.0
"""Factors within which sequences and prompts are near: those of the campaigns behind the intervals."""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Owner's runs of the pool's server, to which its calibration was fitted."""

    runs: CalibrationRuns

    def near(self, sequences: float | None, prompt: float | None) -> bool:
        """Return whether the runs cover a load; None: unknown.

        Parameters
        ----------
        sequences
            Sequences in flight.
        prompt
            Mean prompt [tokens].

        """
        return (
            self.runs.runs >= LEAST_RUNS
            and _near_runs(sequences, self.runs.sequences, NEAR_SEQUENCES)
            and _near_runs(prompt, self.runs.prompt, NEAR_PROMPT)
        )


def _near_runs(value: float | None, ends: tuple[float, float] | None, factor: float) -> bool:
    return value is None or (ends is not None and ends[0] / factor <= value <= ends[1] * factor)


def server_of(bound: BoundPool) -> tuple[object, ...]:
    """Return the values of SERVER for a pool; all names of 16-bit weights are mapped to one format."""
    model, quantization, layout = bound.model, bound.quantization, bound.layout
    stored = quantization.id if quantization else ""
    format_ = SIXTEEN_BIT if quantization and quantization.kernel == PLAIN_KERNEL else stored
    ids = (model.id if model else "", format_, bound.engine.id)
    return *ids, layout.tensor_parallel_size, layout.pipeline_parallel_size, layout.data_parallel_size


def calibrated(bound: BoundPool) -> Calibrated | None:
    """Return the calibration runs of the server of *bound*; None without such runs."""
    known = bound.calibration.measured if bound.calibration else ()
    here = server_of(bound)
    found = (runs for runs in known if tuple(getattr(runs, name) for name in SERVER) == here)
    return next((Calibrated(runs) for runs in found), None)


Mark = Literal["measured near here", "interpolated", "extrapolated"]
MARKS: tuple[Mark, ...] = ("measured near here", "interpolated", "extrapolated")
"""Marks, from the nearest to measurements to the farthest."""
SAME_SIZE = 1.25
"""Largest ratio of parameter counts at which models of one family count as alike."""
ROUNDED = 1.01
"""Tolerance of parameter counts, which the index has to three or four digits."""
NEAR_LOAD = 2.0
"""Factor within which a load is near a measured load."""
Finding = tuple[int, str]
"""(index in MARKS, reason)."""


@dataclass(frozen=True, slots=True)
class PredictedSetting:
    """Setting whose predictions are assessed, in the terms of the index."""

    gpu: str
    architecture: str
    family: str
    kind: str
    params_billion: float
    kernel: str
    engine: str
    link: str
    tp: int = 1
    pp: int = 1
    dp: int = 1
    sequences: float | None = None
    """Sequences in flight on a replica; None: unknown before a simulation."""
    prompt: float | None = None
    """Mean prompt [tokens]; None: unknown."""
    beyond: tuple[str, ...] = ()
    """Features of the setting that no measurement of the fit has."""
    calibrated: bool = False
    """True if the GPU's factors were fitted to the user's own runs."""
    own: Calibrated | None = None
    """User's own calibration runs of this server, if any."""
    gpu_class: str = ""
    """Class of the GPU, such as `PCIe cards` (`GPU_CLASSES`)."""

    @property
    def covered_by_own_runs(self) -> bool:
        """True if the user's own runs cover this server and this load."""
        return self.own is not None and not self.beyond and self.own.near(self.sequences, self.prompt)

    @property
    def gpus(self) -> int:
        """Number of GPUs of a replica."""
        return self.tp * self.pp * self.dp


def model_kind(model: Model) -> str:
    """Return the kind of *model*: its parts that need their own kernels."""
    parts = ["mixture of experts" if model.moe else "dense"]
    parts += ["latent attention"] if model.mla else []
    parts += ["sparse attention"] if model.indexer and not model.compressed else []
    if model.linear_attention is not None:
        names = {"mamba2": "Mamba-2", "convolution": "short convolution"}
        parts.append(names.get(model.linear_attention.rule, "linear attention"))
    parts += ["compressed attention"] if model.compressed else []
    return ", ".join(parts)


ON_CHIP, SERVER_BOARDS = "system on chip", "server boards"
GPU_CLASSES = {"PCIe card": "PCIe cards", ON_CHIP: "systems on a chip"}
"""Form factor -> class of GPUs; all other form factors: SERVER_BOARDS."""


def gpu_class(gpu: Gpu) -> str:
    """Return the class of *gpu*: GPUs whose prediction errors are pooled.

    >>> from sim.catalogue.catalog import load_catalog
    >>> [gpu_class(load_catalog().gpu(name)) for name in ("h100-80gb-sxm", "rtx-4090", "dgx-spark-128gb")]
    ['server boards', 'PCIe cards', 'systems on a chip']
    """
    return GPU_CLASSES.get(gpu.form_factor, SERVER_BOARDS)


def link_class(link: Link | None, gpus: int) -> str:
    """Return the class of the link between the GPUs of a replica; empty on one GPU."""
    if gpus == 1 or link is None:
        return ""
    if not link.id.startswith("pcie"):
        return "fabric"
    return "PCIe" if link.peer_to_peer else "PCIe without peer-to-peer"


def mark_of(setting: PredictedSetting, index: Sequence[MeasuredSetup]) -> tuple[Mark, tuple[str, ...]]:
    """Return the mark of *setting*, and the reasons.

    A reason is a phrase for each direction in which nothing near was measured, or for own runs.
    """
    if setting.covered_by_own_runs:
        return MARKS[0], ("it is calibrated on your own runs of this server",)
    # a calibrated GPU counts as measured, so that the other directions are looked up on all GPUs
    here = [entry for entry in index if entry.gpu == setting.gpu and not setting.calibrated]
    findings = [look(setting, here or index, index) for look in DIRECTIONS]
    findings = [finding for finding in (_gpu(setting, here, index), *findings) if finding[0]]
    findings += [(2, reason) for reason in setting.beyond]
    if not findings and here and not any(_near_in_all_directions(setting, entry) for entry in here):
        findings = [(1, "each part was measured on this GPU, but not all of them together")]
    worst = max((place for place, _ in findings), default=0)
    return MARKS[worst], tuple(why for place, why in findings if place == worst)


def _gpu(setting: PredictedSetting, here: Sequence[MeasuredSetup], index: Sequence[MeasuredSetup]) -> Finding:
    if here or setting.calibrated:
        return 0, ""
    if any(entry.architecture == setting.architecture for entry in index):
        return 1, "this GPU was not measured, others of its architecture were"
    return 2, "no GPU of its architecture was measured"


def _model(setting: PredictedSetting, here: Sequence[MeasuredSetup], index: Sequence[MeasuredSetup]) -> Finding:
    if any(_same_model(setting, entry) for entry in here):
        return 0, ""
    sizes = [entry.params_billion for entry in index if entry.kind == setting.kind]
    if not sizes:
        return 2, Message("no model with its kind of layers ({kind}) was measured", setting.kind)
    least, most = min(sizes), max(sizes)
    if not least / ROUNDED <= setting.params_billion <= most * ROUNDED:
        kind, low, high = setting.kind, _billions(least), _billions(most)
        if low == high:
            return 2, Message("measured models of its kind ({kind}) have {most} parameters", kind, high)
        return 2, Message("measured models of its kind ({kind}) have {least} to {most} parameters", kind, low, high)
    return 1, "this model was not measured on this GPU, models of its kind and size were"


def _billions(count: float) -> str:
    return f"{count:,.0f}e9" if count >= 100 else f"{count:.3g}e9"


def _format(setting: PredictedSetting, here: Sequence[MeasuredSetup], index: Sequence[MeasuredSetup]) -> Finding:
    if any(entry.kernel == setting.kernel for entry in here):
        return 0, ""
    if any(entry.kernel == setting.kernel for entry in index):
        return 1, "weights in this format were not measured on this GPU, but on others"
    return 2, Message("weights in this format ({kernel}) were not measured", setting.kernel)


def _layout(setting: PredictedSetting, here: Sequence[MeasuredSetup], index: Sequence[MeasuredSetup]) -> Finding:
    if any(_same_layout(setting, entry) for entry in here):
        return 0, ""
    most = max((entry.gpus for entry in index if entry.link == setting.link), default=0)
    if setting.gpus > most:
        return 2, Message(
            "replicas of {gpus} GPUs over this kind of link were not measured; the largest measured have {most}",
            setting.gpus,
            most,
        )
    return 1, "this parallel layout was not measured on this GPU"


def _engine(setting: PredictedSetting, here: Sequence[MeasuredSetup], index: Sequence[MeasuredSetup]) -> Finding:
    if any(entry.engine == setting.engine for entry in here):
        return 0, ""
    if any(entry.engine == setting.engine for entry in index):
        return 1, "this engine was not measured on this GPU, but on others"
    return 2, Message("the engine {engine} was not measured", setting.engine)


def _load(setting: PredictedSetting, here: Sequence[MeasuredSetup], index: Sequence[MeasuredSetup]) -> Finding:
    wanted = tuple(_loads(setting))
    if all(any(_near_range(value, *span(entry)) for entry in here) for _, value, span in wanted):
        return 0, ""
    far = [what for what, value, span in wanted if not any(_near_range(value, *span(entry)) for entry in index)]
    return (
        (2, (Message("{far} beyond the range of the measurements", far[0])))
        if far
        else (1, "this load was not measured on this GPU")
    )


DIRECTIONS: tuple[Callable[[PredictedSetting, Sequence[MeasuredSetup], Sequence[MeasuredSetup]], Finding], ...] = (
    _model,
    _format,
    _layout,
    _engine,
    _load,
)


def _loads(setting: PredictedSetting) -> Iterator[tuple[str, float, Callable[[MeasuredSetup], tuple[float, float]]]]:
    """Yield (quantity, value, range in an entry) for each known quantity of the load."""
    if setting.sequences is not None:
        yield "sequences in flight", setting.sequences, lambda entry: (entry.sequences_low, entry.sequences_high)
    if setting.prompt is not None:
        yield "tokens in a prompt", setting.prompt, lambda entry: (entry.prompt_low, entry.prompt_high)


def _near_range(value: float, low: float, high: float) -> bool:
    return low / NEAR_LOAD <= value <= high * NEAR_LOAD


def _same_model(setting: PredictedSetting, entry: MeasuredSetup) -> bool:
    sizes = sorted((setting.params_billion, entry.params_billion))
    same = (entry.family, entry.kind) == (setting.family, setting.kind)
    return same and sizes[1] <= SAME_SIZE * sizes[0]


def _same_layout(setting: PredictedSetting, entry: MeasuredSetup) -> bool:
    return (entry.tp, entry.pp, entry.dp, entry.link) == (setting.tp, setting.pp, setting.dp, setting.link)


def _near_in_all_directions(setting: PredictedSetting, entry: MeasuredSetup) -> bool:
    """Return whether *entry* is near in every direction at once, except the engine."""
    near_load = all(_near_range(value, *span(entry)) for _, value, span in _loads(setting))
    same = entry.kernel == setting.kernel and _same_model(setting, entry) and _same_layout(setting, entry)
    return same and near_load


METRICS = ("throughput", "tpot", "ttft", "power")
ALL_SERVERS, CALIBRATED_SERVERS = "all servers", "calibrated servers"
ALL_CLASSES = "all classes (widest ends)"
COVERED = 0.8
"""Share of measurements inside an interval [1]."""
Factors = tuple[float, float]


class PredictionInterval(Spec):
    """Interval of measured over predicted (10th to 90th percentile); pairs of GPU and model family weigh the same."""

    low: Positive
    high: Positive
    common_sd: NonNegative
    """Standard deviation of the logarithm of the error that all settings of one host or engine share."""
    rows: Count
    pairs: Count


IntervalsByMark = dict[str, dict[Mark, PredictionInterval]]
"""Metric of METRICS -> mark -> interval; marks with too few measurements are absent."""


class ClassIntervals(Spec):
    """Intervals of one class of GPUs, with one engine or with all."""

    gpu_class: str
    engine: str = ""
    """Family of the engine; empty: all."""
    widest: bool = False
    """True if too few pairs of the class were measured: its ends are the widest of all classes and its own errors."""
    metrics: IntervalsByMark

    @property
    def servers(self) -> str:
        """Name of the servers with these errors for a reader, such as `vllm, PCIe cards`."""
        return ALL_CLASSES if self.widest else joined(", ", [*([self.engine] if self.engine else []), self.gpu_class])


class PredictionIntervals(Sourced):
    """All intervals of data/fidelity/intervals.yaml."""

    metrics: IntervalsByMark
    """Intervals over all servers."""
    classes: tuple[ClassIntervals, ...] = ()
    calibrated: dict[str, PredictionInterval]
    """Metric -> interval for other loads of servers that were calibrated on two loads."""

    def of(self, metric: str, mark: Mark) -> PredictionInterval | None:
        """Return the interval of *metric* for *mark* over all servers; None where too little was measured."""
        return self.metrics.get(metric, {}).get(mark)

    def nearest(self, metric: str, mark: Mark, engine: str, gpu_class: str) -> tuple[PredictionInterval | None, str]:
        """Return the interval of *metric* for *mark*, and the servers from which it was computed.

        Those are servers with *engine* on GPUs of *gpu_class*, else with any engine on these, else all servers:
        whichever were measured often enough. A class without enough pairs has the widest ends of all classes.
        """
        for name in (engine, ""):
            for one in self.classes:
                if (one.gpu_class, one.engine) == (gpu_class, name) and mark in one.metrics.get(metric, {}):
                    return one.metrics[metric][mark], one.servers
        return self.of(metric, mark), ALL_SERVERS


@cache
def read_intervals(path: Path) -> PredictionIntervals:
    """Return the content of data/fidelity/intervals.yaml.

    Raises
    ------
    pydantic.ValidationError, sim.yamlio.YamlError
        Where the file is not valid.

    """
    return PredictionIntervals.model_validate(read(path).data)


@dataclass(frozen=True, slots=True)
class PredictionConfidence:
    """Mark, reasons and prediction intervals of one setting."""

    mark: Mark
    why: tuple[str, ...]
    """Phrases for each direction in which nothing near was measured, or for own runs; else empty."""
    factors: Mapping[str, Factors] = field(default_factory=dict)
    """Metric of METRICS -> factors on a prediction that give the 10th and 90th percentile on an unseen host."""

    common_sd: float = 0.0
    """Standard deviation of log throughput due to the error that fleets on hosts of one kind share."""
    servers: Mapping[str, str] = field(default_factory=dict)
    """Metric of METRICS -> servers whose errors its factors describe."""

    def factor(self, column: str) -> Factors | None:
        """Return the factors of a column of summary.csv such as `ttft_s_p95`; None where it has none."""
        metric = column.partition("_s_")[0]
        if metric == "e2e" and {"ttft", "tpot"} <= self.factors.keys():
            return _widest([self.factors["ttft"], self.factors["tpot"]])
        return self.factors.get(metric)


DRAWS = 4000
TENTH_PERCENTILE = normal_quantile(0.9)
"""Standard deviations from the median to the 10th or 90th percentile of a normal distribution."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MeetingFleet:
    """Fleet that meets the service level, or is assumed to."""

    usd_per_h: float
    replicas: int
    confidence: PredictionConfidence


@dataclass(frozen=True, slots=True)
class WinProbability:
    """Probability that the winner stays cheaper than its rival."""

    rival: str
    share: float
    """Share of the draws in which the winner is cheaper [1]."""
    at_least: bool
    """True if the rival was not simulated, so that the lower bound of its cost is used."""


def probability_cheaper(one: MeetingFleet, other: MeetingFleet, seed: int) -> float | None:
    """Return the share of draws in which *one* is cheaper than *other*; draws with equal cost count half.

    None where no interval of throughput is known.
    """
    if not all("throughput" in bid.confidence.factors for bid in (one, other)):
        return None
    draws = stream(seed, 0, "model error")
    common = draws.standard_normal(DRAWS)
    first, second = (_usd_per_h(bid, common, draws) for bid in (one, other))
    return float(np.mean(first < second) + np.mean(first == second) / 2)


def _usd_per_h(bid: MeetingFleet, common: Floats, draws: np.random.Generator) -> Floats:
    low, high = (np.log(end) / TENTH_PERCENTILE for end in bid.confidence.factors["throughput"])
    spread = (high - low) / 2
    shared = min(1.0, bid.confidence.common_sd / spread) if spread > 0 else 0.0
    z = shared * common + np.sqrt(1 - shared**2) * draws.standard_normal(DRAWS)
    speed = np.exp(np.where(z > 0, z * high, -z * low))
    needed = np.maximum(1.0, np.ceil((bid.replicas - draws.random(DRAWS)) / speed))
    return np.asarray(bid.usd_per_h * needed / bid.replicas)


BILLION = 1e9
Load = tuple[float | None, float | None]
"""(sequences in flight on a replica, mean prompt [tokens]); None: unknown."""
UNKNOWN: Load = (None, None)


def fleet_confidence(
    scenario: Experiment, fleet: Fleet, catalog: Catalog, load: Load = UNKNOWN
) -> PredictionConfidence | None:
    """Return the confidence of predictions for *fleet*: the worst of its pools.

    None where no pool's step time is computed: it is given, or the pools serve networks that answer in one pass.
    """
    settings = [one for pool in fleet.pools if (one := setting_of(scenario, fleet, pool, catalog)) is not None]
    prompt = load[1] or (_usual_prompt(scenario) if any(one.own for one in settings) else None)
    return worst(confidence_of(replace(one, sequences=load[0], prompt=prompt), catalog) for one in settings)


def _usual_prompt(scenario: Experiment) -> float | None:
    """Return the mean prompt before a simulation [tokens]; None where unknown."""
    try:
        return mean_tokens(scenario)[0] or None
    except ValueError:
        return None


def confidence_of(setting: PredictedSetting, catalog: Catalog) -> PredictionConfidence:
    """Return mark, reasons and factors of one setting."""
    mark, why = mark_of(setting, read_index(catalog.root / "fidelity" / "measured.csv"))
    intervals = read_intervals(catalog.root / "fidelity" / "intervals.yaml")
    own = intervals.calibrated if setting.covered_by_own_runs else {}
    known = {metric: intervals.nearest(metric, mark, setting.engine, setting.gpu_class) for metric in METRICS}
    known |= {metric: (interval, CALIBRATED_SERVERS) for metric, interval in own.items()}
    found = {metric: (interval, servers) for metric, (interval, servers) in known.items() if interval is not None}
    speed = found.get("throughput")
    return PredictionConfidence(
        mark,
        why,
        {metric: (interval.low, interval.high) for metric, (interval, _) in found.items()},
        speed[0].common_sd if speed is not None else 0.0,
        {metric: servers for metric, (_, servers) in found.items()},
    )


def worst(confidences: Iterable[PredictionConfidence | None]) -> PredictionConfidence | None:
    """Return the confidence of several settings together; None without any.

    Mark and reasons are those of the settings farthest from measurements. An interval has the widest ends of all
    settings, and is absent where one setting has none.
    """
    known = [one for one in confidences if one is not None]
    if not known:
        return None
    farthest = max(known, key=lambda one: MARKS.index(one.mark))
    metrics = [metric for metric in farthest.factors if all(metric in one.factors for one in known)]
    return replace(
        farthest,
        why=tuple(dict.fromkeys(why for one in known if one.mark == farthest.mark for why in one.why)),
        factors={metric: _widest([one.factors[metric] for one in known]) for metric in metrics},
        servers={metric: joined("; ", sorted({one.servers[metric] for one in known})) for metric in metrics},
    )


def _widest(spans: Sequence[Factors]) -> Factors:
    return min(low for low, _ in spans), max(high for _, high in spans)


def point_confidences(
    scenario: Scenario, points: Sequence[Point], catalog: Catalog
) -> list[PredictionConfidence | None]:
    """Return the confidence of predictions at each of *points* of the scenario's sweep, at the simulated load.

    Fleets are resolved at the point, so that a sweep over GPUs or layouts has the mark of each. None where a point is
    not of the scenario's sweep, did not run, or has a step time that is not computed.
    """
    assessments = _assessments(scenario, catalog)
    found: list[PredictionConfidence | None] = []
    for point in points:
        assess = assessments.get((point.fleet, _axes_key(point.axes)))
        found.append(assess(_load_of(point.row)) if assess is not None and point.ok else None)
    return found


def _assessments(
    scenario: Scenario, catalog: Catalog
) -> dict[tuple[str, str], Callable[[Load], PredictionConfidence | None]]:
    """Return (fleet, axes) -> function of a load that returns the fleet's confidence at that point."""
    found: dict[tuple[str, str], Callable[[Load], PredictionConfidence | None]] = {}
    scenarios: dict[str, Scenario] = {}
    places = {fleet.name: place for place, fleet in enumerate(scenario.fleets)}
    for case in cases(scenario):
        key = case.fleet, _axes_key(case.axes)
        if key not in found:
            point = repr(case.overrides)
            if point not in scenarios:
                scenarios[point] = at_point(scenario, case.overrides)
            at = scenarios[point]
            found[key] = partial(fleet_confidence, at, at.fleets[places[case.fleet]], catalog)
    return found


def _axes_key(axes: Mapping[str, Any]) -> str:
    """Return a key that distinguishes the points of a sweep."""
    return repr([axes[name] for name in sorted(axes)])


def _load_of(row: Mapping[str, Any]) -> Load:
    """Return the load in a row of summary.csv."""
    requests, tokens, answers = (row.get(n) for n in ("requests_per_s", "total_tokens_per_s", "output_tokens_per_s"))
    prompt = (tokens - answers) / requests if requests and tokens is not None and answers is not None else None
    sequences = row.get("batch_mean")
    return sequences or None, prompt or None


def setting_of(scenario: Experiment, fleet: Fleet, pool: Pool, catalog: Catalog) -> PredictedSetting | None:
    """Return *pool* in the terms of the index; None where its step time is not computed from GPU and model."""
    bound = bind(scenario, fleet, pool, catalog)
    gpu, model, layout = bound.gpu, bound.model, bound.layout
    if gpu is None or model is None or bound.kernel is None or not isinstance(bound.steptime, Roofline):
        return None
    return PredictedSetting(
        gpu=gpu.id,
        architecture=gpu.architecture,
        family=model.family or model.id,
        kind=model_kind(model),
        params_billion=params_total(model) / BILLION,
        kernel=bound.kernel.id,
        engine=family_of(bound.engine.id),
        link=link_class(bound.link, layout.gpus),
        tp=layout.tensor_parallel_size,
        pp=layout.pipeline_parallel_size,
        dp=layout.data_parallel_size,
        beyond=tuple(_unmeasured_features(bound, catalog)),
        calibrated=_has_runs(bound),
        own=calibrated(bound),
        gpu_class=gpu_class(gpu),
    )


def _has_runs(bound: BoundPool) -> bool:
    """Return whether the pool is calibrated on runs of a server, rather than on all-reduces alone."""
    return bound.calibration is not None and bound.calibration.rows > 0


def _unmeasured_features(bound: BoundPool, catalog: Catalog) -> Sequence[str]:
    """Return the features of the pool that no measurement of the fit has."""
    has = {
        "no measurement of the fit has a GPU that shares its memory with the CPU": bound.gpu is not None
        and bound.gpu.form_factor == ON_CHIP
        and not _has_runs(bound),
        "no measurement of the fit has replicas over several servers": network_of(bound, catalog),
        "no measurement of the fit has speculative decoding": getattr(bound.batching, "speculative", None),
        "no measurement of the fit has weights in host memory": bound.offload,
        "no measurement of the fit has MIG slices": bound.slicing,
        "no measurement of the fit has KV tiers": bound.spec.kv_tiers,
        "no measurement of the fit has LoRA adapters": bound.spec.lora,
        "no measurement of the fit has prompts and answers on different replicas": bound.spec.role != "both",
    }
    return [why for why, there in has.items() if there]


__all__ = [
    "MARKS",
    "METRICS",
    "Mark",
    "MeetingFleet",
    "PredictedSetting",
    "PredictionConfidence",
    "WinProbability",
    "fleet_confidence",
    "point_confidences",
    "probability_cheaper",
    "setting_of",
    "worst",
]  # fmt: skip
