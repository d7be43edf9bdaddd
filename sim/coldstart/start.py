"""The start of a replica: its stages by what is loaded, from where, and by which engine, and their durations.

`ColdStart` has the keys of a scenario, `ColdStartFigures` the sourced figures in data/coldstart.yaml; `start_of`
computes the stages from both. A stage is a fixed time, or bytes over links that replicas that start at once share.
"""

from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import model_validator

from sim.catalogue.link import Link
from sim.catalogue.value import Value
from sim.spec import NonNegative, Positive, Spec
from sim.yamlio import read

WAKING = ("weights_from", "weights_gb", "weights_gb_per_s", "link")


class ColdStart(Spec):
    """What a replica goes through from being switched on to its first request: the machine, the container image, the
    engine, its weights, compilation and CUDA graphs.
    """

    total_s: NonNegative | None = None
    """The whole start [s], in place of all that would be computed."""
    provisioning_s: NonNegative = 0.0
    """Until the machine is there: it is not paid for and draws no power."""
    image_gb: NonNegative = 0.0
    """Container image to fetch [GB]; 0: it is on the machine."""
    weights_from: str = "local_nvme"
    """A source in data/coldstart.yaml (local_nvme, page_cache, block_volume, network_store, ...), or peer_gpu."""
    weights_gb: Positive | None = None
    """What a replica loads [GB]; left out: the model's weights as they lie on its GPUs."""
    weights_gb_per_s: Positive | None = None
    """What the source gives [GB/s], in place of the catalogue's rates."""
    link: str | None = None
    """Id in data/links, over which weights come with `weights_from: peer_gpu`."""
    cached: bool = False
    """Whether compiled graphs and other caches of an earlier start are there."""
    engine_s: NonNegative | None = None
    """The engine's own start but for the weights [s], in place of the catalogue's figures."""
    sleep_level: Literal[1, 2] | None = None
    """A replica that is not wanted sleeps, as vLLM's option says, with its machine on: 1 keeps the weights in host
    memory, 2 loads them again. Left out: it is switched off."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        others = sorted(self.model_fields_set - {"total_s", "sleep_level"})
        if self.total_s is not None and others:
            raise ValueError(f"total_s is the whole start: remove {', '.join(others)}")
        if (self.weights_from == "peer_gpu") != (self.link is not None):
            raise ValueError("weights_from: peer_gpu and link go together: the link over which the weights come")
        return self


Doing = Literal["provisioning", "booting", "loading"]
"""State of the replica meanwhile, as usage.csv shows it."""


@dataclass(frozen=True, slots=True)
class StartTransfer:
    """Bytes that a starting replica fetches."""

    size_bytes: float
    source: str
    """Where they come from; transfers from the same source share what it gives."""
    of_server: bool
    """Whether each server has a source of its own (a local disk); otherwise the fleet has one."""
    source_bytes_per_s: float
    """What the source gives to all who fetch at once."""
    most_bytes_per_s: float
    """What a single replica can take."""

    @property
    def alone_s(self) -> float:
        """Time that it takes while nobody else fetches [s]."""
        return self.size_bytes / min(self.source_bytes_per_s, self.most_bytes_per_s)


@dataclass(frozen=True, slots=True)
class StartStage:
    """One part of a start."""

    what: str
    """In words: container image, weights, CUDA graphs."""
    doing: Doing
    seconds: float = 0.0
    """Fixed time [s]; it runs before the transfer, if there is one."""
    transfer: StartTransfer | None = None

    @property
    def alone_s(self) -> float:
        """Time that it takes while nobody else starts [s]."""
        return self.seconds + (self.transfer.alone_s if self.transfer is not None else 0.0)


def at_once(total_s: float) -> tuple[StartStage, ...]:
    """A start of which nothing is known but its length [s]."""
    return (StartStage("start", "booting", total_s),)


class WeightSource(Spec):
    """Where weights come from, and how fast."""

    name: str
    shared_by: Literal["server", "fleet"]
    """Who shares the source: replicas of a server, or all of the fleet."""
    source_bytes_per_s: Value
    """What it gives to all who fetch at once."""
    bytes_per_s_per_gpu: Value | None = None
    """What the process of one GPU takes at most; absent: no limit of its own."""
    bytes_per_s_per_replica: Value | None = None
    """What one replica takes at most; absent: no limit of its own."""


class ImagePull(Spec):
    """Fetching the container image."""

    bytes_per_s: Value


class EngineStart(Spec):
    """One era of an engine; a part that is absent does not take place."""

    engines: tuple[str, ...]
    """Ids in data/engines."""
    init_s: Value
    """Imports, processes, profiling."""
    cached_init_s: Value
    """With what an earlier start left in caches."""
    compile_s_per_layer: Value | None = None
    cached_compile_s_per_layer: Value | None = None
    """Loading the compiled graphs from a cache."""
    capture_s_per_layer: Value | None = None
    """CUDA graphs, captured anew in every start."""
    wake_s: Value | None = None
    """From sleep, the weights apart; absent: the engine cannot sleep."""


class ColdStartFigures(Spec):
    """How fast replicas start."""

    weights: dict[str, WeightSource]
    image: ImagePull
    engines: dict[str, EngineStart]

    def of_engine(self, engine: str) -> EngineStart | None:
        """Figures of the engine with that id; None where nobody has measured one."""
        return next((era for era in self.engines.values() if engine in era.engines), None)


def load_figures(path: Path) -> ColdStartFigures:
    """The figures in *path*. Raises pydantic's ValidationError."""
    return ColdStartFigures.model_validate(read(path).data)


GB = 1e9
PEER = "peer_gpu"


@dataclass(frozen=True, slots=True)
class StartingReplica:
    """What a replica is, as far as its start goes."""

    engine: str
    """Id in data/engines."""
    layers: int
    gpus: int
    weights_bytes: float
    """Of all its GPUs; 0 where there is no model."""
    host_link: Link | None = None
    """Between a GPU and its host."""
    peer_link: Link | None = None
    """Over which a peer sends its weights."""
    lanes_bytes_per_s: float = inf
    """What the lanes of its GPUs carry from the host while all GPUs of the server load."""


@dataclass(frozen=True, slots=True)
class ReplicaStart:
    """The stages of a start, those of waking up, and the sourced figures that they rest on."""

    stages: tuple[StartStage, ...]
    wake: tuple[StartStage, ...] = ()
    values: dict[str, Value] = field(default_factory=dict)
    told: bool = False
    """Whether the scenario describes the start."""


class StartUnknown(ValueError):
    """A part of the start that nobody has measured and the scenario does not give; `key` would give it."""

    def __init__(self, key: str, message: str) -> None:
        self.key = key
        super().__init__(message)

    def __reduce__(self) -> Any:
        return type(self), (self.key, str(self))


def start_of(spec: ColdStart, replica: StartingReplica, figures: ColdStartFigures) -> ReplicaStart:
    """What *replica* goes through. Raises StartUnknown."""
    values: dict[str, Value] = {}
    era = figures.of_engine(replica.engine)
    if spec.total_s is not None:
        stages = at_once(spec.total_s)
    else:
        before, behind = _engine(spec, replica, era, values)
        weights = StartStage("weights", "loading", transfer=_weights(spec, replica, figures, values))
        stages = (*_machine(spec, figures, values), *before, weights, *behind)
        stages = tuple(stage for stage in stages if stage.seconds or stage.transfer)
    wake = _wake(spec, replica, era, figures, values) if spec.sleep_level else ()
    return ReplicaStart(stages or at_once(0.0), wake, values, told=True)


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
    """What the engine does before its weights are there, and behind."""
    if spec.engine_s is not None:
        return [StartStage("engine", "booting", spec.engine_s)], []
    if era is None:
        text = f"nobody has measured how long {replica.engine} takes to start: give engine_s or total_s"
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
            "weights_gb", "without a model it is not known what a replica loads: give weights_gb or total_s"
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
    """Over the link into the server, which its replicas share."""
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
    """From sleep to serving; engine and graphs are still there."""
    if era is None or era.wake_s is None:
        raise StartUnknown("sleep_level", f"{replica.engine} has no known way to sleep")
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
