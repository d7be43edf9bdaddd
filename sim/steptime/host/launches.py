"""Steps with prompts whose kernels the host launches one by one, since no CUDA graph covers them.

    t = max(GPU, layers * t_launch) + host's time per step and per sequence

The host runs ahead of the GPU: launching is hidden where the GPU takes longer, and is all that counts where it is done
first. Steps without prompts run from graphs, unless the server was told to do without any.
"""

from dataclasses import dataclass, replace
from typing import Self

from sim.catalogue.entries.engine import default_limit
from sim.steptime.inputs import RooflineInputs, known_overheads


@dataclass(frozen=True, slots=True)
class Launches:
    """Of the layers of one stage [s]; all parts are 0 where launching never holds the GPU up."""

    heads_s: float = 0.0
    """Layers with heads over a cache, in a step with prompts."""
    linear_s: float = 0.0
    """Layers with linear attention, in a step with prompts."""
    graph_tokens: int = 0
    """Steps with prompts of at most so many tokens run from graphs."""
    decode_s: float = 0.0
    """All layers of a step without prompts; 0: it runs from a graph."""

    @classmethod
    def of(cls, inputs: RooflineInputs, host_factor: float, layers_share: float, graphs: bool) -> Self:
        """Of the engine on a host that takes *host_factor* of the usual time; *graphs*: with those that are usual."""
        prompts, one = cls._prompts(inputs, host_factor, layers_share), inputs.coefficients.launch_layer_s
        if graphs or one is None:
            return prompts
        return replace(prompts, graph_tokens=0, decode_s=one.value * kernel_layers(inputs) * host_factor * layers_share)

    @classmethod
    def _prompts(cls, inputs: RooflineInputs, host_factor: float, layers_share: float) -> Self:
        overheads, model = known_overheads(inputs.engine), inputs.model
        if overheads.launch_layer_s is None:
            return cls()
        mean_s = overheads.launch_layer_s.value * _block_kernels(inputs) * host_factor * layers_share
        if inputs.recent_host:
            mean_s *= overheads.recent_host_factor.value
        if inputs.gpu.cdna and overheads.cdna_layer_factor is not None:
            mean_s *= overheads.cdna_layer_factor.value
        linear = overheads.launch_linear_factor
        return cls(
            heads_s=mean_s * (model.layers - model.linear_attention_layers) * _latent_kernels(inputs),
            linear_s=mean_s * model.linear_attention_layers * (linear.value if linear else 1.0),
            graph_tokens=graph_tokens(inputs),
        )

    def wait_s(self, tokens: int, prompt_tokens: int, gpu_s: float) -> float:
        """What the GPU waits for the host in a step of *tokens* new ones, which takes it *gpu_s*."""
        prompts = prompt_tokens and tokens > self.graph_tokens
        return max(0.0, self.decode_s - gpu_s, self.heads_s + self.linear_s - gpu_s if prompts else 0.0)


def graph_tokens(inputs: RooflineInputs) -> int:
    """Tokens of the largest step with prompts that runs from graphs; SGLang makes none for stages and for ranks that
    step together (server_args.py, _handle_piecewise_cuda_graph).
    """
    most = default_limit(inputs.engine, inputs.gpu, "graph_tokens")
    alone = inputs.pipeline_parallel_size == 1 and inputs.data_parallel_size == 1
    return int(most.value) if most is not None and alone and inputs.gpu.vendor == "nvidia" else 0


def kernel_layers(inputs: RooflineInputs) -> float:
    """Dense layers without latent attention that have as many kernels as those of the model [1]."""
    linear = inputs.model.linear_attention_layers
    return _block_kernels(inputs) * (linear + (inputs.model.layers - linear) * _latent_kernels(inputs))


def _block_kernels(inputs: RooflineInputs) -> float:
    """Kernels of the mean layer over those of a dense one [1]."""
    model, overheads = inputs.model, known_overheads(inputs.engine)
    experts = model.expert_layers / model.layers
    return 1.0 - experts + experts * overheads.moe_layer_factor.value


def _latent_kernels(inputs: RooflineInputs) -> float:
    """Kernels of a layer with heads over those of one whose heads are plain [1]: more where they attend in latents."""
    return known_overheads(inputs.engine).mla_layer_factor.value if inputs.model.mla is not None else 1.0


def layer_overheads_s(inputs: RooflineInputs) -> float:
    """Launches and small kernels of all layers [s]."""
    gpu, overheads, layers = inputs.gpu, known_overheads(inputs.engine), kernel_layers(inputs)
    if gpu.blackwell:
        layers *= overheads.blackwell_layer_factor.value
    if gpu.hopper:
        layers *= overheads.hopper_layer_factor.value
    if gpu.ada and overheads.ada_layer_factor is not None:
        layers *= overheads.ada_layer_factor.value
    if gpu.cdna and overheads.cdna_layer_factor is not None:
        layers *= overheads.cdna_layer_factor.value
    return layers * overheads.per_layer_s.value
