"""Fitted figures of training in data/training: figures.yaml, stacks.yaml, networks.yaml and runs.yaml.

The files define networks beyond the models of the catalogue, the rates that a job reaches relative to its GPU's
datasheet and its link, and the memory layout of each training framework (a stack).
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
from sim.message import Message
from sim.spec import Spec
from sim.steptime.coefficients import StepTimeCoefficients
from sim.training.job import Precision
from sim.training.memory import FrameworkMemory
from sim.training.network import ForwardCost, of_dimensions, of_images, of_model
from sim.training.steptime import FOUR_BIT_BYTES, TrainingRates
from sim.yamlio import read


class StackFigures(Spec):
    """Effect of a training framework of a given year on the time of a step."""

    compute_time_factor: Value
    """Time of all computation on the GPU, relative to matrix products alone."""
    stream_time_factor: Value
    """Time of element-wise kernels, relative to one transfer of the stored activations."""
    layer_s: Value
    """Host time to launch the kernels of a layer in both passes [s]."""
    step_s: Value
    """Constant time per step [s]."""
    exposed_share: Value
    """Fraction of the exchange between data-parallel ranks that is never hidden."""
    tensor_exposed_share: Value
    """Fraction of the exchange between tensor-parallel ranks not hidden by matrix products."""


class GpuFigures(Spec):
    """Time factors of a GPU in training, relative to its kernels in data/steptime.yaml."""

    compute_time_factor: Value
    convolution_time_factor: Value
    """Compute time factor of networks other than transformers."""
    memory_time_factor: Value


class NetworkFigures(Spec):
    """Time factors of a network that is not a transformer."""

    stream_time_factor: Value
    compute_time_factor: Value


class LinkRule(Spec):
    """Time factor of collectives inside a training step, relative to the measured curve of the link."""

    links: str
    """Shell pattern of link ids."""
    factor: Value


class TrainingFigures(Spec):
    """Contents of data/training/figures.yaml: all fitted factors."""

    gemm_exponent: Value
    attention_time_factor: Value
    eight_bit_attention_time_factor: Value
    """Time of attention in 8 bits, relative to 16 bits."""
    older_attention_time_factor: Value
    """Time of Ampere attention kernels on later data-centre cards, relative to kernels written for those cards."""
    recompute_share: Value
    """Time of the repeated forward pass, relative to the first."""
    expert_time_factor: Value
    expert_exposed_share: Value
    fp8_time_factor: Value
    """Time of 8-bit matrix products with their casts, relative to the peak rate."""
    fp4_time_factor: Value
    fp32_time_factor: Value
    """Time of TF32 and FP32 matrix products, relative to the peak rate."""
    network_efficiency: Value
    """Fraction of the node's adapter rate that collectives between nodes reach."""
    links: tuple[LinkRule, ...]
    """Rules in order of precedence: the first match applies, and the last matches all links."""
    gpus: dict[str, GpuFigures]
    architectures: dict[str, GpuFigures]
    """Figures of GPUs without measurements, keyed by `Gpu.architecture` (GeForce cards separately)."""
    other_gpu: GpuFigures
    stacks: dict[str, StackFigures]
    networks: dict[str, NetworkFigures]

    def gpu(self, gpu: Gpu) -> GpuFigures:
        """Return the figures of *gpu*, falling back to its architecture and then to `other_gpu`."""
        architecture = f"{gpu.architecture} GeForce" if gpu.geforce else gpu.architecture
        return self.gpus.get(gpu.id) or self.architectures.get(architecture) or self.other_gpu

    def link_factor(self, link: Link) -> Value:
        """Return the time factor of the first rule that matches *link*."""
        return next(rule.factor for rule in self.links if fnmatch(link.id, rule.links))


class Stack(Sourced):
    """Properties of a training framework of a given year that are known without a fit."""

    sources: tuple[str, ...] = ()
    """Campaigns (column `source_key`) that used the framework."""
    keeps_scores: bool = False
    """True if attention writes its scores to memory, as before fused kernels."""
    older_attention: bool = False
    """True if the attention kernels were written for Ampere (FlashAttention 2)."""
    aligned_products: bool = False
    """True if cards before Ampere ran with a cuBLAS below 11, whose 16-bit products use tensor cores only if all
    dimensions are multiples of eight."""
    language: bool = False
    """True if the stack is the one for language models in campaigns that have several."""
    sequence_parallel: bool = False
    precision: dict[str, Literal["fp16", "bf16", "fp8", "nvfp4"]] = Field(default_factory=dict)
    """Default precision where a table states none, keyed by the start of `Gpu.architecture`; `other` for all others."""
    distributed_optimizer: bool = False
    """True if data-parallel ranks share optimizer states (ZeRO 1) even where a model fits."""
    model_parallel: bool = False
    """True if a model that does not fit is split by tensors and layers, rather than sharded (ZeRO 3)."""
    recompute: Literal["none", "selective", "full"] = "none"
    """Recomputation of activations where a table states none."""
    adapters_recompute: Literal["none", "selective", "full"] | None = None
    """Recomputation in runs that train adapters where a table states none; None: as `recompute`."""
    sequence: int | None = None
    """Tokens per sample where a table states none."""
    longest_sequence: int | None = None
    """Tokens of the longest sample, which sets the memory peak if `sequence` is a mean."""
    fill: dict[str, float] = Field(default_factory=dict)
    """Fraction of a padded sequence that is computed, keyed by network."""
    gradient_bytes: float = 2.0
    """Gradient bytes per trained parameter."""
    state_bytes: float = 12.0
    """Bytes of master weight and moments per trained parameter."""
    eight_bit_weights: bool = False
    """True if frozen weights are stored at 8 bits whenever matrix products use 8 bits or fewer."""
    four_bit_bytes: Value | None = None
    """Bytes per frozen parameter of QLoRA, if more than the 4-bit weights and their scales."""
    whole_weights: bool = False
    """True if every rank holds the whole model once before it is sharded."""
    activation_factor: Value | None = None
    """Measured activation memory, relative to the formula."""
    reserve_bytes: Value | None = None


class TrainedNetwork(Sourced):
    """Network that the catalogue's models lack, or whose entry there lacks values that training needs."""

    aliases: tuple[str, ...] = ()
    dimensions: dict[str, float] = Field(default_factory=dict)
    """Dimensions of a transformer: layers, hidden, heads, vocab and differences from GPT; of a vision transformer
    image and patch [pixels per side] and classes instead of vocab.
    """
    causal: bool = True
    params: Value | None = None
    forward_flop: Value | None = None
    """FLOP of the forward pass per sample, for networks other than transformers."""
    stream_bytes: Value | None = None
    """Bytes of 16-bit activations per sample that the forward pass stores."""
    kernels: int = 0
    """Number of sequential kernel groups, each corresponding to a transformer layer."""
    transformer: bool = False
    """True if the network of `forward_flop` consists of matrix products instead of convolutions."""
    sequence: int | None = None
    """Tokens per sample of a transformer where a table states none."""
    tokens_per_sample: Value | None = None
    epoch_samples: Value | None = None
    """Samples per epoch; MLPerf rates from log timestamps count epochs of networks that have this number."""

    @property
    def is_vision_transformer(self) -> bool:
        """True for a vision transformer."""
        return "patch" in self.dimensions


class PublishedRuns(Sourced):
    """Cells that a table of training runs lacks and the runs' published configurations state."""

    runs: tuple[str, ...]
    """Shell patterns of the columns `source_key` and `source`, joined by a colon, without repository and commit."""
    gpus: str = "*"
    """Shell pattern of the column `gpu`."""
    cells: dict[str, str | int]
    """Values of empty columns; `note` is appended."""


class TrainingData(Spec):
    """Contents of the four files in data/training."""

    figures: TrainingFigures
    stacks: dict[str, Stack]
    networks: dict[str, TrainedNetwork]
    runs: dict[str, PublishedRuns]

    def stack(self, source_key: str, language: bool) -> str:
        """Return the id of the stack that a campaign used (for *language* models), else `pytorch`."""
        found = [name for name, one in self.stacks.items() if source_key in one.sources]
        return next((name for name in found if self.stacks[name].language == language), (found or ["pytorch"])[0])


def load_training(root: Path) -> TrainingData:
    """Load data/training under *root*.

    Raises
    ------
    pydantic.ValidationError, sim.yamlio.YamlError
        A file is invalid.

    """
    folder = root / "training"
    return TrainingData.model_validate(
        {name: read(folder / f"{name}.yaml").data for name in ("figures", "stacks", "networks", "runs")}
    )


class NotTrainable(ValueError):
    """Error for a model whose training cost is not known; the message names models that are."""


def network_named(name: str, catalog: Catalog, data: TrainingData) -> ForwardCost:
    """Return the network called *name*.

    Parameters
    ----------
    name
        Id or alias in data/training/networks.yaml, id of a language model of *catalog*, or path of a config.json.
    catalog, data
        Catalogue of models, and the networks of data/training.

    Raises
    ------
    UnknownId
        No network or model has that name.
    NotTrainable
        The model's training cost is not known.
    ValueError
        The config.json cannot be read.

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
        known = ", ".join(key for key, one in data.networks.items() if not one.dimensions or one.is_vision_transformer)
        raise NotTrainable(
            Message(
                "the training cost of {id} is not known; known are language models, BERT and {known}", model.id, known
            )
        )
    return of_model(model)


def trained_network(id: str, one: TrainedNetwork) -> ForwardCost:
    """Return the forward cost of an entry of data/training/networks.yaml."""
    if one.is_vision_transformer:
        return of_images(id, one.dimensions)
    if one.dimensions:
        return of_dimensions(id, one.dimensions, one.causal)
    # set in every entry without dimensions, as the tests check
    assert one.params
    assert one.forward_flop
    assert one.stream_bytes
    return ForwardCost(
        id=id,
        unit="sample",
        convolutional=not one.transformer,
        params=one.params.value,
        layers=one.kernels,
        hidden=0,
        forward_flop=one.forward_flop.value,
        sharded_bytes=one.stream_bytes.value,
        stream_bytes=one.stream_bytes.value,
        tokens_per_sample=one.tokens_per_sample.value if one.tokens_per_sample else 1.0,
    )


NO_RESERVE = 1.5e9
"""Memory for CUDA context and communication buffers of stacks without `reserve_bytes` [bytes]."""


def peak_flops(gpu: Gpu, precision: Precision) -> float:
    """Return the dense matrix rate of *gpu* in *precision*, or at 16 bit if it lacks that precision [FLOP/s]."""
    wide = gpu.fp32_flops or gpu.fp16_flops
    rate = {
        "fp32": wide,
        "tf32": gpu.tf32_flops or wide,
        "fp8": gpu.fp8_flops,
        "nvfp4": gpu.fp4_flops or gpu.fp8_flops,
    }.get(precision)
    return (rate or gpu.fp16_flops).value


DATA_CENTRE_BLACKWELL = ("Blackwell", "Blackwell Ultra")
"""Values of `Gpu.architecture` of B200, B300 and their superchips."""


def speeds_up_experts(gpu: Gpu, precision: Precision) -> bool:
    """Return whether grouped products over experts gain from *precision*; on Hopper they gain nothing from 8 bits."""
    return gpu.architecture in DATA_CENTRE_BLACKWELL and precision in ("fp8", "nvfp4")


def needs_new_kernels(gpu: Gpu) -> bool:
    """Return whether the tensor cores of *gpu* reach their rate only with kernels written for them."""
    return gpu.hopper or gpu.architecture in DATA_CENTRE_BLACKWELL


def rates(
    data: TrainingData,
    kernels: StepTimeCoefficients,
    gpu: Gpu,
    link: Link,
    network: ForwardCost,
    precision: Precision,
    stack: str,
) -> TrainingRates:
    """Return the rates that training reaches in a step.

    Parameters
    ----------
    data, kernels
        Fitted figures of training and of kernels.
    gpu, link
        Hardware of one rank, and the link between the GPUs of a node.
    network
        Network to train; factors of its own apply if the data have some.
    precision
        Precision of matrix products.
    stack
        Framework, a key of data/training/stacks.yaml.

    Notes
    -----
    The matrix rate is the datasheet peak times the kernels' fitted efficiency, divided by the time factors of card,
    precision, framework and network.

    """
    figures, efficiency = data.figures, kernels.efficiency(gpu)
    card, habit, facts = figures.gpu(gpu), figures.stacks[stack], data.stacks[stack]
    own = figures.networks.get(network.id)
    wide = precision in ("fp32", "tf32")
    factor = {"fp8": figures.fp8_time_factor, "nvfp4": figures.fp4_time_factor}.get(precision)
    if wide:
        factor = figures.fp32_time_factor
    slowdown = card.convolution_time_factor if network.convolutional else card.compute_time_factor
    reached = efficiency.compute.value / slowdown.value
    plain = peak_flops(gpu, precision) if wide else gpu.fp16_flops.value
    stream = habit.stream_time_factor.value * (own.stream_time_factor.value if own else 1.0)
    compute = 1.0 if own is None else own.compute_time_factor.value
    peak = peak_flops(gpu, precision) / (factor.value if factor else 1.0)
    attention = figures.attention_time_factor.value
    if facts.older_attention and needs_new_kernels(gpu):
        attention *= figures.older_attention_time_factor.value
    matrix = reached * peak / habit.compute_time_factor.value / compute
    plain_rate = reached * plain / habit.compute_time_factor.value
    return TrainingRates(
        matrix_flop_per_s=matrix,
        plain_flop_per_s=plain_rate,
        expert_flop_per_s=matrix if speeds_up_experts(gpu, precision) else plain_rate,
        bytes_per_s=efficiency.memory.value * gpu.memory_bytes_per_s.value / card.memory_time_factor.value,
        exponent=figures.gemm_exponent.value,
        attention_time_factor=attention,
        eight_bit_attention_time_factor=figures.eight_bit_attention_time_factor.value,
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


def framework_memory(data: TrainingData, stack: str) -> FrameworkMemory:
    """Return the memory layout of *stack*, with defaults where the data state none."""
    facts = data.stacks[stack]
    return FrameworkMemory(
        gradient_bytes=facts.gradient_bytes,
        state_bytes=facts.state_bytes,
        keeps_scores=facts.keeps_scores,
        eight_bit_weights=facts.eight_bit_weights,
        four_bit_bytes=facts.four_bit_bytes.value if facts.four_bit_bytes else FOUR_BIT_BYTES,
        whole_weights=facts.whole_weights,
        activation_factor=facts.activation_factor.value if facts.activation_factor else 1.0,
        reserve_bytes=facts.reserve_bytes.value if facts.reserve_bytes else NO_RESERVE,
    )
