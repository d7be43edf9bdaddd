"""What clients that ask again make of a load, in words."""

from collections.abc import Callable, Sequence

from sim.language import N_, _
from sim.report.words.text import listing, places
from sim.study.fleets.run.point import Point, fleets_of

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
