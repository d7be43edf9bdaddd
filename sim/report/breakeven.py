"""The answer to "rent, buy or API?": sentences, tables, a picture and a page."""

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from sim.catalog.catalog import Catalog
from sim.report.breakeven_picture import key, panels
from sim.report.folder import begin, written_together
from sim.report.page import Table, render_page, write_picture
from sim.report.tables import write_rows
from sim.report.text import first_sentence, percent, plain, usd
from sim.report.text import place as place_text
from sim.scenario.schema import Scenario
from sim.study.breakeven import Ledgers, crossing, payback_months
from sim.study.capacity import capacities
from sim.study.decision import Answer, decide
from sim.study.execute import Workplace
from sim.study.tipping import API, Tipping
from sim.units import HOURS_PER_MONTH

WIDTH_OF_CAPACITY = 0.02
"""The capacities that utilisation is relative to are found to within this fraction."""


def deliver_breakeven(
    scenario: Scenario,
    catalog: Catalog,
    out: Path,
    workplace: Workplace,
    command: Sequence[str] = ("gpufleet", "breakeven"),
) -> Answer:
    """Searches capacities, simulates what is missing, and leaves tables, picture and page in *out*."""
    told = begin(out, scenario, command)
    plain_scenario = scenario.model_copy(update={"sweep": None})
    found = list(capacities(plain_scenario, catalog, out, workplace, WIDTH_OF_CAPACITY))
    answer = decide(scenario, Ledgers(scenario, catalog, out, workplace, found), found)
    with written_together(out, told) as folder:
        _write(folder, answer, scenario)
    return answer


def sentences(answer: Answer, with_tips: bool = True) -> list[str]:
    """The verdict first, then what it depends on."""
    if not answer.usd_per_h:
        return ["No fleet meets the service level at any load."]
    ranked = sorted(answer.usd_per_h.items(), key=lambda item: item[1])
    (winner, least), rest = ranked[0], ranked[1:]
    at = place_text(answer.axis, answer.load)
    first = f"At {at}, {winner} is the cheapest: {usd(least * HOURS_PER_MONTH)} a month"
    if rest:
        first += f", {percent(1 - least / rest[0][1])} below {rest[0][0]}"
    told = [f"{first}."]
    told += _crossings(answer)
    told += _paybacks(answer)
    if with_tips:
        told += _tips(answer.winner, answer.tipping)
        told += _tips(answer.best_machine, answer.tipping_of_machines, " of the machines")
    return [line[:1].upper() + line[1:] for line in told]


def _crossings(answer: Answer) -> list[str]:
    """From which utilisation on a purchase beats the other ways to get the same tokens."""
    told = []
    for one in answer.candidates:
        own = answer.curves[one.name]
        if not answer.at_load[one.name].capex_usd:
            continue
        xs = [u for u, _ in own]
        mine = [cost.usd_per_million_output_tokens for _, cost in own]
        others = {
            other.name: [cost.usd_per_million_output_tokens for _, cost in answer.curves[other.name]]
            for other in answer.candidates
            if other.fleet == one.fleet and other.name != one.name
        }
        if answer.api_usd_per_million is not None:
            others[API] = [answer.api_usd_per_million] * len(xs)
        for name, theirs in others.items():
            if not all(map(isfinite, [*mine, *theirs])):
                continue
            at = crossing(xs, mine, theirs)
            if at is None:
                told.append(f"{one.name} never gets cheaper than {name}.")
            elif at <= xs[0]:
                told.append(f"{one.name} is cheaper than {name} from {percent(xs[0])} utilisation on, or before.")
            else:
                load = place_text(answer.axis, float(f"{at * one.capacity:.3g}"))
                told.append(f"{one.name} is cheaper than {name} above {percent(at)} utilisation ({load}).")
    return told


def _paybacks(answer: Answer) -> list[str]:
    told = []
    for one in answer.candidates:
        cost = answer.at_load[one.name]
        if not cost.capex_usd:
            continue
        against = {name: usd_per_h for name, usd_per_h in answer.usd_per_h.items() if _paid_by_month(answer, name)}
        if not against:
            continue
        name = min(against, key=lambda other: against[other])
        time = payback_months(cost, against[name])
        saying = f"pays for itself in {plain(time)} months" if isfinite(time) else "never pays for itself"
        told.append(f"{one.name} costs {usd(cost.capex_usd)} and {saying} against {name}.")
    return told


def _paid_by_month(answer: Answer, name: str) -> bool:
    return name == API or not answer.at_load[name].capex_usd


def _tips(winner: str, tipping: Sequence[Tipping], among: str = "") -> list[str]:
    told = []
    for one in tipping:
        limits = []
        if one.below is not None:
            limits.append(f"above {_amount(one, one.below)} (below it {one.then_below})")
        if one.above is not None:
            limits.append(f"below {_amount(one, one.above)} (above it {one.then_above})")
        if limits:
            stays = f"{winner} stays the cheapest{among} while {one.name} is {' and '.join(limits)}"
            told.append(f"{stays}; it is {_amount(one, one.now)}.")
    return told


def _amount(one: Tipping, value: float) -> str:
    if one.unit.startswith("USD"):
        return usd(value) + one.unit.removeprefix("USD").replace("/", " per ", 1)
    if one.unit in ("per year", "of the price"):
        return f"{percent(value)} {one.unit}"
    if one.name == "load":
        return place_text(one.unit, float(f"{value:.3g}"))
    return f"{plain(value)} {one.unit}".strip()


def unmoved(answer: Answer) -> str:
    """Inputs that never change who is the cheapest."""
    every = [*answer.tipping, *answer.tipping_of_machines]
    moving = {one.name for one in every if one.below is not None or one.above is not None}
    still = list(dict.fromkeys(one.name for one in every if one.name not in moving))
    return f"No value within a factor of 20 changes who is the cheapest: {', '.join(still)}." if still else ""


def utilisation_rows(answer: Answer) -> list[dict[str, Any]]:
    """breakeven.csv: what a million tokens cost with one unit of each candidate at each utilisation."""
    return [
        {
            "candidate": one.name,
            "fleet": one.fleet,
            "utilisation": u,
            answer.axis: cost.load,
            "usd_per_h": cost.usd_per_h,
            "capital_usd_per_h": cost.capital_usd_per_h,
            "output_tokens_per_h": cost.output_tokens_per_h,
            "usd_per_million_output_tokens": cost.usd_per_million_output_tokens,
            "api_usd_per_million_output_tokens": answer.api_usd_per_million,
        }
        for one in answer.candidates
        for u, cost in answer.curves[one.name]
    ]


def month_rows(answer: Answer) -> list[dict[str, Any]]:
    """months.csv."""
    return [
        {"candidate": name, "month": at.months, "cash_usd": at.cash_usd, "net_present_cost_usd": at.net_present_usd}
        for name, path in answer.months.items()
        for at in path
    ]


def tipping_rows(answer: Answer) -> list[dict[str, Any]]:
    """tipping.csv."""
    groups = ((answer.winner, "all", answer.tipping), (answer.best_machine, "machines", answer.tipping_of_machines))
    return [
        {
            "among": among,
            "input": one.name,
            "unit": one.unit,
            "now": one.now,
            "cheapest_now": winner,
            "tips_below": one.below,
            "then_below": one.then_below,
            "tips_above": one.above,
            "then_above": one.then_above,
            "searched_from": one.searched[0],
            "searched_to": one.searched[1],
        }
        for winner, among, tipping in groups
        for one in tipping
    ]


def _write(out: Path, answer: Answer, scenario: Scenario) -> None:
    for name, rows in (
        ("breakeven", utilisation_rows(answer)),
        ("months", month_rows(answer)),
        ("tipping", tipping_rows(answer)),
    ):
        write_rows(out / f"{name}.csv", rows)
    told, drawn = sentences(answer, with_tips=False), panels(answer)
    asked, _ = first_sentence(scenario.question or scenario.name)
    if drawn:
        write_picture(out / "breakeven.png", drawn, asked, told[:1], key(answer))
    page = render_page(
        scenario.name, asked, told, drawn, _tables(answer), _notes(answer), key=key(answer) if drawn else ()
    )
    (out / "breakeven.html").write_text(page, encoding="utf-8")


def ranking(answer: Answer) -> Table:
    """Who costs how much at the load."""
    last = max((path[-1].months for path in answer.months.values()), default=0)
    rows = []
    for name, usd_per_h in sorted(answer.usd_per_h.items(), key=lambda item: item[1]):
        cost = answer.at_load.get(name)
        present = answer.months[name][-1].net_present_usd
        rows.append(
            [
                name,
                str(cost.units) if cost else "",
                usd(usd_per_h * HOURS_PER_MONTH),
                usd(cost.capex_usd) if cost and cost.capex_usd else "",
                usd((cost.running_usd_per_h if cost else usd_per_h) * HOURS_PER_MONTH),
                usd(_per_million(answer, name)),
                usd(present),
            ]
        )
    heads = [
        "",
        "units",
        "USD a month",
        "purchase",
        "paid by the month",
        "USD per million output tokens",
        f"net present cost, {last} months",
    ]
    return Table(
        f"At {place_text(answer.axis, answer.load)}",
        "Purchases are spread over their life; whole units share the load.",
        heads,
        rows,
    )


def _per_million(answer: Answer, name: str) -> float:
    if name == API:
        return answer.api_usd_per_million or float("nan")
    return answer.at_load[name].usd_per_million_output_tokens


def _tables(answer: Answer) -> list[Table]:
    found = [ranking(answer)]
    heads = [
        "USD per million output tokens at utilisation",
        *(percent(u) for u, _ in next(iter(answer.curves.values()), [])),
    ]
    rows = [
        [name, *(usd(cost.usd_per_million_output_tokens) for _, cost in path)] for name, path in answer.curves.items()
    ]
    found.append(
        Table(
            "By utilisation",
            "Utilisation is the offered load over the fleet's capacity under its service level.",
            heads,
            rows,
        )
    )
    note = f"One input at a time, each within a factor of 20; {answer.winner} is the cheapest now."
    found.append(_tipping_table("Tipping points", note, answer.tipping))
    if answer.tipping_of_machines:
        note = f"The API left aside; {answer.best_machine} is the cheapest of the machines now."
        found.append(_tipping_table("Tipping points among the machines", note, answer.tipping_of_machines))
    return found


def _tipping_table(title: str, note: str, tipping: Sequence[Tipping]) -> Table:
    rows = [
        [
            one.name,
            _amount(one, one.now),
            f"{_amount(one, one.below)}: {one.then_below}" if one.below is not None else "",
            f"{_amount(one, one.above)}: {one.then_above}" if one.above is not None else "",
        ]
        for one in tipping
    ]
    return Table(title, note, ["input", "now", "another is the cheapest below", "above"], rows)


def _notes(answer: Answer) -> list[str]:
    notes = [
        f"Capacity of {one.fleet}: {place_text(answer.axis, float(f'{one.mean:.3g}'))}"
        + (f" (± {plain(one.half_width, 2)})" if one.half_width else "")
        for one in answer.capacities
        if not one.reason and 0 < one.mean < float("inf")
    ]
    notes += [f"{one.fleet} is left out: {one.reason}." for one in answer.capacities if one.reason]
    missed = [one.fleet for one in answer.capacities if not one.reason and one.mean == 0]
    notes += [f"{name} is left out: it does not meet the service level at any load tried." for name in missed]
    notes.append("Cash flows are at month ends; net present cost takes off what the hardware would fetch at that age.")
    return notes
