"""What a step makes GPUs do: arithmetic and traffic, for the share of the peak that is used and for power."""

from dataclasses import dataclass

from sim.training.job import Job
from sim.training.steptime import (
    FUSED_ATTENTION_BACKWARD,
    OPTIMIZER_BYTES,
    WEIGHT_BYTES,
    backward_passes,
    trained_params,
)


@dataclass(frozen=True, slots=True)
class StepWork:
    """One optimizer step."""

    model_flop: float
    """What the network needs, on all GPUs together: nothing that is computed twice counts (MFU, arXiv 2204.02311)."""
    gpu_flop: float
    """What one GPU computes, repeated forward passes included."""
    gpu_bytes: float
    """What one GPU moves to and from its memory."""


def step_work(job: Job) -> StepWork:
    """Arithmetic and traffic of one step of *job*."""
    network, parallel = job.network, job.parallel
    ranks, backward = parallel.tensor * parallel.pipeline, backward_passes(job)
    again = job.recompute == "full"
    pass_flop = network.forward_flop + network.head_flop
    attention_flop = 4 * network.attention_width * job.context
    needed = (pass_flop + attention_flop) * (1 + backward)
    flop = network.forward_flop * (1 + backward + again) + network.head_flop * (1 + backward)
    flop += attention_flop * (1 + FUSED_ATTENTION_BACKWARD + (job.recompute != "none"))
    wide = 2 if job.precision in ("fp32", "tf32") else 1
    weights = WEIGHT_BYTES * job.held_params * (1 + backward + again)
    moved = weights * wide + network.stream_bytes * wide * (3 + again) * job.units
    shards = ranks * (parallel.data * parallel.context if parallel.zero else 1)
    return StepWork(
        model_flop=needed * job.global_batch * job.sequence * job.fill,
        gpu_flop=flop * job.units * job.micro_batches / ranks,
        gpu_bytes=moved * job.micro_batches / ranks + OPTIMIZER_BYTES * trained_params(job) / shards,
    )
