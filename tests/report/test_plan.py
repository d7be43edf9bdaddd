"""Verdict of a plan, on rows with known sums."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from sim.cost.multi_year import MultiYear
from sim.report.plan import verdict
from sim.report.plan_tables import month_rows, summary_row
from sim.study.capacity import FleetCapacity, ReplicationCapacity
from sim.study.metrics.case_metrics import CaseMetrics
from sim.study.plan import FleetPlanOutlook
from sim.study.plan_cash import PlanMonth
from sim.study.plan_units import Supply

PLAN = MultiYear(years=0.5, starts="2027-11")


def outlook(fleet: str, amounts: list[tuple[float, float]], short: int = 0) -> FleetPlanOutlook:
    """*amounts*: for every month and the end, what is paid at its start (received: below zero) and through it."""
    rows = tuple(
        PlanMonth(
            month=month,
            demand=1,
            peak=1,
            needed=1,
            ordered=0,
            on_order=0,
            owned=1,
            rented=0,
            retired=0,
            capacity=1,
            served=1,
            shortfall=1.0 if month < short else 0.0,
            requests=1,
            capex_usd={"gpu_capital": max(0.0, at_once)},
            resale_usd=max(0.0, -at_once),
            rental_usd=through,
            present_usd=at_once + through,
            output_tokens=1e6,
        )
        for month, (at_once, through) in enumerate(amounts)
    )
    return FleetPlanOutlook(fleet, FleetCapacity(fleet, 1.0, None, ()), 1, rows, Supply(6, (1,) * 6, (), ()))


BOUGHT = [(30.0, 1.0), (0, 1), (0, 1), (20, 1), (0, 1), (0, 1), (-10, 0)]
RENTED = [(0.0, 16.0)] * 6 + [(0.0, 0.0)]


def test_the_cheapest_and_what_the_others_cost_more() -> None:
    answer = verdict([outlook("rented", RENTED), outlook("bought", BOUGHT)], PLAN)
    assert answer.headline == (
        "Over 0.5 years bought costs least: $46.00 in present value, levelised $7.67 per million output tokens; "
        "rented costs 109\N{NO-BREAK SPACE}% more. bought meets the SLO in every month."
    )


def test_the_month_at_whose_end_a_plan_takes_the_lead_is_that_of_its_row() -> None:
    rented, bought = outlook("rented", RENTED), outlook("bought", BOUGHT)
    # 31 32 33 ... against 16 32 48 ...: as much at the end of December, less at the end of January
    assert bought.cumulative_usd[:4] == (31, 32, 33, 54)
    assert verdict([rented, bought], PLAN).findings[-1] == (
        "From the end of 2028-01 on, the cumulative payments of bought are below those of rented."
    )
    rows = [month_rows(one, PLAN) for one in (bought, rented)]
    ahead = [b["date"] for b, r in zip(*rows, strict=True) if b["cumulative_cost_usd"] < r["cumulative_cost_usd"]]
    assert ahead[0] == "2028-01"


def test_a_plan_that_is_ahead_in_its_last_month_needs_no_sale() -> None:
    ahead = [(59.5, 1.0), *[(0, 1)] * 5, (-10, 0)]
    answer = verdict([outlook("rented", RENTED), outlook("bought", ahead)], PLAN)
    assert (
        answer.findings[-1]
        == "From the end of 2028-02 on, the cumulative payments of bought are below those of rented."
    )
    behind = [(95.0, 1.0), *[(0, 1)] * 5, (-10, 0)]
    answer = verdict([outlook("rented", RENTED), outlook("bought", behind)], PLAN)
    assert (
        answer.findings[-1]
        == "The cumulative payments of bought exceed those of rented until its hardware is sold at the end."
    )


def test_a_difference_of_less_than_a_thousandth_is_seen() -> None:
    rented = [(0.0, 10.0)] * 6 + [(0.0, 0.0)]
    answer = verdict([outlook("a", rented), outlook("b", [*rented[:-1], (0.0, 0.012)])], PLAN)
    assert "b costs 0.02\N{NO-BREAK SPACE}% more" in answer.headline
    assert "b costs the same" in verdict([outlook("a", rented), outlook("b", rented)], PLAN).headline


def test_a_short_plan_is_reported_with_the_cheapest_sufficient_plan() -> None:
    answer = verdict([outlook("rented", RENTED), outlook("bought", BOUGHT, short=2)], PLAN)
    assert (
        "bought is short of capacity in 2 months; the cheapest plan that meets the SLO in every month"
        in answer.headline
    )
    assert answer.headline.endswith("is rented, $96.00 in present value, levelised $16.00 per million output tokens.")
    assert "short in 2 months (2027-11 to 2027-12), by 1 at worst" in answer.findings[0]


def test_nothing_can_be_planned() -> None:
    none = FleetPlanOutlook("small", FleetCapacity("small", 0.0, None, (), "does not fit"), 1, reason="does not fit")
    answer = verdict([none], PLAN)
    assert answer.headline == "No fleet can be planned: see the reasons."
    assert answer.findings == ("small cannot be planned: does not fit.",)
    totals = [value for name, value in summary_row(none).items() if "usd" in name or name == "discount_rate"]
    assert set(totals) == {None}, "no plan is not a plan that costs nothing"


def test_the_only_plan_is_not_called_the_cheapest() -> None:
    assert verdict([outlook("bought", BOUGHT)], PLAN).headline.startswith("Over 0.5 years bought costs $46.00 in")


def test_plans_of_different_models_are_ranked_apart() -> None:
    found = [outlook("rented", RENTED), outlook("bought", BOUGHT), outlook("large", RENTED)]
    models = {"rented": "small", "bought": "small", "large": "other"}
    answer = verdict(found, PLAN, models=models)
    assert "other: Over 0.5 years large costs $" in answer.headline
    assert "small: Over 0.5 years bought costs least: $46.00" in answer.headline
    assert "large costs" not in answer.headline.replace("large costs $", "")
    assert answer.findings[0].startswith("The fleets serve different models and are ranked for each model on its own")
    assert verdict(found, PLAN).headline.count("Over 0.5 years") == 1


def test_the_headline_states_requests_without_an_answer_at_capacity() -> None:
    counts = CaseMetrics({"requests": 8, "rejected": 2, "timed_out": 0, "lost": 0})
    at: Any = SimpleNamespace(measured=counts, metrics=counts)
    lossy, answers = outlook("lossy", RENTED), outlook("answers", BOUGHT)
    found = (ReplicationCapacity("lossy", 0, 1.0, at, 1, met=1.0),)
    said = verdict([replace(lossy, capacity=replace(lossy.capacity, found=found)), answers], PLAN).headline
    told = "Requests without an answer: a unit of lossy at its capacity (25\N{NO-BREAK SPACE}% rejected)."
    assert said == f"{verdict([outlook('lossy', RENTED), answers], PLAN).headline} {told}"
