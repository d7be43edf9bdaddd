"""What a case comes to in money and greenhouse gases: all that follows from its quantities, prices and terms.

Nothing here needs the simulation: the same functions price a stored case anew.
"""

from collections.abc import Mapping
from math import fsum, inf
from typing import Any

import numpy as np

from sim.case import CaseResult
from sim.cost.bill.charge import amount_usd
from sim.cost.bill.window import Window
from sim.units import HOURS_PER_MONTH, JOULES_PER_KWH, NANO_PER_USD, SECONDS_PER_HOUR

PERCENTILES = (50, 95, 99)
KWH = "kWh"


def bill(result: CaseResult) -> dict[str, Any]:
    """The metrics of *result* that depend on site, prices and terms."""
    return {**_site(result), **_money(result), **_carbon(result)}


def _site(result: CaseResult) -> dict[str, Any]:
    """Energy at the site's meter; there is none for a window without length."""
    start_s, end_s = result.window_s
    window_s = end_s - start_s
    it_power_w = it_power_w_mean(result)
    facility_w = None if it_power_w is None else it_power_w * result.plan.pue
    return {
        "facility_power_w_mean": facility_w,
        "energy_kwh": facility_w * window_s / JOULES_PER_KWH if facility_w is not None and window_s > 0 else None,
    }


def it_power_w_mean(result: CaseResult) -> float | None:
    """Mean power of the servers in the window [W]; None where a GPU's is not known."""
    start_s, end_s = result.window_s
    if any(pool.power is None for pool in result.plan.pools):
        return None
    inside = (i for i in result.log.intervals if i.is_within(start_s, end_s))
    return sum(i.server_energy_j for i in inside) / (end_s - start_s or inf)


def _money(result: CaseResult) -> dict[str, Any]:
    ledger = result.ledger
    if ledger is None:
        return {"capex_usd": None, "cost_usd": None, "component_usd_per_h": {}}
    phases = ledger.by_phase()
    at_tariff = {row.component for row in ledger.rows if row.unit == KWH}
    return {
        "capex_usd": ledger.capex_usd,
        "cost_usd": ledger.total_nano_usd / NANO_PER_USD,
        "cost_usd_per_month": ledger.usd_per_h * HOURS_PER_MONTH,
        "component_usd_per_h": ledger.component_usd_per_h(),
        "phase_usd_per_h": {name: amount / NANO_PER_USD / ledger.window_h for name, amount in phases.items()},
        "energy_usd": {name: amount / NANO_PER_USD for name, amount in ledger.by_phase(at_tariff).items()},
        "idle_tax_usd": phases.get("idle", 0) / NANO_PER_USD,
        "preemption_waste_usd": phases.get("recompute", 0) / NANO_PER_USD,
        **_by_peak(result),
        "api_usd": _api_usd(result),
        **_at_calendar_prices(result),
        **_currency(result),
        **_per_request(result),
    }


def _by_peak(result: CaseResult) -> dict[str, float]:
    """What is paid for the month's peak, where anything is: a year pays it for its highest load."""
    costs, ledger = result.plan.costs, result.ledger
    if costs is None or ledger is None or not costs.by_peak:
        return {}
    components = {charge.component for charge in costs.charges if charge.by_peak}
    by_component = ledger.by_component()
    return {"peak_usd": sum(by_component[name] for name in components) / NANO_PER_USD}


CALENDAR = "calendar_usd"


def _at_calendar_prices(result: CaseResult) -> dict[str, float]:
    """What the window's quantities cost at the mean prices of the year, where prices differ by the hour."""
    costs = result.plan.costs
    assert costs is not None  # there is a ledger
    averaged = costs.averaged(by_hour=result.plan.load_by_hour)
    if all(one is other for one, other in zip(averaged.charges, costs.charges, strict=True)):
        return {}
    window = Window.of(result.log.intervals, *result.window_s)
    return {CALENDAR: fsum(amount_usd(charge, window) for charge in averaged.charges)}


def calendar_usd(metrics: Mapping[str, Any]) -> float | None:
    """What a case cost at the mean prices of the year, which a choice among fleets rests on; None without a cost."""
    usd: float | None = metrics.get(CALENDAR, metrics["cost_usd"])
    return usd


def _per_request(result: CaseResult) -> dict[str, float]:
    """Percentiles over the requests that ran from arrival to last token inside the window."""
    if result.request_nano_usd is None:
        return {}
    start_s, end_s = result.window_s
    usd = [
        amount / NANO_PER_USD
        for request, amount in zip(result.log.requests, result.request_nano_usd, strict=True)
        if start_s <= request.arrived_s and request.finished_s <= end_s
    ]
    return {f"usd_per_request_p{q}": float(np.percentile(usd, q)) for q in PERCENTILES} if usd else {}


def _currency(result: CaseResult) -> dict[str, Any]:
    """The currency of the report, where it is not the dollar."""
    costs = result.plan.costs
    if costs is None or costs.currency == "USD":
        return {}
    return {"currency": costs.currency, "usd_per_currency": costs.usd_per_currency}


def _api_usd(result: CaseResult) -> float | None:
    """What the tokens of the window would have cost at the API that the scenario compares with."""
    api = result.plan.costs.api if result.plan.costs is not None else None
    if api is None:
        return None
    totals = result.log.meters
    return api.usd(
        sum(meters.prompt_tokens for meters in totals),
        sum(meters.cached_tokens for meters in totals),
        sum(meters.output_tokens for meters in totals),
    )


def _carbon(result: CaseResult) -> dict[str, Any]:
    """Greenhouse gases of the window [kg CO2e], where the scenario asks for them."""
    carbon = result.plan.carbon
    if carbon is None:
        return {}
    start_s, end_s = result.window_s
    powered = all(pool.power is not None for pool in result.plan.pools)
    inside = (i for i in result.log.intervals if i.is_within(start_s, end_s))
    return {
        "operational_kg_co2e": carbon.operational_kg(inside) if powered else None,
        "embodied_kg_co2e": carbon.embodied_kg_per_h * (end_s - start_s) / SECONDS_PER_HOUR,
    }
