"""What moves the result, and why one fleet costs more than another: sentences, tables, pictures and a page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from sim.catalog.catalog import Catalog
from sim.report.folder import begin, written_together
from sim.report.page import Table, render_page
from sim.report.progress import Progress
from sim.report.sensitivity_picture import Chart, chart_svg, gap_chart, tornado_chart, write_charts
from sim.report.tables import write_rows
from sim.report.text import first_sentence, listing, percent, plain, seconds, usd
from sim.report.tornado import Bar
from sim.scenario.schema import Scenario
from sim.scenario.sensitivity import Sensitivity
from sim.study.execute import Workplace
from sim.study.gap import FULL, Explained, Gap, explain
from sim.study.hybrid import LAYOUT, PRICE
from sim.study.sensitivity import USD, Input, Swing, Swings, difference, swings

LABELS = {
    USD: "USD per million output tokens",
    "ttft_s_p95": "p95 time to first token [s]",
    "tpot_s_p95": "p95 time per output token [s]",
}
SAID = {USD: " per million output tokens", "ttft_s_p95": " (p95 to the first token)", "tpot_s_p95": " (p95 per token)"}
MENTIONED = 0.005
"""Shares of a gap below it are left out of the sentence."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Everything that is told."""

    found: Swings
    explained: Explained
    between: tuple[str, str] | None
    """None where there are not two fleets that run."""


def deliver_sensitivity(
    scenario: Scenario,
    catalog: Catalog,
    out: Path,
    workplace: Workplace,
    quiet: bool = True,
    command: Sequence[str] = ("gpufleet", "sensitivity"),
) -> Answer:
    """Simulates what is missing, and leaves tables, pictures and page in *out*."""
    told = begin(out, scenario, command)
    plain_scenario = scenario.model_copy(update={"sweep": None})
    with Progress(quiet) as progress:
        found = swings(plain_scenario, catalog, out, workplace, progress)
    asked = scenario.sensitivity or Sensitivity()
    names = asked.between or tuple(fleet.name for fleet in scenario.fleets[:2])
    between = (names[0], names[1]) if len(names) == 2 and all(name in found.base for name in names) else None
    explained = Explained(())
    if between is not None and asked.metric == USD:
        with Progress(quiet, "taking the gap apart", "hybrids") as progress:
            explained = explain(plain_scenario, catalog, out, workplace, *between, progress)
    answer = Answer(found, explained, between)
    with written_together(out, told) as folder:
        _write(folder, answer, scenario)
    return answer


def sentences(answer: Answer) -> list[str]:
    """The difference, what moves it, and what it is made of."""
    found, told = answer.found, list[str]()
    if not found.base:
        return ["No fleet can run."]
    if answer.between is not None:
        told += _flips(answer, answer.between)
    for name, base in found.base.items():
        if moved := _strongest(answer, name):
            one = moved.input
            ends = f"{_said(answer, moved.low[name])} at {_amount(one, one.low)}"
            told.append(
                f"{one.name} moves {name} most: {ends}, {_said(answer, moved.high[name])} at "
                f"{_amount(one, one.high)}, {_said(answer, base)} now."
            )
    told += [_gap_told(gap) for gap in answer.explained.gaps]
    return [line[:1].upper() + line[1:] for line in told]


def _strongest(answer: Answer, name: str) -> Swing | None:
    known = [one for one in answer.found.swings if isfinite(one.low[name]) and isfinite(one.high[name])]
    most = max(known, key=lambda one: abs(one.high[name] - one.low[name]), default=None)
    return most if most is not None and most.high[name] != most.low[name] else None


def _flips(answer: Answer, between: tuple[str, str]) -> Iterator[str]:
    """Who is better, and which inputs change that within their ranges."""
    now = difference(answer.found.base, between)
    if now != now or now == 0:
        return
    better, other = (between[1], between[0]) if now > 0 else between
    turning = [
        one.input.name
        for one in answer.found.swings
        if any(now * difference(values, between) < 0 for values in (one.low, one.high))
    ]
    stays = f"but not with {listing(turning)} at an end of the range" if turning else "at either end of every range"
    told = f"{better} is {_said(answer, abs(now))}{SAID[answer.found.metric]} below {other}"
    yield f"{told},{'' if turning else ' and stays below it'} {stays}."


def _gap_told(gap: Gap) -> str:
    if gap.usd == 0:
        return f"{_load(gap)}, {gap.first} and {gap.second} cost the same."
    sign = 1 if gap.usd > 0 else -1
    dear, cheap = (gap.first, gap.second) if sign > 0 else (gap.second, gap.first)
    shares = {group: sign * part / abs(gap.usd) for group, part in gap.parts.items()}
    ordered = sorted(shares.items(), key=lambda item: -abs(item[1]))
    adds = [f"{group} {percent(share)}" for group, share in ordered if share >= MENTIONED]
    saves = [f"{group} {percent(-share)}" for group, share in ordered if share <= -MENTIONED]
    usd_of = {gap.first: gap.first_usd, gap.second: gap.second_usd}
    told = f"{_load(gap)}, {dear} costs {usd(usd_of[dear])} per million output tokens, {cheap} {usd(usd_of[cheap])}. "
    told += (
        f"Of the gap of {usd(abs(gap.usd))}, {listing(adds)} {'counts' if len(adds) == 1 else 'count'} against {dear}"
    )
    told += f"; {listing(saves)} {'counts' if len(saves) == 1 else 'count'} for it." if saves else "."
    if shares[PRICE] * shares[LAYOUT] < 0:
        told += f" Price and number of GPUs pull apart: together they make {percent(shares[PRICE] + shares[LAYOUT])}."
    return told


def _load(gap: Gap) -> str:
    return f"At full load ({gap.clients} clients)" if gap.load == FULL else "At the scenario's load"


def _said(answer: Answer, value: float) -> str:
    return usd(value) if answer.found.metric == USD else seconds(value)


def _amount(one: Input, value: float) -> str:
    if one.unit.startswith("USD"):
        return usd(value) + one.unit.removeprefix("USD").replace("/", " per ", 1)
    if one.unit in ("per year", "of the price", "of today's"):
        return f"{percent(value)} {one.unit}"
    return f"{plain(value)} {one.unit}".strip()


def swing_rows(answer: Answer) -> list[dict[str, Any]]:
    """sensitivity.csv: one row per input and fleet, and one for the difference."""
    return [
        {
            "input": one.input.name,
            "path": one.input.path,
            "unit": one.input.unit,
            "now": one.input.now,
            "low": one.input.low,
            "high": one.input.high,
            "of": name,
            "metric": answer.found.metric,
            "at_now": now,
            "at_low": low,
            "at_high": high,
        }
        for one in answer.found.swings
        for name, now, low, high in _results(answer, one)
    ]


def _results(answer: Answer, one: Swing) -> Iterator[tuple[str, float, float, float]]:
    """(whose, now, low, high) of the metric."""
    for name, now in answer.found.base.items():
        yield name, now, one.low[name], one.high[name]
    if answer.between is not None:
        now, low, high = (difference(values, answer.between) for values in (answer.found.base, one.low, one.high))
        yield _less(answer.between), now, low, high


def _less(between: tuple[str, str]) -> str:
    return f"{between[0]} less {between[1]}"


def gap_rows(gaps: Sequence[Gap]) -> list[dict[str, Any]]:
    """gap.csv: one row per load and group."""
    return [
        {
            "load": gap.load,
            "clients": gap.clients or None,
            "first": gap.first,
            "second": gap.second,
            "first_usd_per_million_output_tokens": gap.first_usd,
            "second_usd_per_million_output_tokens": gap.second_usd,
            "gap_usd": gap.usd,
            "group": group,
            "part_usd": part,
            "share_of_gap": part / gap.usd if gap.usd else None,
        }
        for gap in gaps
        for group, part in gap.parts.items()
    ]


def sensitivity_document(scenario: Scenario, answer: Answer, out: str) -> dict[str, Any]:
    """The answer for `--format json`: the rows of sensitivity.csv and gap.csv."""
    told = sentences(answer)
    return {
        "scenario": scenario.name,
        "question": scenario.question,
        "seed": scenario.seed,
        "out": out,
        "metric": answer.found.metric,
        "between": answer.between,
        "verdict": {"headline": told[0] if told else "", "findings": told[1:]},
        "notes": [*answer.found.reasons, *filter(None, [answer.explained.reason])],
        "swings": swing_rows(answer),
        "gap": gap_rows(answer.explained.gaps),
    }


def _write(out: Path, answer: Answer, scenario: Scenario) -> None:
    asked, _ = first_sentence(scenario.question or scenario.name)
    told = sentences(answer)
    write_rows(out / "sensitivity.csv", swing_rows(answer))
    tornados = list(_tornados(answer))
    gaps = [gap_chart(_load(gap), gap) for gap in answer.explained.gaps]
    for name, charts, lines in (
        ("tornado.png", tornados, told[: len(told) - len(gaps)]),
        ("gap.png", gaps, told[len(told) - len(gaps) :]),
    ):
        if charts:
            write_charts(out / name, charts, asked, lines)
    if gaps:
        write_rows(out / "gap.csv", gap_rows(answer.explained.gaps))
    drawings = [(chart.title, chart_svg(chart)) for chart in (*tornados, *gaps)]
    page = render_page(scenario.name, asked, told, [], tables(answer), _notes(answer), drawings)
    (out / "sensitivity.html").write_text(page, encoding="utf-8")


def _tornados(answer: Answer) -> Iterator[Chart]:
    """One for each fleet, and one for the difference."""
    results: dict[str, list[Bar]] = {}
    bases: dict[str, float] = {}
    for one in answer.found.swings:
        for name, now, low, high in _results(answer, one):
            bases[name] = now
            bars = results.setdefault(name, [])
            if isfinite(low) and isfinite(high) and low != high:
                ends = _amount(one.input, one.input.low), _amount(one.input, one.input.high)
                bars.append(Bar(one.input.name, low, high, *ends))
    label = LABELS[answer.found.metric]
    for name, bars in results.items():
        if bars and isfinite(bases[name]):
            yield tornado_chart(name, bases[name], bars, label)


def tables(answer: Answer) -> list[Table]:
    """The swings, and the gap by group."""
    names = list(answer.found.base)
    heads = ["input", "from", "to", *names]
    if answer.between is not None:
        heads.append(_less(answer.between))
    rows = [
        [
            one.input.name,
            *(_amount(one.input, value) for value in (one.input.low, one.input.high)),
            *(f"{_said(answer, low)} to {_said(answer, high)}" for _, _, low, high in _results(answer, one)),
        ]
        for one in sorted(answer.found.swings, key=lambda one: -_widest(answer, one))
    ]
    found = [Table(LABELS[answer.found.metric], "One input at a time, the others as they are.", heads, rows)]
    if gaps := answer.explained.gaps:
        note = (
            "Shapley values: what the first fleet's part adds, averaged over all orders in which parts are exchanged."
        )
        groups = [[group, *(f"{usd(gap.parts[group])}{_share(gap, group)}" for gap in gaps)] for group in gaps[0].parts]
        groups.append(["the gap", *(usd(gap.usd) for gap in gaps)])
        title = f"What makes the gap, {_less((gaps[0].first, gaps[0].second))}"
        found.append(Table(title, note, ["USD per million output tokens", *map(_load, gaps)], groups))
    return found


def _share(gap: Gap, group: str) -> str:
    return f" ({percent(gap.parts[group] / gap.usd)})" if gap.usd else ""


def _widest(answer: Answer, one: Swing) -> float:
    """The last result's swing: the difference's where there is one."""
    results = list(_results(answer, one))
    if not results:
        return 0.0  # no fleet runs
    _, _, low, high = results[-1]
    return abs(high - low) if isfinite(low) and isfinite(high) else float("inf")


def _notes(answer: Answer) -> list[str]:
    notes = [*answer.found.reasons]
    if answer.explained.reason:
        notes.append(answer.explained.reason)
    if answer.found.metric != USD:
        notes.append("Prices and terms change no latency and are left out.")
    if answer.explained.gaps:
        notes += GAP_NOTES
    notes.append("Money is billed anew on the same simulations; all else is simulated with the same random numbers.")
    return notes


GAP_NOTES = [
    "The gap is shared by Shapley values (1953) over hybrids that take each group from one fleet or the other; every "
    "hybrid is simulated, and the parts sum to the gap.",
    "Price per GPU: charges by the clock per GPU-hour (capital, rent, hosting with its nameplate power), and tariffs. "
    "GPUs and layout: number of GPUs and replicas, how the model is split over them, engine and scheduler. "
    "Memory size: tokens that all KV caches hold together. Power: what the meters count, not the nameplate. "
    "Bandwidth, compute and power are those of one GPU.",
    "At a load that both fleets carry they make the same tokens, so that speed shows in nothing but energy. At full "
    "load as many clients as the larger number of seats never pause, whatever the service level: there speed is money.",
]
