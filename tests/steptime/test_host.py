"""Steps formed while one runs: host and GPU work side by side, and a share of the shorter adds to the longer.

Prompts whose kernels are launched one by one: the step takes the longer of launching and computing.
"""

from dataclasses import replace

import pytest

from sim.catalogue.value import Value
from sim.records import Batch
from sim.steptime.options import Roofline
from sim.steptime.roofline import RooflineStepTime


def decodes(sequences, context):
    return Batch(decode_seqs=sequences, sampled_seqs=sequences, kv_tokens=sequences * context)


@pytest.fixture
def both(build):
    """(host after the GPU, host beside it), with a fifth of the shorter exposed."""
    after = build("llama3.1-8b", "a100-80gb-sxm")
    return after, RooflineStepTime(Roofline(), replace(after.inputs, forms_ahead=True))


@pytest.mark.parametrize(("sequences", "context"), [(1, 100), (128, 1000), (1024, 10), (512, 4000)])
def test_the_longer_counts_and_a_share_of_the_shorter(both, sequences, context):
    after, beside = both
    batch = decodes(sequences, context)
    host_s = 1e-3 + 40e-6 * sequences
    gpu_s = after.leap(batch).first_s - host_s
    expected = max(gpu_s, host_s) + beside.inputs.coefficients.exposed_share.value * min(gpu_s, host_s)
    assert beside.leap(batch).first_s == pytest.approx(expected)
    assert sum(beside.breakdown(batch).values()) == pytest.approx(expected)


@pytest.mark.parametrize(("host_factor", "gpu_counts"), [(1, 1), (100, None)])
def test_the_shorters_causes_count_as_far_as_they_add_to_the_longer(both, host_factor, gpu_counts):
    inputs, batch = both[1].inputs, decodes(128, 1000)
    gpu_counts = gpu_counts or inputs.coefficients.exposed_share.value
    spec = Roofline(host_factor=host_factor)
    alone, together = (
        RooflineStepTime(spec, replace(inputs, forms_ahead=ahead)).breakdown(batch) for ahead in (False, True)
    )
    for cause in ("compute", "memory", "attention"):
        assert together[cause] == pytest.approx(gpu_counts * alone[cause])
    assert (max(together, key=together.get) == "overhead") == (host_factor == 100)


@pytest.mark.parametrize("sequences", [64, 1024])
def test_a_leap_is_its_steps_one_by_one(both, sequences):
    """The sums are equal also where the growing work of the GPU comes to take longer than the host."""
    _, beside = both
    leap, step = beside.leap(decodes(sequences, 100)), 0
    for step in range(int(min(leap.valid_steps, 200))):
        one = beside.leap(decodes(sequences, 100 + step)).first_s
        assert one == pytest.approx(leap.first_s + step * leap.growth_s)
    assert step > 0


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
        return RooflineStepTime(spec or Roofline(), replace(known, engine=engine, graph_tokens=0))

    return build_one


def prompt(tokens, decodes=0):
    return Batch(
        prefill_seqs=1, prefill_tokens=tokens, prefill_attention_pairs=tokens * (tokens + 1) // 2,
        sampled_seqs=1 + decodes, decode_seqs=decodes, kv_tokens=500 * decodes,
    )  # fmt: skip


def test_short_prompt_is_bound_by_its_launches(launching):
    assert launching().leap(prompt(16)).first_s == pytest.approx(LAYERS * LAUNCH_S + HOST_S)


@pytest.mark.parametrize(
    "batch", [prompt(8192), Batch(decode_seqs=8, sampled_seqs=8, kv_tokens=8000)], ids=["long", "decode"]
)
def test_what_keeps_the_gpu_busy_for_longer_or_has_a_graph_is_not_held_up(build, launching, batch):
    assert launching().leap(batch) == build().leap(batch)


@pytest.mark.slow
def test_a_step_is_never_shorter_than_without_launches_and_its_parts_add_up(build, launching):
    for tokens in (1, 64, 300, 400, 500, 2000):
        waiting, free = launching(), build()
        assert waiting.leap(prompt(tokens, 4)).first_s >= free.leap(prompt(tokens, 4)).first_s
        assert sum(waiting.breakdown(prompt(tokens, 4)).values()) == pytest.approx(
            waiting.leap(prompt(tokens, 4)).first_s
        )


@pytest.mark.parametrize(("host_factor", "sequences"), [(1, 1), (1, 400), (20, 1)])
def test_a_thread_that_launches_a_step_forms_the_next_one_after_it(build, launching, host_factor, sequences):
    """Two threads work side by side; a share of the shorter of the GPU's and the host's time is always exposed."""
    spec = Roofline(host_factor=host_factor)
    batch = Batch(decode_seqs=sequences, sampled_seqs=sequences, kv_tokens=sequences)
    host_s, launch_s = host_factor * (1e-3 + 40e-6 * sequences), host_factor * LAYERS * LAUNCH_S
    gpu_s = build(spec=spec).leap(batch).first_s - host_s
    inputs = replace(launching().inputs, forms_ahead=True, decode_graph_tokens=0)
    exposed = inputs.coefficients.exposed_share.value
    two, one = (RooflineStepTime(spec, replace(inputs, one_thread=alone)) for alone in (False, True))
    longer, shorter = max(gpu_s, launch_s, host_s), min(max(gpu_s, launch_s), host_s)
    assert two.leap(batch).first_s == pytest.approx(longer + exposed * shorter)
    assert one.leap(batch).first_s == pytest.approx(launch_s + host_s + exposed * min(gpu_s, host_s))
    assert sum(one.breakdown(batch).values()) == pytest.approx(one.leap(batch).first_s)
    assert one.leap(prompt(8192)).first_s == pytest.approx(two.leap(prompt(8192)).first_s)


@pytest.mark.slow
def test_steps_up_to_the_largest_graph_wait_for_no_launch(build, launching):
    captured = RooflineStepTime(Roofline(), replace(launching().inputs, graph_tokens=100, decode_graph_tokens=8))
    assert captured.leap(prompt(100)) == build().leap(prompt(100))
    assert captured.leap(prompt(101)).first_s == pytest.approx(LAYERS * LAUNCH_S + HOST_S)
    decodes = [Batch(decode_seqs=count, sampled_seqs=count, kv_tokens=count) for count in (8, 9)]
    assert captured.leap(decodes[0]) == build().leap(decodes[0])
    assert captured.leap(decodes[1]).first_s == pytest.approx(LAYERS * LAUNCH_S + HOST_S + 8 * 40e-6)


def test_a_step_from_a_graph_reads_the_experts_of_its_padding(build):
    known = build("mixtral-8x7b").inputs
    padded = RooflineStepTime(Roofline(), replace(known, graph_size_multiple=8, decode_graph_tokens=24))
    assert [padded.graph_size(tokens) for tokens in (1, 2, 3, 5, 8, 9, 17, 24, 25)] == [1, 2, 4, 8, 8, 16, 24, 24, 25]
    assert padded._layers(3, 0) == build("mixtral-8x7b")._layers(4, 0) != build("mixtral-8x7b")._layers(3, 0)
    assert padded.exchanges(3) == padded.exchanges(4) != padded.exchanges(5)
    eager = RooflineStepTime(Roofline(cuda_graphs=False), padded.inputs)
    assert eager.graph_size(3) == build("mixtral-8x7b").graph_size(3) == 3


def test_experts_latent_and_linear_attention_launch_more_kernels(launching):
    experts, latent = 1.6, 1.1  # of the engine
    mixture = launching("deepseek-v3", launch_layer_s=0.05)
    assert mixture.leap(prompt(16)).first_s == pytest.approx((3 + 58 * experts) * latent * 0.05 + HOST_S)
    linear = launching("qwen3-coder-next", launch_layer_s=0.05, launch_linear_factor=4)
    assert linear.leap(prompt(16)).first_s == pytest.approx((12 + 36 * 4) * experts * 0.05 + HOST_S)
    both = launching("kimi-k3", launch_layer_s=0.05, launch_linear_factor=4)
    kernels = (24 * latent + 69 * 4) * (1 + 92 * experts) / 93
    assert both.leap(prompt(16)).first_s == pytest.approx(kernels * 0.05 + HOST_S)
    sparse = launching("deepseek-v3.2", launch_layer_s=0.05, launch_latent_factor=2, launch_indexer_factor=3)
    assert sparse.leap(prompt(16)).first_s == pytest.approx((3 + 58 * experts) * 2 * 3 * 0.05 + HOST_S)


def test_mamba_layers_launch_as_many_kernels_as_others(launching):
    plain, factor = (launching("nemotron-3-nano", launch_layer_s=0.05, launch_linear_factor=n) for n in (1, 4))
    assert factor.leap(prompt(16)) == plain.leap(prompt(16))


def test_desktop_launches_by_its_own_factor(launching):
    coefficients = launching().inputs.coefficients
    half = coefficients.model_copy(update={"desktop_launch_factor": Value(value=0.5, source="test", kind="computed")})
    for card, factor in (("rtx-4090", 0.5), ("rtx-5090", 0.5), ("h100-80gb-sxm", 0.8)):
        known = replace(launching(card=card, launch_layer_s=0.05).inputs, coefficients=half)
        found = RooflineStepTime(Roofline(), known).leap(prompt(16)).first_s
        assert found == pytest.approx(LAYERS * 0.05 * factor, rel=0.01)


def test_a_slow_host_launches_slowly_and_a_recent_one_faster(launching):
    slow = launching(spec=Roofline(host_factor=2.0))
    assert slow.leap(prompt(16)).first_s == pytest.approx(2 * (LAYERS * LAUNCH_S + HOST_S))
    recent = launching(card="h100-80gb-sxm")
    assert recent.leap(prompt(16)).first_s == pytest.approx(0.8 * (LAYERS * LAUNCH_S + HOST_S))
