"""Report on Monte Carlo draws of uncertain inputs: sentences, futures.csv, draws.csv, tornado.csv, page tables.

Sentences state in what share of the draws a fleet is the cheapest, the range of costs, and which inputs change the
result.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sim.csvio import write_csv
from sim.language import N_, _
from sim.report.charts.tornado import TornadoBar
from sim.report.words.money import cash, in_code, shown, with_converted_amounts
from sim.report.words.text import AXIS_UNITS, joined, listing, percent, place, plain, ranged
from sim.scenario.reading.distribution import CENTRAL
from sim.scenario.schema import Scenario
from sim.scenario.sections.load_profile import RATE
from sim.study.booked_inputs import INPUTS
from sim.study.metrics.statistics import wilson
from sim.study.monte_carlo import (
    API,
    CARBON,
    HIGH,
    LOW,
    MILLION,
    MONTH,
    PROFIT,
    DisputedSetting,
    DrawnSetting,
    FleetDraws,
    MonteCarloStudy,
    UncertainInput,
    cheapest,
    cheapest_share,
    input_effects,
    inputs_of,
    settings_of,
    spread_of,
)
from sim.study.points import Point, sweep_of

PREFIXES = ("site.", "finance.", "operations.", "workload.arrivals.")
LEAST_SWING = 1e-9
"""Change below which an input counts as having no effect, as a fraction of the result."""


def where(axes: Mapping[str, Any]) -> str:
    """Return ` at 1 req/s`; empty where nothing is swept."""
    return _(" at {listing}", listing=listing([place(axis, value) for axis, value in axes.items()])) if axes else ""


def shown_settings(study: MonteCarloStudy, points: Sequence[Point], axes: Sequence[str]) -> list[DrawnSetting]:
    """Return the settings that the report describes: those at the reference value of the main axis."""
    sweep = sweep_of(points, axes)
    at = sweep.reference
    found = settings_of(study)
    return [one for one in found if one.axes.get(sweep.axis, at) == at] or found


def sentences(study: MonteCarloStudy, points: Sequence[Point], axes: Sequence[str]) -> list[str]:
    """Describe the draws at each shown setting, for each model on its own.

    Each text states the cheapest fleet and its share of the draws, the range of costs, and the inputs that change the
    order.
    """
    return [
        joined([_sentence(own, study, points) for own in one.apart(study.models)])
        for one in shown_settings(study, points, axes)
    ]


def _sentence(setting: DrawnSetting, study: MonteCarloStudy, points: Sequence[Point]) -> str:
    if len(setting.outcomes) > 1:
        parts = [_cheapest_shares(setting, study), _range(setting, _("them"))]
    else:
        parts = [_range(setting, _("{draws:,} draws{where}", draws=study.draws, where=where(setting.axes)))]
    text = joined(
        [
            *parts,
            *_profits(setting),
            *_against_api(setting),
            *_unmet_goals(setting, study, points),
            *_deciding_inputs(setting, study),
        ]
    )
    return (_("{model}: ", model=setting.model) if setting.model else "") + text


def disputed(disputes: Sequence[DisputedSetting]) -> list[str]:
    """Return sentences on draws that favour another fleet than the verdict, one for each pair of fleets."""
    groups: dict[tuple[str, str, str], list[DisputedSetting]] = {}
    for one in disputes:
        groups.setdefault((one.model, one.central, one.drawn), []).append(one)
    return [_dispute_sentence(own) for own in groups.values()]


def _dispute_sentence(own: Sequence[DisputedSetting]) -> str:
    first, shares = own[0], sorted(one.share for one in own)
    places = [listing([place(axis, value) for axis, value in one.axes.items()]) for one in own if one.axes]
    share = _(
        "{share} of {draws:,} draws{where}",
        share=ranged(exact(shares[0]), exact(shares[-1])),
        draws=first.draws,
        where=_(" at {listing}", listing=_("; ").join(places)) if places else "",
    )
    template = (
        N_("The ranking uses central values; {drawn} is cheaper than {central} in {share}.")
        if first.fleets == 2
        else N_("The ranking uses central values; {drawn} is the cheapest in {share}, more often than {central}.")
    )
    lead = _("{model}: ", model=first.model) if first.model else ""
    return lead + _(template, drawn=first.drawn, central=first.central, share=share)


def _cheapest_shares(setting: DrawnSetting, study: MonteCarloStudy) -> str:
    """State the cheapest of several fleets and its share of the draws, then the shares of the others."""
    wins, n = cheapest(setting.outcomes), study.draws
    ranked = sorted(wins, key=lambda fleet: -wins[fleet])
    best = ranked[0]
    low, high = wilson(wins[best], n)
    interval = _("(95 % interval of the draws: {low} to {high})", low=exact(low), high=exact(high))
    ties = n - sum(wins.values())
    same = _("; in {percent} they cost the same", percent=percent(ties / n)) if ties else ""
    if len(wins) == 2:
        other = ranked[1]
        return _(
            "{best} is cheaper per million output tokens than {other} in {exact} of {n:,} "
            "draws{where} {interval}{same}.",
            best=best,
            other=other,
            exact=exact(wins[best] / n),
            n=n,
            where=where(setting.axes),
            interval=interval,
            same=same,
        )
    rest = listing([_("{fleet} in {exact}", fleet=fleet, exact=exact(wins[fleet] / n)) for fleet in ranked[1:]])
    return _(
        "{best} is the cheapest per million output tokens in {exact} of {n:,} draws{where} {interval}, {rest}{same}.",
        best=best,
        exact=exact(wins[best] / n),
        n=n,
        where=where(setting.axes),
        interval=interval,
        rest=rest,
        same=same,
    )


def exact(share: float) -> str:
    """Format a share in percent, with a decimal unless it is 0 or 1."""
    return f"{100 * share:.{1 if 0 < share < 1 else 0}f}\u00a0%"


def _range(setting: DrawnSetting, draws: str) -> str:
    parts = []
    for one in setting.outcomes:
        low, high = np.quantile(one.draws[MILLION], (LOW, HIGH))
        least, most = cash(float(low)), cash(float(high))
        template = N_("{low} ({fleet})") if least == most else N_("{low} to {high} ({fleet})")
        parts.append(_(template, low=least, high=most, fleet=one.fleet))
    return _("In 80 % of {draws} a million output tokens costs {listing}.", draws=draws, listing=listing(parts))


def _profits(setting: DrawnSetting) -> Iterator[str]:
    """Yield the profit of each fleet over the draws, and the share of draws with a loss, where tokens are sold."""
    for one in setting.outcomes:
        if PROFIT in one.draws:
            low, high = np.quantile(one.draws[PROFIT], (LOW, HIGH))
            yield _(
                "Profit of {fleet}: {low} to {high} a month in the middle 80 % of draws; a loss in {exact}.",
                fleet=one.fleet,
                low=cash(float(low)),
                high=cash(float(high)),
                exact=exact(float(np.mean(one.draws[PROFIT] < 0))),
            )


def _against_api(setting: DrawnSetting) -> Iterator[str]:
    parts = [
        _("{fleet} in {exact}", fleet=one.fleet, exact=exact(float(np.mean(one.draws[MILLION] < one.draws[API]))))
        for one in setting.outcomes
        if API in one.draws
    ]
    if parts:
        yield _("Cheaper than the API: {listing}.", listing=listing(parts))


def _unmet_goals(setting: DrawnSetting, study: MonteCarloStudy, points: Sequence[Point]) -> Iterator[str]:
    """Yield sentences on compared fleets that do not meet the SLO or keep up with the load."""
    for one in setting.outcomes:
        here = [point for point in points if point.fleet == one.fleet and setting.axes.items() <= point.axes.items()]
        missed = [point for point in here if point.ok and not point.good]
        if not missed:
            continue
        loads = [plain(float(point.axes[axis])) for point in missed for axis in point.axes if axis not in setting.axes]
        if study.load_drawn and loads:
            yield _(
                "{fleet} does not meet the SLO, or keep up, at {rate_rps}.",
                fleet=one.fleet,
                rate_rps=_(AXIS_UNITS["rate_rps"]).format(listing(loads)),
            )
        else:
            yield _("{fleet} does not meet the SLO, or keep up, there.", fleet=one.fleet)


def _deciding_inputs(setting: DrawnSetting, study: MonteCarloStudy) -> Iterator[str]:
    """Yield a sentence on the inputs that each change the order of the two cheapest fleets."""
    if setting.first_two is None or len(study.inputs) < 2:
        return
    first, second = setting.first_two
    ends = zip(
        study.inputs, second.low[MILLION] - first.low[MILLION], second.high[MILLION] - first.high[MILLION], strict=True
    )
    turning = [label(one) for one, low, high in ends if min(low, high) < 0]
    if turning:
        yield _(
            "Between its 10 % and its 90 % quantile {turning} alone changes which fleet is cheaper.",
            turning=_(" or ").join(turning),
        )
    else:
        yield _("No input alone, between its 10 % and its 90 % quantile, changes which fleet is cheaper.")


def label(one: UncertainInput) -> str:
    """Return a readable name of an uncertain input."""
    if one.places[0] == RATE:
        return "load [requests/s]"
    name = one.name
    usual = name.removesuffix(".price")  # the price is in the item's own currency, which is unknown here
    if usual in INPUTS:
        words, unit = _(INPUTS[usual][0]), INPUTS[usual][1]
        return f"{words} [{unit}]" if unit and usual == name else words
    for prefix in PREFIXES:
        name = name.replace(f": {prefix}", ": ").removeprefix(prefix)
    return name if name.startswith(("price of ", _("rent of "))) else name.replace("_", " ").replace(".", " ")


def bars(study: MonteCarloStudy, first: FleetDraws, less: FleetDraws | None = None) -> list[TornadoBar]:
    """Return each input's effect on the cost of *first* [shown currency per million output tokens].

    With *less*, the effect on the difference in cost between *first* and *less*.
    """
    found = []
    for index, one in enumerate(study.inputs):
        low, high = (float(table[MILLION][index]) for table in (first.low, first.high))
        if less is not None:
            low, high = low - float(less.low[MILLION][index]), high - float(less.high[MILLION][index])
        found.append(TornadoBar(label(one), shown(low), shown(high), *(_value(one, share) for share in (LOW, HIGH))))
    size = max((abs(end) for bar in found for end in (bar.low, bar.high)), default=0.0)
    return [bar for bar in found if abs(bar.high - bar.low) > LEAST_SWING * size]


def _value(one: UncertainInput, share: float) -> str:
    """Format the input's quantile; where its places have different values, the quantile itself."""
    values = dict.fromkeys(plain(value) for world in one.at(share) for value in world.values())
    return next(iter(values)) if len(values) == 1 else percent(share)


PERCENTILES = (5, 10, 25, 50, 75, 90, 95)
Row = dict[str, Any]
"""Row of a table: column -> value, with the axes of the sweep under `axes`."""
MEASURES = (MONTH, MILLION, API, CARBON, PROFIT)


def write_monte_carlo(out: Path, study: MonteCarloStudy, axes: Sequence[str]) -> None:
    """Write futures.csv, draws.csv and tornado.csv into the folder *out*.

    futures.csv has quantiles, a row per fleet and point; draws.csv a row per draw and point; tornado.csv a row per
    fleet or difference, point and input.
    """
    settings = settings_of(study)
    shown = [axis for axis in axes if any(axis in one.axes for one in settings)]
    _write(
        out / "futures.csv",
        [_quantiles(study, setting, one) for setting, one in _outcomes(settings, study.models)],
        shown,
    )
    _write(out / "draws.csv", (row for setting in settings for row in _draws(study, setting)), shown)
    _write(out / "tornado.csv", (row for setting in settings for row in _tornado(study, setting)), shown)


def _outcomes(settings: Sequence[DrawnSetting], models: Mapping[str, str]) -> Iterator[tuple[DrawnSetting, FleetDraws]]:
    return ((own, one) for setting in settings for own in setting.apart(models) for one in own.outcomes)


def _write(path: Path, rows: Any, axes: Sequence[str]) -> None:
    """Write *rows* with the axes after the first column; columns that only later rows have are empty before."""
    listed = [with_converted_amounts(row) for row in rows]
    names = list(dict.fromkeys(name for row in listed for name in row if name != "axes"))
    lines = (
        [row[names[0]], *(row["axes"].get(axis) for axis in axes), *(row.get(name) for name in names[1:])]
        for row in listed
    )
    write_csv(path, [names[0], *axes, *names[1:]], lines)


def _quantiles(study: MonteCarloStudy, setting: DrawnSetting, one: FleetDraws) -> Row:
    share = cheapest_share(setting, one.fleet, study.draws)
    row: Row = {"fleet": one.fleet, "axes": setting.axes, "draws": study.draws}
    row |= {"cheapest_share": share.value, "cheapest_share_low95": share.low, "cheapest_share_high95": share.high}
    for name in MEASURES:
        if name in one.draws:
            spread = spread_of(one, name, [percentile / 100 for percentile in PERCENTILES])
            row |= {f"{name}_central": spread.central, f"{name}_mean": spread.mean, f"{name}_sd": spread.sd}
            row |= {f"{name}_p{p}": value for p, value in zip(PERCENTILES, spread.quantiles, strict=True)}
    return row


def _draws(study: MonteCarloStudy, setting: DrawnSetting) -> Iterator[Row]:
    inputs = {
        path: study.drawn[place].tolist()
        for one in study.inputs
        for path, place in zip(one.paths, one.places, strict=True)
    }
    costs = {
        f"{one.fleet} {name}": one.draws[name].tolist()
        for one in setting.outcomes
        for name in MEASURES
        if name in one.draws
    }
    columns = inputs | costs
    for draw in range(study.draws):
        yield {"draw": draw, "axes": setting.axes, **{name: values[draw] for name, values in columns.items()}}


def _tornado(study: MonteCarloStudy, setting: DrawnSetting) -> Iterator[Row]:
    for one in input_effects(study, setting, (MILLION, MONTH)):
        row: Row = {"of": one.of, "axes": setting.axes, **_input_ends(one.input)}
        for name, ends in one.measures.items():
            row |= {f"{name}_at_low": ends.low, f"{name}_at_high": ends.high, f"{name}_central": ends.central}
        yield row


def _input_ends(each: UncertainInput) -> Row:
    """Return the low, central and high value of the input, at the first of its places."""
    low, high = (next(iter(world.values())) for world in each.at(LOW, HIGH))
    central = each.members[0].distribution.central
    return {"input": each.name, "input_low": low, "input_central": central, "input_high": high}


def monte_carlo_table(study: MonteCarloStudy, points: Sequence[Point], axes: Sequence[str]) -> dict[str, Any]:
    """Return the table of costs at the shown settings: heads and rows of (fleet, where, cells)."""
    heads = [
        _("cheapest in"),
        in_code(_("USD a month, 10 %")),
        _("median"),
        "90 %",
        _("per million output tokens, 10 %"),
        _("median"),
        "90 %",
    ]
    rows = []
    for setting in [own for one in shown_settings(study, points, axes) for own in one.apart(study.models)]:
        wins = cheapest(setting.outcomes)
        for one in setting.outcomes:
            amounts = [float(v) for name in (MONTH, MILLION) for v in np.quantile(one.draws[name], (LOW, 0.5, HIGH))]
            share = exact(wins[one.fleet] / study.draws) if len(wins) > 1 else ""
            rows.append((one.fleet, where(setting.axes).removeprefix(" at "), [share, *map(cash, amounts)]))
    return {"heads": heads, "rows": rows}


def input_lines(scenario: Scenario) -> Iterator[str]:
    """Yield a line for each input that a run would draw; nothing where nothing is uncertain."""
    rows = inputs_table(inputs_of(scenario))
    if scenario.futures is not None and rows:
        yield _(
            "{draws:,} Monte Carlo draws of these inputs; all else uses the central values:",
            draws=scenario.futures.draws,
        )
    for path, (family, low, central, high), why in rows:
        yield _(
            "  {path}: {central}, {family}, 10 % below {low}, 10 % above {high}{why}",
            path=path,
            central=central,
            family=family,
            low=low,
            high=high,
            why=f"; {why}" if why else "",
        )
    for one in scenario.futures.correlations if scenario.futures is not None else ():
        yield _(
            "  rank correlation of {first} and {second}: {rank}",
            first=one.between[0],
            second=one.between[1],
            rank=plain(one.rank),
        )


def inputs_table(inputs: Sequence[UncertainInput]) -> list[tuple[str, list[str], str]]:
    """Return the uncertain inputs as (path, [family, 10 %, central, 90 %], reason and place)."""
    rows = []
    for each in inputs:
        for path, one in zip(each.paths, each.members, strict=True):
            low, high = one.quantiles(LOW, HIGH)
            central = f"{plain(one.distribution.central)} ({CENTRAL[one.family]})"
            name = path if len(each.paths) == 1 else _("{path} (with {label})", path=path, label=label(each))
            why = "; ".join(part for part in (one.note, one.stated) if part)
            rows.append((name, [one.family, plain(low), central, plain(high)], why))
    return rows
