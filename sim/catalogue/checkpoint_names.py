"""Catalogue entries of published checkpoints by their names: model, format of the weights, storage of the KV cache.

Publishers append tuning and storage format to a model's name, which do not change its dimensions: spellings without
them are tried, the least changed first.
"""

import re
from contextlib import suppress

from sim.catalogue.catalog import Catalog
from sim.catalogue.data_folder import UnknownId
from sim.catalogue.model import Model
from sim.catalogue.quantization import KvCacheDtype

FORMATS = re.compile(
    r"(nv|mx)?fp(4|8|16)|bf16|int[48]|[48]bit|w\d+a16|w8a8|awq|gptq|gguf|dynamic|static|block|quantized"
)
TUNINGS = re.compile(r"instruct|it|chat|hf|base|thinking|meta|nvidia|coder|preview")
DATES = re.compile(r"\d{4}")
RELEASES = re.compile(r"v\d+\.\d+")
"""Parts of a name, one kind after the other, that do not concern the architecture."""


def model_of(name: str, catalog: Catalog) -> Model:
    """Return the model called *name*, or its name without organisation, format, tuning and release.

    Raises UnknownId.
    """
    first: UnknownId | None = None
    for spelling in spellings(name):
        try:
            return catalog.model(spelling)
        except UnknownId as error:
            first = first or error
    raise first or UnknownId("model", name, ())


def is_of(name: str, model: Model, catalog: Catalog) -> bool:
    """Return whether the checkpoint *name* is one of *model*."""
    with suppress(UnknownId):
        return model_of(name, catalog).id == model.id
    return False


def stored_in(name: str, catalog: Catalog) -> str:
    """Return the id of the storage format in a checkpoint's *name*; empty if the catalogue has none."""
    words = name.rpartition("/")[2].lower().split("-")
    for count in (2, 1):  # GPTQ-Int8 is not GPTQ, which means four bits
        for place, word in enumerate(words):
            if FORMATS.fullmatch(word):
                with suppress(UnknownId):
                    return catalog.quantization("-".join(words[place : place + count])).id
    return ""


def spellings(name: str) -> list[str]:
    """Return *name* and shortened variants of it, the least changed first.

    >>> spellings("Qwen/Qwen3-8B-Instruct-2507-FP8")[1:]
    ['Qwen3-8B-Instruct-2507-FP8', 'Qwen3-8B-Instruct-2507', 'Qwen3-8B-2507', 'Qwen3-8B']
    """
    found = [name, name.rpartition("/")[2]]
    words = found[-1].split("-")
    for kind in (FORMATS, TUNINGS, DATES, RELEASES):
        words = [word for word in words if not kind.fullmatch(word.lower())]
        found.append("-".join(words))
    return [spelling for spelling in dict.fromkeys(found) if spelling]


KV_DTYPES: dict[str, KvCacheDtype] = {
    "": "auto",
    "auto": "auto",
    "bf16": "bfloat16",
    "fp16": "float16",
    "bfloat16": "bfloat16",
    "float16": "float16",
    "auto (bf16)": "auto",
    "fp8": "fp8",
    "fp8_e4m3": "fp8_e4m3",
    "fp8_e5m2": "fp8_e5m2",
    "int8": "int8",
    "q8": "int8",
    "q8_0/q8_0": "int8",
    "int8_per_token_head": "int8",
}
"""Storage of the KV cache by its name in tables."""


NATIVE_NAMES = {
    "mxfp4": ("nvfp4", "mxfp4", "fp8"),
    "int4-experts": ("int4-wo", "gptq-int4", "awq-int4"),
    "float8": ("fp8",),
}
"""Names that mean the checkpoint itself, keyed by its native format."""


def weight_format(precision: str, name: str, model: Model, catalog: Catalog) -> str:
    """Return the id of the format in which checkpoint *name* of *model* stores its weights; `none` for its own.

    *precision* is the format as stated beside the name; if it is empty, the name says it. Raises UnknownId.
    """
    found = catalog.quantization(precision or stored_in(name, catalog) or "none").id
    if found in NATIVE_NAMES.get(model.native_quantization or model.native_dtype, ()):
        return "none"
    return (model.published_nvfp4 or found) if found == "nvfp4" else found
