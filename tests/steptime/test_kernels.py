"""Rates of kernels against the products that the step time computes, and the measured table against datasheets."""

from dataclasses import replace

import pytest

from sim.catalogue.catalog import load_catalog
from sim.catalogue.model import matrices
from sim.report.check import kernel_lists
from sim.steptime.gemm import product_of
from sim.steptime.inputs import FLOP_PER_WEIGHT, GpuRates, peak_flops
from sim.steptime.kernels import MeasuredKernel, kernel_rates, measured_kernels, reached_shares

CATALOG = load_catalog()
MEASURED = measured_kernels(CATALOG)
ARITHMETIC = {"bf16": "fp16", "fp8": "fp8", "fp8-block": "fp8", "nvfp4": "fp4", "int4-wo": "fp16"}
ARITHMETIC |= {"mxfp4": "fp16", "mxfp4-mxfp8": "fp8"}


@pytest.mark.parametrize("weights", ["none", "fp8", "int4"])
@pytest.mark.parametrize(("model", "parts"), [("llama3.1-8b", 1), ("qwen3-30b-a3b", 2), ("deepseek-v3", 2)])
def test_rates_are_those_of_the_products_and_within_the_datasheet(build, model: str, parts: int, weights: str) -> None:
    inputs = build(model, "h100-80gb-sxm", "nvlink4-nvswitch", weights).inputs
    rates = GpuRates.of(inputs)
    found = list(kernel_rates(inputs, MEASURED))
    assert len(found) == parts
    for one in found:
        assert 0 < one.prefill_flops <= one.peak_flops
        assert 0 < one.decode_bytes_per_s <= one.memory_bytes_per_s
        role = "expert" if one.part == "experts" else "attention"
        matrix = next(matrix for matrix in matrices(inputs.model) if matrix.role == role)
        product = product_of(matrix, rates)
        chosen = inputs.model.moe.experts_per_token if one.part == "experts" else 1
        flop = chosen * FLOP_PER_WEIGHT * matrix.inputs * matrix.outputs
        assert one.prefill_flops == pytest.approx(flop / product.compute_s_per_token)


def test_tensor_parallel_ranks_move_all_hidden_states_of_experts_and_expert_parallel_ranks_theirs(build) -> None:
    def moved(**layout: object) -> float:
        inputs = build("deepseek-v3", "h200-141gb-sxm", "nvlink4-nvswitch", **layout).inputs
        rates = GpuRates.of(inputs)
        experts = [product_of(one, rates) for one in matrices(inputs.model) if one.role == "expert"]
        return sum(one.activation_s_per_token for one in experts) * rates.bytes_per_s

    hidden, width, chosen = 7168, 2048, 8
    assert moved(tp=8) == pytest.approx(2 * chosen * (2 * hidden + 3 * width / 8))
    assert moved(tp=8, ep=True) == pytest.approx(2 * chosen * (2 * hidden + 3 * width) / 8)


def test_measured_kernels_keep_within_the_dense_peak_and_gain_with_tokens() -> None:
    rates: dict[tuple[object, ...], list[float]] = {}
    for one in MEASURED:
        assert one.flops <= 1.05 * peak_flops(CATALOG.gpu(one.gpu), ARITHMETIC[one.format])
        rates.setdefault((one.gpu, one.engine, one.format, one.experts, one.kernel), []).append(one.flops)
    assert len(rates) > 100
    assert all(found[0] < found[-1] for found in rates.values())


def test_the_kernel_of_the_engine_and_card_is_shown_and_else_that_of_the_architecture(build) -> None:
    inputs = build("llama3.1-8b", "rtx-5090", "pcie5-x16-no-p2p").inputs
    engine = inputs.engine.model_copy(update={"id": "vllm-0.14"})
    inputs = replace(inputs, engine=engine, kernel=inputs.kernel.model_copy(update={"id": "dense-16bit"}))
    card = inputs.gpu.architecture
    other = MeasuredKernel("rtx-pro-6000-server", card, "vllm", "0.24.0", "bf16", False, 8192, "linear", 4e14, 144)
    own = MeasuredKernel("rtx-5090", card, "vllm", "0.24.0", "bf16", False, 8192, "linear", 2e14, 9)
    elsewhere = MeasuredKernel("rtx-5090", card, "sglang", "0.5.14", "bf16", False, 8192, "linear", 1e14, 9)
    for known, shown in (((other, elsewhere), (other,)), ((other, own, elsewhere), (own,)), ((elsewhere,), ())):
        (rate,) = kernel_rates(inputs, known)
        assert rate.measured == shown


@pytest.mark.parametrize(("card", "share"), [("rtx-5090", 0.3), ("b200-180gb-sxm", 0.05), ("h100-80gb-sxm", None)])
def test_no_product_on_blackwell_is_faster_than_its_kernel_alone(build, card: str, share: float | None) -> None:
    inputs = build("qwen3-30b-a3b", card, "pcie5-x16").inputs
    engine = inputs.engine.model_copy(update={"id": "vllm-0.14", "versions": "0.14 to 0.33"})
    inputs = replace(inputs, engine=engine, quantization=CATALOG.quantization("nvfp4"), kernel=CATALOG.kernel("nvfp4"))
    measured = MeasuredKernel(
        card, inputs.gpu.architecture, "vllm", "0.24.0", "nvfp4", True, 8192, "experts", 1.0, 9,
        (share or 1) * peak_flops(inputs.gpu, "fp4"),
    )  # fmt: skip
    limited = replace(inputs, reached=reached_shares(inputs, [measured], CATALOG))
    assert set(limited.reached) == ({"experts"} if share else set())
    rate = next(one for one in kernel_rates(limited, [measured]) if one.part == "experts")
    if share:
        assert rate.prefill_flops == pytest.approx(share * rate.peak_flops)
        assert rate.basis is limited.reached["experts"]
    older = replace(inputs, engine=engine.model_copy(update={"versions": "0.11 to 0.13"}))
    assert not reached_shares(older, [measured], CATALOG)


def test_a_server_may_choose_the_dense_kernel_of_blocks_on_server_blackwell(build) -> None:
    engine = CATALOG.engine("sglang")
    (own,) = engine.overheads.dense_kernels

    def rate(card: str, backend: str, weights: str = "fp8-block") -> float:
        inputs = build("llama3.1-8b", card, "pcie5-x16").inputs
        inputs = replace(
            inputs, engine=engine, quantization=CATALOG.quantization(weights), kernel=CATALOG.kernel("fp8-w8a8")
        )
        limited = replace(inputs, reached=reached_shares(inputs, MEASURED, CATALOG, backend))
        (found,) = kernel_rates(limited, MEASURED)
        return found.prefill_flops / found.peak_flops

    assert rate("b200-180gb-sxm", own.backend) == pytest.approx(own.reached.value)
    for card, weights in (("h100-80gb-sxm", "fp8-block"), ("b200-180gb-sxm", "fp8")):
        assert rate(card, own.backend, weights) == rate(card, "", weights)
    assert rate("b200-180gb-sxm", "deep_gemm") == rate("b200-180gb-sxm", "") > 2 * own.reached.value


def test_the_experts_of_a_stated_backend_are_limited_by_its_own_kernel(build) -> None:
    engine = CATALOG.engine("tensorrt-llm")
    (fast,) = engine.overheads.fast_experts
    inputs = build("deepseek-v3", "b200-180gb-sxm", "nvlink5-nvswitch").inputs
    inputs = replace(inputs, engine=engine, quantization=CATALOG.quantization("nvfp4"), kernel=CATALOG.kernel("nvfp4"))
    alone = {}
    for backend in (None, "CUTLASS", fast.backend):
        stated = replace(inputs, moe_backend=backend)
        rate = next(one for one in kernel_rates(stated, MEASURED) if one.part == "experts")
        alone[backend] = {one.kernel for one in rate.measured}
        assert stated.usual_experts == ("CUTLASS" if backend == "CUTLASS" else None)
    assert alone[fast.backend] == {fast.measured_as}
    assert alone[None] == alone["CUTLASS"] == {"moe_torch_flow_cutlass"}
    routed = replace(inputs, engine=CATALOG.engine("sglang"), moe_backend="flashinfer_trtllm_routed")
    assert routed.fast_kernel is replace(routed, moe_backend="flashinfer_trtllm").fast_kernel is not None


def kernels_on(build, model: str, card: str, engine: str, weights: str):
    """Return the inputs of *model* in the format *weights* in a catalogue's engine, limited as in a scenario."""
    quantization = CATALOG.quantization(weights)
    inputs = build(model, card, "pcie5-x16").inputs
    inputs = replace(
        inputs, engine=CATALOG.engine(engine), quantization=quantization, kernel=CATALOG.kernel(quantization.kernel)
    )
    return replace(inputs, reached=reached_shares(inputs, MEASURED, CATALOG))


@pytest.mark.slow
def test_no_kernel_of_the_catalogue_computes_or_reads_above_the_peak(build) -> None:
    engines = [one for one in map(CATALOG.engine, CATALOG.ids("engines")) if one.overheads is not None]
    formats = [CATALOG.quantization(name) for name in CATALOG.ids("quantizations")]
    kernels = {one.id: one for one in map(CATALOG.kernel, CATALOG.ids("kernels"))}
    inputs = build("qwen3-30b-a3b", "h100-80gb-sxm", "pcie5-x16").inputs
    parts = {one.role: one for one in matrices(inputs.model) if one.role in ("attention", "expert")}
    for place, card in enumerate(map(CATALOG.gpu, CATALOG.ids("gpus"))):
        for number, engine in enumerate(engines, start=place):  # formats take turns
            weights = formats[number % len(formats)]
            kernel = kernels[weights.kernel if number % 2 else weights.weight_only_kernel or weights.kernel]
            rates = GpuRates.of(replace(inputs, gpu=card, engine=engine, quantization=weights, kernel=kernel))
            for matrix in parts.values():
                where = card.id, engine.id, weights.id, matrix.role
                assert rates.compute_efficiency <= 1.000001 * rates.compute_time_factor(matrix), where
                read = rates.bytes_per_s / rates.weight_time_factor(matrix)
                assert read <= 1.000001 * card.memory_bytes_per_s.value, where


@pytest.mark.parametrize(
    ("card", "server", "weights", "arithmetic", "alone"),
    [
        ("b200-180gb-sxm", "vllm-0.14", "mxfp4", "fp16", "mxfp4"),
        ("b200-180gb-sxm", "vllm-0.14", "mxfp4-fp8", "fp8", "mxfp4-mxfp8"),
        ("gb200-186gb", "tensorrt-llm-1.0", "mxfp4", "fp8", "mxfp4-mxfp8"),
        ("b300-288gb-sxm", "sglang-0.5", "mxfp4", "fp8", "mxfp4-mxfp8"),
        ("rtx-5090", "vllm-0.11", "mxfp4", "fp16", "mxfp4"),
    ],
)
def test_experts_in_mxfp4_compute_as_the_engine_chooses(
    build, card: str, server: str, weights: str, arithmetic: str, alone: str
) -> None:
    inputs = kernels_on(build, "gpt-oss-20b", card, server, weights)
    rate = next(one for one in kernel_rates(inputs, MEASURED) if one.part == "experts")
    assert (rate.arithmetic, rate.peak_flops) == (arithmetic, peak_flops(inputs.gpu, arithmetic))
    assert {one.format for one in rate.measured} == {alone}
    alone_flops = [] if card == "rtx-5090" else [one.arithmetic_flops for one in rate.measured[-1:]]
    assert rate.prefill_flops <= min([rate.peak_flops, *alone_flops]) * 1.000001


def test_experts_that_each_token_reads_anew_compute_no_faster_than_they_are_read(build) -> None:
    inputs = kernels_on(build, "qwen3-30b-a3b", "dgx-spark-128gb", "mlx-lm", "mlx-4bit")
    rate = next(one for one in kernel_rates(inputs, MEASURED) if one.part == "experts")
    flop_per_byte = FLOP_PER_WEIGHT * 8 / inputs.quantization.bits_per_weight.value
    assert rate.prefill_flops == pytest.approx(flop_per_byte * rate.decode_bytes_per_s)
    assert rate.prefill_flops == pytest.approx(0.85e12, rel=0.1)  # measured alone on GB10
    assert rate.basis.source == "mlx_cuda"


def test_check_lists_the_rate_of_prompts_with_its_source() -> None:
    rate = {"part": "layers", "arithmetic": "fp8", "format": "fp8", "kernel": "DeepGEMM", "pool": "a", "measured": []}
    rate |= {"prefill_flops": 1e15, "peak_flops": 2e15, "decode_bytes_per_s": 3e12, "memory_bytes_per_s": 4e12}
    rate |= {"basis": {"kind": "fitted", "source": "gpufleet-study"}}
    (shown,) = kernel_lists([({}, {"fleet": "f", "pools": [{"name": "a", "gpu": "h100"}], "kernels": [rate]})])
    prefill, decode = shown.entries
    assert (prefill.name, prefill.text) == ("prefill, layers", "1,000 of 2,000 TFLOPS (50%)")
    assert list(prefill.below) == ["fp8: DeepGEMM; fitted, gpufleet-study"]
    assert decode.text == "3,000 of 4,000 GB/s (75%)"
