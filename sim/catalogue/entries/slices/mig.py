"""Multi-Instance GPU: into which hardware slices a card can be cut, and what a slice has."""

from collections.abc import Mapping
from fractions import Fraction

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
