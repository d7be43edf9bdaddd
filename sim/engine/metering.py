"""Running totals of an engine's steps, records of them, and durations of leaps."""

from math import sqrt

from sim.records import Batch, Leap, Meters


class RecordedSteps:
    """Completed equal steps of one rank, without their durations."""

    __slots__ = ("admitted", "batch", "left", "recomputed", "steps")

    def __init__(self, batch: Batch, recomputed: int, steps: int, admitted: int, left: int) -> None:
        self.batch = batch
        """Batch of the first step."""
        self.recomputed = recomputed
        """Tokens of each step that had been computed before."""
        self.steps = steps
        """Number of steps."""
        self.admitted = admitted
        """Number of admissions up to the first step."""
        self.left = left
        """Number of requests that left at the end of the last step."""


def book(
    meters: Meters,
    batch: Batch,
    recomputed: int,
    blocked_by: str,
    duration_s: float,
    load_s: float,
    steps: int,
    second_load_s: float = 0.0,
) -> None:
    """Add *steps* whole steps of *batch* to *meters*.

    Parameters
    ----------
    meters
        Totals to add to.
    batch
        Batch of each step.
    recomputed
        Tokens of the batch that had been computed before.
    blocked_by
        Reason why the head of the queue is not in the batch; empty if there is none.
    duration_s
        Time of the steps [s].
    load_s
        Integral of the GPU load over this time [s of full load].
    steps
        Whole steps completed.
    second_load_s
        Integral of the load under a second power law [s of full load]; 0 without one.

    Notes
    -----
    The time and the load of a step with prompts and decodes are split by new tokens. A step in progress has a
    duration and no whole step: its time counts, its tokens do not yet.

    """
    decodes, prefill = batch.decode_seqs, batch.prefill_tokens
    meters.busy_s += duration_s
    meters.load_s += load_s
    meters.steps += steps
    meters.sequence_s += duration_s * (decodes + batch.prefill_seqs)
    meters.output_tokens += batch.sampled_seqs * steps
    if second_load_s:  # its meters lie in a cache line that other steps need not write
        meters.second_load_s += second_load_s
    if batch.draft_tokens:
        decodes += batch.draft_tokens
        meters.accepted_tokens += batch.accepted_tokens * steps
    if prefill:
        meters.mixed_s += duration_s
        meters.mixed_sequence_s += duration_s * (batch.decode_seqs + batch.prefill_seqs)
        meters.mixed_decode_s += duration_s * batch.decode_seqs
        meters.mixed_steps += steps
        per_token_s = duration_s / (decodes + prefill)
        meters.prefill_s += per_token_s * (prefill - recomputed)
        meters.recompute_s += per_token_s * recomputed
        per_token_load_s = load_s / (decodes + prefill)
        meters.prefill_load_s += per_token_load_s * (prefill - recomputed)
        meters.recompute_load_s += per_token_load_s * recomputed
        if second_load_s:
            per_token_load_s = second_load_s / (decodes + prefill)
            meters.second_prefill_load_s += per_token_load_s * (prefill - recomputed)
            meters.second_recompute_load_s += per_token_load_s * recomputed
        meters.prompt_tokens += (prefill - recomputed) * steps
        meters.recomputed_tokens += recomputed * steps
    if not blocked_by:
        return
    if blocked_by == "seats":
        meters.seats_blocked_s += duration_s
    elif blocked_by == "kv":
        meters.kv_blocked_s += duration_s
    elif blocked_by == "adapters":
        meters.adapters_blocked_s += duration_s
    else:
        meters.budget_blocked_s += duration_s


def leap_s(leap: Leap, steps: int) -> float:
    """Return the duration of the first *steps* steps of *leap*, an arithmetic series [s]."""
    return steps * leap.first_s + leap.growth_s * (steps * (steps - 1) / 2)


def steps_within(leap: Leap, elapsed_s: float, most: int) -> int:
    """Return the most steps, at most *most*, that fit into *elapsed_s*: the inverse of `leap_s`, rounded down."""
    steps = _inverse(leap, elapsed_s, most)
    while steps < most and leap_s(leap, steps + 1) <= elapsed_s:
        steps += 1
    while steps > 0 and leap_s(leap, steps) > elapsed_s:
        steps -= 1
    return steps


def cut_steps(leap: Leap, start_s: float, now: float, most: int) -> int:
    """Return how many steps, 1 to *most*, a leap from *start_s* takes to a step boundary at or after *now*."""
    steps = max(1, steps_within(leap, now - start_s, most))
    if steps < most and start_s + leap_s(leap, steps) < now:
        steps += 1
    return steps


def _inverse(leap: Leap, elapsed_s: float, most: int) -> int:
    """Return a root of growth/2 k^2 + (first - growth/2) k = elapsed, close enough for `steps_within` to correct."""
    half = leap.growth_s / 2
    linear = leap.first_s - half
    if half > 0:
        # this form of the root does not cancel where growth is small relative to the first step
        root = 2 * elapsed_s / (linear + sqrt(linear * linear + 4 * half * elapsed_s))
    elif leap.first_s > 0:
        root = elapsed_s / leap.first_s
    else:
        root = float(most)
    return max(0, min(most, int(root)))
