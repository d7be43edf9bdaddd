"""What a replica's time and energy went to. Money follows the same split."""

from typing import Literal, NamedTuple

from sim.records import Interval

Phase = Literal["prefill", "decode", "recompute", "idle", "booting", "held"]
PHASES: tuple[Phase, ...] = ("prefill", "decode", "recompute", "idle", "booting", "held")


class ByPhase(NamedTuple):
    """One quantity, split; the fields stand in the order of PHASES."""

    prefill: float
    decode: float
    recompute: float
    idle: float
    booting: float = 0.0
    """Of replicas that have been switched on and do not serve yet."""
    held: float = 0.0
    """Of GPUs that an inference service holds in a cluster of jobs."""

    def scaled(self, factor: float) -> "ByPhase":
        """Every part times *factor*."""
        return ByPhase(*(part * factor for part in self))

    def dividing(self, amount: float) -> "ByPhase":
        """*amount* divided in the proportions of the parts, whose sum is above zero."""
        total = sum(self)
        return ByPhase(*(part / total * amount for part in self))


def seconds_by_phase(interval: Interval) -> ByPhase:
    """Time of one replica in *interval* [s].

    Decode is the busy time that is neither prefill nor recompute; a step that mixes phases is split by its tokens.
    Where a part of the hardware is unused, that part of every second is idle.
    """
    decode_s = max(0.0, interval.busy_s - interval.prefill_s - interval.recompute_s)
    idle_s = max(0.0, interval.end_s - interval.start_s - interval.busy_s)
    if interval.state == "booting":
        return ByPhase(0.0, 0.0, 0.0, 0.0, idle_s)
    if interval.state == "held":
        return ByPhase(0.0, 0.0, 0.0, 0.0, held=interval.busy_s)
    if interval.unused:
        used = 1 - interval.unused
        idle_s += interval.unused * interval.busy_s
        return ByPhase(used * interval.prefill_s, used * decode_s, used * interval.recompute_s, idle_s)
    return ByPhase(interval.prefill_s, decode_s, interval.recompute_s, idle_s)


def gpu_s_by_phase(interval: Interval) -> ByPhase:
    """GPU-seconds of *interval*; all GPUs of a replica are in the same phase. [GPU s]"""
    seconds = seconds_by_phase(interval)
    return seconds.dividing(interval.gpu_s) if any(seconds) else seconds


def wall_j_by_phase(interval: Interval) -> ByPhase:
    """Energy at the wall of *interval*, as its meters tell the phases apart [J].

    A phase draws the power of its own steps: prompts keep the tensor cores busy and draw more than decodes do.
    """
    if interval.state == "booting":
        return ByPhase(0.0, 0.0, 0.0, 0.0, interval.server_energy_j)
    if interval.state == "held":
        return ByPhase(0.0, 0.0, 0.0, 0.0, held=interval.server_energy_j)
    parts = (interval.prefill_energy_j, interval.recompute_energy_j, interval.idle_energy_j)
    prefill_j, recompute_j, idle_j = parts
    return ByPhase(prefill_j, max(0.0, interval.server_energy_j - sum(parts)), recompute_j, idle_j)
