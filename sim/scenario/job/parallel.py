"""How a job is spread over GPUs: the keys of `parallel`, and what of them does not divide."""

from math import isqrt
from typing import Annotated

from pydantic import Field

from sim.spec import Count, Spec, WholeNumber
from sim.training.job import Recompute


class ParallelSpec(Spec):
    """Ranks by kind of parallelism, what they share, and the batch of each."""

    dp: Count | None = None
    """Data-parallel ranks, each with its own samples; left out: what tp x pp x cp leave of the pool's GPUs."""
    tp: Count | None = None
    """Tensor-parallel ranks: GPUs that share every layer. Left out: 1."""
    pp: Count | None = None
    """Pipeline stages, which hold the layers in turn. Left out: 1."""
    cp: Count | None = None
    """Ranks that share one sequence. Left out: 1."""
    ep: Count | None = None
    """Ranks, among those of data and tensor parallelism, that routed experts are spread over. Left out: 1."""
    virtual_stages: Count | None = None
    """Chunks of layers per pipeline rank (interleaved schedule). Left out: 1."""
    zero: Annotated[WholeNumber, Field(le=3)] | None = None
    """ZeRO stage (FSDP is 3): 1 shards optimizer states over data-parallel ranks, 2 gradients too, 3 weights too."""
    sequence_parallel: bool | None = None
    """Tensor-parallel ranks divide all activations; left out: as the framework does."""
    recompute: Recompute | None = None
    """Activations computed again in the backward pass: none, selective or full. Left out: none."""
    micro_batch: Count | None = None
    """Samples that a data-parallel rank takes at once; left out: the fastest that fits the memory."""

    def over(self, below: "ParallelSpec") -> "ParallelSpec":
        """These keys, and those of *below* that are not set here."""
        mine = self.model_dump(exclude_none=True)
        return ParallelSpec.model_validate(below.model_dump(exclude_none=True) | mine)


def divisors(whole: int) -> list[int]:
    """All of *whole*, rising.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    low = [size for size in range(1, isqrt(whole) + 1) if whole % size == 0]
    return sorted({*low, *(whole // size for size in low)})
