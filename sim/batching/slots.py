"""A fixed number of slots, each with a context of its own, as llama.cpp and Ollama have them."""

from typing import Literal, Self

from sim.batching.limits import BatchingLimits

MICRO_BATCH_TOKENS = 512
"""llama.cpp's --ubatch-size: the pieces in which prompts pass from card to card."""


class SlotLimits(BatchingLimits):
    """Limits that llama.cpp alone knows."""

    policy: str
    kv_unified: bool = False
    """All slots share one cache of `max_model_len` tokens (`--kv-unified`), as llama.cpp has it since autumn 2025 where
    `--parallel` is left out. Where a step finds no place, all requests in slots end with an error."""


class Slots(SlotLimits):
    """`max_num_seqs` slots (`--parallel`, OLLAMA_NUM_PARALLEL) of `max_model_len` tokens (num_ctx), all of it reserved.

    A step holds one token of each slot that answers, and prompts up to `max_num_batched_tokens` (n_batch) in all; a
    request longer than a slot is rejected. Slots left out: the engine's usual number if the memory holds them, else
    one. The schedule is that of `sim/engine/schedulers/reserve.py` with a slot for a block. GPUs that hold the layers
    in turn (`pipeline_parallel_size`) work one after the other on answers, and on several pieces of a prompt at once.
    """

    policy: Literal["slots"]

    @property
    def block_size(self) -> int:
        """Tokens of a slot, or of a cell of the cache that they share."""
        return 1 if self.kv_unified else self.max_model_len or 1

    @property
    def num_gpu_blocks(self) -> int | None:
        """Slots, or cells of the cache that they share, and the null block that every pool has."""
        reserved = self.max_model_len if self.kv_unified else self.max_num_seqs
        return None if reserved is None else reserved + 1

    def sized(self, blocks: int, longest: int) -> Self:
        """Unchanged: slots and their context are what the operator or the engine says."""
        return self
