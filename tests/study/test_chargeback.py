"""Chargeback: parts that sum to the bill to the nano-dollar, rules that divide by their weights, refused terms."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.catalogue.catalog import load_catalog
from sim.report.export.focus import _split
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.scenario.sections.chargeback import Chargeback
from sim.study.chargeback import ChargedCase, chargeback_rows, charged_amounts, charged_cases, showback_rows
from sim.yamlio import dump

PHASES = ("prefill", "decode", "recompute", "idle", "unused", "unused commitment", "booting", "reserve")
WEIGHTS = {"web": 3.0, "app": 1.0, "batch": 0.0}


def case(costs: list[tuple[str, str, str, float]], requests: list[tuple[str, str, float, float]], **more: Any) -> Any:
    """A case of (pool, component, phase, USD) and of requests (tenant, pool, prefill s, decode s)."""
    pool, component, phase, usd = zip(*costs, strict=True) if costs else ((),) * 4
    tenant, where, prefill, decode = zip(*requests, strict=True) if requests else ((),) * 4
    table = {
        "tenant": pa.array(tenant, pa.string()),
        "service": pa.array([""] * len(requests), pa.string()),
        "pool": pa.array(where, pa.string()),
        "prefill_s": pa.array(prefill, pa.float64()),
        "recompute_s": pa.array([0.0] * len(requests), pa.float64()),
        "decode_s": pa.array(decode, pa.float64()),
        "measured": pa.array([1] * len(requests), pa.int8()),
        "status": pa.array(["finished"] * len(requests), pa.string()),
        "output_tokens": pa.array([100] * len(requests), pa.int64()),
    } | more
    ledger = pa.table({"pool": pool, "component": component, "phase": phase, "amount_usd": pa.array(usd, pa.float64())})
    return SimpleNamespace(
        status="ok",
        fleet="own",
        axes={},
        replication=0,
        metrics={"window_h": 73.0},
        requests=lambda: pa.table(table),
        costs=lambda: ledger,
        usage=lambda: pa.table({"replica": [0, 1], "pool": ["a", "b"]}),
    )


RULES = st.sampled_from(["none", "by_use", "by_reservation", "by_headcount"])
AMOUNTS = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.sampled_from(["gpu_capital", "energy"]),
        st.sampled_from(PHASES),
        st.integers(0, 10**15).map(lambda nano: nano / 1e9),
    ),
    max_size=12,
)
REQUESTS = st.lists(
    st.tuples(st.sampled_from(sorted(WEIGHTS)), st.sampled_from("ab"), st.floats(0, 1e4), st.floats(0, 1e4)), max_size=8
)


@pytest.mark.slow
@settings(max_examples=40)
@given(AMOUNTS, REQUESTS, RULES, RULES, RULES)
def test_the_chargeback_sums_to_the_bill_exactly(
    costs: list[Any], requests: list[Any], idle: str, unused: str, other: str
) -> None:
    terms = Chargeback.model_validate(
        {"idle": idle, "unused": unused, "other": other, "reservations": WEIGHTS, "headcount": WEIGHTS}
    )
    found = charged_amounts(terms, case(costs, requests))
    billed: dict[tuple[str, ...], int] = {}
    for *place, usd in costs:
        billed[tuple(place)] = billed.get(tuple(place), 0) + round(usd * 1e9)
    charged: dict[tuple[str, ...], int] = {}
    for one in found:
        place = (one.pool, one.component, one.phase)
        charged[place] = charged.get(place, 0) + one.nano_usd
    assert charged == {place: nano for place, nano in billed.items() if nano}
    assert all(one.nano_usd > 0 for one in found)


COSTS = [
    ("a", "energy", "prefill", 4.0),
    ("a", "energy", "decode", 6.0),
    ("a", "gpu_capital", "idle", 8.0),
    ("a", "gpu_capital", "unused", 2.0),
    ("b", "gpu_capital", "booting", 1.0),
]
ASKED = [("web", "a", 1.0, 2.0), ("app", "a", 3.0, 1.0), ("batch", "a", 0.0, 0.0)]


@pytest.mark.parametrize(
    ("rule", "idle"),
    [
        ("none", {"(nobody)": 8.0}),
        ("by_use", {"web": 4.0, "app": 4.0}),  # 1 + 4 of prefill and decode for web, 3 + 2 for app
        ("by_reservation", {"web": 6.0, "app": 2.0}),
        ("by_headcount", {"app": 8.0}),
    ],
)
def test_a_rule_divides_idle_cost_by_its_weights(rule: str, idle: dict[str, float]) -> None:
    terms = Chargeback.model_validate({"idle": rule, "reservations": WEIGHTS, "headcount": {"app": 4, "web": 0}})
    found = charged_amounts(terms, case(COSTS, ASKED))
    assert {one.tenant: one.nano_usd / 1e9 for one in found if one.line == "idle"} == idle
    assert {one.tenant: one.nano_usd for one in found if one.line == "unused"} == {"(nobody)": 2_000_000_000}


def test_a_pool_without_requests_is_shared_by_the_users_of_the_fleet() -> None:
    found = charged_amounts(Chargeback(other="by_use"), case(COSTS, ASKED))
    assert {one.tenant: one.nano_usd for one in found if one.line == "other"} == {"web": 5 * 10**8, "app": 5 * 10**8}


def test_a_pool_of_one_tenant_is_not_paid_by_others() -> None:
    costs, asked = [*COSTS, ("b", "energy", "decode", 1.0)], [*ASKED, ("batch", "b", 0.0, 5.0)]
    found = charged_amounts(Chargeback(idle="by_use", other="by_use"), case(costs, asked))
    assert {one.tenant for one in found if one.pool == "b"} == {"batch"}
    assert "batch" not in {one.tenant for one in found if one.pool == "a"}


def test_visits_to_earlier_replicas_pay_in_the_pools_of_these() -> None:
    visits = [[{"replica": 1, "prefill_s": 7.0, "recompute_s": 0.0, "decode_s": 0.0}], None]
    requests = [("web", "a", 0.0, 1.0), ("app", "a", 0.0, 1.0)]
    costs = [("b", "energy", "prefill", 3.0), ("a", "energy", "decode", 4.0)]
    found = charged_amounts(Chargeback(), case(costs, requests, earlier_visits=pa.array(visits)))
    assert {(one.tenant, one.pool): one.nano_usd / 1e9 for one in found} == {
        ("web", "b"): 3.0,
        ("web", "a"): 2.0,
        ("app", "a"): 2.0,
    }


def test_showback_states_a_month_and_unit_costs_with_services_as_tenants() -> None:
    terms = Chargeback(idle="by_use", unused="by_use")
    charged = charged_cases(terms, [case(COSTS, ASKED)])
    rows = {row["tenant"]: row for row in showback_rows(charged, [])}
    web = rows["web"]
    assert web["usd_per_month"] == pytest.approx(10 * (5 + 4 + 1))
    assert web["used_usd_per_month"] == pytest.approx(50)
    assert web["usd_per_thousand_requests"] == pytest.approx(1e4)
    assert web["usd_per_million_output_tokens"] == pytest.approx(1e5)
    assert sum(row["share_of_bill"] for row in rows.values()) == pytest.approx(1)
    assert rows["(nobody)"]["other_usd_per_month"] == pytest.approx(10)
    assert rows["(nobody)"]["usd_per_thousand_requests"] is None
    parts = chargeback_rows(charged)
    assert sum(round(row["amount_usd"] * 1e9) for row in parts) == 21 * 10**9
    served = case(COSTS, ASKED)
    table = served.requests().drop_columns(["tenant", "service"]).append_column("service", pa.array(["x", "y", "y"]))
    served.requests = lambda: table
    assert {one.tenant for one in charged_amounts(terms, served)} == {"x", "y", "(nobody)"}
    assert charged_cases(None, [served]) == charged_cases(terms, [case([], [])]) == []
    assert isinstance(charged[0], ChargedCase)


@settings(max_examples=40)
@given(st.integers(1, 10**15), st.lists(st.floats(0.001, 1e6), min_size=1, max_size=5))
def test_rows_of_focus_keep_their_sum(nano: int, weights: list[float]) -> None:
    usage = dict.fromkeys(("ListCost", "ContractedCost", "PricingQuantity", "PricingCurrencyEffectiveCost"), 8.0)
    row = {**usage, "ConsumedQuantity": None, "BilledCost": 0.0, "EffectiveCost": nano / 1e9, "Tags": '{"a": 1}'}
    parts = [(f"tenant {i}", "used", weight) for i, weight in enumerate(weights)]
    found = list(_split(row, parts))
    assert sum(round(one["EffectiveCost"] * 1e9) for one in found) == nano
    assert sum(one["ListCost"] for one in found) == pytest.approx(8)
    assert {one["BilledCost"] for one in found} == {0.0}
    assert list(_split(row, [])) == [row]


BASIS: dict[str, Any] = {
    "name": "who pays",
    "model": "llama3.1-8b",
    "workload": {
        "arrivals": {"process": "constant", "rate_rps": 1},
        "lengths": {side: {"distribution": "fixed", "value": 60} for side in ("prompt", "output")},
        "tenants": [{"name": "web"}, {"name": "app"}],
    },
    "horizon_s": 60,
    "cost_per_request": True,
    "fleets": [
        {"name": "a", "pools": [{"gpu": "rtx-4090"}], "cost": {"acquisition": "rent", "quotes": {"rtx-4090": 0.4}}}
    ],
}


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"chargeback": {}, "cost_per_request": False}, "add cost_per_request: true"),
        ({"chargeback": {"idle": "by_headcount"}}, "headcount: is missing"),
        ({"chargeback": {"idle": "by_users"}}, "did you mean by_use"),
        ({"chargeback": {"headcount": {"web": 2}}}, "lacks app"),
        ({"chargeback": {"headcount": {"web": 2, "apps": 1, "app": 1}}}, "did you mean app"),
        ({"chargeback": {"headcount": {"web": 0, "app": 0}}}, "is 0 for all"),
        ({"chargeback": {"headcount": {"web": -1, "app": 1}}}, "must be 0 or more"),
        ({"chargeback": {}, "workload": BASIS["workload"] | {"tenants": []}}, "has no tenant to charge"),
    ],
)
def test_terms_that_charge_nobody_are_refused_at_their_line(tmp_path: Path, keys: dict[str, Any], text: str) -> None:
    (tmp_path / "s.yaml").write_text(dump(BASIS | keys))
    with pytest.raises(ScenarioErrors) as caught:
        load(tmp_path / "s.yaml", catalog=load_catalog())
    told = "\n".join(map(str, caught.value.errors))
    assert text in told
    assert "s.yaml:" in told
