"""Known physics: what a datasheet and a model's dimensions say before anything is fitted."""

from dataclasses import replace
from math import comb

import numpy as np
import pytest

from sim.catalogue.engine import (
    DefaultTiles,
    EngineLimits,
    FastExperts,
    PaddedExperts,
    PromptKernels,
    ReleaseDefaults,
    SlowCards,
    SlowProducts,
    SlowWeights,
    TunedTiles,
    at_version,
)
from sim.catalogue.model import matrices, params_active, params_total
from sim.catalogue.value import Value
from sim.records import Batch
from sim.steptime.gemm import expected_maximum
from sim.steptime.inputs import GpuRates
from sim.steptime.options import Roofline
from sim.steptime.roofline import RooflineStepTime, roofline_step_time


def decode(sequences, context=0, windowed=0):
    return Batch(
        decode_seqs=sequences, kv_tokens=sequences * context, windowed_kv_tokens=windowed, sampled_seqs=sequences
    )


def prompt(tokens):
    return Batch(
        prefill_seqs=1, prefill_tokens=tokens, prefill_attention_pairs=tokens * (tokens + 1) // 2, sampled_seqs=1
    )


def gpu_s(steptime, batch):
    parts = steptime.breakdown(batch)
    return sum(parts.values()) - parts["overhead"]


CARDS = {"a100-80gb-sxm": "nvlink3-nvswitch", "rtx-4090": "pcie4-x16-no-p2p"}


@pytest.mark.parametrize(("card", "over"), CARDS.items())
def test_one_stream_decodes_at_the_speed_of_reading_the_weights(build, card, over):
    steptime = build("llama3.1-8b", card, over)
    model, gpu = steptime.inputs.model, steptime.inputs.gpu
    weight_bytes = 2 * (params_total(model) - model.vocab * model.hidden)  # the embedding is looked up, not read
    reading_s = weight_bytes / gpu.memory_bytes_per_s.value
    efficiency = steptime.values["memory_efficiency"].value
    assert gpu_s(steptime, decode(1)) == pytest.approx(reading_s / efficiency, rel=0.01)
    assert steptime.leap(decode(1)).first_s < 1.65 * reading_s


@pytest.mark.parametrize(("card", "over"), CARDS.items())
def test_a_long_prompt_runs_at_the_speed_of_the_arithmetic(build, card, over):
    steptime, tokens = build("llama3.1-8b", card, over), 2048
    model, peak = steptime.inputs.model, steptime.inputs.gpu.fp16_flops.value
    flop = 2 * (params_total(model) - 2 * model.vocab * model.hidden) * tokens
    reached = steptime.values["compute_efficiency"].value / steptime.values["serving_compute_time_factor"].value
    assert steptime.leap(prompt(tokens)).first_s == pytest.approx(flop / (peak * reached), rel=0.12)


@pytest.mark.parametrize("card", CARDS)
def test_fewer_bits_decode_faster_and_gain_nothing_in_a_long_prompt_at_16_bit_arithmetic(build, card):
    plain, int4 = build(card=card), build(card=card, weights="int4")
    assert int4.leap(decode(1)).first_s < 0.6 * plain.leap(decode(1)).first_s
    assert int4.leap(prompt(2048)).first_s == pytest.approx(plain.leap(prompt(2048)).first_s, rel=0.02)


def test_fp8_doubles_the_arithmetic_only_where_the_tensor_cores_have_it(build):
    def gain(card):
        return build(card=card).leap(prompt(4096)).first_s / build(card=card, weights="fp8").leap(prompt(4096)).first_s

    assert gain("h100-80gb-sxm") > 1.6
    assert gain("a100-80gb-sxm") == pytest.approx(1, abs=0.02)


def test_a_smaller_cache_is_read_faster(build):
    batch = decode(64, context=4000)
    assert build(kv_bytes=1.0).leap(batch).first_s < build(kv_bytes=2.0).leap(batch).first_s


@pytest.mark.slow
def test_tensor_parallelism_gains_more_over_nvlink_than_over_pcie(build):
    def speedup(card, over):
        alone, four = (build(card=card, over=over, tp=tp).leap(decode(64, 500)).first_s for tp in (1, 4))
        return alone / four

    assert 1 < speedup("a100-80gb-sxm", "nvlink3-nvswitch") < 4
    assert speedup("a100-80gb-sxm", "pcie4-x16") < speedup("a100-80gb-sxm", "nvlink3-nvswitch")
    assert speedup("a100-80gb-sxm", "pcie4-x16") < speedup("rtx-a6000", "pcie4-x16") < 4  # slower cards wait less


def test_the_link_costs_nothing_on_one_gpu(build):
    assert build().breakdown(decode(8, 100))["link"] == 0


def test_a_rank_keeps_at_least_one_kv_head(build):
    def cache_s(tp):
        return build("llama3.1-70b", "h100-80gb-sxm", "nvlink4-nvswitch", tp=tp).leap(decode(1)).growth_s

    assert cache_s(4) == pytest.approx(cache_s(8) * 2, rel=1e-6)
    assert cache_s(16) == pytest.approx(cache_s(8), rel=0.01)


def test_the_latent_of_mla_is_whole_on_every_rank(build):
    def growth_s(tp):
        return build("deepseek-v3", "h200-141gb-sxm", "nvlink4-nvswitch", "fp8", tp=tp).leap(decode(1)).growth_s

    model_bytes = (512 + 64) * 61 * 2
    assert growth_s(8) == pytest.approx(model_bytes / 4.8e12, rel=0.05)
    assert growth_s(1) >= growth_s(8)


def test_a_mixture_reads_few_experts_for_one_token_and_all_of_them_for_many(build):
    steptime = build("gpt-oss-20b", "h100-80gb-sxm", "nvlink4-nvswitch")  # no factor of its family
    model = steptime.inputs.model
    one, many = (steptime.breakdown(decode(n))["memory"] for n in (1, 64))
    assert one / many == pytest.approx(params_active(model) / params_total(model), rel=0.3)


@pytest.mark.parametrize(("model", "card"), [("gpt-oss-120b", "b200-180gb-sxm"), ("mixtral-8x7b", "h100-80gb-sxm")])
def test_experts_are_read_no_faster_than_the_memory_delivers(build, gpu, model, card):
    steptime = build(model, card, "nvlink4-nvswitch", "fp8")
    product = next(one for one in steptime._products if one.expert)
    rates = GpuRates.of(steptime.inputs)
    expert = next(one for one in matrices(steptime.inputs.model) if one.role == "expert")
    all_s = rates.weight_bytes(expert) * expert.count / rates.inputs.gpu.memory_bytes_per_s.value
    assert product.times(0).memory_s == 0
    assert all_s * product.touch_probability <= product.times(1).memory_s < product.times(64).memory_s
    assert all_s <= product.times(4096).memory_s


def test_touched_experts_follow_random_routing_and_its_diversity(build):
    steptime = build("mixtral-8x7b", "h200-141gb-sxm", "nvlink4-nvswitch")
    alike = steptime.inputs.coefficients.gemm_exponent.model_copy(update={"value": 0.4})
    tokens = [0, 0.5, 1, 2, 5, 16, 4096]

    def touched(**coefficients):
        product = next(one for one in changed(steptime, **coefficients)._products if one.expert)
        return np.array([product.touched(each) for each in tokens])

    at_random = touched(models_routing_diversity={})
    assert at_random[2:] == pytest.approx([1 - 0.75**each for each in tokens[2:]])  # 2 of 8 experts a token
    assert at_random[:2] == pytest.approx([0, 0.125])
    fewer = touched(models_routing_diversity={"mixtral-8x7b": alike})
    assert fewer[:3] == pytest.approx(at_random[:3])
    assert fewer[3:6] == pytest.approx([1 - 0.75 ** (1 + 0.4 * (each - 1)) for each in tokens[3:6]])
    assert fewer[-1] == pytest.approx(1)
    assert touched(models_routing_diversity={"qwen3-30b-a3b": alike}) == pytest.approx(at_random)


@pytest.mark.parametrize(("local", "ranks"), [(4, 4), (16, 8), (32, 8), (64, 2)])
def test_ranks_with_whole_experts_wait_for_the_one_that_reads_most(build, local, ranks):
    product = next(one for one in build("mixtral-8x7b", "h200-141gb-sxm")._products if one.expert)
    product = replace(product, fullest_rank=expected_maximum(ranks) / local**0.5)
    for share in (0.1, 0.25, 0.5, 0.75, 0.9):
        chances = [comb(local, k) * share**k * (1 - share) ** (local - k) for k in range(local)]
        largest = sum(1 - below**ranks for below in np.cumsum(chances)) / local
        assert replace(product, touch_probability=share).touched(1) == pytest.approx(largest, rel=0.04)
    read = [product.touched(tokens) for tokens in range(100)]
    assert read == sorted(read)
    assert read[0] == 0
    assert read[-1] == 1


def test_only_whole_experts_on_several_ranks_are_read_unevenly(build):
    def fullest(**layout):
        return next(one for one in build("gpt-oss-20b", "h100-80gb-sxm", **layout)._products if one.expert).fullest_rank

    assert fullest(tp=1) == fullest(tp=4) == fullest(ep=True) == 0
    assert 0 < fullest(tp=2, ep=True) < fullest(tp=4, ep=True)


def test_experts_add_arithmetic_and_reading_where_a_dense_product_hides_one_behind_the_other(build):
    for product in build("mixtral-8x7b", "h100-80gb-sxm", "nvlink4-nvswitch")._products:
        times = product.times(300)
        alone_s = product.count * product.compute_s_per_token * 300 * product.tokens_factor
        assert times.compute_s == pytest.approx(alone_s) if product.expert else times.compute_s < 0.95 * alone_s


def test_windowed_layers_stop_growing_at_the_window(build):
    steptime = build("gpt-oss-120b", "h100-80gb-sxm", "nvlink4-nvswitch")
    assert steptime.window == 128
    growing = Batch(decode_seqs=4, kv_tokens=400, windowed_kv_tokens=400, windowed_growing_seqs=4, sampled_seqs=4)
    full = Batch(decode_seqs=4, kv_tokens=4000, windowed_kv_tokens=512, windowed_growing_seqs=0, sampled_seqs=4)
    assert steptime.leap(full).growth_s == pytest.approx(steptime.leap(growing).growth_s / 2)


def test_pipeline_stages_share_the_model_and_lose_some_of_it(build):
    whole, stage = build("llama3.1-70b"), build("llama3.1-70b", pp=4)
    share = stage.leap(decode(8, 1000)).first_s / whole.leap(decode(8, 1000)).first_s
    assert 1 / 4 < share < 1.4 / 4


def test_the_last_stage_of_a_pipeline_has_the_head_and_the_work_of_the_host_for_itself(build):
    plain, staged = (build("llama3.1-70b", pp=stages).leap(decode(8, 1000)) for stages in (1, 4))
    assert plain.last_s == 0
    head_bytes, host_s = 128256 * 8192 * 2, 1e-3 + 8 * 40e-6
    assert head_bytes / 2.04e12 + host_s < staged.last_s < 2 * (head_bytes / 2.04e12 + host_s)
    assert 4 * staged.first_s == pytest.approx(plain.first_s, rel=0.01)


def test_stages_with_different_layers_have_times_of_their_own(build):
    """DeepSeek-V3's 61 layers on four stages: 3 dense and 12, 15, 16 and 15 layers with experts."""
    staged = build("deepseek-v3", "h200-141gb-sxm", "nvlink4-nvswitch", "fp8", pp=4)
    staged = roofline_step_time(staged.spec, staged.inputs)
    batch = decode(64, 1000)
    leap = staged.leap(batch)
    assert leap.first_s == pytest.approx(RooflineStepTime(staged.spec, staged.inputs).leap(batch).first_s, rel=1e-9)
    assert sum(leap.stages_more_s) == pytest.approx(0, abs=1e-12)
    first, second, third, last = leap.stages_more_s
    assert second == last < third
    expert_layer_s = third - second
    assert first == pytest.approx(second, abs=3 * expert_layer_s)
    assert first < second  # a dense layer reads 0.4e9 weights, 64 tokens select most of the 11e9 of 256 experts
    assert 15 * expert_layer_s < leap.first_s + second
    assert sum(staged.breakdown(batch).values()) == pytest.approx(leap.first_s)


def test_equal_stages_are_the_mean_stage(build):
    for model, stages in (("llama3.1-70b", 8), ("gpt-oss-120b", 2)):
        staged = build(model, pp=stages)
        assert type(roofline_step_time(staged.spec, staged.inputs)) is RooflineStepTime


def test_expert_parallel_ranks_read_fewer_experts_each(build):
    card, over = "h200-141gb-sxm", "nvlink4-nvswitch"
    apart = build("deepseek-v3", card, over, "fp8", dp=8)
    together = build("deepseek-v3", card, over, "fp8", dp=8, ep=True)
    batch = decode(32, 1000)
    assert together.breakdown(batch)["memory"] < 0.5 * apart.breakdown(batch)["memory"]
    assert together.breakdown(batch)["link"] > apart.breakdown(batch)["link"] == 0


def test_experts_see_the_tokens_that_all_ranks_really_have(build):
    model = build("qwen3-30b-a3b", "rtx-pro-6000", "pcie5-x16", dp=2, ep=True)
    prompts = prompt(2048)
    alone, both = replace(prompts, replica_tokens=2048), replace(prompts, replica_tokens=4096)
    assert model.leap(alone).first_s < model.leap(both).first_s == model.leap(prompts).first_s


@pytest.mark.slow
def test_a_slow_host_and_an_api_server_cost_time_per_sequence(build, coefficients):
    def overhead_s(**spec):
        return build(spec=Roofline(**spec)).breakdown(decode(100))["overhead"]

    assert overhead_s(host_factor=2) - overhead_s() == pytest.approx(1e-3 + 100 * 40e-6)
    assert overhead_s() - overhead_s(in_process=True) == pytest.approx(100 * (40e-6 - 8e-6))
    assert overhead_s() - overhead_s(stream_interval=10) == pytest.approx(0.9 * 100 * (40e-6 - 8e-6))
    assert overhead_s(in_process=True, stream_interval=10) == overhead_s(in_process=True)
    contended = coefficients.one_process_host_time_factor.value
    assert overhead_s(one_process=True) - overhead_s() == pytest.approx((contended - 1) * (1e-3 + 100 * 40e-6))
    sorted_s, penalized_s, both_s = (
        build(spec=Roofline(sorts_logits=sorts, penalizes_logits=penalizes)).breakdown(decode(100))["memory"]
        - build().breakdown(decode(100))["memory"]
        for sorts, penalizes in ((True, False), (False, True), (True, True))
    )
    efficiency = build().values["memory_efficiency"].value
    assert sorted_s == pytest.approx(100 * 128256 * 390 / (2.039e12 * efficiency), rel=0.01)
    assert penalized_s == pytest.approx(sorted_s * 85 / 390)
    assert both_s == pytest.approx(sorted_s + penalized_s)
    assert overhead_s(one_process=True, in_process=True) == overhead_s(in_process=True)
    assert set(Roofline(one_process=True, sorts_logits=True, penalizes_logits=True).values(coefficients)) == {
        "one_process_host_time_factor",
        "sorting_bytes_per_logit",
        "penalty_bytes_per_logit",
    }
    assert not Roofline(in_process=True, one_process=True).values(coefficients)


def test_chats_are_read_one_after_the_other_only_where_the_release_reads_the_template_anew(engine):
    reading = engine.overheads.per_step_s.model_copy(update={"value": 0.01})
    anew = engine.model_copy(update={"overheads": engine.overheads.model_copy(update={"chat_template_s": reading})})
    assert Roofline(chat_template=True, host_factor=2).intake_s(anew) == 0.02
    assert Roofline().intake_s(anew) == Roofline(chat_template=True).intake_s(engine) == 0
    assert Roofline(chat_template=True, in_process=True).intake_s(anew) == 0


def test_prompts_are_tokenised_by_the_api_server_of_the_host(engine):
    each = engine.overheads.per_step_s.model_copy(update={"value": 1e-5})
    own = engine.model_copy(update={"overheads": engine.overheads.model_copy(update={"tokenising_s": each})})
    assert Roofline(host_factor=2).tokenising_s(own) == 2e-5
    assert Roofline(in_process=True).tokenising_s(own) == Roofline().tokenising_s(engine) == 0


def test_request_overhead_grows_with_ranks_and_experts_and_is_the_hosts(engine, language_model, gpu):
    a100, h100 = gpu("a100-80gb-sxm"), gpu("h100-80gb-sxm")
    dense, mixture = language_model("llama3.1-8b"), language_model("mixtral-8x7b")
    assert Roofline().request_overhead_s(engine, dense, 1, a100) == pytest.approx(0.012)
    assert Roofline().request_overhead_s(engine, mixture, 4, a100) == pytest.approx(0.012 * 1.6 * 1.5)
    quick = engine.overheads.model_copy(update={"hopper_request_factor": engine.overheads.hopper_layer_factor})
    quick = engine.model_copy(update={"overheads": quick})
    assert Roofline().request_overhead_s(quick, dense, 1, h100) == pytest.approx(0.012 * 0.9)
    assert Roofline().request_overhead_s(quick, dense, 1, a100) == pytest.approx(0.012)
    assert Roofline(in_process=True).request_overhead_s(engine, dense, 1, a100) == 0


def test_without_graphs_a_step_lasts_as_long_as_the_host_launches_it(build, coefficients):
    graphs, eager = build(), build(spec=Roofline(cuda_graphs=False))
    one, many = decode(1), prompt(8192)
    launch_s = 32 * coefficients.launch_layer_s.value
    assert graphs.leap(one).first_s < eager.leap(one).first_s == pytest.approx(launch_s + 1e-3 + 40e-6)
    assert graphs.leap(many) == eager.leap(many)
    assert set(Roofline(cuda_graphs=False).values(coefficients)) == {"launch_layer_s"}


@pytest.mark.parametrize(("factor", "card", "over", "share"), [
    ("cdna", "mi300x", "infinity-fabric-mi300x", 0.6), ("cdna", "mi355x", "infinity-fabric-mi350x", 0.6),
    ("cdna", "l40s", "pcie4-x16", 0.0), ("ada", "l40s", "pcie4-x16", 0.6), ("ada", "a100-80gb-sxm", "pcie4-x16", 0.0),
])  # fmt: skip
def test_small_kernels_last_otherwise_on_instinct_and_ada_cards_alone(build, engine, factor, card, over, share):
    usual = build(card=card, over=over)
    longer = engine.overheads.model_copy(update={f"{factor}_layer_factor": engine.overheads.tp_request_factor})
    inputs = replace(usual.inputs, engine=engine.model_copy(update={"overheads": longer}))
    more_s = (
        RooflineStepTime(Roofline(), inputs).breakdown(decode(1))["overhead"] - usual.breakdown(decode(1))["overhead"]
    )
    assert more_s == pytest.approx(share * 32 * 50e-6)


def test_unmeasured_engine_is_refused(engine, language_model, gpu):
    unknown = engine.model_copy(update={"overheads": None})
    with pytest.raises(ValueError, match="there are no measurements of the step overheads of engine 'test'"):
        Roofline().request_overhead_s(unknown, language_model("llama3.1-8b"), 1, gpu("a100-80gb-sxm"))


def test_values_name_what_the_time_rests_on(build, coefficients):
    assert "allreduce_time_factor" not in build().values
    assert build(tp=2).values["allreduce_time_factor"] == coefficients.allreduce_time_factors[0].factor
    assert build(card="gaudi3").values["memory_efficiency"].weak


def test_8_bit_cache_at_twice_the_time_per_byte_costs_as_much_as_16_bits(build):
    half, whole = build(kv_bytes=1.0), build(kv_bytes=2.0)
    engine = half.inputs.engine
    twice = engine.overheads.kv_read_time_factor.model_copy(update={"value": 2.0})
    engine = engine.model_copy(
        update={"overheads": engine.overheads.model_copy(update={"kv_8bit_read_time_factor": twice})}
    )
    slow = RooflineStepTime(Roofline(), replace(half.inputs, engine=engine))
    reading_s = [one.breakdown(decode(64, 4096))["attention"] for one in (half, slow, whole)]
    assert reading_s[0] < 0.6 * reading_s[2]
    assert reading_s[1] == pytest.approx(reading_s[2], rel=0.02)


def changed(steptime, **coefficients):
    inputs = steptime.inputs
    return RooflineStepTime(
        Roofline(), replace(inputs, coefficients=inputs.coefficients.model_copy(update=coefficients))
    )


def test_a_family_of_mixtures_and_spread_experts_slow_grouped_arithmetic_and_nothing_else(build):
    card, over = "h200-141gb-sxm", "nvlink4-nvswitch"
    plain = {"models_experts_time_factors": {}, "expert_parallel_time_factor_per_doubling": None}
    spread = changed(build("mixtral-8x7b", card, over, tp=8, ep=True), **plain)
    whole = changed(build("mixtral-8x7b", card, over, tp=8), **plain)
    twice = spread.inputs.coefficients.gemm_exponent.model_copy(update={"value": 2.0})
    batch = decode(256, 1000)
    experts_s = sum(p.times(256).compute_s for p in spread._products if p.expert)
    root = twice.model_copy(update={"value": 2 ** (1 / 3)})
    for factor in (
        {"models_experts_time_factors": {"mixtral-8x7b": twice}}, {"expert_parallel_time_factor_per_doubling": root}
    ):  # fmt: skip
        slower_s = changed(spread, **factor).leap(batch).first_s - spread.leap(batch).first_s
        assert slower_s == pytest.approx(experts_s)
    assert changed(whole, expert_parallel_time_factor_per_doubling=twice).leap(batch) == whole.leap(batch)
    dense = build()
    assert changed(dense, models_experts_time_factors={"llama3-8b": twice}).leap(batch) == dense.leap(batch)


def test_an_engine_kernels_for_a_format_change_the_arithmetic_of_experts_and_nothing_else(build):
    plain = build("mixtral-8x7b", "h200-141gb-sxm", "nvlink4-nvswitch")
    overheads = plain.inputs.engine.overheads
    twice = overheads.moe_gemm_time_factor.model_copy(update={"value": 2.0})

    def with_factor(kernel):
        known = plain.inputs.engine.model_copy(
            update={"overheads": overheads.model_copy(update={"experts_by_kernel": {kernel: twice}})}
        )
        return RooflineStepTime(Roofline(), replace(plain.inputs, engine=known))

    batch = decode(256, 1000)
    arithmetic_s = sum(p.count * p.compute_s_per_token * 256 for p in plain._products if p.expert)
    assert with_factor("k").leap(batch).first_s - plain.leap(batch).first_s == pytest.approx(arithmetic_s)
    assert with_factor("other").leap(batch) == plain.leap(batch)


@pytest.mark.slow
def test_experts_without_tuned_tiles_are_slower_until_a_release_fixes_it(build, engine):
    twice = engine.overheads.moe_layer_factor.model_copy(update={"value": 2.0})

    def longer(card, version, tp=1, kernel="k"):
        one = build("mixtral-8x7b", card, tp=tp)
        tuned = TunedTiles(experts=8, widths=(14336 // 4,), gpus=("h100",))
        tiles = DefaultTiles(
            kernel=kernel, architectures=("Hopper", "Ampere", "Blackwell"), factor=twice, tuned=(tuned,)
        )
        changes = (ReleaseDefaults(versions="0.14 to 0.16", default_tiles=tiles),)
        own = at_version(one.inputs.engine.model_copy(update={"changed": changes}), version)
        batch = prompt(8192)
        arithmetic_s = sum(p.times(8192).compute_s for p in one._products if p.expert)
        return (
            RooflineStepTime(one.spec, replace(one.inputs, engine=own)).leap(batch).first_s - one.leap(batch).first_s
        ) / arithmetic_s

    assert longer("h100-80gb-sxm", (0, 14)) == pytest.approx(1)
    assert longer("a100-80gb-sxm", (0, 14), tp=4) == pytest.approx(1)
    assert longer("rtx-pro-6000", (0, 14)) == 0  # "Blackwell (GB20x)" is another architecture
    assert longer("h100-80gb-sxm", (0, 14), tp=4) == 0
    assert longer("h100-80gb-sxm", (0, 17)) == longer("h100-80gb-sxm", (0, 14), kernel="another") == 0


def test_default_tiles_read_few_experts_slowly(build, engine):
    twice, half = (engine.overheads.moe_layer_factor.model_copy(update={"value": one}) for one in (2.0, 1.5))
    tuned = TunedTiles(experts=8, widths=(14336 // 4,), gpus=("h100",))
    tiles = DefaultTiles(
        kernel="k", architectures=("Hopper",), factor=twice, read_factor=half, read_experts=8, tuned=(tuned,)
    )

    def longer(model="mixtral-8x7b", **layout):
        plain = build(model, "h100-80gb-sxm", **layout)
        overheads = plain.inputs.engine.overheads.model_copy(update={"default_tiles": tiles})
        slow = replace(plain.inputs, engine=plain.inputs.engine.model_copy(update={"overheads": overheads}))
        ratios = (
            known.weight_s / usual.weight_s
            for known, usual in zip(RooflineStepTime(plain.spec, slow)._products, plain._products, strict=True)
            if known.expert
        )
        return next(ratios)

    assert longer() == longer(tp=4, ep=True) == pytest.approx(1.5)
    assert longer(tp=4) == longer("qwen3-30b-a3b") == 1


def test_padding_of_experts_takes_its_time_in_batches_of_any_size_where_the_release_pads(build, engine):
    value = engine.overheads.moe_layer_factor
    tile, half = (value.model_copy(update={"value": one}) for one in (128.0, 0.5))
    padded = PaddedExperts(
        quantizations=("fp8",), architectures=("Hopper",), split_below=8, tile_tokens=tile, efficiency=half
    )
    changed = engine.model_copy(update={"changed": (ReleaseDefaults(versions="0.12 to 0.13", padded_experts=padded),)})

    def longer(tokens, version=(0, 12), card="h100-80gb-sxm", weights="fp8", tp=4):
        plain = build("mixtral-8x7b", card, weights=weights, tp=tp)
        padding = RooflineStepTime(plain.spec, replace(plain.inputs, engine=at_version(changed, version)))
        return padding.leap(decode(tokens)).first_s - plain.leap(decode(tokens)).first_s

    model = build("mixtral-8x7b").inputs.model
    weights = sum(one.count * one.inputs * one.outputs for one in matrices(model) if one.role == "expert")
    padding_s = 2 * 127 * weights / 4 / (0.5 * 1979e12)
    assert [longer(1), longer(64)] == pytest.approx([padding_s, padding_s], rel=1e-3)
    assert not any((longer(1, (0, 14)), longer(1, card="b200-180gb-sxm"), longer(1, weights="none"), longer(1, tp=8)))


def test_an_api_server_reads_in_prompts_by_the_token(build):
    plain = build()
    overheads = plain.inputs.engine.overheads
    reading = overheads.model_copy(
        update={"per_prompt_token_s": overheads.per_step_s.model_copy(update={"value": 1e-6})}
    )
    inputs = replace(plain.inputs, engine=plain.inputs.engine.model_copy(update={"overheads": reading}))

    def longer_s(**spec):
        served, before = RooflineStepTime(Roofline(**spec), inputs), RooflineStepTime(Roofline(**spec), plain.inputs)
        assert served.leap(decode(8)) == before.leap(decode(8))
        return served.leap(prompt(2000)).first_s - before.leap(prompt(2000)).first_s

    assert longer_s() == pytest.approx(2e-3)
    assert longer_s(host_factor=2) == pytest.approx(4e-3)
    assert longer_s(in_process=True) == 0


def test_an_engine_may_read_weights_more_slowly_on_some_cards(build, engine):
    slow = SlowCards(gpus=("a100",), factor=engine.overheads.moe_layer_factor)
    own = engine.model_copy(update={"overheads": engine.overheads.model_copy(update={"slow_cards": slow})})

    def read_s(card, engine):
        one = build(card=card)
        return RooflineStepTime(one.spec, replace(one.inputs, engine=engine)).breakdown(decode(1))["memory"]

    assert 1.5 < read_s("a100-80gb-sxm", own) / read_s("a100-80gb-sxm", engine) < 1.61
    assert read_s("h100-80gb-sxm", own) == read_s("h100-80gb-sxm", engine)


def test_prompts_run_in_passes_and_pay_for_the_kernels_between_products(build, engine):
    one = engine.overheads.per_layer_s.model_copy
    known = {"micro_batch_tokens": 512, "activation_bytes": 12, "score_bytes": 21}
    kernels = PromptKernels(**{name: one(update={"value": number}) for name, number in known.items()})
    own = engine.model_copy(update={"overheads": engine.overheads.model_copy(update={"prompt_kernels": kernels})})
    plain = build("llama3.1-8b", "a100-80gb-sxm")
    steptime = RooflineStepTime(plain.spec, replace(plain.inputs, engine=own))
    assert steptime.leap(decode(1)).first_s == pytest.approx(plain.leap(decode(1)).first_s, rel=1e-2)
    for tokens, passes in ((512, 1), (1024, 2), (2048, 4), (2049, 5)):
        layers_s = steptime.breakdown(prompt(tokens))["overhead"] - plain.breakdown(prompt(tokens))["overhead"]
        assert layers_s == pytest.approx((passes - 1) * 32 * engine.overheads.per_layer_s.value)
    model, rates = steptime.inputs.model, GpuRates.of(steptime.inputs)
    numbers = sum(m.count * (m.inputs + m.outputs) for m in matrices(model) if m.role in ("attention", "mlp"))
    parts = steptime.breakdown(prompt(512)), plain.breakdown(prompt(512))
    between_s, scores_s = (parts[0][name] - parts[1][name] for name in ("memory", "attention"))
    assert between_s == pytest.approx(12 * 512 * numbers / rates.bytes_per_s, rel=1e-6)
    assert scores_s > 21 * 512 * 512 * model.heads * model.layers / rates.bytes_per_s


def test_quantised_prompts_use_8_bit_integers_and_geforce_cards_16_bit_sums(build, engine):
    one = engine.overheads.per_layer_s.model_copy
    known = {"micro_batch_tokens": 512, "activation_bytes": 0, "half_accumulation_factor": 2, "int8_share": 0.5}
    kernels = PromptKernels(**{name: one(update={"value": number}) for name, number in known.items()})
    overheads = engine.overheads.model_copy(update={"prompt_kernels": kernels})
    own = engine.model_copy(update={"overheads": overheads})

    def rate(card, kernel, quantization):
        inputs = build(card=card).inputs
        changed = inputs.quantization.model_copy(update={"id": quantization})
        named = inputs.kernel.model_copy(update={"id": kernel})
        found = replace(inputs, engine=own, kernel=named, quantization=changed)
        return found.prompt_peak * found.prompt_share

    assert rate("rtx-4090", "dense-16bit", "fp16") == 2
    assert rate("rtx-4090", "dense-16bit", "none") == rate("a100-80gb-sxm", "dense-16bit", "fp16") == 1
    assert rate("a100-80gb-sxm", "gguf", "gguf-q4_0") == pytest.approx(0.5 * 624 / 312)


def test_a_kernel_of_the_graphics_cards_own_counts_there_alone(build):
    for card, factor in (("rtx-pro-6000", 0.5), ("b200-180gb-sxm", 1.0)):
        plain = build("llama3.1-70b", card, "pcie5-x16", "fp8")
        kernel = plain.inputs.kernel
        own = kernel.model_copy(
            update={"graphics_compute_time_factor": kernel.compute_time_factor.model_copy(update={"value": 0.5})}
        )
        inputs = replace(plain.inputs, kernel=own)
        assert inputs.kernel_compute.value == factor * kernel.compute_time_factor.value
        assert (RooflineStepTime(plain.spec, inputs).leap(prompt(2048)).first_s < plain.leap(prompt(2048)).first_s) == (
            factor < 1
        )


def test_4_bit_weights_for_16_bit_arithmetic_are_read_sooner_and_compute_later_on_b200_alone(build):
    for card, longer in (("b200-180gb-sxm", 3.5), ("h100-80gb-sxm", 1.0)):
        plain, int4 = build(card=card), build(card=card, weights="int4")
        factor = int4.inputs.kernel.compute_time_factor.model_copy(update={"value": 3.5})
        kernel = int4.inputs.kernel.model_copy(update={"server_blackwell_compute_factor": factor})
        own = RooflineStepTime(int4.spec, replace(int4.inputs, kernel=kernel))
        assert gpu_s(own, decode(1)) < 0.6 * gpu_s(plain, decode(1))
        assert gpu_s(own, prompt(8192)) == pytest.approx(longer * gpu_s(plain, prompt(8192)), rel=0.15)


def test_dense_products_of_a_format_take_longer_in_an_engine_on_server_blackwell_alone(build, engine):
    factor = engine.overheads.moe_layer_factor.model_copy(update={"value": 1.5})
    slow = SlowProducts(kernel="fp8", factor=factor)
    own = engine.model_copy(update={"overheads": engine.overheads.model_copy(update={"slow_products": (slow,)})})

    def longer(card, weights="fp8"):
        one = build(card=card, weights=weights)
        kernel = one.inputs.kernel.model_copy(update={"id": weights})
        before, after = (
            RooflineStepTime(one.spec, replace(one.inputs, kernel=kernel, engine=each)) for each in (engine, own)
        )
        assert gpu_s(after, decode(1)) == pytest.approx(gpu_s(before, decode(1)), rel=0.01)
        return after.breakdown(prompt(8192))["compute"] / before.breakdown(prompt(8192))["compute"]

    assert longer("b200-180gb-sxm") == pytest.approx(1.5, rel=0.01)
    assert longer("h100-80gb-sxm") == longer("rtx-pro-6000") == longer("b200-180gb-sxm", "int4") == 1


def test_faster_kernels_for_experts_count_for_their_format_on_server_blackwell_from_their_release_on(build, engine):
    half = engine.overheads.moe_layer_factor.model_copy(update={"value": 0.5})

    def longer(card, version, kernel="k", default=True, stated=None):
        fast = FastExperts(kernel=kernel, versions="0.5.8 to 0.5.99", factor=half, backend="fast", default=default)
        overheads = engine.overheads.model_copy(update={"fast_experts": (fast,)})
        own = at_version(engine.model_copy(update={"overheads": overheads}), version)
        one = build("mixtral-8x7b", card)
        changed = RooflineStepTime(one.spec, replace(one.inputs, engine=own, moe_backend=stated))
        return changed.leap(prompt(8192)).first_s / one.leap(prompt(8192)).first_s

    faster = longer("b200-180gb-sxm", (0, 5, 9))
    assert faster < 0.7
    assert longer("b200-180gb-sxm", (0, 5, 7)) == longer("h100-80gb-sxm", (0, 5, 9)) == 1
    assert longer("b200-180gb-sxm", (0, 5, 9), "another") == 1
    for default, stated, factor in (
        (True, "AUTO", faster), (True, "slow", 1), (False, None, 1), (False, "auto", 1), (False, "fast", faster),
    ):  # fmt: skip
        assert longer("b200-180gb-sxm", (0, 5, 9), default=default, stated=stated) == factor


def test_weights_of_a_format_are_read_more_slowly_on_graphics_cards_of_blackwell_until_a_release_mends_it(
    build, engine
):
    factor = engine.overheads.moe_layer_factor.model_copy(update={"value": 1.6})
    slow = ReleaseDefaults(versions="0.11 to 0.22", slow_weights=(SlowWeights(kernel="k", factor=factor),))
    own = engine.model_copy(update={"changed": (slow,)})

    def longer(card, version):
        one = build(card=card, weights="fp8")
        changed = RooflineStepTime(one.spec, replace(one.inputs, engine=at_version(own, version)))
        return gpu_s(changed, decode(1)) / gpu_s(one, decode(1))

    assert 1.3 < longer("rtx-5090", (0, 12)) < 1.6
    assert longer("rtx-5090", (0, 24)) == longer("rtx-4090", (0, 12)) == 1


@pytest.mark.parametrize(("card", "felt"), [("h20-96gb", True), ("h100-80gb-sxm", False), ("a100-80gb-sxm", False)])
def test_whole_tiles_are_felt_by_a_hopper_card_with_little_arithmetic(build, card, felt):
    plain, limit = build(card=card), Value(value=64, source="test", kind="computed")
    limits = EngineLimits(max_num_seqs=limit, max_num_batched_tokens=limit, hopper_tile_tokens=limit)
    engine = plain.inputs.engine.model_copy(update={"limits": limits})
    tiled = RooflineStepTime(Roofline(), replace(plain.inputs, engine=engine))
    slower = gpu_s(tiled, decode(1)) / gpu_s(plain, decode(1))
    assert slower > 1.3 if felt else slower < 1.06
    assert gpu_s(tiled, decode(1)) == pytest.approx(gpu_s(tiled, decode(63)), rel=0.05) or not felt
    assert gpu_s(tiled, decode(64)) == gpu_s(plain, decode(64))


@pytest.mark.parametrize(("card", "slower"), [("b200-180gb-sxm", 1.57), ("h100-80gb-sxm", 1.26), ("rtx-4090", 1.0)])
def test_small_heads_take_as_many_exponentials_as_large_ones(build, card, slower):
    small, large = build("llama3.2-1b", card), build("llama3.2-3b", card)
    heads = [one.inputs.model.heads * one.inputs.model.head_dim for one in (small, large)]
    pairs_s = [one._pair_s / one.inputs.model.layers / size for one, size in zip((small, large), heads, strict=True)]
    assert pairs_s[0] == pytest.approx(slower * pairs_s[1])


def test_a_window_costs_a_prompt_more_than_its_tokens_but_never_more_than_all(build):
    steptime = build("gpt-oss-20b", "h100-80gb-sxm")
    short, long = (sum(steptime._prefill(prompt(tokens))) / tokens for tokens in (100, 16384))
    assert steptime._seen_tokens > 2 * steptime.window
    assert short == pytest.approx((steptime._pair_s + steptime._window_pair_s) * 101 / 2)
    assert long == pytest.approx(steptime._pair_s * 16385 / 2 + steptime._window_pair_s * steptime._seen_tokens)


def test_a_request_of_another_batch_takes_its_share_of_the_host_time_per_sequence(build, engine):
    usual = build(pp=2)
    overheads = engine.overheads.model_copy(
        update={"standing_share": Value(value=0.25, source="test", kind="computed")}
    )
    inputs = replace(usual.inputs, engine=engine.model_copy(update={"overheads": overheads}))
    batches = [Batch(decode_seqs=4, sampled_seqs=4, kv_tokens=400, standing_seqs=count) for count in (0, 8)]
    shared, whole = (
        [steptime.leap(batch).first_s for batch in batches]
        for steptime in (RooflineStepTime(usual.spec, inputs), usual)
    )
    assert shared[1] - shared[0] == pytest.approx(0.25 * (whole[1] - whole[0]))
