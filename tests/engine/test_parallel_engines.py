"""Data-parallel ranks in lockstep and pipeline stages: equal to the plain engine at size one, and right where theory
is exact."""

from dataclasses import replace
from math import inf

import pytest
from engine_workloads import rank_limits
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_engine import drain

from sim.engine.asynchronous import AsyncEngine, AsyncLockstepEngine
from sim.engine.metering import leap_s
from sim.engine.pipeline import PipelineEngine, StagesEngine
from sim.engine.schedulers.pipeline import pass_through
from sim.engine.schedulers.prefill_first import PrefillFirstScheduler, SglangScheduler
from sim.engine.schedulers.reserve import MaxUtilizationScheduler, ReserveScheduler
from sim.engine.schedulers.scheduler import Scheduler
from sim.engine.schedulers.static import StaticScheduler
from sim.engine.schedulers.vllm import VllmScheduler
from sim.engine.synchronous import (
    BalancedLockstepEngine,
    LockstepEngine,
    VllmEngine,
    gathered_tokens,
    slowest,
)
from sim.records import Batch, BusyTime, Leap, Request

LIMITS = rank_limits(
    num_gpu_blocks=60, block_size=4, max_num_seqs=8, max_num_batched_tokens=32, max_model_len=10_000
)  # fmt: skip

OVERLAPPING = replace(LIMITS, num_gpu_blocks=200, overlaps_chunks=True)


class Affine:
    """Dyadic, so that sums are exact."""

    def leap(self, batch: Batch) -> Leap:
        tokens, context = batch.decode_seqs + batch.prefill_tokens, batch.kv_tokens + batch.prefill_context_tokens
        return Leap(2**-6 + 2**-12 * tokens + 2**-20 * context, 2**-20 * batch.decode_seqs, load=0.5)


class Twice(Affine):
    """Both stages of a pipeline one after the other."""

    def leap(self, batch: Batch) -> Leap:
        one = super().leap(batch)
        return Leap(2 * one.first_s, 2 * one.growth_s, load=0.5)


class Constant:
    """Every stage takes one second."""

    def leap(self, batch: Batch) -> Leap:
        return Leap(1.0)


class HeavyEnd:
    """The last of four stages takes two seconds, each of the others one."""

    def leap(self, batch: Batch) -> Leap:
        return Leap(1.25, last_s=1.0)


requests = st.lists(
    st.tuples(st.integers(0, 200), st.integers(1, 90), st.integers(1, 40)), min_size=1, max_size=20
).map(lambda rows: [Request(i, a / 32, p, o) for i, (a, p, o) in enumerate(sorted(rows))])


def dates(engine, rows: list[Request]) -> list[tuple[float, float]]:
    copies = [Request(r.index, r.arrived_s, r.prompt_tokens, r.output_tokens) for r in rows]
    drain(engine, copies)
    assert engine.waiting() == 0
    return [(r.first_token_s, r.finished_s) for r in copies]


@pytest.mark.slow
@given(requests)
@settings(max_examples=50, deadline=None)
def test_one_rank_and_one_stage_are_the_plain_engine(rows: list[Request]) -> None:
    plain = dates(VllmEngine(Affine(), LIMITS), rows)
    assert dates(LockstepEngine(Affine(), LIMITS, 1), rows) == plain
    assert dates(PipelineEngine(Affine(), LIMITS, 1), rows) == plain
    ahead, alone = AsyncLockstepEngine(Affine(), LIMITS, 1), AsyncEngine(Affine(), LIMITS)
    assert dates(ahead, rows) == dates(alone, rows)
    assert ahead.meters(1e9) == alone.meters(1e9)
    stage = StagesEngine(Affine(), replace(LIMITS, overlaps_batches=False), 1, asynchronous=True)
    assert dates(stage, rows) == dates(AsyncEngine(Affine(), LIMITS), rows)


@pytest.mark.slow
@given(requests, st.booleans())
@settings(max_examples=50, deadline=None)
def test_stages_of_vllm_that_take_turns_are_one_gpu_with_the_sum_of_their_times(
    rows: list[Request], asynchronous: bool
) -> None:
    stages = StagesEngine(Affine(), replace(LIMITS, overlaps_batches=False), 2, asynchronous)
    assert dates(stages, rows) == dates(AsyncEngine(Twice(), LIMITS), rows)


@pytest.mark.slow
@given(requests, st.integers(2, 4), st.sampled_from([LockstepEngine, AsyncLockstepEngine, PipelineEngine]))
@settings(max_examples=90, deadline=None)
def test_tokens_and_time_are_conserved(rows: list[Request], size: int, kind: type) -> None:
    engine = kind(Affine(), LIMITS, size)
    assert all(first <= last for first, last in dates(engine, rows))
    totals = engine.meters(1e9)
    assert totals.prompt_tokens == sum(r.prompt_tokens for r in rows)
    assert totals.output_tokens == sum(r.output_tokens for r in rows)
    assert 0 < totals.load_s <= totals.busy_s
    middle, end = engine.meters(1.0), totals
    assert middle.busy_s <= end.busy_s


def test_stages_overlap_with_one_batch_per_stage() -> None:
    # three prompts that each fill a step: three lanes; a serial sum would take three times as long
    rows = [Request(i, 0.0, 32, 11) for i in range(3)]
    alone = dates(PipelineEngine(Constant(), LIMITS, 3), rows[:1])
    together = dates(PipelineEngine(Constant(), LIMITS, 3), rows)
    assert alone == [(3.0, 33.0)]
    assert together == [(3.0, 33.0), (4.0, 34.0), (5.0, 35.0)]


def test_batches_take_turns_where_stages_do_not_overlap_them() -> None:
    rows = [Request(i, 0.0, 32, 11) for i in range(3)]
    limits = replace(LIMITS, overlaps_batches=False)
    assert dates(PipelineEngine(Constant(), limits, 3), rows) == [(3.0, 93.0), (6.0, 96.0), (9.0, 99.0)]


def test_the_slowest_rank_decides() -> None:
    rows = [Request(0, 0.0, 8, 5), Request(1, 0.0, 30, 5)]
    long_alone = dates(VllmEngine(Affine(), LIMITS), rows[1:])
    for kind in (LockstepEngine, AsyncLockstepEngine):
        assert dates(kind(Affine(), LIMITS, 2), rows)[1] == long_alone[0]


def test_arrivals_wait_one_step_more_where_steps_are_formed_ahead() -> None:
    # a step lasts a second; the second rank is empty when the request comes within the first rank's step
    rows = [Request(0, 0.0, 8, 9), Request(1, 0.5, 8, 2)]
    assert dates(LockstepEngine(Constant(), LIMITS, 2), rows)[1][0] == 2.0
    assert dates(AsyncLockstepEngine(Constant(), LIMITS, 2), rows)[1][0] == 3.0


def balanced(step, timeout: int, ranks: int = 2, wait: int = 0) -> BalancedLockstepEngine:
    options = {"attention_dp_timeout_iters": timeout, "attention_dp_batching_wait_iters": wait}
    options = LIMITS.options.model_copy(update=options)
    return BalancedLockstepEngine(step, replace(LIMITS, options=options), ranks)


@pytest.mark.parametrize(
    ("rows", "wait", "first"),
    [
        # the second request finds its rank without decodes; the third waits until the fourth step after that
        ([(0.0, 9), (0.5, 9), (2.5, 2)], 0, [1, 2, 6]),
        # a prompt on the other rank ends the wait of both
        ([(0.0, 9), (0.5, 9), (2.5, 2), (3.5, 2)], 0, [1, 2, 5, 5]),
        # both wait one step more for others
        ([(0.0, 9), (0.5, 9), (2.5, 2), (3.5, 2)], 1, [1, 2, 6, 6]),
        # without decodes on a rank nobody waits
        ([(0.0, 9), (0.5, 1), (2.5, 2)], 0, [1, 2, 4]),
    ],
)
def test_prompts_wait_until_all_ranks_have_some(rows: list[tuple[float, int]], wait: int, first: list[float]) -> None:
    given = [Request(i, at_s, 8, output) for i, (at_s, output) in enumerate(rows)]
    assert [one for one, _ in dates(balanced(Constant(), 4, wait=wait), given)] == first


class OneByOne(Affine):
    """Step time model that prevents leaps: every step is taken alone."""

    def leap(self, batch: Batch) -> Leap:
        whole = super().leap(batch)
        return Leap(whole.first_s, whole.growth_s, 1, whole.load)


@pytest.mark.slow
@given(requests, st.integers(2, 4), st.integers(1, 9), st.integers(0, 2))
@settings(max_examples=25, deadline=None)
def test_waits_for_other_ranks_are_counted_within_leaps(
    rows: list[Request], ranks: int, timeout: int, wait: int
) -> None:
    together = balanced(Affine(), timeout, ranks, wait)
    found = dates(together, rows)
    assert found == dates(balanced(OneByOne(), timeout, ranks, wait), rows)
    assert together.meters(inf).prompt_tokens == sum(r.prompt_tokens for r in rows)
    if timeout == 1 and not wait:
        assert found == dates(LockstepEngine(Affine(), LIMITS, ranks, ReserveScheduler), rows)


def test_ranks_are_padded_to_the_fullest_where_steps_run_from_graphs() -> None:
    batches = [Batch(decode_seqs=5), Batch(decode_seqs=3, prefill_tokens=20), Batch()]
    assert gathered_tokens(batches, padded_tokens=(23, 0)) == 3 * 23
    assert gathered_tokens(batches, padded_tokens=(22, inf)) == 5 + 23
    assert gathered_tokens([Batch(decode_seqs=5), Batch()], padded_tokens=(0, 5)) == 2 * 5
    assert gathered_tokens([Batch(decode_seqs=5), Batch()], padded_tokens=(inf, 4)) == 5


def test_one_scheduler_visits_the_sequences_of_all_batches() -> None:
    seen = []

    class Listening(Constant):
        def leap(self, batch: Batch) -> Leap:
            seen.append((batch.decode_seqs + batch.prefill_seqs, batch.standing_seqs))
            return Leap(1.0)

    rows = [Request(i, 0.0, 32, 3) for i in range(3)]
    dates(PipelineEngine(Listening(), LIMITS, 3, one_scheduler=True), rows)
    assert seen[:4] == [(1, 0), (1, 1), (1, 2), (1, 2)]


@pytest.mark.slow
@given(st.lists(st.tuples(st.floats(0.1, 1), st.floats(0, 0.1)), min_size=1, max_size=4))
def test_leap_of_the_slowest_is_the_sum_of_the_slowest_steps(pairs: list[tuple[float, float]]) -> None:
    lead = slowest([Leap(first, growth) for first, growth in pairs])
    steps = int(min(lead.valid_steps, 50))
    exact = sum(max(first + j * growth for first, growth in pairs) for j in range(steps))
    assert leap_s(lead, steps) == pytest.approx(exact)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", [VllmScheduler, PrefillFirstScheduler, ReserveScheduler, StaticScheduler])
@given(requests)
@settings(max_examples=25, deadline=None)
def test_requests_share_the_busy_time_to_the_last(schedule: type[Scheduler], rows: list[Request]) -> None:
    # dyadic step times, but a step's time over its tokens is not: sums agree to rounding
    engines = [
        VllmEngine(Affine(), LIMITS, schedule),
        LockstepEngine(Affine(), LIMITS, 2, schedule),
        PipelineEngine(Affine(), LIMITS, 2, schedule),
    ]
    for engine in engines:
        copies = [Request(r.index, r.arrived_s, r.prompt_tokens, r.output_tokens, busy=BusyTime()) for r in rows]
        engine.share_time(True, 0.0)
        drain(engine, copies)
        meters = engine.meters(1e9)
        decode_s = meters.busy_s - meters.prefill_s - meters.recompute_s
        assert sum(r.busy.prefill_s for r in copies) == pytest.approx(meters.prefill_s)
        assert sum(r.busy.recompute_s for r in copies) == pytest.approx(meters.recompute_s)
        assert sum(r.busy.decode_s for r in copies) == pytest.approx(decode_s)
        assert min(min(r.busy.prefill_s, r.busy.recompute_s, r.busy.decode_s) for r in copies) >= -1e-12
        assert bool(meters.recompute_s) == bool(meters.preemptions)


@pytest.mark.parametrize("schedule", [VllmScheduler, PrefillFirstScheduler, ReserveScheduler, StaticScheduler])
@given(requests)
@settings(max_examples=12, deadline=None)
def test_load_is_split_like_the_time_of_its_steps(schedule: type[Scheduler], rows: list[Request]) -> None:
    # the load is the same in all steps: one half
    for engine in (VllmEngine(Affine(), LIMITS, schedule), PipelineEngine(Affine(), LIMITS, 2, schedule)):
        dates(engine, rows)
        meters = engine.meters(1e9)
        assert meters.load_s == pytest.approx(meters.busy_s / 2)
        assert meters.prefill_load_s == pytest.approx(meters.prefill_s / 2)
        assert meters.recompute_load_s == pytest.approx(meters.recompute_s / 2)


def test_decoding_requests_get_no_time_in_steps_with_prompts_only() -> None:
    # a step of two prompts, one of decodes, two of the third prompt, three of decodes
    rows = [(0, 0.0, 16, 5), (1, 0.0, 16, 5), (2, 1.5, 64, 1)]
    copies = [Request(*row, busy=BusyTime()) for row in rows]
    engine = VllmEngine(Constant(), LIMITS, PrefillFirstScheduler)
    engine.share_time(True, 0.0)
    drain(engine, copies)
    assert [r.finished_s for r in copies] == [7.0, 7.0, 4.0]
    assert [(r.busy.prefill_s, r.busy.decode_s) for r in copies] == [(0.5, 2.0), (0.5, 2.0), (2.0, 0.0)]


def test_a_full_pipeline_has_the_pace_of_its_last_stage_and_a_single_request_takes_the_sum_of_all() -> None:
    [(first, last)] = dates(PipelineEngine(HeavyEnd(), LIMITS, 4), [Request(0, 0.0, 4, 3)])
    assert (first, last) == (5.0, 15.0)
    full = dates(PipelineEngine(HeavyEnd(), LIMITS, 4), [Request(i, 0.0, 4, 6) for i in range(4)])
    assert sorted(last - first for first, last in full) == [5 * 4 * 2.0] * 4


class Uneven:
    """Stages of 1, 3, 2 and 2 seconds."""

    window = None

    def leap(self, batch: Batch) -> Leap:
        return Leap(2.0, stages_more_s=(-1.0, 1.0, 0.0, 0.0))


def test_a_full_pipeline_has_the_pace_of_its_slowest_stage() -> None:
    [(first, last)] = dates(PipelineEngine(Uneven(), LIMITS, 4), [Request(0, 0.0, 4, 3)])
    assert (first, last) == (8.0, 24.0)
    full = dates(PipelineEngine(Uneven(), LIMITS, 4), [Request(i, 0.0, 4, 6) for i in range(4)])
    assert sorted(last - first for first, last in full) == [5 * 4 * 3.0] * 4


def test_a_fast_stage_waits_for_the_last_piece_of_a_slow_one() -> None:
    free_s = [0.0, 0.0, 0.0]
    assert pass_through(free_s, 0.0, Leap(2.0, stages_more_s=(1.0, -1.0, 0.0)), 10) == pytest.approx(3.3)
    assert free_s[:2] == pytest.approx([3.0, 3.1])


class ByTokens:
    """A stage takes a second for each 512 tokens."""

    def leap(self, batch: Batch) -> Leap:
        return Leap((batch.decode_seqs + batch.prefill_tokens) / 512)


def test_pieces_of_a_prompt_follow_each_other_through_the_stages_and_an_answer_waits_for_the_last_of_them():
    limits = replace(LIMITS, num_gpu_blocks=3000, max_num_batched_tokens=2048)
    pieces, stages = 8, 4
    for budget in (512, 2048):  # as batches of their own, and as parts of one
        engine = PipelineEngine(
            ByTokens(), replace(limits, max_num_batched_tokens=budget), stages, lanes=1, piece_tokens=512
        )
        [(first, last)] = dates(engine, [Request(0, 0.0, pieces * 512, 2)])
        assert first == pieces + stages - 1
        assert last - first == stages / 512
    [(first, _)] = dates(PipelineEngine(ByTokens(), limits, stages, lanes=1), [Request(0, 0.0, pieces * 512, 2)])
    assert first == pieces * stages


@pytest.mark.parametrize(("chunks", "stages"), [(1, 3), (2, 3), (3, 3), (8, 2), (8, 4)])
@pytest.mark.parametrize("schedule", [SglangScheduler, ReserveScheduler])
def test_chunks_of_a_prompt_follow_each_other_through_the_stages(
    chunks: int, stages: int, schedule: type[Scheduler]
) -> None:
    engine = PipelineEngine(Constant(), OVERLAPPING, stages, schedule)
    [(first, last)] = dates(engine, [Request(0, 0.0, chunks * 32, 3)])
    assert (first, last) == (chunks + stages - 1, chunks + 3 * stages - 1)
    assert engine.meters(1e9).busy_s == chunks + 2


def test_chunks_wait_for_each_other_in_tensorrt_llm_before_1_2() -> None:
    engine = PipelineEngine(Constant(), replace(OVERLAPPING, overlaps_chunks=False), 3, ReserveScheduler)
    assert dates(engine, [Request(0, 0.0, 2 * 32, 3)]) == [(2 * 3, 4 * 3)]


def test_the_next_batch_continues_a_prompt_beside_decoding_requests_in_tensorrt_llm() -> None:
    # the lane of the first request ends batches at 2, 4 and 6, then its last token beside 31 of the prompt at 8, and 32
    # of them at 10; the other lane, which begins at 4, ends 32 at 7, 32 at 9 and the last one at 11
    rows = [Request(0, 0.0, 8, 4), Request(1, 3.5, 4 * 32, 1)]
    assert dates(PipelineEngine(Constant(), OVERLAPPING, 2, ReserveScheduler), rows) == [(2.0, 8.0), (11.0, 11.0)]


@pytest.mark.parametrize("schedule", [ReserveScheduler, MaxUtilizationScheduler])
@pytest.mark.parametrize(("seqs", "tokens"), [(1, 32), (4, 4)])
def test_a_lane_without_place_or_tokens_leaves_a_prompt_where_it_is(
    schedule: type[Scheduler], seqs: int, tokens: int
) -> None:
    class Limited(Constant):
        def leap(self, batch: Batch) -> Leap:
            assert batch.decode_seqs + batch.prefill_seqs <= seqs
            assert batch.prefill_seqs <= batch.prefill_tokens <= tokens - batch.decode_seqs
            return super().leap(batch)

    limits = replace(OVERLAPPING, num_gpu_blocks=999, max_num_seqs=seqs, max_num_batched_tokens=tokens)
    rows = [Request(place, place, 100 if place % 2 else 8, 40) for place in range(9)]
    dates(PipelineEngine(Limited(), limits, 2, schedule, lane_seqs=seqs), rows)


def test_a_lane_has_its_own_limit_of_requests() -> None:
    rows = [Request(place, 0.0, 4, 2) for place in range(5)]
    engine = PipelineEngine(Constant(), LIMITS, 2, ReserveScheduler, lane_seqs=1)
    assert dates(engine, rows) == [(2.0, 4.0), (3.0, 5.0), (6.0, 8.0), (7.0, 9.0), (10.0, 12.0)]


@pytest.mark.parametrize("schedule", [SglangScheduler, ReserveScheduler])
def test_requests_that_come_together_share_a_lane_with_room_for_them(schedule: type[Scheduler]) -> None:
    # the first lane has room for two
    rows = [Request(place, 0.0, 4, 3) for place in range(3)]
    engine = PipelineEngine(Constant(), LIMITS, 2, schedule, lane_seqs=2)
    assert dates(engine, rows) == [(2.0, 6.0), (2.0, 6.0), (3.0, 7.0)]


@pytest.mark.parametrize("schedule", [SglangScheduler, ReserveScheduler])
def test_a_request_waits_for_the_oldest_batch_in_flight_although_a_lane_is_empty(schedule: type[Scheduler]) -> None:
    # the second one begins at 4, a stage behind the first one's second token, and the third at 9, when that batch ends
    rows = [Request(0, 0.0, 4, 3), Request(1, 0.5, 4, 1), Request(2, 8.5, 4, 1)]
    assert dates(PipelineEngine(Constant(), LIMITS, 4, schedule), rows) == [(4.0, 12.0), (9.0, 9.0), (13.0, 13.0)]


def test_an_eviction_forms_no_batch_before_the_oldest_one_in_flight_has_ended() -> None:
    engine = PipelineEngine(Constant(), LIMITS, 4, ReserveScheduler)
    rows = [Request(place, 0.0, 4, 1) for place in range(3)]
    assert engine.offer(rows[0], 0.0)
    assert engine.plan(0.0) == 4.0
    assert not any(engine.offer(one, 0.5) for one in rows[1:])
    engine.evict(rows[2], 1.0)
    engine.plan(1.0)
    engine.advance()
    assert engine.plan(4.0) == 8.0


def test_decoding_waits_in_all_lanes_for_the_chunks_of_a_prompt_in_sglang() -> None:
    # the lane of the first request ends batches at 2, 4 and 6, then the second and fourth chunk at 8 and 10, then its
    # last token; the other lane, which begins at 4, ends the first and third chunk at 7 and 9
    limits = replace(LIMITS, num_gpu_blocks=200)
    rows = [Request(0, 0.0, 8, 4), Request(1, 3.5, 4 * 32, 1)]
    assert dates(PipelineEngine(Constant(), limits, 2, SglangScheduler), rows) == [(2.0, 12.0), (10.0, 10.0)]


@pytest.mark.parametrize("schedule", [SglangScheduler, ReserveScheduler])
def test_the_progress_of_an_evicted_prompt_leaves_out_its_chunks_in_flight(schedule: type[Scheduler]) -> None:
    engine = PipelineEngine(Constant(), OVERLAPPING, 2, schedule)
    request = Request(0, 0.0, 6 * 32, 3)
    engine.offer(request, 0.0)
    for _ in range(3):
        engine.plan(0.0)
        engine.advance()
    engine.plan(4.0)
    assert engine.evict(request, 4.5).computed_tokens == 3 * 32
    while engine.plan(5.0) < inf:
        engine.advance()
    assert engine.caches()[0].free == engine.caches()[0].usable
    assert engine.meters(1e9).prompt_tokens == 5 * 32


def test_a_request_of_an_empty_lane_waits_for_the_blocks_of_other_lanes_in_sglang() -> None:
    # 19 blocks of 4 tokens: the first prompt holds ten, and the second one needs as many
    engine = PipelineEngine(
        Constant(), replace(LIMITS, num_gpu_blocks=20, max_num_batched_tokens=40), 2, SglangScheduler
    )
    rows = [Request(0, 0.0, 40, 9), Request(1, 0.5, 40, 1)]
    assert dates(engine, rows) == [(2.0, 18.0), (20.0, 20.0)]
    assert engine.caches()[0].free == 19


@pytest.mark.slow
@pytest.mark.parametrize("schedule", [SglangScheduler, ReserveScheduler, MaxUtilizationScheduler])
@given(requests, st.integers(2, 4))
@settings(max_examples=25, deadline=None)
def test_chunks_in_several_stages_conserve_tokens_blocks_and_time(
    schedule: type[Scheduler], rows: list[Request], stages: int
) -> None:
    engine = PipelineEngine(Affine(), replace(OVERLAPPING, num_gpu_blocks=1000), stages, schedule)
    copies = [Request(r.index, r.arrived_s, r.prompt_tokens, r.output_tokens, busy=BusyTime()) for r in rows]
    engine.share_time(True, 0.0)
    drain(engine, copies)
    meters, pool = engine.meters(1e9), engine.caches()[0]
    assert meters.prompt_tokens == sum(r.prompt_tokens for r in rows)
    assert meters.output_tokens == sum(r.output_tokens for r in rows)
    assert sum(r.busy.prefill_s + r.busy.decode_s for r in copies) == pytest.approx(meters.busy_s)
    assert pool.free == pool.usable >= pool.peak
