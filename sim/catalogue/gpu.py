"""GPUs and other accelerators with their own memory, whole or divided into MIG slices: data/gpus/<id>.yaml.

Multi-Instance GPU (MIG) divides a card into hardware slices. A slice acts as a smaller GPU with its part of the card's
rates, memory and power limit.
"""

from collections.abc import Mapping
from datetime import date
from fractions import Fraction
from typing import Literal

from sim.catalogue.value import Sourced, Value
from sim.message import Message
from sim.spec import Count, Spec, WholeNumber


class MigProfile(Spec):
    """MIG profile: one kind of slice, named as nvidia-smi names it (1g.10gb)."""

    compute_slices: Count
    memory_slices: Count
    """Memory slices of the card that the profile owns, with their share of L2 and bandwidth."""
    starts: tuple[WholeNumber, ...]
    """Memory slices at which the driver may place an instance."""
    copy_engines: Count
    sms: Count | None = None
    """Streaming multiprocessors; None: those of its compute slices."""
    memory_bytes: Value | None = None
    """Total memory reported by the driver [bytes]; None: the memory slices' share of the card's memory."""

    @property
    def instances(self) -> int:
        """Maximum number of instances of this profile on one card without other profiles."""
        return len(self.starts)


class Mig(Sourced):
    """Division of one card into MIG slices."""

    compute_slices: Count
    """Number of compute slices; a card divided into 7 loses the remaining streaming multiprocessors."""
    memory_slices: Count
    sms_per_slice: Count
    """Streaming multiprocessors of one compute slice."""
    profiles: dict[str, MigProfile]

    def sms(self, profile: str) -> int:
        """Return the streaming multiprocessors of a slice. Raises KeyError for an unknown profile."""
        one = self.profiles[profile]
        return one.compute_slices * self.sms_per_slice if one.sms is None else one.sms

    def fits(self, wanted: tuple[str, ...]) -> bool:
        """Return whether the driver can place all profiles in *wanted* on one card, in some order."""
        largest_first = sorted(wanted, key=lambda name: -self.profiles[name].memory_slices)
        compute = sum(self.profiles[name].compute_slices for name in wanted)
        return compute <= self.compute_slices and self._can_place(largest_first, frozenset())

    def cards(self, wanted: Mapping[str, int]) -> int:
        """Return the number of cards needed for these numbers of slices, by profile.

        First fit decreasing: the largest profiles first, each on the first card with room.


        >>> some = MigProfile(compute_slices=1, memory_slices=1, starts=range(7), copy_engines=1)
        >>> origin = {"source": "mig_guide", "kind": "quoted"}
        >>> mig = Mig(**origin, compute_slices=7, memory_slices=8, sms_per_slice=14, profiles={"1g.10gb": some})
        >>> [mig.cards({"1g.10gb": count}) for count in (7, 8, 100)]
        [1, 2, 15]
        """
        if len(wanted) == 1:
            ((profile, count),) = wanted.items()
            return -(-count // self.profiles[profile].instances)
        cards: list[tuple[str, ...]] = []
        for profile in sorted(wanted, key=lambda name: -self.profiles[name].memory_slices):
            first = 0  # an earlier card that had no room for this profile has none later
            for _ in range(wanted[profile]):
                while first < len(cards) and not self.fits((*cards[first], profile)):
                    first += 1
                if first == len(cards):
                    cards.append(())
                cards[first] = (*cards[first], profile)
        return len(cards)

    def weight(self, profile: str, alone: bool) -> Fraction:
        """Return the fraction of a card's cost that is allocated to one slice.

        If the card is divided into this profile *alone*, each instance has an equal part; with mixed profiles, a slice
        has its share of the compute slices.
        """
        one = self.profiles[profile]
        return Fraction(1, one.instances) if alone else Fraction(one.compute_slices, self.compute_slices)

    def _can_place(self, left: list[str], taken: frozenset[int]) -> bool:
        if not left:
            return True
        profile = self.profiles[left[0]]
        for start in profile.starts:
            slots = frozenset(range(start, min(start + profile.memory_slices, self.memory_slices)))
            if not slots & taken and self._can_place(left[1:], taken | slots):
                return True
        return False


Vendor = Literal["nvidia", "amd", "intel", "apple", "google", "aws", "huawei"]


DENSE_RATES = {"fp16": "fp16_flops", "fp8": "fp8_flops", "int8": "int8_ops_per_s", "fp4": "fp4_flops"}
"""Arithmetic of matrix products -> field of `Gpu` with its dense rate."""


class Gpu(Spec):
    """Datasheet and driver facts of one accelerator.

    Rates in FLOP/s and int8 operations/s are dense; sparse rates have their own fields.
    """

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    """Alternative names in benchmarks and articles."""
    vendor: Vendor
    architecture: str
    form_factor: str = ""
    release_date: date | None = None
    geforce: bool = False
    """Consumer card: no peer-to-peer over PCIe, fp16 with fp32 accumulation at half rate."""
    link: str
    """Id in data/links of the link between GPUs of this type where the server specifies none."""
    memory_bytes: Value
    """Total memory reported by the driver, before the CUDA context [bytes]."""
    memory_nominal_gib: Value
    memory_bytes_per_s: Value
    """Datasheet bandwidth of the device memory [B/s]."""
    tdp_w: Value | None = None
    idle_w: Value | None = None
    """Power of the idle card with nothing loaded [W]."""
    loaded_idle_w: Value | None = None
    """Power of the idle card with weights in memory [W]."""
    fp16_flops: Value
    """Dense fp16/bf16 tensor rate with fp32 accumulation [FLOP/s]."""
    fp16_fp16acc_flops: Value | None = None
    fp32_flops: Value | None = None
    fp64_flops: Value | None = None
    tf32_flops: Value | None = None
    fp8_flops: Value | None = None
    """Dense fp8 tensor rate with fp32 accumulation [FLOP/s]; None: the tensor cores have no fp8."""
    fp8_fp16acc_flops: Value | None = None
    int8_ops_per_s: Value | None = None
    fp4_flops: Value | None = None
    fp16_sparse_flops: Value | None = None
    fp16_fp16acc_sparse_flops: Value | None = None
    fp8_sparse_flops: Value | None = None
    fp8_fp16acc_sparse_flops: Value | None = None
    int8_sparse_ops_per_s: Value | None = None
    fp4_sparse_flops: Value | None = None
    sm_count: Value | None = None
    """Streaming multiprocessors; GPU cores on Apple, the maker's core count on other vendors' devices."""
    cuda_cores: Value | None = None
    """CUDA cores; stream processors on AMD."""
    boost_clock_hz: Value | None = None
    l2_bytes: Value | None = None
    pcie_gen: Value | None = None
    pcie_lanes: Value | None = None
    nvlink_total_bytes_per_s: Value | None = None
    """NVLink bandwidth of both directions together, as vendors print it [B/s]; None: no NVLink."""
    slots: Value | None = None
    usable_memory_fraction: Value | None = None
    """Fraction of unified memory that the GPU may use; only for devices with unified memory."""
    mig: Mig | None = None
    """MIG profiles; None: not supported, or not in the catalogue."""

    def dense_rate(self, compute: str) -> Value | None:
        """Return the dense rate in arithmetic *compute*; None if the tensor cores do not support it."""
        rate: Value | None = getattr(self, DENSE_RATES[compute])
        return rate

    @property
    def pcie_card(self) -> bool:
        """True if the GPU is a card in a PCIe slot, bridged or not, rather than a module on an NVLink board."""
        return self.form_factor == "PCIe card"

    @property
    def before_ampere(self) -> bool:
        """True if the GPU is of NVIDIA's Pascal, Volta or Turing family, without bf16 arithmetic."""
        return self.architecture.startswith(("Pascal", "Volta", "Turing"))

    @property
    def hopper(self) -> bool:
        """True if the GPU is of the Hopper family (H100, H200 and related cards)."""
        return self.architecture.startswith("Hopper")

    @property
    def ada(self) -> bool:
        """True if the GPU is of the Ada Lovelace family (L4, L40S, RTX 4090 and related cards)."""
        return self.architecture.startswith("Ada")

    @property
    def blackwell(self) -> bool:
        """True if the GPU is of the Blackwell family: B200, B300 and the GB20x cards."""
        return self.architecture.lower().startswith("blackwell")

    @property
    def cdna(self) -> bool:
        """True if the GPU is an AMD Instinct card."""
        return self.architecture.startswith("CDNA")

    @property
    def is_host(self) -> bool:
        """True if the GPU is a system on chip; its price and power are those of the whole machine."""
        return self.form_factor == "system on chip"


BY_SMS = ("cuda_cores", "tdp_w")
"""Fields that, like the arithmetic rates, scale with a slice's share of the streaming multiprocessors."""
BY_MEMORY = ("memory_bytes", "memory_bytes_per_s", "l2_bytes")


def sliced(gpu: Gpu, profile: str) -> Gpu:
    """Return the part of *gpu* that a slice of *profile* owns, under the card's id. Raises KeyError for other profiles.

    Arithmetic rates scale with the slice's streaming multiprocessors (a card of 7 slices loses the rest); bandwidth, L2
    and memory with its memory slices, except memory that the profile states.
    """
    if gpu.mig is None or profile not in gpu.mig.profiles:
        raise KeyError(profile)
    one, sms = gpu.mig.profiles[profile], gpu.mig.sms(profile)
    own_sms = Value(value=sms, **gpu.mig.model_dump(include={"source", "where", "kind", "as_of"}))
    of_sms = sms_share(gpu, profile)
    of_memory = one.memory_slices / gpu.mig.memory_slices
    rates = [name for name in Gpu.model_fields if name.endswith(("_flops", "_ops_per_s"))]
    update = {name: _part(gpu, name, of_sms, profile) for name in (*rates, *BY_SMS)}
    update |= {name: _part(gpu, name, of_memory, profile) for name in BY_MEMORY}
    if one.memory_bytes is not None:
        update["memory_bytes"] = one.memory_bytes
    nominal = float(profile.partition(".")[2].removesuffix("gb"))
    size = gpu.memory_nominal_gib.model_copy(update={"value": nominal, "range": None, "note": profile})
    own = {"name": f"{gpu.name} {profile}", "sm_count": own_sms, "memory_nominal_gib": size, "mig": None}
    return gpu.model_copy(update=update | own)


def sms_share(gpu: Gpu, profile: str) -> float:
    """Return a slice's share of the card's streaming multiprocessors. Raises KeyError for other profiles."""
    if gpu.mig is None or profile not in gpu.mig.profiles:
        raise KeyError(profile)
    whole = gpu.mig.sms_per_slice * gpu.mig.compute_slices if gpu.sm_count is None else gpu.sm_count.value
    return min(1.0, gpu.mig.sms(profile) / whole)


def _part(gpu: Gpu, name: str, share: float, profile: str) -> Value | None:
    value = getattr(gpu, name)
    if value is None:
        return None
    limits = None if value.range is None else tuple(share * limit for limit in value.range)
    note = Message("{profile}: {share:.4g} of the card's {value:g}", profile, share, value.value) + (
        f"; {value.note}" if value.note else ""
    )
    return Value.model_validate(value.model_dump() | {"value": share * value.value, "range": limits, "note": note})
