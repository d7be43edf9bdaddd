"""Sourced figures of starts: data/coldstart.yaml."""

from pathlib import Path
from typing import Literal

from sim.catalogue.value import Value
from sim.spec import Spec
from sim.yamlio import read


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


class Figures(Spec):
    """How fast replicas start."""

    weights: dict[str, WeightSource]
    image: ImagePull
    engines: dict[str, EngineStart]

    def of_engine(self, engine: str) -> EngineStart | None:
        """Figures of the engine with that id; None where nobody has measured one."""
        return next((era for era in self.engines.values() if engine in era.engines), None)


def load_figures(path: Path) -> Figures:
    """The figures in *path*. Raises pydantic's ValidationError."""
    return Figures.model_validate(read(path).data)
