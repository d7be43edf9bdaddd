"""Attention of all layers of a stage: which of them read the whole context, a part of it, or a state."""

from dataclasses import dataclass

from sim.catalogue.entries.model import CompressedAttention, Indexer, Model
from sim.catalogue.value import Value
from sim.steptime.attention.compressed import NearTokens
from sim.steptime.attention.heads import LayerAttention, decodes_read, small_heads
from sim.steptime.attention.indexing import chosen, indexing
from sim.steptime.attention.one_call import one_call
from sim.steptime.attention.states import States
from sim.steptime.inputs import Rates


@dataclass(frozen=True, slots=True)
class Attention:
    """Costs on one tensor-parallel rank, summed over the layers of a stage [s]."""

    whole: LayerAttention
    """Of what grows with the context."""
    windowed: LayerAttention
    """Of what grows with the context up to `window`."""
    window: int | None
    beside: States | NearTokens | None
    """Of what does not grow with the context."""
    peak_per_pair: float
    """Arithmetic at the dense peak over that which prompts take."""
    stream_per_read: float

    @classmethod
    def of(cls, rates: Rates, layer: LayerAttention, seeing_all: LayerAttention, layers_share: float) -> "Attention":
        """Where *layer* is the mean layer with heads, *seeing_all* that of layers without a window, and a stage has
        *layers_share* of all layers.
        """
        model = rates.inputs.model
        if model.compressed is not None and model.indexer is not None:
            return cls._compressed(rates, model.compressed, model.indexer, layer, layers_share)
        windowed_layers = limited_layers(model) * layers_share
        inside, whole = layer, seeing_all.scaled(whole_layers(model) * layers_share)
        if model.indexer is not None:
            inside = chosen(rates, layer)
            whole = whole.plus(indexing(rates, model.indexer).scaled(model.indexer.indexing_layers * layers_share))
        states = None
        if model.linear_attention is not None:
            states = States.of(rates, model.linear_attention, model.linear_attention_layers * layers_share)
        return cls(
            whole=whole,
            windowed=inside.scaled(windowed_layers),
            window=window_of(model),
            beside=states,
            peak_per_pair=inside.pair_peak_s / inside.pair_s,
            stream_per_read=layer.stream_s / layer.read_s,
        )

    @classmethod
    def _compressed(
        cls, rates: Rates, compressed: CompressedAttention, indexer: Indexer, layer: LayerAttention, share: float
    ) -> "Attention":
        entry = chosen(rates, layer)
        coarse = entry.scaled(compressed.coarse_layers / compressed.coarse_ratio * share)
        return cls(
            whole=coarse.plus(indexing(rates, indexer).scaled(indexer.indexing_layers * share)),
            windowed=entry.scaled(compressed.fine_layers / compressed.fine_ratio * share),
            window=indexer.best_tokens,
            beside=NearTokens.of(rates, compressed, entry, rates.inputs.model.layers * share),
            peak_per_pair=entry.pair_peak_s / entry.pair_s,
            stream_per_read=layer.stream_s / layer.read_s,
        )


def limited_layers(model: Model) -> int:
    """Layers with heads that see a part of a long context: a window, or the best tokens."""
    return model.indexer.sparse_layers if model.indexer is not None else model.sliding_window_layers


def whole_layers(model: Model) -> int:
    """Layers with heads that see the whole context."""
    return model.cached_layers - limited_layers(model)


def window_of(model: Model) -> int | None:
    """Most tokens that such a layer sees; None where no layer is limited."""
    if model.indexer is not None:
        return model.indexer.best_tokens
    return model.sliding_window if model.sliding_window_layers else None


def seen_by_query(rates: Rates) -> float:
    """Tokens that a query of a long prompt costs in a layer that sees a part of it: a window's tiles are larger."""
    margin = attention_values(rates).get("window_margin_tokens")
    return (window_of(rates.inputs.model) or 0) + (margin.value if margin is not None else 0.0)


def least_pairs(rates: Rates) -> float:
    """Query-key pairs that each token of a prompt costs at least in layers that see the best tokens alone."""
    places = attention_values(rates).get("sparse_least_places")
    return places.value * (window_of(rates.inputs.model) or 0) if places is not None else 0.0


def attention_values(rates: Rates) -> dict[str, Value]:
    """The coefficients that attention other than heads over a cache rests on, by their name in data/attention.yaml."""
    inputs, coefficients = rates.inputs, rates.inputs.coefficients.attention
    values: dict[str, Value] = {}
    linear, indexer = inputs.model.linear_attention, inputs.model.indexer
    if (stated := one_call(inputs)) is not None:
        values["one_call_tile_rows"], values["one_call_idle_block_s"] = stated.tile_rows, stated.idle_block_s
    if (reading := decodes_read(inputs)) is not None:
        values["cache_reading_factor"] = reading
    if (small := small_heads(inputs)) is not None:
        values["small_heads_factor"] = small
    if inputs.model.sliding_window_layers and indexer is None:
        values["window_margin_tokens"] = coefficients.window_margin_tokens
    if linear is not None:
        values["state_time_factor"] = coefficients.state_time_factor
        values["scan_efficiency"] = coefficients.scan_efficiency(linear.rule, inputs.engine.id, inputs.gpu.architecture)
    if indexer is not None:
        values["index_read_time_factor"] = coefficients.index_read_time_factor
        values["index_arithmetic_efficiency"] = coefficients.index_arithmetic_efficiency
        values["choice_bytes_per_pair"] = coefficients.choice_bytes_per_pair
        if inputs.model.mla is not None or inputs.model.compressed is not None:
            values["sparse_arithmetic_efficiency"] = coefficients.sparse_arithmetic_efficiency
            if (heads := coefficients.kernel_heads(inputs.gpu.architecture)) is not None:
                values["sparse_kernel_heads"] = heads
            if inputs.model.mla is not None and inputs.engine.id in coefficients.sparse_least_places:
                values["sparse_least_places"] = coefficients.sparse_least_places[inputs.engine.id]
    if inputs.model.compressed is not None and inputs.model.compressed.streams > 1:
        values["hyper_connection_passes"] = coefficients.hyper_connection_passes
        values["hyper_connection_s"] = coefficients.hyper_connection_s
    return values
