"""Pipeline parallelism: up to one batch per stage is in flight, each request in at most one of them.

A new batch is scheduled whenever fewer batches than stages are in flight, out of the requests that are in none.
Requests that were admitted together stay together, so each batch is a lane of its own; lanes share KV blocks and the
queue, and no lane takes more than its share of the requests (as SGLang's micro-batches and vLLM's former virtual
engines do; without that the lane that meets a long prompt collects all arrivals and leaves the other stages idle). A
batch enters a stage when it has left the one before and the stage is free; the step-time model gives the time of one
stage. (A serial sum of the stages would be wrong by up to the number of stages.)

Where prompts flow in pieces (llama.cpp), a stage hands each piece of a batch on as soon as it has it, and a batch that
yields no token makes room for the next one when it has left the first stage.
"""

from copy import copy
from math import inf

from sim.engine.kv.blocks import BlockPool
from sim.engine.limits import RankLimits
from sim.engine.metering import book, switch_shares
from sim.engine.parallel.passage import pass_through
from sim.engine.parallel.unsplit import Unsplit
from sim.engine.schedulers.rank import Rank
from sim.engine.schedulers.rank_schedule import RankSchedule
from sim.engine.sequence import Sequence
from sim.records import Batch, Meters, Progress, Request, Span, StepTime


class Lane:
    """One batch and its flight through the stages."""

    __slots__ = ("end_s", "entered_s", "load", "rank", "stage_s")

    def __init__(self, rank: RankSchedule) -> None:
        self.rank = rank
        self.entered_s = self.stage_s = self.load = 0.0
        self.end_s = inf
        """When it leaves the last stage; inf while it is not in flight."""

    def flown(self, now: float) -> float:
        """The share of its flight that is over at *now*."""
        return min(1.0, max(0.0, (now - self.entered_s) / (self.end_s - self.entered_s)))


class PipelineEngine(Unsplit):
    """One replica whose layers are spread over `stages` groups of GPUs.

    At most `lanes` batches are in flight, left out: one per stage; a single one passes the stages in series.
    """

    def __init__(
        self,
        steptime: StepTime,
        limits: RankLimits,
        stages: int,
        schedule: type[RankSchedule] = Rank,
        lanes: int | None = None,
        piece_tokens: int | None = None,
        one_scheduler: bool = False,
    ) -> None:
        """*piece_tokens*: prompt tokens of a piece, where prompts flow in pieces; *one_scheduler* goes through all that
        run for each batch.
        """
        self._steptime = steptime
        self._limits = limits
        self._waiting = limits.new_queue()
        self._pool = limits.new_pool()
        self._lanes = [Lane(schedule(limits, self._pool, self._waiting)) for _ in range(lanes or stages)]
        self._stage_free_s = [0.0] * stages
        self._piece_tokens, self._one_scheduler = piece_tokens, one_scheduler
        self._meters = Meters()
        self._sharing = False

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """See `Engine.offer`."""
        sequence = Sequence(request, prompt_only)
        if not self._limits.serves(sequence):
            request.rejected = True
            return False
        self._waiting.add(sequence)
        return any(lane.end_s == inf for lane in self._lanes)

    def evict(self, request: Request, now: float) -> Progress:
        """See `Engine.evict`: a batch in flight keeps *request* until it leaves the last stage."""
        waiting = self._waiting.remove(request)
        if waiting is not None:
            self._pool.forget(waiting)
            return Progress(0, waiting.made)
        lane = next(lane for lane in self._lanes if any(one.request is request for one in lane.rank.running))
        return lane.rank.evict(request, 0, stepping=lane.end_s < inf)

    def crash(self, now: float) -> None:
        """See `Engine.crash`."""
        for lane in self._lanes:
            if lane.end_s < inf:
                self._complete(lane, lane.stage_s * lane.flown(now), now, 0)
        self._stage_free_s = [now] * len(self._stage_free_s)

    def plan(self, now: float) -> float:
        """See `Engine.plan`."""
        # requests that were in a batch before are scheduled before new ones get an empty lane
        for lane in sorted(self._lanes, key=lambda lane: not lane.rank.running):
            if lane.end_s == inf:
                self._launch(lane, now)
        return min(lane.end_s for lane in self._lanes)

    def _launch(self, lane: Lane, now: float) -> None:
        rank = lane.rank
        running = sum(len(other.rank.running) for other in self._lanes)
        others = running - len(rank.running)
        free_seats = self._limits.max_num_seqs - running
        share = -(-(running + len(self._waiting)) // len(self._lanes))
        rank.seats = min(len(rank.running) + free_seats, share)
        steps = rank.form(now)
        if free_seats and rank.blocked_by == "seats":
            rank.blocked_by = ""
        if not steps:
            return
        rank.batch.standing_seqs = others if self._one_scheduler else 0
        leap = self._steptime.leap(rank.batch)
        lane.stage_s, lane.load = leap.first_s, leap.load
        lane.entered_s = max(now, self._stage_free_s[0])
        lane.end_s = pass_through(self._stage_free_s, now, leap, self._pieces(rank.batch))
        if self._piece_tokens is not None and not rank.batch.sampled_seqs:
            lane.end_s = self._stage_free_s[0]
        self._meters.cached_tokens += rank.cached_in_step

    def _pieces(self, batch: Batch) -> int:
        return -(-max(1, batch.prefill_tokens) // self._piece_tokens) if self._piece_tokens else 1

    def advance(self) -> list[Request]:
        """See `Engine.advance`: the batch that leaves the pipeline first."""
        lane = min(self._lanes, key=lambda lane: lane.end_s)
        return [sequence.request for sequence in self._complete(lane, lane.stage_s, lane.end_s, 1)]

    def _complete(self, lane: Lane, busy_s: float, end_s: float, whole_steps: int) -> list[Sequence]:
        """The batch of *lane* ends at *end_s*, with *whole_steps* of its one step made; who leaves with it."""
        book(self._meters, lane.rank, busy_s, lane.load * busy_s, whole_steps)
        if self._sharing:
            lane.rank.share_time(busy_s)
            lane.rank.shares.shared_s = 0.0
        lane.end_s = inf
        return lane.rank.commit(1, end_s)

    def meters(self, now: float) -> Meters:
        """See `Engine.meters`; busy time is that of one stage, `sequence_s` that of the mean batch."""
        totals = copy(self._meters)
        totals.preemptions = sum(lane.rank.preemptions for lane in self._lanes)
        totals.kv_peak_blocks = self._pool.peak
        for lane in self._lanes:
            if lane.end_s < inf:
                flown_s = lane.stage_s * lane.flown(now)
                book(totals, lane.rank, flown_s, lane.load * flown_s, 0)
        return totals

    def share_time(self, on: bool, now: float) -> None:
        """See `Engine.share_time`."""
        self._sharing = on
        for lane in self._lanes:
            switch_shares(lane.rank, on, lane.stage_s * lane.flown(now) if lane.end_s < inf else 0.0)

    def under_way(self, asked: int = -1) -> list[Span]:
        """See `Engine.under_way`."""
        return [lane.rank.span(lane.entered_s, lane.end_s, 1, asked) for lane in self._lanes if lane.end_s < inf]

    def caches(self) -> list[BlockPool]:
        """See `Engine.caches`."""
        return [self._pool]

    def waiting(self) -> int:
        """See `Engine.waiting`."""
        return len(self._waiting)
