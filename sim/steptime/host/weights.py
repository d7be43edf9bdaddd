"""The host of a replica as its step time sees it: rates of its memory, its processors and its link to the GPU."""

from collections.abc import Iterator
from dataclasses import dataclass

from sim.catalogue.entries.offload import EngineOffload, HostWeights
from sim.catalogue.value import Value


@dataclass(frozen=True, slots=True)
class Host:
    """Which weights lie in host memory, how the engine works with them, and how fast the host is."""

    weights: HostWeights
    use: EngineOffload
    memory_bytes_per_s: Value | None = None
    """Of all its memory channels together."""
    flops: Value | None = None
    link_bytes_per_s: Value | None = None
    """Between GPU and host, per direction, as the standard has it."""
    replicas: int = 1
    """That share its memory and processors evenly."""

    @property
    def link_rate(self) -> float:
        """Rate at which weights reach the GPU [B/s]."""
        return _known(self.link_bytes_per_s) * _known(self.use.link_efficiency)

    def memory_rate(self, expert: bool = False) -> float:
        """Rate at which the replica's part of the host reads weights, routed experts or others [B/s]."""
        efficiency = self.use.expert_memory_efficiency if expert else self.use.memory_efficiency
        return _known(self.memory_bytes_per_s) * _known(efficiency) / self.replicas

    @property
    def flop_rate(self) -> float:
        """Arithmetic of the replica's part of the host [FLOP/s]."""
        return _known(self.flops) / self.replicas

    @property
    def streams_some(self) -> bool:
        """Whether any step brings weights to the GPU."""
        return self.use.streaming != "none"

    @property
    def computes_some(self) -> bool:
        """Whether the CPU multiplies in any step."""
        return not self.streams_some or self.use.stream_from_tokens is not None

    def streams(self, tokens: int) -> bool:
        """Whether a step of *tokens* new tokens brings weights to the GPU; if not, the CPU multiplies."""
        first = self.use.stream_from_tokens
        return self.streams_some and (first is None or tokens >= first.value)

    def values(self) -> Iterator[tuple[str, Value]]:
        """The engine's figures that count here, by name."""
        streaming = ["link_efficiency", "micro_batch_tokens", "stream_from_tokens"] if self.streams_some else []
        computing = ["memory_efficiency", "expert_memory_efficiency"] if self.computes_some else []
        for name in streaming + computing:
            if (value := getattr(self.use, name)) is not None:
                yield name, value


def _known(value: Value | None) -> float:
    assert value is not None  # the checks of a scenario ask for what its engine needs
    return value.value
