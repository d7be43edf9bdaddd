"""SGLang's scheduler gives the dates of its own step-by-step reference, and does by hand what its source says."""

import pytest
from engine_workloads import Affine, assert_conserved, dates, rank_limits, workloads
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_engine import drain
from reference_sglang import Overlap, Sglang

from sim.engine.asynchronous import AsyncEngine
from sim.engine.pipeline import PipelineEngine
from sim.engine.schedulers.prefill_first import SglangScheduler
from sim.engine.schedulers.scheduler import FinishQueue
from sim.engine.sequence import Sequence
from sim.engine.synchronous import VllmEngine
from sim.records import Request

OPTIONS = st.fixed_dictionaries(
    {
        "chunked_prefill": st.booleans(),
        "scheduler_recv_interval": st.integers(1, 7),
        "schedule_conservativeness": st.sampled_from([0.1, 0.5, 1.0]),
        "max_prefill_tokens": st.sampled_from([0, 20, 200]),
        "enable_mixed_chunk": st.booleans(),
        "preemption_threshold": st.sampled_from([0, 1, 10]),
    }
)


@pytest.mark.slow
@given(workloads(), OPTIONS, st.booleans())
@settings(max_examples=60, deadline=None)
def test_both_loops_agree_exactly(workload, options, overlap) -> None:
    requests, limits = workload
    size, most = limits["block_size"], limits["max_num_batched_tokens"]
    limits |= options | {"max_num_batched_tokens": -(-most // size) * size}  # chunks are whole blocks
    fast = [Request(**r) for r in requests]
    if overlap:
        engine = AsyncEngine(Affine(), rank_limits(**limits), SglangScheduler)
        reference = Overlap(Affine().leap, asynchronous=True, **limits)
    else:
        engine = VllmEngine(Affine(), rank_limits(**limits), SglangScheduler)
        reference = Sglang(Affine().leap, **limits)
    drain(engine, fast)
    for ours, theirs in zip(fast, reference.run([Request(**r) for r in requests]), strict=True):
        assert dates(ours) == dates(theirs)
        assert (ours.preemptions, ours.cached_tokens) == (theirs.request.preemptions, theirs.cached_tokens)
    assert engine.meters(1e9).steps == reference.steps
    assert_conserved(engine, fast)


@pytest.mark.slow
@given(workloads(), st.integers(2, 4), st.sampled_from([0.1, 1.0]))
@settings(max_examples=60, deadline=None)
def test_every_accepted_request_of_a_pipeline_ends(workload, stages, conservativeness) -> None:
    requests, limits = workload
    rows = [Request(**r) for r in requests]
    limits = rank_limits(**limits | {"schedule_conservativeness": conservativeness})
    engine = PipelineEngine(Affine(), limits, stages, SglangScheduler)
    drain(engine, rows)
    assert all(r.rejected != (r.finished_s >= r.first_token_s) for r in rows)
    assert engine.caches()[0].free == engine.caches()[0].usable


def test_a_lane_aborts_its_last_request_where_other_lanes_hold_the_blocks() -> None:
    # five blocks of 4 tokens: both prompts hold two, and the first lane takes the last block at 2
    limits = rank_limits(
        num_gpu_blocks=6, block_size=4, max_num_seqs=8, max_num_batched_tokens=32, max_model_len=99,
        schedule_conservativeness=0.0,
    )  # fmt: skip
    rows = [Request(0, 0.0, 8, 9), Request(1, 0.0, 8, 9)]
    engine = PipelineEngine(Affine(64), limits, 2, SglangScheduler)
    drain(engine, rows)
    first, second = rows
    assert (first.preemptions, second.preemptions) == (0, 0)
    assert second.rejected
    assert second.first_token_s > first.first_token_s
    assert first.finished_s >= first.first_token_s


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=30), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_tokens_left_of_all_answers_are_the_sum_of_each(answers, at_most) -> None:
    finishing, ends, step = FinishQueue(), {}, 0
    for number, (tokens, goes) in enumerate(answers):
        sequence = Sequence(Request(number, 0.0, 1, tokens))
        sequence.finish_step, sequence.admission = step + tokens, number
        finishing.add(sequence)
        ends[sequence] = sequence.finish_step
        if goes:  # one leaves before its end, and all others come a step further
            finishing.remove(first := next(iter(ends)))
            del ends[first]
            step += 1
            for one in finishing.pop_reached(step):
                del ends[one]
        assert finishing.steps_left(step, at_most) == sum(min(end - step, at_most) for end in ends.values())


def started(requests: list[Request], step_s: float = 0.25, **options: object) -> list[int]:
    """Return the step in which each of *requests* starts; steps take slightly more than *step_s*."""
    usual = {"block_size": 16, "max_num_seqs": 4, "max_num_batched_tokens": 64, "schedule_conservativeness": 1.0}
    limits = rank_limits(**{"num_gpu_blocks": 20, "max_model_len": 500} | usual | options)
    drain(VllmEngine(Affine(step_s * 64), limits, SglangScheduler), requests)
    return [int(one.started_s / step_s) for one in requests]


def test_the_receive_interval_keeps_an_arrival_waiting() -> None:
    # the end of the first prompt is a look, the next one comes after four tokens
    assert started([Request(0, 0.0, 8, 20), Request(1, 0.3, 8, 2)], scheduler_recv_interval=4) == [0, 5]


def test_admission_reserves_the_rest_of_all_answers() -> None:
    # 304 tokens: 0.7 of an answer of 200 beside a prompt of 16 leaves 148, and the second one wants 16 + 140
    both = [Request(0, 0.0, 16, 200), Request(1, 0.1, 16, 140)]
    assert started(both)[1] > 100
    assert started([Request(0, 0.0, 16, 200), Request(1, 0.1, 16, 140)], schedule_conservativeness=0.5)[1] == 1


def test_a_full_batch_is_retried_one_step_after_a_request_left() -> None:
    # the prompt, two more tokens, and a step that finds the batch smaller before the second one joins
    rows = [Request(0, 0.0, 16, 3), Request(1, 0.0, 16, 20), Request(2, 0.0, 16, 2)]
    assert started(rows, max_num_seqs=2) == [0, 0, 4]


@pytest.mark.parametrize(("priority", "gives_way"), [(10, False), (11, True)])
def test_a_request_is_preempted_by_one_more_urgent_by_more_than_the_threshold(priority, gives_way) -> None:
    rows = [Request(0, 0.0, 16, 20, priority=priority), Request(1, 0.3, 16, 4, priority=0)]
    assert started(rows, max_num_seqs=1, scheduling="priority")[1] == (1 if gives_way else 20)
    assert [one.preemptions for one in rows] == [int(gives_way), 0]


def test_the_shortest_answer_is_retracted_and_waits_behind_all_others() -> None:
    rows = [Request(0, 0.0, 32, 60), Request(1, 0.5, 16, 40), Request(2, 5.0, 32, 5)]
    started(rows, num_gpu_blocks=9, schedule_conservativeness=0.1, max_num_seqs=2)
    assert [one.preemptions for one in rows] == [0, 1, 0]
    assert rows[2].first_token_s < rows[1].finished_s
