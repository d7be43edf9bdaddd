"""Racks shared by all servers of a fleet: packings worked by hand, and the fewest racks by trying everything."""

from functools import cache
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from sim.catalogue.catalog import load_catalog
from sim.catalogue.server import Server
from sim.catalogue.value import Value
from sim.cost.cost_plan import Cost, costs_by_pool, resolve_costs
from sim.cost.finance import Finance
from sim.cost.hardware import PoolFacts, group_hardware
from sim.cost.hosting import ServerKind, racks_needed
from sim.cost.prices import CostError
from sim.cost.site import Site

RACK = {"per": "rack", "usd_per_month": 1000, "power_limit_kw": 20, "count": "whole"}


def value(number):
    return Value(value=number, source="test", kind="quoted")


def pool(name, servers, units, kw, gpus=8):
    """*servers* of a kind of their own, full of GPUs."""
    server = Server(
        id=f"server-{name}", name=name, gpu_slots=value(gpus), link="pcie", psu_efficiency=value(1.0),
        rack_units=None if units is None else value(units),
    )  # fmt: skip
    return PoolFacts(name, "gpu", gpus, servers, server, nameplate_w=1000.0 * kw, gpu_tdp_w=100.0)


def racks(pools, **hosting):
    """Rack-months per month of every pool."""
    site = Site.model_validate({"electricity_usd_per_kwh": 0.1, "pue": 1.0, "hosting": RACK | hosting})
    charges = site.charges(group_hardware(pools, share=False))
    return [pytest.approx(one.units_per_h * 730) for one in charges if one.component == "hosting"]


def test_kinds_that_share_racks_need_fewer():
    # Racks of 42 units and 20 kW. 3 servers of 10U and 5 kW and 2 of 4U and 9 kW: each kind fills one rack (30U, 15 kW)
    # and (8U, 18 kW). Together 38U and 33 kW need two racks by power: they fit as (2 + 1) and (1 + 1).
    pools = pool("tall", 3, 10, 5), pool("hot", 2, 4, 9)
    # of 33 kW 15 are drawn by the tall ones, which pay that part of two racks
    assert racks(pools) == [2 * 15 / 33, 2 * 18 / 33]
    # One hot server with 10U of network gear in each rack: (32U, 20 kW) still hold the same two ways.
    assert racks(pools, reserved_units=10) == [2 * 15 / 33, 2 * 18 / 33]
    # By fraction the scarcer of height (38/42) and power (33/20) is paid.
    assert racks(pools, count="fraction") == [15 / 20, 18 / 20]
    # In racks of 100 kW height is: 30U and 8U of 42.
    assert racks(pools, count="fraction", power_limit_kw=100) == [30 / 42, 8 / 42]


def test_servers_left_alone_in_a_rack_round_up_once():
    # A quarter of a rack each: one rack for both kinds.
    assert racks([pool("a", 1, 10, 5), pool("b", 1, 10, 5)]) == [0.5, 0.5]


def test_how_many_fit_by_height_and_by_power():
    # 8U: five in 42 units, four in 36; 3.9 kW: five in 20 kW
    assert racks([pool("a", 5, 8, 3.9)]) == [1]
    assert racks([pool("a", 5, 8, 3.9)], reserved_units=6) == [2]
    assert racks([pool("a", 5, 8, 4.1)]) == [2]
    assert racks([pool("a", 5, 8, 3.9)], units=48) == [1]


def test_servers_per_rack_replaces_heights():
    assert racks([pool("a", 3, 40, 5)], servers_per_rack=3) == [1]
    assert racks([pool("a", 3, None, 5)], servers_per_rack=2, count="fraction") == [1.5]
    assert racks([pool("a", 1, None, 5), pool("b", 1, None, 5)], servers_per_rack=2) == [0.5, 0.5]


def test_first_fit_decreasing_is_not_the_last_word():
    # One of each kind takes 9/10 of a rack's height and of its power, so two racks hold two of each. First fit puts
    # both of the first kind into one rack (all of its power), both of the second into the next, and opens a third.
    assert racks_needed((ServerKind(2, 0.3, 0.5), ServerKind(2, 0.4, 0.3), ServerKind(2, 0.2, 0.1))) == 2


@cache
def by_trying(left, space, power, kinds):
    """Fewest racks by depth-first search: fill the open rack in every way, then open the next."""
    if not any(left):
        return 0
    best = sum(left)
    for index, (units, kw) in enumerate(kinds):
        if left[index]:
            after = (*left[:index], left[index] - 1, *left[index + 1 :])
            if units <= space and kw <= power:
                best = min(best, by_trying(after, space - units, power - kw, kinds))
            elif (space, power) != (20, 20):
                best = min(best, 1 + by_trying(after, 20 - units, 20 - kw, kinds))
    return best


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 20), st.integers(1, 20)),
        min_size=1,
        max_size=3,
        unique_by=lambda k: k[1:],
    )
)
def test_no_other_packing_needs_fewer(servers):
    counts, kinds = tuple(n for n, *_ in servers), tuple((units, kw) for _, units, kw in servers)
    fewest = 1 + by_trying(counts, 20, 20, kinds)
    assert racks_needed(tuple(ServerKind(n, units / 20, kw / 20) for n, units, kw in servers)) == fewest


def test_thousands_of_servers_are_packed_at_once():
    # 100,000 servers of 8U and 50,000 of 2U are 900,000 units, in racks of 42 that five of 8U and one of 2U fill
    assert racks_needed((ServerKind(100_000, 8 / 42, 0.1), ServerKind(50_000, 2 / 42, 0.1))) == ceil(900_000 / 42)


def test_pools_that_are_paid_for_differently_share_the_same_racks():
    site = {"electricity_usd_per_kwh": 0.1, "pue": 1.0, "hosting": RACK}
    finance = {"method": "straight_line", "life_years": 3}
    ways = [
        TypeAdapter(Cost).validate_python({"acquisition": "buy", "quotes": {"gpu": usd, f"server-{name}": 0}})
        for name, usd in (("a", 1000), ("b", 2000))
    ]

    def hosting(section):
        def priced(way, pools, others):
            return resolve_costs(
                way, Site.model_validate(section), TypeAdapter(Finance).validate_python(finance), pools,
                lambda item: None, others=others,
            )  # fmt: skip

        plan = costs_by_pool(ways, [pool("a", 1, 10, 5), pool("b", 1, 10, 15)], priced)
        return sum(one.units_per_h * 730 for one in plan.charges if one.component == "hosting")

    assert hosting(site) == pytest.approx(1)  # one rack for both
    contracted = {"per": "kw_month", "usd": 200, "kw": 30}
    assert hosting(site | {"hosting": contracted}) == pytest.approx(30)  # not 30 kW for each way of paying


def test_all_servers_that_fit_no_rack_are_reported():
    pools = [pool("tall", 1, 40, 5), pool("hot", 1, 4, 25), pool("odd", 1, None, 5)]
    with pytest.raises(CostError) as caught:
        racks(pools, reserved_units=4)
    assert [one.text for one in caught.value.problems] == [
        "server-tall takes 40 rack units, a rack has 38 free",
        "server-hot draws up to 25 kW, a rack gives 20",
        "the height of server-odd is not known: add rack_units to data/servers/server-odd.yaml, "
        "or state servers_per_rack",
    ]
    for wrong, says in (
        ({"reserved_units": 42}, "below units"),
        ({"servers_per_rack": 2, "units": 40}, "servers_per_rack replaces units"),
    ):
        with pytest.raises(ValidationError, match=says):
            racks(pools, **wrong)


def test_every_server_of_the_catalogue_has_a_height():
    catalog = load_catalog()
    assert [name for name in catalog.ids("servers") if catalog.server(name).rack_units is None] == []
