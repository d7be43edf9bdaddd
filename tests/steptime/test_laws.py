"""Laws of every step-time model that the engine relies on."""

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.batchtime.one_pass import AffineBatch, OnePass
from sim.records import Batch
from sim.scenario.experiment import BuiltinStepTime
from sim.steptime.affine import Affine
from sim.steptime.options import Roofline

MODELS = [model for model in get_args(BuiltinStepTime) if model not in (AffineBatch, OnePass)]

SETTINGS = {
    Affine: [{"base_s": 0.016, "per_token_s": 9.0e-5, "per_context_token_s": 1.4e-7}],
    Roofline: [
        {},
        {"model": "qwen2-72b-instruct", "card": "rtx-4090", "over": "pcie4-x16-no-p2p", "weights": "int4", "tp": 4},
        {"model": "gemma2-27b", "card": "h100-80gb-sxm", "over": "nvlink4-nvswitch", "weights": "fp8", "kv_bytes": 1.0},
        {"model": "gpt-oss-120b", "card": "b200-180gb-sxm", "over": "nvlink5-nvswitch", "weights": "int4", "tp": 2},
        {"model": "deepseek-v3", "card": "h200-141gb-sxm", "over": "nvlink4-nvswitch", "dp": 8, "ep": True},
        {"model": "llama3.1-70b", "card": "a100-80gb-pcie", "over": "pcie4-x16", "pp": 4},
    ],
}


@pytest.fixture(
    scope="module",
    params=[(spec, settings) for spec in MODELS for settings in SETTINGS[spec]],
    ids=lambda param: f"{param[0].__name__}-{param[1].get('model', '')}",
)
def steptime(request, build):
    spec, settings = request.param
    return spec(model="affine", **settings).build() if spec is Affine else build(**settings)


@st.composite
def batches(draw, prefill=True):
    """A batch that can be: windowed sums follow the window of 4096 or less, pairs follow the chunks."""
    decodes = draw(st.integers(0 if prefill else 1, 300))
    context = draw(st.integers(decodes, 300_000)) if decodes else 0
    growing = draw(st.integers(0, decodes))
    chunk = draw(st.integers(0 if decodes else 1, 2048)) if prefill else 0
    earlier = draw(st.integers(0, 20_000)) if chunk else 0
    last_chunk = draw(st.booleans()) if chunk else False
    return Batch(
        decode_seqs=decodes,
        kv_tokens=context,
        windowed_kv_tokens=min(context, 128 * decodes),
        windowed_growing_seqs=growing,
        prefill_seqs=1 if chunk else 0,
        prefill_tokens=chunk,
        prefill_context_tokens=earlier,
        prefill_attention_pairs=chunk * earlier + chunk * (chunk + 1) // 2,
        sampled_seqs=decodes + last_chunk,
    )


@pytest.mark.slow
@given(batch=batches(prefill=False), steps=st.integers(1, 5000))
def test_a_step_of_a_leap_lasts_what_the_same_step_alone_would(steptime, batch, steps):
    leap = steptime.leap(batch)
    steps = int(min(steps, leap.valid_steps - 1))
    later = replace(
        batch,
        kv_tokens=batch.kv_tokens + steps * batch.decode_seqs,
        windowed_kv_tokens=batch.windowed_kv_tokens + steps * batch.windowed_growing_seqs,
    )
    assert steptime.leap(later).first_s == pytest.approx(leap.first_s + steps * leap.growth_s, rel=1e-12)


@given(batch=batches())
def test_breakdown_adds_up_to_the_first_step(steptime, batch):
    shares = steptime.breakdown(batch)
    assert set(shares) == {"compute", "memory", "attention", "link", "overhead"}
    assert min(shares.values()) >= 0
    assert sum(shares.values()) == pytest.approx(steptime.leap(batch).first_s, rel=1e-12)


@given(batch=batches())
def test_steps_take_time_and_at_most_the_full_load(steptime, batch):
    leap = steptime.leap(batch)
    assert 0 <= leap.load <= 1
    assert leap.first_s > 0
    assert leap.growth_s >= 0
    assert leap.valid_steps >= 1


@pytest.mark.slow
@given(batch=batches(), more=st.integers(1, 500))
def test_more_tokens_or_longer_contexts_are_never_faster(steptime, batch, more):
    first_s = steptime.leap(batch).first_s * (1 + 1e-12)
    longer = replace(batch, kv_tokens=batch.kv_tokens + more)
    wider = replace(
        batch,
        decode_seqs=batch.decode_seqs + more,
        sampled_seqs=batch.sampled_seqs + more,
    )
    assert steptime.leap(wider).first_s >= first_s * (1 - 2e-12)
    if batch.decode_seqs:
        assert steptime.leap(longer).first_s >= first_s * (1 - 2e-12)
    if batch.prefill_tokens:
        chunk = replace(batch, prefill_tokens=batch.prefill_tokens + more)
        assert steptime.leap(chunk).first_s >= first_s * (1 - 2e-12)


def test_step_time_is_deterministic(steptime):
    batch = Batch(decode_seqs=7, kv_tokens=7000, windowed_kv_tokens=896, sampled_seqs=7)
    steptime.breakdown(batch)
    assert steptime.leap(batch) == steptime.leap(batch)
