"""What a site's clock and meters ask of the scenario."""

from collections.abc import Iterator

from sim.cost import Clock, ClockError, Site
from sim.cost.bill.window import DEMAND_INTERVAL_S
from sim.scenario.reading.errors import Complaint, Place
from sim.scenario.schema import Scenario


def site_complaints(scenario: Scenario) -> Iterator[Complaint]:
    """Local times that a clock does not show, time zones without any time, meters too slow for a peak."""
    sites: list[tuple[Place, Site | None]] = [(("site",), scenario.site)]
    sites += [(("fleets", i, "site"), fleet.site) for i, fleet in enumerate(scenario.fleets)]
    for place, site in sites:
        if site is None:
            continue
        if site.demand_usd_per_kw_month is not None and scenario.meter_interval_s > DEMAND_INTERVAL_S:
            text = f"must be at most {DEMAND_INTERVAL_S:g} (15 minutes), over which a demand charge averages power"
            yield Complaint(("meter_interval_s",), f"{text}, not {scenario.meter_interval_s:g}")
        if site.timezone is None:
            continue
        if scenario.starts_at is None:
            yield Complaint((*place, "timezone"), "needs starts_at: the date and local time at simulated time 0")
            continue
        try:
            Clock.of(scenario.starts_at, site.timezone)
        except ClockError as error:
            yield Complaint(("starts_at",), str(error))
