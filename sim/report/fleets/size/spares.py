"""What the spares of a fleet cost, by whether they serve with the others, stand by, or are switched off."""

from typing import Any

from sim.language import N_, _, retold
from sim.report.page.page import Table
from sim.report.words.goals import share_beside
from sim.report.words.money import cash, in_code
from sim.scenario.schema import Scenario
from sim.study.fleets.size.trials import OVER_FAILURES
from sim.study.fleets.size.tried import Sizing, TriedFleet
from sim.units import HOURS_PER_MONTH

KINDS = {"hot": N_("hot"), "warm": N_("warm"), "cold": N_("cold")}


def least_serving(found: Sizing, best: TriedFleet) -> int:
    """Replicas of the hardware of *best* that the load needs without failures."""
    alike = [one for one in found.tried if one.serving == best.serving and OVER_FAILURES in (one.metrics or {})]
    return min(one.replicas for one in alike)


def spares_table(found: Sizing, scenario: Scenario) -> Table:
    """The cheapest fleet with each kind of spares, beside the winner; without rows where it has or may have none."""
    best, size = found.winner, scenario.size
    rows = []
    if best is not None and size is not None and size.spares is not None and OVER_FAILURES in (best.metrics or {}):
        least = least_serving(found, best)
        for kind in size.spares.kinds if best.total > least else ():
            mine = [one for one in found.tried if one.serving == best.serving and _kind(one) == kind]
            rows.append(_row(kind, mine, least, scenario))
    note = _("The hardware of the winner. hot: serve with the others; warm: switched on; cold: switched off.")
    heads = [
        _("kind of spares"),
        _("fleet"),
        _("number of spares"),
        in_code(_("cost [USD/month]")),
        _("share over failures"),
    ]
    return Table(_("What each kind of spares costs"), note, heads, rows, worded=(1,))


def _row(kind: str, alike: list[TriedFleet], least: int, scenario: Scenario) -> list[str]:
    met = [one for one in alike if one.status == "meets"]
    if not met:
        why = next((one.reason for one in alike if one.status == "impossible"), "")
        return [_(KINDS[kind]), retold(why) or _("none that was tried meets the service level"), "", "", ""]
    one = min(met, key=lambda one: one.usd_per_h or 0.0)
    share = (one.metrics or {}).get(OVER_FAILURES) or 0.0
    beside = share_beside(share, scenario.slo.availability or 0.0)
    return [
        _(KINDS[kind]),
        one.name,
        str(one.total - least),
        cash((one.usd_per_h or 0.0) * HOURS_PER_MONTH),
        beside,
    ]


def _kind(one: TriedFleet) -> str:
    return "hot" if one.standby is None else one.standby.kind


def spares_cells(one: TriedFleet, found: Sizing, scenario: Scenario) -> dict[str, Any]:
    """Columns of size.csv on what stands by; none where no kinds of spares are asked for."""
    if scenario.size is None or scenario.size.spares is None:
        return {}
    standby = one.standby
    return {"standing_by": standby.count if standby else None, "spare_kind": standby.kind if standby else None}
