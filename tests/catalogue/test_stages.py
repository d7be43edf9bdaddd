"""Pipeline stages: the engines' division of layers, and the layers of each kind in a stage."""

import pytest

from sim.catalogue.catalog import load_catalog
from sim.catalogue.model import Model, kv_bytes_per_token, matrices
from sim.catalogue.stages import PipelineSplit, stage_layers, stage_matrices, stage_model, stage_models
from sim.memory.weights import ReplicaLayout, check_parallel

CATALOG = load_catalog()


@pytest.mark.parametrize(
    ("split", "layers", "sizes"),
    [
        ("before_last", 61, [15, 15, 16, 15]),
        ("before_last", 63, [16, 16, 16, 15]),
        ("first", 61, [16, 15, 15, 15]),
        ("last", 43, [5, 5, 5, 5, 5, 6, 6, 6]),
        ("last_one", 63, [15, 15, 15, 18]),
        ("with_head", 32, [17, 15]),
        ("with_head", 80, [21, 20, 20, 19]),
        ("with_head", 12, [2, 2, 1, 2, 2, 1, 1, 1]),
    ],
)
def test_layers_that_remain_lie_where_the_engine_puts_them(split: PipelineSplit, layers: int, sizes: list[int]) -> None:
    assert [last - first for first, last in stage_layers(layers, len(sizes), split)] == sizes


def test_tensorrt_llm_0_14_refuses_stages_of_unequal_layers() -> None:
    quantization = CATALOG.quantization("none")
    split = CATALOG.engine("tensorrt-llm-0.14").pipeline_split
    for name, stages, refused in (("llama3.1-8b", 3, True), ("llama3.1-8b", 4, False), ("llama3.1-70b", 3, True)):
        layout = ReplicaLayout(pipeline_parallel_size=stages)
        assert bool(check_parallel(CATALOG.model(name), quantization, layout, split)) == refused
        assert not check_parallel(CATALOG.model(name), quantization, layout, "first")


def test_stages_tile_the_layers() -> None:
    splits: tuple[PipelineSplit, ...] = ("before_last", "first", "last", "last_one", "with_head")
    for split in splits:
        for layers in (1, 2, 7, 61, 80):
            for stages in range(1, min(layers, 9) + 1):
                spans = stage_layers(layers, stages, split)
                assert len(spans) == stages
                assert [first for first, _ in spans] == [0, *(last for _, last in spans[:-1])]
                assert spans[-1][1] == layers
                assert all(first < last for first, last in spans)


def kinds(model: Model) -> tuple[int, int, int, int, int]:
    attending = model.cached_layers - model.sliding_window_layers
    dense = model.feed_forward_layers - model.expert_layers
    return model.linear_attention_layers, model.sliding_window_layers, attending, dense, model.expert_layers


@pytest.mark.parametrize(
    ("model", "span", "expected"),
    [
        ("deepseek-v3", (0, 15), (0, 0, 15, 3, 12)),
        ("deepseek-v3", (45, 61), (0, 0, 16, 0, 16)),
        ("qwen3.5-397b-a17b", (0, 15), (12, 0, 3, 0, 15)),  # attention in the layers 3, 7, 11
        ("gpt-oss-120b", (9, 18), (0, 4, 5, 0, 9)),  # attention to all tokens in the layers 9, 11, ... 17
        ("llama4-maverick", (0, 12), (0, 9, 3, 6, 6)),
        ("deepseek-v3", (0, 3), (0, 0, 3, 3, 0)),
    ],
)
def test_layers_of_a_stage_by_kind(model: str, span: tuple[int, int], expected: tuple[int, ...]) -> None:
    assert kinds(stage_model(CATALOG.model(model), *span)) == expected


def test_stages_have_the_weights_and_caches_of_the_model_together() -> None:
    """The embeddings of Gemma 4 E2B by layer, and its caches shared by the last 20 of 35 layers, included."""
    for name in ("deepseek-v3", "gpt-oss-120b", "qwen3.5-397b-a17b", "gemma3-27b", "nemotron-3-super", "gemma4-e2b"):
        model = CATALOG.model(name)
        outside = [one for one in matrices(model) if not one.last_layer]
        for stages in (2, 4, 7):
            parts = stage_models(model, stages)
            held = [one for part in parts for one in stage_matrices(model, part)]
            assert all(one in held for one in outside), name
            held = [*outside, *(one for one in held if one.last_layer)]
            assert sum(one.params for one in held) == sum(one.params for one in matrices(model)), name
            computed = [one.params for part in parts for one in matrices(part) if one.role in ("mlp", "expert")]
            assert sum(computed) == sum(one.params for one in matrices(model) if one.role in ("mlp", "expert")), name
            assert sum(kv_bytes_per_token(part) for part in parts) == kv_bytes_per_token(model), name
            assert all(0 <= part.stored_window_layers <= part.stored_layers for part in parts), name
