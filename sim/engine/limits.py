"""Limits of one rank's scheduler, and the queue and the KV blocks that follow from them."""

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
    """Return 0: without speculative decoding no drafts are accepted."""
    return 0


NO_OPTIONS = EngineOptions.model_construct()


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """Limits of the scheduler of one rank: sizes under vLLM's names, options, and resources set by the pool."""

    num_gpu_blocks: int
    """Number of KV blocks, the null block included."""
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    options: EngineOptions = NO_OPTIONS
    """Options of the scheduler as set by the scenario and the engine; the fields here are derived from them."""
    enable_prefix_caching: bool = False
    scheduling: str = "fcfs"
    """Order of the waiting queue: fcfs, priority or fair."""
    chunked_prefill: bool = True
    """True if a prompt beyond the step's budget is computed in chunks; otherwise it waits for a step that has room for
    it."""
    batch_wait_tokens: float = 0.0
    """Tokens of a step, decodes included, from which on prompts are not held back to wait for others."""
    kv_groups: tuple[int | None, ...] = (None,)
    """Sliding window of each group of layers that shares the pool [tokens]. None: the group keeps all tokens; 0: it
    keeps one block per sequence."""
    batches_in_flight: int = 1
    """Number of batches in flight: a window keeps their tokens while they are computed, and their drafts have slots."""
    draft_tokens: int = 0
    """Tokens drafted behind each decoding sequence in every step."""
    accepts: Callable[[Request, int], float] = no_drafts
    """Function from a request and the tokens left of its answer to the mean drafts accepted per step."""
    order: Callable[[Request], Any] | None = None
    """Key of the waiting order, lowest first, ties as in `scheduling`; None: `scheduling` alone."""
    new_tiers: Callable[[], Tiers] | None = None
    """Constructor of the tiers below a rank's KV cache; None: there are none."""
    new_adapters: Callable[[], AdapterSlots] | None = None
    """Constructor of a rank's slots for LoRA adapters; None: no request needs an adapter."""
    window: int | None = None
    """Sliding window of the model [tokens]."""
    overlaps_chunks: bool = False
    """True if chunks of one prompt follow each other through the pipeline stages, in whichever lane is formed next."""
    overlaps_batches: bool = True
    """True if several pipeline stages compute at once, each another batch; otherwise a batch enters the first stage
    when the one before it has left the last."""
    padded_tokens: tuple[float, float] = (0, 0)
    """Maximum tokens of a step with prompts, and of one without, in which ranks that step together are padded to the
    fullest one."""

    @property
    def caches_states(self) -> bool:
        """True if groups that keep states leave them in the prefix cache."""
        return self.enable_prefix_caching and 0 in self.kv_groups

    def new_queue(self) -> WaitingQueue:
        """Return an empty queue in the order of `order` and `scheduling`."""
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
        """Return a pool with all blocks free."""
        if self.kv_groups != (None,):
            return GroupCache(self.num_gpu_blocks, self.block_size, self.kv_groups, self.enable_prefix_caching)
        if not self.enable_prefix_caching:
            return BlockPool(self.num_gpu_blocks, self.block_size)
        return PrefixCache(self.num_gpu_blocks, self.block_size, self.new_tiers() if self.new_tiers else None)

    def serves(self, sequence: Sequence) -> bool:
        """Return whether *sequence* fits the longest context and the whole pool.

        The last token made needs no KV, but drafts do.
        """
        tokens = sequence.request.prompt_tokens + sequence.output_tokens
        slots = tokens - 1 + self.draft_tokens * self.batches_in_flight
        blocks = 0
        for window in self.kv_groups:
            blocks += self.most_blocks(window, slots)
        return tokens <= self.max_model_len and blocks <= self.num_gpu_blocks - 1

    def refuses(self, sequence: Sequence) -> bool:
        """Return whether *sequence* can never be served; if so, mark its request as `rejected`."""
        if self.serves(sequence):
            return False
        sequence.request.rejected = True
        return True

    def most_blocks(self, window: int | None, tokens: int, batches: int | None = None) -> int:
        """Return the most KV blocks that a request of *tokens* tokens holds at once in one cache group.

        Parameters
        ----------
        window
            Sliding window of the group [tokens]; None: the group keeps all tokens, 0: it keeps states.
        tokens
            Tokens of prompt and answer that need KV.
        batches
            Number of batches in flight whose tokens the window keeps. Default: `batches_in_flight`.

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

        One batch of tokens counts in addition to the window, however many are in flight, as in vLLM before pull request
        47728.
        """
        return self.most_blocks(window, tokens, 1)
