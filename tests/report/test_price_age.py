"""Old prices are reported, by the dates of the catalogue and not by the clock."""

from datetime import timedelta
from pathlib import Path

import pytest

from sim.catalogue.catalog import load_catalog
from sim.report.price_age import OLD, price_age_note
from sim.scenario.reading.load import load

CATALOG = load_catalog()
DEMO = Path(__file__).parents[2] / "scenarios" / "4x4090-vs-2xa100.yaml"


def test_the_newest_price_is_that_of_some_offer() -> None:
    lists = [CATALOG.price_list(item) for item in CATALOG.ids("prices")]
    days = [offer.price.as_of for one in lists for offer in one.offers.values() if offer.price.as_of]
    assert CATALOG.newest_price() == max(days)


@pytest.mark.slow
def test_offers_older_than_half_a_year_are_counted_and_the_oldest_is_named() -> None:
    [note] = price_age_note(load(DEMO, ["fleets.0.cost.quotes={}"], catalog=CATALOG), CATALOG)
    offer = note.partition("(rtx-4090/")[2].partition(")")[0]
    day = CATALOG.offer(f"rtx-4090/{offer}").price.as_of
    assert day is not None
    assert CATALOG.newest_price() - day > OLD > timedelta(days=180)
    assert day.isoformat() in note


def test_own_prices_have_no_age() -> None:
    quotes = "{rtx-4090: 1900, workstation-4x4090: 3400, a100-80gb-pcie: 9000, workstation-2xa100-nvlink: 4000}"
    sets = [f"fleets.{i}.cost.quotes={quotes}" for i in range(2)]
    assert price_age_note(load(DEMO, sets, catalog=CATALOG), CATALOG) == []
