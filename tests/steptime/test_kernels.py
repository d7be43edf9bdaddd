"""Rates of kernels against the products that the step time computes, and the measured table against datasheets."""

from dataclasses import replace

import pytest

from sim.catalogue.catalog import load_catalog
from sim.catalogue.model import matrices
from sim.report.check import kernel_lists
from sim.steptime.gemm import product_of
from sim.steptime.inputs import FLOP_PER_WEIGHT, GpuRates, peak_flops
from sim.steptime.kernels import MeasuredKernel, kernel_rates, measured_kernels

CATALOG = load_catalog()
MEASURED = measured_kernels(CATALOG)
ARITHMETIC = {"bf16": "fp16", "fp8": "fp8", "fp8-block": "fp8", "nvfp4": "fp4", "int4-wo": "fp16", "mxfp4": "fp4"}


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


def test_measured_kernels_keep_within_the_dense_peak_and_gain_with_tokens() -> None:
    rates: dict[tuple[object, ...], list[float]] = {}
    for one in MEASURED:
        assert one.flops <= 1.05 * peak_flops(CATALOG.gpu(one.gpu), ARITHMETIC[one.format])
        rates.setdefault((one.gpu, one.engine, one.format, one.experts), []).append(one.flops)
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


def test_check_lists_the_rate_of_prompts_with_its_source() -> None:
    rate = {"part": "layers", "arithmetic": "fp8", "format": "fp8", "kernel": "DeepGEMM", "pool": "a", "measured": []}
    rate |= {"prefill_flops": 1e15, "peak_flops": 2e15, "decode_bytes_per_s": 3e12, "memory_bytes_per_s": 4e12}
    rate |= {"basis": {"kind": "fitted", "source": "gpufleet-study"}}
    (shown,) = kernel_lists([({}, {"fleet": "f", "pools": [{"name": "a", "gpu": "h100"}], "kernels": [rate]})])
    prefill, decode = shown.entries
    assert (prefill.name, prefill.text) == ("prefill, layers", "1,000 of 2,000 TFLOPS (50%)")
    assert list(prefill.below) == ["fp8: DeepGEMM; fitted, gpufleet-study"]
    assert decode.text == "3,000 of 4,000 GB/s (75%)"
