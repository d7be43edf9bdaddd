"""The answer about a job in sentences: who is done first, who pays least, and what stops the others."""

from collections.abc import Sequence
from dataclasses import dataclass

from sim.language import _, retold
from sim.report.words.money import cash
from sim.report.words.text import listing, percent, places, plain, ranged
from sim.study.work.job.columns import JobRow
from sim.units import HOURS_PER_DAY, SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class JobVerdict:
    """A headline and what qualifies it."""

    headline: str
    findings: tuple[str, ...]


def verdict(rows: Sequence[JobRow]) -> JobVerdict:
    """Over all *rows*: the fastest and the cheapest, then how each fleet does where it is fastest,
    how it compares with the first fleet, and what cannot be done.
    """
    able = [row for row in rows if row.ok]
    if not able:
        return JobVerdict(_("The job cannot be done on any fleet."), tuple(_unable(rows)))
    fastest = min(able, key=lambda row: float(row.cells["makespan_h"]))
    headline = _(
        "{name} is done first, after {duration}{price}.",
        name=name(fastest),
        duration=duration(fastest.cells["makespan_h"]),
        price=_for(fastest),
    )
    if len(able) == 1:
        headline = _(
            "{name} is done after {duration}{price}.",
            name=name(fastest),
            duration=duration(fastest.cells["makespan_h"]),
            price=_for(fastest),
        )
    priced = [row for row in able if row.cells.get("cost_usd") is not None]
    if len(able) > 1 and priced:
        cheapest = min(priced, key=lambda row: float(row.cells["cost_usd"]))
        if cheapest is fastest:
            headline = headline[:-1] + _(", and costs least.")
        else:
            after = duration(cheapest.cells["makespan_h"])
            headline += _(
                " {name} costs least: {cash}, after {after}.",
                name=name(cheapest),
                cash=cash(cheapest.cells["cost_usd"]),
                after=after,
            )
    best = {row.fleet: row for row in sorted(able, key=lambda row: -float(row.cells["makespan_h"]))}
    fleets = list(dict.fromkeys(row.fleet for row in able))
    findings = [*(_finding(best[fleet]) for fleet in fleets), *_ratios(able, fleets)]
    return JobVerdict(headline, (*findings, *_unable(rows)))


def name(row: JobRow) -> str:
    """The fleet and its place in the sweep."""
    at = places(tuple(row.outcome.plan.axes.items()))
    return _("{fleet} at {at}", fleet=row.fleet, at=at) if at else row.fleet


def duration(hours: float) -> str:
    """A stretch of time in the unit that people would use.

    >>> duration(0.02), duration(30.0), duration(900.0)
    ('72 s', '30 hours', '37.5 days')
    """
    if hours >= 3 * HOURS_PER_DAY:
        return _("{hours} days", hours=plain(hours / HOURS_PER_DAY))
    if hours >= 2:
        return _("{hours} hours", hours=plain(hours))
    seconds = hours * SECONDS_PER_HOUR
    return _("{seconds} minutes", seconds=plain(seconds / 60)) if seconds >= 120 else f"{plain(seconds)} s"


def _for(row: JobRow) -> str:
    usd = row.cells.get("cost_usd")
    return _(" for {cash}", cash=cash(usd)) if usd is not None else ""


def _finding(row: JobRow) -> str:
    cells, plan = row.cells, row.outcome.plan
    unit = _("tokens") if plan.run.counts_tokens else _("samples")
    speed = cells["tokens_per_s"] if plan.run.counts_tokens else cells["samples_per_s"]
    told = _(
        "{name}: {speed} {unit}/s, {percent} of the peak; steps are limited by {limit}.",
        name=name(row),
        speed=plain(speed),
        unit=unit,
        percent=percent(cells["mfu"]),
        limit=_(str(cells["limited_by"])),
    )
    wasted = (cells["lost_h"] + cells["restarting_h"] + cells["saving_h"]) / cells["makespan_h"]
    if cells["failures"]:
        failures = plain(cells["failures"], 2)
        told += _(
            " {failures} failures are expected; they and the saves take {percent} of the time.",
            failures=failures,
            percent=percent(wasted),
        )
    return told


def _ratios(rows: Sequence[JobRow], fleets: Sequence[str]) -> list[str]:
    """How many times as fast as the first fleet each other one is, where both stand at the same place of the sweep."""
    places = [{repr(row.outcome.plan.axes): row for row in rows if row.fleet == fleet} for fleet in fleets]
    found = []
    for fleet, mine in zip(fleets[1:], places[1:], strict=True):
        ratios = [_hours(places[0][at]) / _hours(row) for at, row in mine.items() if at in places[0]]
        if ratios:
            times = ranged(plain(min(ratios)), plain(max(ratios)))
            found.append(_("{fleet} is {times} times as fast as {first}.", fleet=fleet, times=times, first=fleets[0]))
    return found


def _hours(row: JobRow) -> float:
    return float(row.cells["makespan_h"])


def _unable(rows: Sequence[JobRow]) -> list[str]:
    """What cannot be done, once for all points with the same reason."""
    reasons: dict[tuple[str, str], list[JobRow]] = {}
    for row in rows:
        if not row.ok:
            reasons.setdefault((row.fleet, row.outcome.plan.infeasible), []).append(row)
    return [
        _("{fleet} cannot run{at}: {reason}.", fleet=fleet, at=_at(members), reason=retold(reason))
        for (fleet, reason), members in reasons.items()
    ]


def _at(members: Sequence[JobRow]) -> str:
    found = [places(tuple(row.outcome.plan.axes.items())) for row in members]
    return _(" at {listing}", listing=listing(found)) if any(found) else ""
