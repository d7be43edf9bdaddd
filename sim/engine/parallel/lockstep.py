"""Data-parallel ranks of one replica that step together because they share experts: the slowest decides."""

from copy import copy

from sim.engine.leaping import LeapingEngine
from sim.engine.limits import RankLimits
from sim.engine.metering import book
from sim.engine.ranks import emptiest
from sim.engine.schedulers.rank import Rank
from sim.engine.schedulers.rank_schedule import RankSchedule
from sim.records import Batch, Leap, Meters, Request, StepTime


class LockstepEngine(LeapingEngine):
    """Each rank has its own queue and KV blocks; a request goes to the rank with the fewest outstanding ones."""

    def __init__(self, steptime: StepTime, limits: RankLimits, ranks: int, schedule: type[RankSchedule] = Rank) -> None:
        own = [schedule(limits, limits.new_pool(), limits.new_queue()) for _ in range(ranks)]
        super().__init__(steptime, limits, own)
        self._leaps: list[Leap] = []
        """How long the steps of those that work would be if each stepped alone."""

    def _rank_for(self, request: Request) -> RankSchedule:
        return emptiest(self._ranks, request)

    def _form(self, now: float) -> int:
        possible = [rank.form(now) for rank in self._ranks]
        self._stepping = [rank for rank, steps in zip(self._ranks, possible, strict=True) if steps]
        if not self._stepping:
            return 0
        idle = [Batch()] * (len(self._ranks) - len(self._stepping))
        gathered = gathered_tokens([*(rank.batch for rank in self._stepping), *idle], self._limits.padded_tokens)
        self._leaps = []
        for rank in self._stepping:
            self._meters.cached_tokens += rank.cached_in_step
            rank.batch.replica_tokens = gathered
            self._leaps.append(copy(self._steptime.leap(rank.batch)))
        self._leap = slowest(self._leaps)
        return max(1, int(min(*filter(None, possible), self._leap.valid_steps)))

    def _book(self, meters: Meters, duration_s: float, whole_steps: int) -> None:
        """The ranks that work share the replica's time evenly; an idle one steps along with nothing to show for it.

        A rank works as hard as it would alone, for the part of the step that it would take alone.
        """
        for rank, leap in zip(self._stepping, self._leaps, strict=True):
            load = leap.load * leap.first_s / self._leap.first_s if self._leap.first_s else 0.0
            book(meters, rank, duration_s / len(self._stepping), load * duration_s / len(self._ranks), whole_steps)


def gathered_tokens(batches: list[Batch], padded_tokens: int | None) -> int:
    """New tokens that the experts see in a step of all ranks, of which each has one of *batches*.

    In steps of up to *padded_tokens* (None: without prompts), which run from CUDA graphs, all ranks are padded to the
    fullest one.
    """
    tokens = [batch.decode_seqs + batch.draft_tokens + batch.prefill_tokens for batch in batches]
    most = max(tokens)
    prompts = any(batch.prefill_tokens for batch in batches)
    padded = not prompts if padded_tokens is None else most <= padded_tokens
    return most * len(tokens) if padded else sum(tokens)


def slowest(leaps: list[Leap]) -> Leap:
    """The leap that decides when all must wait for the longest step, valid until another overtakes it."""
    lead = max(leaps, key=lambda leap: (leap.first_s, leap.growth_s))
    valid_steps = min(leap.valid_steps for leap in leaps)
    for leap in leaps:
        if leap.growth_s > lead.growth_s:
            valid_steps = min(valid_steps, 1 + (lead.first_s - leap.first_s) // (leap.growth_s - lead.growth_s))
    return Leap(lead.first_s, lead.growth_s, valid_steps, lead.load)
