"""Asynchronous scheduling and pipelines give the dates of a reference that takes one batch after the other."""

from dataclasses import replace

import pytest
from engine_workloads import (
    BASE,
    PER_TOKEN,
    Adapted,
    Affine,
    Open,
    Windowed,
    assert_conserved,
    dates,
    optioned_workloads,
    rank_limits,
    skip_if_compiled,
    some_crashes,
    some_evictions,
    timestamps,
    workloads,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_drafts_ahead import AsyncDraftReference
from reference_engine import drain, drain_evicting
from reference_groups import GroupsReference
from reference_policies import Reserve
from reference_queued import QueuedReference
from reference_sglang import Overlap

from sim.engine.asynchronous import AsyncEngine
from sim.engine.limits import SchedulerLimits
from sim.engine.lora import AdapterSlots
from sim.engine.pipeline import StagesEngine
from sim.engine.schedulers.kv_groups import GroupScheduler
from sim.engine.schedulers.prefill_first import SglangScheduler
from sim.engine.schedulers.reserve import OverlapScheduler
from sim.engine.schedulers.speculative import AsyncDraftScheduler
from sim.engine.schedulers.vllm import VllmScheduler
from sim.engine.synchronous import VllmEngine
from sim.records import ReplicaProgress, Request


@pytest.mark.slow
@given(st.one_of(workloads(), optioned_workloads()), st.sampled_from([Affine(), Windowed()]))
@settings(max_examples=70, deadline=None)
def test_asynchronous_scheduling_agrees_exactly(workload, model) -> None:
    requests, limits = workload
    fast = [Request(**r) for r in requests]
    engine = AsyncEngine(model, rank_limits(window=model.window, **limits))
    drain(engine, fast)
    reference = QueuedReference(model.leap, window=model.window, asynchronous=True, **limits)
    for ours, theirs in zip(fast, reference.run([Request(**r) for r in requests]), strict=True):
        assert dates(ours) == dates(theirs)
        assert ours.preemptions == theirs.request.preemptions
        assert ours.cached_tokens == theirs.cached_tokens
    assert engine.meters(1e9).steps == reference.steps
    assert_conserved(engine, fast)


class ReserveAhead(Reserve, QueuedReference):
    """TensorRT-LLM's overlap scheduler."""


@pytest.mark.slow
@given(workloads(), st.sampled_from([Affine(), Windowed()]), st.booleans())
@settings(max_examples=50, deadline=None)
def test_steps_with_reserved_blocks_agree_exactly(workload, model, chunked) -> None:
    requests, limits = workload
    limits |= {"chunked_prefill": chunked}
    fast = [Request(**r) for r in requests]
    engine = AsyncEngine(model, rank_limits(window=model.window, **limits), OverlapScheduler)
    drain(engine, fast)
    reference = ReserveAhead(model.leap, window=model.window, asynchronous=True, **limits)
    for ours, theirs in zip(fast, reference.run([Request(**r) for r in requests]), strict=True):
        assert dates(ours) == dates(theirs)
        assert ours.cached_tokens == theirs.cached_tokens
    assert engine.meters(1e9).steps == reference.steps
    assert_conserved(engine, fast)


def test_blocks_of_a_whole_request_are_in_use_in_each_of_its_steps() -> None:
    limits = rank_limits(
        num_gpu_blocks=21, block_size=4, max_num_seqs=8, max_num_batched_tokens=64, max_model_len=100
    )  # fmt: skip
    engine = AsyncEngine(Affine(), limits, OverlapScheduler)
    engine.offer(Request(0, 0.0, 8, 33), 0.0)
    begins = engine.plan(0.0)
    engine.advance()
    ends = engine.plan(begins)
    assert {engine.kv_usage(begins + (ends - begins) * part / 8) for part in range(8)} == {10 / 20}


def test_spans_have_frozen_sets_which_compiled_code_requires() -> None:
    limits = rank_limits(
        num_gpu_blocks=100, block_size=16, max_num_seqs=8, max_num_batched_tokens=64, max_model_len=1000
    )
    for kind in (AsyncEngine, VllmEngine):
        engine = kind(Affine(), limits)
        for index, prompt_tokens in enumerate((8, 100)):
            engine.offer(Request(index, 0.0, prompt_tokens, 20), 0.0)
        end_s = engine.plan(0.0)
        engine.advance()
        engine.plan(end_s)
        (span,) = engine.under_way()
        assert type(span.decoding) is frozenset, kind
        assert (span.decoding, span.prompts.keys()) == ({0}, {1})


def test_an_answer_is_a_cache_hit_while_its_last_token_is_made() -> None:
    """A request that arrives in the step before the last one joins the step after it."""
    shared = {"block_hashes": (7,), "hash_block_tokens": 32}
    limits = {
        "num_gpu_blocks": 100, "block_size": 16, "max_num_seqs": 8, "max_num_batched_tokens": 48,
        "max_model_len": 1000, "enable_prefix_caching": True, "scheduling": "fcfs",
    }  # fmt: skip
    requests = [
        {"index": 0, "arrived_s": 0.0, "prompt_tokens": 20, "output_tokens": 20} | shared,
        {"index": 1, "arrived_s": 19 / 64, "prompt_tokens": 40, "output_tokens": 2} | shared,
    ]
    fast = [Request(**r) for r in requests]
    drain(AsyncEngine(Affine(), rank_limits(**limits)), fast)
    slow = QueuedReference(Affine().leap, asynchronous=True, **limits).run([Request(**r) for r in requests])
    assert [dates(one) for one in fast] == [dates(one) for one in slow]
    assert [one.cached_tokens for one in fast] == [one.cached_tokens for one in slow] == [0, 32]


def test_a_request_preempted_while_its_only_token_is_made_frees_its_blocks_once() -> None:
    shared = {"block_hashes": (7,), "hash_block_tokens": 8}
    limits = {
        "num_gpu_blocks": 25, "block_size": 4, "max_num_seqs": 8, "max_num_batched_tokens": 1000,
        "max_model_len": 1000, "enable_prefix_caching": True, "scheduling": "fcfs",
    }  # fmt: skip
    rows = [(3, 1, 13), (9, 15, 7), (9, 31, 7), (12, 31, 3), (14, 8, 1)]
    requests = [
        {"index": index, "arrived_s": ticks / 64, "prompt_tokens": prompt, "output_tokens": answer} | shared
        for index, (ticks, prompt, answer) in enumerate(rows)
    ]
    requests[0]["block_hashes"] = ()
    fast = [Request(**r) for r in requests]
    engine = AsyncEngine(Affine(), rank_limits(**limits))
    drain(engine, fast)
    slow = QueuedReference(Affine().leap, asynchronous=True, **limits).run([Request(**r) for r in requests])
    assert [dates(one) for one in fast] == [dates(one) for one in slow]
    assert [one.preemptions for one in fast] == [one.request.preemptions for one in slow] == [0, 0, 0, 1, 1]
    assert_conserved(engine, fast)


@pytest.mark.slow
@given(st.one_of(workloads(), optioned_workloads()), st.integers(2, 4), st.booleans())
@settings(max_examples=40, deadline=None)
def test_stages_agree_exactly(workload, stages, ahead) -> None:
    requests, limits = workload
    fast = [Request(**r) for r in requests]
    engine = StagesEngine(Affine(), rank_limits(**limits), stages, ahead)
    drain(engine, fast)
    reference = QueuedReference(Affine().leap, stages=stages, asynchronous=ahead, **limits)
    for ours, theirs in zip(fast, reference.run([Request(**r) for r in requests]), strict=True):
        assert dates(ours) == dates(theirs)
        assert ours.preemptions == theirs.request.preemptions
        assert ours.cached_tokens == theirs.cached_tokens
    assert engine.meters(1e9).steps == reference.steps
    assert_conserved(engine, fast)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("blocks", [2000, 150])
def test_simulation_cost_of_a_batch_does_not_depend_on_its_decoding_requests(ahead, blocks) -> None:
    """Each request is looked at with its prompt, its last tokens and where blocks are short, not for each token."""
    skip_if_compiled()
    limits = rank_limits(blocks, 16, 64, 600, 1000)
    engine, alone = StagesEngine(Affine(), limits, 2, ahead), []
    form = engine._schedule.form

    def formed(now: float):
        if launch := form(now):
            alone.append(len(launch.chunks))
        return launch

    engine._schedule.form = formed
    requests = [Request(index, index / 64, 30, 200) for index in range(40)]
    drain(engine, requests)
    assert_conserved(engine, requests)
    assert (sum(one.preemptions for one in requests) > 0) == (blocks == 150)
    assert sum(alone) < 0.2 * sum(one.output_tokens for one in requests)


def test_the_request_preempted_last_joins_first() -> None:
    """The third request is preempted with a token in flight, then the second, which returns to the queue's head
    (`Scheduler.waiting.prepend_request`).
    """
    limits = {
        "num_gpu_blocks": 10, "block_size": 1, "max_num_seqs": 3, "max_num_batched_tokens": 5,
        "max_model_len": 1000, "enable_prefix_caching": False, "scheduling": "fcfs",
    }  # fmt: skip
    rows = [(0.0, 3, 3), (0.0, 3, 6), (2 / 64, 2, 4)]
    fast, slow = ([Request(index, *row) for index, row in enumerate(rows)] for _ in range(2))
    drain(StagesEngine(Affine(), rank_limits(**limits), 3), fast)
    reference = QueuedReference(Affine().leap, stages=3, **limits).run(slow)
    assert [dates(one) for one in fast] == [dates(one) for one in reference]
    assert fast[1].finished_s < fast[2].finished_s
    assert [one.preemptions for one in fast] == [0, 1, 2]


@pytest.mark.slow
@given(workloads(), st.lists(st.sampled_from(["", *"abcd"]), min_size=24, max_size=24), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_adapters_agree_one_step_ahead(workload, names, on_gpu) -> None:
    requests, limits = workload
    for request, name in zip(requests, names, strict=False):
        request["adapter"] = name
    slots = (on_gpu, 3, 1 / 64, 3 / 64)
    fast = [Request(**r) for r in requests]
    engine = AsyncEngine(Adapted(), rank_limits(**limits, new_adapters=lambda: AdapterSlots(*slots)))
    drain(engine, fast)
    reference = QueuedReference(Adapted().leap, asynchronous=True, adapters=slots, **limits)
    for ours, theirs in zip(fast, reference.run([Request(**r) for r in requests]), strict=True):
        assert dates(ours) == dates(theirs)
    assert engine.adapters()[0].running == 0


def test_answers_are_not_looked_up_while_waiting_requests_lack_an_adapter_slot() -> None:
    """Decodes alone take the whole budget, an answer has a name, and who waits wants the slot of one who leaves."""
    limits = {"num_gpu_blocks": 3, "block_size": 16, "max_num_seqs": 2, "max_num_batched_tokens": 2}
    limits |= {"max_model_len": 80, "enable_prefix_caching": True, "scheduling": "fcfs"}
    rows = [("", 1, ()), ("", 1, ()), ("a", 2, ()), ("b", 1, ()), ("", 15, (7,))]
    fast, slow = (
        [
            Request(index, 0.0, 1, tokens, adapter=name, block_hashes=hashes, hash_block_tokens=16)
            for index, (name, tokens, hashes) in enumerate(rows)
        ]
        for _ in range(2)
    )
    slots = (1, 3, 1 / 64, 3 / 64)
    drain(AsyncEngine(Adapted(), rank_limits(**limits, new_adapters=lambda: AdapterSlots(*slots))), fast)
    reference = QueuedReference(Adapted().leap, asynchronous=True, adapters=slots, **limits)
    assert [dates(one) for one in fast] == [dates(one) for one in reference.run(slow)]


AHEAD = {"asynchronous": True}
GROUPED = st.sampled_from([(None,), (None,), (None, 20), (5, 33)])
GROUPS = st.lists(st.sampled_from([None, 0, 1, 5, 20, 33]), min_size=1, max_size=3).filter(lambda one: one != [None])
DRAFTS = {"draft_tokens": 3, "accepts": lambda request, tokens: 2, "batches_in_flight": 2}
SGLANG = {"scheduler_recv_interval": 3, "schedule_conservativeness": 1.0}


def with_options(limits: SchedulerLimits, **options: float) -> SchedulerLimits:
    """Return *limits* with other *options* of the scheduler."""
    return replace(limits, options=limits.options.model_copy(update=options))


IN_FLIGHT = {
    "one ahead": (lambda limits: AsyncEngine(Affine(), limits), QueuedReference, AHEAD),
    "reserved ahead": (lambda limits: AsyncEngine(Affine(), limits, OverlapScheduler), ReserveAhead, AHEAD),
    "drafts": (
        lambda limits: AsyncEngine(Affine(), replace(limits, **DRAFTS), AsyncDraftScheduler),
        AsyncDraftReference,
        {"draft_tokens": 3, "accepted": 2},
    ),
    "stages": (lambda limits: StagesEngine(Affine(), limits, 3), QueuedReference, {"stages": 3}),
    "stages ahead": (lambda limits: StagesEngine(Affine(), limits, 2, True), QueuedReference, AHEAD | {"stages": 2}),
    "overlap": (
        lambda limits: AsyncEngine(Affine(), with_options(limits, **SGLANG), SglangScheduler),
        Overlap,
        AHEAD | SGLANG,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", IN_FLIGHT)
@given(workloads(), st.integers(0, 2**32))
@settings(max_examples=12, deadline=None)
def test_progress_of_evicted_requests_equals_the_reference(kind, workload, seed) -> None:
    requests, limits = workload
    size, most = limits["block_size"], limits["max_num_batched_tokens"]
    limits = limits | {"enable_prefix_caching": False, "max_num_batched_tokens": -(-most // size) * size}
    limits |= {"max_model_len": 1000} if kind == "drafts" else {}
    make, reference_type, queue = IN_FLIGHT[kind]
    usual = reference_type(Affine().leap, **queue, **limits).run([Request(**r) for r in requests])
    evictions, crashes = some_evictions(timestamps(usual), seed), some_crashes(timestamps(usual), seed)
    fast = [Request(**r) for r in requests]
    engine = make(rank_limits(**limits))
    evicted = drain_evicting(engine, fast, evictions, crashes)
    reference = reference_type(Affine().leap, **queue, **limits)
    slow = reference.run([Request(**r) for r in requests], evictions, crashes)
    assert evicted == {place: one.evicted for place, one in enumerate(slow) if one.evicted}
    assert [dates(one) for one in fast] == [dates(one) for one in slow]
    assert engine.meters(1e9).steps == reference.steps
    assert all(cache.free == cache.usable for cache in engine.caches())


def test_a_crash_between_two_steps_loses_an_answer_of_one_token() -> None:
    limits = rank_limits(10, 4, max_num_seqs=2, max_num_batched_tokens=2, max_model_len=1000)
    engine = AsyncEngine(Affine(), limits)
    evicted = drain_evicting(engine, [Request(index, 0.0, 2, 1) for index in range(2)], [], [BASE + 2 * PER_TOKEN])
    assert evicted == {1: ReplicaProgress(0, 0)}
    assert all(cache.free == cache.usable for cache in engine.caches())


@pytest.mark.slow
@given(workloads(), st.lists(st.sampled_from([None, 0, 5, 20]), min_size=1, max_size=3), st.integers(1, 2))
@settings(max_examples=40, deadline=None)
def test_groups_of_kv_caches_agree_exactly(workload, windows, stages) -> None:
    requests, limits = workload
    limits = limits | {"enable_prefix_caching": False, "kv_groups": tuple(windows)}
    if windows == [None]:
        return
    fast = [Request(**r) for r in requests]
    engine = StagesEngine(Affine(), rank_limits(**limits, batches_in_flight=stages), stages)
    drain(engine, fast)
    reference = GroupsReference(Affine().leap, stages=stages, **limits)
    for ours, theirs in zip(fast, reference.run([Request(**r) for r in requests]), strict=True):
        assert dates(ours) == dates(theirs)
        assert ours.preemptions == theirs.request.preemptions
    assert_conserved(engine, fast)


class Heard:
    """An engine whose cache is heard: which names it holds from when on, as a router with an exact index knows it."""

    def __init__(self, engine) -> None:
        self._engine = engine
        self._now = self._end = 0.0
        self._held: set[object] = set()
        self.history: list[tuple[float, set[object]]] = []
        for cache in engine.caches():
            cache.listener = self._hear

    def __getattr__(self, name: str):
        return getattr(self._engine, name)

    def _hear(self, names: list[object], stored: bool) -> None:
        named = {name for name in names if isinstance(name, int)}
        before = self._held
        self._held = before | named if stored else before - named
        if self.history and self.history[-1][0] == self._now:
            self.history.pop()
            before = self.history[-1][1] if self.history else set()
        if self._held != before:
            self.history.append((self._now, self._held))

    def offer(self, request, now: float) -> bool:
        self._now = now
        return self._engine.offer(request, now)

    def evict(self, request, now: float) -> ReplicaProgress:
        self._now = now
        return self._engine.evict(request, now)

    def crash(self, now: float) -> None:
        self._now = now
        self._engine.crash(now)

    def plan(self, now: float) -> float:
        self._now = now
        self._end = self._engine.plan(now)
        return self._end

    def advance(self) -> list[Request]:
        self._now = self._end
        return self._engine.advance()


@pytest.mark.slow
@given(st.one_of(workloads(), optioned_workloads()), st.booleans(), GROUPED, st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_one_stage_equals_the_leaping_engine(workload, ahead, windows, seed) -> None:
    """The times at which blocks of prompts and answers are found and lost are equal, too."""
    requests, limits = workload
    limits |= {"enable_prefix_caching": True, "kv_groups": windows, "batches_in_flight": 1 + ahead}
    leaping = AsyncEngine if ahead else VllmEngine
    rank = VllmScheduler if windows == (None,) else GroupScheduler
    usual = [Request(**r) for r in requests]
    drain(StagesEngine(Affine(), rank_limits(**limits), 1, ahead), usual)
    dated = [(one.arrived_s, one.first_token_s, one.finished_s) for one in usual]
    evictions, crashes = some_evictions(dated, seed), some_crashes(dated, seed)
    fast, slow = ([Request(**r) for r in requests] for _ in range(2))
    engine = Heard(leaping(Affine(), rank_limits(**limits), rank))
    slow_engine = Heard(StagesEngine(Affine(), rank_limits(**limits), 1, ahead))
    evicted = drain_evicting(engine, fast, evictions, crashes)
    assert evicted == drain_evicting(slow_engine, slow, evictions, crashes)
    for ours, theirs in zip(fast, slow, strict=True):
        assert dates(ours) == dates(theirs)
        assert (ours.preemptions, ours.cached_tokens) == (theirs.preemptions, theirs.cached_tokens)
    assert engine.history == slow_engine.history


def grouped(limits, ahead):
    """Return two engines of one rank with grouped KV caches: one leaps, the other steps batch by batch with all
    checks."""
    leaping = AsyncEngine(Affine(), limits, GroupScheduler) if ahead else VllmEngine(Affine(), limits, GroupScheduler)
    return leaping, StagesEngine(Affine(), limits, 1, ahead)


@pytest.mark.slow
@given(st.one_of(workloads(), optioned_workloads()), GROUPS, st.booleans(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_leaps_with_groups_agree_exactly(workload, windows, ahead, caches) -> None:
    requests, limits = workload
    limits |= {"kv_groups": tuple(windows), "enable_prefix_caching": caches and 0 not in windows}
    engine, slow_engine = grouped(rank_limits(**limits, batches_in_flight=1 + ahead), ahead)
    fast, slow = ([Request(**r) for r in requests] for _ in range(2))
    drain(engine, fast)
    drain(slow_engine, slow)
    for ours, theirs in zip(fast, slow, strict=True):
        assert dates(ours) == dates(theirs)
        assert ours.preemptions == theirs.preemptions
        assert ours.cached_tokens == theirs.cached_tokens
    assert engine.meters(1e9).steps == slow_engine.meters(1e9).steps
    assert_conserved(engine, fast)


LOST = {"window": ((None, 20), 10, 16, [(1, 8), (27, 26), (26, 8)]), "none": ((None, None), 100, 1, [(4, 33), (1, 24)])}


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("kind", LOST)
def test_a_request_whose_cached_blocks_are_lost_may_need_fewer_to_join(kind, ahead) -> None:
    """A preempted request waits for blocks beyond its cached ones; once those are reallocated, a chunk of 9 tokens
    fits."""
    windows, blocks, size, rows = LOST[kind]
    limits = rank_limits(
        num_gpu_blocks=blocks, block_size=size, max_num_seqs=8, max_num_batched_tokens=100, max_model_len=1000,
        enable_prefix_caching=True, long_prefill_token_threshold=9, watermark=0.1 if kind == "window" else 0.0,
        reserve_full_isl=False, kv_groups=windows, batches_in_flight=1 + ahead,
    )  # fmt: skip
    engine, slow_engine = grouped(limits, ahead)
    fast, slow = ([Request(index, 0.0, *row) for index, row in enumerate(rows)] for _ in range(2))
    drain(engine, fast)
    drain(slow_engine, slow)
    assert [dates(one) for one in fast] == [dates(one) for one in slow]
    assert fast[-1].preemptions == slow[-1].preemptions > 0
    assert engine.meters(1e9).steps == slow_engine.meters(1e9).steps


@pytest.mark.slow
@given(workloads(), GROUPS, st.booleans(), st.integers(0, 2**32))
@settings(max_examples=12, deadline=None)
def test_evictions_with_groups_agree_exactly(workload, windows, ahead, seed) -> None:
    requests, limits = workload
    size, most = limits["block_size"], limits["max_num_batched_tokens"]
    limits |= {"kv_groups": tuple(windows), "enable_prefix_caching": False}
    limits |= {"max_num_batched_tokens": -(-most // size) * size}
    usual = [Request(**r) for r in requests]
    engine, slow_engine = grouped(rank_limits(**limits, batches_in_flight=1 + ahead), ahead)
    drain(slow_engine, usual)
    dated = [(one.arrived_s, one.first_token_s, one.finished_s) for one in usual]
    evictions, crashes = some_evictions(dated, seed), some_crashes(dated, seed)
    fast, slow = ([Request(**r) for r in requests] for _ in range(2))
    _, slow_engine = grouped(rank_limits(**limits, batches_in_flight=1 + ahead), ahead)
    assert drain_evicting(engine, fast, evictions, crashes) == drain_evicting(slow_engine, slow, evictions, crashes)
    assert [dates(one) for one in fast] == [dates(one) for one in slow]
    assert all(cache.free == cache.usable for cache in engine.caches())


def steps_with_states(rows, **further) -> tuple[list[dict[int, int]], list[Request]]:
    """(arrival, prompt, output, names of its blocks of 4 tokens): who computes how many tokens in each step."""
    limits = {
        "num_gpu_blocks": 60, "block_size": 4, "max_num_seqs": 8, "max_num_batched_tokens": 40, "max_model_len": 100,
        "enable_prefix_caching": True, "kv_groups": (None, 0, 0),
    } | further  # fmt: skip
    skip_if_compiled()
    engine = StagesEngine(Affine(), rank_limits(**limits), 1)
    requests = [
        Request(index, arrived_s, prompt, output, block_hashes=names, hash_block_tokens=4)
        for index, (arrived_s, prompt, output, names) in enumerate(rows)
    ]
    steps, form = [], engine._schedule.form

    def formed(now: float):
        if launch := form(now):
            steps.append({one.request.index: new for one, new in launch.chunks.items()})
        return launch

    engine._schedule.form = formed
    drain(engine, requests)
    assert_conserved(engine, requests)
    return steps, requests


def test_prompts_end_their_chunks_where_a_state_is_kept() -> None:
    """With blocks of 4 tokens a prompt of 10 stops at 8; a later request continues from there."""
    steps, requests = steps_with_states([(0.0, 10, 1, (1, 2)), (9.0, 10, 1, (1, 2)), (9.0, 10, 1, (1, 3))])
    assert steps == [{0: 8}, {0: 2}, {1: 2, 2: 4}, {2: 4}, {2: 2}]  # the third stops where the first left no state
    assert [one.cached_tokens for one in requests] == [0, 8, 0]
    steps, _ = steps_with_states([(0.0, 10, 1, ())], max_num_batched_tokens=8, long_prefill_token_threshold=3)
    assert steps == [{0: 8}, {0: 2}]  # alone no threshold holds
    steps, _ = steps_with_states([(0.0, 10, 1, ()), (0.0, 10, 1, ())], long_prefill_token_threshold=3)
    assert steps[:4] == [{0: 3, 1: 3}, {0: 1, 1: 1}, {0: 3, 1: 3}, {0: 1, 1: 1}]  # no chunk holds a block


def test_a_state_can_be_read_from_the_step_after_it_is_named() -> None:
    steps, requests = steps_with_states([(0.0, 10, 1, (1, 2)), (0.0, 10, 1, (1, 2))])
    assert steps == [{0: 8}, {0: 2, 1: 2}]
    assert requests[1].cached_tokens == 8


def test_a_junction_leaves_a_state_for_later_requests() -> None:
    """The first leaves one behind 12 tokens only; the second shares 4 of them and leaves one there for the third."""
    rows = [(9.0 * index, 14, 1, (1, 10 * index + 2, 10 * index + 3)) for index in range(3)]
    steps, requests = steps_with_states(rows)
    assert steps == [{0: 12}, {0: 2}, {1: 4}, {1: 8}, {1: 2}, {2: 8}, {2: 2}]
    assert [one.cached_tokens for one in requests] == [0, 0, 4]


def test_a_sequence_holds_the_state_that_is_read_and_the_one_that_is_written() -> None:
    """Two groups of states: 3 blocks of keys and values for 10 tokens, 2 of states, 2 more where a block begins."""
    steps, _ = steps_with_states([(0.0, 6, 8, ())], num_gpu_blocks=9)
    assert len(steps) == 9
    _, requests = steps_with_states([(0.0, 6, 8, ())], num_gpu_blocks=8)
    assert requests[0].rejected


def test_a_crash_empties_the_cache_of_groups() -> None:
    limits = rank_limits(60, 4, 8, 40, 100, enable_prefix_caching=True, kv_groups=(None, 8))
    for make in (lambda: StagesEngine(Affine(), limits, 1), lambda: VllmEngine(Affine(), limits, GroupScheduler)):
        engine, found = make(), []
        for index in range(3):
            drain(engine, [one := Request(index, 9.0 * index, 10, 1, block_hashes=(1, 2), hash_block_tokens=4)])
            found.append(one.cached_tokens)
            if index == 1:
                engine.crash(17.0)
                engine.caches()[0].clear()
        assert found == [0, 8, 0]


def test_a_request_evicted_at_a_step_boundary_leaves_nothing_behind() -> None:
    """A crash at the very start of the step that computes the prompt finds a step that has not been closed."""
    limits = rank_limits(60, 4, 8, 40, 100)
    for crash_s in boundaries(limits):
        engine = AsyncEngine(Affine(), limits)
        drain_evicting(engine, two_requests(), [], [crash_s])
        assert engine._rank._decoding == 0
        assert not engine._rank._finishing.sequences()


def two_requests() -> list[Request]:
    return [Request(0, 0.0, 4, 9), Request(1, 1 / 64, 5, 6)]


def boundaries(limits: SchedulerLimits) -> list[float]:
    """Return the times at which steps end."""
    engine, ends = Open(AsyncEngine(Affine(), limits)), []
    plan = engine.plan
    engine.plan = lambda now: ends.append(plan(now)) or ends[-1]
    drain(engine, two_requests())
    return [end_s for end_s in ends if end_s < 1e9]
