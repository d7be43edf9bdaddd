"""Roofline step-time model: step time from a model's dimensions, a GPU's rates and the host's overheads.

`RooflineStepTime` has the equation. `Launches` has the host's kernel launches, `HostProduct` the products of weights
that lie in host memory. `used_values` lists the sourced values that a step time uses, for reports of sources and
sensitivity.
"""

from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Self

from sim.catalogue.model import Matrix, Model, matrices, used_fraction
from sim.catalogue.quantization import covers
from sim.catalogue.stages import stage_models
from sim.catalogue.value import Value
from sim.records import Batch, Leap
from sim.steptime.attention import (
    Attention,
    FullAttentionCall,
    LayerAttention,
    attention_flop,
    attention_values,
    cache_bytes,
    least_pairs,
    whole_layers,
    window_of,
    window_tokens_per_query,
)
from sim.steptime.gemm import GemmTimes, MatrixProduct, TokenStepCost, p_norm_s, product_of, total
from sim.steptime.inputs import GpuRates, HostOffload, RooflineInputs, known_overheads
from sim.steptime.links import Exchange, exchanges_of, links_of, messages_s, other_stages_load, stage_slowdown
from sim.steptime.options import Roofline


@dataclass(frozen=True, slots=True)
class Launches:
    """Host time to launch the kernels of one stage's layers [s]; all parts are 0 if launching never delays the GPU.

    Notes
    -----
    Where no CUDA graph covers the kernels of a step, the host launches them one by one::

        t = max(GPU, layers * t_launch) + host's time per step and per sequence

    The host runs ahead of the GPU, over all layers: launching is hidden if the GPU takes longer, and determines the
    time if the GPU is faster. Where one thread launches a step's kernels and then forms the next step, both are
    hidden only if the GPU takes longer than their sum::

        t = max(GPU, layers * t_launch + host) + exposed_share * min(GPU, host)

    """

    heads_s: float = 0.0
    """Launch time of layers with heads over a cache, in a step that no CUDA graph covers [s]."""
    linear_s: float = 0.0
    """Launch time of layers with linear attention, in a step that no CUDA graph covers [s]."""
    graph_tokens: float = 0
    """Maximum tokens of a step with prompts that runs from CUDA graphs."""
    decode_graph_tokens: float = inf
    """Maximum tokens of a step without prompts that runs from CUDA graphs."""
    decode_s: float = 0.0
    """Launch time of all layers in a step without prompts [s]; 0: the step runs from a CUDA graph."""

    @classmethod
    def of(cls, inputs: RooflineInputs, host_factor: float, layers_share: float, graphs: bool) -> Self:
        """Return the launch times in the inputs' engine on a host with *host_factor* times the usual host times.

        *graphs*: the server uses CUDA graphs as usual.
        """
        prompts, one = cls._prompts(inputs, host_factor, layers_share), inputs.coefficients.launch_layer_s
        if graphs or one is None:
            return prompts
        layers = _block_kernels(inputs) * (inputs.model.linear_attention_layers + launched_heads(inputs))
        return replace(prompts, graph_tokens=0, decode_s=one.value * layers * host_factor * layers_share)

    @classmethod
    def _prompts(cls, inputs: RooflineInputs, host_factor: float, layers_share: float) -> Self:
        overheads, model = known_overheads(inputs.engine), inputs.model
        if overheads.launch_layer_s is None:
            return cls()
        mean_s = overheads.launch_layer_s.value * _block_kernels(inputs) * host_factor * layers_share
        desktop = desktop_launches(inputs)
        if desktop is not None:
            mean_s *= desktop.value
        elif inputs.recent_host:
            mean_s *= overheads.recent_host_factor.value
        if inputs.gpu.cdna and overheads.cdna_layer_factor is not None:
            mean_s *= overheads.cdna_layer_factor.value
        linear = overheads.launch_linear_factor if by_delta_rule(model) else None
        return cls(
            heads_s=mean_s * launched_heads(inputs),
            linear_s=mean_s * model.linear_attention_layers * (linear.value if linear else 1.0),
            graph_tokens=inputs.graph_tokens,
            decode_graph_tokens=inputs.decode_graph_tokens,
        )

    def wait_s(self, tokens: int, prompt_tokens: int, gpu_s: float, host_s: float = 0.0) -> float:
        """Return the time that the GPU, busy for *gpu_s*, waits for launches in a step of *tokens* new tokens [s].

        *host_s* is the other work of the launching thread in a step [s].
        """
        launch_s = self.decode_s
        if tokens > (self.graph_tokens if prompt_tokens else self.decode_graph_tokens):
            launch_s = max(launch_s, self.heads_s + self.linear_s)
        return max(0.0, launch_s + host_s - gpu_s) if launch_s else 0.0


MOST_UNCONVERTED = 64
"""Most tokens of a pass that reads quantised weights without converting them."""


@dataclass(frozen=True, slots=True)
class Passes:
    """Passes of a step's tokens through the layers, and the work between products (`PromptKernels`).

    Notes
    -----
    Llama.cpp computes a batch in passes of `--ubatch-size` tokens, each of which reads all weights. Kernels between
    products keep numbers in 32 bit; products of quantised weights may convert them to 16 bit in each pass.

    """

    micro_batch_tokens: float = inf
    """Maximum tokens of a pass."""
    token_s: float = 0.0
    """Time of the kernels between products per token [s]."""
    pass_s: float = 0.0
    """Time to convert weights in each pass of more than `MOST_UNCONVERTED` tokens [s]."""
    masked_pairs: float = 0.0
    """Masked query-key pairs that are computed per token of a prompt."""

    @classmethod
    def of(cls, inputs: RooflineInputs, layers_share: float) -> Self:
        """Return the passes of the inputs' engine; a single one without extra work if it states no prompt kernels."""
        stated = inputs.prompt_kernels
        if not stated:
            return cls()
        rates, ranks = GpuRates.of(inputs), inputs.tensor_parallel_size
        numbers = converted = 0.0
        for one in matrices(inputs.model):
            if one.role in ("embedding", "lm_head", "vector"):
                continue
            numbers += one.count * used_fraction(inputs.model, one) * (one.inputs + one.outputs)
            converted += one.count * one.inputs * one.outputs if covers(inputs.quantization, one) else 0.0
        per_number, per_weight = (stated.get(name) for name in ("activation_bytes", "dequantised_bytes"))
        scale = layers_share / ranks / rates.kernel_bytes_per_s
        micro = stated["micro_batch_tokens"].value
        return cls(
            micro,
            per_number.value * numbers * scale if per_number else 0.0,
            per_weight.value * converted * scale if per_weight else 0.0,
            micro / 2 if "score_bytes" in stated else 0.0,
        )

    def split(self, tokens: int) -> list[tuple[int, int]]:
        """Return (passes, tokens of each) for a step of *tokens* new tokens."""
        if tokens <= self.micro_batch_tokens:
            return [(1, tokens)]
        whole, rest = divmod(tokens, int(self.micro_batch_tokens))
        return [(whole, int(self.micro_batch_tokens)), *([(1, rest)] if rest else [])]

    def seconds(self, tokens: int) -> float:
        """Return the time of the work between products in a step of *tokens* new tokens [s]."""
        passes = sum(count for count, each in self.split(tokens) if each > MOST_UNCONVERTED)
        return self.token_s * tokens + self.pass_s * passes


def desktop_launches(inputs: RooflineInputs) -> Value | None:
    """Return the factor on launch times of a desktop's processor; None: the card's usual host is a server."""
    return inputs.coefficients.desktop_launch_factor if inputs.gpu.geforce else None


def by_delta_rule(model: Model) -> bool:
    """Return whether layers with linear attention update their state by a delta rule, a dozen kernels per prompt."""
    return model.linear_attention is not None and model.linear_attention.rule in ("gated_delta", "kda")


def kernel_layers(inputs: RooflineInputs) -> float:
    """Return the number of dense layers without latent attention that have as many kernels as the model [1]."""
    return _block_kernels(inputs) * (inputs.model.linear_attention_layers + head_kernels(inputs))


def _block_kernels(inputs: RooflineInputs) -> float:
    """Return the kernels of the mean layer relative to those of a dense layer [1]."""
    model, overheads = inputs.model, known_overheads(inputs.engine)
    experts = model.expert_layers / model.layers
    return 1.0 - experts + experts * overheads.moe_layer_factor.value


def head_kernels(inputs: RooflineInputs) -> float:
    """Return the number of plain dense layers that have as many kernels as the layers with heads."""
    latent = known_overheads(inputs.engine).mla_layer_factor.value
    return _alike(inputs.model, latent, inputs.coefficients.indexer_kernels)


def launched_heads(inputs: RooflineInputs) -> float:
    """Return the number of plain dense layers that have as many launches as the layers with heads."""
    overheads = known_overheads(inputs.engine)
    latent, indexer = overheads.launch_latent_factor or overheads.mla_layer_factor, overheads.launch_indexer_factor
    return _alike(inputs.model, latent.value, indexer.value if indexer is not None else 1.0)


def _alike(model: Model, latent: float, indexer: float) -> float:
    """Return the layers with heads, each counted with the factors for latent attention and for an indexer."""
    indexing = model.indexer.indexing_layers if model.indexer is not None else 0
    layers = model.layers - model.linear_attention_layers + (indexer - 1.0) * indexing
    return layers * (latent if model.mla is not None else 1.0)


def layer_overheads_s(inputs: RooflineInputs) -> float:
    """Return the time of launches and small kernels of all layers [s].

    Notes
    -----
    layers * per_layer_s, with the layer factors of the card's family, of experts, latent attention and indexers.

    """
    gpu, overheads, layers = inputs.gpu, known_overheads(inputs.engine), kernel_layers(inputs)
    if gpu.blackwell:
        layers *= overheads.blackwell_layer_factor.value
    if gpu.hopper:
        layers *= overheads.hopper_layer_factor.value
    if gpu.ada and overheads.ada_layer_factor is not None:
        layers *= overheads.ada_layer_factor.value
    if gpu.cdna and overheads.cdna_layer_factor is not None:
        layers *= overheads.cdna_layer_factor.value
    if gpu.vendor == "nvidia" and overheads.graph_layer_factor is not None and not gpu.before_ampere:
        layers *= overheads.graph_layer_factor.value
    elif overheads.linear_layer_factor is not None:
        layers += (
            _block_kernels(inputs) * inputs.model.linear_attention_layers * (overheads.linear_layer_factor.value - 1)
        )
    return layers * overheads.per_layer_s.value


@dataclass(frozen=True, slots=True)
class HostProduct:
    """Copies of one matrix that lie in host memory, and their products.

    Notes
    -----
        CPU:      t = (C^p + M^p)^(1/p)     C arithmetic of the CPU, M weights read from host memory
        copied:   t = weights / link + the GPU's own time
        in place: t = (C^p + M^p)^(1/p)     C arithmetic of the GPU, M weights read over the link

    CPU, link and GPU take turns: no supported engine overlaps them.

    """

    host: HostOffload
    on_gpu: MatrixProduct
    """Product on the GPU once the weights are there."""
    on_cpu: MatrixProduct
    over_link: MatrixProduct
    """Product with the link's time in place of the memory's; copied weights have no arithmetic in it."""

    def times(self, tokens: int) -> tuple[GemmTimes, float]:
        """Return (the GPU's work, the GPU's wait for host and link [s]) in a step of *tokens* new tokens."""
        if not self.host.streams(tokens):
            cpu = self.on_cpu.times(tokens)
            return GemmTimes(), cpu.compute_s + cpu.memory_s
        if self.host.use.streaming == "in_place":
            both = self.over_link.times(tokens)
            return GemmTimes(compute_s=both.compute_s, peak_s=both.peak_s), both.memory_s
        most = self.host.use.micro_batch_tokens
        at_once = tokens if most is None else min(tokens, int(most.value))
        return self.on_gpu.times(tokens), -(-tokens // at_once) * self.over_link.times(at_once).memory_s


def products_of(
    inputs: RooflineInputs,
) -> tuple[list[MatrixProduct], MatrixProduct, list[HostProduct], list[HostProduct]]:
    """Return the products (of the layers, of the LM head, of layers in host memory, of the LM head in host memory).

    The embedding is a look-up, not a product, unless it is tied to the LM head.
    """
    rates = GpuRates.of(inputs)
    weights = [matrix for matrix in matrices(inputs.model) if matrix.role != "vector"]
    head_name = "embed_tokens" if inputs.model.tie_embeddings else "lm_head"
    head = next(matrix for matrix in weights if matrix.name == head_name)
    layers = [matrix for matrix in weights if matrix.role not in ("embedding", "lm_head")]
    products = [split_copies(product_of(matrix, rates), matrix, rates) for matrix in layers]
    head_here, head_there = split_copies(product_of(head, rates), head, rates)
    in_host = [there for _, there in products if there]
    return [here for here, _ in products], head_here, in_host, [head_there] if head_there else []


def split_copies(product: MatrixProduct, matrix: Matrix, rates: GpuRates) -> tuple[MatrixProduct, HostProduct | None]:
    """Return the copies of *matrix* on the GPU and in host memory; *product* is the work of all on the GPU."""
    host = rates.inputs.host
    share = host.weights.share(matrix, rates.inputs.model) if host is not None else 0.0
    if host is None or share == 0.0:
        return product, None
    there = replace(product, count=product.count * share)
    overlapping = replace(there, exponent=rates.inputs.coefficients.gemm_exponent.value)
    stored_bytes = product.weight_s * rates.bytes_per_s / rates.weight_time_factor(matrix)
    idle = replace(overlapping, peak_s_per_token=0.0, activation_s_per_token=0.0)
    cpu = link = replace(idle, compute_s_per_token=0.0, padding_s=0.0)
    if host.computes_some:
        flop = product.peak_s_per_token * rates.peak_flops(matrix)
        rate = host.memory_rate(product.expert)
        cpu = replace(cpu, compute_s_per_token=flop / host.flop_rate, weight_s=stored_bytes / rate)
    if host.streams_some:
        bare = overlapping if host.use.streaming == "in_place" else link
        link = replace(bare, weight_s=stored_bytes / host.link_rate)
    return replace(product, count=product.count * (1 - share)), HostProduct(host, there, cpu, link)


def all_times(products: list[HostProduct], tokens: int) -> tuple[GemmTimes, float]:
    """Return (the GPU's work, the GPU's wait [s]) for all of *products*."""
    parts = [product.times(tokens) for product in products]
    return sum((gpu for gpu, _ in parts), GemmTimes()), sum(waits_s for _, waits_s in parts)


def host_attention(host: HostOffload, rates: GpuRates, whole: bool = False) -> LayerAttention:
    """Return the attention of one layer computed by the CPU, with its KV cache in host memory.

    The CPU computes all query-key pairs, including those that a causal mask drops: twice the arithmetic.
    """
    inputs = rates.inputs
    decode_flop, pair_flop = attention_flop(inputs.model, whole)
    read_s = cache_bytes(inputs.model, 1, inputs.kv_bytes_per_element, whole) / host.memory_rate()
    exponent = inputs.coefficients.gemm_exponent.value
    return LayerAttention(
        decode_s=p_norm_s(decode_flop / host.flop_rate, read_s, exponent),
        decode_peak_s=0.0,
        read_s=read_s,
        pair_s=2 * pair_flop / host.flop_rate,
        pair_peak_s=0.0,
        stream_s=0.0,
    )


def mean_layer(rates: GpuRates, whole: bool = False) -> LayerAttention:
    """Return the attention of a layer, averaged over the layers on the GPU and those on the CPU."""
    layer, host = LayerAttention.of(rates, whole), rates.inputs.host
    if host is None or host.weights.layers == 0:
        return layer
    return layer.mixed(host_attention(host, rates, whole), host.weights.layers / rates.inputs.model.layers)


def used_values(inputs: RooflineInputs) -> dict[str, Value]:
    """Return the coefficients that the step time uses, by name in data/steptime.yaml."""
    coefficients = inputs.coefficients
    efficiency = coefficients.efficiency(inputs.gpu)
    values = {
        "compute_efficiency": efficiency.compute,
        "memory_efficiency": efficiency.memory,
        "gemm_exponent": coefficients.gemm_exponent,
        "serving_compute_time_factor": coefficients.serving_compute_time_factor,
        "prefill_attention_efficiency": coefficients.prefill_attention_efficiency,
    }
    if inputs.forms_ahead:
        values["exposed_share"] = coefficients.exposed_share
    if max(inputs.tensor_parallel_size, inputs.expert_ranks) > 1:
        values["allreduce_time_factor"] = coefficients.allreduce_factor(inputs.gpu, inputs.link)
    if inputs.model.moe is not None:
        values |= coefficients.experts_values(inputs.gpu, inputs.model, inputs.spreads_experts)
    if inputs.model.indexer is not None and coefficients.indexer_layer_factor is not None:
        values["indexer_layer_factor"] = coefficients.indexer_layer_factor
    desktop = desktop_launches(inputs)
    if desktop is not None and known_overheads(inputs.engine).launch_layer_s is not None:
        values["desktop_launch_factor"] = desktop
    values |= inputs.kernel_values
    if inputs.pipeline_parallel_size > 1:
        values["pipeline_time_factor_per_doubling"] = coefficients.pipeline_time_factor_per_doubling
    values |= attention_values(GpuRates.of(inputs))
    return values | (dict(inputs.host.values()) if inputs.host else {})


class RooflineStepTime:
    """Roofline step-time model of one pool; costs by number of tokens are computed once and cached.

    Notes
    -----
        t = sum over matrix products of (C^p + M^p)^(1/p)          tokens in the step; p = 1 for experts
          + attention                                              contexts, query-key pairs, states
          + all-reduces, one per block                             tokens in the step
          + layers * t_layer + t_step + sampled sequences * t_seq + prompt tokens * t_prompt      host

    C is arithmetic time, M memory time (`gemm.MatrixProduct`).

    The host's time adds to the GPU's, except where the engine forms a step while one runs (vLLM 0.14 and later, SGLang,
    TensorRT-LLM 1.x): there the longer of both counts, plus the fraction `exposed_share` of the shorter. Launching the
    kernels of prompts one by one is hidden behind the GPU's work in every engine, or the reverse (`Launches`).

    With pipeline parallelism the time is that of the mean stage: an even share of the layers, of the LM head and of the
    host's time, and the send to the next stage. The LM head, the sampling and the host's work for each batch lie on one
    stage alone, for which the others wait while several batches are in flight. `PipelineStepTime` has the times of
    stages with different layers.

    """

    def __init__(self, spec: Roofline, inputs: RooflineInputs, whole: bool = False) -> None:
        """Compute the costs of the mean stage; with *whole*, of a stage that has all layers of the inputs' model."""
        self.spec, self.inputs = spec, inputs
        self.values = used_values(inputs)
        self.window = window_of(inputs.model)
        self._load, self._other_stages_load = inputs.load, other_stages_load(inputs)
        self._second_load = inputs.second_load
        self._overheads = known_overheads(inputs.engine)
        self._contention = inputs.coefficients.contention(spec.one_process and not spec.in_process)
        self._products, self._head, self._in_host, self._head_in_host = products_of(inputs)
        self._allreduce, self._exchange, self._send = links_of(inputs)
        self._by_tokens: dict[int, TokenStepCost] = {}
        self._by_samples: dict[int, TokenStepCost] = {}
        slowdown, self._alone_stages = stage_slowdown(inputs)
        self._even_share = slowdown / inputs.pipeline_parallel_size
        self._layers_share = slowdown if whole else self._even_share
        self._passes = Passes.of(inputs, self._layers_share)
        self._launches = Launches.of(inputs, spec.host_factor, self._layers_share, spec.cuda_graphs)
        reading = None if spec.in_process else self._overheads.per_prompt_token_s
        self._prompt_token_s = reading.value * spec.host_factor * self._even_share if reading else 0.0
        rates = GpuRates.of(inputs)
        sorting = inputs.coefficients.sorting_bytes_per_logit if spec.sorts_logits else None
        penalties = inputs.coefficients.penalty_bytes_per_logit if spec.penalizes_logits else None
        self._launches_s = layer_overheads_s(inputs)
        self._step_host_s = self._host_s(self._overheads.per_step_s)
        standing = self._overheads.standing_share
        kept_s = self._host_s(self._overheads.per_sequence_in_process_s)
        self._standing_s = kept_s * (standing.value if standing else 1.0) * self._even_share
        self._hidden_share = 1 - inputs.coefficients.exposed_share.value if inputs.forms_ahead else 0.0
        self._one_thread = inputs.forms_ahead and inputs.one_thread
        logit_bytes = sum(one.value for one in (sorting, penalties) if one is not None)
        self._logits_s = inputs.model.vocab * logit_bytes / rates.bytes_per_s
        self._least_pairs, self._seen_tokens = least_pairs(rates), window_tokens_per_query(rates)
        attention = Attention.of(rates, mean_layer(rates), mean_layer(rates, whole=True), self._layers_share)
        self._one_call = FullAttentionCall.of(rates, attention.whole, whole_layers(inputs.model) * self._layers_share)
        self._set_attention(attention)

    def _set_attention(self, attention: Attention) -> None:
        whole, windowed = attention.whole, attention.windowed
        self._decode_s, self._decode_peak_s = whole.decode_s, whole.decode_peak_s
        self._window_decode_s, self._window_decode_peak_s = windowed.decode_s, windowed.decode_peak_s
        self._read_s, self._window_read_s = whole.read_s, windowed.read_s
        self._stream_s, self._window_stream_s = whole.stream_s, windowed.stream_s
        self._pair_s, self._window_pair_s = whole.pair_s, windowed.pair_s
        self._peak_per_pair, self._stream_per_read = attention.peak_per_pair, attention.stream_per_read
        self._context_free = attention.context_free

    def leap(self, batch: Batch) -> Leap:
        """Return the durations of the next steps of *batch*; with pipeline parallelism, those of one stage.

        The time of windowed layers grows with `windowed_growing_seqs`, until the first of these sequences fills its
        window.
        """
        prompt_tokens, kv_tokens = batch.prefill_tokens, batch.kv_tokens
        tokens = batch.decode_seqs + batch.draft_tokens + prompt_tokens
        step = self._layers(tokens, batch.replica_tokens)
        head = self._sampling(batch)
        standing_s = self._standing_s * batch.standing_seqs
        first_s = step.total_s + head.total_s + standing_s + self._decode_s * kv_tokens
        peak_s = step.peak_s + head.peak_s + self._decode_peak_s * kv_tokens
        stream_s = step.stream_s + head.stream_s + self._stream_s * kv_tokens
        host_s, reading_s = step.gpu_waits_s + head.gpu_waits_s + standing_s, 0.0
        growth_s, valid_steps = self._decode_s * batch.decode_seqs, inf
        if self.window is not None:
            first_s += self._window_decode_s * batch.windowed_kv_tokens
            peak_s += self._window_decode_peak_s * batch.windowed_kv_tokens
            stream_s += self._window_stream_s * batch.windowed_kv_tokens
            growth_s += self._window_decode_s * batch.windowed_growing_seqs
        if prompt_tokens:
            reading_s = self._prompt_token_s * prompt_tokens
            prompts_s, prompts_peak_s, prompts_stream_s = self._prompts(batch, reading_s)
            first_s += prompts_s
            peak_s += prompts_peak_s
            stream_s += prompts_stream_s
            host_s += reading_s
        if self._context_free is not None:
            moved_s, scanned_s = self._context_free.times(batch)
            first_s += moved_s + scanned_s
            peak_s += self._context_free.token_peak_s * prompt_tokens
            stream_s += moved_s
        last_s = self._alone_stages * (head.total_s + step.gpu_waits_s + standing_s + reading_s)
        gpu_s, gpu_waits_s, waits_s = first_s - host_s, host_s, 0.0
        if prompt_tokens or self._launches.decode_s or tokens > self._launches.decode_graph_tokens:
            waits_s = self._launches.wait_s(tokens, prompt_tokens, gpu_s, host_s if self._one_thread else 0.0)
            if waits_s:
                first_s, gpu_waits_s, valid_steps = first_s + waits_s, gpu_waits_s + waits_s, 1.0
        if self._hidden_share:
            if waits_s and self._one_thread:
                hidden_s = self._counted_s(gpu_s, host_s)
            else:
                hidden_s, growth_s, valid_steps = self._overlap(first_s - host_s, host_s, growth_s, valid_steps)
            first_s, gpu_waits_s = first_s - hidden_s, gpu_waits_s - hidden_s
        if self._load is None:
            return Leap(first_s, growth_s, valid_steps, 1.0, last_s)
        busy = 1.0 - gpu_waits_s / first_s
        computing, reading, rate, linked = peak_s / first_s, stream_s / first_s, tokens / first_s, step.link_s / first_s
        load = self._load.load(computing, reading, rate, busy, linked)
        turns_load = self._other_stages_load if batch.decode_seqs else 0.0
        leap = Leap(first_s, growth_s, valid_steps, load + turns_load, last_s)
        if self._second_load is not None:
            leap.second_load = self._second_load.load(computing, reading, rate, busy, linked)
        return leap

    def _prompts(self, batch: Batch, reading_s: float) -> tuple[float, float, float]:
        """Return the time that prompts add to a step, with its parts at the tensor peak and of reading memory [s].

        *reading_s* is the host's time to process the prompts' tokens.
        """
        read_s, pairs_s = self._prefill(batch)
        whole_s = read_s + pairs_s + reading_s
        if self._one_call is not None:
            whole_s += self._unpacked_s(batch, read_s + pairs_s)
        return whole_s, pairs_s * self._peak_per_pair, read_s * self._stream_per_read

    def _overlap(self, gpu_s: float, host_s: float, growth_s: float, valid_steps: float) -> tuple[float, float, float]:
        """Return the overlapped time of a step, the growth of steps, and the number of valid steps.

        *gpu_s* and *host_s* run in parallel; the overlapped time is the part of the shorter that does not add to the
        longer [s].
        """
        if gpu_s >= host_s:
            return self._hidden_share * host_s, growth_s, valid_steps
        if growth_s:
            valid_steps = min(valid_steps, ceil((host_s - gpu_s) / growth_s))
        return self._hidden_share * gpu_s, growth_s * (1 - self._hidden_share), valid_steps

    def breakdown(self, batch: Batch) -> dict[str, float]:
        """Return the duration of the first step by cause [s]: compute, memory, attention, link, overhead."""
        tokens = batch.decode_seqs + batch.draft_tokens + batch.prefill_tokens
        step, head = self._layers(tokens, batch.replica_tokens), self._sampling(batch)
        prompts_s = sum(self._prefill(batch))
        attention_s = self._decode_s * batch.kv_tokens + prompts_s + self._unpacked_s(batch, prompts_s)
        if self.window is not None:
            attention_s += self._window_decode_s * batch.windowed_kv_tokens
        if self._context_free is not None:
            attention_s += sum(self._context_free.times(batch))
        gpu_waits_s = step.gpu_waits_s + head.gpu_waits_s
        gpu_s = step.total_s + head.total_s + attention_s - gpu_waits_s
        reading_s = self._prompt_token_s * batch.prefill_tokens + self._standing_s * batch.standing_seqs
        host_s = gpu_waits_s + reading_s
        waits_s = self._launches.wait_s(tokens, batch.prefill_tokens, gpu_s, host_s if self._one_thread else 0.0)
        parts = {
            "compute": step.compute_s + head.compute_s,
            "memory": step.memory_s + head.memory_s,
            "attention": attention_s,
            "link": step.link_s + head.link_s,
            "overhead": step.overhead_s + head.overhead_s + reading_s + waits_s,
        } | ({"host": step.host_s + head.host_s} if self.inputs.host else {})
        if waits_s and self._one_thread:
            parts["overhead"] -= self._counted_s(gpu_s, host_s)
            return parts
        return self._exposed(parts, gpu_s + waits_s, host_s) if self._hidden_share else parts

    def _counted_s(self, gpu_s: float, host_s: float) -> float:
        """Return the part of the host's time that `Launches.wait_s`, with one thread, already contains [s].

        Exposed is the rest of *host_s*: a share of the shorter of *gpu_s* and *host_s*.
        """
        return host_s - (1 - self._hidden_share) * min(gpu_s, host_s)

    def _exposed(self, parts: dict[str, float], gpu_s: float, host_s: float) -> dict[str, float]:
        """Return *parts* reduced to the time that they add to the step.

        *host_s* of the overhead runs in parallel with *gpu_s* of everything else.
        """
        if host_s > gpu_s:
            parts = {cause: seconds * (1 - self._hidden_share) for cause, seconds in parts.items()}
        parts["overhead"] += self._hidden_share * (host_s if host_s > gpu_s else -host_s)
        return parts

    def draft_pass(self, batch: Batch) -> Leap:
        """Return the time to draft one token per decoding sequence: one layer like the model's, and its LM head."""
        layers, sequences = self.inputs.model.layers, batch.decode_seqs
        step, head = self._layers(sequences, batch.replica_tokens), self._head.times(sequences)
        layers_s = step.total_s - self._step_host_s * self._even_share + self._decode_s * batch.kv_tokens
        first_s = layers_s / layers + head.compute_s + head.memory_s
        return Leap(first_s, self._decode_s / layers * sequences)

    def pass_inside(self, batch: Batch) -> Leap:
        """Return the time of the model's pass within another model's step, without host work per step and per sequence.

        Where the engine launches kernels one by one (`draft_layer_s`), the longer of GPU and launch time counts.
        """
        leap, launch = self.leap(batch), self._overheads.draft_layer_s
        sequence_s = sum(self.sequence_parts_s)
        even_s = (self._step_host_s + sequence_s * batch.sampled_seqs) * self._even_share
        leap.first_s -= even_s + self._prompt_token_s * batch.prefill_tokens
        if launch is not None:
            leap.first_s -= self._launches_s * self._layers_share
            leap.first_s = max(leap.first_s, launch.value * self.inputs.model.layers * self._layers_share)
        return leap

    def _prefill(self, batch: Batch) -> tuple[float, float]:
        """Return the attention time of the prompt chunks (reading earlier tokens, arithmetic) [s].

        Windowed layers read at most a window of earlier tokens per query: an upper bound, as early queries read fewer.
        """
        earlier, pairs = batch.prefill_context_tokens, batch.prefill_attention_pairs
        if self._passes.masked_pairs:
            pairs += int(batch.prefill_tokens * self._passes.masked_pairs)
        read_s, pairs_s = self._read_s * earlier, self._pair_s * pairs
        if self.window is not None:
            read_s += self._window_read_s * min(earlier, batch.prefill_seqs * self.window)
            seen = max(min(pairs, batch.prefill_tokens * self._seen_tokens), batch.prefill_tokens * self._least_pairs)
            pairs_s += self._window_pair_s * seen
        return read_s, pairs_s

    def _unpacked_s(self, batch: Batch, prompts_s: float) -> float:
        """Return the additional time of decodes in one call with prompts, over separate calls [s]."""
        if self._one_call is None or not batch.prefill_tokens or not batch.kv_tokens:
            return 0.0
        computing_s, reading_s = self._one_call.parts(batch, prompts_s)
        return computing_s + reading_s - self._decode_s * batch.kv_tokens

    def _layers(self, tokens: int, replica_tokens: int) -> TokenStepCost:
        """Return the costs by number of tokens: layers, all-reduces, the send, the host's time per step."""
        key = tokens + (replica_tokens << 32)  # one number is found faster than a pair
        known = self._by_tokens.get(key)
        if known is not None:
            return known
        tokens = self.graph_size(tokens)
        passes = self._passes.split(tokens)
        parts = [total(self._products, each, replica_tokens).scaled(self._layers_share * n) for n, each in passes]
        products = sum(parts[1:], parts[0])
        between_s = self._passes.seconds(tokens)
        if between_s:
            products += GemmTimes(memory_s=between_s, stream_s=between_s)
        gpu_waits_s = self._step_host_s * self._even_share
        overhead_s = self._launches_s * self._layers_share * sum(n for n, _ in passes) + gpu_waits_s
        link_s, host_s = self._link_s(tokens, replica_tokens), 0.0
        if self.inputs.host is not None:
            there, host_s = all_times(self._in_host, tokens)
            products += there
        step = self._by_tokens[key] = TokenStepCost(products, link_s, overhead_s, host_s, gpu_waits_s)
        return step

    def graph_size(self, tokens: int) -> int:
        """Return the tokens for which a step of *tokens* new tokens is computed.

        A step that runs from a CUDA graph is padded to the graph's size, and its padding is routed to experts like
        other tokens.
        """
        largest, multiple = self.inputs.decode_graph_tokens, self.inputs.graph_size_multiple
        if multiple == 1 or not self.spec.cuda_graphs or not 0 < tokens <= largest:
            return tokens
        size = -(-tokens // multiple) * multiple if tokens > multiple else 1 << (tokens - 1).bit_length()
        return int(min(size, largest))

    def _sampling(self, batch: Batch) -> TokenStepCost:
        """Return the costs of sampling: the LM head for all candidate tokens, and the host's work per sequence."""
        sequences, rows = batch.sampled_seqs, batch.sampled_seqs + batch.draft_tokens
        key = sequences + (batch.draft_tokens << 32)
        known = self._by_samples.get(key)
        if known is not None:
            return known
        head = self._head.times(rows).scaled(self._even_share) if rows else GemmTimes()
        there, waits_s = all_times(self._head_in_host, rows) if rows else (GemmTimes(), 0.0)
        host_s = sum(self.sequence_parts_s)
        head += GemmTimes(memory_s=sequences * self._logits_s * self._even_share)
        gpu_waits_s = sequences * host_s * self._even_share
        step = TokenStepCost(head + there, 0.0, gpu_waits_s, waits_s, gpu_waits_s)
        self._by_samples[key] = step
        return step

    def exchanges(self, tokens: int, replica_tokens: int = 0) -> tuple[Exchange, ...]:
        """Return the messages between the GPUs of a replica in a step of *tokens* new tokens, padding included.

        *replica_tokens*: see `Batch.replica_tokens`.
        """
        links = self._allreduce, self._exchange, self._send
        return exchanges_of(self.inputs, links, self._layers_share, self.graph_size(tokens), replica_tokens)

    def _link_s(self, tokens: int, replica_tokens: int = 0) -> float:
        links = self._allreduce, self._exchange, self._send
        return messages_s(self.inputs, links, self._layers_share, tokens, replica_tokens)

    @property
    def sequence_parts_s(self) -> tuple[float, float]:
        """Host time per sampled sequence: (sent to the API server at once, kept for the stream interval) [s]."""
        served_s = self._host_s(self._overheads.per_sequence_s)
        kept_s, interval = self._host_s(self._overheads.per_sequence_in_process_s), self.spec.stream_interval
        return (0.0, kept_s) if self.spec.in_process else (served_s / interval, kept_s * (1 - 1 / interval))

    def _host_s(self, usual: Value) -> float:
        seconds = usual.value * self.spec.host_factor * self._contention
        return seconds * self._overheads.recent_host_factor.value if self.inputs.recent_host else seconds


class PipelineStepTime(RooflineStepTime):
    """Roofline step-time model of a pool whose pipeline stages have different layers.

    Notes
    -----
    Stages differ if they do not divide the layers, or if layers differ: dense layers lead, kinds of attention
    alternate. The slowest stage sets the pace of the pipeline.

    """

    def __init__(self, spec: Roofline, inputs: RooflineInputs, parts: list[Model]) -> None:
        """Compute the costs of every stage; *parts* are the models of the stages' layers, in order."""
        super().__init__(spec, inputs)
        built = {part: RooflineStepTime(spec, replace(inputs, model=part), whole=True) for part in parts}
        self._kinds = [(built[part], parts.count(part) / len(parts)) for part in built]
        """Step time of each kind of stage, and the fraction of the stages that it has."""
        self._kind_of_stage = [list(built).index(part) for part in parts]
        """Place in `_kinds` of each stage."""

    def leap(self, batch: Batch) -> Leap:
        """Return the duration of the next step of *batch*: that of the mean stage, and those of all stages."""
        leaps = [(stage.leap(batch), share) for stage, share in self._kinds]
        mean_s = sum(share * one.first_s for one, share in leaps)
        load_s = sum(share * one.load * one.first_s for one, share in leaps)
        growth_s = sum(share * one.growth_s for one, share in leaps)
        valid_steps = min(one.valid_steps for one, _ in leaps)
        more_s = tuple(leaps[kind][0].first_s - mean_s for kind in self._kind_of_stage)
        # a second power law is metered on fleets without pipelines only
        return Leap(mean_s, growth_s, valid_steps, load_s / mean_s, leaps[0][0].last_s, stages_more_s=more_s)

    def breakdown(self, batch: Batch) -> dict[str, float]:
        """Return the duration of the first step of the mean stage by cause [s]."""
        parts = [(stage.breakdown(batch), share) for stage, share in self._kinds]
        return {cause: sum(share * part[cause] for part, share in parts) for cause in parts[0][0]}


def roofline_step_time(spec: Roofline, inputs: RooflineInputs) -> RooflineStepTime:
    """Return the roofline of one pool: of every stage if pipeline stages have different layers."""
    parts = stage_models(inputs.model, inputs.pipeline_parallel_size, inputs.engine.pipeline_split)
    if all(part == parts[0] for part in parts):
        return RooflineStepTime(spec, inputs)
    return PipelineStepTime(spec, inputs, parts)
