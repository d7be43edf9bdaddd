"""How far a prediction can be trusted: its distance from measurements, and the error to expect on a real server.

`fleet_worth` answers for a fleet of a scenario, `point_worths` for points of its sweep, `worst` for several.

data/fidelity/measured.csv is an index, without any results, of what was measured on real servers, which
benchmarks/fit/worth.py writes. A line is one GPU, model, number format, engine and parallel layout. A setting is
compared with it in six directions: GPU, model, format, layout, engine and load. measured near here: in each direction
something like it was measured on the same GPU, and so together. interpolated: it lies between measurements (another
model of its kind and size, another card of its architecture, a format or an engine that was measured elsewhere).
extrapolated: in at least one direction it lies outside of all measurements. A pool that runs what its owner has
calibrated (the same model in the same layout, at a load near the calibration runs) is compared with these runs, too.

data/fidelity/intervals.yaml has the error for each of these marks. An interval holds 80 % of measured over predicted:
from its 10th percentile to its 90th. It was taken from measurements whose pair of GPU and model, or whose GPU, was left
out of the fit, each with the mark that it had without them.

`chance_cheaper` shows whether a sizing survives this error. A draw gives each fleet a speed over the predicted one,
from the interval of its mark; a part of the error is common to both fleets, as both run on hosts of the same kind. A
fleet that meets the service level with n replicas and not with n - 1 needs a number between these at the predicted
speed, any as likely as another; at another speed it needs that number over the speed, and its cost grows with its
replicas.
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
from sim.catalogue.link import Link
from sim.catalogue.model import Model, params_total
from sim.catalogue.value import Sourced
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

LAYOUT = ("tp", "pp", "dp")
RANGES = ("sequences_low", "sequences_high", "prompt_low", "prompt_high")
TEXTS = ("gpu", "architecture", "family", "kind", "kernel", "engine", "link")


@dataclass(frozen=True, slots=True)
class MeasuredSetup:
    """Measured rows that differ in their load only."""

    gpu: str
    """Id of the GPU in the catalogue."""
    architecture: str
    family: str
    """The model's."""
    kind: str
    """Of model: see `model_kind`."""
    params_billion: float
    """All parameters."""
    kernel: str
    """Id of the kernel that multiplies with weights in their format."""
    engine: str
    """Without version."""
    link: str
    """Class of the link between the GPUs; empty on one GPU."""
    tp: int
    pp: int
    dp: int
    sequences_low: float
    """Least and most sequences in flight; infinite where only rates are known."""
    sequences_high: float
    prompt_low: float
    """Shortest and longest mean prompt [tokens]."""
    prompt_high: float
    rows: int
    campaigns: int

    @property
    def gpus(self) -> int:
        """Of a replica."""
        return self.tp * self.pp * self.dp


COLUMNS: tuple[str, ...] = (*TEXTS, "params_billion", *LAYOUT, *RANGES, "rows", "campaigns")


@cache
def read_index(path: Path) -> tuple[MeasuredSetup, ...]:
    """All entries of the index in the file *path*."""
    with path.open(newline="", encoding="utf-8") as file:
        return tuple(_entry(line) for line in csv.DictReader(file))


def _entry(line: dict[str, str]) -> MeasuredSetup:
    return MeasuredSetup(
        **{name: line[name] for name in TEXTS},  # type: ignore[arg-type]
        **{name: int(line[name]) for name in (*LAYOUT, "rows", "campaigns")},  # type: ignore[arg-type]
        **{name: float(line[name]) for name in (*RANGES, "params_billion")},  # type: ignore[arg-type]
    )


SERVER = ("model", "quantization", "engine", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
SIXTEEN_BIT, PLAIN_KERNEL = "bf16", "dense-16bit"
LEAST_RUNS = 2
"""What a calibration on fewer loads is worth at others is not known."""
NEAR_SEQUENCES, NEAR_PROMPT = 4.0, 2.0
"""Loads are near within these factors: those of the campaigns that the intervals were made of."""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Runs of a pool's own server that its calibration was fitted to."""

    runs: CalibrationRuns

    def near(self, sequences: float | None, prompt: float | None) -> bool:
        """Return whether the runs cover this load: *sequences* in flight, mean *prompt* [tokens]; None: unknown."""
        return (
            self.runs.runs >= LEAST_RUNS
            and _near_runs(sequences, self.runs.sequences, NEAR_SEQUENCES)
            and _near_runs(prompt, self.runs.prompt, NEAR_PROMPT)
        )


def _near_runs(value: float | None, ends: tuple[float, float] | None, factor: float) -> bool:
    return value is None or (ends is not None and ends[0] / factor <= value <= ends[1] * factor)


def server_of(bound: BoundPool) -> tuple[object, ...]:
    """The values of SERVER that a pool has; weights of 16 bits are the same server, whatever they are called."""
    model, quantization, layout = bound.model, bound.quantization, bound.layout
    stored = quantization.id if quantization else ""
    format_ = SIXTEEN_BIT if quantization and quantization.kernel == PLAIN_KERNEL else stored
    ids = (model.id if model else "", format_, bound.engine.id)
    return *ids, layout.tensor_parallel_size, layout.pipeline_parallel_size, layout.data_parallel_size


def calibrated(bound: BoundPool) -> Calibrated | None:
    """The runs of *bound*'s own server; None where its calibration has none."""
    known = bound.calibration.measured if bound.calibration else ()
    here = server_of(bound)
    found = (runs for runs in known if tuple(getattr(runs, name) for name in SERVER) == here)
    return next((Calibrated(runs) for runs in found), None)


Mark = Literal["measured near here", "interpolated", "extrapolated"]
MARKS: tuple[Mark, ...] = ("measured near here", "interpolated", "extrapolated")
"""From the nearest to the farthest."""
SAME_SIZE = 1.25
"""Models of one family are alike where the larger has at most this many times the parameters of the smaller."""
ROUNDED = 1.01
"""The index has sizes to three or four digits."""
NEAR_LOAD = 2.0
"""A load is near a measured one within this factor."""
Finding = tuple[int, str]
"""(place in MARKS, why)."""


@dataclass(frozen=True, slots=True)
class PredictedSetting:
    """What is predicted, in the terms of the index."""

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
    """In flight on a replica; None: not known before a simulation."""
    prompt: float | None = None
    """Mean prompt [tokens]; None: not known."""
    beyond: tuple[str, ...] = ()
    """What the setting has that no measurement has."""
    calibrated: bool = False
    """The GPU's factors were fitted to the user's own runs."""
    own: Calibrated | None = None
    """Those of this very server, if there are any."""

    @property
    def measured_by_its_owner(self) -> bool:
        """The user's own runs tell of this server and this load."""
        return self.own is not None and not self.beyond and self.own.near(self.sequences, self.prompt)

    @property
    def gpus(self) -> int:
        """Of a replica."""
        return self.tp * self.pp * self.dp


def model_kind(model: Model) -> str:
    """The parts of a model that take their own kernels."""
    parts = ["mixture of experts" if model.moe else "dense"]
    parts += ["latent attention"] if model.mla else []
    parts += ["sparse attention"] if model.indexer and not model.compressed else []
    if model.linear_attention is not None:
        parts += ["Mamba-2"] if model.linear_attention.rule == "mamba2" else ["linear attention"]
    parts += ["compressed attention"] if model.compressed else []
    return ", ".join(parts)


def link_class(link: Link | None, gpus: int) -> str:
    """What stands between the GPUs of a replica; empty on one GPU."""
    if gpus == 1 or link is None:
        return ""
    if not link.id.startswith("pcie"):
        return "fabric"
    return "PCIe" if link.peer_to_peer else "PCIe without peer-to-peer"


def mark_of(setting: PredictedSetting, index: Sequence[MeasuredSetup]) -> tuple[Mark, tuple[str, ...]]:
    """(the mark of *setting*, why: a phrase for each direction in which nothing near was measured, or own runs)."""
    if setting.measured_by_its_owner:
        return MARKS[0], ("it is calibrated on your own runs of this server",)
    # a GPU that somebody calibrated counts as measured, so that the other directions are looked up on all GPUs
    here = [entry for entry in index if entry.gpu == setting.gpu and not setting.calibrated]
    findings = [look(setting, here or index, index) for look in DIRECTIONS]
    findings = [finding for finding in (_gpu(setting, here, index), *findings) if finding[0]]
    findings += [(2, reason) for reason in setting.beyond]
    if not findings and here and not any(_together(setting, entry) for entry in here):
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
        return 2, f"no model with its kind of layers ({setting.kind}) was measured"
    least, most = min(sizes), max(sizes)
    if not least / ROUNDED <= setting.params_billion <= most * ROUNDED:
        return (
            2,
            f"measured models of its kind ({setting.kind}) have {_billions(least)} to {_billions(most)} parameters",
        )
    return 1, "this model was not measured on this GPU, models of its kind and size were"


def _billions(count: float) -> str:
    return f"{count:,.0f}e9" if count >= 100 else f"{count:.3g}e9"


def _format(setting: PredictedSetting, here: Sequence[MeasuredSetup], index: Sequence[MeasuredSetup]) -> Finding:
    if any(entry.kernel == setting.kernel for entry in here):
        return 0, ""
    if any(entry.kernel == setting.kernel for entry in index):
        return 1, "weights in this format were not measured on this GPU, but on others"
    return 2, f"weights in this format ({setting.kernel}) were not measured"


def _layout(setting: PredictedSetting, here: Sequence[MeasuredSetup], index: Sequence[MeasuredSetup]) -> Finding:
    if any(_same_layout(setting, entry) for entry in here):
        return 0, ""
    most = max((entry.gpus for entry in index if entry.link == setting.link), default=0)
    if setting.gpus > most:
        return 2, f"replicas of {setting.gpus} GPUs over this kind of link were not measured, at most of {most}"
    return 1, "this parallel layout was not measured on this GPU"


def _engine(setting: PredictedSetting, here: Sequence[MeasuredSetup], index: Sequence[MeasuredSetup]) -> Finding:
    if any(entry.engine == setting.engine for entry in here):
        return 0, ""
    if any(entry.engine == setting.engine for entry in index):
        return 1, "this engine was not measured on this GPU, but on others"
    return 2, f"the engine {setting.engine} was not measured"


def _load(setting: PredictedSetting, here: Sequence[MeasuredSetup], index: Sequence[MeasuredSetup]) -> Finding:
    wanted = tuple(_loads(setting))
    if all(any(_near_range(value, *span(entry)) for entry in here) for _, value, span in wanted):
        return 0, ""
    far = [what for what, value, span in wanted if not any(_near_range(value, *span(entry)) for entry in index)]
    return (2, f"{far[0]} outside of all that was measured") if far else (1, "this load was not measured on this GPU")


DIRECTIONS: tuple[Callable[[PredictedSetting, Sequence[MeasuredSetup], Sequence[MeasuredSetup]], Finding], ...] = (
    _model,
    _format,
    _layout,
    _engine,
    _load,
)


def _loads(setting: PredictedSetting) -> Iterator[tuple[str, float, Callable[[MeasuredSetup], tuple[float, float]]]]:
    """(what it is, how much, range in an entry) of what is known of the load."""
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


def _together(setting: PredictedSetting, entry: MeasuredSetup) -> bool:
    """Return whether *entry* is near in every direction at once, the engine's apart."""
    near_load = all(_near_range(value, *span(entry)) for _, value, span in _loads(setting))
    same = entry.kernel == setting.kernel and _same_model(setting, entry) and _same_layout(setting, entry)
    return same and near_load


METRICS = ("throughput", "tpot", "ttft", "power")
COVERED = 0.8
"""Share of measurements inside an interval."""
Factors = tuple[float, float]


class PredictionInterval(Spec):
    """Measured over predicted: 10th and 90th percentile, pairs of GPU and model family weighing the same."""

    low: Positive
    high: Positive
    common_sd: NonNegative
    """Of the logarithm: the part that all settings of one host or engine have in common."""
    rows: Count
    pairs: Count


class PredictionIntervals(Sourced):
    """All intervals of data/fidelity/intervals.yaml."""

    metrics: dict[str, dict[Mark, PredictionInterval]]
    """By metric of METRICS; a mark is left out where too little was measured."""
    calibrated: dict[str, PredictionInterval]
    """By metric: other loads of servers that were calibrated on two."""

    def of(self, metric: str, mark: Mark) -> PredictionInterval | None:
        """None where too little was measured."""
        return self.metrics.get(metric, {}).get(mark)


@cache
def read_intervals(path: Path) -> PredictionIntervals:
    """Read data/fidelity/intervals.yaml. Raises pydantic.ValidationError or sim.yamlio.YamlError."""
    return PredictionIntervals.model_validate(read(path).data)


@dataclass(frozen=True, slots=True)
class PredictionConfidence:
    """What the predictions of one setting are worth."""

    mark: Mark
    why: tuple[str, ...]
    """A phrase for each direction in which nothing near was measured, or that the owner measured; else empty."""
    factors: Mapping[str, Factors] = field(default_factory=dict)
    """Metric of METRICS -> what a prediction is multiplied by for the 10th and 90th percentile of an unseen host."""

    common_sd: float = 0.0
    """Of the logarithm of throughput: the part of the error that fleets on hosts of one kind have in common."""

    def factor(self, column: str) -> Factors | None:
        """Factors of a column of summary.csv such as `ttft_s_p95`; None where it has none."""
        metric = column.partition("_s_")[0]
        if metric == "e2e" and {"ttft", "tpot"} <= self.factors.keys():
            both = self.factors["ttft"], self.factors["tpot"]
            return min(low for low, _ in both), max(high for _, high in both)
        return self.factors.get(metric)


DRAWS = 4000
TENTH_PERCENTILE = normal_quantile(0.9)
"""Standard deviations from the median to the 10th or 90th percentile of a normal distribution."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MeetingFleet:
    """A fleet that meets the service level, or is taken to."""

    usd_per_h: float
    replicas: int
    worth: PredictionConfidence


@dataclass(frozen=True, slots=True)
class WinProbability:
    """How often the winner stays cheaper than its rival."""

    rival: str
    share: float
    """Of the draws."""
    at_least: bool
    """The rival was not simulated: it is taken to cost what it costs at the least."""


def chance_cheaper(one: MeetingFleet, other: MeetingFleet, seed: int) -> float | None:
    """Share of draws in which *one* is cheaper than *other*, of those in which they cost the same half; None where no
    interval of throughput is known.
    """
    if not all("throughput" in bid.worth.factors for bid in (one, other)):
        return None
    draws = stream(seed, 0, "model error")
    common = draws.standard_normal(DRAWS)
    first, second = (_usd_per_h(bid, common, draws) for bid in (one, other))
    return float(np.mean(first < second) + np.mean(first == second) / 2)


def _usd_per_h(bid: MeetingFleet, common: Floats, draws: np.random.Generator) -> Floats:
    low, high = (np.log(end) / TENTH_PERCENTILE for end in bid.worth.factors["throughput"])
    spread = (high - low) / 2
    shared = min(1.0, bid.worth.common_sd / spread) if spread > 0 else 0.0
    z = shared * common + np.sqrt(1 - shared**2) * draws.standard_normal(DRAWS)
    speed = np.exp(np.where(z > 0, z * high, -z * low))
    needed = np.maximum(1.0, np.ceil((bid.replicas - draws.random(DRAWS)) / speed))
    return np.asarray(bid.usd_per_h * needed / bid.replicas)


BILLION = 1e9
ON_CHIP = "system on chip"
Load = tuple[float | None, float | None]
"""(sequences in flight on a replica, mean prompt [tokens]); None: not known."""
UNKNOWN: Load = (None, None)


def fleet_worth(
    scenario: Experiment, fleet: Fleet, catalog: Catalog, load: Load = UNKNOWN
) -> PredictionConfidence | None:
    """What predictions for *fleet* are worth: those of the pool that is farthest from what was measured.

    None where no pool's step time is computed: it is given, or the pools serve networks that answer in one pass.
    """
    settings = [one for pool in fleet.pools if (one := setting_of(scenario, fleet, pool, catalog)) is not None]
    prompt = load[1] or (_usual_prompt(scenario) if any(one.own for one in settings) else None)
    return worst(worth_of(replace(one, sequences=load[0], prompt=prompt), catalog) for one in settings)


def _usual_prompt(scenario: Experiment) -> float | None:
    """Mean tokens of a prompt before anything is simulated; None where nobody knows."""
    try:
        return mean_tokens(scenario)[0] or None
    except ValueError:
        return None


def worth_of(setting: PredictedSetting, catalog: Catalog) -> PredictionConfidence:
    """Mark, reasons and factors of one setting."""
    mark, why = mark_of(setting, read_index(catalog.root / "fidelity" / "measured.csv"))
    intervals = read_intervals(catalog.root / "fidelity" / "intervals.yaml")
    own = intervals.calibrated if setting.measured_by_its_owner else {}
    found = {metric: own.get(metric) or intervals.of(metric, mark) for metric in METRICS}
    speed = found["throughput"]
    factors = {metric: (one.low, one.high) for metric, one in found.items() if one is not None}
    return PredictionConfidence(mark, why, factors, speed.common_sd if speed is not None else 0.0)


def worst(worths: Iterable[PredictionConfidence | None]) -> PredictionConfidence | None:
    """The one that is farthest from what was measured; the first of several. None where there is none."""
    return max((one for one in worths if one is not None), key=lambda one: MARKS.index(one.mark), default=None)


def point_worths(scenario: Scenario, points: Sequence[Point], catalog: Catalog) -> list[PredictionConfidence | None]:
    """What the predictions at each of *points* of the scenario's sweep are worth, under the load that it had there.

    Fleets are looked up as the scenario has them at the point, so that a sweep of GPUs or layouts is marked rightly.
    None where a point is not of the scenario's sweep, did not run, or has a step time that is not computed.
    """
    asked = _askable(scenario, catalog)
    found: list[PredictionConfidence | None] = []
    for point in points:
        ask = asked.get((point.fleet, _axes_key(point.axes)))
        found.append(ask(_load_of(point.row)) if ask is not None and point.ok else None)
    return found


def _askable(
    scenario: Scenario, catalog: Catalog
) -> dict[tuple[str, str], Callable[[Load], PredictionConfidence | None]]:
    """(fleet, its axes) -> what answers for the fleet there under a load."""
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
            found[key] = partial(fleet_worth, at, at.fleets[places[case.fleet]], catalog)
    return found


def _axes_key(axes: Mapping[str, Any]) -> str:
    """What tells points of a sweep apart."""
    return repr([axes[name] for name in sorted(axes)])


def _load_of(row: Mapping[str, Any]) -> Load:
    """The load that a row of summary.csv shows."""
    requests, tokens, answers = (row.get(n) for n in ("requests_per_s", "total_tokens_per_s", "output_tokens_per_s"))
    prompt = (tokens - answers) / requests if requests and tokens is not None and answers is not None else None
    sequences = row.get("batch_mean")
    return sequences or None, prompt or None


def setting_of(scenario: Experiment, fleet: Fleet, pool: Pool, catalog: Catalog) -> PredictedSetting | None:
    """*pool* in the terms of the index; None where its step time is not computed from GPU and model."""
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
        beyond=tuple(_beyond(bound, catalog)),
        calibrated=bound.calibration is not None,
        own=calibrated(bound),
    )


def _beyond(bound: BoundPool, catalog: Catalog) -> Sequence[str]:
    """What the pool has that no measurement of the fit has."""
    has = {
        "no measurement of the fit has a GPU that shares its memory with the CPU": bound.gpu is not None
        and bound.gpu.form_factor == ON_CHIP,
        "replicas over several servers are in no measurement of the fit": network_of(bound, catalog),
        "speculative decoding is in no measurement of the fit": getattr(bound.batching, "speculative", None),
        "weights in host memory are in no measurement of the fit": bound.offload,
        "MIG slices are in no measurement of the fit": bound.slicing,
        "KV tiers are in no measurement of the fit": bound.spec.kv_tiers,
        "LoRA adapters are in no measurement of the fit": bound.spec.lora,
        "prompts and answers on different replicas are in no measurement of the fit": bound.spec.role != "both",
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
    "chance_cheaper",
    "fleet_worth",
    "point_worths",
    "setting_of",
    "worst",
]  # fmt: skip
