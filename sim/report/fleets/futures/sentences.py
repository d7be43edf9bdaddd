"""What many futures come to, in words: who is cheaper in how many of them, how far costs range, what decides."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sim.language import N_, _
from sim.report.charts.tornado import TornadoBar
from sim.report.words.money import cash, shown
from sim.report.words.text import AXIS_UNITS, joined, listing, percent, place, plain, ranged
from sim.scenario.sections.load_profile import RATE
from sim.study.fleets.futures.draws import API, MILLION, FleetDraws, FutureStudy, cheapest
from sim.study.fleets.futures.inputs import HIGH, LOW, UncertainInput
from sim.study.fleets.futures.settings import Dispute, Setting, settings_of
from sim.study.fleets.run.point import Point
from sim.study.fleets.run.sweep import sweep_of
from sim.study.metrics.statistics import wilson
from sim.study.money.breakeven.tipping import INPUTS

PREFIXES = ("site.", "finance.", "operations.", "workload.arrivals.")
LEAST_SWING = 1e-9
"""A share of the result; what moves it less moves nothing."""


def where(axes: Mapping[str, Any]) -> str:
    """` at 1 req/s`, empty where nothing is swept."""
    return _(" at {listing}", listing=listing([place(axis, value) for axis, value in axes.items()])) if axes else ""


def shown_settings(study: FutureStudy, points: Sequence[Point], axes: Sequence[str]) -> list[Setting]:
    """Those that the report speaks of: at its place of reference on the main axis."""
    sweep = sweep_of(points, axes)
    at = sweep.reference
    found = settings_of(study)
    return [one for one in found if one.axes.get(sweep.axis, at) == at] or found


def sentences(study: FutureStudy, points: Sequence[Point], axes: Sequence[str]) -> list[str]:
    """Return the answer at each setting shown, for each model on its own: which fleet is cheaper in which share of the
    draws, how far costs range, and which inputs change the order.
    """
    return [
        joined([_answer(own, study, points) for own in one.apart(study.models)])
        for one in shown_settings(study, points, axes)
    ]


def _answer(setting: Setting, study: FutureStudy, points: Sequence[Point]) -> str:
    if len(setting.outcomes) > 1:
        parts = [_who(setting, study), _range(setting, _("them"))]
    else:
        parts = [_range(setting, _("{draws:,} draws{where}", draws=study.draws, where=where(setting.axes)))]
    told = joined([*parts, *_against_api(setting), *_missed(setting, study, points), *_decides(setting, study)])
    return (_("{model}: ", model=setting.model) if setting.model else "") + told


def disputed(disputes: Sequence[Dispute]) -> list[str]:
    """Return what a verdict says of draws that favour another fleet than it does: a sentence for each two fleets."""
    groups: dict[tuple[str, str, str], list[Dispute]] = {}
    for one in disputes:
        groups.setdefault((one.model, one.central, one.drawn), []).append(one)
    return [_disputed(own) for own in groups.values()]


def _disputed(own: Sequence[Dispute]) -> str:
    first, shares = own[0], sorted(one.share for one in own)
    places = [listing([place(axis, value) for axis, value in one.axes.items()]) for one in own if one.axes]
    share = _(
        "{share} of {draws:,} draws{where}",
        share=ranged(exact(shares[0]), exact(shares[-1])),
        draws=first.draws,
        where=_(" at {listing}", listing=_("; ").join(places)) if places else "",
    )
    told = (
        N_("Central values decide here; {drawn} is cheaper than {central} in {share}.")
        if first.fleets == 2
        else N_("Central values decide here; {drawn} is the cheapest in {share}, more often than {central}.")
    )
    lead = _("{model}: ", model=first.model) if first.model else ""
    return lead + _(told, drawn=first.drawn, central=first.central, share=share)


def _who(setting: Setting, study: FutureStudy) -> str:
    """Which of several fleets is the cheapest how often."""
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
    """A share with a tenth of a percent, where it is neither none nor all."""
    return f"{100 * share:.{1 if 0 < share < 1 else 0}f}\u00a0%"


def _range(setting: Setting, futures: str) -> str:
    parts = []
    for one in setting.outcomes:
        low, high = np.quantile(one.draws[MILLION], (LOW, HIGH))
        least, most = cash(float(low)), cash(float(high))
        told = N_("{low} ({fleet})") if least == most else N_("{low} to {high} ({fleet})")
        parts.append(_(told, low=least, high=most, fleet=one.fleet))
    return _("In 80 % of {futures} a million output tokens costs {listing}.", futures=futures, listing=listing(parts))


def _against_api(setting: Setting) -> Iterator[str]:
    parts = [
        _("{fleet} in {exact}", fleet=one.fleet, exact=exact(float(np.mean(one.draws[MILLION] < one.draws[API]))))
        for one in setting.outcomes
        if API in one.draws
    ]
    if parts:
        yield _("Cheaper than the API: {listing}.", listing=listing(parts))


def _missed(setting: Setting, study: FutureStudy, points: Sequence[Point]) -> Iterator[str]:
    """Fleets that do not meet the SLO, or keep up, where they are compared."""
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


def _decides(setting: Setting, study: FutureStudy) -> Iterator[str]:
    """The inputs that turn the order of the first two around by themselves."""
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
    """An input's name as people read it."""
    if one.places[0] == RATE:
        return "load [requests/s]"
    name = one.name
    usual = name.removesuffix(".price")  # of a price in a currency of its own, which is not known here
    if usual in INPUTS:
        words, unit = _(INPUTS[usual][0]), INPUTS[usual][1]
        return f"{words} [{unit}]" if unit and usual == name else words
    for prefix in PREFIXES:
        name = name.replace(f": {prefix}", ": ").removeprefix(prefix)
    return name if name.startswith(("price of ", _("rent of "))) else name.replace("_", " ").replace(".", " ")


def bars(study: FutureStudy, first: FleetDraws, less: FleetDraws | None = None) -> list[TornadoBar]:
    """How inputs change the cost of *first*, or what *first* costs more than *less* [shown currency per million]."""
    found = []
    for index, one in enumerate(study.inputs):
        low, high = (float(table[MILLION][index]) for table in (first.low, first.high))
        if less is not None:
            low, high = low - float(less.low[MILLION][index]), high - float(less.high[MILLION][index])
        found.append(TornadoBar(label(one), shown(low), shown(high), *(_value(one, share) for share in (LOW, HIGH))))
    size = max((abs(end) for bar in found for end in (bar.low, bar.high)), default=0.0)
    return [bar for bar in found if abs(bar.high - bar.low) > LEAST_SWING * size]


def _value(one: UncertainInput, share: float) -> str:
    """The input's quantile; where its places differ, which quantile it is."""
    values = dict.fromkeys(plain(value) for world in one.at(share) for value in world.values())
    return next(iter(values)) if len(values) == 1 else percent(share)
