"""Pipeline stages of a language model: the layers of each stage by an engine's rule, and the model that they make up.

A stage is described by a `Model` with the stage's layers alone, so that everything that is computed from a model's
dimensions (weights, KV cache, time of a step) is computed for a stage in the same way.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, Literal

from sim.catalogue.model import CompressedAttention, Indexer, Matrix, Model, Moe, SharedCaches, matrices

PipelineSplit = Literal["before_last", "first", "last", "last_one", "with_head", "even"]
"""Placement of the layers that remain if stages do not divide the layers.

before_last: one each in the stages before the last, which has the LM head (vLLM from 0.8 on, distributed/utils.py);
first: one each in the first stages (TensorRT-LLM); last: one each in the last stages (SGLang); last_one: all in the
last stage (vLLM before 0.8); with_head: even shares of the layers and the LM head, which counts as a layer, and at
least one layer (llama.cpp); even: none, as the engine refuses such stages (TensorRT-LLM up to 0.14).
"""
MOST_LEADING = 0.25
"""Largest fraction of dense layers that lead a mixture of experts; more of them alternate with the others (Llama 4)."""


def stage_layers(layers: int, stages: int, split: PipelineSplit = "before_last") -> list[tuple[int, int]]:
    """Return the first and last (exclusive) layer of each pipeline stage.

    >>> [last - first for first, last in stage_layers(61, 4)], stage_layers(32, 2, "with_head")
    ([15, 15, 16, 15], [(0, 17), (17, 32)])

    """
    if split == "with_head":
        evenly = (-(-stage * (layers + 1) // stages) for stage in range(stages))
        return list(pairwise([*(min(first, layers - stages + stage) for stage, first in enumerate(evenly)), layers]))
    each, rest = divmod(layers, stages)
    with_more = {
        "before_last": range(stages - 1 - rest, stages - 1),
        "first": range(rest),
        "last": range(stages - rest, stages),
        "last_one": range(0),
        "even": range(0),
    }[split]
    sizes = [each + (stage in with_more) for stage in range(stages)]
    sizes[-1] += layers - sum(sizes)
    bounds = [sum(sizes[:stage]) for stage in range(stages + 1)]
    return list(pairwise(bounds))


def stage_models(model: Model, stages: int, split: PipelineSplit = "before_last") -> list[Model]:
    """Return the model that the layers of each pipeline stage make up, in order."""
    return [stage_model(model, *span) for span in stage_layers(model.layers, stages, split)]


def stage_matrices(model: Model, part: Model) -> tuple[Matrix, ...]:
    """Return the matrices of the layers of *part*, a stage of *model*, and those of *model* outside the layers."""
    if part == model:
        return matrices(model)
    outside = (one for one in matrices(model) if not one.last_layer)
    return *(one for one in matrices(part) if one.last_layer), *outside


@lru_cache(maxsize=256)
def stage_model(model: Model, first: int, last: int) -> Model:
    """Return *model* with the layers from *first* up to, but excluding, *last*, and with its embedding and LM head.

    Dense feed-forward layers lead, layers with a shared cache end the model. Other kinds of layers alternate evenly, a
    rare kind at the end of its period, as in published configs (Qwen3-Next: attention in every fourth layer).
    """
    if (first, last) == (0, model.layers):
        return model
    layers = last - first
    spread = partial(_spread, model.layers, first, last)
    linear, attending = spread(model.linear_attention_layers), layers
    if model.linear_attention is None or not model.linear_attention.beside_heads:
        attending = spread(model.cached_layers)
        linear = layers - attending
    whole = spread(model.cached_layers - model.sliding_window_layers)
    windowed = max(0, attending - whole) if model.sliding_window_layers else 0
    changed: dict[str, Any] = {
        "layers": layers,
        "linear_attention_layers": linear,
        "linear_attention": model.linear_attention if linear else None,
        "sliding_window_layers": windowed,
        "layers_without_feed_forward": spread(model.layers_without_feed_forward),
        "shared_caches": _shared(model, first, last),
        "moe": _experts(model, first, last, spread),
        "compressed": _compressed(model.compressed, spread) if model.compressed is not None else None,
        "indexer": _indexer(model, model.indexer, first, attending, spread) if model.indexer is not None else None,
    }
    if (ngrams := model.ngram_embedding) is not None:
        changed["ngram_embedding"] = ngrams.model_copy(update={"layers": spread(ngrams.layers)})
    return model.model_copy(update=changed)


def _spread(layers: int, first: int, last: int, count: int) -> int:
    """Return how many of *count* layers that alternate evenly among all *layers* lie from *first* to *last*."""
    return last * count // layers - first * count // layers


def _overlap(first: int, last: int, begin: int, end: int) -> int:
    return max(0, min(last, end) - max(first, begin))


def _experts(model: Model, first: int, last: int, spread: Callable[[int], int]) -> Moe | None:
    """Return the mixture of the layers from *first* to *last* (exclusive); None without a layer with experts."""
    if (moe := model.moe) is None:
        return None
    within = spread(model.feed_forward_layers)
    if moe.dense_layers > MOST_LEADING * model.feed_forward_layers:
        dense = within - spread(model.expert_layers)
    else:
        dense = min(within, _overlap(first, last, 0, moe.dense_layers))
    return moe.model_copy(update={"dense_layers": dense}) if dense < within else None


def _shared(model: Model, first: int, last: int) -> SharedCaches | None:
    """Return the shared caches of a stage; its layers without one have the windows that `stage_model` spreads."""
    shared = model.shared_caches
    if shared is None or not (within := _overlap(first, last, model.layers - shared.layers, model.layers)):
        return None
    whole = model.cached_layers - model.sliding_window_layers
    windowed = within - _spread(model.layers, last - within, last, whole) if model.sliding_window_layers else 0
    return shared.model_copy(update={"layers": within, "windowed_layers": windowed})


def _indexer(model: Model, indexer: Indexer, first: int, attending: int, spread: Callable[[int], int]) -> Indexer:
    """Return the indexer of a stage with *attending* layers with heads, the model's layer *first* its first."""
    if model.compressed is not None:
        sparse = spread(indexer.sparse_layers)
    else:
        dense = model.cached_layers - indexer.sparse_layers
        sparse = attending - min(attending, max(0, dense - first))
    indexing = sparse if indexer.indexing_layers == indexer.sparse_layers else spread(indexer.indexing_layers)
    return indexer.model_copy(update={"sparse_layers": sparse, "indexing_layers": min(sparse, indexing)})


def _compressed(compressed: CompressedAttention, spread: Callable[[int], int]) -> CompressedAttention:
    counts = "fine_layers", "coarse_layers", "whole_layers", "whole_sources", "whole_indexing_layers"
    changed: dict[str, Any] = {name: spread(getattr(compressed, name)) for name in counts}
    if compressed.fine_sources is not None:
        changed["fine_sources"] = spread(compressed.fine_sources)
    return compressed.model_copy(update=changed)
