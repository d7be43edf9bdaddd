"""Stored bits of each matrix, and intermediate sizes that publishers pad."""

import pytest

from sim.catalogue.catalog import load_catalog
from sim.catalogue.model import matrices
from sim.catalogue.quantization import arithmetic, bits, padded
from sim.catalogue.value import Value

CATALOG = load_catalog()
LLAMA = CATALOG.model("llama3.1-8b")
GPTQ = CATALOG.quantization("gptq-int4").model_copy(update={"group_size": 128, "pad_odd_groups_to": 8})


@pytest.mark.parametrize(
    ("intermediate", "stored"),
    [
        (29_568, 29_696),  # Qwen2-72B: 231 groups become 232
        (29_696, 29_696),
        (256, 256),
        (128, 1024),
        (9 * 128, 16 * 128),
        (300, 1024),  # two groups and a part
    ],
)
def test_an_odd_number_of_groups_is_padded(intermediate: int, stored: int) -> None:
    model = LLAMA.model_copy(update={"intermediate": intermediate})
    assert padded(GPTQ, model).intermediate == stored
    for other in ({"group_size": None}, {"pad_odd_groups_to": None}):
        assert padded(GPTQ.model_copy(update=other), model) is model


def value(number: float) -> Value:
    return Value(value=number, source="test", kind="computed")


@pytest.mark.parametrize(
    ("applies_to", "head", "tied", "stored"),
    [
        # embedding, LM head, attention and feed-forward block
        ("all", 6.0, False, (3.0, 6.0, 4.5, 4.5)),
        ("all", 6.0, True, (6.0, 6.0, 4.5, 4.5)),
        ("all", None, False, (3.0, 4.5, 4.5, 4.5)),
        ("linear", 6.0, False, (3.0, 6.0, 4.5, 4.5)),
        ("feed_forward", None, False, (3.0, 16.0, 16.0, 4.5)),
        ("experts", 6.0, False, (3.0, 6.0, 16.0, 16.0)),
    ],
)
def test_bits_by_role(applies_to: str, head: float | None, tied: bool, stored: tuple[float, ...]) -> None:
    form = GPTQ.model_copy(
        update={
            "applies_to": applies_to,
            "bits_per_weight": value(4.5),
            "beside_bits_per_weight": None,
            "lm_head_bits_per_weight": None if head is None else value(head),
            "embedding_bits_per_weight": value(3.0),
        }
    )
    by_role = {matrix.role: bits(form, matrix, tied) for matrix in matrices(LLAMA)}
    assert tuple(by_role[role] for role in ("embedding", "lm_head", "attention", "mlp")) == stored


@pytest.mark.parametrize(("model", "file_bytes"), [("gpt-oss-20b", 12.1e9), ("gpt-oss-120b", 59.02 * 2**30)])
def test_gguf_files_of_gpt_oss_have_their_published_size(model: str, file_bytes: float) -> None:
    form, weights = CATALOG.quantization("gguf-mxfp4"), matrices(CATALOG.model(model))
    stored = sum(one.count * one.inputs * one.outputs * bits(form, one, tied=False) for one in weights)
    assert stored / 8 == pytest.approx(file_bytes, rel=0.005)
    assert {arithmetic(form, one) for one in weights} == {"fp16"}
