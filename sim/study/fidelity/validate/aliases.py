"""Spellings of a model's name: publishers add how it was tuned and stored, which does not change its dimensions."""

import re
from contextlib import suppress

from sim.catalogue.catalog import Catalog, UnknownId
from sim.catalogue.entries.model import Model

FORMATS = re.compile(r"(nv|mx)?fp(4|8|16)|bf16|int[48]|[48]bit|w\d+a16|w8a8|awq|gptq|gguf|dynamic|static|quantized")
TUNINGS = re.compile(r"instruct|it|chat|hf|base|thinking|meta|coder|preview")
DATES = re.compile(r"\d{4}")
RELEASES = re.compile(r"v\d+\.\d+")
"""Words of a name, one kind after the other, that say nothing about the architecture."""


def model_of(name: str, catalog: Catalog) -> Model:
    """The model called *name*, or so without organisation, storage format, tuning and release. Raises UnknownId."""
    first: UnknownId | None = None
    for spelling in spellings(name):
        try:
            return catalog.model(spelling)
        except UnknownId as error:
            first = first or error
    raise first or UnknownId("model", name, ())


def stored_in(name: str, catalog: Catalog) -> str:
    """Id of the storage format that a checkpoint's *name* speaks of; empty where it is none of the catalogue's."""
    words = name.rpartition("/")[2].lower().split("-")
    for count in (2, 1):  # GPTQ-Int8 is not GPTQ, which means four bits
        for place, word in enumerate(words):
            if FORMATS.fullmatch(word):
                with suppress(UnknownId):
                    return catalog.quantization("-".join(words[place : place + count])).id
    return ""


def spellings(name: str) -> list[str]:
    """*name* and what is left of it, the least changed first.

    >>> spellings("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8")
    ['Qwen/Qwen3-30B-A3B-Instruct-2507-FP8', 'Qwen3-30B-A3B-Instruct-2507-FP8', 'Qwen3-30B-A3B-Instruct-2507', \
'Qwen3-30B-A3B-2507', 'Qwen3-30B-A3B']
    """
    found = [name, name.rpartition("/")[2]]
    words = found[-1].split("-")
    for kind in (FORMATS, TUNINGS, DATES, RELEASES):
        words = [word for word in words if not kind.fullmatch(word.lower())]
        found.append("-".join(words))
    return [spelling for spelling in dict.fromkeys(found) if spelling]
