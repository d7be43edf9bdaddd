"""What an operator sets for one rank, and what follows from it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sim.batching.policies import EngineOptions
from sim.engine.kv.blocks import BlockPool, PrefixCache
from sim.engine.kv.group_cache import GroupCache
from sim.engine.kv.tiers import Tiers
from sim.engine.lora import AdapterSlots
from sim.engine.schedulers.waiting_queue import (
    AdapterQueue,
    EntryQueue,
    FairQueue,
    FcfsQueue,
    PrefixQueue,
    PriorityQueue,
    WaitingQueue,
)
from sim.engine.sequence import Sequence
from sim.records import Request


def no_drafts(request: Request, tokens: int) -> float:
    """Keeps none."""
    return 0


NO_OPTIONS = EngineOptions.model_construct()


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """What the scheduler of a rank keeps to: sizes under vLLM's names, options, and what the pool adds to them."""

    num_gpu_blocks: int
    """KV blocks, the null block included."""
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    options: EngineOptions = NO_OPTIONS
    """Options of the scheduler as the scenario and the engine set them; the fields here are what follows from them."""
    enable_prefix_caching: bool = False
    scheduling: str = "fcfs"
    """fcfs or priority."""
    chunked_prefill: bool = True
    """A prompt beyond the step's budget is computed in chunks; else it waits for a step that holds it whole."""
    batch_wait_tokens: float = 0.0
    """Tokens of a step, those of decodes included, from which on no prompts are held back for others."""
    kv_groups: tuple[int | None, ...] = (None,)
    """Sliding windows of the groups of layers that share the pool [tokens]; None: a group that keeps all tokens, 0: one
    that keeps a block for a sequence."""
    batches_in_flight: int = 1
    """Batches whose tokens a window keeps while they are computed, and whose drafts have slots."""
    draft_tokens: int = 0
    """Tokens drafted behind each sequence that decodes, in every step."""
    accepts: Callable[[Request, int], float] = no_drafts
    """(request, tokens left of its answer) -> drafts that it keeps in a step."""
    order: Callable[[Request], Any] | None = None
    """Key by which requests wait, lowest first, then as `scheduling` says; None: by that alone."""
    new_tiers: Callable[[], Tiers] | None = None
    """Makes the tiers below a rank's KV cache; None: there are none."""
    new_adapters: Callable[[], AdapterSlots] | None = None
    """Makes a rank's slots for LoRA adapters; None: no request asks for one."""
    window: int | None = None
    """Sliding window of the model [tokens]."""
    padded_tokens: int | None = 0
    """Ranks that step together are padded to the fullest of them in steps of at most so many tokens; None: where all
    decode."""

    @property
    def caches_states(self) -> bool:
        """Whether groups that keep states leave them in the prefix cache."""
        return self.enable_prefix_caching and 0 in self.kv_groups

    def new_queue(self) -> WaitingQueue:
        """An empty queue in the order of `order` and `scheduling`."""
        if self.new_adapters is not None:
            slots = self.new_adapters()
            if self.scheduling == "fair":
                return FairQueue(lambda: AdapterQueue(slots, by_priority=False), slots)
            return AdapterQueue(slots, self.scheduling == "priority", counts=self.options.prefill_schedule_interval > 1)
        if self.order is not None:
            return PriorityQueue(self.order)
        if self.scheduling == "fair":
            return FairQueue(FcfsQueue)
        if self.options.schedule_policy == "lpm":
            return PrefixQueue()
        if self.scheduling == "priority":
            return PriorityQueue() if self.options.schedule_conservativeness is None else EntryQueue()
        return FcfsQueue() if self.options.schedule_conservativeness is None else PrefixQueue()

    def new_pool(self) -> BlockPool:
        """All blocks, free."""
        if self.kv_groups != (None,):
            return GroupCache(self.num_gpu_blocks, self.block_size, self.kv_groups, self.enable_prefix_caching)
        if not self.enable_prefix_caching:
            return BlockPool(self.num_gpu_blocks, self.block_size)
        return PrefixCache(self.num_gpu_blocks, self.block_size, self.new_tiers() if self.new_tiers else None)

    def serves(self, sequence: Sequence) -> bool:
        """Whether *sequence* fits the longest context and the whole pool; the last token made needs no KV, but drafts
        do.
        """
        tokens = sequence.request.prompt_tokens + sequence.output_tokens
        slots = tokens - 1 + self.draft_tokens * self.batches_in_flight
        blocks = sum([self.most_blocks(window, slots) for window in self.kv_groups])
        return tokens <= self.max_model_len and blocks <= self.num_gpu_blocks - 1

    def refuses(self, sequence: Sequence) -> bool:
        """Whether *sequence* can never be served; then its request is marked `rejected`."""
        if self.serves(sequence):
            return False
        sequence.request.rejected = True
        return True

    def most_blocks(self, window: int | None, tokens: int, batches: int | None = None) -> int:
        """Return the most KV blocks that a request of *tokens* tokens holds at once in a cache group with the sliding
        *window*, with the tokens of *batches* batches in flight (default: `batches_in_flight`).
        """
        blocks = -(-tokens // self.block_size)
        if window is None:
            return blocks
        if window == 0:
            return min(blocks, 1 + self.batches_in_flight * self.caches_states)
        in_flight = (self.batches_in_flight if batches is None else batches) * self.max_num_batched_tokens
        inside = min(window - 1 + in_flight, self.max_model_len)
        return min(blocks, -(-inside // self.block_size) + 1)

    def reserved_blocks(self, window: int | None, tokens: int) -> int:
        """Return the KV blocks that must be free in a group with *window* before a request of *tokens* tokens joins.

        One batch of tokens counts beside the window, however many are in flight, as in vLLM before pull request 47728.
        """
        return self.most_blocks(window, tokens, 1)
