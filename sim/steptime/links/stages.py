"""What the stages of a pipeline have of a model's layers, of its LM head and of the host's work."""

from math import log2

from sim.steptime.inputs import RooflineInputs


def stage_shares(inputs: RooflineInputs) -> tuple[float, float, int]:
    """(share of the layers that the fullest stage has; share of all else, in the mean of the stages; stages).

    The head, the sampling and the host's work lie on one stage alone, and the others wait for it. The number of stages
    is 0 where they do not: one stage, or only one batch on its way through all of them.
    """
    stages, layers = inputs.pipeline_parallel_size, inputs.model.layers
    factor = 1.0 if inputs.serial_stages else inputs.coefficients.pipeline_time_factor_per_doubling.value
    slowdown = factor ** log2(stages)
    waiting = stages if stages > 1 and not inputs.serial_stages else 0
    return -(-layers // stages) / layers * slowdown, slowdown / stages, waiting


def others_turns_load(inputs: RooflineInputs) -> float:
    """Load of waiting for the other stages, where one works after the other, per stage's time of work.

    Pieces of a prompt keep all stages at work.
    """
    if inputs.load is None or not inputs.serial_stages:
        return 0.0
    return (inputs.pipeline_parallel_size - 1) * inputs.load(0.0, 0.0, 0.0, 1.0, 1.0)
