"""Split of a replica's time and energy into phases; money follows the same split."""

from typing import Literal, NamedTuple, get_args

from sim.records import Interval

Phase = Literal[
    "prefill", "decode", "recompute", "idle", "booting", "held", "failed", "reserve", "unused", "unused commitment"
]
PHASES: tuple[Phase, ...] = get_args(Phase)
OF_STATE: dict[str, Phase] = {
    "provisioning": "booting",
    "booting": "booting",
    "loading": "booting",
    "failed": "failed",
    "repairing": "failed",
    "reserve": "reserve",
}
"""State of a replica that does no work -> the phase of all its time; a replica that is off is idle."""


class ByPhase(NamedTuple):
    """Quantity split by phase; the fields stand in the order of PHASES."""

    prefill: float
    decode: float
    recompute: float
    idle: float
    booting: float = 0.0
    """Part of replicas that have been switched on and do not serve yet."""
    held: float = 0.0
    """Part of GPUs that an inference service holds in a cluster of jobs."""
    failed: float = 0.0
    """Part of replicas that have failed or are under repair."""
    reserve: float = 0.0
    """Part of spares and of replicas that are asleep."""
    unused: float = 0.0
    """Part of GPUs that no replica uses in rented instances and in servers bought with their GPUs."""
    unused_commitment: float = 0.0
    """Part of reserved GPUs that no replica uses."""

    @classmethod
    def only(cls, phase: Phase, amount: float) -> "ByPhase":
        """Return all of *amount* in one phase."""
        return cls(*(amount if name == phase else 0.0 for name in PHASES))

    def scaled(self, factor: float) -> "ByPhase":
        """Return every part times *factor*."""
        return ByPhase(*(part * factor for part in self))

    def without_use(self, unused: "Unused") -> "ByPhase":
        """Return these parts with the share of *unused* taken off each and booked to its phase."""
        if not unused.share:
            return self
        apart = ByPhase.only(unused.phase, unused.share * sum(self))
        return ByPhase(*(one + other for one, other in zip(self.scaled(1 - unused.share), apart, strict=True)))

    def dividing(self, amount: float) -> "ByPhase":
        """Return *amount* divided in the proportions of the parts, whose sum is above zero."""
        total = sum(self)
        return ByPhase(*(part / total * amount for part in self))


class Unused(NamedTuple):
    """Share of what is paid for that no replica can use, and the phase that its money is booked to."""

    share: float
    phase: Phase = "unused"

    @classmethod
    def of(cls, used: float, paid: float) -> "Unused":
        """Return the share of *paid* GPUs beyond those *used*."""
        share = 1 - used / paid if paid else 0.0
        return cls(share) if share > ROUNDING else ALL_USED


ROUNDING = 1e-12
"""Unused shares below this are rounding errors: shares of servers and instances are quotients of GPU counts."""
ALL_USED = Unused(0.0)


def seconds_by_phase(interval: Interval) -> ByPhase:
    """Return the time of one replica in *interval*, by phase [s].

    Decode is the busy time that is neither prefill nor recompute; a step that mixes phases is split by its tokens.
    Where a part of the hardware is unused, that part of every second is idle.
    """
    decode_s = max(0.0, interval.busy_s - interval.prefill_s - interval.recompute_s)
    idle_s = max(0.0, interval.end_s - interval.start_s - interval.busy_s)
    if (phase := OF_STATE.get(interval.state)) is not None:
        return ByPhase.only(phase, interval.end_s - interval.start_s)
    if interval.state == "held":
        return ByPhase.only("held", interval.busy_s)
    if interval.unused:
        used = 1 - interval.unused
        idle_s += interval.unused * interval.busy_s
        return ByPhase(used * interval.prefill_s, used * decode_s, used * interval.recompute_s, idle_s)
    return ByPhase(interval.prefill_s, decode_s, interval.recompute_s, idle_s)


def gpu_s_by_phase(interval: Interval) -> ByPhase:
    """Return the GPU-seconds of *interval* by phase; all GPUs of a replica are in the same phase [GPU s]."""
    seconds = seconds_by_phase(interval)
    return seconds.dividing(interval.gpu_s) if any(seconds) else seconds


def wall_j_by_phase(interval: Interval) -> ByPhase:
    """Return the energy at the wall of *interval*, by phase as its meters record it [J].

    A phase draws the power of its own steps: prompts keep the tensor cores busy and draw more than decodes do.
    """
    if (phase := "held" if interval.state == "held" else OF_STATE.get(interval.state)) is not None:
        return ByPhase.only(phase, interval.server_energy_j)
    parts = (interval.prefill_energy_j, interval.recompute_energy_j, interval.idle_energy_j)
    prefill_j, recompute_j, idle_j = parts
    return ByPhase(prefill_j, max(0.0, interval.server_energy_j - sum(parts)), recompute_j, idle_j)
