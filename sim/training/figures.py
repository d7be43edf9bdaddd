"""How far training is from its datasheet: data/training/figures.yaml, stacks.yaml and networks.yaml.

From the files come the networks that can be named beside the catalogue's models, and what one job reaches of its GPU
and link and holds in memory under a framework (a stack).
"""

from difflib import get_close_matches
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

from pydantic import Field

from sim.catalogue.catalog import Catalog
from sim.catalogue.data_folder import UnknownId
from sim.catalogue.gpu import Gpu
from sim.catalogue.link import Link
from sim.catalogue.model import OtherModel
from sim.catalogue.value import Sourced, Value
from sim.spec import Spec
from sim.steptime.coefficients import StepTimeCoefficients
from sim.training.job import Precision
from sim.training.memory import MemoryHabits
from sim.training.network import ForwardCost, of_dimensions, of_model
from sim.training.steptime import FOUR_BIT_BYTES, TrainingRates
from sim.yamlio import read


class StackFigures(Spec):
    """What a training framework of some year does to the time of a step."""

    compute_time_factor: Value
    """Everything the GPU computes against matrix products alone."""
    stream_time_factor: Value
    """Element-wise kernels against one transfer of the activations kept."""
    layer_s: Value
    """Host time to launch a layer's kernels, both passes."""
    step_s: Value
    """Time of a step that depends on nothing."""
    exposed_share: Value
    """Of the exchange between data-parallel ranks that is never hidden."""
    tensor_exposed_share: Value
    """Of the exchange between tensor-parallel ranks that matrix products do not hide."""


class GpuFigures(Spec):
    """A card in training against the same card's kernels (data/steptime.yaml)."""

    compute_time_factor: Value
    convolution_time_factor: Value
    """Of networks that are no transformers."""
    memory_time_factor: Value


class NetworkFigures(Spec):
    """A network that is no transformer."""

    stream_time_factor: Value
    compute_time_factor: Value


class LinkRule(Spec):
    """Collectives inside a training step against a link's measured curve."""

    links: str
    """Pattern of link ids."""
    factor: Value


class TrainingFigures(Spec):
    """All fitted figures."""

    gemm_exponent: Value
    attention_time_factor: Value
    older_attention_time_factor: Value
    """Attention kernels written for Ampere, on later data-centre cards, against those written for them."""
    recompute_share: Value
    """Time of the repeated forward pass against the first one."""
    expert_time_factor: Value
    expert_exposed_share: Value
    fp8_time_factor: Value
    """Matrix products in 8-bit floats against their peak, casts included."""
    fp4_time_factor: Value
    fp32_time_factor: Value
    """Matrix products in TF32 and FP32."""
    network_efficiency: Value
    """Share of a node's adapters that collectives between nodes reach."""
    links: tuple[LinkRule, ...]
    """The first that matches counts; the last matches all."""
    gpus: dict[str, GpuFigures]
    architectures: dict[str, GpuFigures]
    """By `Gpu.architecture`, GeForce cards apart: cards that no row measured."""
    other_gpu: GpuFigures
    stacks: dict[str, StackFigures]
    networks: dict[str, NetworkFigures]

    def gpu(self, gpu: Gpu) -> GpuFigures:
        """Those of *gpu*, or of its architecture, or of all cards."""
        architecture = f"{gpu.architecture} GeForce" if gpu.geforce else gpu.architecture
        return self.gpus.get(gpu.id) or self.architectures.get(architecture) or self.other_gpu

    def link_factor(self, link: Link) -> Value:
        """Of the first rule for *link*."""
        return next(rule.factor for rule in self.links if fnmatch(link.id, rule.links))


class Stack(Sourced):
    """A framework and its year: what is known of it without a fit."""

    sources: tuple[str, ...] = ()
    """Campaigns (column `source_key`) that used it."""
    keeps_scores: bool = False
    """Attention writes its scores to memory: before fused kernels."""
    older_attention: bool = False
    """Its attention kernels were written for Ampere (FlashAttention 2)."""
    language: bool = False
    """Where a campaign has several stacks: the one for language models."""
    sequence_parallel: bool = False
    precision: dict[str, Literal["fp16", "bf16", "fp8", "nvfp4"]] = Field(default_factory=dict)
    """By start of `Gpu.architecture`, for tables that do not say it; `other` is every other's."""
    model_parallel: bool = False
    """Splits a model that does not fit by tensors and layers; others shard it (ZeRO 3)."""
    recompute: Literal["none", "selective", "full"] = "none"
    """Where a table leaves it out."""
    sequence: int | None = None
    """Tokens of a sample where a table leaves it out."""
    longest_sequence: int | None = None
    """Tokens of the longest sample, which the peak of memory is of, where `sequence` is a mean."""
    fill: dict[str, float] = Field(default_factory=dict)
    """By network: share of a padded sequence that is computed."""
    gradient_bytes: float = 2.0
    """Per trained parameter."""
    state_bytes: float = 12.0
    """Master weight and moments per trained parameter."""
    eight_bit_weights: bool = False
    """Frozen weights are held at 8 bits where matrix products are computed at 8 bits or fewer."""
    four_bit_bytes: Value | None = None
    """Per frozen parameter of QLoRA, where it is more than the 4-bit weights and their scales."""
    whole_weights: bool = False
    """Every rank holds the whole model once, before it is sharded."""
    activation_factor: Value | None = None
    """Activations really held against the formula's."""
    reserve_bytes: Value | None = None


class TrainedNetwork(Sourced):
    """A network that the catalogue of models does not hold in the form that training needs."""

    aliases: tuple[str, ...] = ()
    dimensions: dict[str, float] = Field(default_factory=dict)
    """Of a transformer: layers, hidden, heads, vocab, and what differs from GPT."""
    causal: bool = True
    params: Value | None = None
    forward_flop: Value | None = None
    """Per sample, of what is no transformer."""
    stream_bytes: Value | None = None
    """16-bit activations of a sample that the forward pass leaves behind."""
    kernels: int = 0
    """Groups of kernels in sequence, each like a transformer's layer."""
    tokens_per_sample: Value | None = None


class TrainingData(Spec):
    """The three files together."""

    figures: TrainingFigures
    stacks: dict[str, Stack]
    networks: dict[str, TrainedNetwork]

    def stack(self, source_key: str, language: bool) -> str:
        """Id of the stack that a campaign used (for *language* models), `pytorch` where it is unknown."""
        found = [name for name, one in self.stacks.items() if source_key in one.sources]
        return next((name for name in found if self.stacks[name].language == language), (found or ["pytorch"])[0])


def load_training(root: Path) -> TrainingData:
    """data/training under *root*. Raises pydantic.ValidationError or sim.yamlio.YamlError for a file that is wrong."""
    folder = root / "training"
    return TrainingData.model_validate(
        {name: read(folder / f"{name}.yaml").data for name in ("figures", "stacks", "networks")}
    )


class NotTrainable(ValueError):
    """Nobody knows what training that model costs; the message says which models are known."""


def network_named(name: str, catalog: Catalog, data: TrainingData) -> ForwardCost:
    """The network called *name*: one of data/training/networks.yaml, a language model, or a path of its config.json.

    Raises UnknownId, NotTrainable, ValueError for a config.json that cannot be read.
    """
    for key, one in data.networks.items():
        if name.lower() in (key, *(alias.lower() for alias in one.aliases)):
            return trained_network(key, one)
    try:
        model = catalog.any_model(name)
    except UnknownId as error:
        near = get_close_matches(name.lower(), data.networks, n=1)
        if near and not error.suggestions:
            raise UnknownId("model", name, tuple(near)) from None
        raise
    if isinstance(model, OtherModel):
        known = ", ".join(key for key, one in data.networks.items() if not one.dimensions)
        raise NotTrainable(f"what training {model.id} costs is not known; known are language models, BERT and {known}")
    return of_model(model)


def trained_network(id: str, one: TrainedNetwork) -> ForwardCost:
    """A network of data/training/networks.yaml."""
    if one.dimensions:
        return of_dimensions(id, one.dimensions, one.causal)
    # a test reads every entry
    assert one.params
    assert one.forward_flop
    assert one.stream_bytes
    return ForwardCost(
        id=id,
        unit="sample",
        params=one.params.value,
        layers=one.kernels,
        hidden=0,
        forward_flop=one.forward_flop.value,
        sharded_bytes=one.stream_bytes.value,
        stream_bytes=one.stream_bytes.value,
        tokens_per_sample=one.tokens_per_sample.value if one.tokens_per_sample else 1.0,
    )


NO_RESERVE = 1.5e9
"""Where a stack's reserve is not known: CUDA context and communication buffers [bytes]."""


def peak_flops(gpu: Gpu, precision: Precision) -> float:
    """Dense rate of matrix products in that precision, or at 16 bit where the card lacks it [FLOP/s]."""
    wide = gpu.fp32_flops or gpu.fp16_flops
    rate = {
        "fp32": wide,
        "tf32": gpu.tf32_flops or wide,
        "fp8": gpu.fp8_flops,
        "nvfp4": gpu.fp4_flops or gpu.fp8_flops,
    }.get(precision)
    return (rate or gpu.fp16_flops).value


def older_kernels_suffer(gpu: Gpu) -> bool:
    """Whether the card's tensor cores need kernels of their own to reach their rate."""
    return gpu.hopper or gpu.architecture in ("Blackwell", "Blackwell Ultra")


def rates(
    data: TrainingData,
    kernels: StepTimeCoefficients,
    gpu: Gpu,
    link: Link,
    network: ForwardCost,
    precision: Precision,
    stack: str,
) -> TrainingRates:
    """What training *network* reaches on *gpu* cards over *link* in a *stack* of data/training/stacks.yaml."""
    figures, efficiency = data.figures, kernels.efficiency(gpu)
    card, habit, facts = figures.gpu(gpu), figures.stacks[stack], data.stacks[stack]
    own = figures.networks.get(network.id)
    wide = precision in ("fp32", "tf32")
    factor = {"fp8": figures.fp8_time_factor, "nvfp4": figures.fp4_time_factor}.get(precision)
    if wide:
        factor = figures.fp32_time_factor
    slowdown = card.compute_time_factor if network.is_transformer else card.convolution_time_factor
    reached = efficiency.compute.value / slowdown.value
    plain = peak_flops(gpu, precision) if wide else gpu.fp16_flops.value
    stream = habit.stream_time_factor.value * (own.stream_time_factor.value if own else 1.0)
    compute = 1.0 if own is None else own.compute_time_factor.value
    peak = peak_flops(gpu, precision) / (factor.value if factor else 1.0)
    attention = figures.attention_time_factor.value
    if facts.older_attention and older_kernels_suffer(gpu):
        attention *= figures.older_attention_time_factor.value
    return TrainingRates(
        matrix_flop_per_s=reached * peak / habit.compute_time_factor.value / compute,
        plain_flop_per_s=reached * plain / habit.compute_time_factor.value,
        bytes_per_s=efficiency.memory.value * gpu.memory_bytes_per_s.value / card.memory_time_factor.value,
        exponent=figures.gemm_exponent.value,
        attention_time_factor=attention,
        recompute_share=figures.recompute_share.value,
        expert_time_factor=figures.expert_time_factor.value,
        stream_time_factor=stream,
        keeps_scores=facts.keeps_scores,
        layer_s=habit.layer_s.value,
        step_s=habit.step_s.value,
        exposed_share=habit.exposed_share.value,
        tensor_exposed_share=habit.tensor_exposed_share.value,
        expert_exposed_share=figures.expert_exposed_share.value,
        link_time_factor=figures.link_factor(link).value,
        network_efficiency=figures.network_efficiency.value,
    )


def habits(data: TrainingData, stack: str) -> MemoryHabits:
    """How a *stack* holds things in memory."""
    facts = data.stacks[stack]
    return MemoryHabits(
        gradient_bytes=facts.gradient_bytes,
        state_bytes=facts.state_bytes,
        keeps_scores=facts.keeps_scores,
        eight_bit_weights=facts.eight_bit_weights,
        four_bit_bytes=facts.four_bit_bytes.value if facts.four_bit_bytes else FOUR_BIT_BYTES,
        whole_weights=facts.whole_weights,
        activation_factor=facts.activation_factor.value if facts.activation_factor else 1.0,
        reserve_bytes=facts.reserve_bytes.value if facts.reserve_bytes else NO_RESERVE,
    )
