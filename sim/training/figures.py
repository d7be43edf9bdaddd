"""How far training is from its datasheet: data/training/figures.yaml, stacks.yaml, networks.yaml."""

from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

from pydantic import Field

from sim.catalogue.entries.gpu import Gpu
from sim.catalogue.entries.link import Link
from sim.catalogue.value import Sourced, Value
from sim.spec import Spec
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


class Figures(Spec):
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

    figures: Figures
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
