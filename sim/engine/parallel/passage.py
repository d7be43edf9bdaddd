"""A batch on its way through the stages of a pipeline."""

from sim.records import Leap


def pass_through(free_s: list[float], ready_s: float, leap: Leap, pieces: int = 1) -> float:
    """When a batch whose step is *leap* leaves the last stage, if it may enter the first one at *ready_s* [s].

    *free_s* says when each stage is free, and does so afterwards. A batch waits for each stage, not for a place behind
    it. Of several *pieces* each is handed on as soon as a stage has it.
    """
    stage_s, enters_s = leap.first_s - leap.last_s / len(free_s), ready_s
    for stage, stage_free_s in enumerate(free_s):
        enters_s = max(enters_s, stage_free_s)
        free_s[stage] = enters_s + stage_s
        enters_s += stage_s / pieces
    free_s[-1] += leap.last_s
    return free_s[-1]
