"""Steps with prompts whose kernels the host launches one by one, since no CUDA graph covers them.

    t = max(GPU, layers * t_launch) + host's time per step and per sequence

The host runs ahead of the GPU: launching is hidden where the GPU takes longer, and is all that counts where it is done
first. Steps without prompts run from graphs.
"""

from dataclasses import dataclass
from typing import Self

from sim.steptime.inputs import RooflineInputs, known_overheads


@dataclass(frozen=True, slots=True)
class Launches:
    """Of the layers of one stage [s]; both parts are 0 where launching never holds the GPU up."""

    heads_s: float = 0.0
    """Layers with heads over a cache."""
    linear_s: float = 0.0
    """Layers with linear attention."""
    graph_tokens: int = 0
    """Steps with prompts of at most so many tokens run from graphs."""

    @classmethod
    def of(cls, inputs: RooflineInputs, host_factor: float, layers_share: float) -> Self:
        """Of the engine on a host that takes *host_factor* of the usual time."""
        overheads, model = known_overheads(inputs.engine), inputs.model
        if overheads.launch_layer_s is None:
            return cls()
        layer_s = overheads.launch_layer_s.value * host_factor * layers_share
        if inputs.recent_host:
            layer_s *= overheads.recent_host_factor.value
        mla, linear, graphs = overheads.launch_mla_factor, overheads.launch_linear_factor, overheads.graph_tokens
        return cls(
            heads_s=layer_s
            * (model.layers - model.linear_attention_layers)
            * (mla.value if mla and model.mla else 1.0),
            linear_s=layer_s * model.linear_attention_layers * (linear.value if linear else 1.0),
            graph_tokens=int(graphs.value) if graphs else 0,
        )

    def wait_s(self, tokens: int, gpu_s: float) -> float:
        """What the GPU waits for the host in a step of *tokens* new tokens, some of prompts, that takes it *gpu_s*."""
        return max(0.0, self.heads_s + self.linear_s - gpu_s) if tokens > self.graph_tokens else 0.0
