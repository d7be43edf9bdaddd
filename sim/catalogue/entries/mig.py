"""Multi-Instance GPU: into which hardware slices a card can be cut, and what a slice has."""

from sim.catalogue.value import Sourced
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

    def _placed(self, left: list[str], taken: frozenset[int]) -> bool:
        if not left:
            return True
        profile = self.profiles[left[0]]
        for start in profile.starts:
            slots = frozenset(range(start, min(start + profile.memory_slices, self.memory_slices)))
            if not slots & taken and self._placed(left[1:], taken | slots):
                return True
        return False
