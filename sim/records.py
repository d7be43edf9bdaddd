"""What flows between the layers: plain slots dataclasses, no behaviour beyond a derived date."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, nan
from operator import attrgetter
from typing import Any, Protocol, SupportsIndex, TypeVar, cast

ONLY_SERVICE = "default"  # where a scenario has but one
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReplicaProgress:
    """How far a request has come on a replica."""

    computed_tokens: int
    """Tokens of prompt and answer that have KV there."""
    output_tokens: int
    """Tokens of the answer that were made, there or before."""


@dataclass(slots=True)
class BusyTime:
    """What a request took of one replica's busy time in the window, where asked for [s]."""

    prefill_s: float = 0.0
    """Prompt tokens computed for the first time."""
    recompute_s: float = 0.0
    """Tokens computed again after a preemption, or after a visit to another replica."""
    decode_s: float = 0.0
    """Tokens after the first."""


@dataclass(frozen=True, slots=True)
class ReplicaVisit:
    """A request's visit to one replica."""

    replica: int
    came_s: float
    left_s: float
    """nan while it is there, and for good if it never leaves."""
    progress: ReplicaProgress | None = None
    """How far it had come when it was taken away; None if it was not."""
    busy: BusyTime = field(default_factory=BusyTime)


@dataclass(slots=True, eq=False)
class RequestOptions:
    """What most requests do not say. Those share `USUAL`; who says something has one of its own."""

    block_hashes: Sequence[int] = ()
    """Ids of the leading blocks that it may share with others, `hash_block_tokens` tokens each."""
    hash_block_tokens: int = 1
    service: str = ONLY_SERVICE
    """Which of several services it asks."""
    session: str = ""
    """The conversation that it belongs to, as turn number `turn`, from 1; empty: it stands by itself."""
    turn: int = 0
    tenant: str = ""
    """Who asks, with what weight where `scheduling: fair`; empty where nobody is told apart."""
    weight: float = 1.0
    adapter: str = ""
    """LoRA adapter that it asks for; empty: the model itself."""
    prefill_replica: int = -1
    """Where its prompt was computed, if another replica answers."""
    kv_transfer_s: float = nan
    """From the end of its prompt until its KV was where it is answered, waiting included [s]."""
    left: tuple[ReplicaVisit, ...] = ()
    """Visits to replicas before this one."""
    rejected: bool = False
    """Whether it can never fit, and was refused."""
    attempts: int = 1
    """How often it has been sent."""
    kept_tokens: int = 0
    """Tokens of its answer that an earlier attempt streamed; this one computes their KV and makes the others only."""
    gave_up: str = ""
    """timed_out or lost, where nobody waits for it any more; empty otherwise."""
    busy: BusyTime = field(default_factory=BusyTime)
    """Of the replica where it is, or was last. Of `USUAL` nobody writes it: who shares time gives each request one."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        return "USUAL" if self is USUAL else object.__reduce_ex__(self, protocol)


USUAL = RequestOptions()


def _aside(name: str, usual: T) -> T:
    """A field of a request that lies aside; it is set on an `RequestOptions` of the request's own."""

    def put(request: "Request", value: T) -> None:
        if request.aside is USUAL:
            request.aside = RequestOptions()
        setattr(request.aside, name, value)

    return cast(T, property(attrgetter(f"aside.{name}"), put))


class Request:
    """One request and its timestamps, each set once; nan until it has happened [s].

    A million are in memory at once, so what few of them say lies in `aside`; its fields are the request's own to
    whoever reads or writes them.
    """

    __slots__ = (
        *("arrived_s", "came_s", "started_s", "first_token_s", "finished_s", "cached_tokens", "preemptions"),
        *("index", "prompt_tokens", "output_tokens", "priority", "replica", "aside"),
    )

    def __init__(
        self, index: int, arrived_s: float, prompt_tokens: int, output_tokens: int, priority: int = 0, **further: Any
    ) -> None:
        self.index, self.arrived_s = index, arrived_s
        """Its place in the order of arrival, from 0, and when it reached the router."""
        self.prompt_tokens, self.output_tokens = prompt_tokens, output_tokens
        """Lengths of prompt, 0 for a unit of work, and answer, which no server would know before its end."""
        self.priority = priority
        """Lower goes first with `scheduling: priority`."""
        self.replica = -1
        """Where it is, or was last."""
        self.came_s = nan
        """When it came to this replica."""
        self.started_s = nan
        """When the first step that works on it began."""
        self.first_token_s, self.finished_s = nan, nan
        """When its first and when its last token was there."""
        self.cached_tokens = 0
        """Prompt tokens that the prefix cache had when it was admitted."""
        self.preemptions = 0
        """How often it gave up its KV cache and was computed again."""
        self.aside = USUAL
        for name, value in further.items():
            setattr(self, name, value)

    block_hashes = _aside("block_hashes", USUAL.block_hashes)
    hash_block_tokens = _aside("hash_block_tokens", USUAL.hash_block_tokens)
    service = _aside("service", USUAL.service)
    session = _aside("session", USUAL.session)
    turn = _aside("turn", USUAL.turn)
    tenant = _aside("tenant", USUAL.tenant)
    weight = _aside("weight", USUAL.weight)
    adapter = _aside("adapter", USUAL.adapter)
    prefill_replica = _aside("prefill_replica", USUAL.prefill_replica)
    kv_transfer_s = _aside("kv_transfer_s", USUAL.kv_transfer_s)
    left = _aside("left", USUAL.left)
    rejected = _aside("rejected", USUAL.rejected)
    attempts = _aside("attempts", USUAL.attempts)
    kept_tokens = _aside("kept_tokens", USUAL.kept_tokens)
    gave_up = _aside("gave_up", USUAL.gave_up)
    busy = _aside("busy", USUAL.busy)

    @property
    def given_up(self) -> bool:
        """Whether it ended without an answer though the fleet could have served it."""
        return self.gave_up != ""

    @property
    def status(self) -> str:
        """How it has ended: finished, rejected, timed_out or lost; unfinished while it has not."""
        if self.rejected:
            return "rejected"
        return "finished" if self.finished_s == self.finished_s else self.gave_up or "unfinished"

    @property
    def hops(self) -> list[ReplicaVisit]:
        """Its visits to replicas, the present or last one at the end; none while no replica has had it."""
        here = [] if self.replica < 0 else [ReplicaVisit(self.replica, self.came_s, self.finished_s, None, self.busy)]
        return [*self.left, *here]

    @property
    def shared_tokens(self) -> int:
        """Leading tokens of prompt and answer that whole blocks of the trace cover; others may have the same."""
        hashes, size = self.aside.block_hashes, self.aside.hash_block_tokens
        return min(len(hashes), (self.prompt_tokens + self.output_tokens) // size) * size if hashes else 0


@dataclass(slots=True)
class Batch:
    """One engine step of one rank in sums: all that a step-time model may know. Contexts are tokens computed before."""

    decode_seqs: int = 0
    """Sequences that get one new token."""
    draft_tokens: int = 0
    """Drafted tokens of the decoding sequences, computed behind the one that each of them gets."""
    kv_tokens: int = 0
    """Sum of the contexts of the decoding sequences."""
    windowed_kv_tokens: int = 0
    """Sum of the decoding sequences' contexts, each capped at the model's sliding window."""
    windowed_growing_seqs: int = 0
    """Decoding sequences whose context is still below the window."""
    prefill_seqs: int = 0
    """Prompt chunks in the step."""
    prefill_tokens: int = 0
    """New prompt tokens in the step."""
    prefill_context_tokens: int = 0
    """Sum over chunks of the tokens computed before the chunk."""
    prefill_attention_pairs: int = 0
    """Sum over chunks of c*k + c(c+1)/2: query-key pairs of c new tokens after k earlier ones."""
    sampled_seqs: int = 0
    """Sequences that yield a token: decodes and last prompt chunks."""
    accepted_tokens: float = 0.0
    """Drafted tokens that hold: what the decoding sequences yield beyond one token each."""
    adapters: int = 0
    """Different LoRA adapters that its sequences ask for; `adapted_tokens`: new tokens of those sequences."""
    adapted_tokens: int = 0
    standing_seqs: int = 0
    """Sequences of other batches in flight that the scheduler goes through when it forms this one."""
    replica_tokens: int = 0
    """New tokens of all data-parallel ranks that take the step together; 0: as many on each as on this one."""


@dataclass(slots=True)
class Leap:
    """Step j < `valid_steps` of an unchanging batch takes `first_s + j * growth_s`; `load`: 0 (idle power) to 1."""

    first_s: float
    growth_s: float = 0.0
    valid_steps: float = inf
    load: float = 1.0
    last_s: float = 0.0
    """What the last stage of a pipeline takes more than each of the others; `first_s` is the mean stage's."""


class StepTime(Protocol):
    """How long steps take: the only thing that an engine knows about the hardware."""

    @property
    def window(self) -> int | None:
        """Sliding window of the model [tokens], None without one."""

    def leap(self, batch: Batch) -> Leap:
        """Duration of the next steps of *batch*; with pipeline parallelism, of one stage."""

    def breakdown(self, batch: Batch) -> dict[str, float]:
        """The first step's seconds by cause: compute, memory, attention, link, overhead."""


@dataclass(frozen=True, slots=True)
class StepSpan:
    """Equal steps of one batch that follow each other, for whoever looks at single steps."""

    start_s: float
    end_s: float
    steps: int
    batch: Batch
    """Of the first step."""
    blocked_by: str
    """What kept the head of the queue out: seats, kv, budget or nothing."""
    prompts: dict[int, int]
    """Index of a request -> tokens of its prompt in the step."""
    decoding: frozenset[int]
    """Indices of the requests that decode in it."""
    place: str = ""
    """Of the request asked about: running, queued, unread (by the scheduler), intake (unread by the API server), ""."""


@dataclass(slots=True)
class Meters:
    """Running totals of one replica since its start. Steps are split by tokens into prefill, recompute and decode."""

    busy_s: float = 0.0
    prefill_s: float = 0.0
    recompute_s: float = 0.0
    load_s: float = 0.0
    """Integral of `Leap.load` over busy time; it drives power."""
    prefill_load_s: float = 0.0
    """The part of `load_s` that went to prompt tokens computed for the first time."""
    recompute_load_s: float = 0.0
    """The part that went to tokens computed again."""
    sequence_s: float = 0.0
    """Integral of sequences in the step over busy time; divided by busy_s it is the mean batch."""
    mixed_s: float = 0.0
    """Busy time of steps with prompts, decodes beside them included."""
    mixed_sequence_s: float = 0.0
    """The part of `sequence_s` in those steps."""
    mixed_decode_s: float = 0.0
    """Of it, that of sequences that decode."""
    mixed_steps: int = 0
    """Of the steps, those with prompts."""
    prompt_tokens: int = 0
    """Prompt tokens computed for the first time (cache hits excluded)."""
    cached_tokens: int = 0
    output_tokens: int = 0
    accepted_tokens: float = 0.0
    """Of the output tokens, drafted ones; they are not among `output_tokens` until the meters are read."""
    recomputed_tokens: int = 0
    preemptions: int = 0
    kv_peak_blocks: int = 0
    seats_blocked_s: float = 0.0
    """Busy time with a request waiting for a seat (max_num_seqs)."""
    kv_blocked_s: float = 0.0
    """Busy time with a request waiting for KV blocks."""
    budget_blocked_s: float = 0.0
    """Busy time with a request waiting for token budget (max_num_batched_tokens)."""
    adapters_blocked_s: float = 0.0
    """Busy time with requests waiting for a slot of a LoRA adapter (max_loras), and for nothing else."""
    steps: int = 0


@dataclass(slots=True)
class Interval:
    """What one replica did between two meter readings: quantities, no money."""

    pool: str
    server: str
    replica: int
    state: str
    """Of the replica (sim/fleet/replica.py); in a cluster of jobs held, of the GPUs of an inference service."""
    start_s: float
    end_s: float
    gpu_s: float
    busy_s: float = 0.0
    prefill_s: float = 0.0
    recompute_s: float = 0.0
    gpu_energy_j: float = 0.0
    server_energy_j: float = 0.0
    """At the wall: GPUs, server base load and power-supply loss."""
    prefill_energy_j: float = 0.0
    """Of the energy at the wall, what prompts took that were computed for the first time."""
    recompute_energy_j: float = 0.0
    """Energy at the wall for tokens that were computed again after a preemption."""
    idle_energy_j: float = 0.0
    """Energy at the wall while no step ran; what is left of the energy went to decoding."""
    peak_w: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    recomputed_tokens: int = 0
    service: str = ONLY_SERVICE
    unused: float = 0.0
    """The part of its GPUs and server that is paid for and lies idle: MIG slices that nobody uses."""

    @property
    def middle_s(self) -> float:
        """Half-way between start and end [s]; an interval lies wholly on that side of a meter reading."""
        return (self.start_s + self.end_s) / 2

    def is_within(self, start_s: float, end_s: float) -> bool:
        """Whether it lies in the window [start, end) [s], neither of whose edges it straddles."""
        return start_s <= self.middle_s < end_s


@dataclass(slots=True)
class FleetLog:
    """What a simulated fleet leaves behind."""

    requests: list[Request]
    intervals: list[Interval]
    meters: list[Meters]
    """Totals inside the window, one per replica."""
    pool_of_replica: list[int]
    """Position of each replica's pool in the plan."""
    end_s: float
    """When the last request had finished, or the drain limit."""
    kv_sent_bytes: dict[int, float] = field(default_factory=dict)
    """Position of a pool that computes prompts for others -> KV that it sent inside the window."""
    numbers: Sequence[int] | None = None
    """The replicas' numbers in the fleet, by which hops name them; None: 0, 1, 2, ..."""

    @property
    def pool_by_number(self) -> dict[int, int]:
        """Number of a replica in the fleet, by which a `ReplicaVisit` names it -> position of its pool in the plan."""
        numbers = range(len(self.pool_of_replica)) if self.numbers is None else self.numbers
        return dict(zip(numbers, self.pool_of_replica, strict=True))
