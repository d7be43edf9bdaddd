"""The fast engine gives the dates of the step-by-step reference, on random workloads."""

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.limits import RankLimits
from sim.engine.vllm import VllmEngine
from sim.records import Batch, Leap, Request

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference_engine import ReferenceEngine, drain

BASE, PER_TOKEN, PER_CONTEXT = 2.0**-6, 2.0**-12, 2.0**-20


class Affine:
    """Dyadic coefficients: sums of step times are exact in floating point."""

    window = None

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def leap(self, batch: Batch) -> Leap:
        tokens = batch.decode_seqs + batch.prefill_tokens
        context = batch.kv_tokens + batch.prefill_context_tokens
        return Leap(
            self.scale * (BASE + PER_TOKEN * tokens + PER_CONTEXT * context),
            self.scale * PER_CONTEXT * batch.decode_seqs,
        )


class Windowed(Affine):
    """Reads only the last tokens of each context."""

    window = 24

    def leap(self, batch: Batch) -> Leap:
        return Leap(BASE + PER_CONTEXT * batch.windowed_kv_tokens, PER_CONTEXT * batch.windowed_growing_seqs)


@st.composite
def workloads(draw: st.DrawFn) -> tuple[list[dict], dict]:
    """A few dozen requests, many at equal dyadic times, with shared prefixes, and limits tight enough to preempt."""
    block_size = draw(st.sampled_from([1, 4, 16]))
    blocks = draw(st.integers(3, 40))
    hash_block_tokens = block_size * draw(st.sampled_from([1, 2]))
    requests = []
    clock = 0.0
    for index in range(draw(st.integers(1, 24))):
        clock += draw(st.sampled_from([0, 0, 1, 3, 17, 64, 400])) / 64
        prompt = draw(st.integers(1, 90))
        chain = draw(st.lists(st.integers(0, 2), max_size=6))
        hashes = tuple(hash(tuple(chain[: n + 1])) for n in range(len(chain)))
        requests.append(
            {
                "index": index, "arrived_s": clock, "prompt_tokens": prompt, "output_tokens": draw(st.integers(1, 60)),
                "priority": draw(st.integers(0, 2)), "block_hashes": hashes, "hash_block_tokens": hash_block_tokens,
            }
        )  # fmt: skip
    seats = draw(st.integers(1, 12))
    limits = {
        "num_gpu_blocks": blocks, "block_size": block_size, "max_num_seqs": seats,
        "max_num_batched_tokens": seats + draw(st.integers(0, 60)), "max_model_len": draw(st.sampled_from([80, 1000])),
        "enable_prefix_caching": draw(st.booleans()), "scheduling": draw(st.sampled_from(["fcfs", "priority"])),
    }  # fmt: skip
    return requests, limits


def both(requests: list[dict], limits: dict, model: Affine) -> tuple[list[Request], VllmEngine, list, ReferenceEngine]:
    fast = [Request(**r) for r in requests]
    engine = VllmEngine(model, RankLimits(window=model.window, **limits))
    drain(engine, fast)
    reference = ReferenceEngine(model.leap, window=model.window, **limits)
    return fast, engine, reference.run([Request(**r) for r in requests]), reference


@given(workloads(), st.sampled_from([Affine(), Windowed()]))
@settings(max_examples=300, deadline=None)
def test_dyadic_times_agree_exactly(workload: tuple[list[dict], dict], model: Affine) -> None:
    fast, engine, slow, reference = both(*workload, model)
    for ours, theirs in zip(fast, slow, strict=True):
        assert (ours.first_token_s, ours.finished_s) == pytest.approx(
            (theirs.first_token_s, theirs.finished_s), rel=0, abs=0, nan_ok=True
        )
        assert ours.preemptions == theirs.request.preemptions
        assert ours.cached_tokens == theirs.cached_tokens
    meters = engine.meters(1e9)
    assert meters.preemptions == reference.preemptions
    assert meters.steps == reference.steps
    assert engine.waiting() == 0


@given(workloads(), st.floats(0.1, 10))
@settings(max_examples=100, deadline=None)
def test_arbitrary_times_agree_to_tolerance(workload: tuple[list[dict], dict], scale: float) -> None:
    fast, _, slow, _ = both(*workload, Affine(scale / 3))
    for ours, theirs in zip(fast, slow, strict=True):
        assert ours.first_token_s == pytest.approx(theirs.first_token_s, abs=1e-9, nan_ok=True)
        assert ours.finished_s == pytest.approx(theirs.finished_s, abs=1e-9, nan_ok=True)


@given(workloads())
@settings(max_examples=100, deadline=None)
def test_tokens_and_blocks_are_conserved(workload: tuple[list[dict], dict]) -> None:
    fast, engine, _, _ = both(*workload, Affine())
    done = [r for r in fast if not r.rejected]
    assert all(r.finished_s >= r.first_token_s >= r.started_s >= r.arrived_s for r in done)
    meters = engine.meters(1e9)
    assert meters.output_tokens == sum(r.output_tokens for r in done)
    assert meters.prompt_tokens + meters.cached_tokens == sum(r.prompt_tokens for r in done)
    assert engine._pool.free == engine._pool.usable
