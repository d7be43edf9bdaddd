"""Differences between batching policies, on workloads small enough to follow by hand; every step takes a second."""

from engine_workloads import rank_limits
from reference_engine import drain

from sim.engine.pipeline import PipelineEngine
from sim.engine.schedulers.prefill_first import PrefillFirstScheduler
from sim.engine.schedulers.reserve import BatchWaitingScheduler, ReserveScheduler
from sim.engine.schedulers.scheduler import Scheduler
from sim.engine.schedulers.static import StaticScheduler
from sim.engine.schedulers.vllm import VllmScheduler
from sim.engine.synchronous import VllmEngine
from sim.records import Batch, Leap, Request

LIMITS = {
    "num_gpu_blocks": 1001, "block_size": 1, "max_num_seqs": 4, "max_num_batched_tokens": 10, "max_model_len": 1000,
}  # fmt: skip


class Second:
    """Every step takes a second."""

    def leap(self, batch: Batch) -> Leap:
        return Leap(1.0)


def dates(schedule: type[Scheduler], rows: list[tuple[float, int, int]], **limits) -> list[tuple[float, float]]:
    """(first token, finish) of requests given as (arrival, prompt, output)."""
    requests = [Request(index, *row) for index, row in enumerate(rows)]
    drain(VllmEngine(Second(), rank_limits(**LIMITS | limits), schedule), requests)
    assert all(request.preemptions == 0 for request in requests)
    return [(request.first_token_s, request.finished_s) for request in requests]


def test_tokens_wait_for_prompts_only_where_prompts_go_first() -> None:
    rows = [(0.0, 5, 10), (2.0, 10, 1), (2.0, 10, 1)]
    # two prompt steps hold the first answer up for two seconds; mixed steps do not, but the prompts get less of each
    assert dates(PrefillFirstScheduler, rows, chunked_prefill=False) == [(1.0, 12.0), (3.0, 3.0), (4.0, 4.0)]
    assert dates(VllmScheduler, rows) == [(1.0, 10.0), (4.0, 4.0), (5.0, 5.0)]


def test_a_whole_prompt_beyond_the_budget_is_computed_by_itself_and_a_cut_one_in_several_steps() -> None:
    rows = [(0.0, 35, 1), (0.0, 2, 1)]
    assert dates(PrefillFirstScheduler, rows, chunked_prefill=False) == [(1.0, 1.0), (2.0, 2.0)]
    assert dates(PrefillFirstScheduler, rows, chunked_prefill=True) == [(4.0, 4.0), (4.0, 4.0)]


def test_reserved_blocks_keep_others_waiting_without_preemption() -> None:
    rows = [(0.0, 5, 5), (0.0, 5, 5)]
    assert dates(ReserveScheduler, rows, num_gpu_blocks=1 + 17) == [(1.0, 5.0), (6.0, 10.0)]
    assert dates(ReserveScheduler, rows, num_gpu_blocks=1 + 18) == [(1.0, 5.0), (1.0, 5.0)]


def test_prompts_wait_until_they_fill_a_step_or_for_a_number_of_steps() -> None:
    rows = [(0.0, 5, 20), (1.0, 4, 1), (2.0, 4, 1)]
    hold = {"batch_wait_steps": 3, "batch_wait_tokens": 9.0}
    # nobody decodes at first; then two prompts and a decode have 9 tokens together at 2 s
    assert dates(BatchWaitingScheduler, rows, **hold) == [(1.0, 20.0), (3.0, 3.0), (3.0, 3.0)]
    # one alone is computed after three steps
    assert dates(BatchWaitingScheduler, rows[:2], **hold) == [(1.0, 20.0), (5.0, 5.0)]


def test_slots_limit_concurrency_and_reject_requests_longer_than_a_slot() -> None:
    slots = {"block_size": 20, "num_gpu_blocks": 3, "max_num_seqs": 2, "max_model_len": 20}
    requests = [Request(index, 0.0, 5, 5) for index in range(3)] + [Request(3, 0.0, 15, 6)]
    drain(VllmEngine(Second(), rank_limits(**LIMITS | slots), ReserveScheduler), requests)
    assert [request.finished_s for request in requests[:3]] == [5.0, 5.0, 10.0]
    assert requests[3].rejected


def test_one_lane_passes_the_stages_in_series() -> None:
    requests = [Request(index, 0.0, 5, 5) for index in range(2)]
    drain(PipelineEngine(Second(), rank_limits(**LIMITS), 2, ReserveScheduler, lanes=1), requests)
    assert [request.finished_s for request in requests] == [10.0, 10.0]


def test_a_static_batch_ends_with_its_longest_answer() -> None:
    rows = [(0.0, 5, 2), (0.0, 5, 8), (1.5, 5, 1)]
    assert dates(StaticScheduler, rows) == [(1.0, 2.0), (1.0, 8.0), (9.0, 9.0)]


def test_a_request_that_preempts_itself_does_not_keep_the_next_from_its_token() -> None:
    # at 6 s the second needs another block and all three are taken: it is the last by priority and gives way itself
    requests = [Request(0, 0.0, 1, 10, 0), Request(1, 0.0, 12, 10, 1), Request(2, 0.5, 1, 10, 0)]
    limits = LIMITS | {"num_gpu_blocks": 4, "block_size": 16, "max_num_batched_tokens": 100, "scheduling": "priority"}
    drain(VllmEngine(Second(), rank_limits(**limits), VllmScheduler), requests)
    assert [(request.finished_s, request.preemptions) for request in requests] == [(10.0, 0), (15.0, 1), (11.0, 0)]


def test_of_equals_that_arrived_together_the_first_admitted_is_preempted() -> None:
    # the second and the third are equals; five blocks are taken at 4 s, and the first request needs another one
    requests = [Request(0, 0.0, 1, 8, 0), Request(1, 0.0, 4, 8, 1), Request(2, 0.0, 4, 8, 1)]
    limits = LIMITS | {"num_gpu_blocks": 6, "block_size": 4, "scheduling": "priority"}
    drain(VllmEngine(Second(), rank_limits(**limits), VllmScheduler), requests)
    assert [request.preemptions for request in requests] == [0, 1, 0]


def test_a_long_prompt_is_capped_only_beside_other_requests() -> None:
    limits = {"long_prefill_token_threshold": 4}
    assert dates(VllmScheduler, [(0.0, 20, 1)], **limits) == [(2.0, 2.0)]
    # 4 + 1 tokens, then 10 alone, then the rest
    assert dates(VllmScheduler, [(0.0, 20, 1), (0.0, 1, 1)], **limits) == [(3.0, 3.0), (1.0, 1.0)]


def test_an_older_prompt_may_use_the_budget_of_a_younger_answer() -> None:
    # prompts at 4 s; at 5 s one of a single token, which need not wait; at 8 s the long prompt takes all that is left
    rows = [(0.0, 2, 20), (0.5, 25, 1), (4.5, 1, 5)]
    assert dates(VllmScheduler, rows, prefill_schedule_interval=4) == [(1.0, 20.0), (13.0, 13.0), (6.0, 11.0)]


def test_a_prompt_of_one_token_does_not_restart_the_interval() -> None:
    # the long prompt joins at 1 s and goes on at 5 s; the third finds no budget, so the step at 6 s does not wait
    rows = [(0.0, 1, 20), (0.5, 25, 1), (4.5, 1, 5)]
    assert dates(VllmScheduler, rows, prefill_schedule_interval=4) == [(1.0, 20.0), (7.0, 7.0), (7.0, 11.0)]


def test_prompts_wait_for_the_interval_only_while_others_decode() -> None:
    rows = [(0.0, 5, 9), (0.5, 5, 1), (2.5, 4, 1)]
    assert dates(VllmScheduler, rows, prefill_schedule_interval=4) == [(1.0, 9.0), (5.0, 5.0), (5.0, 5.0)]
    assert dates(VllmScheduler, rows[1:], prefill_schedule_interval=4) == [(1.5, 1.5), (3.5, 3.5)]


def test_a_watermark_keeps_blocks_free_for_running_requests() -> None:
    rows = [(0.0, 5, 5), (0.0, 4, 2)]
    assert dates(VllmScheduler, rows, num_gpu_blocks=15) == [(1.0, 5.0), (1.0, 2.0)]
    assert dates(VllmScheduler, rows, num_gpu_blocks=15, watermark=0.5) == [(1.0, 5.0), (6.0, 7.0)]
