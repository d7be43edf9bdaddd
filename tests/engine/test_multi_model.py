"""Several models on the GPUs of one replica: steps in turn, or one model awake at a time."""

from collections import deque
from dataclasses import replace
from itertools import groupby, pairwise
from math import inf

import pytest
from engine_workloads import rank_limits
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.multi_model import SleepModeEngine, TimeSharedEngine
from sim.engine.protocol import ReplicaEngine
from sim.engine.synchronous import VllmEngine
from sim.records import Batch, Leap, Request
from sim.steptime.affine import Affine

LIMITS = rank_limits(40, 4, 3, 32, 64, enable_prefix_caching=True)
STEPS = Affine(model="affine", base_s=1.0, per_token_s=0.0, per_context_token_s=0.0).build()
GROWING = Affine(model="affine", base_s=0.5, per_token_s=0.01, per_context_token_s=0.003).build()
OF_SERVICE = {"a": 0, "b": 1, "b too": 1}


class NoLeaps:
    """Step times that say of one step only."""

    window = None

    def leap(self, batch: Batch) -> Leap:
        return replace(GROWING.leap(batch), valid_steps=1)

    def breakdown(self, batch: Batch) -> dict[str, float]:
        return GROWING.breakdown(batch)


def request(index: int, service: str, arrived_s: float, output: int, prompt: int = 4) -> Request:
    return Request(index, arrived_s, prompt, output, service=service)


def served(engine: ReplicaEngine, requests: list[Request]) -> list[Request]:
    """All of *requests*, in order of arrival, served to the end."""
    coming = deque((at_s, list(each)) for at_s, each in groupby(requests, key=lambda one: one.arrived_s))
    end_s, left = inf, []
    while coming or end_s < inf:
        if coming and coming[0][0] <= end_s:
            now, together = coming.popleft()
            for one in together:
                engine.offer(one, now)
        else:
            now = end_s
            left += engine.advance()
        end_s = engine.plan(now)
    assert len(left) == len(requests)
    return requests


def turns(steptime: object = STEPS) -> TimeSharedEngine:
    return TimeSharedEngine([VllmEngine(steptime, LIMITS) for _ in range(2)], OF_SERVICE)  # type: ignore[arg-type]


def swapping(max_awake_s: float) -> SleepModeEngine:
    return SleepModeEngine([VllmEngine(STEPS, LIMITS) for _ in range(2)], OF_SERVICE, [2.0, 3.0], max_awake_s)


def finished(requests: list[Request]) -> list[float]:
    return [one.finished_s for one in requests]


def test_steps_take_turns() -> None:
    # a's first step until 1, b's until 2, a's last until 3, b's two until 5
    assert finished(served(turns(), [request(0, "a", 0.0, 2), request(1, "b", 0.5, 3)])) == [3.0, 5.0]


def test_services_of_one_model_share_its_steps() -> None:
    assert finished(served(turns(), [request(0, "b", 0.0, 2), request(1, "b too", 0.0, 2)])) == [2.0, 2.0]


arrivals = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 2.0, 7.0]), st.sampled_from(sorted(OF_SERVICE)), st.integers(1, 20)),
    min_size=1,
    max_size=25,
)


def drawn(rows: list[tuple[float, str, int]]) -> list[Request]:
    now, requests = 0.0, []
    for index, (gap_s, service, tokens) in enumerate(rows):
        now += gap_s
        requests.append(request(index, service, now, tokens, prompt=1 + 3 * tokens % 17))
    return requests


@pytest.mark.slow
@given(rows=arrivals)
@settings(max_examples=40, deadline=None)
def test_turns_in_leaps_are_turns_step_by_step(rows: list[tuple[float, str, int]]) -> None:
    leaping, stepping = turns(GROWING), turns(NoLeaps())
    one, other = served(leaping, drawn(rows)), served(stepping, drawn(rows))
    assert finished(one) == pytest.approx(finished(other), rel=1e-12)
    assert [r.first_token_s for r in one] == pytest.approx([r.first_token_s for r in other], rel=1e-12)
    end_s = max(finished(one))
    meters = leaping.meters(end_s)
    assert meters.output_tokens == sum(r.output_tokens for r in one)
    assert meters.busy_s <= end_s * (1 + 1e-12)  # nobody steps while another does
    assert all(cache.free == cache.usable for cache in leaping.caches())


@given(rows=arrivals)
@settings(max_examples=15, deadline=None)
def test_a_model_alone_equals_an_engine_of_its_own(rows: list[tuple[float, str, int]]) -> None:
    rows = [(gap_s, "b", tokens) for gap_s, _, tokens in rows]
    alone = finished(served(VllmEngine(GROWING, LIMITS), drawn(rows)))
    assert finished(served(turns(GROWING), drawn(rows))) == alone


def test_a_model_wakes_up_when_the_other_has_answered() -> None:
    # a until 2, b awake at 5 and done at 6; who comes at 1.5 is answered before
    requests = [request(0, "a", 0.0, 2), request(1, "b", 0.5, 1), request(2, "a", 1.5, 1)]
    assert finished(served(swapping(10.0), requests)) == [2.0, 3 + 3 + 1, 3.0]


def test_a_late_request_waits_for_the_next_turn() -> None:
    # a has been awake for more than 1 s at 1.5, and b waits: b from 5 to 6, a again from 8 to 9
    requests = [request(0, "a", 0.0, 2), request(1, "b", 0.5, 1), request(2, "a", 1.5, 1)]
    assert finished(served(swapping(1.0), requests)) == [2.0, 6.0, 9.0]


def test_sleep_empties_the_cache() -> None:
    shared = [
        request(i, service, at_s, 1, prompt=9) for i, (service, at_s) in enumerate([("a", 0), ("b", 1), ("a", 2)])
    ]
    for one in shared:
        one.block_hashes, one.hash_block_tokens = (1, 2), 4
    served(swapping(0.1), shared)
    assert [one.cached_tokens for one in shared] == [0, 0, 0]
    again = [replace_of(one, at_s=20.0 + i) for i, one in enumerate((shared[0], shared[0]))]
    served(swapping(0.1), again)
    assert [one.cached_tokens for one in again] == [0, 8]


def replace_of(one: Request, at_s: float) -> Request:
    fresh = request(int(at_s), one.service, at_s, 1, prompt=9)
    fresh.block_hashes, fresh.hash_block_tokens = (1, 2), 4
    return fresh


@given(rows=arrivals, max_awake_s=st.sampled_from([0.5, 5.0, 100.0]))
@settings(max_examples=25, deadline=None)
def test_one_model_steps_at_a_time_and_all_are_answered(rows: list[tuple[float, str, int]], max_awake_s: float) -> None:
    engine = swapping(max_awake_s)
    requests = served(engine, drawn(rows))
    spans = sorted((r.started_s, r.finished_s, OF_SERVICE[r.service]) for r in requests)
    for (_, end_s, model), (start_s, _, following) in pairwise(spans):
        assert model == following or start_s >= end_s + 2.0
    assert engine.meters(max(finished(requests))).output_tokens == sum(r.output_tokens for r in requests)
