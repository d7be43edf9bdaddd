"""A plan knows what exists: it serves, is sold in the best month, and new units or an API stand beside it."""

from collections.abc import Sequence
from dataclasses import replace
from math import fsum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.catalogue.catalog import load_catalog
from sim.cost.metering import MeteredWindow
from sim.records import Interval
from sim.scenario.schema import Scenario
from sim.study import plan as planning
from sim.study.capacity import FleetCapacity
from sim.study.plan import FleetPlanOutlook, api_outlook, existing_units, outlook
from sim.study.plan_cash import MOST_COMBINATIONS, RowsOf, SalePlan, best_sales
from sim.study.plan_units import HeldUnits, Quantities

CATALOG = load_catalog()
TOKENS = (100.0, 100.0)
FIXED = {"distribution": "fixed", "value": 100}
POOL = {"gpu": "rtx-4090", "replicas": 2, "server": "workstation-4x4090"}
OLD_USD, NEW_USD = 2400.0, 6000.0
"""Price of one unit: two cards and their server [USD]."""
CAPACITY = {"old": 2.0, "new": 5.0, "rented": 2.0}
KW = {"old": 1.0, "new": 1.5, "rented": 1.0}
"""Power of a unit at its capacity; half of it without load [kW]."""


def bought(name: str, usd: float) -> dict[str, Any]:
    cost = {"acquisition": "buy", "quotes": {"rtx-4090": usd / 4, "workstation-4x4090": usd / 2}}
    return {"name": name, "pools": [POOL], "cost": cost}


BASIS: dict[str, Any] = {
    "name": "existing",
    "model": "llama3.1-8b",
    "workload": {"arrivals": {"process": "poisson", "rate_rps": 2}, "lengths": {"prompt": FIXED, "output": FIXED}},
    "horizon_s": 60,
    "slo": {"ttft_s": 2},
    "fleets": [
        bought("old", OLD_USD),
        bought("new", NEW_USD),
        {"name": "rented", "pools": [POOL], "cost": {"acquisition": "rent", "quotes": {"rtx-4090": 1.0}}},
    ],
    "site": {"electricity_usd_per_kwh": 0.1, "pue": 1},
    "finance": {"method": "straight_line", "life_years": 1, "residual_fraction": 0},
    "plan": {"years": 0.5, "starts": "2027-01"},
}
THREE_OLD_MONTHS = {"fleet": "old", "units": 1, "bought": "2026-10"}


def scenario(plan: dict[str, Any], **changes: Any) -> Scenario:
    return Scenario.model_validate(BASIS | changes | {"plan": BASIS["plan"] | plan})


def hour(kw: float, requests: float, cached: float = 0) -> MeteredWindow:
    read = round(requests * TOKENS[0])
    metered = Interval("rtx-4090", "workstation-4x4090", 0, "serving", 0, 3600, gpu_s=7200)
    metered.prompt_tokens, metered.cached_tokens = round(read * (1 - cached)), round(read * cached)
    metered.server_energy_j = metered.idle_energy_j = 3.6e6 * kw
    return MeteredWindow(1.0, {"rtx-4090": [metered]})


def measured(cached: float = 0.0) -> dict[str, Quantities]:
    """Straight from half of a unit's power to all of it."""
    return {
        name: Quantities((0.0, most), (hour(KW[name] / 2, 0), hour(KW[name], 3600 * most, cached)), (0.0, most))
        for name, most in CAPACITY.items()
    }


def held_in(wanted: Scenario, capacities: dict[str, float] | None = None) -> tuple[HeldUnits, ...]:
    found = {name: FleetCapacity(name, most, None, ()) for name, most in (CAPACITY | (capacities or {})).items()}
    return existing_units(wanted, CATALOG, found, measured())


def planned(wanted: Scenario, fleet: str, held: tuple[HeldUnits, ...] | None = None) -> FleetPlanOutlook:
    asked, position = wanted.plan, list(CAPACITY).index(fleet)
    assert asked is not None
    capacity = FleetCapacity(fleet, CAPACITY[fleet], None, ())
    around = held_in(wanted) if held is None else held
    return outlook(wanted, asked, wanted.fleets[position], CATALOG, capacity, measured()[fleet], TOKENS, 2.0, around)


def sold(one: FleetPlanOutlook) -> list[int]:
    return [held.sold for held in one.held]


def test_units_stay_as_long_as_they_are_cheaper_than_rent() -> None:
    """A unit that loses $200 of value a month, against a rent of 2 x 730 $ and then against one of 2 x 0.05 x 730."""
    demand = {"monthly": [2, 2, 2, 0, 0, 0]}
    wanted = scenario({"demand": demand, "existing": [THREE_OLD_MONTHS]})
    dear = planned(wanted, "rented")
    assert sold(dear) == [3]  # when nobody needs it any more
    # $2,400 over 12 months: half of it is left at the age of six; 1 kW for three months, then nothing
    assert [row.resale_usd for row in dear.rows] == pytest.approx([0, 0, 0, 1200, 0, 0, 0])
    assert dear.total_usd == pytest.approx(3 * 730 * 0.1 - 1200)
    assert [row.in_service for row in dear.months] == [1, 1, 1, 0, 0, 0]
    assert [row.retired for row in dear.months] == [0, 0, 0, 1, 1, 1]
    assert dear.bought == 0

    fleets = [
        *BASIS["fleets"][:2],
        BASIS["fleets"][2] | {"cost": {"acquisition": "rent", "quotes": {"rtx-4090": 0.05}}},
    ]
    cheap = planned(scenario({"demand": demand, "existing": [THREE_OLD_MONTHS]}, fleets=fleets), "rented")
    assert sold(cheap) == [0]
    assert cheap.total_usd == pytest.approx(3 * 730 * 2 * 0.05 - 1800)  # a rent includes the electricity


def test_a_life_ends_and_the_next_unit_is_ordered_in_time() -> None:
    """Nine months old: three are left, and an order takes two. The book value falls from 900 to nothing with them."""
    entry = THREE_OLD_MONTHS | {"bought": "2026-04", "book_value_usd": 900}
    one = planned(scenario({"lead_time_months": 2, "existing": [entry]}), "old")
    assert sold(one) == [3]
    assert [row.ordered for row in one.months] == [0, 1, 0, 0, 0, 0]
    assert [row.owned for row in one.months] == [1] * 6
    assert not one.short
    assert one.rows[3].resale_usd == one.rows[3].gain_usd == 0


def test_gain_over_book_value_is_reported_and_moves_no_cash() -> None:
    """Sold at once for 9/12 of $2,400 each: two of them for 3,600, which stood for 4,000 or for 100 in the books."""
    demand = {"monthly": [0] * 6}
    two = THREE_OLD_MONTHS | {"units": 2}
    plain = planned(scenario({"demand": demand, "existing": [two]}), "new")
    for book_usd, gain_usd in ((4000, -400), (100, 3500)):
        one = planned(scenario({"demand": demand, "existing": [two | {"book_value_usd": book_usd}]}), "new")
        assert sold(one) == sold(plain) == [0]
        assert [row.net_usd for row in one.rows] == [row.net_usd for row in plain.rows]
        assert [row.gain_usd for row in one.rows] == pytest.approx([gain_usd] + [0] * 6)
    (held,) = held_in(scenario({"existing": [THREE_OLD_MONTHS | {"book_value_usd": 900}]}))
    # 900 falls by 100 a month, the value by 200
    assert [held.gain_usd(month) for month in (0, 3, 9)] == pytest.approx([900, 600, 0])


def test_property_tax_and_insurance_follow_a_stated_book_value() -> None:
    entry = THREE_OLD_MONTHS | {"units": 2, "book_value_usd": 1800}
    taxed = {"operations": {name: {"fraction_of_value_per_year": 0.12} for name in ("property_tax", "insurance")}}
    plan = {"existing": [entry, THREE_OLD_MONTHS], "demand": {"now": 6.0}}
    rows = planned(scenario(plan, **taxed), "old").months
    # 1,800 fall to nothing in 9 months; the price of another unit, 2,400, in 12, of which three have passed
    due = [0.01 * (1800 * (9 - month) / 9 + 2400 * (9 - month) / 12) for month in range(6)]
    for name in taxed["operations"]:
        assert [row.opex_usd[name] for row in rows] == pytest.approx(due)


def test_the_price_then_is_todays_by_the_plans_decline() -> None:
    """A year old at 20 % a year: it cost 1/0.8 of today's price, keeps 0.6 of that, and never more than a new one."""
    old = {"fleet": "old", "units": 1, "bought": "2026-01"}
    finance = {"method": "straight_line", "life_years": 3, "resale": {"by_age": {1: 0.6, 3: 0.6}}}
    (held,) = held_in(scenario({"existing": [old], "price_decline_per_year": 0.2}, finance=finance))
    assert held.resale_usd(0) == pytest.approx(0.6 * OLD_USD / 0.8)
    assert held.resale_usd(24) == pytest.approx(min(0.6 / 0.8, 0.64) * OLD_USD)


def test_kinds_share_the_load_by_capacity_and_each_pays_for_its_own() -> None:
    """3 of 2 req/s and one of 5 in all 11; at 9.9 each runs at 90 % of its capacity and 95 % of its power."""
    entry = THREE_OLD_MONTHS | {"units": 3}
    wanted = scenario({"demand": {"monthly": [9.9] * 6}, "existing": [entry], "peak_to_mean": 1.1})
    one = planned(wanted, "new")
    row = one.months[0]
    assert (row.existing, row.owned - row.existing, row.ordered) == (3, 1, 1)
    assert row.capacity == pytest.approx(11)
    assert row.utilisation == pytest.approx(0.9)
    assert row.requests == pytest.approx(9.9 * 730 * 3600)
    assert row.opex_usd["energy"] == pytest.approx(730 * 0.1 * (3 * 0.95 * 1.0 + 0.95 * 1.5))


ENTRIES = st.lists(
    st.fixed_dictionaries(
        {
            "fleet": st.sampled_from(["old", "new"]),
            "units": st.integers(1, 3),
            "bought": st.sampled_from(["2026-03", "2026-08", "2026-12", "2027-01"]),
        }
    ),
    min_size=1,
    max_size=2,
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    entries=ENTRIES,
    demand=st.lists(st.just(0.0) | st.floats(0.01, 20), min_size=6, max_size=6),
    peak=st.floats(1, 3),
    reserve=st.integers(0, 2),
    fleet=st.sampled_from(["old", "new", "rented"]),
    decline=st.floats(-0.2, 0.5),
)
def test_capacity_covers_the_peak_and_rows_sum_to_totals(
    entries: list[dict[str, Any]], demand: list[float], peak: float, reserve: int, fleet: str, decline: float
) -> None:
    terms = {"demand": {"monthly": demand}, "peak_to_mean": peak, "reserve_units": reserve, "existing": entries}
    one = planned(scenario(terms | {"price_decline_per_year": decline, "discount_rate": 0.1}), fleet)
    units = sum(entry["units"] for entry in entries)
    for row in one.months:
        standing = [held for held in one.held if held.serves(row.month)]
        mine = row.in_service - row.existing
        each = [CAPACITY[held.kind.fleet] for held in standing for _ in range(held.units)] + [CAPACITY[fleet]] * mine
        assert row.capacity == pytest.approx(fsum(each))
        spared = sorted(each)[: max(0, len(each) - reserve)] if reserve else each
        assert fsum(spared) >= row.peak * (1 - 1e-8)
        assert row.meets_slo
        assert row.requests == pytest.approx(row.demand * 730 * 3600)
        assert units + sum(done.ordered for done in one.rows[: row.month + 1]) == row.on_order + row.owned + row.retired
    paid = fsum(
        fsum(
            [*row.capex_usd.values(), *row.opex_usd.values(), row.rental_usd, row.decommissioning_usd, -row.resale_usd]
        )
        for row in one.rows
    )
    assert one.total_usd == pytest.approx(paid, abs=1e-6)
    assert sum(row.existing_sold for row in one.rows) == units
    assert one.rows[-1].existing == 0


def plan_selling(months: Sequence[int]) -> Any:
    """Substitute for `best_sales`: the plan with these months of sale."""

    def sales(held: Sequence[HeldUnits], plan_months: int, rows_of: RowsOf) -> SalePlan:
        chosen = tuple(replace(one, sold=month) for one, month in zip(held, months, strict=True))
        return SalePlan(chosen, rows_of(chosen))

    return sales


@pytest.mark.slow
@pytest.mark.parametrize("fleet", ["old", "new", "rented"])
@pytest.mark.parametrize("lead", [0, 2])
def test_no_other_months_of_sale_cost_less(fleet: str, lead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [THREE_OLD_MONTHS | {"units": 2}, {"fleet": "new", "units": 1, "bought": "2026-05"}]
    demand = {"monthly": [9, 4, 6, 6, 2, 2]}
    wanted = scenario({"demand": demand, "existing": entries, "lead_time_months": lead, "discount_rate": 0.2})
    best = planned(wanted, fleet)
    lacking = fsum(row.shortfall for row in best.rows)
    for first in range(7):
        for second in range(5):
            monkeypatch.setattr(planning, "best_sales", plan_selling((first, second)))
            other = planned(wanted, fleet)
            assert fsum(row.shortfall for row in other.rows) >= lacking - 1e-4
            if fsum(row.shortfall for row in other.rows) <= lacking + 1e-4:
                assert best.present_usd <= other.present_usd + 1e-4


@pytest.mark.slow
def test_sales_of_many_groups_are_locally_optimal() -> None:
    """More ways than are tried together: still no single group's other month costs less."""
    entries = [THREE_OLD_MONTHS | {"bought": month} for month in ("2026-05", "2026-08", "2026-10", "2026-12")]
    wanted = scenario({"demand": {"monthly": [8, 7, 6, 4, 2, 1]}, "existing": entries, "discount_rate": 0.1})
    held = held_in(wanted)
    assert MOST_COMBINATIONS < 5 * 7 * 7 * 7
    tried: dict[tuple[int, ...], float] = {}

    def rows_of(chosen: tuple[HeldUnits, ...]) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(planning, "best_sales", plan_selling([one.sold for one in chosen]))
            one = planned(wanted, "rented", held)
        tried[tuple(sold(one))] = one.present_usd
        return one.rows

    best = best_sales(held, 6, rows_of)
    months = [one.sold for one in best.held]
    for place, one in enumerate(held):
        for month in range(min(one.ends, 6) + 1):
            other = (*months[:place], month, *months[place + 1 :])
            assert tried[tuple(months)] <= tried[other] + 1e-4


def test_what_serves_nothing_is_sold_at_once_and_what_has_no_limit_cannot_be_planned() -> None:
    wanted = scenario({"existing": [THREE_OLD_MONTHS]})
    assert sold(planned(wanted, "new", held_in(wanted, {"old": 0.0}))) == [0]
    one = planned(wanted, "new", held_in(wanted, {"old": float("inf")}))
    assert one.reason == "existing old: one unit meets the service level at every load that was tried"


API = {"input": 1.0, "output": 2.0, "cached_discount": 0.5}
SECONDS = 730 * 3600


def api_plan(wanted: Scenario, cached: float = 0.0) -> FleetPlanOutlook:
    (one,) = api_outlook(wanted, CATALOG, measured(cached), held_in(wanted))
    return one


def test_the_api_is_paid_by_tokens_in_arrears_with_its_inflation() -> None:
    rates = {"discount_rate": 0.12, "inflation": {"api": 0.1}, "general_inflation": 0.1}
    finance = {"method": "annuity", "life_years": 1, **rates}
    one = api_plan(scenario({"demand": {"monthly": [3] * 6}}, api=API, finance=finance))
    first_usd = 3 * SECONDS * (100 * 1 + 100 * 2) / 1e6
    paid = [first_usd * 1.1 ** (month / 12) for month in range(6)]
    assert [row.opex_usd["api"] for row in one.months] == pytest.approx(paid)
    assert one.present_usd == pytest.approx(sum(usd / 1.12 ** ((m + 1) / 12) for m, usd in enumerate(paid)))
    assert one.output_tokens == pytest.approx(6 * 3 * SECONDS * 100)
    # a price that rises with general inflation is level in today's money, but for the month until it is paid
    assert one.real_levelised_usd_per_million_output_tokens == pytest.approx(3 / 1.1 ** (1 / 12))
    assert not one.short
    assert list(api_outlook(scenario({}), CATALOG, measured())) == []


def test_tokens_in_a_prefix_cache_are_cheaper_at_the_api_too() -> None:
    one = api_plan(scenario({"demand": {"monthly": [3] * 6}}, api=API), cached=0.4)
    assert one.months[0].opex_usd["api"] == pytest.approx(3 * SECONDS * (100 * (0.6 + 0.4 / 2) + 100 * 2) / 1e6)


def test_existing_units_take_the_part_of_the_traffic_that_they_can_carry_in_its_peaks() -> None:
    """Two of 2 req/s under a peak of 8 take half of it: of the mean of 4, 2 req/s; the API the other half."""
    dear = {"input": 50.0, "output": 100.0}
    entry = THREE_OLD_MONTHS | {"units": 2}
    wanted = scenario({"demand": {"monthly": [4] * 6}, "peak_to_mean": 2, "existing": [entry]}, api=dear)
    one = api_plan(wanted)
    assert sold(one) == [6]
    row = one.months[0]
    assert (row.served, row.elsewhere, row.utilisation) == (2, 2, 0.5)
    assert row.opex_usd["api"] == pytest.approx(2 * SECONDS * (100 * 50 + 100 * 100) / 1e6)
    assert row.opex_usd["energy"] == pytest.approx(2 * 0.75 * 730 * 0.1)
    assert row.output_tokens == pytest.approx(4 * SECONDS * 100)
    assert sold(api_plan(scenario({"existing": [entry]}, api={"input": 0.0, "output": 0.0}))) == [0]


def test_closed_loop_has_no_api_plan() -> None:
    loop = {"arrivals": {"process": "closed_loop", "concurrency": 8}, "lengths": BASIS["workload"]["lengths"]}
    assert "the answers of an API are not simulated" in api_plan(scenario({}, api=API, workload=loop)).reason
