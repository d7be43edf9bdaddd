"""Nouns for the work of services that answer in one pass, which have images or queries in place of output tokens.

Such services have a single latency. The text of every page, table and chart goes through `counted`, which changes
nothing where services generate text.
"""

import re
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

from sim.batching import Dynamic
from sim.batchtime.one_pass import unit_of
from sim.catalogue.catalog import load_catalog
from sim.catalogue.model import OtherModel
from sim.scenario.experiment import Fleet, nearest

_NOUN: ContextVar[str] = ContextVar("unit", default="")
SEVERAL = "unit"
"""Noun for services whose units of work differ."""


def noun_of(scenario: Any) -> str:
    """Return the noun for a unit of work of *scenario*; empty where any of its pools generates text."""
    fleets: tuple[Fleet, ...] = getattr(scenario, "fleets", ())
    pools = [(fleet, pool) for fleet in fleets for pool in getattr(fleet, "pools", ())]
    if not pools or not all(isinstance(getattr(pool, "batching", None), Dynamic) for _, pool in pools):
        return ""
    catalog, nouns = load_catalog(), set()
    for fleet, pool in pools:
        service = scenario.service_of(pool)
        model = nearest(pool.model, service.model if service else None, fleet.model, scenario.model)
        found = catalog.any_model(model) if model is not None else None
        nouns.add(unit_of(pool.steptime, found if isinstance(found, OtherModel) else None))
    return nouns.pop() if len(nouns) == 1 else SEVERAL


def count_in(noun: str) -> Any:
    """Count work in *noun* from now on; return the token that `reset` needs to undo it."""
    return _NOUN.set(noun)


def reset(token: Any) -> None:
    """Undo the call of `count_in` that returned *token*."""
    _NOUN.reset(token)


def noun() -> str:
    """Return the noun for the shown unit of work; empty for tokens."""
    return _NOUN.get()


def plural(word: str) -> str:
    """Return the plural of *word*.

    >>> plural("image"), plural("query"), plural("batch")
    ('images', 'queries', 'batches')
    """
    if word.endswith("y"):
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "ch", "sh")) else f"{word}s"


def counted(text: str) -> str:
    """Replace words for tokens and latencies in *text* by those of the shown service.

    >>> token = count_in("image")
    >>> counted("USD per million output tokens; p95 time to first token"), counted("output [tokens/s]")
    ('USD per million images; p95 latency', 'output [images/s]')
    >>> reset(token)
    """
    if not noun():
        return text
    several = plural(noun())
    words = {
        "output tokens": several,
        "output token": noun(),
        "time to first token": "latency",
        "time to last token": "latency",
        "tokens/s": f"{several}/s",
        "goodput tokens": f"goodput {several}",
        "concurrent sequences (max_num_seqs)": "full batches (max_batch_size, instances)",
        "per token": f"per {noun()}",
        "decoding": "serving",
        "TTFT": "latency",
        "E2E": "latency",
    }
    words |= {word.capitalize(): one.capitalize() for word, one in words.items() if word[0].islower()}
    longest_first = map(re.escape, sorted(words, key=len, reverse=True))
    return re.sub("|".join(longest_first), lambda found: words[found[0]], text)


def verdict_in_units(headline: str, findings: Iterable[str]) -> dict[str, Any]:
    """Return the verdict of a JSON document, worded for the shown service."""
    return {"headline": counted(headline), "findings": [counted(one) for one in findings]}
