"""A model of any kind: a language model, or a network that answers in one pass per sample (`kind: other`).

Dimensions are in data/models/<id>.yaml, or in a Hugging Face config.json. Parameters, bytes and arithmetic all follow
from the list of weight matrices that `matrices` draws up.
"""

from typing import Annotated, Literal

from pydantic import Field

from sim.catalogue.language_model import (
    CompressedAttention,
    Heads,
    Indexer,
    LinearAttention,
    Matrix,
    Mla,
    Model,
    Moe,
    Role,
    activations_per_token,
    entries_per_token,
    index_key_bytes,
    kv_bytes_per_token,
    kv_bytes_per_token_layer,
    kv_elements_per_token_layer,
    kv_share,
    matrices,
    params_active,
    params_total,
    state_bytes,
)
from sim.catalogue.value import Value
from sim.spec import Count, Spec


class ImageGenerator(Spec):
    """How the work of a diffusion model follows from steps and resolution."""

    resolution: Count
    """Width and height for which the model's figures hold [pixels]."""
    steps: Count
    """Denoiser steps of an image where nothing is said."""
    calls_per_step: Count
    """Denoiser calls of one step, in one batch: 2 with classifier-free guidance."""
    attention_flops_per_call: Value
    """The part of a call's arithmetic that grows with the square of the pixels [FLOP]."""
    decoder_flops: Value
    """Latents to pixels, once an image [FLOP]."""
    decoder_traffic_elements: Value
    """Numbers that the decoder moves per image besides its weights."""


class OtherModel(Spec):
    """A network that answers in one pass per sample: an image classifier, an encoder, an image generator."""

    kind: Literal["other"]
    id: str
    name: str
    aliases: tuple[str, ...] = ()
    family: str
    input: str
    """What one sample is."""
    sample_unit: str
    """Noun for one sample in a report: image, sequence, volume, ..."""
    params: Value | None = None
    """Weights that one pass reads."""
    flops_per_sample: Value | None = None
    """Arithmetic of one inference pass [FLOP], two per multiply-add; of an image generator: of one denoiser call."""
    traffic_elements_per_sample: Value | None = None
    """Numbers that one pass reads and writes per sample besides the weights, each layer by itself."""
    widest_elements_per_sample: Value | None = None
    """Numbers that the layer with the most of them reads and writes per sample: they are in memory together."""
    table_elements: Value | None = None
    """Numbers in embedding tables, of which a sample reads a few; absent: it has none."""
    kernels: Value | None = None
    """Kernel launches of one pass."""
    passes_per_sample: Value | None = None
    """Passes that one sample takes one after the other; absent: 1."""
    generator: ImageGenerator | None = None


AnyModel = Annotated[Model | OtherModel, Field(discriminator="kind")]

__all__ = [
    "AnyModel",
    "CompressedAttention",
    "Heads",
    "ImageGenerator",
    "Indexer",
    "LinearAttention",
    "Matrix",
    "Mla",
    "Model",
    "Moe",
    "OtherModel",
    "Role",
    "activations_per_token",
    "entries_per_token",
    "index_key_bytes",
    "kv_bytes_per_token",
    "kv_bytes_per_token_layer",
    "kv_elements_per_token_layer",
    "kv_share",
    "matrices",
    "params_active",
    "params_total",
    "state_bytes",
]
