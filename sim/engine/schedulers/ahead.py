"""vLLM's rules where the next step is formed while one runs (`v1/core/sched/async_scheduler.py`).

Tokens count as computed once they are scheduled, so who decodes is scheduled again before its last token is known. A
request whose last token is being made is in no further step, but keeps its seat and its KV blocks until the token is
there. A preempted request still gets the token that was being made.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection
from math import inf, isnan, nan

from sim.engine.kv.blocks import BlockPool
from sim.engine.limits import RankLimits
from sim.engine.metering import leap_s, steps_within
from sim.engine.schedulers.queues.waiting import WaitingQueue
from sim.engine.schedulers.rank import Rank
from sim.engine.sequence import Sequence
from sim.engine.shares import chunk_parts
from sim.records import Batch, Leap, Progress, Request, Span


class Steps(ABC):
    """Equal steps that follow each other, from their forming to their end."""

    __slots__ = ("closed", "leap", "start_s", "steps")

    def __init__(self, steps: int, leap: Leap) -> None:
        self.steps = steps
        self.leap = leap
        self.start_s = nan
        """nan until they run."""
        self.closed = False
        """The number of steps is settled: the step after the last one has been formed."""

    def whole(self, now: float, most: int) -> int:
        """Steps, at most *most*, that are over at *now*."""
        return steps_within(self.leap, now - self.start_s, most)

    def formed(self, now: float) -> int:
        """Steps whose blocks are taken by *now*: the first, or of those that are not closed the step after the one
        under way, too, which is formed when that one begins.
        """
        return 1 if self.closed or self.steps == 1 else min(2 + self.whole(now, self.steps - 1), self.steps)

    @abstractmethod
    def working(self) -> "Collection[Flight]":
        """These steps on each rank that has tokens in them."""

    @abstractmethod
    def close(self) -> None:
        """No further step is added, and those who were evicted leave before the next one is formed."""

    @abstractmethod
    def finish(self, end_s: float) -> tuple[list[Request], bool]:
        """They end at *end_s*: who leaves, and whether a step may change that has been formed since."""

    @abstractmethod
    def give_up(self, request: Request, whole: int) -> Progress:
        """See `AsyncRank.give_up`."""


class Flight(Steps):
    """The steps of one rank."""

    __slots__ = (
        "admissions", "batch", "blocked_by", "chunks", "finished", "first", "lost", "parts", "prompts_only", "rank",
        "recomputed_in_step", "standing",
    )  # fmt: skip

    def __init__(self, rank: "AsyncRank", steps: int, leap: Leap) -> None:
        super().__init__(steps, leap)
        self.rank = rank
        self.batch = rank.batch
        self.blocked_by = rank.blocked_by
        self.admissions = rank.admissions
        """Who was admitted later is not in it."""
        self.recomputed_in_step = rank.recomputed_in_step
        self.chunks = dict(chunks := rank.chunks)
        self.parts = chunk_parts(chunks) if chunks else []
        self.prompts_only = rank.prompts_only
        self.standing = rank.standing
        self.first: list[Sequence] = []
        """Whose prompts are computed at its end."""
        self.finished: list[Sequence] = []
        """Who gets its last token at its end."""
        self.lost = 0
        """Tokens of its last step that are nobody's."""

    def working(self) -> "tuple[Flight]":
        """See `Steps.working`."""
        return (self,)

    def close(self) -> None:
        """See `Steps.close`."""
        rank = self.rank
        rank.close(self)
        rank.drop_evicted(formed=False)
        rank.transit.settle()

    def finish(self, end_s: float) -> tuple[list[Request], bool]:
        """See `Steps.finish`."""
        rank = self.rank
        left = rank.finish(self, end_s)
        changed = rank.drop_evicted(formed=True) or bool(self.finished and rank.queued())
        rank.transit.settle()
        return left, changed

    def give_up(self, request: Request, whole: int) -> Progress:
        """See `Steps.give_up`."""
        return self.rank.give_up(request, self, whole)


class AsyncRank(Rank):
    """One rank whose steps are formed one ahead."""

    def __init__(self, limits: RankLimits, pool: BlockPool, waiting: WaitingQueue) -> None:
        super().__init__(limits, pool, waiting)
        self._leaving: dict[Sequence, None] = {}
        """Whose last token is being made."""
        self._runs: Flight | None = None
        """What runs while a step is formed."""
        self._clocks: list[tuple[Sequence, float | None]] = []
        """Who began to decode (None) or ceased to (its clock then) in steps whose time is not shared out yet."""
        self._coming: set[Sequence] = set()
        """Preempted while a token of theirs was being made."""
        self._gone: set[Sequence] = set()
        """Evicted while a token of theirs was being made: it is nobody's."""

    @property
    def chunks(self) -> list[tuple[Sequence, int]]:
        """Prompt chunks of the step formed last."""
        return self._chunks

    @property
    def admissions(self) -> int:
        """Number of the last admission."""
        return self._admissions

    @property
    def standing(self) -> Collection[Sequence]:
        """Who decodes and is left out of the step formed last."""
        if self.prompts_only:
            return {sequence: None for sequence in self.running if sequence.decoding}
        return self.shares.standing(self._step)

    @property
    def prompts_only(self) -> bool:
        """Whether all who decode are left out of the step formed last."""
        return self._decodes_wait

    def form(self, now: float) -> int:
        """See `Schedule.form`; `batch` is a new one."""
        self.batch = Batch()
        steps = self._form(now)
        # who leaves at the end of the step that runs may make room for the head of the queue
        return min(steps, 1) if self._leaving and (self.waiting or self.joining) else steps

    @property
    def preempted(self) -> bool:
        """Somebody was preempted in the step formed last: where it is empty, another one can be formed at once."""
        return self._preempted_in_step

    def close(self, flight: Flight) -> None:
        """The steps of *flight* are as many as it says, and the next one is to be formed."""
        steps = flight.steps
        if steps > 1:
            self._take_leap(steps)
        self._step += 0 if flight.prompts_only else steps
        flight.closed = True
        self._runs = flight
        finishing = self._finishing.pop_reached(self._step)
        if finishing:
            self._name_answers(False)  # others may ask for the blocks before the last token is there
        for sequence in finishing:
            sequence.held, sequence.computed = self._held(sequence), self._context(sequence, self._step)
            self._end_decoding(sequence)
            flight.finished.append(sequence)
        for sequence, chunk in self._chunks:
            sequence.computed += chunk
            if sequence.computed == sequence.tokens:
                flight.first.append(sequence)
                self._end_prefill(sequence, nan, flight.finished)
                if sequence.decoding and sequence in self._evicted:  # at the very begin of the flight
                    self._finishing.remove(sequence)
        self._chunks.clear()
        for sequence in flight.finished:
            self._leaving[sequence] = None

    def _end_decoding(self, sequence: Sequence) -> None:
        """*sequence* gets its last token in the step that begins: it is in no further one."""
        self._leave_decoding(sequence)

    def finish(self, flight: Flight, end_s: float) -> list[Request]:
        """*flight* ends at *end_s*: dates, and who leaves with its last token."""
        for sequence in flight.first:
            if isnan(sequence.request.first_token_s) and sequence not in self._gone:
                sequence.request.first_token_s = end_s
        self._settle_clocks()
        left = []
        for sequence in flight.finished:
            if sequence not in self._gone:
                if not sequence.prompt_only:
                    sequence.request.finished_s = end_s
                left.append(sequence.request)
            if sequence in self._leaving:
                del self._leaving[sequence]
                if sequence in self._gone and sequence.computed > sequence.tokens:
                    sequence.computed -= 1  # nobody reads the token that its last step computes
                self._leave(sequence)
        self._gone.clear()
        self._coming.clear()
        self._runs = None
        return left

    def flying(self, flight: Flight, asked: int) -> Span:
        """What runs, for whoever looks at single steps, and the place of request number *asked* when it was formed."""
        prompts = {sequence.request.index: chunk for sequence, chunk in flight.chunks.items() if not sequence.brought}
        goes_on = (one for one in flight.chunks if one.brought)
        others = [*(one for one in self.running if one.decoding), *self._leaving, *self._coming, *goes_on]
        decoding = frozenset(one.request.index for one in others if one not in flight.standing) - prompts.keys()
        end_s = flight.start_s + leap_s(flight.leap, flight.steps)
        later = any(one.request.index == asked and one.admission > flight.admissions for one in self.running)
        place = "queued" if later else self.place(asked)
        return Span(flight.start_s, end_s, flight.steps, flight.batch, flight.blocked_by, prompts, decoding, place)

    def give_up(self, request: Request, flight: Flight, whole: int) -> Progress:
        """*request* is evicted from the queue or from the batch while *flight* runs, *whole* steps of which are over;
        where it runs, it leaves with `drop_evicted`.
        """
        waiting = self.waiting.remove(request)
        if waiting is not None:
            self.pool.forget(waiting)
            self._gone.add(waiting)
            made = waiting.made
            return Progress(0, self._made_before(waiting, made) if waiting in self._coming else made)
        if (joining := self.turn_away(request)) is not None:
            return joining
        sequence = next((one for one in self.running if one.request is request), None)
        if sequence is None:  # preempted while its last token was being made
            sequence = next(one for one in flight.finished if one.request is request)
            self._gone.add(sequence)
            return Progress(0, self._made_before(sequence, sequence.output_tokens))
        sequence.prompt_only = False
        progress = self._progress_in(sequence, flight, whole)
        if sequence.decoding:
            self._finishing.remove(sequence)
        self._evicted.append(sequence)
        self._gone.add(sequence)
        return progress

    def _made_before(self, sequence: Sequence, made: int) -> int:
        """Tokens of *sequence*, which gave way, before what is under way brings them to *made*."""
        return made - 1

    def _progress_in(self, sequence: Sequence, flight: Flight, whole: int) -> Progress:
        if not flight.closed:
            return self._progress(sequence, whole)
        return self._progress_before_last(sequence, flight, whole)

    def _progress_before_last(self, sequence: Sequence, flight: Flight, whole: int) -> Progress:
        to_come = 0 if sequence in flight.standing else flight.steps - whole
        chunk = flight.chunks.get(sequence)
        tokens = to_come if chunk is None else chunk
        if sequence.decoding:
            made = sequence.output_tokens - (sequence.finish_step - self._step)
            return Progress(sequence.base + self._step - tokens, made - to_come)
        if sequence in self._leaving:
            return Progress(sequence.computed - tokens, sequence.output_tokens - to_come)
        return Progress(sequence.computed - (chunk or 0), sequence.made)

    def drop_evicted(self, formed: bool) -> bool:
        """Those who were evicted leave, before the next step is *formed* or after that; whether there were any."""
        if not self._evicted:
            return False
        for sequence in self._evicted:
            if sequence not in self.running:
                continue
            computed = sequence.computed + dict(self._chunks).get(sequence, 0)
            if sequence.decoding:
                in_step = formed and not self._decodes_wait
                computed = self._known_when_dropped(sequence, in_step)
                self._leave_decoding(sequence)
            self._prefilling.pop(sequence, None)
            self._chunks = [chunk for chunk in self._chunks if chunk[0] is not sequence]
            self.pool.release(sequence, sequence.held, False, computed)
            del self.running[sequence]
            self._leaving.pop(sequence, None)  # it was to get its only token
        self._evicted.clear()
        return True

    def _known_when_dropped(self, sequence: Sequence, in_step: bool) -> int:
        """How many tokens of *sequence*, which decodes and leaves, are known; sets the blocks that it holds."""
        computed = sequence.base + self._step - (not in_step)
        sequence.held = -(-(computed + 1) // self.pool.block_size)
        return computed

    def _preempt(self, sequence: Sequence, withdrawn: int) -> None:
        if self._token_coming(sequence):
            self._coming.add(sequence)
        if sequence not in self._leaving:
            super()._preempt(sequence, withdrawn)
            return
        # its last token comes all the same
        known = self._known(sequence, sequence.computed, withdrawn)
        del self._leaving[sequence], self.running[sequence]
        self.pool.release(sequence, sequence.held, False, known)
        sequence.request.preemptions += 1
        self.preemptions += 1
        self._preempted_in_step = True

    def _token_coming(self, sequence: Sequence) -> bool:
        """Whether the steps under way make a token for *sequence*."""
        if self._runs is None:
            return False
        return sequence in self._leaving or (sequence.decoding and sequence not in self._runs.standing)

    def _known(self, sequence: Sequence, computed: int, new: int) -> int:
        if self._runs is None or not self._token_coming(sequence):
            return computed + new
        return computed if new or sequence in self._runs.chunks else computed - 1

    def _name_answers(self, served: bool) -> None:
        if not self._answers:
            return
        if self._runs is None:
            self._answers.name(self._step + served)
        else:
            self._answers.name(self._step - (not served), self._runs.standing)

    def _steps_until_found(self) -> float:
        named = self._step + (self._runs is None)
        return self._answers.steps_until_found(self.waiting.head(), named) if self._answers else inf

    def _steps_until_named(self) -> float:
        if not self._answers:
            return inf
        runs = self._runs
        return self._answers.steps_until_named(self._step + (runs is None), runs.standing if runs else ())

    def _somebody_decodes(self) -> bool:
        return bool(self._decoding or self._leaving)

    def _start_clock(self, sequence: Sequence) -> None:
        sequence.token_s = nan
        self._clocks.append((sequence, None))

    def _stop_clock(self, sequence: Sequence) -> None:
        self._clocks.append((sequence, sequence.token_s))

    def _settle_clocks(self) -> None:
        """The time of the steps that ended is shared out."""
        now = self.shares.token_s
        for sequence, since_s in self._clocks:
            if since_s is None:
                sequence.token_s = now
            elif not isnan(since_s):  # else it began in these steps, too
                sequence.busy.decode_s += now - since_s
        self._clocks.clear()
