"""Wording of load, routing and service level: what fleets must reach, and whether they do.

Figures beside their limits have enough digits to distinguish the two; fleets are compared by the service level and by
the sweep values at which they meet it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from math import isclose, isfinite, nan
from typing import Any

from sim.language import N_, _
from sim.report.words.text import axis_label, commas, listing, percent, places, plain, ranged, seconds, span, steady
from sim.scenario.schema import Scenario
from sim.scenario.slo import PercentileLimit, Slo
from sim.study.comparison import Comparison
from sim.study.load_axis import LoadAxis
from sim.study.metrics.service_level import GoalAttainment, ServiceLevelAttainment, unanswered_by_ending
from sim.study.points import Point, fleets_of, service_points

SAME = 1e-12
"""Relative difference below which a mean counts as equal to its target (rounding error)."""
NAMES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "E2E"}


def exactly(share: float) -> str:
    """Format a target share with all its digits: `95.5 %`."""
    return f"{100 * share:.10g}\u00a0%"


def share_beside(share: float, target: float) -> str:
    """Format a share with enough digits to distinguish it from its *target*.

    >>> [share_beside(share, 0.95).replace(chr(160), " ") for share in (0.9496, 0.97, 0.95)]
    ['94.96 %', '97 %', '95 %']
    """
    if isclose(share, target, rel_tol=SAME):
        return exactly(target)
    text = percent(share)
    if text not in (percent(target), exactly(target)):
        return text
    for digits in count(1):
        text, other = f"{100 * share:.{digits}f}", f"{100 * target:.{digits}f}"
        if text != other and (float(text) < 100 or share >= 1):
            return f"{text}\u00a0%"
    raise AssertionError  # two different numbers always differ in some digit


def seconds_beside(value: float, limit: float) -> str:
    """Format a latency with enough digits to distinguish it from its *limit*.

    >>> seconds_beside(2.0004, 2.0), seconds_beside(1.5, 2.0)
    ('2.0004 s', '1.50 s')
    """
    return _distinct_from_limit(value, limit, seconds)


def number_beside(value: float, limit: float) -> str:
    """Format a number, without its unit, with enough digits to distinguish it from its *limit*."""
    return _distinct_from_limit(value, limit, steady)


def _distinct_from_limit(value: float, limit: float, show: Callable[[float, int], str]) -> str:
    if not isfinite(value) or isclose(value, limit, rel_tol=SAME):
        return show(value, 3)
    return next(text for digits in count(3) if (text := show(value, digits)) != show(limit, digits))


def name_of(limit: PercentileLimit) -> str:
    """Return the name of a percentile limit: `TTFT p99`."""
    return f"{NAMES[limit.latency]} p{limit.percent:g}"


def percentiles_shown(slo: Slo, latency: str) -> dict[str, float | None]:
    """Return the shown percentiles of *latency* with their limits [s].

    Percentiles that the service level names are shown; without any, the 95th with the limit of each request.
    """
    named = {f"p{one.percent:g}": one.limit_s for one in slo.percentiles if one.latency == latency}
    return dict(named) if named else {"p95": slo.per_request.get(latency)}


def latency_columns(slo: Slo) -> dict[str, str]:
    """Return the columns of the shown latencies with their headings: `ttft_s_p99`, TTFT p99."""
    names = [name for name in NAMES if name != "e2e_s" or isinstance(slo.e2e_s, dict)]
    shown = [(name, part) for name in names for part in percentiles_shown(slo, name)]
    return {f"{name}_{part}": f"{NAMES[name]} {part}" for name, part in shown}


def slo_text(slo: Slo) -> str:
    """Describe the whole service level: `95 % of the requests within TTFT 3 s and TPOT 0.1 s, TTFT p99 at most 2 s`."""
    limits = [f"{NAMES[name]} {_limit(limit_s)}" for name, limit_s in slo.per_request.items()]
    shares = (
        [_("{exactly} of the requests within {listing}", exactly=exactly(slo.attainment), listing=listing(limits))]
        if limits
        else []
    )
    return _(", ").join(
        [
            *shares,
            *(
                _("{name_of} at most {limit}", name_of=name_of(one), limit=_limit(one.limit_s))
                for one in slo.percentiles
            ),
        ]
    )


def _limit(limit_s: float) -> str:
    return f"{plain(limit_s, 9)} s"


def readings(slo: Slo, row: Mapping[str, Any]) -> list[str]:
    """Describe the attainment of each goal at a point of summary.csv, beside its target."""
    share = row.get("slo_attainment")
    lines = []
    if slo.per_request and share is not None:
        target = exactly(slo.attainment)
        lines.append(
            _(
                "{share_beside} of the requests are within its limits ({asked} asked for)",
                share_beside=share_beside(share, slo.attainment),
                asked=target,
            )
        )
    for one in slo.percentiles:
        value = row.get(one.column)
        if value is not None:
            lines.append(
                _(
                    "{name_of} is {seconds_beside} (at most {limit})",
                    name_of=name_of(one),
                    seconds_beside=seconds_beside(value, one.limit_s),
                    limit=_limit(one.limit_s),
                )
            )
    return lines


def doubt_texts(standing: ServiceLevelAttainment) -> list[str]:
    """Return the reasons why a verdict is open: goals whose limit lies within the 95 % interval, a growing queue."""
    lines = [f"{one.of}: {_doubt(one)}" if one.of else _doubt(one) for one in standing.inconclusive_goals]
    return [*lines, _("the queue seems to grow")] if standing.inconclusive_growth else lines


def why_open(standings: Sequence[ServiceLevelAttainment], interval: str) -> str:
    """Return why the verdicts of *standings* are open: *interval* where a limit lies within one, or a growing queue."""
    reasons = [_(interval)] if any(one.inconclusive_goals for one in standings) else []
    if any(one.inconclusive_growth for one in standings):
        reasons.append(_("the queue seems to grow; a longer horizon_s shows whether it does"))
    return _("; ").join(reasons)


def _doubt(one: GoalAttainment) -> str:
    value, (low, high) = one.attained.value, one.attained.interval or (nan, nan)
    if one.by_share or one.goal.percentile is None:
        return _(
            "{value} of the requests, interval {low} to {high}, {exactly} asked for",
            value=share_beside(value, one.target),
            low=share_beside(low, one.target).removesuffix("\u00a0%"),
            high=share_beside(high, one.target),
            exactly=exactly(one.target),
        )
    return _(
        "{name_of} {around}, at most {limit} asked for",
        name_of=name_of(one.goal.percentile),
        around=f"{seconds_beside(value, one.target)} ± {seconds((high - low) / 2, 2)}",
        limit=_limit(one.target),
    )


def availability_notes(slo: Slo) -> list[str]:
    """Return the note that `availability` is not judged within a simulated window; empty without such a goal."""
    if slo.availability is None:
        return []
    return [
        _(
            "The service level asks for {share} over years of failures: capacity and size answer that. Here only the "
            "failures of the simulated window count.",
            share=share_beside(slo.availability, slo.availability),
        )
    ]


def goal(part: Comparison) -> str:
    """Return the goal of the compared fleets as a verb phrase for a single fleet."""
    return goal_of_one(part.has_slo)


def goal_of_one(has_slo: bool) -> str:
    """Return the goal as a verb phrase for a single fleet: meet the SLO or, without an SLO, keep up with the load."""
    return _("meets the SLO") if has_slo else _("keeps up with the load")


def where_of(part: Comparison, values: Sequence[Any]) -> str:
    """Describe the *values* of the sweep axis."""
    return span(part.sweep.axis, values, part.sweep.values)


def at(part: Comparison, values: Sequence[Any]) -> str:
    """Return " at" and the *values* of the sweep axis; empty where there is a single point."""
    return "" if part.sweep.single else _(" at {where}", where=where_of(part, values))


def anywhere(part: Comparison) -> str:
    """Return " at any simulated point" with the values of the sweep axis; empty where there is a single point."""
    return "" if part.sweep.single else _(" at any simulated point ({where})", where=where_of(part, part.sweep.values))


def none_of(fleets: Sequence[str]) -> str:
    """Return the subject of a sentence that denies something of all *fleets*."""
    return _("Neither fleet") if len(fleets) == 2 else _("No fleet")


def comparative(part: Comparison) -> str:
    """Return "cheaper" for two fleets, "cheapest" for more."""
    return _("cheaper") if len(part.fleets) == 2 else _("cheapest")


def misses(part: Comparison, fleet: str, end: str = ".", values: Sequence[Any] = ()) -> str:
    """State that *fleet* does not meet the goal at *values* of the sweep axis; default: at any simulated point."""
    missed = _("does not meet the SLO") if part.has_slo else _("does not keep up with the load")
    where, stop = at(part, values) if values else anywhere(part), _(".") if end else ""
    return _("{fleet} {goal}{anywhere}{stop}", fleet=fleet, goal=missed, anywhere=where, stop=stop)


def goal_of_all(has_slo: bool) -> str:
    """Return the goal as a verb phrase for several fleets."""
    return _("meet the SLO") if has_slo else _("keep up")


def ranked_apart(models: Mapping[str, str]) -> str:
    """Return the note that fleets of different *models* (fleet -> model) are ranked for each model on its own."""
    return _(
        "The fleets serve different models and are ranked for each model on its own ({served}); "
        "compare: {{across_models: true}} ranks them as one product.",
        served=_models_text(models),
    )


def apart_on_charts(models: Mapping[str, str]) -> str:
    """Note beside charts whose fleets serve different *models*, fleet -> model; empty without any."""
    if not models:
        return ""
    return _("Different models ({served}): compare curves of one model only.", served=_models_text(models))


def _models_text(models: Mapping[str, str]) -> str:
    by_model: dict[str, list[str]] = {}
    for fleet, model in models.items():
        by_model.setdefault(model, []).append(fleet)
    return _("; ").join(
        _("{fleets}: {model}", fleets=listing(fleets), model=model or _("no model stated"))
        for model, fleets in by_model.items()
    )


def load_label(axis: LoadAxis) -> str:
    """Return the label of a load axis with its unit and service: `load [requests/s] of batch`."""
    label = axis_label(axis.label)
    return _("{label} of {name}", label=label, name=axis.raised) if axis.raised else label


def load_notes(scenario: Scenario) -> list[str]:
    """Return notes on which load is varied, where the scenario has several services or a chosen tenant."""
    if scenario.tenant is not None:
        lines = [_("The load is that of {tenant}; the other tenants keep their mean rates.", tenant=scenario.tenant)]
        return [*lines, *([_("The other services keep their loads, too.")] if scenario.services else [])]
    if not scenario.services:
        return []
    if scenario.service is not None:
        return [_("The load is that of {service}; the other services keep their loads.", service=scenario.service)]
    return [_("The loads of all services change in proportion; at 1x they are the scenario's own.")]


STORM = 1.1
"""Attempts per request at and above which retries are reported as a load of their own."""


def storms(points: Sequence[Point], at: Callable[[list[Point]], str]) -> str:
    """Describe where retries add to the load; empty where they do not.

    *at* describes the places of a fleet's points.
    """
    found = [
        point
        for point in points
        if (point.number("attempts_per_request") or 0.0) >= STORM
        and any(case.metrics["clients_ask"] for case in point.cases)
    ]
    lines = []
    for fleet in fleets_of(found):
        own = [point for point in found if point.fleet == fleet]
        most = max(point.number("attempts_per_request") or 0.0 for point in own)
        load = (
            N_("{fleet}: load up to {factor:.2g}x offered")
            if len(own) > 1
            else N_("{fleet}: load {factor:.2g}x offered")
        )
        lines.append(_(load, fleet=f"{fleet}{at(own)}", factor=most))
    if not lines:
        return ""
    where = _("; ").join(lines)
    return _("Retry storm: {where}. Clients retry faster than the fleet answers or recovers.", where=where)


ENDINGS = {
    "rejected": N_("{share} rejected"),
    "timed_out": N_("{share} timed out"),
    "lost": N_("{share} lost with a replica"),
}
"""Column that counts requests without an answer -> how they ended, in words."""


def unanswered(points: Sequence[Point], at: Callable[[list[Point]], str]) -> str:
    """State the shares of the requests that ended without an answer, by fleet; empty where all were answered.

    *at* describes the places of a fleet's points.
    """
    return _unanswered_sentence(unanswered_by_fleet(points, at))


def unanswered_by_fleet(points: Sequence[Point], at: Callable[[list[Point]], str] = lambda _: "") -> list[str]:
    """Return a line for each fleet with requests that ended without an answer: `a at 4 req/s (30 % rejected)`.

    Where fleets serve several services, each has its own line.
    """
    found = [one for point in points for one in service_points([point]) or [point] if one.unanswered]
    lines = []
    for fleet in fleets_of(found):
        own = [point for point in found if point.fleet == fleet]
        lines.append(f"{fleet}{at(own)} ({_endings([unanswered_by_ending([point.row]) for point in own])})")
    return lines


def unanswered_of(ends: Mapping[str, Mapping[str, float]]) -> str:
    """State the shares of requests without an answer in *ends*, fleet -> share by ending; empty where all are 0."""
    return _unanswered_sentence(
        [f"{fleet} ({_endings([shares])})" for fleet, shares in ends.items() if any(shares.values())]
    )


def _unanswered_sentence(fleets: Sequence[str]) -> str:
    return _("Requests without an answer: {fleets}.", fleets=_("; ").join(fleets)) if fleets else ""


def _endings(found: Sequence[Mapping[str, float]]) -> str:
    """List how requests ended without an answer, with the range of the shares *found* by ending."""
    ends = []
    for name, text in ENDINGS.items():
        shares = [one.get(name, 0.0) for one in found]
        if any(shares):
            ends.append(_(text, share=ranged(percent(min(shares)), percent(max(shares)))))
    return commas(ends)


def storm_notes(points: Sequence[Point]) -> list[str]:
    """Return `storms` for a table of points, as a list of at most one line."""

    def at(own: list[Point]) -> str:
        where = listing([places(list(one.axes.items())) for one in own])
        return _(" at {where}", where=where) if any(own[0].axes) else ""

    text = storms(points, at)
    return [text] if text else []


def routing_text(routing: Mapping[str, Any]) -> str:
    r"""Describe a routing policy; for a policy by length, with the pools of each class of prompts.

    >>> classes = [{"up_to_prompt_tokens": 700, "pools": {"a": 1}}, {"pools": {"a": 1, "b": 3}}]
    >>> routing_text({"policy": "by_length", "classes": classes})
    'by length: prompts of up to 700 tokens to a, longer ones to a (25\xa0%) and b (75\xa0%)'
    """
    name = _(str(routing.get("policy", "")).replace("_", " "))
    classes = list(_classes(routing.get("classes", ())))
    return f"{name}: {commas(classes)}" if classes else name


def _classes(classes: Any) -> Iterator[str]:
    for i, one in enumerate(classes):
        limit = one.get("up_to_prompt_tokens")
        if limit is None:
            which = _("longer ones") if i else _("all prompts")
        else:
            up_to = N_("those of up to {tokens} tokens") if i else N_("prompts of up to {tokens} tokens")
            which = _(up_to, tokens=plain(limit, 6))
        pools, whole = one["pools"], sum(one["pools"].values())
        shares = [f"{pool} ({percent(part / whole)})" if len(pools) > 1 else pool for pool, part in pools.items()]
        yield _("{which} to {listing}", which=which, listing=listing(shares))
