"""A model's dimensions: data/models/<id>.yaml, or a Hugging Face config.json.

Parameters, bytes and arithmetic all follow from the list of weight matrices that `matrices` draws up.
"""

from typing import Annotated

from pydantic import Field

from sim.catalogue.entries.model.attention import CompressedAttention, Heads, Indexer, LinearAttention, Mla
from sim.catalogue.entries.model.cache import (
    entries_per_token,
    index_key_bytes,
    kv_bytes_per_token,
    kv_bytes_per_token_layer,
    kv_elements_per_token_layer,
    kv_share,
    state_bytes,
)
from sim.catalogue.entries.model.language import Model, Moe
from sim.catalogue.entries.model.matrices import (
    Matrix,
    Role,
    activations_per_token,
    matrices,
    params_active,
    params_total,
)
from sim.catalogue.entries.model.other import ImageGenerator, OtherModel

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
