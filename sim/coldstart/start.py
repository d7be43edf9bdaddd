"""Start stages of a replica and their durations, by what is loaded, from which source and by which engine.

`ColdStart` has the keys of a scenario, `ColdStartFigures` the sourced figures in data/coldstart.yaml; `start_of`
computes the stages from both. A stage is a fixed time, or a transfer over links that replicas starting at the same time
share.
"""

from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import model_validator

from sim.catalogue.link import Link
from sim.catalogue.value import Value
from sim.message import Message
from sim.spec import NonNegative, Positive, Spec
from sim.yamlio import read

WAKE_KEYS = ("weights_from", "weights_gb", "weights_gb_per_s", "link")


class ColdStart(Spec):
    """Cold start of a replica: machine, container image, engine, weights, compilation and CUDA graphs."""

    total_s: NonNegative | None = None
    """Duration of the whole start [s], in place of computed stages."""
    provisioning_s: NonNegative = 0.0
    """Time until the machine is available [s], during which it costs nothing and draws no power."""
    image_gb: NonNegative = 0.0
    """Size of the container image to pull [GB]; 0: the image is on the machine."""
    weights_from: str = "local_nvme"
    """Source of the weights: an entry of data/coldstart.yaml (local_nvme, page_cache, block_volume, network_store,
    ...), or peer_gpu."""
    weights_gb: Positive | None = None
    """Weights that a replica loads [GB]. Default: the model's weights as stored on its GPUs."""
    weights_gb_per_s: Positive | None = None
    """Total read rate of the source [GB/s], in place of the catalogue's rates."""
    link: str | None = None
    """Link that carries the weights with `weights_from: peer_gpu`, an id in data/links."""
    cached: bool = False
    """True if compiled graphs and other caches of a previous start exist."""
    engine_s: NonNegative | None = None
    """Start time of the engine without loading weights [s], in place of the catalogue's figures."""
    sleep_level: Literal[1, 2] | None = None
    """vLLM's sleep level for replicas that are scaled down; their machine stays on. 1: weights stay in host memory; 2:
    they are loaded again. Default: such replicas are switched off."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        others = sorted(self.model_fields_set - {"total_s", "sleep_level"})
        if self.total_s is not None and others:
            raise ValueError(Message("total_s is the whole start: remove {keys}", ", ".join(others)))
        if (self.weights_from == "peer_gpu") != (self.link is not None):
            raise ValueError("weights_from: peer_gpu and link go together: the link over which the weights come")
        return self


StartState = Literal["provisioning", "booting", "loading"]
"""State of a starting replica, as usage.csv shows it."""


@dataclass(frozen=True, slots=True)
class StartTransfer:
    """Transfer of data to a starting replica."""

    size_bytes: float
    source: str
    """Source of the data; concurrent transfers from the same source share its rate."""
    of_server: bool
    """True if each server has its own source (a local disk), False if the fleet shares a source."""
    source_bytes_per_s: float
    """Total rate of the source, shared by all concurrent transfers."""
    most_bytes_per_s: float
    """Highest rate that a single replica can receive."""

    @property
    def alone_s(self) -> float:
        """Duration of the transfer without competing transfers [s]."""
        return self.size_bytes / min(self.source_bytes_per_s, self.most_bytes_per_s)


@dataclass(frozen=True, slots=True)
class StartStage:
    """Stage of a start: a fixed time, then an optional transfer."""

    what: str
    """Name of the stage: container image, weights, CUDA graphs."""
    doing: StartState
    seconds: float = 0.0
    """Fixed time before the transfer [s]."""
    transfer: StartTransfer | None = None

    @property
    def alone_s(self) -> float:
        """Duration of the stage without competing starts [s]."""
        return self.seconds + (self.transfer.alone_s if self.transfer is not None else 0.0)


def fixed_start(total_s: float) -> tuple[StartStage, ...]:
    """Return the stages of a start of which only the total duration is known."""
    return (StartStage("start", "booting", total_s),)


class WeightSource(Spec):
    """Source of weights with its read rates, an entry of data/coldstart.yaml."""

    name: str
    shared_by: Literal["server", "fleet"]
    """Scope of the source: shared by the replicas of a server, or by the whole fleet."""
    source_bytes_per_s: Value
    """Total rate of the source, shared by all concurrent transfers."""
    bytes_per_s_per_gpu: Value | None = None
    """Highest rate that the process of one GPU reads; absent: no limit of its own."""
    bytes_per_s_per_replica: Value | None = None
    """Highest rate that one replica reads; absent: no limit of its own."""


class ImagePull(Spec):
    """Pull of the container image."""

    bytes_per_s: Value


class EngineStart(Spec):
    """Start times of a range of engine versions; absent stages do not occur."""

    engines: tuple[str, ...]
    """Engines with these start times, as ids in data/engines."""
    init_s: Value
    """Time for imports, processes and profiling."""
    cached_init_s: Value
    """Time for imports, processes and profiling with the caches of a previous start."""
    compile_s_per_layer: Value | None = None
    cached_compile_s_per_layer: Value | None = None
    """Time per layer to load compiled graphs from a cache."""
    capture_s_per_layer: Value | None = None
    """Time per layer to capture CUDA graphs, which every start does anew."""
    wake_s: Value | None = None
    """Time to wake from sleep without restoring weights; absent: the engine cannot sleep."""


class ColdStartFigures(Spec):
    """Sourced figures of cold starts in data/coldstart.yaml."""

    weights: dict[str, WeightSource]
    image: ImagePull
    engines: dict[str, EngineStart]

    def of_engine(self, engine: str) -> EngineStart | None:
        """Return the figures of *engine*, an id in data/engines; None where there is no measurement."""
        return next((era for era in self.engines.values() if engine in era.engines), None)


def load_figures(path: Path) -> ColdStartFigures:
    """Read the figures in *path*. Raises pydantic's ValidationError."""
    return ColdStartFigures.model_validate(read(path).data)


GB = 1e9
PEER = "peer_gpu"


@dataclass(frozen=True, slots=True)
class StartingReplica:
    """Properties of a replica that its start time depends on."""

    engine: str
    """Engine of the replica, as an id in data/engines."""
    layers: int
    gpus: int
    weights_bytes: float
    """Weights on all GPUs of the replica; 0 without a model."""
    host_link: Link | None = None
    """Link between a GPU and its host."""
    peer_link: Link | None = None
    """Link over which a peer sends its weights."""
    lanes_bytes_per_s: float = inf
    """Rate from the host to the replica's GPUs over their lanes while all GPUs of the server load."""


@dataclass(frozen=True, slots=True)
class ReplicaStart:
    """Stages of a cold start and of waking from sleep, with the sourced figures behind them."""

    stages: tuple[StartStage, ...]
    wake: tuple[StartStage, ...] = ()
    values: dict[str, Value] = field(default_factory=dict)
    specified: bool = False
    """True if the scenario describes the start."""


class StartUnknown(ValueError):
    """Error for a stage whose duration is neither measured nor given in the scenario.

    `key` is the scenario key to give.
    """

    def __init__(self, key: str, message: str) -> None:
        self.key = key
        super().__init__(message)

    def __reduce__(self) -> Any:
        return type(self), (self.key, str(self))


def start_of(spec: ColdStart, replica: StartingReplica, figures: ColdStartFigures) -> ReplicaStart:
    """Compute the start of *replica* from the scenario's *spec* and the sourced *figures*.

    Parameters
    ----------
    spec
        Cold-start keys of the scenario, which override the figures.
    replica
        Engine, layers, GPUs, weights and links of the replica.
    figures
        Contents of data/coldstart.yaml.

    Returns
    -------
    ReplicaStart
        Stages in order, with the figures that were used; stages of zero length are left out.

    Raises
    ------
    StartUnknown
        If a duration is neither measured nor given in *spec*.

    """
    values: dict[str, Value] = {}
    era = figures.of_engine(replica.engine)
    if spec.total_s is not None:
        stages = fixed_start(spec.total_s)
    else:
        before, behind = _engine(spec, replica, era, values)
        weights = StartStage("weights", "loading", transfer=_weights(spec, replica, figures, values))
        stages = (*_machine(spec, figures, values), *before, weights, *behind)
        stages = tuple(stage for stage in stages if stage.seconds or stage.transfer)
    wake = _wake(spec, replica, era, figures, values) if spec.sleep_level else ()
    return ReplicaStart(stages or fixed_start(0.0), wake, values, specified=True)


def _machine(spec: ColdStart, figures: ColdStartFigures, values: dict[str, Value]) -> list[StartStage]:
    stages = [StartStage("machine", "provisioning", spec.provisioning_s)]
    if spec.image_gb:
        values["image.pull_bytes_per_s"] = rate = figures.image.bytes_per_s
        transfer = StartTransfer(spec.image_gb * GB, "container image", True, rate.value, inf)
        stages.append(StartStage("container image", "booting", transfer=transfer))
    return stages


def _engine(
    spec: ColdStart, replica: StartingReplica, era: EngineStart | None, values: dict[str, Value]
) -> tuple[list[StartStage], list[StartStage]]:
    """Return the stages of the engine before and after its weights are loaded."""
    if spec.engine_s is not None:
        return [StartStage("engine", "booting", spec.engine_s)], []
    if era is None:
        text = Message("the start time of {engine} was never measured: give engine_s or total_s", replica.engine)
        raise StartUnknown("engine_s", text)
    init = era.cached_init_s if spec.cached else era.init_s
    compiled = era.cached_compile_s_per_layer if spec.cached else era.compile_s_per_layer
    values[f"engine.{'cached_' * spec.cached}init_s"] = init
    behind = []
    parts = (("compilation", "compile", compiled), ("CUDA graphs", "capture", era.capture_s_per_layer))
    for what, name, value in parts:
        if value is not None:
            cached = "cached_" if spec.cached and name == "compile" else ""
            values[f"engine.{cached}{name}_s_per_layer"] = value
            behind.append(StartStage(what, "booting", value.value * replica.layers))
    return [StartStage("engine", "booting", init.value)], behind


def _weights(
    spec: ColdStart, replica: StartingReplica, figures: ColdStartFigures, values: dict[str, Value]
) -> StartTransfer | None:
    size_bytes = spec.weights_gb * GB if spec.weights_gb is not None else replica.weights_bytes
    if not size_bytes:
        raise StartUnknown(
            "weights_gb", "without a model the loaded bytes of a replica are unknown: give weights_gb or total_s"
        )
    if spec.weights_from == PEER:
        return _from_peer(spec, replica, size_bytes, values)
    source = figures.weights[spec.weights_from]
    of_server = source.shared_by == "server"
    most_bytes_per_s = replica.lanes_bytes_per_s
    if spec.weights_gb_per_s is not None:
        return StartTransfer(size_bytes, spec.weights_from, of_server, spec.weights_gb_per_s * GB, most_bytes_per_s)
    place = f"weights.{spec.weights_from}"
    values[f"{place}.source_bytes_per_s"] = source.source_bytes_per_s
    if (each := source.bytes_per_s_per_gpu) is not None:
        values[f"{place}.bytes_per_s_per_gpu"] = each
        most_bytes_per_s = min(most_bytes_per_s, each.value * replica.gpus)
    if (each := source.bytes_per_s_per_replica) is not None:
        values[f"{place}.bytes_per_s_per_replica"] = each
        most_bytes_per_s = min(most_bytes_per_s, each.value)
    return StartTransfer(size_bytes, spec.weights_from, of_server, source.source_bytes_per_s.value, most_bytes_per_s)


def _from_peer(spec: ColdStart, replica: StartingReplica, size_bytes: float, values: dict[str, Value]) -> StartTransfer:
    """Return the transfer from a peer over the link into the server, which the server's replicas share."""
    rate_bytes_per_s = spec.weights_gb_per_s * GB if spec.weights_gb_per_s is not None else 0.0
    if not rate_bytes_per_s and replica.peer_link is not None:
        link = replica.peer_link
        values[f"link.{link.id}.rate_bytes_per_s"] = rate = link.measured_bytes_per_s or link.theoretical_bytes_per_s
        rate_bytes_per_s = rate.value
    return StartTransfer(size_bytes, PEER, True, rate_bytes_per_s, inf)


def _wake(
    spec: ColdStart,
    replica: StartingReplica,
    era: EngineStart | None,
    figures: ColdStartFigures,
    values: dict[str, Value],
) -> tuple[StartStage, ...]:
    """Return the stages from sleep to serving; engine and CUDA graphs are still in memory."""
    if era is None or era.wake_s is None:
        raise StartUnknown("sleep_level", Message("{engine} has no known way to sleep", replica.engine))
    values["engine.wake_s"] = era.wake_s
    if spec.sleep_level == 2:
        transfer = _weights(spec, replica, figures, values)
    else:
        if replica.host_link is None:
            raise StartUnknown("sleep_level", "the link between GPU and host is not known: give sleep_level: 2")
        size_bytes = spec.weights_gb * GB if spec.weights_gb is not None else replica.weights_bytes
        link = replica.host_link
        values[f"link.{link.id}.rate_bytes_per_s"] = rate = link.measured_bytes_per_s or link.theoretical_bytes_per_s
        most = min(rate.value * replica.gpus, replica.lanes_bytes_per_s)
        transfer = StartTransfer(size_bytes, "host memory", True, inf, most) if size_bytes else None
    return (StartStage("waking up", "loading", era.wake_s.value, transfer),)
