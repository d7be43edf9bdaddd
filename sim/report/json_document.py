"""JSON documents of commands: the figures of their tables, under the names of the CSV columns."""

import json
from collections.abc import Mapping, Sequence
from math import isinf, isnan
from typing import Any

from sim.catalogue.catalog import KINDS, Catalog
from sim.catalogue.value import Sourced, Value
from sim.report.catalogue import entry, kind_of
from sim.report.words.money import with_converted_amounts
from sim.scenario.schema import Scenario
from sim.spec import Spec
from sim.study.confidence import PredictionConfidence


def as_json(document: Mapping[str, Any]) -> str:
    """Serialise *document*: infinite numbers become the string "inf", as in CSV, and missing values null."""
    return json.dumps(_plain(document), indent=2, allow_nan=False, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in with_converted_amounts(value).items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not isinstance(value, bool):
        if isnan(value):
            return None
        return ("inf" if value > 0 else "-inf") if isinf(value) else value
    return value


def heading(scenario: Scenario, out: str) -> dict[str, Any]:
    """Return the leading entries of every answer: scenario, question, seed and folder."""
    return {"scenario": scenario.name, "question": scenario.question, "seed": scenario.seed, "out": out}


def check_document(
    scenario: Scenario,
    plans: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
    cases: int,
    confidences: Sequence[tuple[str, PredictionConfidence]],
) -> dict[str, Any]:
    """Build the document of `check`: the resolved plans of every fleet at every point.

    *confidences* has the confidence of the predictions for each fleet.
    """
    predictions = [
        {
            "fleet": name,
            "mark": one.mark,
            "because": list(one.why),
            "factors": {k: list(v) for k, v in one.factors.items()},
            "servers": dict(one.servers),
        }
        for name, one in confidences
    ]
    return {
        "scenario": scenario.name,
        "question": scenario.question,
        "seed": scenario.seed,
        "cases": cases,
        "predictions": predictions,
        "plans": [{"axes": axes, **plan} for axes, plan in plans],
    }


def listing_document(catalog: Catalog, kind: str) -> dict[str, Any]:
    """Build the document of `list`: all entries of *kind*, sourced values as numbers; of the kinds if empty.

    Raises UnknownId for an unknown kind.
    """
    if not kind:
        return {"kinds": {name: len(catalog.ids(name)) for name in KINDS}}
    kind = kind_of(kind)
    return {"kind": kind, "items": [{"id": name, **numbers(entry(catalog, kind, name))} for name in catalog.ids(kind)]}


def entry_document(kind: str, found: Spec) -> dict[str, Any]:
    """Build the document of `show`: the entry *found* of *kind*, every value with its source."""
    return {"kind": kind_of(kind), "item": found.model_dump(mode="json")}


def numbers(found: Any) -> Any:
    """Convert a specification to plain data without sources."""
    if isinstance(found, Value):
        return found.value
    if isinstance(found, Spec):
        return {name: numbers(getattr(found, name)) for name in stated_fields(found)}
    if isinstance(found, Mapping):
        return {key: numbers(item) for key, item in found.items()}
    if isinstance(found, list | tuple):
        return [numbers(item) for item in found]
    return found if found is None or isinstance(found, bool | int | float | str) else str(found)


def stated_fields(found: Spec) -> list[str]:
    """Return the names of the fields of *found* that are not about its source."""
    provenance = Sourced.model_fields if isinstance(found, Sourced) else {}
    return [name for name in type(found).model_fields if name not in provenance]
