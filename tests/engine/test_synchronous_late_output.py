"""Tokens that are handed over a step late: the same steps, seen at the end of the next one."""

from bisect import bisect_right
from math import inf, isnan

import pytest
from engine_workloads import Affine, rank_limits, workloads
from hypothesis import given, settings
from reference_engine import drain

from sim.engine.limits import SchedulerLimits
from sim.engine.metering import leap_s
from sim.engine.schedulers.prefill_first import PrefillFirstScheduler
from sim.engine.synchronous import LateOutputEngine, VllmEngine
from sim.records import ReplicaProgress, Request


class Noting:
    """Notes when the steps of its engine begin and end."""

    def __init__(self, limits: SchedulerLimits) -> None:
        self._engine = VllmEngine(Affine(), limits, PrefillFirstScheduler)
        self.begins: list[float] = []
        self.ends: list[float] = []

    def __getattr__(self, name: str):
        return getattr(self._engine, name)

    def advance(self) -> list[Request]:
        engine = self._engine
        ends = [engine._start_s + leap_s(engine._leap, n) for n in range(engine._steps + 1)]
        self.begins += ends[:-1]
        self.ends += ends[1:]
        return engine.advance()

    def seen_at(self, made_s: float) -> float:
        """End of the step that begins when a token is made; at once where none does."""
        at = bisect_right(self.begins, made_s) - 1
        return self.ends[at] if self.begins[at] == made_s else made_s


def late(limits: SchedulerLimits) -> LateOutputEngine:
    return LateOutputEngine(Affine(), limits, PrefillFirstScheduler)


@pytest.mark.slow
@given(workloads())
@settings(max_examples=60, deadline=None)
def test_tokens_are_delivered_when_the_next_step_ends(workload) -> None:
    wanted, values = workload
    limits = rank_limits(**values)
    seen, made = [Request(**one) for one in wanted], [Request(**one) for one in wanted]
    plain = Noting(limits)
    drain(plain, made)
    drain(late(limits), seen)
    served = [(one, other) for one, other in zip(seen, made, strict=True) if not other.rejected]
    assert [one.rejected for one in seen] == [one.rejected for one in made]
    assert [one.started_s for one, _ in served] == [other.started_s for _, other in served]
    for name in ("first_token_s", "finished_s"):
        times = [(getattr(one, name), getattr(other, name)) for one, other in served]
        assert [time_s for time_s, _ in times] == [plain.seen_at(made_s) for _, made_s in times]


def two_under_way() -> tuple[LateOutputEngine, Request, Request, float]:
    """Return an engine with an undelivered only token of one request, while another request runs."""
    engine = late(
        rank_limits(num_gpu_blocks=100, block_size=16, max_num_seqs=8, max_num_batched_tokens=64, max_model_len=1000)
    )
    short, long = (Request(i, 0.0, 8, tokens) for i, tokens in enumerate((1, 20)))
    for one in (short, long):
        engine.offer(one, 0.0)
    end_s = engine.plan(0.0)
    assert engine.advance() == []
    assert isnan(short.finished_s)
    return engine, short, long, end_s


def test_a_request_evicted_before_its_last_token_is_delivered_is_complete() -> None:
    engine, short, long, end_s = two_under_way()
    assert engine.evict(short, end_s) == ReplicaProgress(8, 1)
    engine.plan(end_s)
    assert engine.advance() == []
    assert isnan(short.first_token_s)
    assert not isnan(long.first_token_s)


def test_a_crash_loses_undelivered_tokens() -> None:
    engine, short, _, end_s = two_under_way()
    engine.crash(end_s)
    assert isnan(short.first_token_s)
    assert isnan(short.finished_s)


def test_undelivered_tokens_are_delivered_when_no_other_request_is_left() -> None:
    engine, short, long, end_s = two_under_way()
    engine.evict(long, end_s)
    assert engine.plan(end_s) == end_s
    assert engine.advance() == [short]
    assert short.finished_s == end_s
    assert engine.plan(end_s) == inf
