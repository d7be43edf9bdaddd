"""Prompts whose kernels are launched one by one: the step takes the longer of launching and computing."""

from dataclasses import replace

import pytest

from sim.catalogue.engine import EngineLimits
from sim.catalogue.value import Value
from sim.records import Batch
from sim.steptime import Roofline

LAYERS = 32  # Llama-3.1-8B
LAUNCH_S = 1e-3
HOST_S = 1e-3 + 40e-6  # a step and the one sequence that it samples


@pytest.fixture
def launching(build):
    """launching(model, spec, more figures of the engine) -> running roofline that launches prompts' kernels."""

    def build_one(model="llama3.1-8b", card="a100-80gb-sxm", spec=None, **figures):
        known = build(model, card, spec=spec).inputs
        figures = {"launch_layer_s": LAUNCH_S} | figures
        values = {name: Value(value=number, source="test", kind="computed") for name, number in figures.items()}
        overheads = known.engine.overheads.model_copy(update=values)
        engine = known.engine.model_copy(update={"overheads": overheads})
        return (spec or Roofline()).build(replace(known, engine=engine))

    return build_one


def prompt(tokens, decodes=0):
    return Batch(
        prefill_seqs=1, prefill_tokens=tokens, prefill_attention_pairs=tokens * (tokens + 1) // 2,
        sampled_seqs=1 + decodes, decode_seqs=decodes, kv_tokens=500 * decodes,
    )  # fmt: skip


def test_a_short_prompt_takes_as_long_as_its_launches(launching):
    assert launching().leap(prompt(16)).first_s == pytest.approx(LAYERS * LAUNCH_S + HOST_S)


@pytest.mark.parametrize(
    "batch", [prompt(8192), Batch(decode_seqs=8, sampled_seqs=8, kv_tokens=8000)], ids=["long", "decode"]
)
def test_what_keeps_the_gpu_busy_for_longer_or_has_a_graph_is_not_held_up(build, launching, batch):
    assert launching().leap(batch) == build().leap(batch)


def test_a_step_is_never_shorter_than_without_launches_and_its_parts_add_up(build, launching):
    for tokens in (1, 64, 300, 400, 500, 2000):
        waiting, free = launching(), build()
        assert waiting.leap(prompt(tokens, 4)).first_s >= free.leap(prompt(tokens, 4)).first_s
        assert sum(waiting.breakdown(prompt(tokens, 4)).values()) == pytest.approx(
            waiting.leap(prompt(tokens, 4)).first_s
        )


def test_steps_up_to_the_largest_graph_wait_for_no_launch(build, launching):
    def captured(**layout):
        known = launching().inputs
        a_value = Value(value=100, source="test", kind="computed")
        limits = EngineLimits(max_num_seqs=a_value, max_num_batched_tokens=a_value, graph_tokens=a_value)
        return Roofline().build(replace(known, engine=known.engine.model_copy(update={"limits": limits}), **layout))

    assert captured().leap(prompt(100)) == build().leap(prompt(100))
    assert captured().leap(prompt(101)).first_s == pytest.approx(LAYERS * LAUNCH_S + HOST_S)
    assert captured(data_parallel_size=2).leap(prompt(100)).first_s == pytest.approx(LAYERS * LAUNCH_S + HOST_S)


def test_experts_latent_and_linear_attention_launch_more_kernels(launching):
    experts, latent = 1.6, 1.1  # of the engine
    mixture = launching("deepseek-v3", launch_layer_s=0.05)
    assert mixture.leap(prompt(16)).first_s == pytest.approx((3 + 58 * experts) * latent * 0.05 + HOST_S)
    linear = launching("qwen3-coder-next", launch_layer_s=0.05, launch_linear_factor=4)
    assert linear.leap(prompt(16)).first_s == pytest.approx((12 + 36 * 4) * experts * 0.05 + HOST_S)
    both = launching("kimi-k3", launch_layer_s=0.05, launch_linear_factor=4)
    kernels = (24 * latent + 69 * 4) * (1 + 92 * experts) / 93
    assert both.leap(prompt(16)).first_s == pytest.approx(kernels * 0.05 + HOST_S)


def test_a_slow_host_launches_slowly_and_a_recent_one_faster(launching):
    slow = launching(spec=Roofline(host_factor=2.0))
    assert slow.leap(prompt(16)).first_s == pytest.approx(2 * (LAYERS * LAUNCH_S + HOST_S))
    recent = launching(card="h100-80gb-sxm")
    assert recent.leap(prompt(16)).first_s == pytest.approx(0.8 * (LAYERS * LAUNCH_S + HOST_S))
