"""What a case comes to in money and greenhouse gases: all that follows from its quantities, prices and terms.

Nothing here needs the simulation: the same functions price a stored case anew.
"""

from dataclasses import dataclass
from math import fsum, inf
from typing import Any

import numpy as np

from sim.case import CaseResult
from sim.cost.charge import amount_usd
from sim.cost.cost_plan import CostPlan
from sim.cost.ledger import Ledger
from sim.cost.metering import Window
from sim.units import HOURS_PER_MONTH, JOULES_PER_KWH, NANO_PER_USD, SECONDS_PER_HOUR

PERCENTILES = (50, 95, 99)
PER_REQUEST = tuple(f"usd_per_request_p{percent}" for percent in PERCENTILES)
KWH = "kWh"


IDLE = ("idle", "unused", "unused commitment")
"""Phases of the ledger that the idle tax sums."""


@dataclass(frozen=True, slots=True)
class SitePower:
    """What the site's meter shows."""

    facility_power_w_mean: float | None
    """None where a GPU's power is not known."""
    energy_kwh: float | None


@dataclass(frozen=True, slots=True)
class Money:
    """What the window cost [USD], at the prices of the scenario."""

    capex_usd: float
    cost_usd: float
    cost_usd_per_month: float
    component_usd_per_h: dict[str, float]
    phase_usd_per_h: dict[str, float]
    energy_usd: dict[str, float]
    """What is paid per kWh, by phase."""
    idle_tax_usd: float
    preemption_waste_usd: float
    peak_usd: float | None
    """What is paid for the month's peak, where anything is: a year pays it for its highest load."""
    api_usd: float | None
    """What the tokens would have cost at the API that the scenario compares with."""
    calendar_usd: float | None
    """What the quantities cost at the mean prices of the year, where prices differ by the hour."""
    currency: str | None
    """Of the report, where it is not the dollar."""
    usd_per_currency: float | None
    usd_per_request_p50: float | None
    """Over the requests that ran from arrival to last token inside the window, where the scenario asks for it."""
    usd_per_request_p95: float | None
    usd_per_request_p99: float | None

    @property
    def usd_of_a_mean_year(self) -> float:
        """What the window cost at the mean prices of the year, which a choice among fleets rests on."""
        return self.cost_usd if self.calendar_usd is None else self.calendar_usd


@dataclass(frozen=True, slots=True)
class Emissions:
    """Greenhouse gases of the window [kg CO2e]."""

    operational_kg_co2e: float | None
    """None where a GPU's power is not known."""
    embodied_kg_co2e: float


UNPRICED: dict[str, Any] = {"capex_usd": None, "cost_usd": None, "component_usd_per_h": {}}
"""What is stored of the money of a fleet without a cost."""
OPTIONAL = frozenset({"peak_usd", "calendar_usd", "currency", "usd_per_currency", *PER_REQUEST})
"""What is stored only where there is any."""


def bill(result: CaseResult) -> tuple[SitePower, Money | None, Emissions | None]:
    """All of *result* that site, prices and terms move."""
    return _site(result), _money(result), _carbon(result)


def _site(result: CaseResult) -> SitePower:
    """Energy at the site's meter; there is none for a window without length."""
    start_s, end_s = result.window_s
    window_s = end_s - start_s
    it_power_w = it_power_w_mean(result)
    facility_w = None if it_power_w is None else it_power_w * result.plan.pue
    energy_kwh = facility_w * window_s / JOULES_PER_KWH if facility_w is not None and window_s > 0 else None
    return SitePower(facility_w, energy_kwh)


def it_power_w_mean(result: CaseResult) -> float | None:
    """Mean power of the servers in the window [W]; None where a GPU's is not known."""
    start_s, end_s = result.window_s
    if any(pool.power is None for pool in result.plan.pools):
        return None
    inside = (i for i in result.log.intervals if i.is_within(start_s, end_s))
    return sum(i.server_energy_j for i in inside) / (end_s - start_s or inf)


def _money(result: CaseResult) -> Money | None:
    ledger, costs = result.ledger, result.plan.costs
    if ledger is None or costs is None:
        return None
    phases = ledger.by_phase()
    at_tariff = {row.component for row in ledger.rows if row.unit == KWH}
    in_dollars = costs.currency == "USD"
    return Money(
        capex_usd=ledger.capex_usd,
        cost_usd=ledger.total_nano_usd / NANO_PER_USD,
        cost_usd_per_month=ledger.usd_per_h * HOURS_PER_MONTH,
        component_usd_per_h=ledger.component_usd_per_h(),
        phase_usd_per_h={name: amount / NANO_PER_USD / ledger.window_h for name, amount in phases.items()},
        energy_usd={name: amount / NANO_PER_USD for name, amount in ledger.by_phase(at_tariff).items()},
        idle_tax_usd=sum(phases.get(name, 0) for name in IDLE) / NANO_PER_USD,
        preemption_waste_usd=phases.get("recompute", 0) / NANO_PER_USD,
        peak_usd=_by_peak(costs, ledger),
        api_usd=_api_usd(result),
        calendar_usd=_at_calendar_prices(result, costs),
        currency=None if in_dollars else costs.currency,
        usd_per_currency=None if in_dollars else costs.usd_per_currency,
        **dict(zip(PER_REQUEST, _per_request(result), strict=True)),
    )


def _by_peak(costs: CostPlan, ledger: Ledger) -> float | None:
    if not costs.by_peak:
        return None
    components = {charge.component for charge in costs.charges if charge.by_peak}
    by_component = ledger.by_component()
    return sum(by_component[name] for name in components) / NANO_PER_USD


def _at_calendar_prices(result: CaseResult, costs: CostPlan) -> float | None:
    if result.plan.service:  # what depends on the peak of all services cannot be taken from one
        return None
    averaged = costs.averaged(by_hour=result.plan.load_by_hour)
    if all(one is other for one, other in zip(averaged.charges, costs.charges, strict=True)):
        return None
    window = Window.of(result.log.intervals, *result.window_s)
    return fsum(amount_usd(charge, window) for charge in averaged.charges)


def _per_request(result: CaseResult) -> list[float | None]:
    """Percentiles over the requests that ran from arrival to last token inside the window."""
    start_s, end_s = result.window_s
    usd = [
        amount / NANO_PER_USD
        for request, amount in zip(result.log.requests, result.request_nano_usd or (), strict=False)
        if start_s <= request.arrived_s and request.finished_s <= end_s
    ]
    return [float(np.percentile(usd, percent)) if usd else None for percent in PERCENTILES]


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


def _carbon(result: CaseResult) -> Emissions | None:
    carbon = result.plan.carbon
    if carbon is None:
        return None
    start_s, end_s = result.window_s
    powered = all(pool.power is not None for pool in result.plan.pools)
    inside = (i for i in result.log.intervals if i.is_within(start_s, end_s))
    return Emissions(
        operational_kg_co2e=carbon.operational_kg(inside) if powered else None,
        embodied_kg_co2e=carbon.embodied_kg_per_h * (end_s - start_s) / SECONDS_PER_HOUR,
    )
