"""Speculative decoding: the leaping engine and the step-by-step one, and how many steps an answer takes."""

import numpy as np
import pytest
from engine_workloads import Adapted, Windowed, assert_conserved, dates, optioned_workloads, rank_limits, workloads
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_drafts import DraftReference
from reference_drafts_ahead import AsyncDraftReference
from reference_engine import drain

from sim.batching.limits import Speculative
from sim.engine.asynchronous import AsyncEngine
from sim.engine.lora import AdapterSlots
from sim.engine.schedulers.speculative import AsyncDraftScheduler, DraftScheduler
from sim.engine.synchronous import VllmEngine
from sim.fleet.pool import Acceptance
from sim.records import Request
from sim.steptime import affine


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [False, True])
@given(
    st.one_of(workloads(), optioned_workloads()), st.integers(1, 5), st.integers(0, 5), st.integers(0, 2), st.booleans()
)
@settings(max_examples=50, deadline=None)
def test_steps_with_accepted_drafts_agree_exactly(ahead, workload, drafts, accepted, on_gpu, windowed) -> None:
    requests, limits = workload
    accepted = min(accepted, drafts)
    requests = [r | {"block_hashes": ()} for r in requests]  # answers are named once they are complete
    limits |= {"max_model_len": 1000}  # near it, vLLM drafts fewer
    if limits.get("chunked_prefill") is False:
        limits["max_num_batched_tokens"] += 100
    if 0 < limits.get("long_prefill_token_threshold", 0) <= drafts:
        limits["long_prefill_token_threshold"] = drafts + 1
    slots = (on_gpu, on_gpu + 1, 1 / 64, 3 / 64) if on_gpu else None
    own = {"draft_tokens": drafts, "accepts": lambda request, tokens: accepted}
    if slots is not None:  # of three adapters and the model itself
        requests = [r | {"adapter": ("", "a", "b", "c")[place % 4]} for place, r in enumerate(requests)]
        own["new_adapters"] = lambda: AdapterSlots(*slots)
    model = Windowed() if windowed else Adapted()
    limits["window"] = model.window
    fast = [Request(**r) for r in requests]
    engine, reference_of = VllmEngine(model, rank_limits(**limits, **own), DraftScheduler), DraftReference
    if ahead:
        engine = AsyncEngine(model, rank_limits(**limits, **own, batches_in_flight=2), AsyncDraftScheduler)
        reference_of = AsyncDraftReference
    drain(engine, fast)
    reference = reference_of(model.leap, draft_tokens=drafts, accepted=accepted, adapters=slots, **limits)
    for ours, theirs in zip(fast, reference.run([Request(**r) for r in requests]), strict=True):
        assert dates(ours) == dates(theirs)
        assert ours.preemptions == theirs.request.preemptions
    assert engine.meters(1e9).steps == reference.steps
    assert_conserved(engine, fast)


@pytest.mark.slow
@given(workloads(), st.integers(1, 4), st.floats(0, 4))
@settings(max_examples=20, deadline=None)
def test_uneven_paces_lose_nothing(workload, drafts, accepted) -> None:
    requests, limits = workload
    fast = [Request(**r) for r in requests]
    kept = {r.index: min(accepted * (1 + r.index % 3) / 3, drafts) for r in fast}
    own = {"draft_tokens": drafts, "accepts": lambda request, tokens: kept[request.index], "window": Windowed.window}
    engine = VllmEngine(Windowed(), rank_limits(**limits, **own), DraftScheduler)
    drain(engine, fast)
    assert_conserved(engine, fast)


def test_an_answer_takes_as_many_steps_as_with_independently_accepted_drafts() -> None:
    # 3 drafts that hold with 0.6 each: (1 - 0.6^4) / 0.4 = 2.176 tokens a step
    spec = Speculative(num_speculative_tokens=3, acceptance=0.6)
    draws = Acceptance(spec, lambda name: np.random.default_rng(int(name.rsplit(" ", 1)[1])))
    kept = [draws(Request(i, 0.0, 1, 400), 400) for i in range(200)]
    assert 1 + np.mean(kept) == pytest.approx(2.176, rel=0.01)
    assert np.std(kept) > 0.02


@pytest.mark.parametrize("ahead", [False, True])
def test_a_request_that_joins_decoders_with_one_token_is_padded_with_drafts(ahead) -> None:
    """A step takes 10 ms and 1 ms a token; all of three drafts hold, those of the padding do not."""
    limits = rank_limits(
        40, 4, 4, 64, 100, draft_tokens=3, accepts=lambda request, tokens: 3, batches_in_flight=1 + ahead
    )
    model = affine.Affine(model="affine", base_s=0.01, per_token_s=0.001, per_context_token_s=0.0).build()
    requests = [Request(0, 0.0, 1, 9), Request(1, 0.005, 1, 2), Request(2, 0.005, 2, 1)]
    engine = AsyncEngine(model, limits, AsyncDraftScheduler) if ahead else VllmEngine(model, limits, DraftScheduler)
    drain(engine, requests)
    # 11 ms: the first is not padded, as nothing decodes; then 4 tokens of the first and of the second, 2 of the third
    assert requests[0].first_token_s == pytest.approx(0.011)
    joined_s = 0.011 + 0.014 * ahead + 0.02
    assert [one.first_token_s for one in requests[1:]] == pytest.approx([joined_s, joined_s])


def test_a_request_that_drafts_finish_is_computed_once_more_where_steps_are_formed_ahead() -> None:
    """A step takes 10 ms and 1 ms a token; two of three drafts hold."""
    own = {"draft_tokens": 3, "accepts": lambda request, tokens: 2, "batches_in_flight": 2}
    limits = rank_limits(40, 4, max_num_seqs=4, max_num_batched_tokens=64, max_model_len=100, **own)
    requests = [Request(0, 0.0, 8, 9), Request(1, 0.0, 8, 6), Request(2, 0.03, 8, 8)]
    engine = AsyncEngine(
        affine.Affine(model="affine", base_s=0.01, per_token_s=0.001, per_context_token_s=0.0).build(),
        limits,
        AsyncDraftScheduler,
    )
    drain(engine, requests)
    # 26 ms of prompts, 18, 18, 26 with the last prompt and the second once more, 18 with the first once more, 14, 14
    assert [one.finished_s for one in requests] == pytest.approx([0.088, 0.062, 0.134])
    assert engine.meters(1.0).steps == 7
