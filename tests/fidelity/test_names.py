"""Names of a table in the catalogue."""

from dataclasses import replace

import pytest

from sim.benchdata.row import BenchRow
from sim.catalogue.catalog import load_catalog
from sim.fidelity.names import NotCovered, engine_of, engine_release, link_of, match
from sim.fidelity.prediction import campaigns_of, why_not_covered

CATALOG = load_catalog()
CAMPAIGNS = campaigns_of(CATALOG)
ROW = BenchRow(2, "a", "H100-SXM", "Llama-3.1-8B-Instruct", engine="vLLM", isl=1000, osl=100, concurrency=8)


def test_aliases_lead_to_ids() -> None:
    names = match(replace(ROW, precision="bfloat16", kv_dtype="q8"), CATALOG, CAMPAIGNS)
    assert (names.gpu.id, names.model.id, names.quantization) == ("h100-80gb-sxm", "llama3.1-8b", "bf16")
    assert (names.kv_cache_dtype, names.link) == ("int8", "nvlink4-nvswitch")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"gpu": "SN40L"}, "unknown gpu 'SN40L'"),
        ({"gpu": "dgx-spark-2"}, "unknown gpu 'dgx-spark-2' (near: dgx-spark-128gb)"),
        ({"model": "Aquila-7B"}, "unknown model 'Aquila-7B'"),
        ({"model": "resnet-50"}, "unknown model 'resnet-50'"),
        ({"precision": "int2"}, "unknown precision 'int2'"),
        ({"kv_dtype": "turbo"}, "unknown precision of the KV cache 'turbo'"),
        ({"engine": "sambaflow"}, "unknown engine 'sambaflow'"),
        ({"isl": None}, "missing isl"),
        ({"isl": None, "osl": None}, "missing isl and osl"),
        ({"isl": None, "gpu": "x"}, "missing isl; unknown gpu 'x'"),
        ({}, ""),
    ],
)
def test_why_a_row_is_not_covered(change: dict[str, object], reason: str) -> None:
    assert why_not_covered(replace(ROW, **change), CATALOG) == reason  # type: ignore[arg-type]


def test_what_is_known_of_an_uncovered_row() -> None:
    with pytest.raises(NotCovered) as caught:
        match(replace(ROW, engine="sambaflow"), CATALOG, CAMPAIGNS)
    assert caught.value.gpu is not None
    assert caught.value.gpu.id == "h100-80gb-sxm"
    assert caught.value.model is not None


@pytest.mark.parametrize(
    ("engine", "version", "era"),
    [
        ("vLLM", "0.6.3", "vllm-0.6"),
        ("vLLM", "0.7.3", "vllm-0.6"),
        ("vLLM", "0.5.4 (some image)", "vllm-0.5"),
        ("vLLM", "0.19.0", "vllm-0.14"),
        ("vLLM", "latest, Apr 2026", "vllm-0.14"),
        ("vLLM", "", "vllm-0.14"),
        ("vLLM", "2024 (see repo)", "vllm-0.5"),
        ("vLLM", "vllm/vllm-openai-rocm:v0.17.0", "vllm-0.14"),
        ("TensorRT-LLM", "0.14.0", "tensorrt-llm-0.14"),
        ("TensorRT-LLM", "0.5.0", "tensorrt-llm-0.14"),
        ("TensorRT-LLM", "1.2.0rc6", "tensorrt-llm-1.0"),
        ("SGLang", "0.5.6.post2", "sglang-0.5"),
        ("llama.cpp", "b4567", "llama.cpp"),
    ],
)
def test_versions_belong_to_eras(engine: str, version: str, era: str) -> None:
    assert engine_of(engine, version, CATALOG, CAMPAIGNS).id == era


@pytest.mark.parametrize(
    ("engine", "version"),
    [("SGLang", "0.5.15"), ("SGLang", "0.4.6.post1"), ("vLLM", "0.17.0"), ("vLLM", "2026"), ("vLLM", "")],
)
def test_a_scenario_takes_the_defaults_of_the_rows_release(engine: str, version: str) -> None:
    meant = engine_of(engine, version, CATALOG, CAMPAIGNS)
    assert CATALOG.engine(engine_release(meant, version, CAMPAIGNS)) == meant
    assert bool(version) == (meant != CATALOG.engine(meant.id))


@pytest.mark.parametrize(
    ("gpu", "text", "link"),
    [
        ("h100-80gb-sxm", "", "nvlink4-nvswitch"),
        ("h100-80gb-sxm", "NVLink4 900GB/s (NVSwitch)", "nvlink4-nvswitch"),
        ("rtx-4090", "PCIe4 x16", "pcie4-x16-no-p2p"),
        ("rtx-4090", "PCIe4 x16, patched P2P", "pcie4-x16-p2p-patched"),
        ("rtx-a6000", "PCIe4 x16 (NVLink bridge not stated)", "pcie4-x16"),
        ("rtx-a6000", "NVLink bridge", "nvlink-bridge-ga102"),
        ("rtx-3090", "PCIe3 x16, patched P2P, no NVLink", "pcie3-x16"),
        ("a100-80gb-pcie", "NVLink (topology NV12)", "nvlink3-bridge"),
        ("rtx-5090", "PCIe5 x16", "pcie5-x16-no-p2p"),
        ("a10g", "PCIe4", "pcie4-x16-no-p2p"),
        ("a10g", "", "pcie4-x16-no-p2p"),
        ("rtx-4090", "pcie4-x16-p2p-patched", "pcie4-x16-p2p-patched"),
        ("a100-80gb-pcie", "nvlink3-bridge", "nvlink3-bridge"),
        ("l40s", "PCIe (topology PIX/PXB)", "pcie4-x16"),
    ],
)
def test_what_the_interconnect_means(gpu: str, text: str, link: str) -> None:
    assert link_of(text, CATALOG.gpu(gpu), CATALOG, CAMPAIGNS) == link


@pytest.mark.parametrize("precision", ["nvfp4", "mxfp4", "fp4"])
def test_four_bit_floats_on_a_four_bit_checkpoint_mean_the_checkpoint(precision: str) -> None:
    assert match(replace(ROW, model="gpt-oss-120b", precision=precision), CATALOG, CAMPAIGNS).quantization == "none"
