"""Sizes of LoRA adapters and of their slots, counted from the shapes of Llama 3.1 8B."""

import pytest
from pydantic import ValidationError

from sim.catalogue.catalog import load_catalog
from sim.memory.lora import LoraAdapters, adapter_bytes, module_names, slot_bytes

CATALOG = load_catalog()
LLAMA = CATALOG.model("llama3.1-8b")


def test_an_adapter_of_rank_16_for_all_matrices_of_an_8b_has_42_million_parameters() -> None:
    lora = LoraAdapters(max_lora_rank=16)
    assert adapter_bytes(LLAMA, lora) == 2 * 41_943_040  # what PEFT prints for it
    attention = LoraAdapters(max_lora_rank=8, target_modules=("q_proj", "v_proj"))
    assert adapter_bytes(LLAMA, attention) == 2 * 8 * 32 * (4096 + 4096 + 4096 + 1024)


def test_tensor_parallel_ranks_keep_one_of_the_two_matrices_whole() -> None:
    query = LoraAdapters(max_lora_rank=8, target_modules=("q_proj",))
    output = LoraAdapters(max_lora_rank=8, target_modules=("o_proj",))
    assert slot_bytes(LLAMA, query, 4) == slot_bytes(LLAMA, output, 4) == 2 * 8 * 32 * (4096 + 1024)


@pytest.mark.parametrize(
    ("module", "ranks", "numbers"),
    [
        ("q_proj", 1, 4096 + 4096),
        ("k_proj", 1, 4096 + 1024),
        ("v_proj", 4, 4096 + 256),
        ("v_proj", 16, 4096 + 128),  # each of eight KV heads on two ranks
        ("gate_proj", 2, 4096 + 14_336 / 2),
        ("down_proj", 2, 14_336 / 2 + 4096),
    ],
)
def test_a_slot_splits_the_matrix_on_the_split_side(module: str, ranks: int, numbers: float) -> None:
    lora = LoraAdapters(max_lora_rank=8, target_modules=(module,))
    assert slot_bytes(LLAMA, lora, ranks) == 2 * 8 * 32 * numbers


def test_one_rank_keeps_the_whole_adapter() -> None:
    lora = LoraAdapters()
    assert slot_bytes(LLAMA, lora, 1) == adapter_bytes(LLAMA, lora)


def test_adapters_change_parts_by_their_own_names() -> None:
    names = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert set(module_names(LLAMA)) == names


def test_host_memory_keeps_at_least_the_slots() -> None:
    assert LoraAdapters(max_loras=3).in_host == 3
    assert LoraAdapters(max_loras=3, max_cpu_loras=3).in_host == 3
    assert LoraAdapters(max_loras=3, max_cpu_loras=5).in_host == 5
    with pytest.raises(ValidationError, match=r"max_cpu_loras \(2\) must not be below max_loras \(3\)"):
        LoraAdapters(max_loras=3, max_cpu_loras=2)
