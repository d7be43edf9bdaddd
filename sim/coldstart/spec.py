"""What a scenario says of the start of a pool's replicas."""

from typing import Literal, Self

from pydantic import model_validator

from sim.spec import NonNegative, Positive, Spec

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
