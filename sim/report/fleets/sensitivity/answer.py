"""What changes the result, and why one fleet costs more than another: tables, pictures and a page."""

from collections.abc import Iterator, Sequence
from math import isclose, isfinite
from pathlib import Path
from typing import Any

from sim.language import ENGLISH, N_, _, retold, speaking
from sim.report.charts.fonts import drawable
from sim.report.charts.tornado import TornadoBar
from sim.report.fleets.run.tables import write_rows
from sim.report.fleets.sensitivity.picture import Chart, gap_chart, tornado_chart, write_charts
from sim.report.fleets.sensitivity.verdict import (
    SensitivityAnswer,
    gap_sentences,
    less,
    load_of,
    results,
    said,
    sentences,
    swing,
    utilisation_usd,
)
from sim.report.page.document import heading
from sim.report.page.page import Table, render_page
from sim.report.words.money import amount, cash, in_code, shown, twin
from sim.report.words.text import percent, question_of, seconds
from sim.report.words.units import verdict_in_units
from sim.scenario.schema import Scenario
from sim.study.fleets.sensitivity.gap import Gap
from sim.study.fleets.sensitivity.one_at_a_time import USD, Swing

LABELS = {
    USD: N_("USD per million output tokens"),
    "ttft_s_p95": N_("p95 time to first token [s]"),
    "tpot_s_p95": N_("p95 time per output token [s]"),
}


def swing_rows(answer: SensitivityAnswer) -> list[dict[str, Any]]:
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
            **{f"at_{end}": read.value for end, read in ends.items()},
            **{f"at_{end}_ci95": read.half_width for end, read in ends.items()},
            **{f"state_at_{end}": read.state for end, read in ends.items()},
        }
        for one in answer.found.swings
        for name, *read in results(answer, one)
        for ends in [dict(zip(("now", "low", "high"), read, strict=True))]
    ]


def _in_both(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """*rows*, those with a metric in US dollars followed by the same in the shown currency."""
    for row in rows:
        yield row
        if other := twin(row["metric"]):
            amounts = {name: value for name, value in row.items() if name.startswith("at_") and value is not None}
            yield row | {"metric": other} | {name: shown(value) for name, value in amounts.items()}


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
            "gap_usd_ci95": gap.half_width,
            "group": group,
            "part_usd": part,
            "part_usd_ci95": gap.half_widths[group],
            "share_of_gap": part / gap.usd if gap.usd else None,
        }
        for gap in gaps
        for group, part in gap.parts.items()
    ]


def sensitivity_document(scenario: Scenario, answer: SensitivityAnswer, out: str) -> dict[str, Any]:
    """The answer for `--format json`: the rows of sensitivity.csv and gap.csv."""
    told, gaps = [*sentences(answer), *gap_sentences(answer)], answer.explained.gaps
    return {
        **heading(scenario, out),
        "metric": answer.found.metric,
        "between": answer.between,
        "verdict": verdict_in_units(told[0] if told else "", told[1:]),
        "notes": [*answer.found.reasons, *filter(None, [answer.explained.reason])],
        "swings": swing_rows(answer),
        "gap": gap_rows(gaps),
        "utilisation_usd": utilisation_usd(gaps[0], gaps[1]) if len(gaps) == 2 else None,
    }


def write_sensitivity(
    out: Path, answer: SensitivityAnswer, scenario: Scenario, remarks: Sequence[str], with_pictures: bool = True
) -> None:
    """Tables and, *with_pictures*, pictures and page in the folder *out*."""
    with speaking(ENGLISH):
        write_rows(out / "sensitivity.csv", list(_in_both(swing_rows(answer))))
    if answer.explained.gaps:
        write_rows(out / "gap.csv", gap_rows(answer.explained.gaps))
    if with_pictures:
        _draw(out, answer, scenario, remarks)


def _draw(out: Path, answer: SensitivityAnswer, scenario: Scenario, remarks: Sequence[str]) -> None:
    asked = question_of(scenario)
    told, of_gaps = sentences(answer), gap_sentences(answer)
    drawn = charts(answer)
    with drawable():
        lines = {"tornado": sentences(answer), "gap": gap_sentences(answer)}
        for kind, several in charts(answer).items():
            if several:
                write_charts(out / f"{kind}.png", several, asked, lines[kind])
    figures = [chart.figure for several in drawn.values() for chart in several]
    page = render_page(
        scenario.name, asked, [*told, *of_gaps], [], tables(answer), [*remarks, *_notes(answer)], figures
    )
    (out / "sensitivity.html").write_text(page, encoding="utf-8")


def charts(answer: SensitivityAnswer) -> dict[str, list[Chart]]:
    """By kind: swings of the inputs as a tornado for each fleet, parts of the gap as a waterfall for each load."""
    gaps = [gap_chart(load_of(gap), gap) for gap in answer.explained.gaps]
    return {"tornado": list(_tornados(answer)), "gap": gaps}


def _tornados(answer: SensitivityAnswer) -> Iterator[Chart]:
    """One for each fleet, and one for the difference."""
    bars: dict[str, list[TornadoBar]] = {}
    bases: dict[str, float] = {}
    for one in answer.found.swings:
        for name, now, low, high in results(answer, one):
            bases[name] = now.value
            mine = bars.setdefault(name, [])
            if isfinite(low.value) and isfinite(high.value) and not isclose(low.value, high.value):
                ends = amount(one.input.low, one.input.unit), amount(one.input.high, one.input.unit)
                scale = shown(1.0) if answer.found.metric == USD else 1.0
                mine.append(TornadoBar(retold(one.input.name), scale * low.value, scale * high.value, *ends))
    label = in_code(_(LABELS[answer.found.metric]))
    for name, held in bars.items():
        if held and isfinite(bases[name]):
            scale = shown(1.0) if answer.found.metric == USD else 1.0
            yield tornado_chart(name, scale * bases[name], held, label)


def tables(answer: SensitivityAnswer) -> list[Table]:
    """The swings, and the gap by group."""
    names = list(answer.found.base)
    heads = [_("input"), _("from"), _("to"), *names]
    if answer.between is not None:
        heads.append(less(answer.between))
    rows = [
        [
            retold(one.input.name),
            *(amount(value, one.input.unit) for value in (one.input.low, one.input.high)),
            *(
                _("{said} to {said_2}", said=said(answer, low), said_2=said(answer, high))
                for _name, _now, low, high in results(answer, one)
            ),
        ]
        for one in sorted(answer.found.swings, key=lambda one: -_widest(answer, one))
    ]
    rows.insert(0, [_("as it is"), "", "", *_now(answer)])
    found = [
        Table(in_code(_(LABELS[answer.found.metric])), _("One input at a time, the others as they are."), heads, rows)
    ]
    if gaps := answer.explained.gaps:
        note = _(
            "Shapley values: what the first fleet's part adds, averaged over all orders in which parts are exchanged."
        )
        groups = [[retold(group), *(_part(gap, group) for gap in gaps)] for group in gaps[0].parts]
        groups.append([_("the gap"), *(f"{cash(gap.usd)}{_spread(gap.half_width)}" for gap in gaps)])
        title = _("What makes the gap, {less}", less=less((gaps[0].first, gaps[0].second)))
        found.append(Table(title, note, [in_code(_("USD per million output tokens")), *map(load_of, gaps)], groups))
    return found


def _now(answer: SensitivityAnswer) -> list[str]:
    """The results as the scenario stands, with their intervals."""
    if not answer.found.swings:
        return []
    now = [reading for _, reading, _, _ in results(answer, answer.found.swings[0])]
    return [said(answer, one) + _spread(one.half_width, answer.found.metric) for one in now]


def _spread(half_width: float | None, metric: str = USD) -> str:
    if not half_width:
        return ""
    return f" ± {cash(half_width) if metric == USD else seconds(half_width)}"


def _part(gap: Gap, group: str) -> str:
    share = f" ({percent(gap.parts[group] / gap.usd)})" if gap.usd else ""
    spread = _spread(gap.half_widths[group]) if gap.parts[group] else ""
    return f"{cash(gap.parts[group])}{spread}{share}"


def _widest(answer: SensitivityAnswer, one: Swing) -> float:
    """The last result's swing: the difference's where there is one."""
    read = list(results(answer, one))
    return swing(read[-1][1:]) if read else 0.0  # where no fleet runs there is none


def _notes(answer: SensitivityAnswer) -> list[str]:
    notes = [*map(retold, answer.found.reasons)]
    if answer.explained.reason:
        notes.append(retold(answer.explained.reason))
    if answer.found.metric != USD:
        notes.append(_("▲ overloaded: the queue grows through the whole run, and the result with it."))
        notes.append(_("Prices and terms change no latency and are left out."))
    if answer.explained.gaps:
        notes += map(_, GAP_NOTES)
    notes.append(_("Money is billed anew on the same simulations; all else is simulated with the same random numbers."))
    return notes


GAP_NOTES = [
    N_(
        "The gap is shared by Shapley values (1953) over hybrids that take each group from one "
        "fleet or the other; every hybrid is simulated, and the parts sum to the gap."
    ),
    N_(
        "Price per GPU: charges by the clock per GPU-hour (capital, rent, hosting with its "
        "nameplate power), and tariffs. GPUs and layout: number of GPUs and replicas, how the "
        "model is split over them, engine and scheduler. Memory size: tokens that all KV caches "
        "hold together. Power: what the meters count, not the nameplate. Bandwidth, compute and "
        "power are those of one GPU."
    ),
    N_(
        "At a load that both fleets carry they make the same tokens, so that speed shows in "
        "nothing but energy. At full load as many clients as the larger `max_num_seqs` ask "
        "without think time, whatever the SLO."
    ),
]
