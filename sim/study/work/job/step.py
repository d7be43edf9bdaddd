"""Where the time of a step goes, in words."""

from sim.training.steptime import StepTime

CAUSES = {
    "matrix_s": "matrix products",
    "attention_s": "attention",
    "stream_s": "memory traffic of element-wise kernels",
    "tensor_exchange_s": "all-reduces between tensor-parallel ranks",
    "expert_exchange_s": "tokens on their way to experts",
    "stage_exchange_s": "activations between pipeline stages",
    "launch_s": "kernel launches",
    "bubble_s": "the pipeline bubble",
    "data_exchange_s": "gradients and weights between data-parallel ranks",
    "optimizer_s": "the optimizer",
    "constant_s": "fixed time of a step (data, logging, launches)",
}
"""Part of a step -> what it is."""


def parts(step: StepTime) -> dict[str, float]:
    """Seconds of *step* by cause, in the order of CAUSES."""
    return {words: float(getattr(step, field)) for field, words in CAUSES.items()}


def limited_by(step: StepTime) -> str:
    """The cause that takes most of *step*."""
    found = parts(step)
    return max(found, key=lambda cause: found[cause])
