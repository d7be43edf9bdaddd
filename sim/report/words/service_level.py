"""What fleets are asked for, and whether they reach it: load, routing and service level in words.

Figures stand beside their limits with enough digits to distinguish the two; fleets are compared by the service
level and by where they reach it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from math import isclose, isfinite, nan
from typing import Any

from sim.language import N_, _
from sim.report.words.text import axis_label, commas, listing, percent, places, plain, seconds, span, steady
from sim.scenario.schema import Scenario
from sim.scenario.slo import PercentileLimit, Slo
from sim.study.comparison import Comparison
from sim.study.load_axis import LoadAxis
from sim.study.metrics.service_level import GoalAttainment, ServiceLevelAttainment
from sim.study.points import Point, fleets_of

SAME = 1e-12
"""What differs by less is a rounding error of a mean."""
NAMES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "E2E"}


def exactly(share: float) -> str:
    """A share that was asked for, with all its digits: `95.5 %`."""
    return f"{100 * share:.10g}\u00a0%"


def share_beside(share: float, target: float) -> str:
    """A share with enough digits to distinguish it from its *target*.

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
    raise AssertionError  # two numbers differ in some digit


def seconds_beside(value: float, limit: float) -> str:
    """A latency with enough digits to distinguish it from its *limit*.

    >>> seconds_beside(2.0004, 2.0), seconds_beside(1.5, 2.0)
    ('2.0004 s', '1.50 s')
    """
    return _beside(value, limit, seconds)


def number_beside(value: float, limit: float) -> str:
    """A number beside its limit, with as many digits as show the difference; the unit stands elsewhere."""
    return _beside(value, limit, steady)


def _beside(value: float, limit: float, show: Callable[[float, int], str]) -> str:
    if not isfinite(value) or isclose(value, limit, rel_tol=SAME):
        return show(value, 3)
    return next(text for digits in count(3) if (text := show(value, digits)) != show(limit, digits))


def name_of(limit: PercentileLimit) -> str:
    """`TTFT p99`."""
    return f"{NAMES[limit.latency]} p{limit.percent:g}"


def percentiles_shown(slo: Slo, latency: str) -> dict[str, float | None]:
    """Which percentiles of a latency are shown, with their limits: those that the service level names, else the 95th,
    with the limit of each request.
    """
    named = {f"p{one.percent:g}": one.limit_s for one in slo.percentiles if one.latency == latency}
    return dict(named) if named else {"p95": slo.per_request.get(latency)}


def latency_columns(slo: Slo) -> dict[str, str]:
    """Columns of the latencies that are shown, with headings: `ttft_s_p99`, TTFT p99."""
    names = [name for name in NAMES if name != "e2e_s" or isinstance(slo.e2e_s, dict)]
    shown = [(name, part) for name in names for part in percentiles_shown(slo, name)]
    return {f"{name}_{part}": f"{NAMES[name]} {part}" for name, part in shown}


def asked_for(slo: Slo) -> str:
    """The whole service level: `95 % of the requests within TTFT 3 s and TPOT 0.1 s, TTFT p99 at most 2 s`."""
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
    """What a point of summary.csv attains of each goal, beside what is asked for."""
    share = row.get("slo_attainment")
    told = []
    if slo.per_request and share is not None:
        asked = exactly(slo.attainment)
        told.append(
            _(
                "{share_beside} of the requests are within its limits ({asked} asked for)",
                share_beside=share_beside(share, slo.attainment),
                asked=asked,
            )
        )
    for one in slo.percentiles:
        value = row.get(one.column)
        if value is not None:
            told.append(
                _(
                    "{name_of} is {seconds_beside} (at most {limit})",
                    name_of=name_of(one),
                    seconds_beside=seconds_beside(value, one.limit_s),
                    limit=_limit(one.limit_s),
                )
            )
    return told


def doubts_told(standing: ServiceLevelAttainment) -> list[str]:
    """What leaves the verdict open: goals whose limit lies within the interval of what is attained, a growing queue."""
    told = [f"{one.of}: {_doubt(one)}" if one.of else _doubt(one) for one in standing.doubts]
    return [*told, _("the queue seems to grow")] if standing.outgrown else told


def why_open(standings: Sequence[ServiceLevelAttainment], interval: str) -> str:
    """Return why the verdicts of *standings* are open: *interval* where a limit lies within one, or a growing queue."""
    reasons = [_(interval)] if any(one.doubts for one in standings) else []
    if any(one.outgrown for one in standings):
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


def unjudged(slo: Slo) -> list[str]:
    """What an answer for a window does not say of the service level: a sentence, or none."""
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
    """What the fleets are asked for, of one of them."""
    return goal_of_one(part.has_slo)


def goal_of_one(has_slo: bool) -> str:
    """What a fleet is asked for: to meet the SLO, without one to keep up with the load."""
    return _("meets the SLO") if has_slo else _("keeps up with the load")


def where_of(part: Comparison, values: Sequence[Any]) -> str:
    """The *values* of the axis."""
    return span(part.sweep.axis, values, part.sweep.values)


def at(part: Comparison, values: Sequence[Any]) -> str:
    """At the *values* of the axis; empty where there is one place only."""
    return "" if part.sweep.single else _(" at {where}", where=where_of(part, values))


def anywhere(part: Comparison) -> str:
    """Nowhere among the simulated points."""
    return "" if part.sweep.single else _(" at any simulated point ({where})", where=where_of(part, part.sweep.values))


def none_of(fleets: Sequence[str]) -> str:
    """None of the *fleets*."""
    return _("Neither fleet") if len(fleets) == 2 else _("No fleet")


def comparative(part: Comparison) -> str:
    """Cheaper of two, cheapest of more."""
    return _("cheaper") if len(part.fleets) == 2 else _("cheapest")


def misses(part: Comparison, fleet: str, end: str = ".") -> str:
    """That a *fleet* reaches it nowhere."""
    missed = _("does not meet the SLO") if part.has_slo else _("does not keep up with the load")
    stop = _(".") if end else ""
    return _("{fleet} {goal}{anywhere}{stop}", fleet=fleet, goal=missed, anywhere=anywhere(part), stop=stop)


def goal_of_all(has_slo: bool) -> str:
    """What several fleets are asked for."""
    return _("meet the SLO") if has_slo else _("keep up")


def ranked_apart(models: Mapping[str, str]) -> str:
    """That fleets serve different *models*, fleet -> model, and how they are ranked together."""
    return _(
        "The fleets serve different models and are ranked for each model on its own ({served}); "
        "compare: {{across_models: true}} ranks them as one product.",
        served=_served(models),
    )


def apart_on_charts(models: Mapping[str, str]) -> str:
    """Note beside charts whose fleets serve different *models*, fleet -> model; empty without any."""
    if not models:
        return ""
    return _("Different models ({served}): compare curves of one model only.", served=_served(models))


def _served(models: Mapping[str, str]) -> str:
    by_model: dict[str, list[str]] = {}
    for fleet, model in models.items():
        by_model.setdefault(model, []).append(fleet)
    return _("; ").join(
        _("{fleets}: {model}", fleets=listing(fleets), model=model or _("no model stated"))
        for model, fleets in by_model.items()
    )


def load_label(axis: LoadAxis) -> str:
    """The axis of a load with its unit, and whose it is: `load [requests/s] of batch`."""
    label = axis_label(axis.label)
    return _("{label} of {name}", label=label, name=axis.whose) if axis.whose else label


def load_notes(scenario: Scenario) -> list[str]:
    """Whose load it is, where the scenario has several services or a chosen tenant."""
    if scenario.tenant is not None:
        told = [_("The load is that of {tenant}; the other tenants hold their mean rates.", tenant=scenario.tenant)]
        return [*told, *([_("The other services hold theirs, too.")] if scenario.services else [])]
    if not scenario.services:
        return []
    if scenario.service is not None:
        return [_("The load is that of {service}; the other services hold theirs.", service=scenario.service)]
    return [_("The loads of all services change in proportion; at 1x they are the scenario's own.")]


STORM = 1.1
"""Attempts per request from which on the repeated ones are a load of their own."""


def storms(points: Sequence[Point], at: Callable[[list[Point]], str]) -> str:
    """Where clients that ask again add to the load, empty where they do not; *at* says where points of a fleet lie."""
    found = [
        point
        for point in points
        if (point.number("attempts_per_request") or 0.0) >= STORM
        and any(case.metrics["clients_ask"] for case in point.cases)
    ]
    told = []
    for fleet in fleets_of(found):
        own = [point for point in found if point.fleet == fleet]
        most = max(point.number("attempts_per_request") or 0.0 for point in own)
        load = (
            N_("{fleet}: load up to {factor:.2g}x offered")
            if len(own) > 1
            else N_("{fleet}: load {factor:.2g}x offered")
        )
        told.append(_(load, fleet=f"{fleet}{at(own)}", factor=most))
    if not told:
        return ""
    where = _("; ").join(told)
    return _("Retry storm: {where}. Clients ask again faster than the fleet answers or recovers.", where=where)


def storm_notes(points: Sequence[Point]) -> list[str]:
    """`storms` for a table of points: a line, or none."""

    def at(own: list[Point]) -> str:
        where = listing([places(list(one.axes.items())) for one in own])
        return _(" at {where}", where=where) if any(own[0].axes) else ""

    told = storms(points, at)
    return [told] if told else []


def routing_told(routing: Mapping[str, Any]) -> str:
    r"""The policy's name; of one by length also which prompts go where.

    >>> classes = [{"up_to_prompt_tokens": 700, "pools": {"a": 1}}, {"pools": {"a": 1, "b": 3}}]
    >>> routing_told({"policy": "by_length", "classes": classes})
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
