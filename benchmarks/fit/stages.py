"""Times of recorded steps, split by the parameters to which they are proportional.

    t = sum over terms of base * product of exp(theta of the parameters named)

There are two kinds of terms: plain ones, and the p-norm of a matrix product's arithmetic and memory time. The bases
come from the objects of the simulator (RooflineStepTime), so theta = 0 gives its step times.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from math import log2
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray
from record import Steps

from sim.catalogue.engine import family_of
from sim.steptime.attention import FullAttentionCall
from sim.steptime.gemm import MatrixProduct
from sim.steptime.inputs import RooflineInputs
from sim.steptime.roofline import RooflineStepTime, by_delta_rule, desktop_launches, head_kernels, layer_overheads_s

Floats = NDArray[np.float64]
Names = tuple[str, ...]

GENERATIONS = ("Ampere", "Ada Lovelace", "Hopper", "Blackwell", "Blackwell (GB20x)", "CDNA")
"""Prefixes of `Gpu.architecture` with a factor on grouped products."""


@dataclass(slots=True)
class Stages:
    """Terms of one row's step groups [s]."""

    exponent: float
    plain: list[tuple[Names, Floats]] = field(default_factory=list)
    products: list[tuple[Names, Floats, Names, Floats, Names, Floats]] = field(default_factory=list)
    """Matrix products as (names, arithmetic, names, weights read, names, activations moved)."""
    reads: list["Reads"] = field(default_factory=list)
    """Reads of experts."""

    def named(self, names: Callable[[Names], Names]) -> "Stages":
        """Return the same terms with their parameters replaced by *names*."""
        plain = [(names(by), base) for by, base in self.plain]
        reads = [replace(one, by=names(one.by)) for one in self.reads]
        products = [(names(c), c_s, names(w), w_s, names(a), a_s) for c, c_s, w, w_s, a, a_s in self.products]
        return Stages(self.exponent, plain, products, reads)

    def seconds(self, theta: dict[str, float]) -> tuple[Floats, dict[str, Floats]]:
        """Return the time of each group's step and its derivative by each log parameter."""
        total = np.zeros_like(self.plain[0][1])
        by: dict[str, Floats] = {}

        def add(names: Names, part: Floats) -> None:
            for name in names:
                by[name] = by[name] + part if name in by else part

        for names, base in self.plain:
            part = base * _factor(names, theta)
            total = total + part
            add(names, part)
        for one in self.reads:
            all_s = one.all_s * _factor(one.by, theta)
            touched, slope = touched_share(
                one.missed, one.later, one.diversity * _factor((one.diverse,), theta), one.fullest
            )
            total = total + all_s * touched
            add(one.by, all_s * touched)
            add((one.diverse,), all_s * slope)
        p = self.exponent
        for c_names, c, w_names, w, a_names, a in self.products:
            compute = c * _factor(c_names, theta)
            weights, moved = w * _factor(w_names, theta), a * _factor(a_names, theta)
            memory = weights + moved
            whole = (compute**p + memory**p) ** (1 / p)
            total = total + whole
            safe = np.where(whole > 0, whole, 1.0)  # a step that samples nothing has no LM head
            add(c_names, whole * (compute / safe) ** p)
            share = (whole / safe) * (memory / safe) ** (p - 1)
            add(w_names, share * weights)
            add(a_names, share * moved)
        return total, by


@dataclass(frozen=True, slots=True)
class Reads:
    """Reads of a layer's experts, of which a step reads a part that depends on a parameter."""

    by: Names
    """Parameters of the time to read all experts."""
    all_s: Floats
    diverse: str
    """Parameter of the diversity."""
    missed: float
    """Probability that a token does not use an expert."""
    later: Floats
    """Tokens after the first."""
    diversity: float
    fullest: float
    """Value of `MatrixProduct.fullest_rank`."""


def touched_share(
    missed: Floats | float, later: Floats, diversity: Floats | float, fullest: Floats | float
) -> tuple[Floats, Floats]:
    """Return the fraction of experts that a step reads, and its derivative by the logarithm of *diversity*.

    See `MatrixProduct.touched`.
    """
    more = np.minimum(diversity, 1.0) * np.maximum(later, 0.0)
    untouched = missed ** (1 + more)
    slope = np.where(np.asarray(diversity) <= 1.0, -np.log(missed) * untouched * more, 0.0)
    touched = (1 - untouched) * (1 + np.minimum(later, 0.0))
    spread = np.sqrt(touched * (1 - touched))
    most = touched + fullest * spread
    steeper = 1 + fullest * (1 - 2 * touched) / (2 * np.maximum(spread, 1e-9))
    return np.minimum(most, 1.0), np.where(most < 1, slope * steeper, slope * (np.asarray(fullest) == 0))


def _factor(names: Names, theta: dict[str, float]) -> float:
    return float(np.exp(sum(theta.get(name, 0.0) for name in names)))


def stages(steptime: RooflineStepTime, steps: Steps) -> Stages:
    """Return the terms of the step time of *steps* under the data of *steptime*."""
    inputs, exponent = steptime.inputs, steptime.inputs.coefficients.gemm_exponent.value
    found = Stages(exponent)
    layers, even = steptime._layers_share, steptime._even_share
    # the factor is per doubling of the stages
    pipeline: Names = ("pipeline",) * round(log2(inputs.pipeline_parallel_size))
    tokens = _computed_tokens(steptime, steps)
    for product in steptime._products:
        terms = _product(product, tokens, layers, steptime, pipeline)
        if product.expert:
            c_names, compute_s, w_names, weights_s, a_names, moved_s = terms  # arithmetic and reading add
            padding_s = product.padding_s * np.sign(tokens) * product.count * layers
            found.plain += [(c_names, compute_s), (a_names, moved_s), (("expert_padding", *pipeline), padding_s)]
            found.reads.append(Reads(
                w_names, weights_s, f"diversity:{inputs.model.family or inputs.model.id}",
                1 - product.touch_probability, tokens * product.tokens_factor - 1, product.routing_diversity,
                product.fullest_rank,
            ))  # fmt: skip
        else:
            found.products.append(terms)
    found.products.append(_product(steptime._head, steps.mean["sampled_seqs"], even, steptime, pipeline))
    if steptime._logits_s:
        logits = steptime._logits_s * even * steps.mean["sampled_seqs"]
        found.plain.append(((f"memory:{inputs.gpu.id}", *pipeline), logits))
    _attention(found, steptime, steps, pipeline)
    _host(found, steptime, steps, pipeline)
    link, calls = _links(steptime, tokens)
    if link.any():
        found.plain += [
            ((f"allreduce:{allreduce_rule(steptime)}", *pipeline), link - calls),
            (("link_call", *pipeline), calls),
        ]
    return _with_hidden_host(*_launched(found, steptime, steps, pipeline), steptime._hidden_share)


def _with_hidden_host(found: Stages, added: NDArray[np.bool_], hidden_share: float) -> Stages:
    """Return *found* with the fraction *hidden_share* of the shorter of host and GPU time hidden behind the longer.

    The recorded parameters determine which of the two is longer. Nothing is hidden in the steps *added*.
    """
    if not hidden_share:
        return found
    host, gpu = ([one for one in found.plain if _of_host(one[0]) is ours] for ours in (True, False))
    host_s, _ = Stages(found.exponent, host).seconds({})
    gpu_s, _ = Stages(found.exponent, gpu, found.products, found.reads).seconds({})
    shorter = np.where(added, 1.0, 1 - hidden_share)
    return _scaled(found, np.where(host_s > gpu_s, shorter, 1.0), np.where(host_s > gpu_s, 1.0, shorter))


def _scaled(found: Stages, gpu: Floats, host: Floats) -> Stages:
    """Return *found* with the terms of the GPU and of the host multiplied by the given factors."""
    plain = [(names, base * (host if _of_host(names) else gpu)) for names, base in found.plain]
    reads = [replace(one, all_s=one.all_s * gpu) for one in found.reads]
    products = [(c, c_s * gpu, w, w_s * gpu, a, a_s * gpu) for c, c_s, w, w_s, a, a_s in found.products]
    return Stages(found.exponent, plain, products, reads)


def _launched(
    found: Stages, steptime: RooflineStepTime, steps: Steps, pipeline: Names
) -> tuple[Stages, NDArray[np.bool_]]:
    """Return *found* where the GPU's work hides launches, elsewhere the host's stages and the launches.

    The parameters of *steptime* determine which of the two is longer. The second array marks the steps in which one
    thread does the host's work after the launches.
    """
    launches, hidden, added = steptime._launches, np.ones_like(steps.steps), np.zeros_like(steps.steps, dtype=bool)
    prompts_s = launches.heads_s + launches.linear_s
    if not (prompts_s or launches.decode_s):
        return found, added
    gpu = [one for one in found.plain if not _of_host(one[0])]
    gpu_s, _ = Stages(found.exponent, gpu, found.products, found.reads).seconds({})
    with_prompts = steps.mean["prefill_tokens"] > 0
    without_graph = steps.tokens > np.where(with_prompts, launches.graph_tokens, launches.decode_graph_tokens)
    without_graph &= prompts_s > launches.decode_s
    launch_s = np.where(without_graph, prompts_s, launches.decode_s)
    if steptime._one_thread:
        host_s, _ = Stages(found.exponent, [one for one in found.plain if _of_host(one[0])]).seconds({})
        added = (launch_s > 0) & (gpu_s < launch_s + host_s)
        hidden[added], exposed = 0.0, 1 - steptime._hidden_share
        of_gpu, of_host = exposed * (gpu_s < host_s), exposed * (gpu_s >= host_s)
        masked = _scaled(found, np.where(added, of_gpu, 1.0), np.where(added, 1 + of_host, 1.0))
    else:
        hidden[gpu_s < launch_s] = 0.0
        masked = _scaled(found, hidden, np.ones_like(hidden))
    launched = (1 - hidden) * without_graph
    inputs = steptime.inputs
    recent = inputs.recent_host and desktop_launches(inputs) is None
    names: Names = (f"launch_layer:{inputs.engine.id}", *(("recent_host",) if recent else ()), *pipeline)
    if inputs.gpu.cdna:
        names = (*names, "cdna_layer")
    experts = _experts_share(steptime)
    for kernels, share in ((names, 1 - experts), ((*names, "moe_layer"), experts)):
        masked.plain += [
            ((*kernels, *attention), launches.heads_s * share * part * launched)
            for attention, part in _heads_parts(inputs, "launch_latent", "launch_indexer", _launch_factor(steptime))
        ]
        linear: Names = ("launch_linear",) if by_delta_rule(inputs.model) else ()
        masked.plain.append(((*kernels, *linear), launches.linear_s * share * launched))
    masked.plain += [
        (("launch_decode", *pipeline), launches.decode_s * (1 - hidden - launched)),
    ]  # fmt: skip
    return masked, added


def _launch_factor(steptime: RooflineStepTime) -> float:
    """Return the launches of a layer with an indexer relative to the layer without it [1]."""
    factor = steptime._overheads.launch_indexer_factor
    return factor.value if factor is not None else 1.0


def _heads_parts(inputs: RooflineInputs, of_latent: str, indexer: str, factor: float) -> list[tuple[Names, float]]:
    """Return the parts of the kernels in layers with heads, with and without an indexer, and their parameters.

    *of_latent* is the parameter of latent attention, *indexer* that of *factor*: the kernels of a layer with an indexer
    relative to the layer without it.
    """
    model = inputs.model
    latent: Names = (of_latent,) if model.mla is not None else ()
    heads = model.layers - model.linear_attention_layers
    indexing = model.indexer.indexing_layers if model.indexer is not None else 0
    indexed = indexing * factor
    share = indexed / (heads - indexing + indexed)
    return [(latent, 1 - share), ((*latent, indexer), share)] if share else [(latent, 1.0)]


def _attention_parts(steptime: RooflineStepTime) -> list[tuple[Names, float]]:
    """Return the parts of a model's kernels by kind of attention, and their parameters."""
    inputs, factor = steptime.inputs, steptime.inputs.coefficients.indexer_kernels
    linear, heads = inputs.model.linear_attention_layers, head_kernels(inputs)
    of_heads = _heads_parts(inputs, f"mla_layer:{inputs.engine.id}", "indexer_layer", factor)
    parts = [(names, part * heads / (heads + linear)) for names, part in of_heads]
    return [*parts, ((), linear / (heads + linear))]


def _experts_share(steptime: RooflineStepTime) -> float:
    """Return the fraction of a model's kernels in layers with experts."""
    model, factor = steptime.inputs.model, steptime._overheads.moe_layer_factor.value
    experts = model.expert_layers
    return experts * factor / (model.layers - experts + experts * factor)


def _of_host(names: Names) -> bool:
    return names[0].startswith(("per_step:", "per_sequence_", "prompt_token"))


def _computed_tokens(steptime: RooflineStepTime, steps: Steps) -> Floats:
    """Return the tokens for which the steps are computed, padding included."""
    tokens = [round(float(one)) for one in steps.tokens]
    return steps.tokens + [steptime.graph_size(one) - one for one in tokens]


def _links(steptime: RooflineStepTime, per_step: Floats) -> tuple[Floats, Floats]:
    """Return the time between GPUs, and its part without a factor: latency of each call, and sends."""
    still = copy(steptime)
    still._allreduce = replace(steptime._allreduce, factor=0.0)
    still._exchange = replace(steptime._exchange, factor=0.0)
    tokens = [round(float(one)) for one in per_step]
    link, calls = (np.array([one._link_s(count) for count in tokens]) for one in (steptime, still))
    return link, calls


def allreduce_rule(steptime: RooflineStepTime) -> str:
    """Return the rule of data/steptime.yaml for the row's all-reduce time."""
    inputs = steptime.inputs
    rules = inputs.coefficients.allreduce_time_factors
    return str(next(i for i, rule in enumerate(rules) if rule.applies(inputs.gpu, inputs.link)))


def generation(steptime: RooflineStepTime) -> Names:
    """Return the parameter of grouped products on the row's GPU; none for generations without one."""
    architecture = steptime.inputs.gpu.architecture
    known = [name for name in GENERATIONS if architecture.startswith(name)]
    return (f"experts:{max(known, key=len)}",) if known else ()


def _product(
    product: MatrixProduct, tokens: Floats, share: float, steptime: RooflineStepTime, pipeline: Names
) -> tuple[Names, Floats, Names, Floats, Names, Floats]:
    inputs = steptime.inputs
    here = tokens * product.tokens_factor
    scale = product.count * share
    gpu, kernel, engine = inputs.gpu.id, inputs.kernel.id, inputs.engine.id
    grouped: Names
    compute, memory = (f"compute:{gpu}", "serving_compute", *pipeline), (f"memory:{gpu}", *pipeline)
    weights = memory
    if product.quantised:
        of_card = inputs.kernel_compute is inputs.kernel.graphics_compute_time_factor
        arithmetic = f"{'kernel_graphics' if of_card else 'kernel_compute'}:{kernel}"
        compute, weights = (*compute, arithmetic), (*weights, f"kernel_weight:{kernel}")
    if product.expert:
        grouped = (f"experts_of:{inputs.model.family or inputs.model.id}",)
        if inputs.spreads_experts:
            grouped = (*grouped, *("expert_parallel",) * round(log2(inputs.expert_ranks)))
        kernels = ("moe_compute", f"moe:{engine}", f"experts_in:{engine}/{kernel}", *generation(steptime))
        compute = (*compute, *kernels, *grouped)
        weights = (*weights, "moe_weight")
    return (
        compute, product.compute_s_per_token * np.where(here > 0, np.maximum(here, product.least_computed), 0) * scale,
        weights, product.weight_s * np.ones_like(here) * scale,
        memory, product.activation_s_per_token * here * scale,
    )  # fmt: skip


def _attention(found: Stages, steptime: RooflineStepTime, steps: Steps, pipeline: Names) -> None:
    inputs, mean = steptime.inputs, steps.mean
    gpu, engine = inputs.gpu.id, inputs.engine.id
    read: Names = (f"memory:{gpu}", f"kv_read:{engine}", *pipeline)
    if inputs.kv_8bit:
        read = (*read, f"kv_8bit:{family_of(engine)}")
    pairs: Names = (f"compute:{gpu}", "serving_compute", "prefill_attention", *pipeline)
    decode, prefill_read = steptime._decode_s * mean["kv_tokens"], steptime._read_s * mean["prefill_context_tokens"]
    arithmetic = steptime._pair_s * mean["prefill_attention_pairs"]
    if steptime.window is not None:
        window = steptime.window
        decode = decode + steptime._window_decode_s * mean["windowed_kv_tokens"]
        prefill_read = prefill_read + steptime._window_read_s * np.minimum(
            mean["prefill_context_tokens"], mean["prefill_seqs"] * window
        )
        seen = np.minimum(mean["prefill_attention_pairs"], mean["prefill_tokens"] * steptime._seen_tokens)
        seen = np.maximum(seen, mean["prefill_tokens"] * steptime._least_pairs)
        arithmetic = arithmetic + steptime._window_pair_s * seen
    if steptime._one_call is not None:
        tiles, reads = _unpacked(steptime, steptime._one_call, steps, prefill_read + arithmetic)
        decode, arithmetic = decode + reads, arithmetic + tiles
    found.plain += [(read, decode + prefill_read), (pairs, arithmetic)]
    if steptime._context_free is not None:
        moved_s, scanned_s = steptime._context_free.times(SimpleNamespace(**mean, draft_tokens=0))  # type: ignore[arg-type]
        found.plain += [((f"memory:{gpu}", *pipeline), moved_s), (("scan", *pipeline), scanned_s)]


def _unpacked(
    steptime: RooflineStepTime, one_call: FullAttentionCall, steps: Steps, prompts_s: Floats
) -> tuple[Floats, Floats]:
    """Return the additional arithmetic and reading of decodes in one call with prompts of *prompts_s*."""
    more = np.zeros((2, len(prompts_s)))
    for i, beside_s in enumerate(prompts_s):
        batch = SimpleNamespace(**{name: values[i] for name, values in steps.mean.items()})
        if batch.prefill_tokens and batch.kv_tokens:
            more[:, i] = one_call.parts(batch, float(beside_s))  # type: ignore[arg-type]
            more[1, i] -= steptime._decode_s * batch.kv_tokens
    return more[0], more[1]


def _host(found: Stages, steptime: RooflineStepTime, steps: Steps, pipeline: Names) -> None:
    inputs, overheads = steptime.inputs, steptime._overheads
    engine = inputs.engine.id
    ones = np.ones_like(steps.steps)
    layers_names: Names = (f"per_layer:{engine}", *pipeline)
    if inputs.gpu.blackwell:
        layers_names = (*layers_names, "blackwell_layer")
    if inputs.gpu.hopper:
        layers_names = (*layers_names, "hopper_layer")
    if inputs.gpu.ada:
        layers_names = (*layers_names, "ada_layer")
    if inputs.gpu.cdna:
        layers_names = (*layers_names, "cdna_layer")
    host: Names = ("recent_host", *pipeline) if inputs.recent_host else pipeline
    if steptime.spec.one_process and not steptime.spec.in_process:
        host = (*host, "one_process")
    layers_s = layer_overheads_s(steptime.inputs) * steptime._layers_share
    experts = _experts_share(steptime)
    for attention, part in _attention_parts(steptime):
        for block, share in (((), part * (1 - experts)), (("moe_layer",), part * experts)):
            if share:
                found.plain.append(((*layers_names, *attention, *block), layers_s * share * ones))
    even = steptime._even_share
    found.plain.append(((f"per_step:{engine}", *host), steptime._host_s(overheads.per_step_s) * even * ones))
    if steptime._prompt_token_s:
        found.plain.append((("prompt_token", *pipeline), steptime._prompt_token_s * steps.mean["prefill_tokens"]))
    sampled = steps.mean["sampled_seqs"] * even
    for where, sequence_s in zip(("served", "in_process"), steptime.sequence_parts_s, strict=True):
        if sequence_s:
            found.plain.append(((f"per_sequence_{where}:{engine}", *host), sequence_s * sampled))
    if steptime.inputs.pipeline_parallel_size > 1:
        scheduling_s = steptime._standing_s * steps.mean["standing_seqs"]
        found.plain.append(((f"standing:{engine}", f"per_sequence_in_process:{engine}", *host), scheduling_s))


def request_names(steptime: RooflineStepTime) -> Names:
    """Return the parameters to which the time per request is proportional."""
    inputs = steptime.inputs
    names: Names = (f"per_request:{inputs.engine.id}",)
    if inputs.tensor_parallel_size > 1:
        names = (*names, "tp_request")
    if inputs.gpu.hopper:
        names = (*names, "hopper_request")
    return (*names, f"moe_request:{inputs.engine.id}") if inputs.model.moe is not None else names
