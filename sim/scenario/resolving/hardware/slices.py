"""MIG slices on whole GPUs: how many GPUs the slices of a fleet's pools take, and what of them lies idle."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from sim.catalogue.entries.gpu import Gpu
from sim.catalogue.entries.slices.mig import Mig
from sim.catalogue.entries.slices.slice import sms_share


@dataclass(frozen=True, slots=True)
class Slicing:
    """What the slices of one pool are cut from."""

    card: Gpu
    """The whole GPU."""
    profile: str

    @property
    def mig(self) -> Mig:
        """How the card can be cut."""
        assert self.card.mig is not None  # bind has looked the profile up there
        return self.card.mig


@dataclass(frozen=True, slots=True)
class Slices:
    """One pool's slices, with its part of the GPUs that they are cut from."""

    profile: str
    gpus_per_slice: Fraction
    """Idle remainders included: over all slices of the group they sum to its whole GPUs."""
    unused: Fraction
    """The part of the GPUs that no slice uses."""
    reach: float
    """How much of the way from idle power to the limit of its part of the GPUs a busy slice goes."""
    note: str
    """What a reader of the bill must know; empty where nothing lies idle."""


def placed(slicing: Slicing, wanted: Sequence[tuple[str, int]], pools: str) -> Slices:
    """The slices of one pool, placed with all that are *wanted* of its group of *pools*: (profile, replicas).

    Pools of a group share GPUs; their slices are placed as the driver allows.
    """
    counts: dict[str, int] = {}
    for profile, replicas in wanted:
        counts[profile] = counts.get(profile, 0) + replicas
    mig, alone = slicing.mig, len(counts) == 1
    gpus = mig.cards(counts)
    used = sum((count * mig.weight(profile, alone) for profile, count in counts.items()), Fraction(0))
    each = mig.weight(slicing.profile, alone) * gpus / used
    unused = max(Fraction(0), 1 - used / gpus)
    reach = sms_share(slicing.card, slicing.profile) / float(each)
    note = _note(slicing, counts, gpus, pools) if unused else ""
    return Slices(slicing.profile, each, unused, reach, note)


def _note(slicing: Slicing, counts: dict[str, int], gpus: int, pools: str) -> str:
    """For example: 3 of 7 slices 1g.10gb are paid for and idle."""
    cards = f"{gpus}x {slicing.card.name}"
    if len(counts) == 1:
        ((profile, count),) = counts.items()
        whole = gpus * slicing.mig.profiles[profile].instances
        return f"Pool {pools}: {whole - count} of {whole} slices {profile} on {cards} are paid for and idle."
    slices = sum(count * slicing.mig.profiles[profile].compute_slices for profile, count in counts.items())
    whole = gpus * slicing.mig.compute_slices
    return f"Pools {pools}: {whole - slices} of {whole} compute slices on {cards} are paid for and idle."
