"""Why a candidate lost, in a few words."""

from collections.abc import Mapping
from math import inf, isfinite

from sim.language import N_, _, retold
from sim.report.words.goals import percentiles_shown, seconds_beside, share_beside
from sim.report.words.text import difference, plain
from sim.scenario.schema import Scenario
from sim.scenario.sections.slo import Slo
from sim.scenario.sweep import is_deterministic
from sim.study.fleets.size.trials import OVER_FAILURES
from sim.study.fleets.size.tried import Sizing, TriedFleet

ROUNDING = 1e-6
"""Ledgers of short windows, rounded to nano-dollars, differ by less than this part for no other reason."""
LIMITS = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": N_("time in all")}


def least(one: TriedFleet) -> float:
    """What it costs, or at least costs [USD/h]."""
    return inf if one.least_usd_per_h is None else one.least_usd_per_h


def why(one: TriedFleet, found: Sizing, scenario: Scenario) -> str:
    """Return why *one* lost, in a few words, and whether that is open."""
    told = _why(one, found, scenario)
    return _("{told} (inconclusive)", told=told) if told and one.doubtful else told


def _why(one: TriedFleet, found: Sizing, scenario: Scenario) -> str:
    best = found.winner.usd_per_h if found.winner is not None else None
    if one is found.winner:
        return _("the cheapest")
    if one.status in ("impossible", "over budget"):
        return retold(one.reason)
    if one is found.nearest:
        return _("the most within the budget: {miss}", miss=miss(one, scenario))
    if one.status == "misses":
        return miss(one, scenario) + screened(one, scenario)
    if not best:
        return ""
    return compared(one, best)


def compared(one: TriedFleet, best_usd_per_h: float) -> str:
    """Its cost, or the least that it costs, over the best."""
    ratio = least(one) / best_usd_per_h
    told = _("{difference} more", difference=difference(ratio - 1)) if 1 < ratio < 1.1 else f"{plain(ratio)}x"
    told = _("as much") if abs(ratio - 1) < ROUNDING else told
    return _("costs {told}", told=told) if one.usd_per_h is not None else _("costs at least {told}", told=told)


def screened(one: TriedFleet, scenario: Scenario) -> str:
    """Marks figures that are those of the first replications alone: they have settled that the fleet misses."""
    wanted = 1 if one.fleet is None or is_deterministic(scenario, one.fleet) else scenario.replications
    done = wanted if one.replications is None else one.replications
    return "" if done >= wanted else _(" ({done} of {wanted} replications)", done=done, wanted=wanted)


def miss(one: TriedFleet, scenario: Scenario) -> str:
    """What a fleet misses, with figures; of several services those that miss theirs."""
    if not one.services:
        return _missed_by(one.metrics or {}, one.overloaded, scenario.slo)
    told = [
        _("{service}: {what}", service=each.name, what=_missed_by(fared.metrics, fared.overloaded, each.slo))
        for each in scenario.services
        if not (fared := one.services[each.name]).good
    ]
    return "; ".join(told)


def _missed_by(metrics: Mapping[str, float | None], overloaded: bool, slo: Slo) -> str:
    """What is missed of *slo*, with figures."""
    told = []
    if metrics.get("requests") == 0:
        return _("no request arrives in the window")
    for name, words in ((name, _(text)) for name, text in LIMITS.items()):
        for part, limit in percentiles_shown(slo, name).items():
            value = metrics.get(f"{name}_{part}")
            if limit is not None and value is not None and value > limit:
                told.append(
                    _(
                        "{part} {words} {seconds_beside}",
                        part=part,
                        words=words,
                        seconds_beside=seconds_beside(value, limit) if isfinite(value) else _("without end"),
                    )
                )
    attained = metrics.get("slo_attainment") if slo.per_request else None
    shown = "" if attained is None else share_beside(attained, slo.attainment)
    within = _("{shown} of the requests within the service level", shown=shown) if shown else ""
    over, wanted = metrics.get(OVER_FAILURES), slo.availability
    if over is not None and wanted is not None:
        shown = share_beside(over, wanted)
        within = _("{shown} of the requests within the service level over failures", shown=shown)
    parts = [*([_("overloaded")] if overloaded else []), *told, within]
    return _(", ").join(part for part in parts if part)


def missed(one: TriedFleet, scenario: Scenario) -> str:
    """The first limit that a fleet misses, without figures: what losers are grouped by."""
    for each in scenario.services if one.services else ():
        fared = one.services[each.name]
        if not fared.good:
            what = _first_missed(fared.metrics, fared.overloaded, each.slo)
            return _("{service}: {what}", service=each.name, what=what)
    return _first_missed(one.metrics or {}, one.overloaded, scenario.slo)


def _first_missed(metrics: Mapping[str, float | None], overloaded: bool, slo: Slo) -> str:
    if overloaded:
        return _("overloaded")
    for name, words in ((name, _(text)) for name, text in LIMITS.items()):
        for part, limit in percentiles_shown(slo, name).items():
            value = metrics.get(f"{name}_{part}")
            if limit is not None and value is not None and value > limit:
                return _("{part} {words} beyond its limit", part=part, words=words)
    if OVER_FAILURES in metrics:
        return _("too few requests within the service level over failures")
    return _("too few requests within the service level")
