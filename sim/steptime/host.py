"""The host's part of a step: its server's options, the kernels that it launches, and products of weights it holds.

Where no CUDA graph covers the kernels of a step with prompts, the host launches them one by one:

    t = max(GPU, layers * t_launch) + host's time per step and per sequence

The host runs ahead of the GPU: launching is hidden where the GPU takes longer, and is all that counts where it is
done first. Steps without prompts run from graphs, unless the server was told to do without any.

Matrix products whose weights lie in the host's memory:

    CPU:      t = (C^p + M^p)^(1/p)     C arithmetic of the CPU, M weights read from the host's memory
    copied:   t = weights / link + the GPU's own time
    in place: t = (C^p + M^p)^(1/p)     C arithmetic of the GPU, M weights read over the link

CPU, link and GPU take turns: no engine here overlaps them.
"""

from dataclasses import dataclass, replace
from typing import Literal, Self

from sim.catalogue.engine import Engine, default_limit
from sim.catalogue.gpu import Gpu
from sim.catalogue.model import Matrix, Model, matrices
from sim.catalogue.value import Value
from sim.spec import Count, Positive, Spec
from sim.steptime.attention_heads import LayerAttention, attention_flop, cache_bytes
from sim.steptime.coefficients import Coefficients
from sim.steptime.gemm import Product, Times, product_of, together
from sim.steptime.inputs import Host, Rates, RooflineInputs, known_overheads


class ServerOptions(Spec):
    """What the server does that makes steps or requests longer."""

    model: Literal["roofline"] = "roofline"
    host_factor: Positive = 1.0
    """Host time per step, sequence, prompt token and request against the usual server's; hosts differ threefold."""
    in_process: bool = False
    """The engine is called as a library: no API server streams the tokens."""
    one_process: bool = False
    """The API server shares the engine's process: vLLM's V0 engine with --disable-frontend-multiprocessing."""
    sorts_logits: bool = False
    """Requests ask for top-p, for which the engine sorts all logits: vLLM's sampler before 0.16."""

    chat_template: bool = False
    """Requests are chats, for which the API server fills in the model's template."""
    cuda_graphs: bool = True
    """False: the host launches every kernel of a step by itself, as with vLLM's --enforce-eager."""
    stream_interval: Count = 1
    """Tokens of a sequence that the engine hands to its API server at once, after the first: SGLang's and vLLM's
    --stream-interval, TensorRT-LLM's stream_interval."""

    def values(self, coefficients: Coefficients) -> dict[str, Value]:
        """What the options that are chosen rest on, by name in data/steptime.yaml."""
        chosen = {
            "one_process_host_time_factor": self.one_process and not self.in_process,
            "sorting_bytes_per_logit": self.sorts_logits,
            "launch_layer_s": not self.cuda_graphs,
        }
        known = {name: getattr(coefficients, name) for name, is_chosen in chosen.items() if is_chosen}
        return {name: value for name, value in known.items() if value is not None}

    def request_overhead_s(self, engine: Engine, model: Model, tensor_parallel_size: int, gpu: Gpu) -> float:
        """API-server time before a request's first token; it does not hold the engine [s]."""
        if self.in_process:
            return 0.0
        overheads = known_overheads(engine)
        factor = overheads.tp_request_factor.value if tensor_parallel_size > 1 else 1.0
        if model.moe is not None:
            factor *= overheads.moe_request_factor.value
        if gpu.hopper and overheads.hopper_request_factor is not None:
            factor *= overheads.hopper_request_factor.value
        return overheads.per_request_s.value * factor * self.host_factor

    def intake_s(self, engine: Engine) -> float:
        """API-server time that each request holds up all others with before the engine gets it [s]."""
        reading = known_overheads(engine).chat_template_s
        if self.in_process or not self.chat_template or reading is None:
            return 0.0
        return reading.value * self.host_factor

    def turn_s(self, engine: Engine) -> float:
        """API-server time by which requests that come together reach the engine apart [s]."""
        turn = known_overheads(engine).request_turn_s
        return 0.0 if self.in_process or turn is None else turn.value * self.host_factor


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


@dataclass(frozen=True, slots=True)
class HostProduct:
    """The copies of one kind of matrix that lie in host memory."""

    host: Host
    on_gpu: Product
    """As the GPU multiplies them once it has them."""
    on_cpu: Product
    over_link: Product
    """With the link's time in place of the memory's; copied weights meet no arithmetic there."""

    def times(self, tokens: int) -> tuple[Times, float]:
        """(what the GPU does, what it waits for host and link [s]) in a step of *tokens* new tokens."""
        if not self.host.streams(tokens):
            cpu = self.on_cpu.times(tokens)
            return Times(), cpu.compute_s + cpu.memory_s
        if self.host.use.streaming == "in_place":
            both = self.over_link.times(tokens)
            return Times(compute_s=both.compute_s, peak_s=both.peak_s), both.memory_s
        most = self.host.use.micro_batch_tokens
        at_once = tokens if most is None else min(tokens, int(most.value))
        return self.on_gpu.times(tokens), -(-tokens // at_once) * self.over_link.times(at_once).memory_s


def products_of(inputs: RooflineInputs) -> tuple[list[Product], Product, list[HostProduct], list[HostProduct]]:
    """(products of the layers, the LM head; of both, what lies in host memory).

    The embedding is looked up, not multiplied, unless it is also the head.
    """
    rates = Rates.of(inputs)
    weights = [matrix for matrix in matrices(inputs.model) if matrix.role != "vector"]
    head_name = "embed_tokens" if inputs.model.tie_embeddings else "lm_head"
    head = next(matrix for matrix in weights if matrix.name == head_name)
    layers = [matrix for matrix in weights if matrix.role not in ("embedding", "lm_head")]
    products = [placed(product_of(matrix, rates), matrix, rates) for matrix in layers]
    head_here, head_there = placed(product_of(head, rates), head, rates)
    in_host = [there for _, there in products if there]
    return [here for here, _ in products], head_here, in_host, [head_there] if head_there else []


def placed(product: Product, matrix: Matrix, rates: Rates) -> tuple[Product, HostProduct | None]:
    """The copies of *matrix* on the GPU, and those in host memory; *product* is the work of all on the GPU."""
    host = rates.inputs.host
    share = host.weights.share(matrix, rates.inputs.model) if host is not None else 0.0
    if host is None or share == 0.0:
        return product, None
    there = replace(product, count=product.count * share)
    overlapping = replace(there, exponent=rates.inputs.coefficients.gemm_exponent.value)
    stored_bytes = product.weight_s * rates.bytes_per_s / rates.weight_time_factor(matrix)
    cpu = link = replace(overlapping, peak_s_per_token=0.0, activation_s_per_token=0.0, compute_s_per_token=0.0)
    if host.computes_some:
        flop = product.peak_s_per_token * rates.peak_flops(matrix)
        rate = host.memory_rate(product.expert)
        cpu = replace(cpu, compute_s_per_token=flop / host.flop_rate, weight_s=stored_bytes / rate)
    if host.streams_some:
        bare = overlapping if host.use.streaming == "in_place" else link
        link = replace(bare, weight_s=stored_bytes / host.link_rate)
    return replace(product, count=product.count * (1 - share)), HostProduct(host, there, cpu, link)


def all_times(products: list[HostProduct], tokens: int) -> tuple[Times, float]:
    """(what the GPU does, what it waits [s]) for all of *products*."""
    parts = [product.times(tokens) for product in products]
    return sum((gpu for gpu, _ in parts), Times()), sum(waits_s for _, waits_s in parts)


def host_attention(host: Host, rates: Rates, whole: bool = False) -> LayerAttention:
    """Attention of one layer that the CPU computes, its KV cache in the host's memory.

    The CPU works on all query-key pairs, also on those that a causal mask drops: twice the arithmetic.
    """
    inputs = rates.inputs
    decode_flop, pair_flop = attention_flop(inputs.model, whole)
    read_s = cache_bytes(inputs.model, 1, inputs.kv_bytes_per_element, whole) / host.memory_rate()
    exponent = inputs.coefficients.gemm_exponent.value
    return LayerAttention(
        decode_s=together(decode_flop / host.flop_rate, read_s, exponent),
        decode_peak_s=0.0,
        read_s=read_s,
        pair_s=2 * pair_flop / host.flop_rate,
        pair_peak_s=0.0,
        stream_s=0.0,
    )


def mean_layer(rates: Rates, whole: bool = False) -> LayerAttention:
    """Attention of a layer, averaged over those of the GPU and those of the CPU."""
    layer, host = LayerAttention.of(rates, whole), rates.inputs.host
    if host is None or host.weights.layers == 0:
        return layer
    return layer.mixed(host_attention(host, rates, whole), host.weights.layers / rates.inputs.model.layers)
