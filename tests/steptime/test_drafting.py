"""Cost and gain of drafts: their passes, their memory, and published gains."""

from typing import Any

import pytest

from sim.catalogue.catalog import load_catalog
from sim.catalogue.value import Value
from sim.records import Batch
from sim.scenario.reading.layers import as_document
from sim.scenario.reading.load import load
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.resolved import PoolPlan
from sim.scenario.sweep import cases
from sim.steptime.drafting import AdapterStepTime, AdapterWork
from sim.steptime.inputs import GpuRates, peak_flops

CATALOG = load_catalog()
PROMPT, ANSWER = 512, 256


def pool(model: str, gpu: str, drafts: dict[str, Any] | None) -> PoolPlan:
    """A replica with room for eight requests; an RTX 3090 runs at 220 W, as those that were measured."""
    batching = {"policy": "vllm", "max_num_seqs": 8, "max_num_batched_tokens": 8192, "max_model_len": 8192}
    batching |= {"speculative": drafts} if drafts else {}
    lengths = {
        side: {"distribution": "fixed", "value": value} for side, value in (("prompt", PROMPT), ("output", ANSWER))
    }
    scenario = {
        "name": "drafts",
        "model": model,
        "workload": {"arrivals": {"process": "burst", "num_requests": 1}, "lengths": lengths},
        "fleets": [{"name": "one", "pools": [{"gpu": gpu, "batching": batching}]}],
    }
    scenario |= {"power": {"cap_w": 220}} if gpu == "rtx-3090" else {}
    loaded = load(as_document(scenario), catalog=CATALOG)
    plan = resolve(loaded, cases(loaded)[0], CATALOG)
    assert not plan.infeasible
    return plan.pools[0]


def decode_step_s(plan: PoolPlan, sequences: int, drafts: int) -> float:
    """A step of *sequences* in the middle of their answers."""
    context = sequences * (PROMPT + ANSWER // 2)
    batch = Batch(decode_seqs=sequences, sampled_seqs=sequences, kv_tokens=context, draft_tokens=sequences * drafts)
    return plan.steptime.leap(batch).first_s


def answers_s(plan: PoolPlan, sequences: int, drafts: int, made: float) -> float:
    """Return the time of *sequences* answers, each step making *made* tokens for each of them."""
    pairs = sequences * PROMPT * (PROMPT + 1) // 2
    prompts = Batch(
        prefill_seqs=sequences,
        prefill_tokens=sequences * PROMPT,
        prefill_attention_pairs=pairs,
        sampled_seqs=sequences,
    )
    return plan.steptime.leap(prompts).first_s + ANSWER / made * decode_step_s(plan, sequences, drafts)


MEASURED = [  # vLLM 0.25 on RTX 3090, 512 + 256 tokens (rtx3090_bench); vLLM on H20, Qwen3 (angelslim): tokens/s
    ("mistral-7b-v0.3", "rtx-3090", {"acceptance": "mistral-7b-ngram/code"}, 4, 1, 98.34 / 35.76),
    ("mistral-7b-v0.3", "rtx-3090", {"acceptance": "mistral-7b-ngram/code"}, 4, 8, 603.12 / 264.36),
    ("qwen3-4b", "rtx-3090", {"acceptance": "qwen3-4b-ngram/code"}, 4, 4, 525.86 / 237.47),
    ("mistral-7b-v0.3", "rtx-3090", {"draft_model": "qwen3-0.6b", "acceptance": "mistral-7b-qwen3-0.6b/code"}, 4, 1,
     50.77 / 35.76),
    ("mistral-7b-v0.3", "rtx-3090", {"draft_model": "qwen3-0.6b", "acceptance": "mistral-7b-qwen3-0.6b/code"}, 4, 8,
     346.76 / 264.36),
    ("mistral-7b-v0.3", "rtx-3090", {"draft_model": "qwen3-1.7b", "acceptance": "mistral-7b-qwen3-0.6b/code"}, 4, 1,
     49.81 / 35.76),
    ("qwen3-8b", "h20-96gb", {"method": "eagle", "acceptance": "qwen3-8b-eagle3/gsm8k"}, 2, 1, 257.32 / 149.63),
    ("qwen3-32b", "h20-96gb", {"method": "eagle", "acceptance": "qwen3-32b-eagle3/gsm8k"}, 2, 1, 80.43 / 43.39),
]  # fmt: skip


@pytest.mark.parametrize(("model", "gpu", "drafts", "count", "sequences", "gain"), MEASURED)
def test_measured_gains_within_15_percent(model, gpu, drafts, count, sequences, gain) -> None:
    drafts = drafts | {"num_speculative_tokens": count}
    drafts |= {"method": "draft_model"} if "draft_model" in drafts else {}
    drafter, task = CATALOG.accepted(drafts["acceptance"])
    made = 1 + drafter.accepted_per_step[task].value
    without = answers_s(pool(model, gpu, None), sequences, 0, 1)
    assert without / answers_s(pool(model, gpu, drafts), sequences, count, made) == pytest.approx(gain, rel=0.15)


def test_drafts_of_a_model_take_its_weights_and_its_cache() -> None:
    plain = pool("mistral-7b-v0.3", "rtx-3090", None).memory
    drafts = {"num_speculative_tokens": 2, "acceptance": 0.5}
    own = pool("mistral-7b-v0.3", "rtx-3090", drafts | {"method": "draft_model", "draft_model": "qwen3-0.6b"}).memory
    head = pool("mistral-7b-v0.3", "rtx-3090", drafts | {"method": "mtp"}).memory
    looked_up = pool("mistral-7b-v0.3", "rtx-3090", drafts).memory
    assert plain
    assert own
    assert head
    assert looked_up == plain
    # 0.6e9 parameters of 2 bytes and a rotary table; 28 layers of 8 heads of 128, keys and values, 16 tokens a block
    assert own.weights_bytes - plain.weights_bytes == pytest.approx(1.2e9, rel=0.02)
    assert own.block_bytes - plain.block_bytes == 16 * 28 * 2 * 8 * 128 * 2
    assert head.weights_bytes - plain.weights_bytes == pytest.approx(0.44e9, rel=0.02)
    assert head.block_bytes == pytest.approx(plain.block_bytes * 33 / 32)
    assert own.kv_tokens < head.kv_tokens < plain.kv_tokens


def test_a_pass_per_draft() -> None:
    plans = [
        pool("mistral-7b-v0.3", "rtx-3090", {"num_speculative_tokens": k, "acceptance": 0.5, "method": "draft_model",
             "draft_model": "qwen3-0.6b"}) for k in (1, 2, 3)
    ]  # fmt: skip
    one, two, three = (decode_step_s(plan, 4, 0) for plan in plans)
    assert three - two == pytest.approx(two - one)
    assert two - one == pytest.approx(28 * 4.1e-4, rel=0.01)  # launches take longer than the GPU


def test_a_rate_for_all_places_keeps_what_was_measured() -> None:
    drafter = CATALOG.drafter("mistral-7b-ngram")
    rate = drafter.acceptance("code")
    assert rate + rate**2 + rate**3 + rate**4 == pytest.approx(4 * 0.4773, abs=1e-3)


@pytest.mark.parametrize(
    "drafts",
    [
        {"method": "eagle", "accepted": 1, "num_speculative_tokens": 3},
        {"method": "draft_model", "draft_model": "qwen3-0.6b", "accepted": 1, "num_speculative_tokens": 3},
    ],
)
def test_the_parts_of_a_step_with_drafts_sum_to_it(drafts: dict[str, Any]) -> None:
    model, plain = (pool("qwen3-8b", "h20-96gb", chosen).steptime for chosen in (drafts, None))
    for batch in (
        Batch(decode_seqs=4, sampled_seqs=4, kv_tokens=4000, draft_tokens=12),
        Batch(decode_seqs=1, sampled_seqs=2, kv_tokens=9, draft_tokens=3, prefill_seqs=1, prefill_tokens=512),
    ):
        found, without = model.breakdown(batch), plain.breakdown(batch)
        assert sum(found.values()) == pytest.approx(model.leap(batch).first_s)
        assert found["memory"] > without["memory"]


def test_adapters_add_their_matrices_bytes_and_arithmetic() -> None:
    target = pool("qwen3-8b", "h20-96gb", None).steptime
    microsecond = Value(value=1e-6, source="test", kind="computed")
    work = AdapterWork(projections=252, parameters=4e7, activations=3e6, projection_s=microsecond)
    model, rates = AdapterStepTime(target, work), GpuRates.of(target.inputs)
    plain = Batch(decode_seqs=8, sampled_seqs=8, kv_tokens=800)
    with_two = Batch(decode_seqs=8, sampled_seqs=8, kv_tokens=800, adapters=2, adapted_tokens=5)
    read = (2 * 4e7 + 5 * 3e6) * 2 / rates.bytes_per_s
    flops_per_s = peak_flops(target.inputs.gpu, "fp16") * rates.compute_efficiency
    added = 252e-6 + read + 5 * 2 * 4e7 / flops_per_s
    assert model.leap(with_two).first_s - target.leap(plain).first_s == pytest.approx(added)
    assert model.breakdown(with_two)["memory"] - target.breakdown(plain)["memory"] == pytest.approx(added)
    assert model.leap(plain).first_s == target.leap(plain).first_s
    assert model.breakdown(plain) == target.breakdown(plain)
