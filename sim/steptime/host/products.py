"""Matrix products whose weights lie in the host's memory.

    CPU:      t = (C^p + M^p)^(1/p)     C arithmetic of the CPU, M weights read from the host's memory
    copied:   t = weights / link + the GPU's own time
    in place: t = (C^p + M^p)^(1/p)     C arithmetic of the GPU, M weights read over the link

CPU, link and GPU take turns: no engine here overlaps them.
"""

from dataclasses import dataclass, replace

from sim.catalogue.entries.model import Matrix, matrices
from sim.steptime.attention.heads import LayerAttention, attention_flop, cache_bytes
from sim.steptime.gemm import Product, Times, product_of, together
from sim.steptime.host.weights import Host
from sim.steptime.inputs import Rates, RooflineInputs


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
