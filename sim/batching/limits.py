"""What an operator may set under every policy."""

from typing import Literal, Self

from pydantic import model_validator

from sim.spec import Count, Fraction, Spec


class BatchingLimits(Spec):
    """Scheduler options under vLLM's names. What is left out takes the engine's default."""

    max_num_seqs: Count | None = None
    """Most sequences in one step."""
    max_num_batched_tokens: Count | None = None
    """Most new tokens in one step."""
    gpu_memory_utilization: Fraction | None = None
    """Share of the GPU's memory that the engine may take; weights and activations come out of it first."""
    max_model_len: Count | None = None
    """Longest prompt + output [tokens]; a longer request is rejected. Left out: the model's longest context."""

    @property
    def step_tokens(self) -> int | None:
        """Most new tokens that a step can have."""
        return self.max_num_batched_tokens

    @model_validator(mode="after")
    def _seats_fit_budget(self) -> Self:
        if self.max_num_seqs and self.max_num_batched_tokens and self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must not be below max_num_seqs "
                f"({self.max_num_seqs})"
            )
        return self


class PagedLimits(BatchingLimits):
    """Limits of an engine whose KV cache is cut into blocks that any request may take."""

    block_size: Count = 16
    """Tokens in one KV block."""
    num_gpu_blocks: Count | None = None
    """KV blocks, the null block included. Left out: what the memory fit leaves."""

    @model_validator(mode="after")
    def _a_block_beside_the_null_block(self) -> Self:
        if self.num_gpu_blocks == 1:
            raise ValueError("num_gpu_blocks must be at least 2: one block is the null block")
        return self

    def sized(self, blocks: int, longest: int) -> Self:
        """With the block pool and the longest request filled in: *blocks* and *longest* are what the memory leaves."""
        blocks = self.num_gpu_blocks or blocks
        held = (blocks - 1) * self.block_size  # one block is the null block
        longest = self.max_model_len or min(held, longest or held)
        return self.model_copy(update={"num_gpu_blocks": blocks, "max_model_len": longest})


class QueueLimits(PagedLimits):
    """Limits of an engine that can share prefixes and order its queue."""

    enable_prefix_caching: bool = False
    """Share the KV blocks of equal prompt prefixes."""
    scheduling: Literal["fcfs", "priority"] = "fcfs"
    """fcfs, or lower `priority` first and then by arrival."""


class OfEngine(QueueLimits):
    """The engine's own policy, with its own defaults for what is left out: what a pool without a policy gets."""

    policy: Literal["engine"] = "engine"
