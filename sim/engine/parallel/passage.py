"""A batch on its way through the stages of a pipeline."""

from sim.records import Leap


def pass_through(free_s: list[float], ready_s: float, leap: Leap) -> float:
    """When a batch whose step is *leap* leaves the last stage, if it may enter the first one at *ready_s* [s].

    *free_s* says when each stage is free, and does so afterwards. A batch waits for each stage, not for a place behind
    it.
    """
    stage_s, left_s = leap.first_s - leap.last_s / len(free_s), ready_s
    for stage, stage_free_s in enumerate(free_s):
        free_s[stage] = left_s = max(left_s, stage_free_s) + stage_s
    free_s[-1] = left_s = left_s + leap.last_s
    return left_s
