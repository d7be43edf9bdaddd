"""What the roofline is built from, and the rates that follow from it: those of the GPU, the links and the host.

`HostOffload` has the rates of the host's memory, of its processors and of its link to the GPU, for weights that lie
there.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import log2, prod

from sim.catalogue.engine import (
    Engine,
    EngineOffload,
    FastExperts,
    HostWeights,
    Overheads,
    SlowProducts,
    SlowWeights,
    default_limit,
)
from sim.catalogue.gpu import Gpu
from sim.catalogue.kernel import Kernel
from sim.catalogue.link import Link
from sim.catalogue.model import Matrix, Model
from sim.catalogue.quantization import ComputeType, Quantization, arithmetic, bits, covers
from sim.catalogue.value import Value
from sim.steptime.coefficients import StepTimeCoefficients
from sim.steptime.collective import ReplicaNetwork
from sim.units import BITS_PER_BYTE

FLOP_PER_WEIGHT = 2
"""One multiply and one add."""


ACTIVATION_BYTES = 2
"""Activations stay at 16 bit."""


@dataclass(frozen=True, slots=True)
class HostOffload:
    """Which weights lie in host memory, how the engine works with them, and how fast the host is."""

    weights: HostWeights
    use: EngineOffload
    memory_bytes_per_s: Value | None = None
    """Of all its memory channels together."""
    flops: Value | None = None
    link_bytes_per_s: Value | None = None
    """Between GPU and host, per direction, as the standard has it."""
    replicas: int = 1
    """That share its memory and processors evenly."""

    @property
    def link_rate(self) -> float:
        """Rate at which weights reach the GPU [B/s]."""
        return _known(self.link_bytes_per_s) * _known(self.use.link_efficiency)

    def memory_rate(self, expert: bool = False) -> float:
        """Rate at which the replica's part of the host reads weights, routed experts or others [B/s]."""
        efficiency = self.use.expert_memory_efficiency if expert else self.use.memory_efficiency
        return _known(self.memory_bytes_per_s) * _known(efficiency) / self.replicas

    @property
    def flop_rate(self) -> float:
        """Arithmetic of the replica's part of the host [FLOP/s]."""
        return _known(self.flops) / self.replicas

    @property
    def streams_some(self) -> bool:
        """Whether any step brings weights to the GPU."""
        return self.use.streaming != "none"

    @property
    def computes_some(self) -> bool:
        """Whether the CPU multiplies in any step."""
        return not self.streams_some or self.use.stream_from_tokens is not None

    def streams(self, tokens: int) -> bool:
        """Whether a step of *tokens* new tokens brings weights to the GPU; if not, the CPU multiplies."""
        first = self.use.stream_from_tokens
        return self.streams_some and (first is None or tokens >= first.value)

    def values(self) -> Iterator[tuple[str, Value]]:
        """The engine's figures that count here, by name."""
        streaming = ["link_efficiency", "micro_batch_tokens", "stream_from_tokens"] if self.streams_some else []
        computing = ["memory_efficiency", "expert_memory_efficiency"] if self.computes_some else []
        for name in streaming + computing:
            if (value := getattr(self.use, name)) is not None:
                yield name, value


def _known(value: Value | None) -> float:
    assert value is not None  # the checks of a scenario ask for what its engine needs
    return value.value


SIXTEEN_BIT_BYTES = 2.0


@dataclass(frozen=True, slots=True)
class RooflineInputs:
    """One model on one kind of GPU, split over tensor, pipeline and data-parallel ranks.

    `quantization` is the format that the weights really have: a model's own format looked up, its padding applied to
    `model`.
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
    """Pipeline stages work one after the other on a single batch: none waits for another's longer step."""
    speed: float = 1.0
    """Rate at which the card computes and reads under its power cap over that without."""
    load: Callable[[float, float, float, float, float], float] | None = None
    """Share of the way from idle power to the limit, from a step's shares of time at the tensor cores' dense peak and
    of reading memory, its tokens a second, and the shares in which the GPU does not wait for the host, and in which it
    waits for other GPUs; None: busy GPUs draw their limit."""

    host: HostOffload | None = None
    """Where some weights lie in host memory."""
    forms_ahead: bool = False
    """The engine forms a step while one runs, so that the host works beside the GPU."""
    lanes_stretch: float = 1.0
    """Rate of the link over that of the narrowest PCIe lanes that the GPUs share; at least 1."""
    network: ReplicaNetwork | None = None
    """Between the servers that a replica fills; None: `link` joins all of its GPUs."""

    @property
    def kv_8bit(self) -> bool:
        """The cache is stored in 8 bits an element."""
        return self.kv_bytes_per_element < SIXTEEN_BIT_BYTES

    @property
    def server_blackwell(self) -> bool:
        """B200, B300 and their kin, with HBM and the tensor cores that graphics cards of the family lack."""
        return self.gpu.blackwell and not self.graphics_blackwell

    @property
    def graphics_blackwell(self) -> bool:
        """RTX 50 and RTX PRO cards."""
        return "GB20x" in self.gpu.architecture

    @property
    def tile_tokens(self) -> float:
        """Tokens of the smallest tile of a dense matrix product in the engine's kernels; 0: a tile costs nothing."""
        return self.hopper_tile.value if self.hopper_tile else 0.0

    @property
    def hopper_tile(self) -> Value | None:
        """The same with its source; None: a tile costs nothing."""
        return default_limit(self.engine, self.gpu, "hopper_tile_tokens") if self.gpu.hopper else None

    @property
    def kernel_compute(self) -> Value:
        """Arithmetic time of the weights' kernel on the card's generation."""
        graphics = self.kernel.graphics_compute_time_factor if self.graphics_blackwell else None
        return graphics or self.kernel.compute_time_factor

    @property
    def kernel_values(self) -> dict[str, Value]:
        """What the engine's kernels for this format do on the card, by name."""
        found = {"slow_weights": self.slow_weights, "slow_products": self.slow_products}
        found |= {"hopper_tile_tokens": self.hopper_tile}
        if self.model.moe is not None:
            found |= {"fast_experts": self.fast_experts, "experts_kernel": self.experts_kernel}
            found |= {"default_tiles": self.default_tiles}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def slow_weights(self) -> Value | None:
        """What the engine's kernels for this format do to reading dense weights on the card; None: nothing."""
        return self._for_format(known_overheads(self.engine).slow_weights) if self.graphics_blackwell else None

    @property
    def slow_products(self) -> Value | None:
        """What the engine's kernels for this format do to dense arithmetic on the card; None: nothing."""
        return self._for_format(known_overheads(self.engine).slow_products) if self.server_blackwell else None

    @property
    def fast_experts(self) -> Value | None:
        """What the engine's faster kernels for experts of this format do on the card; None: it has no faster ones."""
        return self._for_format(known_overheads(self.engine).fast_experts) if self.server_blackwell else None

    def _for_format(self, known: Iterable[SlowWeights | SlowProducts | FastExperts]) -> Value | None:
        return next((one.factor for one in known if one.kernel == self.kernel.id), None)

    @property
    def experts_kernel(self) -> Value | None:
        """What arithmetic over experts of this format takes in the engine's kernels; None: as much as in others."""
        return known_overheads(self.engine).experts_by_kernel.get(self.kernel.id)

    @property
    def default_tiles(self) -> Value | None:
        """What the engine's default tiles do to arithmetic over experts; None: those of this shape are tuned."""
        tiles, moe = known_overheads(self.engine).default_tiles, self.model.moe
        if tiles is None or moe is None or tiles.kernel != self.kernel.id:
            return None
        if self.gpu.architecture not in tiles.architectures:
            return None
        whole = self.expert_ranks if self.enable_expert_parallel else 1
        experts, width = moe.experts // whole, moe.moe_intermediate * whole / self.expert_ranks
        return None if any(one.holds(self.gpu, experts, width) for one in tiles.tuned) else tiles.factor

    @property
    def recent_host(self) -> bool:
        """Servers of these cards have processors of 2022 or later, those of older cards often have not."""
        return self.gpu.hopper or self.gpu.blackwell

    @property
    def stage_ranks(self) -> int:
        """GPUs of all pipeline stages."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    @property
    def spreads_experts(self) -> bool:
        """Each of several GPUs holds whole experts, not a part of every one."""
        return self.enable_expert_parallel and self.expert_ranks > 1

    def own_all_reduce_bytes(self, ranks: int) -> float:
        """Largest message that the engine's own kernels sum between *ranks* GPUs; 0: none, as across servers."""
        own = self.engine.own_all_reduce
        if own is None or (self.network is not None and self.network.servers(ranks) > 1):
            return 0.0
        return own.largest(ranks, self.link.over_pcie)

    def way(self, ranks: int) -> tuple[str, ...]:
        """Names of what lies between *ranks* GPUs: the link, and the network where they stand in several servers."""
        if self.network is None or self.network.servers(ranks) == 1:
            return (self.link.name,)
        return self.link.name, self.network.link.name

    @property
    def boundary_s(self) -> float:
        """Host time to pass a step to the next stage: there is one send less than stages [s]."""
        boundary, stages = known_overheads(self.engine).per_boundary_s, self.pipeline_parallel_size
        return boundary.value * (stages - 1) / stages if boundary is not None else 0.0

    @property
    def expert_ranks(self) -> int:
        """GPUs that the routed experts of a layer are spread over."""
        return self.tensor_parallel_size * (self.data_parallel_size if self.enable_expert_parallel else 1)


def known_overheads(engine: Engine) -> Overheads:
    """The engine's host times. Raises ValueError if there are no measurements of them."""
    if engine.overheads is None:
        raise ValueError(f"there are no measurements of the step overheads of engine {engine.id!r}")
    return engine.overheads


def peak_flops(gpu: Gpu, compute: ComputeType) -> float:
    """Dense rate in that arithmetic, or at 16 bit where the tensor cores do not have it [FLOP/s]."""
    return (_rate(gpu, compute) or gpu.fp16_flops).value


def has_rate(gpu: Gpu, compute: ComputeType) -> bool:
    """Whether the tensor cores have that arithmetic."""
    return _rate(gpu, compute) is not None


def _rate(gpu: Gpu, compute: ComputeType) -> Value | None:
    rates = {"fp16": gpu.fp16_flops, "fp8": gpu.fp8_flops, "int8": gpu.int8_ops_per_s, "fp4": gpu.fp4_flops}
    return rates[compute]


@dataclass(frozen=True, slots=True)
class GpuRates:
    """What one GPU reaches, and what quantised kernels and grouped products do to it."""

    inputs: RooflineInputs
    overheads: Overheads
    compute_efficiency: float
    """Share of the dense peak that matrix products reach inside a server."""
    bytes_per_s: float
    """Rate at which weights are read."""

    @classmethod
    def of(cls, inputs: RooflineInputs) -> "GpuRates":
        """Of the GPU, inside the engine. Raises ValueError if the engine's overheads are unknown."""
        efficiency = inputs.coefficients.efficiency(inputs.gpu)
        return cls(
            inputs,
            known_overheads(inputs.engine),
            inputs.speed * efficiency.compute.value / inputs.coefficients.serving_compute_time_factor.value,
            inputs.speed * efficiency.memory.value * inputs.gpu.memory_bytes_per_s.value,
        )

    def peak_flops(self, matrix: Matrix) -> float:
        """Dense peak in the arithmetic that *matrix* runs in [FLOP/s]."""
        return peak_flops(self.inputs.gpu, arithmetic(self.inputs.quantization, matrix))

    def compute_time_factor(self, matrix: Matrix) -> float:
        """Arithmetic time of *matrix* against FLOP / (peak * efficiency)."""
        kernel = self.inputs.kernel
        covered = covers(self.inputs.quantization, matrix)
        factor = self.inputs.kernel_compute.value if covered else 1.0
        if matrix.role == "expert":
            return factor * kernel.moe_compute_time_factor.value * self._experts() * self._grouped()
        older = kernel.server_blackwell_compute_factor if self.inputs.server_blackwell else None
        return factor * prod(one.value for one in (older, self.inputs.slow_products) if one and covered)

    def weight_time_factor(self, matrix: Matrix) -> float:
        """Time to read *matrix* against stored bytes / reachable bandwidth.

        A matrix is never read faster than the memory delivers.
        """
        kernel, slow = self.inputs.kernel, self.overheads.slow_cards
        factor = kernel.weight_time_factor.value if covers(self.inputs.quantization, matrix) else 1.0
        if slow is not None and slow.holds(self.inputs.gpu):
            factor *= slow.factor.value
        if matrix.role == "expert":
            return max(factor * kernel.moe_weight_time_factor.value, self.fastest_read)
        older = self.inputs.slow_weights if covers(self.inputs.quantization, matrix) else None
        return max(factor * (older.value if older else 1.0), self.fastest_read)

    @property
    def fastest_read(self) -> float:
        """`weight_time_factor` where the memory delivers its full bandwidth."""
        return self.bytes_per_s / self.inputs.gpu.memory_bytes_per_s.value

    def _experts(self) -> float:
        """Arithmetic of grouped products over experts: by engine, format and generation of cards."""
        generation = self.inputs.coefficients.experts_factor(self.inputs.gpu)
        kernels = self.inputs.fast_experts, self.inputs.experts_kernel, self.inputs.default_tiles
        return self.overheads.moe_gemm_time_factor.value * prod(one.value for one in (generation, *kernels) if one)

    def _grouped(self) -> float:
        """Arithmetic of grouped products over experts: by family of models, and where spread.

        The rank with most tokens computes longest; none reads its experts more than once.
        """
        coefficients = self.inputs.coefficients
        family = coefficients.model_experts_factor(self.inputs.model)
        spread = coefficients.expert_parallel_time_factor_per_doubling if self.inputs.spreads_experts else None
        factor = family.value if family else 1.0
        return factor * spread.value ** log2(self.inputs.expert_ranks) if spread else factor

    def weight_bytes(self, matrix: Matrix) -> float:
        """Stored bytes of a single one of *matrix*, before any split."""
        stored_bits = bits(self.inputs.quantization, matrix, self.inputs.model.tie_embeddings)
        return matrix.inputs * matrix.outputs * stored_bits / BITS_PER_BYTE
