"""Tables of collective times between and beyond their points."""

import pytest

from sim.catalogue.catalog import load_catalog
from sim.catalogue.link import AllReduceTable

CATALOG = load_catalog()


def table(*points: tuple[float, float]) -> AllReduceTable:
    sizes, times = zip(*points, strict=True)
    return AllReduceTable(source="test", kind="measured", gpus=2, bytes=sizes, time_s=times)


def test_times_are_on_straight_lines_of_logarithms() -> None:
    found = table((100.0, 1.0), (10_000.0, 4.0), (20_000.0, 4.0))
    # constant below, a factor of 2 at half of the decades, proportional above
    times = {1.0: 1, 100.0: 1, 1000.0: 2, 10_000.0: 4, 15_000.0: 4, 20_000.0: 4, 60_000.0: 12}
    assert {size: found.at(size) for size in times} == pytest.approx(times)


def test_a_longer_path_is_never_faster() -> None:
    longer = table((10.0, 3.0), (1000.0, 3.0)).no_faster_than(table((10.0, 1.0), (100.0, 4.0), (1000.0, 5.0)))
    assert longer.bytes == (10, 100, 1000)
    assert longer.time_s == pytest.approx((3, 4, 5))


def test_bulk_transfers_have_the_closest_rate_that_is_known() -> None:
    link = CATALOG.link("pcie4-x16")
    rates = {"transfer_bytes_per_s": 1.0, "measured_bytes_per_s": 2.0, "theoretical_bytes_per_s": 3.0}
    known = {
        name: link.theoretical_bytes_per_s.model_copy(update={"value": rate, "range": None})
        for name, rate in rates.items()
    }
    for place, name in enumerate(rates):
        nothing = dict.fromkeys(list(rates)[:place])
        assert link.model_copy(update=known | nothing).bulk_bytes_per_s.value == rates[name]
