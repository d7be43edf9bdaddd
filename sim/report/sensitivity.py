"""Report of `gpufleet sensitivity`: which inputs change the result, and why one fleet costs more than another.

Sentences, tables and a page; each figure with its interval where there is one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isclose, isfinite, isnan
from pathlib import Path
from typing import Any

from sim.language import ENGLISH, N_, _, ngettext, speaking, translate_rendered
from sim.report.charts.fonts import drawable
from sim.report.charts.picture import picture
from sim.report.charts.tornado import TornadoBar
from sim.report.charts.vega_lite import PageFigure
from sim.report.json_document import heading
from sim.report.page.page import PageTable, render_page
from sim.report.run.tables import write_rows
from sim.report.sensitivity_charts import gap_figure, tornado_figure
from sim.report.words.money import amount, cash, converted_column, in_code, shown
from sim.report.words.text import listing, percent, question_of, seconds
from sim.report.words.units import verdict_in_units
from sim.scenario.schema import Scenario
from sim.study.cost_gap import FULL, LAYOUT, PRICE, CostGap, ExplainedGaps
from sim.study.sensitivity import USD, Sample, Swing, Swings, difference

METRIC_PHRASES = {
    USD: N_(" per million output tokens"),
    "ttft_s_p95": N_(" (p95 TTFT)"),
    "tpot_s_p95": N_(" (p95 TPOT)"),
}
MENTIONED = 0.005
"""Fraction of a cost gap below which a part is left out of the sentence."""
OVER, CANNOT = N_("overloaded"), N_("cannot run")


@dataclass(frozen=True, slots=True)
class SensitivityAnswer:
    """Results of the command: swings of the inputs and the explained cost gaps."""

    found: Swings
    explained: ExplainedGaps
    between: tuple[str, str] | None
    """Names of the two compared fleets; None where fewer than two run."""
    replications: int


@dataclass(frozen=True, slots=True)
class VariedMetric:
    """Value of the varied metric for a fleet or a difference, with its interval and state."""

    value: float
    """Infinite where a fleet cannot run or serves nothing, nan for a difference to such a fleet."""
    half_width: float | None
    state: str = ""
    """State of the fleet: OVER, CANNOT or empty."""


def results(answer: SensitivityAnswer, one: Swing) -> Iterator[tuple[str, VariedMetric, VariedMetric, VariedMetric]]:
    """Yield (fleet, now, low, high) for every fleet and for the difference."""
    samples = (answer.found.base, one.low, one.high)
    for name in answer.found.base:
        now, low, high = (_reading(values[name]) for values in samples)
        yield name, now, low, high
    if answer.between is not None:
        now, low, high = (_difference_of(values, answer.between) for values in samples)
        yield less(answer.between), now, low, high


def _reading(sample: Sample) -> VariedMetric:
    state = CANNOT if not sample.runs else OVER if sample.overloaded else ""
    return VariedMetric(sample.value, sample.half_width, state)


def _difference_of(values: Mapping[str, Sample], between: tuple[str, str]) -> VariedMetric:
    states = [_reading(values[name]).state for name in between]
    return VariedMetric(*difference(values, between), CANNOT if CANNOT in states else OVER if OVER in states else "")


def less(between: tuple[str, str]) -> str:
    """Return the label of a difference between two fleets."""
    return _("{between} minus {between_2}", between=between[0], between_2=between[1])


def sentences(answer: SensitivityAnswer) -> list[str]:
    """Return the difference between the fleets, and the inputs that change it or the result of a fleet."""
    found, lines = answer.found, list[str]()
    if not found.base:
        return [_("No fleet can run.")]
    if answer.between is not None:
        lines += _flips(answer, answer.between)
    for name in found.base:
        lines += _strongest(answer, name)
    if answer.replications == 1:
        lines.append(
            _("One replication each: nothing here has an interval, and small differences may be due to chance.")
        )
    lines += [_("{line}.", line=line) for line in unusable_result_notes(answer)]
    return lines


def gap_sentences(answer: SensitivityAnswer) -> list[str]:
    """Describe the parts of the cost gap at each load, and the effect of the load on the gap."""
    gaps = answer.explained.gaps
    lines = [_gap_text(gap) for gap in gaps]
    if len(gaps) == 2:
        lines.append(_utilisation_text(gaps[0], gaps[1]))
    return lines


def _begun(name: str) -> str:
    """Capitalise the name of an input, unless it begins with a key."""
    return name if "_" in name.split(" ", 1)[0] else name[:1].upper() + name[1:]


def _strongest(answer: SensitivityAnswer, name: str) -> Iterator[str]:
    """Yield a sentence on the input that changes the result of fleet *name* most."""
    read = [
        (one.input, now, low, high)
        for one in answer.found.swings
        for whose, now, low, high in results(answer, one)
        if whose == name and isfinite(now.value) and isfinite(low.value) and isfinite(high.value)
    ]
    if not read:
        return
    moved, now, low, high = max(read, key=lambda item: swing(item[1:]))
    if high.value != low.value:
        at_low, at_high = (amount(value, moved.unit) for value in (moved.low, moved.high))
        ends = _(
            "{low} at {at_low}, {high} at {at_high}",
            low=result_text(answer, low),
            at_low=at_low,
            high=result_text(answer, high),
            at_high=at_high,
        )
        yield _(
            "{begun} changes {name} most: {ends}, {said} now.",
            begun=_begun(translate_rendered(moved.name)),
            name=name,
            ends=ends,
            said=result_text(answer, now),
        )


def swing(readings: Sequence[VariedMetric]) -> float:
    """Return the range of the values; infinite if a value is not finite."""
    values = [reading.value for reading in readings]
    return max(values) - min(values) if all(map(isfinite, values)) else inf


def _flips(answer: SensitivityAnswer, between: tuple[str, str]) -> Iterator[str]:
    """Yield a sentence on which fleet is better, and which inputs change that within their ranges."""
    now = _difference_of(answer.found.base, between)
    if isnan(now.value):
        yield _(
            "The difference between {between} and {between_2} is not known: one of them has no finite result.",
            between=between[0],
            between_2=between[1],
        )
        return
    if now.value == 0:
        return
    better, other = (between[1], between[0]) if now.value > 0 else between
    spread = f" (± {_plainly(answer, now.half_width)})" if now.half_width else ""
    text = _(
        "{better} is {plainly}{said} below {other}{spread}",
        better=better,
        plainly=_plainly(answer, abs(now.value)),
        said=_(METRIC_PHRASES[answer.found.metric]),
        other=other,
        spread=spread,
    )
    if _contains_zero(now):
        yield _("{told}, which may be due to chance.", told=text)
        return
    turning, close, unknown = list[str](), list[str](), list[str]()
    for one in answer.found.swings:
        low, high = list(results(answer, one))[-1][2:]
        ends = [end.value * now.value for end in (low, high)]
        if any(end < 0 and not _contains_zero(reading) for end, reading in zip(ends, (low, high), strict=True)):
            turning.append(translate_rendered(one.input.name))
        elif _contains_zero(low) or _contains_zero(high) or any(end <= 0 for end in ends):
            close.append(translate_rendered(one.input.name))
        elif any(map(isnan, ends)):
            unknown.append(translate_rendered(one.input.name))
    limits = [_("not at one end of the range of {listing}", listing=listing(turning))] if turning else []
    limits += (
        [_("the difference is too small at one end of the range of {listing}", listing=listing(close))] if close else []
    )
    limits += [_("no result at one end of the range of {listing}", listing=listing(unknown))] if unknown else []
    stays = _(", and remains lower at both ends of every range") if answer.found.swings else ""
    but = _(", but {limits}", limits=_("; ").join(limits)) if limits else stays
    yield _("{told}{but}.", told=text, but=but)


def _contains_zero(reading: VariedMetric) -> bool:
    """Return whether zero lies within the interval of the difference."""
    return reading.half_width is not None and abs(reading.value) < reading.half_width


def unusable_result_notes(answer: SensitivityAnswer) -> list[str]:
    """Return notes on inputs at which a fleet has no finite result or is overloaded."""
    lines = []
    for one in answer.found.swings:
        for end, values in ((one.input.low, one.low), (one.input.high, one.high)):
            at = _(
                "with {name} at {amount}", name=translate_rendered(one.input.name), amount=amount(end, one.input.unit)
            )
            for name, sample in values.items():
                reading = _reading(sample)
                if reading.state == CANNOT:
                    lines.append(_("{name} cannot run {at}", name=name, at=at))
                elif not isfinite(reading.value):
                    lines.append(_("{name} has no finite result {at}", name=name, at=at))
                elif reading.state == OVER and answer.found.metric != USD:
                    lines.append(
                        _("{name} is overloaded {at}: the result depends on the simulated time", name=name, at=at)
                    )
    return lines


def _gap_text(gap: CostGap) -> str:
    if gap.usd == 0:
        return _(
            "{load_of}, {first} and {second} cost the same.", load_of=load_of(gap), first=gap.first, second=gap.second
        )
    sign = 1 if gap.usd > 0 else -1
    dear, cheap = (gap.first, gap.second) if sign > 0 else (gap.second, gap.first)
    shares = {group: sign * part / abs(gap.usd) for group, part in gap.parts.items()}
    ordered = sorted(shares.items(), key=lambda item: -abs(item[1]))
    adds = [f"{translate_rendered(group)} {percent(share)}" for group, share in ordered if share >= MENTIONED]
    saves = [f"{translate_rendered(group)} {percent(-share)}" for group, share in ordered if share <= -MENTIONED]
    usd_of = {gap.first: gap.first_usd, gap.second: gap.second_usd}
    spread = f" (± {cash(gap.half_width)})" if gap.half_width else ""
    text = _(
        "{load_of}, {dear} costs {most} per million output tokens, {cheap} {least}. ",
        load_of=load_of(gap),
        dear=dear,
        most=cash(usd_of[dear]),
        cheap=cheap,
        least=cash(usd_of[cheap]),
    )
    text += ngettext(
        "Of the gap of {gap}{spread}, {adds} raises the cost of {dear}",
        "Of the gap of {gap}{spread}, {adds} raise the cost of {dear}",
        len(adds),
        gap=cash(abs(gap.usd)),
        spread=spread,
        adds=listing(adds),
        dear=dear,
    )
    counts = ngettext("; {saves} lowers it", "; {saves} lower it", len(saves), saves=listing(saves))
    text += (counts if saves else "") + _(".")
    if shares[PRICE] * shares[LAYOUT] < 0:
        both = percent(shares[PRICE] + shares[LAYOUT])
        text += _(
            " Price and number of GPUs act in opposite directions: together they are {both} of the gap.", both=both
        )
    chance = [
        translate_rendered(group)
        for group, part in gap.parts.items()
        if part and abs(part) < (gap.half_widths[group] or 0.0)
    ]
    if chance:
        which = listing(chance)
        text += _(" {which} may be due to chance.", which=which[:1].upper() + which[1:])
    return text


def _utilisation_text(own: CostGap, full: CostGap) -> str:
    more = utilisation_usd(own, full)
    if not more:
        return _("Utilisation makes no difference: the gap is the same at either load.")
    way = _("larger") if more > 0 else _("smaller")
    gap = _("the cost gap between {first} and {second}", first=own.first, second=own.second)
    return _(
        "Utilisation: {gap} is {cash} {way} at the scenario's load than at full load.",
        gap=gap,
        cash=cash(abs(more)),
        way=way,
    )


def utilisation_usd(own: CostGap, full: CostGap) -> float:
    """Return the change of the gap from full load to the scenario's load [USD per million output tokens]."""
    return own.usd - full.usd


def load_of(gap: CostGap) -> str:
    """Name the load of a gap."""
    return (
        _("At full load ({clients} clients)", clients=gap.clients) if gap.load == FULL else _("At the scenario's load")
    )


def result_text(answer: SensitivityAnswer, reading: VariedMetric) -> str:
    """Format a result, marked where the fleet is overloaded."""
    if reading.state == CANNOT:
        return _(CANNOT)
    if not isfinite(reading.value):
        return _("none")
    return _plainly(answer, reading.value) + (" ▲" if reading.state == OVER and answer.found.metric != USD else "")


def _plainly(answer: SensitivityAnswer, value: float) -> str:
    return cash(value) if answer.found.metric == USD else seconds(value)


LABELS = {
    USD: N_("USD per million output tokens"),
    "ttft_s_p95": N_("p95 time to first token [s]"),
    "tpot_s_p95": N_("p95 time per output token [s]"),
}


def swing_rows(answer: SensitivityAnswer) -> list[dict[str, Any]]:
    """Return the rows of sensitivity.csv, one per input and fleet, and one per input for the difference."""
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
    """Yield *rows*; a row with a metric in US dollars is followed by a row in the shown currency."""
    for row in rows:
        yield row
        if other := converted_column(row["metric"]):
            amounts = {name: value for name, value in row.items() if name.startswith("at_") and value is not None}
            yield row | {"metric": other} | {name: shown(value) for name, value in amounts.items()}


def gap_rows(gaps: Sequence[CostGap]) -> list[dict[str, Any]]:
    """Return the rows of gap.csv, one per load and group of inputs."""
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
    """Build the document of `--format json`: the verdict, the rows of sensitivity.csv and gap.csv."""
    lines, gaps = [*sentences(answer), *gap_sentences(answer)], answer.explained.gaps
    return {
        **heading(scenario, out),
        "metric": answer.found.metric,
        "between": answer.between,
        "verdict": verdict_in_units(lines[0] if lines else "", lines[1:]),
        "notes": [*answer.found.reasons, *filter(None, [answer.explained.reason])],
        "swings": swing_rows(answer),
        "gap": gap_rows(gaps),
        "utilisation_usd": utilisation_usd(gaps[0], gaps[1]) if len(gaps) == 2 else None,
    }


def write_sensitivity(
    out: Path, answer: SensitivityAnswer, scenario: Scenario, remarks: Sequence[str], with_pictures: bool = True
) -> None:
    """Write the tables and, if *with_pictures*, pictures and page into the folder *out*."""
    with speaking(ENGLISH):
        write_rows(out / "sensitivity.csv", list(_in_both(swing_rows(answer))))
    if answer.explained.gaps:
        write_rows(out / "gap.csv", gap_rows(answer.explained.gaps))
    if with_pictures:
        _draw(out, answer, scenario, remarks)


def _draw(out: Path, answer: SensitivityAnswer, scenario: Scenario, remarks: Sequence[str]) -> None:
    question = question_of(scenario)
    of_swings, of_gaps = sentences(answer), gap_sentences(answer)
    drawn = charts(answer)
    with drawable():
        lines = {"tornado": sentences(answer), "gap": gap_sentences(answer)}
        for kind, several in charts(answer).items():
            if several:
                picture(several, question, lines[kind]).save(out / f"{kind}.png")
    figures = [figure for several in drawn.values() for figure in several]
    page = render_page(
        scenario.name, question, [*of_swings, *of_gaps], [], tables(answer), [*remarks, *_notes(answer)], figures
    )
    (out / "sensitivity.html").write_text(page, encoding="utf-8")


def charts(answer: SensitivityAnswer) -> dict[str, list[PageFigure]]:
    """Return the charts by kind: a tornado of the inputs for each fleet, a waterfall of the gap for each load."""
    gaps = [gap_figure(load_of(gap), gap) for gap in answer.explained.gaps]
    return {"tornado": list(_tornados(answer)), "gap": gaps}


def _tornados(answer: SensitivityAnswer) -> Iterator[PageFigure]:
    """Yield a tornado chart for each fleet and for the difference."""
    bars: dict[str, list[TornadoBar]] = {}
    bases: dict[str, float] = {}
    for one in answer.found.swings:
        for name, now, low, high in results(answer, one):
            bases[name] = now.value
            mine = bars.setdefault(name, [])
            if isfinite(low.value) and isfinite(high.value) and not isclose(low.value, high.value):
                ends = amount(one.input.low, one.input.unit), amount(one.input.high, one.input.unit)
                scale = shown(1.0) if answer.found.metric == USD else 1.0
                mine.append(
                    TornadoBar(translate_rendered(one.input.name), scale * low.value, scale * high.value, *ends)
                )
    label = in_code(_(LABELS[answer.found.metric]))
    for name, own_bars in bars.items():
        if own_bars and isfinite(bases[name]):
            scale = shown(1.0) if answer.found.metric == USD else 1.0
            yield tornado_figure(name, scale * bases[name], own_bars, label)


def tables(answer: SensitivityAnswer) -> list[PageTable]:
    """Return the tables of the page: swings of the inputs, and the gap by group."""
    names = list(answer.found.base)
    heads = [_("input"), _("from"), _("to"), *names]
    if answer.between is not None:
        heads.append(less(answer.between))
    rows = [
        [
            translate_rendered(one.input.name),
            *(amount(value, one.input.unit) for value in (one.input.low, one.input.high)),
            *(
                _("{said} to {said_2}", said=result_text(answer, low), said_2=result_text(answer, high))
                for _name, _now, low, high in results(answer, one)
            ),
        ]
        for one in sorted(answer.found.swings, key=lambda one: -_widest(answer, one))
    ]
    rows.insert(0, [_("as it is"), "", "", *_now(answer)])
    found = [
        PageTable(
            in_code(_(LABELS[answer.found.metric])), _("One input at a time, the others as they are."), heads, rows
        )
    ]
    if gaps := answer.explained.gaps:
        note = _(
            "Shapley values: the cost that each part of the first fleet adds, averaged over all orders of exchange."
        )
        groups = [[translate_rendered(group), *(_part(gap, group) for gap in gaps)] for group in gaps[0].parts]
        groups.append([_("the gap"), *(f"{cash(gap.usd)}{_half_width_text(gap.half_width)}" for gap in gaps)])
        title = _("Parts of the cost gap, {less}", less=less((gaps[0].first, gaps[0].second)))
        found.append(PageTable(title, note, [in_code(_("USD per million output tokens")), *map(load_of, gaps)], groups))
    return found


def _now(answer: SensitivityAnswer) -> list[str]:
    """Return the results at the scenario's own inputs, with their intervals."""
    if not answer.found.swings:
        return []
    now = [reading for _, reading, _, _ in results(answer, answer.found.swings[0])]
    return [result_text(answer, one) + _half_width_text(one.half_width, answer.found.metric) for one in now]


def _half_width_text(half_width: float | None, metric: str = USD) -> str:
    if not half_width:
        return ""
    return f" ± {cash(half_width) if metric == USD else seconds(half_width)}"


def _part(gap: CostGap, group: str) -> str:
    share = f" ({percent(gap.parts[group] / gap.usd)})" if gap.usd else ""
    spread = _half_width_text(gap.half_widths[group]) if gap.parts[group] else ""
    return f"{cash(gap.parts[group])}{spread}{share}"


def _widest(answer: SensitivityAnswer, one: Swing) -> float:
    """Return the range of the last result, which is the difference where two fleets are compared."""
    read = list(results(answer, one))
    return swing(read[-1][1:]) if read else 0.0  # where no fleet runs, there are no results


def _notes(answer: SensitivityAnswer) -> list[str]:
    notes = [*map(translate_rendered, answer.found.reasons)]
    if answer.explained.reason:
        notes.append(translate_rendered(answer.explained.reason))
    if answer.found.metric != USD:
        notes.append(_("▲ overloaded: the queue and the result grow through the whole run."))
        notes.append(_("Prices and terms change no latency and are left out."))
    if answer.explained.gaps:
        notes += map(_, GAP_NOTES)
    notes.append(
        _(
            "Changed cost inputs are billed again on the same simulations; other inputs are simulated again with the "
            "same random numbers."
        )
    )
    return notes


GAP_NOTES = [
    N_(
        "The gap is divided by Shapley values (1953) over counterfactual fleets, with each group from one fleet or "
        "the other; every counterfactual is simulated, and the parts sum to the gap."
    ),
    N_(
        "Price per GPU: time-based charges per GPU-hour (capital, rent, hosting by nameplate "
        "power), and tariffs. GPUs and layout: number of GPUs and replicas, how the "
        "model is split over them, engine and scheduler. Memory size: tokens that all KV caches "
        "hold together. Power: metered power, not nameplate power. Bandwidth, compute and "
        "power are those of one GPU."
    ),
    N_(
        "At a load within the capacity of both fleets, both generate the same tokens, so speed changes only the "
        "energy. At full load the number of clients is the larger `max_num_seqs`; they send requests without think "
        "time, and the SLO is ignored."
    ),
]
