"""Continuous batching as vLLM's V1 scheduler does it: the limits that an operator sets."""

from typing import Literal, Self

from pydantic import model_validator

from sim.spec import Count, Fraction, Spec


class Vllm(Spec):
    """vLLM's scheduler options, under vLLM's own names. What is left out takes the engine's default.

    `sim/engine/vllm.py` holds the rules that these limits steer.
    """

    policy: Literal["vllm"] = "vllm"
    max_num_seqs: Count | None = None
    """Most sequences in one step (seats)."""
    max_num_batched_tokens: Count | None = None
    """Most new tokens in one step; longer prompts are computed in chunks."""
    gpu_memory_utilization: Fraction | None = None
    """Share of the GPU's memory that the engine may take; weights and activations come out of it first."""
    block_size: Count = 16
    """Tokens in one KV block."""
    num_gpu_blocks: Count | None = None
    """KV blocks, the null block included. Left out: what the memory fit leaves."""
    max_model_len: Count | None = None
    """Longest prompt + output [tokens]; a longer request is rejected. Left out: the model's longest context."""
    enable_prefix_caching: bool = False
    """Share the KV blocks of equal prompt prefixes."""
    scheduling: Literal["fcfs", "priority"] = "fcfs"
    """fcfs, or lower `priority` first and then by arrival."""

    @model_validator(mode="after")
    def _seats_fit_budget(self) -> Self:
        if self.max_num_seqs and self.max_num_batched_tokens and self.max_num_batched_tokens < self.max_num_seqs:
            budget, seats = self.max_num_batched_tokens, self.max_num_seqs
            raise ValueError(f"max_num_batched_tokens ({budget}) must not be below max_num_seqs ({seats})")
        if self.num_gpu_blocks == 1:
            raise ValueError("num_gpu_blocks must be at least 2: one block is the null block")
        return self
