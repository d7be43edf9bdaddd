"""Records that pass between the packages: dataclasses with slots and without behaviour beyond derived values."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, nan
from math import pow as float_power
from typing import Any, Final, Protocol, SupportsIndex

from sim.native import mypyc_attr

ONLY_SERVICE = "default"  # name of the only service of a scenario


@dataclass(frozen=True, slots=True)
class ReplicaProgress:
    """Progress of a request on a replica."""

    computed_tokens: int
    """Tokens of prompt and answer that have KV on the replica."""
    output_tokens: int
    """Tokens of the answer that were made, there or before."""

    # pickle and copy cannot restore a compiled class that is frozen or needs arguments, so this record and those below
    # help
    def __reduce__(self) -> tuple[Any, ...]:
        return ReplicaProgress, (self.computed_tokens, self.output_tokens)


@mypyc_attr(acyclic=True)
@dataclass(slots=True)
class BusyTime:
    """Busy time of one replica attributed to a request in the window, where attribution is on."""

    prefill_s: float = 0.0
    """Time for prompt tokens computed for the first time [s]."""
    recompute_s: float = 0.0
    """Time for tokens computed again after a preemption, or after a visit to another replica [s]."""
    decode_s: float = 0.0
    """Time for tokens after the first [s]."""


@dataclass(frozen=True, slots=True)
class ReplicaVisit:
    """Visit of a request to one replica."""

    replica: int
    came_s: float
    left_s: float
    """End of the visit [s]; nan while it lasts, and for good if it never ends."""
    progress: ReplicaProgress | None = None
    """Progress when the request was removed from the replica; None if it was not."""
    busy: BusyTime = field(default_factory=BusyTime)

    def __reduce__(self) -> tuple[Any, ...]:
        return ReplicaVisit, (self.replica, self.came_s, self.left_s, self.progress, self.busy)


@mypyc_attr(acyclic=True)
@dataclass(slots=True, eq=False)
class RequestOptions:
    """Fields that most requests leave at their defaults; such requests share `DEFAULT_OPTIONS`."""

    block_hashes: Sequence[int] = ()
    """Ids of the leading blocks that other requests may share, `hash_block_tokens` tokens each."""
    hash_block_tokens: int = 1
    service: str = ONLY_SERVICE
    """Service that the request is for."""
    session: str = ""
    """Conversation that the request belongs to, as turn number `turn`, from 1; empty if it belongs to none."""
    turn: int = 0
    tenant: str = ""
    """Tenant of the request, with its `weight` where `scheduling: fair`; empty without tenants."""
    weight: float = 1.0
    adapter: str = ""
    """LoRA adapter of the request; empty: the base model."""
    prefill_replica: int = -1
    """Replica that computed the prompt, if another replica answers."""
    kv_transfer_s: float = nan
    """Time from the end of the prompt until its KV was at the answering replica, waiting included [s]."""
    left: tuple[ReplicaVisit, ...] = ()
    """Visits to replicas before the current one."""
    rejected: bool = False
    """True if the request can never fit, and was refused."""
    attempts: int = 1
    """Number of times that the request has been sent."""
    kept_tokens: int = 0
    """Tokens of the answer that an earlier attempt streamed; this attempt computes their KV and makes the others
    only."""
    gave_up: str = ""
    """timed_out or lost, where the client has given up; empty otherwise."""
    busy: BusyTime = field(default_factory=BusyTime)
    """Busy time at the current or last replica. It is never written in `DEFAULT_OPTIONS`: attribution gives each
    request its own."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        return "DEFAULT_OPTIONS" if self is DEFAULT_OPTIONS else object.__reduce_ex__(self, protocol)


DEFAULT_OPTIONS = RequestOptions()


@mypyc_attr(acyclic=True)
class Request:
    """Request with its timestamps, each set once; nan before [s].

    Up to millions are in memory at once, so rarely used fields are in `options`; they are read and written as fields of
    the request.
    """

    __slots__ = (
        *("arrived_s", "came_s", "started_s", "first_token_s", "finished_s", "cached_tokens", "preemptions"),
        *("index", "prompt_tokens", "output_tokens", "priority", "replica", "options"),
    )

    def __init__(
        self, index: int, arrived_s: float, prompt_tokens: int, output_tokens: int, priority: int = 0, **further: Any
    ) -> None:
        self.finished_s, self.replica = nan, -1  # first what the end of a request reads and writes
        """Time at which the last token was there, and current or last replica."""
        self.index, self.arrived_s = index, arrived_s
        """Position in the order of arrival, from 0, and time of arrival at the router."""
        self.prompt_tokens, self.output_tokens = prompt_tokens, output_tokens
        """Lengths of prompt (0 for a unit of work) and answer; servers do not know the latter before its end."""
        self.priority = priority
        """Priority; lower goes first with `scheduling: priority`."""
        self.came_s = nan
        """Time of arrival at this replica."""
        self.started_s = nan
        """Start of the first step that works on the request."""
        self.first_token_s = nan
        """Time at which the first token was there."""
        self.cached_tokens = 0
        """Prompt tokens in the prefix cache at admission."""
        self.preemptions = 0
        """Number of times that the request lost its KV cache and was computed again."""
        self.options = DEFAULT_OPTIONS
        for name, value in further.items():
            setattr(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        names = ("priority", "replica", "came_s", "started_s", "first_token_s", "finished_s")
        further = {name: getattr(self, name) for name in (*names, "cached_tokens", "preemptions", "options")}
        return _request, (self.index, self.arrived_s, self.prompt_tokens, self.output_tokens, further)

    def _own(self) -> RequestOptions:
        """Return the request's own options, which it gets at the first change of one."""
        if self.options is DEFAULT_OPTIONS:
            self.options = RequestOptions()
        return self.options

    # one property for each field of `RequestOptions`, since compiled classes have no generated properties

    @property
    def block_hashes(self) -> Sequence[int]:
        """See `RequestOptions.block_hashes`."""
        return self.options.block_hashes

    @block_hashes.setter
    def block_hashes(self, value: Sequence[int]) -> None:
        self._own().block_hashes = value

    @property
    def hash_block_tokens(self) -> int:
        """See `RequestOptions.hash_block_tokens`."""
        return self.options.hash_block_tokens

    @hash_block_tokens.setter
    def hash_block_tokens(self, value: int) -> None:
        self._own().hash_block_tokens = value

    @property
    def service(self) -> str:
        """See `RequestOptions.service`."""
        return self.options.service

    @service.setter
    def service(self, value: str) -> None:
        self._own().service = value

    @property
    def session(self) -> str:
        """See `RequestOptions.session`."""
        return self.options.session

    @session.setter
    def session(self, value: str) -> None:
        self._own().session = value

    @property
    def turn(self) -> int:
        """See `RequestOptions.turn`."""
        return self.options.turn

    @turn.setter
    def turn(self, value: int) -> None:
        self._own().turn = value

    @property
    def tenant(self) -> str:
        """See `RequestOptions.tenant`."""
        return self.options.tenant

    @tenant.setter
    def tenant(self, value: str) -> None:
        self._own().tenant = value

    @property
    def weight(self) -> float:
        """See `RequestOptions.weight`."""
        return self.options.weight

    @weight.setter
    def weight(self, value: float) -> None:
        self._own().weight = value

    @property
    def adapter(self) -> str:
        """See `RequestOptions.adapter`."""
        return self.options.adapter

    @adapter.setter
    def adapter(self, value: str) -> None:
        self._own().adapter = value

    @property
    def prefill_replica(self) -> int:
        """See `RequestOptions.prefill_replica`."""
        return self.options.prefill_replica

    @prefill_replica.setter
    def prefill_replica(self, value: int) -> None:
        self._own().prefill_replica = value

    @property
    def kv_transfer_s(self) -> float:
        """See `RequestOptions.kv_transfer_s`."""
        return self.options.kv_transfer_s

    @kv_transfer_s.setter
    def kv_transfer_s(self, value: float) -> None:
        self._own().kv_transfer_s = value

    @property
    def left(self) -> tuple[ReplicaVisit, ...]:
        """See `RequestOptions.left`."""
        return self.options.left

    @left.setter
    def left(self, value: tuple[ReplicaVisit, ...]) -> None:
        self._own().left = value

    @property
    def rejected(self) -> bool:
        """See `RequestOptions.rejected`."""
        return self.options.rejected

    @rejected.setter
    def rejected(self, value: bool) -> None:
        self._own().rejected = value

    @property
    def attempts(self) -> int:
        """See `RequestOptions.attempts`."""
        return self.options.attempts

    @attempts.setter
    def attempts(self, value: int) -> None:
        self._own().attempts = value

    @property
    def kept_tokens(self) -> int:
        """See `RequestOptions.kept_tokens`."""
        return self.options.kept_tokens

    @kept_tokens.setter
    def kept_tokens(self, value: int) -> None:
        self._own().kept_tokens = value

    @property
    def gave_up(self) -> str:
        """See `RequestOptions.gave_up`."""
        return self.options.gave_up

    @gave_up.setter
    def gave_up(self, value: str) -> None:
        self._own().gave_up = value

    @property
    def busy(self) -> BusyTime:
        """See `RequestOptions.busy`."""
        return self.options.busy

    @busy.setter
    def busy(self, value: BusyTime) -> None:
        self._own().busy = value

    @property
    def given_up(self) -> bool:
        """True if the request ended without an answer, although the fleet could have served it."""
        return self.gave_up != ""

    @property
    def status(self) -> str:
        """Outcome of the request: finished, rejected, timed_out or lost; unfinished before."""
        if self.rejected:
            return "rejected"
        return "finished" if self.finished_s == self.finished_s else self.gave_up or "unfinished"

    @property
    def hops(self) -> list[ReplicaVisit]:
        """Visits to replicas, the current or last one at the end; empty before the first."""
        here = [] if self.replica < 0 else [ReplicaVisit(self.replica, self.came_s, self.finished_s, None, self.busy)]
        return [*self.left, *here]

    @property
    def shared_tokens(self) -> int:
        """Leading tokens of prompt and answer covered by whole blocks of the trace, which other requests may share."""
        hashes, size = self.options.block_hashes, self.options.hash_block_tokens
        return min(len(hashes), (self.prompt_tokens + self.output_tokens) // size) * size if hashes else 0


def _request(index: int, arrived_s: float, prompt_tokens: int, output_tokens: int, further: dict[str, Any]) -> Request:
    """Return the request with these fields, for pickle and copy."""
    return Request(index, arrived_s, prompt_tokens, output_tokens, **further)


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class Batch:
    """Engine step of one rank as sums: the inputs of a step-time model. Contexts are tokens computed before."""

    decode_seqs: int = 0
    """Number of sequences that get one new token."""
    draft_tokens: int = 0
    """Drafted tokens of the decoding sequences, computed after the one that each of them gets."""
    kv_tokens: int = 0
    """Sum of the contexts of the decoding sequences [tokens]."""
    sampled_seqs: int = 0
    """Number of sequences that yield a token: decodes and last prompt chunks."""
    prefill_seqs: int = 0
    """Number of prompt chunks in the step."""
    prefill_tokens: int = 0
    """New prompt tokens in the step."""
    windowed_kv_tokens: int = 0
    """Sum of the decoding sequences' contexts, each capped at the model's sliding window [tokens]."""
    windowed_growing_seqs: int = 0
    """Number of decoding sequences whose context is below the window."""
    prefill_context_tokens: int = 0
    """Sum over chunks of the tokens computed before the chunk."""
    prefill_attention_pairs: int = 0
    """Sum over chunks of c*k + c(c+1)/2: query-key pairs of c new tokens after k earlier ones."""
    accepted_tokens: float = 0.0
    """Drafted tokens that are accepted: tokens of the decoding sequences beyond one each."""
    adapters: int = 0
    """Number of different LoRA adapters of the sequences; `adapted_tokens`: new tokens of the sequences with
    adapters."""
    adapted_tokens: int = 0
    standing_seqs: int = 0
    """Number of sequences of other batches in flight that the scheduler visits when it forms this batch."""
    replica_tokens: int = 0
    """New tokens of all data-parallel ranks that step together; 0: as many on each rank as on this one."""

    def __init__(
        self,
        decode_seqs: int = 0,
        draft_tokens: int = 0,
        kv_tokens: int = 0,
        sampled_seqs: int = 0,
        prefill_seqs: int = 0,
        prefill_tokens: int = 0,
        windowed_kv_tokens: int = 0,
        windowed_growing_seqs: int = 0,
        prefill_context_tokens: int = 0,
        prefill_attention_pairs: int = 0,
        accepted_tokens: float = 0.0,
        adapters: int = 0,
        adapted_tokens: int = 0,
        standing_seqs: int = 0,
        replica_tokens: int = 0,
    ) -> None:
        # not generated by `dataclass`: compiled code calls this method directly
        self.decode_seqs, self.draft_tokens, self.sampled_seqs = decode_seqs, draft_tokens, sampled_seqs
        self.kv_tokens, self.windowed_kv_tokens = kv_tokens, windowed_kv_tokens
        self.windowed_growing_seqs = windowed_growing_seqs
        self.prefill_seqs, self.prefill_tokens = prefill_seqs, prefill_tokens
        self.prefill_context_tokens = prefill_context_tokens
        self.prefill_attention_pairs = prefill_attention_pairs
        self.accepted_tokens = accepted_tokens
        self.adapters, self.adapted_tokens = adapters, adapted_tokens
        self.standing_seqs, self.replica_tokens = standing_seqs, replica_tokens


SHARPNESS: Final = 4
"""Exponent of the bend of power at the limit, chosen with the fit (docs/fidelity-power.md)."""


@dataclass(frozen=True, slots=True)
class LoadLaw:
    """Load of a GPU in a step, from 0 at idle power to 1 at its limit (`sim.power.load_law`).

    Each coefficient is a power relative to the range between idle and the limit.
    """

    compute: float
    """Share drawn by the tensor cores at their dense peak at 16 bit."""
    memory: float
    """Share drawn by memory that is read all the time."""
    token: float = 0.0
    """Share drawn by one token per second in all layers [s]."""
    running: float = 0.0
    """Share drawn while any kernel runs."""
    waiting: float = 1.0
    """Fraction of `running` while kernels wait for other GPUs."""

    def __reduce__(self) -> tuple[Any, ...]:
        return LoadLaw, (self.compute, self.memory, self.token, self.running, self.waiting)

    def load(
        self,
        compute_share: float,
        memory_share: float,
        tokens_per_s: float,
        busy_share: float = 1.0,
        linked_share: float = 0.0,
    ) -> float:
        """Return the load of a step, 0 to 1.

        Parameters
        ----------
        compute_share
            Share of time at the dense peak, in any arithmetic.
        memory_share
            Share of time in which memory is read.
        tokens_per_s
            New tokens per second.
        busy_share
            Share of time in which the GPU does not wait for the host.
        linked_share
            Share of time in which it waits for other GPUs.

        Notes
        -----
        z = running * (busy_share - (1 - waiting) * linked_share)
        + compute * compute_share + memory * memory_share + token * tokens_per_s; load = z / (1 + z^4)^(1/4).

        """
        work = self.compute * compute_share + self.memory * memory_share + self.token * tokens_per_s
        z = self.running * (busy_share - (1.0 - self.waiting) * linked_share) + work
        # compiled code calls C's function; `**` goes through objects
        return z / float_power(1.0 + float_power(z, float(SHARPNESS)), 1.0 / SHARPNESS)


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class Leap:
    """Steps of an unchanging batch: step j < `valid_steps` takes `first_s + j * growth_s`; `load` is 0 (idle) to 1."""

    first_s: float
    growth_s: float = 0.0
    valid_steps: float = inf
    load: float = 1.0
    last_s: float = 0.0
    """Additional time of the last stage of a pipeline over the mean stage, whose time is `first_s` [s]."""
    second_load: float = 0.0
    """Load under the step time's second power law; 0 without one."""
    stages_more_s: tuple[float, ...] = ()
    """Additional time of each pipeline stage over the mean stage, `last_s` apart [s]; empty if all are equal."""

    def __init__(
        self,
        first_s: float,
        growth_s: float = 0.0,
        valid_steps: float = inf,
        load: float = 1.0,
        last_s: float = 0.0,
        second_load: float = 0.0,
        stages_more_s: tuple[float, ...] = (),
    ) -> None:
        self.first_s, self.growth_s = first_s, growth_s
        self.valid_steps, self.load, self.last_s = valid_steps, load, last_s
        self.second_load, self.stages_more_s = second_load, stages_more_s

    def __reduce__(self) -> tuple[Any, ...]:
        steps = self.first_s, self.growth_s, self.valid_steps
        return Leap, (*steps, self.load, self.last_s, self.second_load, self.stages_more_s)


class StepTime(Protocol):
    """Step-time model: durations of steps, which are all that an engine knows about the hardware."""

    __slots__ = ()

    @property
    def window(self) -> int | None:
        """Sliding window of the model [tokens]; None without one."""

    def leap(self, batch: Batch) -> Leap:
        """Return the duration of the next steps of *batch*; with pipeline parallelism that of one stage."""

    def breakdown(self, batch: Batch) -> dict[str, float]:
        """Return the time of the first step by cause [s]: compute, memory, attention, link, overhead."""


@dataclass(frozen=True, slots=True)
class StepSpan:
    """Consecutive equal steps of one batch, for observers of single steps."""

    start_s: float
    end_s: float
    steps: int
    batch: Batch
    """Batch of the first step."""
    blocked_by: str
    """Reason why the head of the queue is not in the step: seats, kv, budget, adapters or empty."""
    prompts: dict[int, int]
    """Request index -> prompt tokens in the step."""
    decoding: frozenset[int]
    """Indices of the requests that decode in the step."""
    place: str = ""
    """Place of the request asked about: running, queued, unread (by the scheduler), intake (unread by the API server)
    or empty."""


@mypyc_attr(acyclic=True)
@dataclass(slots=True)
class Meters:
    """Running totals of one replica since its start. Steps are split by tokens into prefill, recompute and decode."""

    # those that each step changes come first: they are in one line of the CPU's caches
    busy_s: float = 0.0
    load_s: float = 0.0
    """Integral of `Leap.load` over busy time, from which power follows [s]."""
    sequence_s: float = 0.0
    """Integral of the sequences in the step over busy time [s]; divided by busy_s it is the mean batch."""
    steps: int = 0
    output_tokens: int = 0
    prefill_s: float = 0.0
    recompute_s: float = 0.0
    prefill_load_s: float = 0.0
    """Part of `load_s` for prompt tokens computed for the first time [s]."""
    recompute_load_s: float = 0.0
    """Part of `load_s` for tokens computed again [s]."""
    mixed_s: float = 0.0
    """Busy time of steps with prompts, including their decodes [s]."""
    mixed_sequence_s: float = 0.0
    """Part of `sequence_s` in steps with prompts [s]."""
    mixed_decode_s: float = 0.0
    """Part of `mixed_sequence_s` of decoding sequences [s]."""
    mixed_steps: int = 0
    """Number of steps with prompts."""
    prompt_tokens: int = 0
    """Prompt tokens computed for the first time (cache hits excluded)."""
    cached_tokens: int = 0
    accepted_tokens: float = 0.0
    """Accepted drafts; they are not among `output_tokens` until the meters are read."""
    recomputed_tokens: int = 0
    preemptions: int = 0
    kv_peak_blocks: int = 0
    seats_blocked_s: float = 0.0
    """Busy time with a request waiting for a place in the batch (max_num_seqs) [s]."""
    kv_blocked_s: float = 0.0
    """Busy time with a request waiting for KV blocks [s]."""
    budget_blocked_s: float = 0.0
    """Busy time with a request waiting for token budget (max_num_batched_tokens) [s]."""
    adapters_blocked_s: float = 0.0
    """Busy time with requests waiting for a LoRA adapter slot (max_loras), and for nothing else [s]."""
    second_load_s: float = 0.0
    """Integral of `Leap.second_load` over busy time [s], as `load_s` is that of `Leap.load`."""
    second_prefill_load_s: float = 0.0
    """Part of `second_load_s` for prompt tokens computed for the first time [s]."""
    second_recompute_load_s: float = 0.0
    """Part of `second_load_s` for tokens computed again [s]."""


@dataclass(slots=True)
class Interval:
    """Quantities of one replica between two meter readings, without costs."""

    pool: str
    server: str
    replica: int
    state: str
    """State of the replica (sim/fleet/replica.py); in a cluster of jobs `held` for the GPUs of an inference service."""
    start_s: float
    end_s: float
    gpu_s: float
    busy_s: float = 0.0
    prefill_s: float = 0.0
    recompute_s: float = 0.0
    gpu_energy_j: float = 0.0
    server_energy_j: float = 0.0
    """Energy at the wall: GPUs, server base load and power-supply loss [J]."""
    prefill_energy_j: float = 0.0
    """Energy at the wall for prompts computed for the first time [J]."""
    recompute_energy_j: float = 0.0
    """Energy at the wall for tokens computed again after a preemption [J]."""
    idle_energy_j: float = 0.0
    """Energy at the wall while no step ran [J]; the rest of the energy went to decoding."""
    peak_w: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    recomputed_tokens: int = 0
    service: str = ONLY_SERVICE
    unused: float = 0.0
    """Fraction of its GPUs and server that is paid for and idle: unused MIG slices."""

    @property
    def middle_s(self) -> float:
        """Middle between start and end [s]; it determines on which side of a meter reading the interval is."""
        return (self.start_s + self.end_s) / 2

    def is_within(self, start_s: float, end_s: float) -> bool:
        """Return whether the interval is in the window [start, end) [s], whose edges it does not straddle."""
        return start_s <= self.middle_s < end_s


@dataclass(slots=True)
class FleetLog:
    """Log of a simulated fleet."""

    requests: Sequence[Request]
    """Requests in order of arrival."""
    intervals: list[Interval]
    meters: list[Meters]
    """Totals inside the window, one per replica."""
    pool_of_replica: list[int]
    """Position of each replica's pool in the plan."""
    end_s: float
    """Time at which the last request had finished, or of the drain limit [s]."""
    kv_sent_bytes: dict[int, float] = field(default_factory=dict)
    """Position of a prefill pool -> KV bytes that it sent inside the window."""
    numbers: Sequence[int] | None = None
    """Numbers of the replicas in the fleet, which visits refer to; None: 0, 1, 2, ..."""
    second_intervals: list[Interval] = field(default_factory=list)
    """The same intervals with the energy under the pools' second power (`PoolPlan.second_power`); empty without one."""

    @property
    def pool_by_number(self) -> dict[int, int]:
        """Replica number as in `ReplicaVisit` -> position of its pool in the plan."""
        numbers = range(len(self.pool_of_replica)) if self.numbers is None else self.numbers
        return dict(zip(numbers, self.pool_of_replica, strict=True))
