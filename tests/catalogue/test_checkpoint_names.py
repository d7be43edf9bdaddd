"""Spellings of checkpoint names: the model, and the format of its weights."""

import pytest

from sim.catalogue.catalog import load_catalog
from sim.catalogue.checkpoint_names import model_of, stored_in, weight_format
from sim.catalogue.data_folder import UnknownId

CATALOG = load_catalog()


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
def test_the_weight_format_follows_from_the_checkpoints_name(name: str, stored: str) -> None:
    assert stored_in(name, CATALOG) == stored


@pytest.mark.parametrize(
    ("precision", "name", "model", "found"),
    [
        ("", "Llama-3.1-8B", "llama3.1-8b", "none"),
        ("", "Llama-3.1-8B-FP8", "llama3.1-8b", "fp8"),
        ("int8-w8a8", "Llama-3.1-8B-FP8", "llama3.1-8b", "int8-w8a8"),
        ("fp8", "DeepSeek-V3", "deepseek-v3", "none"),  # published in it
        ("fp8", "gpt-oss-20b", "gpt-oss-20b", "none"),
        ("int8-w8a8", "gpt-oss-20b", "gpt-oss-20b", "int8-w8a8"),
    ],
)
def test_a_format_that_is_the_checkpoints_own_is_none(precision: str, name: str, model: str, found: str) -> None:
    assert weight_format(precision, name, CATALOG.model(model), CATALOG) == found
