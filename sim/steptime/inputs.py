"""Inputs of the roofline, and the rates of the GPU, the links and the host that follow from them.

`HostOffload` has the rates of the host's memory, processors and link to the GPU, for weights in host memory.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, log2, prod

from sim.catalogue.engine import (
    DefaultTiles,
    Engine,
    EngineOffload,
    FastExperts,
    HostWeights,
    Overheads,
    PaddedExperts,
    SlowProducts,
    SlowWeights,
    default_limit,
    family_of,
)
from sim.catalogue.gpu import Gpu
from sim.catalogue.kernel import Kernel, KernelChoice
from sim.catalogue.link import Link
from sim.catalogue.model import Matrix, Model
from sim.catalogue.quantization import ComputeType, Quantization, arithmetic, bits, covers
from sim.catalogue.value import Value
from sim.message import Message
from sim.records import LoadLaw
from sim.steptime.coefficients import StepTimeCoefficients
from sim.steptime.collective import ReplicaNetwork
from sim.units import BITS_PER_BYTE

FLOP_PER_WEIGHT = 2
"""Operations per weight and token: one multiplication and one addition."""


ACTIVATION_BYTES = 2
"""Bytes of an activation; activations stay at 16 bits."""


@dataclass(frozen=True, slots=True)
class HostOffload:
    """Weights in host memory, the engine's way of using them, and the rates of the host."""

    weights: HostWeights
    use: EngineOffload
    memory_bytes_per_s: Value | None = None
    """Rate of all memory channels together [B/s]."""
    flops: Value | None = None
    link_bytes_per_s: Value | None = None
    """Nominal rate between GPU and host, per direction [B/s]."""
    replicas: int = 1
    """Number of replicas that share the host's memory and processors evenly."""

    @property
    def link_rate(self) -> float:
        """Rate at which weights reach the GPU [B/s]."""
        return _known_value(self.link_bytes_per_s) * _known_value(self.use.link_efficiency)

    def memory_rate(self, expert: bool = False) -> float:
        """Return the rate at which the replica's part of the host reads weights, of routed experts or others [B/s]."""
        efficiency = self.use.expert_memory_efficiency if expert else self.use.memory_efficiency
        return _known_value(self.memory_bytes_per_s) * _known_value(efficiency) / self.replicas

    @property
    def flop_rate(self) -> float:
        """Arithmetic rate of the replica's part of the host [FLOP/s]."""
        return _known_value(self.flops) / self.replicas

    @property
    def streams_some(self) -> bool:
        """True if any step transfers weights to the GPU."""
        return self.use.streaming != "none"

    @property
    def computes_some(self) -> bool:
        """True if the CPU multiplies in any step."""
        return not self.streams_some or self.use.stream_from_tokens is not None

    def streams(self, tokens: int) -> bool:
        """Return whether a step of *tokens* new tokens transfers weights to the GPU; if not, the CPU multiplies."""
        first = self.use.stream_from_tokens
        return self.streams_some and (first is None or tokens >= first.value)

    def values(self) -> Iterator[tuple[str, Value]]:
        """Yield the engine's offloading figures that apply, by name."""
        streaming = ["link_efficiency", "micro_batch_tokens", "stream_from_tokens"] if self.streams_some else []
        computing = ["memory_efficiency", "expert_memory_efficiency"] if self.computes_some else []
        for name in streaming + computing:
            if (value := getattr(self.use, name)) is not None:
                yield name, value


def _known_value(value: Value | None) -> float:
    assert value is not None  # scenario checks require the figures that the engine needs
    return value.value


SIXTEEN_BIT_BYTES = 2.0


@dataclass(frozen=True, slots=True)
class RooflineInputs:
    """Inputs of the roofline: one model on one type of GPU, split over tensor, pipeline and data-parallel ranks.

    `quantization` is the format in which the weights are stored, with a published checkpoint's own format resolved;
    `model` includes the format's padding.
    """

    gpu: Gpu
    model: Model
    quantization: Quantization
    kernel: Kernel
    engine: Engine
    link: Link
    coefficients: StepTimeCoefficients
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    enable_expert_parallel: bool = False
    kv_bytes_per_element: float = 2.0
    serial_stages: bool = False
    """True if pipeline stages take turns on a single batch, so that no stage waits for another's longer step."""
    speed: float = 1.0
    """Rate at which the card computes and reads under its power cap, relative to no cap."""
    load: LoadLaw | None = None
    """Law of the card's load in a step; None: busy GPUs draw their limit."""
    second_load: LoadLaw | None = None
    """Second law, whose loads are metered beside those of `load`. None: no second one. Steps of pipeline stages and of
    ranks in lockstep do not have its loads."""
    host: HostOffload | None = None
    """Offloading of weights to host memory; None: all weights lie on the GPUs."""
    forms_ahead: bool = False
    """True if the engine forms a step while one runs, so that host and GPU work in parallel."""
    one_thread: bool = False
    """True if the thread that forms steps also launches their kernels; relevant with `forms_ahead`."""
    graph_tokens: float = inf
    """Maximum tokens of a step with prompts that runs from CUDA graphs."""
    decode_graph_tokens: float = inf
    """Maximum tokens of a step without prompts that runs from CUDA graphs."""
    graph_size_multiple: int = 1
    """Tokens between the sizes of CUDA graphs, a power of two; below it graphs have sizes of 1, 2, 4, ... tokens."""
    lanes_stretch: float = 1.0
    """Link's rate over that of the narrowest PCIe lanes that the GPUs share; at least 1."""
    moe_backend: str | None = None
    """Kernels of experts that the server states (`Roofline.moe_backend`); None: the engine's default ones."""
    reached: Mapping[str, Value] = field(default_factory=dict)
    """Fraction of the dense peak that the engine's kernels reach alone, by part of the model (`kernels.Part`): no
    product of a server computes faster. Empty: not limited."""
    network: ReplicaNetwork | None = None
    """Network between the servers of a replica; None: `link` connects all of its GPUs."""

    @property
    def kv_8bit(self) -> bool:
        """True if the KV cache is stored in 8 bits per element."""
        return self.kv_bytes_per_element < SIXTEEN_BIT_BYTES

    @property
    def server_blackwell(self) -> bool:
        """True for B200, B300 and related cards, with HBM and tensor cores that the family's graphics cards lack."""
        return self.gpu.blackwell and not self.graphics_blackwell

    @property
    def graphics_blackwell(self) -> bool:
        """True for RTX 50 and RTX PRO cards."""
        return "GB20x" in self.gpu.architecture

    @property
    def tile_tokens(self) -> float:
        """Tokens of the smallest tile of a dense matrix product in the engine's kernels; 0: no rounding to tiles."""
        return self.hopper_tile.value if self.hopper_tile else 0.0

    @property
    def hopper_tile(self) -> Value | None:
        """Sourced value of `tile_tokens`; None: no rounding to tiles."""
        return default_limit(self.engine, self.gpu, "hopper_tile_tokens") if self.gpu.hopper else None

    @property
    def kernel_compute(self) -> Value:
        """Factor on arithmetic time of the weight format's kernel on the card's generation."""
        graphics = self.kernel.graphics_compute_time_factor if self.graphics_blackwell else None
        return graphics or self.kernel.compute_time_factor

    @property
    def kernel_values(self) -> dict[str, Value]:
        """Factors of the engine's kernels for this weight format on this card, by name."""
        found = {"slow_weights": self.slow_weights, "slow_products": self.slow_products}
        found |= {"hopper_tile_tokens": self.hopper_tile} | self.prompt_kernels
        found |= {f"reached_by_{part}": share for part, share in self.reached.items()}
        if self.model.moe is not None:
            found |= {"fast_experts": self.fast_experts, "experts_kernel": self.experts_kernel}
            found["gathered_bits"] = self.gathered_bits
            found |= {"default_tiles": self.default_tiles, "default_tiles_read": self.default_tiles_read}
        if padded := self.padded_experts:
            found |= {"expert_tile_tokens": padded.tile_tokens, "padding_efficiency": padded.efficiency}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def engine_family(self) -> str:
        """Name of the engine without its releases, as in kernels/measured.csv."""
        return family_of(self.engine.id)

    @property
    def chosen_kernel(self) -> KernelChoice | None:
        """Kernel that this engine runs for this format on this card by default; None: the format's usual one."""
        setting = self.engine_family, self.gpu, self.quantization.id
        return next((one for one in self.kernel.chosen if one.applies(*setting)), None)

    @property
    def slow_weights(self) -> Value | None:
        """Factor of the engine's kernels on reading dense weights of this format on this card; None: 1."""
        return self._for_format(known_overheads(self.engine).slow_weights) if self.graphics_blackwell else None

    @property
    def slow_products(self) -> Value | None:
        """Factor of the engine's kernels on dense arithmetic in this format on this card; None: 1."""
        return self._for_format(known_overheads(self.engine).slow_products) if self.server_blackwell else None

    @property
    def gathered_bits(self) -> Value | None:
        """Bits per element of the hidden states that data-parallel ranks gather before the experts; None: 16."""
        gathers = self.expert_ranks > self.tensor_parallel_size
        return known_overheads(self.engine).gathered_bits.get(self.kernel.id) if gathers else None

    @property
    def fast_kernel(self) -> FastExperts | None:
        """Faster expert kernels that the server runs for this format on this card; None: the usual ones."""
        known = known_overheads(self.engine).fast_experts if self.server_blackwell else ()
        stated = (self.moe_backend or "").removesuffix("_routed")  # SGLang's choice of experts, the same kernels
        return next(
            (
                one
                for one in known
                if one.kernel == self.kernel.id and (one.backend == stated if self._states_experts else one.default)
            ),
            None,
        )

    @property
    def usual_experts(self) -> str | None:
        """Stated kernels of experts that are computed as the engine's usual ones; None: the server states none."""
        return self.moe_backend if self._states_experts and self.fast_kernel is None else None

    @property
    def _states_experts(self) -> bool:
        return (self.moe_backend or "auto").lower() != "auto"

    @property
    def fast_experts(self) -> Value | None:
        """Factor of the server's faster expert kernels; None: no faster kernels."""
        return self.fast_kernel.factor if self.fast_kernel else None

    def _for_format(self, known: Iterable[SlowWeights | SlowProducts]) -> Value | None:
        return next((one.factor for one in known if one.kernel == self.kernel.id), None)

    @property
    def prompt_kernels(self) -> dict[str, Value]:
        """Figures of the engine's prompt kernels that apply to this card and format, by name."""
        kernels = known_overheads(self.engine).prompt_kernels
        if kernels is None:
            return {}
        found = {"micro_batch_tokens": kernels.micro_batch_tokens, "score_bytes": kernels.score_bytes}
        quantised = self.kernel.id == "gguf"
        if not kernels.vendors or self.gpu.vendor in kernels.vendors:
            found["activation_bytes"] = kernels.activation_bytes
            found["dequantised_bytes"] = kernels.dequantised_bytes if quantised else None
        int8 = kernels.int8_share if quantised and has_rate(self.gpu, "int8") else None
        if int8:
            found |= {"int8_share": int8, "hopper_share": kernels.hopper_share if self.gpu.hopper else None}
        elif self.gpu.geforce and (quantised or self.quantization.id == "fp16"):
            found["half_accumulation_factor"] = kernels.half_accumulation_factor
        return {name: value for name, value in found.items() if value is not None}

    @property
    def prompt_peak(self) -> float:
        """Dense peak of the engine's products of this format, relative to 16 bit with sums in 32 bit."""
        kernels = self.prompt_kernels
        if "int8_share" in kernels:
            return peak_flops(self.gpu, "int8") / peak_flops(self.gpu, "fp16")
        return kernels["half_accumulation_factor"].value if "half_accumulation_factor" in kernels else 1.0

    @property
    def prompt_share(self) -> float:
        """Efficiency of the engine's products in large batches, relative to the usual kernels."""
        shares = (self.prompt_kernels.get(name) for name in ("int8_share", "hopper_share"))
        return prod(one.value for one in shares if one)

    @property
    def experts_kernel(self) -> Value | None:
        """Factor of the engine's kernels on expert arithmetic in this format; None: 1."""
        return known_overheads(self.engine).experts_by_kernel.get(self.kernel.id)

    @property
    def default_tiles(self) -> Value | None:
        """Factor of the engine's default tiles on expert arithmetic; None: tiles for this shape are tuned."""
        tiles = self._tiles
        return tiles.factor if tiles is not None else None

    @property
    def default_tiles_read(self) -> Value | None:
        """Factor of the engine's default tiles on the time to read experts; None: 1."""
        tiles = self._tiles
        return tiles.read_factor if tiles is not None and self._rank_experts <= tiles.read_experts else None

    @property
    def _rank_experts(self) -> int:
        """Number of experts of which a rank has at least a part."""
        moe = self.model.moe
        if moe is None:
            return 0
        return moe.experts // self.expert_ranks if self.enable_expert_parallel else moe.experts

    @property
    def _tiles(self) -> DefaultTiles | None:
        """Default tiles of the engine's grouped products if the model's shape is not tuned."""
        tiles, moe = known_overheads(self.engine).default_tiles, self.model.moe
        if tiles is None or moe is None or tiles.kernel != self.kernel.id:
            return None
        if self.gpu.architecture not in tiles.architectures:
            return None
        width = moe.moe_intermediate / (1 if self.enable_expert_parallel else self.expert_ranks)
        return None if any(one.matches(self.gpu, self._rank_experts, width) for one in tiles.tuned) else tiles

    @property
    def padded_experts(self) -> PaddedExperts | None:
        """Kernel of this release that pads experts, for this format, card and layout; None: no padding."""
        one = known_overheads(self.engine).padded_experts
        if one is None or self.model.moe is None or self.quantization.id not in one.quantizations:
            return None
        split = 1 if self.enable_expert_parallel else self.tensor_parallel_size
        return one if self.gpu.architecture in one.architectures and split < one.split_below else None

    @property
    def recent_host(self) -> bool:
        """True if the card's servers usually have processors of 2022 or later; servers of older cards often do not."""
        return self.gpu.hopper or self.gpu.blackwell

    @property
    def stage_ranks(self) -> int:
        """Number of GPUs in all pipeline stages."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    @property
    def spreads_experts(self) -> bool:
        """True if each of several GPUs holds whole experts, rather than a part of every expert."""
        return self.enable_expert_parallel and self.expert_ranks > 1

    def own_all_reduce_bytes(self, ranks: int) -> float:
        """Return the maximum message that the engine's own kernels sum between *ranks* GPUs [bytes].

        The result is 0 if NCCL runs all messages, as between servers.
        """
        own = self.engine.own_all_reduce
        if own is None or (self.network is not None and self.network.servers(ranks) > 1):
            return 0.0
        return own.largest(ranks, self.link.over_pcie)

    def link_names(self, ranks: int) -> tuple[str, ...]:
        """Return the names of the links between *ranks* GPUs: the link, and the network between servers if used."""
        if self.network is None or self.network.servers(ranks) == 1:
            return (self.link.name,)
        return self.link.name, self.network.link.name

    @property
    def boundary_s(self) -> float:
        """Mean host time per stage to pass a step to the next stage; there is one send less than stages [s]."""
        boundary, stages = known_overheads(self.engine).per_boundary_s, self.pipeline_parallel_size
        return boundary.value * (stages - 1) / stages if boundary is not None else 0.0

    @property
    def expert_ranks(self) -> int:
        """Number of GPUs over which the routed experts of a layer are spread."""
        return self.tensor_parallel_size * (self.data_parallel_size if self.enable_expert_parallel else 1)


def known_overheads(engine: Engine) -> Overheads:
    """Return the engine's host times. Raises ValueError if they were not measured."""
    if engine.overheads is None:
        raise ValueError(Message("there are no measurements of the step overheads of engine {id!r}", engine.id))
    return engine.overheads


def peak_flops(gpu: Gpu, compute: ComputeType) -> float:
    """Return the dense rate in arithmetic *compute*, or at 16 bits if the tensor cores do not support it [FLOP/s]."""
    return (gpu.dense_rate(compute) or gpu.fp16_flops).value


def has_rate(gpu: Gpu, compute: ComputeType) -> bool:
    """Return whether the tensor cores support arithmetic *compute*."""
    return gpu.dense_rate(compute) is not None


@dataclass(frozen=True, slots=True)
class GpuRates:
    """Rates that one GPU reaches, including the effects of quantised kernels and grouped products.

    Notes
    -----
        FLOP rate  = dense peak * speed * compute efficiency / serving_compute_time_factor
        byte rate  = memory bandwidth * speed * memory efficiency

    """

    inputs: RooflineInputs
    overheads: Overheads
    compute_efficiency: float
    """Fraction of the dense peak that matrix products reach inside a server."""
    bytes_per_s: float
    """Rate at which weights are read [B/s]."""

    @classmethod
    def of(cls, inputs: RooflineInputs) -> "GpuRates":
        """Return the rates of the GPU inside the engine. Raises ValueError if the engine's overheads are unknown."""
        efficiency = inputs.coefficients.efficiency(inputs.gpu)
        return cls(
            inputs,
            known_overheads(inputs.engine),
            inputs.speed * efficiency.compute.value / inputs.coefficients.serving_compute_time_factor.value,
            inputs.speed * efficiency.memory.value * inputs.gpu.memory_bytes_per_s.value,
        )

    def peak_flops(self, matrix: Matrix) -> float:
        """Return the dense peak in the arithmetic of *matrix* [FLOP/s]."""
        peak = peak_flops(self.inputs.gpu, arithmetic(self.inputs.quantization, matrix))
        return peak * self.inputs.prompt_peak if covers(self.inputs.quantization, matrix) else peak

    def compute_time_factor(self, matrix: Matrix) -> float:
        """Return the arithmetic time of *matrix* relative to FLOP / (peak * efficiency)."""
        kernel = self.inputs.kernel
        covered = covers(self.inputs.quantization, matrix)
        factor = self.inputs.kernel_compute.value / self.inputs.prompt_share if covered else 1.0
        if matrix.role == "expert":
            grouped = kernel.moe_compute_time_factor.value * self._experts_factor() * self._grouped_factor()
            return max(factor * grouped, self.least_factor("experts"))
        older = kernel.server_blackwell_compute_factor if self.inputs.server_blackwell else None
        factor *= prod(one.value for one in (older, self.inputs.slow_products) if one and covered)
        return max(factor, self.least_factor("layers")) if covered else factor

    def least_factor(self, part: str) -> float:
        """Return the factor at which *part* computes as fast as its kernel alone, or at the dense peak if unknown."""
        reached = self.inputs.reached.get(part)
        return self.compute_efficiency / self.inputs.speed / (reached.value if reached else 1.0)

    def weight_time_factor(self, matrix: Matrix) -> float:
        """Return the time to read *matrix* relative to stored bytes / reachable bandwidth.

        A matrix is never read faster than the memory's full bandwidth.
        """
        kernel, slow = self.inputs.kernel, self.overheads.slow_cards
        factor = kernel.weight_time_factor.value if covers(self.inputs.quantization, matrix) else 1.0
        if slow is not None and slow.matches(self.inputs.gpu):
            factor *= slow.factor.value
        if matrix.role == "expert":
            tiles = self.inputs.default_tiles_read
            factor *= kernel.moe_weight_time_factor.value * (tiles.value if tiles else 1.0)
            return max(factor, self.fastest_read)
        older = self.inputs.slow_weights if covers(self.inputs.quantization, matrix) else None
        return max(factor * (older.value if older else 1.0), self.fastest_read)

    @property
    def kernel_bytes_per_s(self) -> float:
        """Rate at which kernels other than products move data [B/s]."""
        slow = self.overheads.slow_cards
        return self.bytes_per_s / (slow.factor.value if slow and slow.matches(self.inputs.gpu) else 1.0)

    @property
    def fastest_read(self) -> float:
        """Minimum of `weight_time_factor`, at the memory's full bandwidth."""
        return self.bytes_per_s / self.inputs.gpu.memory_bytes_per_s.value

    def _experts_factor(self) -> float:
        """Return the factor on grouped products over experts by engine, format and generation of cards."""
        generation = self.inputs.coefficients.experts_factor(self.inputs.gpu)
        kernels = self.inputs.fast_experts, self.inputs.experts_kernel, self.inputs.default_tiles
        return self.overheads.moe_gemm_time_factor.value * prod(one.value for one in (generation, *kernels) if one)

    def _grouped_factor(self) -> float:
        """Return the factor on grouped products over experts by family of models, and by spreading over ranks.

        The rank with the most tokens computes longest; no rank reads its experts more than once.
        """
        coefficients = self.inputs.coefficients
        family = coefficients.model_experts_factor(self.inputs.model)
        spread = coefficients.expert_parallel_time_factor_per_doubling if self.inputs.spreads_experts else None
        factor = family.value if family else 1.0
        return factor * spread.value ** log2(self.inputs.expert_ranks) if spread else factor

    def weight_bytes(self, matrix: Matrix) -> float:
        """Return the stored bytes of a single copy of *matrix*, before any split."""
        stored_bits = bits(self.inputs.quantization, matrix, self.inputs.model.tie_embeddings)
        return matrix.inputs * matrix.outputs * stored_bits / BITS_PER_BYTE
