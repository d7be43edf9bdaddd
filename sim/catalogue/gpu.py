"""A GPU (or another accelerator with its own memory), whole or cut into MIG slices: data/gpus/<id>.yaml.

Multi-Instance GPU divides a card into hardware slices. A slice is a small GPU of its own: it has its part of the
card's rates, memory and power limit.
"""

from collections.abc import Mapping
from datetime import date
from fractions import Fraction
from typing import Literal

from sim.catalogue.value import Sourced, Value
from sim.spec import Count, Spec, WholeNumber


class MigProfile(Spec):
    """One kind of slice, named as nvidia-smi names it: 1g.10gb."""

    compute_slices: Count
    memory_slices: Count
    """How many of the card's memory slices it owns, with their share of L2 and bandwidth."""
    starts: tuple[WholeNumber, ...]
    """Memory slices at which the driver may place it."""
    copy_engines: Count
    sms: Count | None = None
    """Streaming multiprocessors; absent: those of its compute slices."""
    memory_bytes: Value | None = None
    """What the driver reports as total; absent: its memory slices' part of the card's."""

    @property
    def instances(self) -> int:
        """Slices of this profile alone on one card."""
        return len(self.starts)


class Mig(Sourced):
    """The slices of one card."""

    compute_slices: Count
    """Slices of streaming multiprocessors; a card of 7 loses what is left of its SMs when it is cut."""
    memory_slices: Count
    sms_per_slice: Count
    """Streaming multiprocessors of one compute slice."""
    profiles: dict[str, MigProfile]

    def sms(self, profile: str) -> int:
        """Streaming multiprocessors of a slice. Raises KeyError for an unknown profile."""
        one = self.profiles[profile]
        return one.compute_slices * self.sms_per_slice if one.sms is None else one.sms

    def fits(self, wanted: tuple[str, ...]) -> bool:
        """Whether the driver can place the profiles *wanted* on one card together, in some order."""
        largest_first = sorted(wanted, key=lambda name: -self.profiles[name].memory_slices)
        compute = sum(self.profiles[name].compute_slices for name in wanted)
        return compute <= self.compute_slices and self._placed(largest_first, frozenset())

    def cards(self, wanted: Mapping[str, int]) -> int:
        """Number of cards that these slices of each profile take: the largest first, each on the first card with room.

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
        """The part of a card that one slice stands for where costs are divided.

        Where a card is cut into this profile *alone*, each of those that fit has an equal part; where profiles are
        mixed, a slice has that of its compute slices.
        """
        one = self.profiles[profile]
        return Fraction(1, one.instances) if alone else Fraction(one.compute_slices, self.compute_slices)

    def _placed(self, left: list[str], taken: frozenset[int]) -> bool:
        if not left:
            return True
        profile = self.profiles[left[0]]
        for start in profile.starts:
            slots = frozenset(range(start, min(start + profile.memory_slices, self.memory_slices)))
            if not slots & taken and self._placed(left[1:], taken | slots):
                return True
        return False


Vendor = Literal["nvidia", "amd", "intel", "apple", "google", "aws", "huawei"]


class Gpu(Spec):
    """Datasheet and driver facts of one device.

    FLOPS and int8 operations are dense; sparse figures have their own fields.
    """

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    """Other names under which benchmarks and articles know it."""
    vendor: Vendor
    architecture: str
    form_factor: str = ""
    release_date: date | None = None
    geforce: bool = False
    """A consumer card: no peer-to-peer over PCIe, fp16 with fp32 accumulate at half rate."""
    link: str
    """Id in data/links of the link between such GPUs when no server says otherwise."""
    memory_bytes: Value
    """What the driver reports as total, before the CUDA context."""
    memory_nominal_gib: Value
    memory_bytes_per_s: Value
    """Datasheet bandwidth of the device memory."""
    tdp_w: Value | None = None
    idle_w: Value | None = None
    """Card powered, no work, nothing loaded."""
    loaded_idle_w: Value | None = None
    """Weights resident, no work."""
    fp16_flops: Value
    """Dense fp16/bf16 tensor rate with fp32 accumulate."""
    fp16_fp16acc_flops: Value | None = None
    fp32_flops: Value | None = None
    fp64_flops: Value | None = None
    tf32_flops: Value | None = None
    fp8_flops: Value | None = None
    """Dense fp8 with fp32 accumulate; absent where the tensor cores have no fp8."""
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
    """Streaming multiprocessors; on Apple, GPU cores; elsewhere what the maker counts as cores."""
    cuda_cores: Value | None = None
    """CUDA cores; on AMD, stream processors."""
    boost_clock_hz: Value | None = None
    l2_bytes: Value | None = None
    pcie_gen: Value | None = None
    pcie_lanes: Value | None = None
    nvlink_total_bytes_per_s: Value | None = None
    """Both directions together, as vendors print it; absent: no NVLink."""
    slots: Value | None = None
    usable_memory_fraction: Value | None = None
    """Unified memory only: the share that the GPU may use."""
    mig: Mig | None = None
    """Into which slices the driver can cut it; absent: it cannot, or nobody has written down how."""

    @property
    def pcie_card(self) -> bool:
        """A card in a slot, with or without a bridge, rather than a module on a board with NVLink or its like."""
        return self.form_factor == "PCIe card"

    @property
    def hopper(self) -> bool:
        """H100, H200 and their kin."""
        return self.architecture.startswith("Hopper")

    @property
    def ada(self) -> bool:
        """L4, L40S, RTX 4090 and their kin."""
        return self.architecture.startswith("Ada")

    @property
    def blackwell(self) -> bool:
        """Any chip of the family: B200, B300 and the GB20x cards."""
        return self.architecture.lower().startswith("blackwell")

    @property
    def cdna(self) -> bool:
        """AMD's Instinct cards."""
        return self.architecture.startswith("CDNA")

    @property
    def is_host(self) -> bool:
        """A system on chip: its price and its power are those of the whole machine."""
        return self.form_factor == "system on chip"


BY_SMS = ("cuda_cores", "tdp_w")
"""Beside the arithmetic rates, what goes with the streaming multiprocessors."""
BY_MEMORY = ("memory_bytes", "memory_bytes_per_s", "l2_bytes")


def sliced(gpu: Gpu, profile: str) -> Gpu:
    """The part of *gpu* that a slice of *profile* owns, under the card's id.

    Arithmetic goes with its streaming multiprocessors (a card of 7 slices loses the rest), bandwidth, L2 and memory
    with its memory slices; the driver reports a little less memory where that is known. Raises KeyError for a profile
    that *gpu* does not have.
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
    """Streaming multiprocessors of a slice over those of the whole card. Raises KeyError as `sliced` does."""
    if gpu.mig is None or profile not in gpu.mig.profiles:
        raise KeyError(profile)
    whole = gpu.mig.sms_per_slice * gpu.mig.compute_slices if gpu.sm_count is None else gpu.sm_count.value
    return min(1.0, gpu.mig.sms(profile) / whole)


def _part(gpu: Gpu, name: str, share: float, profile: str) -> Value | None:
    value = getattr(gpu, name)
    if value is None:
        return None
    limits = None if value.range is None else tuple(share * limit for limit in value.range)
    note = f"{profile}: {share:.4g} of the card's {value.value:g}" + (f"; {value.note}" if value.note else "")
    return Value.model_validate(value.model_dump() | {"value": share * value.value, "range": limits, "note": note})
