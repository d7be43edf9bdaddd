"""Names of a table in the catalogue.

Spellings of model names that tables use.
"""

from dataclasses import replace

import pytest

from sim.benchdata.row import BenchRow
from sim.catalogue.catalog import load_catalog
from sim.catalogue.checkpoint_names import model_of, stored_in
from sim.catalogue.data_folder import UnknownId
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
        ({"gpu": "dgx-spark"}, "unknown gpu 'dgx-spark' (near: dgx-spark-128gb)"),
        ({"model": "Aquila-7B"}, "unknown model 'Aquila-7B'"),
        ({"model": "resnet-50"}, "unknown model 'resnet-50'"),
        ({"precision": "int2"}, "unknown precision 'int2'"),
        ({"kv_dtype": "turbo"}, "unknown precision of the KV cache 'turbo'"),
        ({"engine": "sambaflow"}, "unknown engine 'sambaflow'"),
        ({"engine": "LM Studio"}, "unknown engine 'LM Studio': its overheads have not been measured"),
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
        ("l40s", "PCIe (topology PIX/PXB)", "pcie4-x16"),
    ],
)
def test_what_the_interconnect_means(gpu: str, text: str, link: str) -> None:
    assert link_of(text, CATALOG.gpu(gpu), CATALOG, CAMPAIGNS) == link


@pytest.mark.parametrize("precision", ["nvfp4", "mxfp4", "fp4"])
def test_four_bit_floats_on_a_four_bit_checkpoint_mean_the_checkpoint(precision: str) -> None:
    assert match(replace(ROW, model="gpt-oss-120b", precision=precision), CATALOG, CAMPAIGNS).quantization == "none"


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("Qwen/Qwen3-32B-FP8", "qwen3-32b"),
        ("Qwen3-30B-A3B-Thinking-2507", "qwen3-30b-a3b"),
        ("Qwen3-235B-A22B-Thinking-2507-FP8", "qwen3-235b-a22b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3.1-8b"),
        ("Meta-Llama-3.1-405B-Instruct-FP8", "llama3.1-405b"),
        ("Llama-3.3-70B-Instruct-FP8", "llama3.3-70b"),
        ("Mistral-7B-Instruct-v0.2", "mistral-7b"),
        ("DeepSeek-V3-0324", "deepseek-v3"),
        ("DeepSeek-R1-FP4", "deepseek-r1"),
        ("Qwen2.5-Coder-32B-Instruct", "qwen2.5-32b"),
        ("QwQ-32B-AWQ", "qwen2.5-32b"),
        ("gpt-oss-20b", "gpt-oss-20b"),
        ("Nemotron-3-Nano-30B-A3B", "nemotron-3-nano"),
        ("Mistral-Small-4-119B", "mistral-small-4"),
    ],
)
def test_tuning_storage_and_release_do_not_change_a_models_dimensions(name: str, model: str) -> None:
    assert model_of(name, CATALOG).id == model


@pytest.mark.parametrize("name", ["Llama-9-8B", "Instruct", "resnet-50-FP8", "fp8/"])
def test_other_names_stay_unknown(name: str) -> None:
    with pytest.raises(UnknownId):
        model_of(name, CATALOG)


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("Qwen/Qwen3-32B-FP8", "fp8"),
        ("Qwen2.5-72B-Instruct-GPTQ-Int8", "gptq-int8"),
        ("Qwen2.5-72B-Instruct-GPTQ-Int4", "gptq-int4"),
        ("Llama-3.3-70B-Instruct-FP8-dynamic", "fp8"),
        ("nvidia/DeepSeek-R1-NVFP4", "nvfp4"),
        ("unsloth/Qwen3-8B-GGUF", ""),  # of which there are many
        ("Llama-3.1-8B", ""),
    ],
)
def test_a_checkpoints_name_says_how_it_is_stored(name: str, stored: str) -> None:
    assert stored_in(name, CATALOG) == stored
