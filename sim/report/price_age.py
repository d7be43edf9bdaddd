"""Age of the prices of a scenario, counted from the newest price in the catalogue.

It is not counted from today, so that the same scenario gives the same text on any day.
"""

from datetime import date, timedelta

from sim.catalogue.catalog import Catalog
from sim.language import _
from sim.scenario.resolving.resolve import resolve_fleet
from sim.scenario.schema import Scenario

OLD = timedelta(days=183)
"""Age from which a price counts as old."""


def price_age_note(scenario: Scenario, catalog: Catalog) -> list[str]:
    """Return a note if offers of *scenario*, before its sweep, are older than half a year; else nothing."""
    offers: dict[str, date] = {}
    for fleet in scenario.fleets:
        costs = resolve_fleet(scenario, fleet, catalog).costs
        offers |= {name: value.as_of for name, value in (costs.values if costs else {}).items() if value.as_of}
    newest = catalog.newest_price() if offers else date.min
    old = {name: day for name, day in offers.items() if newest - day > OLD}
    if not old:
        return []
    oldest = min(old, key=lambda name: (old[name], name))
    return [
        _(
            "Prices older than six months: {old} of {all}, counted from the catalogue's newest ({newest}); the "
            "oldest is from {day} ({offer}). Your own prices replace them: cost.quotes.",
            old=len(old),
            all=len(offers),
            newest=newest,
            day=old[oldest],
            offer=oldest,
        )
    ]
