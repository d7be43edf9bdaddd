"""Notes, sourced values and sources of resolved plans in reports."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sim.catalogue.value import WEAK_KINDS
from sim.language import _, translate_rendered
from sim.report.catalogue import origin
from sim.report.terminal_table import EntryList, ListEntry
from sim.report.words.money import cash
from sim.report.words.text import commas, number


def values_and_sources(plans: Sequence[dict[str, Any]]) -> Iterator[EntryList]:
    """Yield the values of each fleet at the first of its *plans*, then every source that these cite."""
    first: dict[str, dict[str, Any]] = {}
    for plan in plans:
        first.setdefault(plan["fleet"], plan)
    yield from map(_values, first.values())
    yield _sources(plans)


def _values(plan: dict[str, Any]) -> EntryList:
    bought = _("; to buy it: {cash}", cash=cash(plan["capex_usd"])) if plan["capex_usd"] else ""
    entries = []
    for value in plan["values"]:
        low, high = map(number, value["range"] or (0.0, 0.0))
        span = _(" ({low} to {high})", low=low, high=high) if value["range"] else ""
        shown = " ".join(filter(None, [number(value["value"]), value["unit"]])) + span
        kind = value["kind"] + (" (!)" if value["kind"] in WEAK_KINDS else "")
        below = origin(kind, value["source"], value["as_of"], value["where"], value["note"])
        entries.append(ListEntry(value["path"].removeprefix(f"fleets.{plan['fleet']}."), shown, [below]))
    return EntryList(_("Inputs and sources: {fleet}{bought}", fleet=plan["fleet"], bought=bought), entries)


def _sources(plans: Sequence[dict[str, Any]]) -> EntryList:
    found = sorted({key: item for plan in plans for key, item in plan["sources"].items()}.items())
    return EntryList(
        _("Sources"), [ListEntry(key, item["title"], [item["url"]] * bool(item["url"])) for key, item in found]
    )


Plans = Sequence[Mapping[str, Any]]
"""Descriptions by sim.scenario.resolving.describe, at least one per fleet."""


def one_per_fleet(resolved: Plans) -> Plans:
    """Return the first plan of each fleet, since the hardware of a fleet does not depend on the load."""
    first: dict[str, Mapping[str, Any]] = {}
    for plan in resolved:
        first.setdefault(str(plan.get("fleet", "")), plan)
    return list(first.values())


def notes(plans: Plans) -> list[str]:
    """Return the notes of plans, each once, prefixed by its fleets unless it applies to all of them."""
    fleets: dict[str, dict[str, None]] = {}
    for plan in plans:
        for note in plan.get("notes", ()):
            fleets.setdefault(note, {})[str(plan.get("fleet", ""))] = None
    everyone = {str(plan.get("fleet", "")) for plan in plans}
    return [
        translate_rendered(note) if set(named) == everyone else f"{commas(named)}: {translate_rendered(note)}"
        for note, named in fleets.items()
    ]


def weak_values(resolved: Plans) -> list[dict[str, Any]]:
    """Return the assumed and recalled values of the run, each once, with the fleets that use it."""
    found: dict[str, dict[str, Any]] = {}
    for plan in resolved:
        for value in plan.get("values", ()):
            if value["kind"] in WEAK_KINDS:
                name = str(value["path"]).removeprefix(f"fleets.{plan['fleet']}.")
                row = found.setdefault(repr((name, value["value"])), {**value, "path": name, "fleets": {}})
                row["fleets"][str(plan["fleet"])] = None
    return list(found.values())


def sources(resolved: Plans) -> list[dict[str, Any]]:
    """Return every source once, sorted by key."""
    merged: dict[str, Any] = {}
    for plan in resolved:
        merged |= plan.get("sources", {})
    return [{"key": key, **source} for key, source in sorted(merged.items())]
