"""A fixed number of slots, each with a context of its own, as llama.cpp and Ollama have them."""

from typing import Literal, Self

from sim.batching.limits import BatchingLimits


class Slots(BatchingLimits):
    """`max_num_seqs` slots (`--parallel`, OLLAMA_NUM_PARALLEL) of `max_model_len` tokens (num_ctx), all of it reserved.

    A step holds one token of each slot that answers, and prompts up to `max_num_batched_tokens` (n_batch) in all; a
    request longer than a slot is rejected. Slots left out: the engine's usual number if the memory holds them, else
    one. The schedule is that of `sim/engine/schedulers/reserve.py` with a slot for a block. GPUs that hold the layers
    in turn (`pipeline_parallel_size`) work one after the other.
    """

    policy: Literal["slots"]

    @property
    def block_size(self) -> int:
        """Tokens of a slot."""
        return self.max_model_len or 1

    @property
    def num_gpu_blocks(self) -> int | None:
        """Slots, and the null block that every pool has."""
        return None if self.max_num_seqs is None else self.max_num_seqs + 1

    def sized(self, blocks: int, longest: int) -> Self:
        """Unchanged: slots and their context are what the operator or the engine says."""
        return self
