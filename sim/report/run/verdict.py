"""The verdict of a run: the answer in a sentence, its range of validity, and what qualifies it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.cost.revenue import Revenue, SoldTokens
from sim.cost.token_api import TOKENS_PER_PRICE
from sim.language import N_, _, ngettext, translate_rendered
from sim.report.monte_carlo import disputed
from sim.report.run.year import year_heads
from sim.report.words.money import apart, cash
from sim.report.words.service_level import (
    anywhere,
    apart_on_charts,
    at,
    comparative,
    doubt_texts,
    goal,
    goal_of_all,
    misses,
    none_of,
    ranked_apart,
    readings,
    storms,
    unanswered,
    where_of,
    why_open,
)
from sim.report.words.text import difference, joined, listing, percent, place, places, ranged, seconds, spaced, span
from sim.scenario.schema import Scenario
from sim.scenario.sections.comparison import models_of
from sim.scenario.slo import Slo
from sim.scenario.sweep import axes as axes_of
from sim.study.comparison import COST, Comparison, Contest, comparisons_of
from sim.study.execution.cases import limits
from sim.study.metrics.requests import NO_INTERVAL
from sim.study.metrics.service_level import MOST_UNANSWERED, ServiceLevelAttainment, slack
from sim.study.metrics.statistics import LEAST_FOR_INTERVAL
from sim.study.monte_carlo import DisputedSetting
from sim.study.points import Point, Sweep, fleets_of, has_money, has_slo, point_attainment
from sim.study.year import FleetYear, RunYear, year_of

PRICE, PROFIT = "price_usd_per_million_output_tokens", "profit_usd_per_month"
"""Columns of prices and profits, where tokens are sold."""


LEAST_REQUESTS = 100
"""Number of requests of a point with a random load below which its figures are rough, as for batch means."""
MOST_SETTINGS = 3
"""Largest number of settings of the other axes that the verdict describes one by one."""


@dataclass(frozen=True, slots=True)
class SettingsTable:
    """Cheapest fleet at every point of a sweep over several axes."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    """Setting of the other axes, then the cheapest fleet and its cost at each value of the first axis."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Conclusions of a run."""

    headline: str
    findings: tuple[str, ...]
    """Range of validity, significance, limits: one sentence or two each."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Model of every fleet, where fleets of different models are ranked per model."""
    table: SettingsTable | None = None
    """Cheapest fleet by setting, where a sweep has too many settings for sentences."""

    @property
    def chart_note(self) -> str:
        """Note beside charts that show fleets of different models; empty without such fleets."""
        return apart_on_charts(self.models)


def verdict_of(
    scenario: Scenario,
    catalog: Catalog,
    points: Sequence[Point],
    notes: Sequence[str] = (),
    disputes: Sequence[DisputedSetting] = (),
) -> Verdict:
    """Compare the fleets of a run of *scenario*, with its `load_profile` over a year; see `verdict`."""
    named, year = axes_of(scenario), year_of(scenario, catalog, points, axes_of(scenario))
    models = models_of(scenario, scenario.compare)
    return verdict(points, named, limits(scenario), notes, year, models, disputes, sold_in(scenario))


def sold_in(scenario: Scenario) -> Revenue | None:
    """Return the prices of the tokens that *scenario* sells; None if it states none."""
    return next((one for fleet in scenario.fleets if (one := fleet.revenue or scenario.revenue)), None)


def verdict(
    points: Sequence[Point],
    axes: Sequence[str],
    slo: Mapping[str, Any],
    notes: Sequence[str] = (),
    year: RunYear | None = None,
    models: Mapping[str, str] | None = None,
    disputes: Sequence[DisputedSetting] = (),
    sold: Revenue | None = None,
) -> Verdict:
    """Compare the fleets of a run where they meet the SLO (without an SLO: where they keep up with the load).

    Parameters
    ----------
    points
        All points of the run.
    axes
        Names of the sweep axes.
    slo
        Limits [s] and `attainment`.
    notes
        Further sentences that qualify the verdict.
    year
        Year of all fleets. The headline is then about its hours.
    models
        Model of every fleet, where they are ranked per model.
    disputes
        Settings where Monte Carlo draws favour another fleet than the central values do; the central values decide.
    sold
        Prices of the tokens that are sold; None if the scenario states none.

    """
    comparisons, level = comparisons_of(points, axes, slo, models), Slo.model_validate(slo)
    if year is None and not models and len(comparisons) > MOST_SETTINGS:
        return _by_setting(comparisons, points, level, [*disputed(disputes)], notes, sold)
    heads = [
        *(year_heads(year, has_slo(points, level), models or {}) if year is not None else ()),
        *(_lead(part) + _headline(part, level) for part in comparisons if year is None),
    ]
    heads += [_lead(part) + line for part in comparisons if (line := _unanswered_in(part)[0])]
    heads += [_lead(part) + line for part in comparisons if year is None and (line := _few_requests(part))]
    if year is not None and sold is not None:
        heads += _profit_of_year(year, sold)
    if year is None:
        heads += [_lead(part) + line for part in comparisons if sold is not None and (line := _profit(part, sold))]
    headline = joined([*heads, *disputed(disputes)]) if heads else _("No fleet can run this.")
    findings = [line for part in comparisons for line in _findings(part, level, year is not None)]
    findings += _infeasible(points)
    if comparisons:
        findings.insert(0, _validity(comparisons[0].sweep, points, year is not None))
    if models:
        findings.insert(0, ranked_apart(models))
    every = (*findings, *map(translate_rendered, notes))
    return Verdict(spaced(headline), tuple(map(spaced, every)), models or {})


def _by_setting(
    parts: Sequence[Comparison],
    points: Sequence[Point],
    slo: Slo,
    disputes: Sequence[str],
    notes: Sequence[str],
    sold: Revenue | None,
) -> Verdict:
    """Compare the fleets of a sweep with many settings: a sentence with counts, and a table."""
    sweep, fleets = parts[0].sweep, list(dict.fromkeys(fleet for part in parts for fleet in part.fleets))
    best = {(row, value): _best_at(part, value) for row, part in enumerate(parts) for value in sweep.values}
    counts: dict[str, int] = {}
    for names, __ in best.values():
        counts[names] = counts.get(names, 0) + 1
    total = len(best)
    ranked = sorted(counts.items(), key=lambda one: (one[0] in (_nobody(), _("inconclusive")), -one[1]))
    shares = [_("{name} at {count} of {total}", name=name, count=count, total=total) for name, count in ranked]
    headline = _(
        "Cheapest per million output tokens among those that {verb}, by simulated setting: {shares}.",
        verb=goal_of_all(parts[0].has_slo),
        shares=_("; ").join(shares),
    )
    profits = [_lead(part) + line for part in parts if sold is not None and (line := _profit(part, sold))]
    met = [
        _("{name} at {count} of {total}", name=fleet, count=sum(len(part.fit(fleet)) for part in parts), total=total)
        for fleet in fleets
    ]
    findings = [
        _validity(sweep, points, False),
        _("Settings at which each fleet meets the SLO: {fleets}.", fleets=_("; ").join(met))
        if parts[0].has_slo
        else _("Settings at which each fleet keeps up with the load: {fleets}.", fleets=_("; ").join(met)),
    ]
    certain = list(dict.fromkeys(filter(None, map(significance, parts))))
    findings += certain if len(certain) == 1 else []
    overloaded = sum(bool(point.row["overloaded"]) for point in points if point.ok)
    if overloaded:
        findings.append(
            _(
                "Overloaded: {count} of {total} points. Latencies there grow with the simulated time and are not "
                "steady values.",
                count=overloaded,
                total=len(points),
            )
        )
    many, few = _unanswered(points, lambda own: _(" at {count} of {total} points", count=len(own), total=total))
    findings += [*([few] if few else []), *profits, *_infeasible(points), *map(translate_rendered, notes)]
    heads = [_("setting"), *(place(sweep.axis, value) for value in sweep.values)]
    rows = [
        [places(part.setting), *(" ".join(filter(None, best[row, value])) for value in sweep.values)]
        for row, part in enumerate(parts)
    ]
    table = SettingsTable(heads, rows)
    return Verdict(spaced(joined([headline, many, *disputes])), tuple(map(spaced, findings)), {}, table)


def _nobody() -> str:
    return _("no fleet")


def _best_at(part: Comparison, value: Any) -> tuple[str, str]:
    """Return the cheapest fleet that meets the SLO at *value*, or the fleets of equal cost, and its cost, as text."""
    contest = next((one for one in part.contests if one.value == value), None)
    if contest is not None:
        tied = contest.certain is False
        names = [contest.winner.fleet, *([contest.second.fleet] if tied else [])]
        return _(" or ").join(names), _cost(contest.winner)
    fit = part.at(value)
    if fit:
        return _(" or ").join(point.fleet for point in fit), _cost(fit[0]) if len(fit) == 1 else ""
    unsure = any(value in part.inconclusive(fleet) for fleet in part.fleets)
    return (_("inconclusive") if unsure else _nobody()), ""


def _lead(part: Comparison) -> str:
    """Return the lead-in of a sentence: the setting of the other axes, and the model where fleets serve several."""
    setting = _("At {places}: ", places=places(part.setting)) if part.setting else ""
    return setting + (_("{model}: ", model=part.model) if part.model else "")


def _headline(part: Comparison, slo: Slo) -> str:
    if len(part.fleets) == 1:
        return joined([_single_fleet(part, part.fleets[0], slo), _inconclusive(part, slo)])
    if not any(point.certainly_good or point.inconclusive for point in part.points):
        return _(
            "{none} {goal}{anywhere}.", none=none_of(part.fleets), goal=goal(part), anywhere=anywhere(part)
        ) + _nearest(part, slo)
    contests = part.contests
    if not contests:
        return joined([_by_reach(part), _inconclusive(part, slo)])
    return joined([_cheapest(part, contests), _loads_of_one_or_none(part), _inconclusive(part, slo)])


def _profit(part: Comparison, sold: Revenue) -> str:
    """State the fleet with the highest profit, or with the lowest price that leaves the margin; empty if none fits."""
    priced = [point for point in part.points if point.certainly_good and point.number(PRICE) is not None]
    if not priced:
        return ""
    if sold.output is None:
        best = min(priced, key=lambda point: point.number(PRICE) or 0.0)
        template = N_(
            "For a margin of {margin} output tokens must sell at {price} per million with {fleet}{there}: {earned} a "
            "month; break-even at {even}."
        )
    else:
        best = max(priced, key=lambda point: point.number(PROFIT) or 0.0)
        gain = (best.number(PROFIT) or 0.0) >= 0
        template = N_(
            "At {price} per million output tokens {fleet}{there} earns {earned} a month (margin {margin}); break-even "
            "at {even}."
        )
        if not gain:
            template = N_(
                "At {price} per million output tokens {fleet}{there} loses {earned} a month; break-even at {even}."
            )
    even = best.number("break_even_usd_per_million_output_tokens") or 0.0
    return _(
        template,
        fleet=best.fleet,
        there=at(part, [part.sweep.value(best)]),
        price=cash(best.number(PRICE) or 0.0),
        earned=cash(abs(best.number(PROFIT) or 0.0)),
        margin=percent(best.number("profit_margin") or 0.0),
        even=cash(even) if even > 0 else _("any price, as prompts pay for it all"),
    )


def _profit_of_year(year: RunYear, sold: Revenue) -> list[str]:
    """State the highest profit of a year, or the lowest price that leaves the margin, among the fleets that meet it."""
    known = [(row, row.sold) for row in year.rows if row.good and row.sold is not None and row.output_tokens_per_year]
    if not known:
        return []

    def price(one: tuple[FleetYear, SoldTokens]) -> float:
        return TOKENS_PER_PRICE * one[1].output_usd / one[1].output_tokens

    asks = sold.output is None
    best = min(known, key=price) if asks else max(known, key=lambda one: one[1].profit_usd)
    row, tokens_sold = best
    template = N_("At {price} per million output tokens {fleet} earns {earned} a year; break-even at {even}.")
    if asks:
        template = N_(
            "For a margin of {margin} output tokens must sell at {price} per million with {fleet}: {earned} a year; "
            "break-even at {even}."
        )
    elif tokens_sold.profit_usd < 0:
        template = N_("At {price} per million output tokens {fleet} loses {earned} a year; break-even at {even}.")
    even = TOKENS_PER_PRICE * tokens_sold.output_usd_to_break_even / tokens_sold.output_tokens
    return [
        _(
            template,
            fleet=row.fleet,
            price=cash(price(best)),
            earned=cash(abs(tokens_sold.profit_usd)),
            margin=percent(sold.margin or 0.0),
            even=cash(even) if even > 0 else _("any price, as prompts pay for it all"),
        )
    ]


def _single_fleet(part: Comparison, fleet: str, slo: Slo) -> str:
    fit, missed = part.fit(fleet), part.missed(fleet)
    if not fit and part.inconclusive(fleet):
        return misses(part, fleet, values=missed) if missed else ""
    if not fit:
        return misses(part, fleet) + _nearest(part, slo)
    best = next(point for point in reversed(part.points) if point.certainly_good)
    cost = _cost(best)
    if part.sweep.single:
        price = _(" at {cost} per million output tokens", cost=cost) if cost else ""
        return _("{fleet} {goal}{price}.", fleet=fleet, goal=goal(part), price=price)
    there = place(part.sweep.axis, fit[-1])
    price = _("; a million output tokens costs {cost} at {place}", cost=cost, place=there) if cost else ""
    rest = _(" It does not at {where}.", where=where_of(part, missed)) if missed else ""
    return _(
        "{fleet} {goal} at {where}{price}.{rest}",
        fleet=fleet,
        goal=goal(part),
        where=where_of(part, fit),
        price=price,
        rest=rest,
    )


def _by_reach(part: Comparison) -> str:
    """State the loads that each fleet meets, and compare TTFT at the last load that several fleets meet.

    This answers where there is no cost, or no load that two fleets meet.
    """
    texts = []
    for fleet in part.fleets:
        fit = part.fit(fleet)
        if not fit and part.inconclusive(fleet):
            continue
        where = at(part, fit) if fit else ""
        last = next((point for point in reversed(part.points) if point.fleet == fleet and point.certainly_good), None)
        cost = _(" ({cost} per million output tokens)", cost=_cost(last)) if last and _cost(last) else ""
        met = _("{fleet} {goal}{where}{cost}", fleet=fleet, goal=goal(part), where=where, cost=cost)
        texts.append(met if fit else misses(part, fleet, ""))
    shared = [value for value in part.sweep.values if len(part.at(value)) > 1]
    if not shared:
        return _("{texts}.", texts=_("; ").join(texts)) if texts else ""
    ranked = sorted(part.at(shared[-1]), key=lambda point: point.number("ttft_s_p95") or 0.0)
    times = _(" against ").join(_first_token(point) for point in ranked[:2])
    there = at(part, [shared[-1]])
    return _(
        "{texts}. Their p95 time to first token{there} is {times}.", texts=_("; ").join(texts), there=there, times=times
    )


def _first_token(point: Point) -> str:
    return f"{seconds(point.number('ttft_s_p95') or 0.0)} ({point.fleet})"


def _cheapest(part: Comparison, contests: Sequence[Contest]) -> str:
    """State the cheapest fleet by load; neighbouring loads with the same winner share a clause."""
    decided = [contest for contest in contests if contest.certain is not False]
    winners = list(dict.fromkeys(contest.winner.fleet for contest in decided))
    if not decided:
        return _(
            "{names} cost the same per million output tokens within the 95 % interval{shared}.",
            names=listing(part.fleets),
            shared=_several_meet(part, contests),
        )
    won = {winner: [contest for contest in decided if contest.winner.fleet == winner] for winner in winners}
    if len(winners) > 2:
        won_at = [
            _("{winner} at {where}", winner=winner, where=where_of(part, [one.value for one in ones]))
            for winner, ones in won.items()
        ]
        return _(
            "Cheapest per million output tokens among those that {verb}: {won_at}.",
            verb=goal_of_all(part.has_slo),
            won_at=_("; ").join(won_at),
        )
    clauses = []
    for winner, ones in won.items():
        whole = len(ones) == len(contests)
        where = _several_meet(part, contests) if whole else at(part, [contest.value for contest in ones])
        clauses.append(
            _(
                "{winner} is {comparative} per million output tokens{where}: {quote}",
                winner=winner,
                comparative=comparative(part),
                where=where,
                quote=_quote(part, ones[-1]),
            )
        )
    return _("{texts}.", texts=_("; ").join(clauses))


def _quote(part: Comparison, contest: Contest) -> str:
    low, high = contest.winner.number(COST) or 0.0, contest.second.number(COST) or 0.0
    there = at(part, [contest.value])
    less = _(" ({difference} less)", difference=difference(1 - low / high)) if high > low else ""
    first, second = apart(low, high)
    return _("{cash} against {cash_2}{there}{less}", cash=first, cash_2=second, there=there, less=less)


def _several_meet(part: Comparison, contests: Sequence[Contest]) -> str:
    if part.sweep.single:
        return _(", and {several} {verb}", several=_how_many(part, contests[0]), verb=goal_of_all(part.has_slo))
    several = _("both") if len(part.fleets) == 2 else _("two or more")
    return _(
        " wherever {several} {verb} ({where})",
        several=several,
        verb=goal_of_all(part.has_slo),
        where=where_of(part, [one.value for one in contests]),
    )


def _how_many(part: Comparison, contest: Contest) -> str:
    """Return the number of fleets compared at the place of *contest*, as text: both, all 4, 3 of 4."""
    count, total = len(part.at(contest.value)), len(part.fleets)
    if total == 2:
        return _("both")
    return _("all {total}", total=total) if count == total else _("{count} of {total}", count=count, total=total)


def _nearest(part: Comparison, slo: Slo) -> str:
    """Describe the point that comes nearest to the service level, where none meets it."""
    if not slo.goals:
        return ""
    best = max(part.points, key=lambda point: slack(slo, [case.metrics for case in point.cases]))
    there = at(part, [part.sweep.value(best)])
    attained = _(", ").join(readings(slo, best.row))
    if not attained:
        return ""
    if best.row["overloaded"]:
        attained = _("{attained}, and longer runs attain less, as the queue grows", attained=attained)
    if len(part.fleets) > 1:
        return _(" {fleet} comes nearest{there}: {attained}.", fleet=best.fleet, there=there, attained=attained)
    if there:
        return _(" It comes nearest{there}: {attained}.", there=there, attained=attained)
    return _(" {attained}.", attained=attained[:1].upper() + attained[1:])


def _loads_of_one_or_none(part: Comparison) -> str:
    """State the loads at which a single fleet, or no fleet, meets the SLO."""
    texts = []
    fit = [(value, [point.fleet for point in part.at(value)]) for value in part.sweep.values]
    open_ones = {value for fleet in part.fleets for value in part.inconclusive(fleet)}
    fit = [(value, names) for value, names in fit if value not in open_ones]
    for fleet in part.fleets:
        alone = [value for value, names in fit if names == [fleet]]
        if alone:
            texts.append(
                _("At {where} only {fleet} {goal}.", where=where_of(part, alone), fleet=fleet, goal=goal(part))
            )
    nowhere = [value for value, names in fit if not names]
    if nowhere:
        texts.append(_("At {where} {none} does.", where=where_of(part, nowhere), none=none_of(part.fleets).lower()))
    return joined(texts)


def _findings(part: Comparison, slo: Slo, of_year: bool = False) -> list[str]:
    """Return the other findings; with a year its costs are in the headline, and costs of single loads are left out."""
    lead = _lead(part)
    found = [_reach(part, fleet, of_year) for fleet in part.fleets if not part.sweep.single]
    found.append(_unsure(part, slo))
    found += [] if of_year else [significance(part), _at_full_use(part)]
    overloaded = [point for point in part.points if point.row["overloaded"]]
    if overloaded:
        names = [
            f"{fleet}{at(part, [part.sweep.value(point) for point in overloaded if point.fleet == fleet])}"
            for fleet in fleets_of(overloaded)
        ]
        found.append(
            _(
                "Overloaded: {names}. Latencies there grow with the simulated time and are not steady values.",
                names=_("; ").join(names),
            )
        )
    found.append(_unanswered_in(part)[1])
    found.append(storms(part.points, lambda own: at(part, [part.sweep.value(point) for point in own])))
    return [lead + line for line in found if line]


def _few_requests(part: Comparison) -> str:
    """State the number of requests where these are too few for figures of a random load; empty where none are."""
    few = [
        point
        for point in part.points
        if point.row["intervals"] == NO_INTERVAL
        and (point.number("requests") or 0.0) * point.row["replications"] < LEAST_REQUESTS
    ]
    if not few:
        return ""
    counts = sorted(point.row["requests"] * point.row["replications"] for point in few)
    return _(
        "Rough figures{there}: only {requests} requests arrived; a longer horizon_s or more replications give steadier "
        "ones.",
        there=at(part, list(dict.fromkeys(part.sweep.value(point) for point in few))),
        requests=ranged(f"{counts[0]:.0f}", f"{counts[-1]:.0f}"),
    )


def _unanswered_in(part: Comparison) -> tuple[str, str]:
    return _unanswered(part.points, lambda own: at(part, [part.sweep.value(point) for point in own]))


def _unanswered(points: Sequence[Point], where: Callable[[list[Point]], str]) -> tuple[str, str]:
    """State the shares of requests without an answer where a fleet with them does not keep up, and where it does."""
    many = [point for point in points if point.unanswered > MOST_UNANSWERED]
    few = [point for point in points if point.unanswered <= MOST_UNANSWERED]
    return unanswered(many, where), unanswered(few, where)


def _reach(part: Comparison, fleet: str, of_year: bool) -> str:
    """Return the loads at which *fleet* meets the SLO and, unless *of_year*, the cost of tokens there."""
    points = [point for point in part.points if point.fleet == fleet]
    fit = [point for point in points if point.certainly_good]
    missed = [point for point in points if not point.good and not point.inconclusive]
    if not fit:
        return "" if part.inconclusive(fleet) else misses(part, fleet)
    last = fit[-1]
    priced = _cost(last) and not of_year
    cost = _(", {cost} per million output tokens there", cost=_cost(last)) if priced else ""
    numeric = part.sweep.numeric and missed and part.sweep.x(missed[0]) > part.sweep.x(last)
    edge = (
        _(" (the limit lies between that and {place})", place=place(part.sweep.axis, part.sweep.value(missed[0])))
        if numeric
        else ""
    )
    return _(
        "{fleet} {goal}{at}{edge}{cost}.",
        fleet=fleet,
        goal=goal(part),
        at=at(part, [part.sweep.value(point) for point in fit]),
        edge=edge,
        cost=cost,
    )


def _inconclusive(part: Comparison, slo: Slo) -> str:
    """State the loads at which it is open whether fleets meet the SLO, with the cost of tokens there."""
    lines = []
    standings = [_standing(point, slo) for point in part.points if point.inconclusive]
    for fleet in part.fleets:
        if where := part.inconclusive(fleet):
            last = next(point for point in reversed(part.points) if point.fleet == fleet and point.inconclusive)
            cost = _(" ({cost} per million output tokens)", cost=_cost(last)) if _cost(last) else ""
            lines.append(f"{fleet}{at(part, where)}{cost}")
    why = why_open(standings, N_("the 95 % interval contains the target"))
    return joined([_open_question(part, lines, why), _anyway(part)])


def _anyway(part: Comparison) -> str:
    """Name the fleet that costs less than every fleet whose verdict is open, at each of their loads; empty if none."""
    if (cheaper := part.cheaper_anyway) is None:
        return ""
    return _("{fleet} costs less there in either case.", fleet=cheaper)


def _standing(point: Point, slo: Slo) -> ServiceLevelAttainment:
    return point_attainment([case.metrics for case in point.cases], slo.model_dump(exclude_none=True))


def _open_question(part: Comparison, fleets: Sequence[str], why: str) -> str:
    if not fleets:
        return ""
    return ngettext(
        "Inconclusive whether {listing} {goal}: {why}.",
        "Inconclusive whether each of {listing} {goal}: {why}.",
        len(fleets),
        listing=listing(fleets),
        goal=goal(part),
        why=why,
    )


def _unsure(part: Comparison, slo: Slo) -> str:
    """Describe the attainment at points whose verdict is open: a limit within the interval, or a growing queue."""
    lines, standings = [], []
    for point in part.points:
        if point.inconclusive:
            found = _standing(point, slo)
            standings.append(found)
            doubts = _("; ").join(doubt_texts(found))
            lines.append(f"{point.fleet}{at(part, [part.sweep.value(point)])} ({doubts})")
    why = N_("the 95 % interval contains the target; more replications narrow it")
    return _open_question(part, lines, why_open(standings, why))


def significance(part: Comparison) -> str:
    """State whether the differences in cost exceed their intervals; empty without loads that two fleets meet."""
    contests = part.contests
    if not contests:
        return ""
    if all(contest.certain is None for contest in contests):
        if not any(point.row["intervals"] for contest in contests for point in (contest.winner, contest.second)):
            return ""  # the workload is deterministic
        return _(
            "Fewer than {fewest} runs each: the difference between the costs has no interval; set replications to "
            "{fewest} or more.",
            fewest=LEAST_FOR_INTERVAL,
        )
    unsure = [contest.value for contest in contests if not contest.certain]
    if not unsure:
        return _(
            "Every stated difference in cost exceeds its 95 % interval over pairs of replications with the same seed."
        )
    return _("Within the 95 % interval the costs do not differ{at}.", at=at(part, unsure))


def _at_full_use(part: Comparison) -> str:
    """Compare the fleets at their own cheapest points, which counts where several such fleets share a load."""
    if part.sweep.single or len(part.fleets) < 2:
        return ""
    best = [
        min(fit, key=lambda point: point.number(COST) or 0.0)
        for fleet in part.fleets
        if (
            fit := [
                point for point in part.points if point.fleet == fleet and point.certainly_good and point.number(COST)
            ]
        )
    ]
    if len(best) < 2:
        return ""
    best.sort(key=lambda point: point.number(COST) or 0.0)
    parts = [f"{point.fleet} {_cost(point)} ({place(part.sweep.axis, part.sweep.value(point))})" for point in best]
    return _(
        "Lowest cost of each fleet within these limits, per million output tokens: {listing}. It applies where "
        "several such fleets share a larger load.",
        listing=listing(parts),
    )


def _validity(sweep: Sweep, points: Sequence[Point], of_year: bool) -> str:
    counts = [point.row["replications"] for point in points if point.ok]
    several = ranged(str(min(counts)), str(max(counts)))
    runs = _("{several} replications each", several=several) if max(counts) > 1 else _("one run each")
    prices = _(" and these prices") if has_money(points) else ""
    if sweep.single:
        return _("Holds for this one load ({runs}), this workload{prices}.", runs=runs, prices=prices)
    where = span(sweep.axis, sweep.values, sweep.values)
    if of_year:
        return _(
            "Holds for this load profile ({where} simulated; {runs}; hours between these loads are interpolated), this "
            "workload{prices}.",
            where=where,
            runs=runs,
            prices=prices,
        )
    return _(
        "Holds for the simulated points ({where}; {runs}), this workload{prices}. Nothing is "
        "claimed between or beyond the points.",
        where=where,
        runs=runs,
        prices=prices,
    )


def _infeasible(points: Sequence[Point]) -> list[str]:
    reasons: dict[tuple[str, str], None] = {(p.fleet, p.row["reason"]): None for p in points if not p.ok}
    return [
        _(
            "{fleet} cannot run{runs}: {reason}.",
            fleet=fleet,
            runs=_(" everywhere") if _runs(points, fleet) else "",
            reason=translate_rendered(reason),
        )
        for fleet, reason in reasons
    ]


def _runs(points: Sequence[Point], fleet: str) -> bool:
    return any(point.ok for point in points if point.fleet == fleet)


def _cost(point: Point) -> str:
    value = point.number(COST)
    return "" if value is None else cash(value)
