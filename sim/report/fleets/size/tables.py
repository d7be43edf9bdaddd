"""The tables of a sizing: who meets the service level, what less latency costs, and the losers by their reason."""

from collections.abc import Iterator, Sequence
from typing import Any

from sim.language import _, retold
from sim.report.fleets.size.budget import cells, heads
from sim.report.fleets.size.why import compared, least, missed, why
from sim.report.page.page import Table
from sim.report.words.goals import latency_columns
from sim.report.words.money import cash, in_code
from sim.report.words.text import seconds
from sim.scenario.schema import Scenario
from sim.study.fleets.size.tried import Sizing, TriedFleet, front
from sim.units import HOURS_PER_MONTH


def ranking(found: Sizing, scenario: Scenario, most: int | None = None) -> Table:
    """All candidates that could serve, those that met first; *most*: at most this number of them."""
    note = _("Those that meet the service level, those that miss it, those that cost more at the least; each by cost.")
    if scenario.replications > 1:
        note += _(" Figures are means over all replications, or over as many as the verdict says.")
    chosen = [one for one in found.tried if one.status != "impossible"]
    return _table(_("Candidates"), note, chosen[:most], found, scenario)


def winners(found: Sizing, scenario: Scenario) -> Table:
    """Candidates that meet the service level, and what came nearest within a budget."""
    chosen = [one for one in found.tried if one.status == "meets" or one is found.nearest]
    note = _("By cost.")
    if scenario.replications > 1:
        note += _(" Figures are means over all replications, or over as many as the verdict says.")
    return _table(_("Fleets that meet the service level"), note, chosen, found, scenario)


def losers(found: Sizing, scenario: Scenario) -> Iterator[Table]:
    """The others by their reason, each group shown on demand."""
    groups: dict[str, list[TriedFleet]] = {}
    for one in found.tried:
        if one.status == "misses" and one is not found.nearest:
            groups.setdefault(_("Misses the service level: {missed}", missed=missed(one, scenario)), []).append(one)
        elif one.status == "not simulated":
            groups.setdefault(_("Costs more at the least, so it was not simulated"), []).append(one)
        elif one.status == "over budget" and one is not found.nearest:
            groups.setdefault(_("Exceeds the budget"), []).append(one)
    for title, chosen in groups.items():
        yield _table(title, "", chosen, found, scenario, folded=True)
    reasons: dict[str, list[str]] = {}
    for one in found.tried:
        if one.status == "impossible":
            reasons.setdefault(retold(one.reason), []).append(one.name)
    rows = [[reason, str(len(names)), ", ".join(names)] for reason, names in reasons.items()]
    yield Table(
        _("Ruled out without a simulation"), "", [_("why"), _("fleets"), _("names")], rows, worded=(0, 2), folded=True
    )


def _table(
    title: str, note: str, chosen: Sequence[TriedFleet], found: Sizing, scenario: Scenario, folded: bool = False
) -> Table:
    names = latency_columns(scenario.slo)
    rows = [
        [
            one.name,
            str(one.gpus),
            f"{'' if one.usd_per_h is not None else '≥ '}{cash(least(one) * HOURS_PER_MONTH)}",
            *cells(one, scenario),
            *(shown(one, name) for name in names),
            why(one, found, scenario),
        ]
        for one in chosen
    ]
    titles = [
        _("fleet"),
        "GPUs",
        in_code(_("cost [USD/month]")),
        *map(in_code, heads(scenario)),
        *names.values(),
        _("verdict"),
    ]
    return Table(title, note, titles, rows, worded=(len(titles) - 1,), folded=folded)


def details(found: Sizing, scenario: Scenario) -> dict[str, Any]:
    """What is shown where somebody points at a candidate: its row of the table."""
    known = {}
    for one in found.tried:
        table = _table("", "", [one], found, scenario)
        name, *cells = table.rows[0]
        rows = [(head, cell) for head, cell in zip(table.heads[1:], cells, strict=True) if cell]
        known[one.name] = {"title": name, "rows": rows}
    return known


def shown(one: TriedFleet, name: str) -> str:
    """A latency of *one* as text; empty where it was not simulated."""
    value = (one.metrics or {}).get(name)
    return "" if value is None else seconds(value)


def front_table(found: Sizing, scenario: Scenario) -> Table:
    """Fleets that no other beats in cost and latency; without rows for a single one."""
    best = found.winner.usd_per_h if found.winner is not None else None
    names = latency_columns(scenario.slo)
    members = front(found, list(names))
    rows = [
        [
            one.name,
            f"{cash(least(one) * HOURS_PER_MONTH)}",
            *(shown(one, name) for name in names),
            compared(one, best) if best and one is not found.winner else _("the cheapest"),
        ]
        for one in members
    ]
    note = _(
        "Fleets that meet the service level and that no other beats in cost, time to first token and time per token."
    )
    heads = [_("fleet"), in_code(_("cost [USD/month]")), *names.values(), _("cost")]
    return Table(_("What less latency costs"), note, heads, rows if len(rows) > 1 else [], worded=(len(heads) - 1,))


def impossible(found: Sizing) -> Table:
    """Candidates that cannot serve or have no price, with the reason."""
    rows = [[one.name, retold(one.reason)] for one in found.tried if one.status == "impossible"]
    return Table(_("Ruled out without a simulation"), "", [_("fleet"), _("why")], rows, worded=(1,))
