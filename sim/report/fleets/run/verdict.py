"""The answer in a sentence, where it holds, and what qualifies it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sim.report.words.goals import readings, unsure
from sim.report.words.money import cash
from sim.report.words.retries import storms
from sim.report.words.text import difference, listing, place, places, seconds, span
from sim.scenario.sections.slo import Slo
from sim.study.fleets.run.compare import COST, Comparison, Contest, comparisons_of
from sim.study.fleets.run.point import Point, fleets_of, has_money
from sim.study.fleets.run.sweep import Sweep
from sim.study.metrics.service_level import slack


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a planner may take away."""

    headline: str
    findings: tuple[str, ...]
    """Range of validity, significance, limits: one sentence or two each."""


def verdict(points: Sequence[Point], axes: Sequence[str], slo: Mapping[str, Any], notes: Sequence[str] = ()) -> Verdict:
    """Compare the fleets of a run where they meet the SLO (without one: where they keep up with the load)."""
    comparisons, level = comparisons_of(points, axes, slo), Slo.model_validate(slo)
    heads = [(f"At {places(part.setting)}: " if part.setting else "") + _headline(part, level) for part in comparisons]
    headline = " ".join(heads) if heads else "No fleet can run this."
    findings = [line for part in comparisons for line in _findings(part, level)]
    findings += _infeasible(points)
    if comparisons:
        findings.insert(0, _validity(comparisons[0].sweep, points))
    return Verdict(headline, (*findings, *notes))


def _headline(part: Comparison, slo: Slo) -> str:
    if len(part.fleets) == 1:
        return _alone(part, part.fleets[0], slo)
    if not any(part.fit(fleet) for fleet in part.fleets):
        return f"{_none(part.fleets)} {_goal(part)}{_anywhere(part)}.{_nearest(part, slo)}"
    contests = part.contests
    if not contests:
        return _by_reach(part)
    return f"{_cheapest(part, contests)} {_beyond(part)}".strip()


def _alone(part: Comparison, fleet: str, slo: Slo) -> str:
    fit = part.fit(fleet)
    if not fit:
        return f"{fleet} {_negated(_goal(part))}{_anywhere(part)}.{_nearest(part, slo)}"
    best = next(point for point in reversed(part.points) if point.good)
    cost = _cost(best)
    if part.sweep.single:
        return f"{fleet} {_goal(part)}{f' at {cost} per million output tokens' if cost else ''}."
    missed = [value for value in part.sweep.values if value not in fit]
    price = f"; a million output tokens costs {cost} at {place(part.sweep.axis, fit[-1])}" if cost else ""
    rest = f" It does not at {_where(part, missed)}." if missed else ""
    return f"{fleet} {_goal(part)} at {_where(part, fit)}{price}.{rest}"


def _by_reach(part: Comparison) -> str:
    """Without a cost, or with no place where two fleets are fit: who reaches how far, and who answers sooner there."""
    texts = []
    for fleet in part.fleets:
        fit = part.fit(fleet)
        where = "" if part.sweep.single else f" at {_where(part, fit)}" if fit else ""
        last = next((point for point in reversed(part.points) if point.fleet == fleet and point.good), None)
        cost = f" ({_cost(last)} per million output tokens)" if last and _cost(last) else ""
        texts.append(
            f"{fleet} {_goal(part)}{where}{cost}" if fit else f"{fleet} {_negated(_goal(part))}{_anywhere(part)}"
        )
    shared = [value for value in part.sweep.values if len(part.at(value)) > 1]
    if not shared:
        return f"{'; '.join(texts)}."
    ranked = sorted(part.at(shared[-1]), key=lambda point: point.number("ttft_s_p95") or 0.0)
    times = " against ".join(f"{seconds(point.number('ttft_s_p95') or 0.0)} ({point.fleet})" for point in ranked[:2])
    there = "" if part.sweep.single else f" at {place(part.sweep.axis, shared[-1])}"
    return f"{'; '.join(texts)}. Their p95 time to first token{there} is {times}."


def _cheapest(part: Comparison, contests: Sequence[Contest]) -> str:
    """Who is cheaper where: neighbouring places with the same winner are one clause."""
    decided = [contest for contest in contests if contest.certain is not False]
    winners = list(dict.fromkeys(contest.winner.fleet for contest in decided))
    if not decided:
        return (
            f"{_names(part)} cost the same per million output tokens within the 95 % interval{_shared(part, contests)}."
        )
    won = {winner: [contest for contest in decided if contest.winner.fleet == winner] for winner in winners}
    if len(winners) > 2:
        won_at = [f"{winner} at {_where(part, [one.value for one in ones])}" for winner, ones in won.items()]
        return f"Cheapest per million output tokens among those that {_verb(part)}: {'; '.join(won_at)}."
    clauses = []
    for winner, ones in won.items():
        whole = len(ones) == len(contests)
        where = _shared(part, contests) if whole else f" at {_where(part, [contest.value for contest in ones])}"
        clauses.append(f"{winner} is {_comparative(part)} per million output tokens{where}: {_quote(part, ones[-1])}")
    return "; ".join(clauses) + "."


def _quote(part: Comparison, contest: Contest) -> str:
    low, high = contest.winner.number(COST) or 0.0, contest.second.number(COST) or 0.0
    there = "" if part.sweep.single else f" at {place(part.sweep.axis, contest.value)}"
    less = f" ({difference(1 - low / high)} less)" if high > low else ""
    return f"{cash(low)} against {cash(high)}{there}{less}"


def _shared(part: Comparison, contests: Sequence[Contest]) -> str:
    several = "both" if len(part.fleets) == 2 else "two or more"
    if part.sweep.single:
        return f", and {several} {_verb(part)}"
    return f" wherever {several} {_verb(part)} ({_where(part, [contest.value for contest in contests])})"


def _nearest(part: Comparison, slo: Slo) -> str:
    """The point that lacks least of what is asked for, where none has enough."""
    if not slo.goals:
        return ""
    best = max(part.points, key=lambda point: slack(slo, [case.metrics for case in point.cases]))
    there = "" if part.sweep.single else f" at {place(part.sweep.axis, part.sweep.value(best))}"
    attained = readings(slo, best.row)
    return f" It comes nearest with {best.fleet}{there}: {', '.join(attained)}." if attained else ""


def _verb(part: Comparison) -> str:
    return "meet the SLO" if part.has_slo else "keep up"


def _beyond(part: Comparison) -> str:
    """Where one fleet alone, or none, meets the SLO."""
    texts = []
    for fleet in part.fleets:
        alone = [value for value in part.sweep.values if [point.fleet for point in part.at(value)] == [fleet]]
        if alone:
            texts.append(f"At {_where(part, alone)} only {fleet} {_goal(part)}.")
    nowhere = [value for value in part.sweep.values if not part.at(value)]
    if nowhere:
        texts.append(f"At {_where(part, nowhere)} {_none(part.fleets).lower()} does.")
    return " ".join(texts)


def _findings(part: Comparison, slo: Slo) -> list[str]:
    lead = f"At {places(part.setting)}: " if part.setting else ""
    found = [_reach(part, fleet) for fleet in part.fleets if not part.sweep.single]
    found.append(_unsure(part, slo))
    found.append(_significance(part))
    found.append(_at_full_use(part))
    overloaded = [point for point in part.points if point.row["overloaded"]]
    if overloaded:
        names = [
            f"{fleet}{_at(part, [part.sweep.value(point) for point in overloaded if point.fleet == fleet])}"
            for fleet in fleets_of(overloaded)
        ]
        found.append(
            f"Overloaded: {'; '.join(names)}. Latencies there grow with the simulated time and are no steady values."
        )
    found.append(storms(part.points, lambda own: _at(part, [part.sweep.value(point) for point in own])))
    return [lead + line for line in found if line]


def _reach(part: Comparison, fleet: str) -> str:
    """How far the fleet goes, what a token costs there and what stops it."""
    points = [point for point in part.points if point.fleet == fleet]
    fit = [point for point in points if point.good]
    missed = [point for point in points if not point.good]
    if not fit:
        return f"{fleet} {_negated(_goal(part))}{_anywhere(part)}."
    last = fit[-1]
    cost = f", {_cost(last)} per million output tokens there" if _cost(last) else ""
    numeric = part.sweep.numeric and missed and part.sweep.x(missed[0]) > part.sweep.x(last)
    edge = (
        f" (the limit lies between that and {place(part.sweep.axis, part.sweep.value(missed[0]))})" if numeric else ""
    )
    return f"{fleet} {_goal(part)}{_at(part, [part.sweep.value(point) for point in fit])}{edge}{cost}."


def _unsure(part: Comparison, slo: Slo) -> str:
    """Where a limit of the service level lies within the interval of what is attained."""
    told = []
    for point in part.points:
        doubts = unsure(slo, point.row)
        if doubts:
            told.append(f"{point.fleet}{_at(part, [part.sweep.value(point)])} ({'; '.join(doubts)})")
    if not told:
        return ""
    why = "the 95 % interval contains the target; more replications narrow it"
    return f"Inconclusive whether {listing(told)} {_goal(part)}: {why}."


def _significance(part: Comparison) -> str:
    contests = part.contests
    if not contests:
        return ""
    if all(contest.certain is None for contest in contests):
        return "One run each: the costs carry no interval."
    unsure = [contest.value for contest in contests if not contest.certain]
    if not unsure:
        return "Wherever it is stated, the difference in cost exceeds its 95 % interval (replications paired by seed)."
    return f"Within the 95 % interval the costs do not differ{_at(part, unsure)}."


def _at_full_use(part: Comparison) -> str:
    """Each fleet at its own cheapest fit point: what counts when one buys as many as the load needs."""
    if part.sweep.single or len(part.fleets) < 2:
        return ""
    best = [
        min(fit, key=lambda point: point.number(COST) or 0.0)
        for fleet in part.fleets
        if (fit := [point for point in part.points if point.fleet == fleet and point.good and point.number(COST)])
    ]
    if len(best) < 2:
        return ""
    best.sort(key=lambda point: point.number(COST) or 0.0)
    parts = [f"{point.fleet} {_cost(point)} ({place(part.sweep.axis, part.sweep.value(point))})" for point in best]
    return (
        f"Each at its own cheapest point within these limits, per million output tokens: {listing(parts)}. "
        "This counts where a larger load is shared by several such fleets."
    )


def _validity(sweep: Sweep, points: Sequence[Point]) -> str:
    counts = [point.row["replications"] for point in points if point.ok]
    several = " to ".join(map(str, dict.fromkeys((min(counts), max(counts)))))
    runs = f"{several} replications each" if max(counts) > 1 else "one run each"
    prices = " and these prices" if has_money(points) else ""
    if sweep.single:
        return f"Holds for this one load ({runs}), this workload{prices}."
    where = span(sweep.axis, sweep.values, sweep.values)
    return (
        f"Holds for the simulated points ({where}; {runs}), this workload{prices}. "
        "Nothing is claimed between or beyond the points."
    )


def _infeasible(points: Sequence[Point]) -> list[str]:
    reasons: dict[tuple[str, str], None] = {(p.fleet, p.row["reason"]): None for p in points if not p.ok}
    return [
        f"{fleet} cannot run{' everywhere' if _runs(points, fleet) else ''}: {reason}." for fleet, reason in reasons
    ]


def _runs(points: Sequence[Point], fleet: str) -> bool:
    return any(point.ok for point in points if point.fleet == fleet)


def _goal(part: Comparison) -> str:
    return "meets the SLO" if part.has_slo else "keeps up with the load"


def _where(part: Comparison, values: Sequence[Any]) -> str:
    """The *values* of the axis."""
    return span(part.sweep.axis, values, part.sweep.values)


def _at(part: Comparison, values: Sequence[Any]) -> str:
    return "" if part.sweep.single else f" at {_where(part, values)}"


def _anywhere(part: Comparison) -> str:
    return "" if part.sweep.single else f" at any simulated point ({_where(part, part.sweep.values)})"


def _names(part: Comparison) -> str:
    return listing(part.fleets)


def _none(fleets: Sequence[str]) -> str:
    return "Neither fleet" if len(fleets) == 2 else "No fleet"


def _comparative(part: Comparison) -> str:
    return "cheaper" if len(part.fleets) == 2 else "cheapest"


def _negated(goal: str) -> str:
    verb, _, rest = goal.partition(" ")
    return f"does not {verb.rstrip('s')} {rest}"


def _cost(point: Point) -> str:
    value = point.number(COST)
    return "" if value is None else cash(value)
