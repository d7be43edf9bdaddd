"""Metrics of money, site energy and greenhouse gases, which follow from a case's quantities, prices and terms.

None of these functions needs a simulation: `gpufleet price` applies them to stored cases.
"""

from functools import partial
from math import fsum
from typing import Any

import numpy as np

from sim.case.result import results_by_service
from sim.cost.charge import amount_usd
from sim.cost.metering import MeteredWindow
from sim.cost.revenue import SoldTokens
from sim.study.metrics.averages import PLANNED_MEAN, FirstReplication, MeanRate, Ratio
from sim.study.metrics.metric import PERCENTILES, MeasuredRun, figure, metric
from sim.units import HOURS_PER_MONTH, JOULES_PER_KWH, NANO_PER_USD, SECONDS_PER_HOUR

KWH = "kWh"
IDLE = ("idle", "unused", "unused commitment")
"""Phases of the ledger that the idle tax sums."""
GREENHOUSE_GASES = ("operational_kg_co2e", "embodied_kg_co2e")
"""Figures that a total of greenhouse gases sums."""


site = partial(metric, group="site power", part="site")


@site("facility_power_w_mean", "W", "mean power at the site's meter: server power times PUE",
      sheet="power at the meter, mean [W]",
      heading="power", brief="power [kW]", paired=True)  # fmt: skip
def _facility_w(run: MeasuredRun) -> float | None:
    """Return the mean power at the site's meter [W]; None where a GPU's power is not known."""
    if not run.powered:
        return None
    return sum(one.server_energy_j for one in run.inside) / run.window_s * run.plan.pue


@site("energy_kwh", "kWh", "energy at the site's meter in the window", sheet="energy at the meter [kWh]")
def _energy_kwh(run: MeasuredRun) -> float | None:
    watts, window_s = _facility_w(run), run.end_s - run.start_s
    return watts * window_s / JOULES_PER_KWH if watts is not None and window_s > 0 else None


def _by_phase(run: MeasuredRun) -> dict[str, int]:
    return run.ledger.by_phase()


def _usd(run: MeasuredRun, *phases: str) -> float:
    """Return the cost of *phases* in the window [USD]."""
    return sum(run.once(_by_phase).get(name, 0) for name in phases) / NANO_PER_USD


cost = partial(metric, group="cost", part="money")
of_money = partial(figure, part="money")
cost(
    "capex_usd",
    "USD",
    "capital cost of bought hardware; 0 for rented hardware",
    sheet="capital cost [USD]",
    average=PLANNED_MEAN,
)(lambda run: run.ledger.capex_usd)
of_money("cost_usd")(lambda run: run.ledger.total_nano_usd / NANO_PER_USD)
cost("cost_usd_per_h", "USD/h", "total cost per hour, capital included",
     sheet="cost [USD/h]", average=MeanRate("cost_usd"),
     heading="cost per hour", brief="cost [USD/h]")  # fmt: skip
cost(
    "cost_usd_per_month",
    "USD/month",
    "total cost of 730 hours",
    sheet="cost [USD/month]",
    average=MeanRate("cost_usd", HOURS_PER_MONTH),
)(lambda run: run.ledger.usd_per_h * HOURS_PER_MONTH)
cost(
    "usd_per_million_output_tokens", "USD", "total cost divided by output tokens",
    sheet="cost [USD per million output tokens]",
    average=Ratio(("cost_usd",), "output_tokens"),
    heading="per million output tokens", brief="USD per million output tokens", paired=True,
)  # fmt: skip
cost("usd_per_million_tokens", "USD", "total cost divided by prompt and output tokens",
     sheet="cost [USD per million tokens]",
     average=Ratio(("cost_usd",), "total_tokens"))  # fmt: skip
cost("usd_per_million_good_tokens", "USD",
     "total cost divided by goodput, the output tokens of requests within all their per-request limits",
     sheet="cost [USD per million goodput tokens]",
     average=Ratio(("cost_usd",), "good_output_tokens"), heading="per million goodput tokens", paired=True)  # fmt: skip
of_money("component_usd_per_h")(lambda run: run.ledger.component_usd_per_h())


@of_money("phase_usd_per_h")
def _phase_usd_per_h(run: MeasuredRun) -> dict[str, float]:
    return {name: amount / NANO_PER_USD / run.ledger.window_h for name, amount in run.once(_by_phase).items()}


@of_money("energy_usd")
def _energy_usd(run: MeasuredRun) -> dict[str, float]:
    """Return the cost that is charged per kWh, by phase [USD]."""
    at_tariff = {row.component for row in run.ledger.rows if row.unit == KWH}
    return {name: amount / NANO_PER_USD for name, amount in run.ledger.by_phase(at_tariff).items()}


waste = partial(metric, group="waste", part="money")
of_money("idle_tax_usd")(lambda run: _usd(run, *IDLE))
waste("idle_tax_usd_per_h", "USD/h",
      "cost of idle time per hour, unused GPUs and commitments included", sheet="cost of idle time [USD/h]",
      average=Ratio(("idle_tax_usd",), "window_h"))  # fmt: skip
of_money("preemption_waste_usd")(lambda run: _usd(run, "recompute"))
waste("preemption_waste_usd_per_h", "USD/h", "cost of recomputing preempted sequences per hour",
      sheet="cost of preemptions [USD/h]",
      average=Ratio(("preemption_waste_usd",), "window_h"))  # fmt: skip


@of_money("peak_usd", optional=True)
def _peak_usd(run: MeasuredRun) -> float | None:
    """Return the cost of charges on the month's peak [USD]; None without such charges."""
    # separate from the other costs, because a year pays it for its highest load
    if not run.costs.by_peak:
        return None
    by_component = run.ledger.by_component()
    components = {one.component for one in run.costs.charges if one.by_peak}
    return sum(by_component[name] for name in components) / NANO_PER_USD


@of_money("api_usd")
def _api_usd(run: MeasuredRun) -> float | None:
    """Return the price of the window's tokens at the API that the scenario compares with [USD]."""
    api = run.costs.api
    if api is None:
        return None
    return api.usd(run.total("prompt_tokens"), run.total("cached_tokens"), run.total("output_tokens"))


@of_money("calendar_usd", optional=True)
def _calendar_usd(run: MeasuredRun) -> float | None:
    """Return the cost at the mean prices of the year [USD]; None where prices do not differ by the hour."""
    if run.plan.service:  # a charge on the peak of all services cannot be computed for one service
        return None
    averaged = run.costs.averaged(by_hour=run.plan.load_by_hour)
    if all(one is other for one, other in zip(averaged.charges, run.costs.charges, strict=True)):
        return None
    window = MeteredWindow.of(run.log.intervals, run.start_s, run.end_s)
    return fsum(amount_usd(charge, window) for charge in averaged.charges)


def _in_currency(name: str, run: MeasuredRun) -> Any:
    """Return the attribute *name* of the report's currency; None where the report is in US dollars."""
    return None if run.costs.currency == "USD" else getattr(run.costs, name)


currency = partial(metric, group="currency", part="money", average=FirstReplication(), optional=True)
currency("currency", "", "currency of the report, if it is not the US dollar")(partial(_in_currency, "currency"))
currency(
    "usd_per_currency",
    "USD",
    "exchange rate: US dollars per unit of the report's currency",
    sheet="US dollars per unit of the currency",
)(partial(_in_currency, "usd_per_currency"))


def _request_usd(run: MeasuredRun) -> list[float]:
    """Return the cost of each request that ran from arrival to last token inside the window [USD]."""
    return [
        amount / NANO_PER_USD
        for request, amount in zip(run.log.requests, run.result.request_nano_usd or (), strict=False)
        if run.start_s <= request.arrived_s and request.finished_s <= run.end_s
    ]


def _request_percentile_usd(percent: float, run: MeasuredRun) -> float | None:
    usd = run.once(_request_usd)
    return float(np.percentile(usd, percent)) if usd else None


for _p in PERCENTILES:
    metric(f"usd_per_request_p{_p}", "USD", f"{_p}th percentile of what a request costs (`cost_per_request`)",
           "request cost", "money", sheet=f"cost per request p{_p} [USD]",
           optional=True)(partial(_request_percentile_usd, _p))  # fmt: skip
metric("usd_per_thousand_units", "USD", "total cost divided by a service's units of work", "cost per unit",
       sheet="cost [USD per thousand units]",
       average=Ratio(("cost_usd",), "units"))  # fmt: skip
of_api = partial(metric, group="api")
of_api("api_usd_per_h", "USD/h", "cost of the same tokens per hour at the API of the scenario", sheet="API [USD/h]",
    average=Ratio(("api_usd",), "window_h"))  # fmt: skip
of_api("api_usd_per_million_output_tokens", "USD", "cost of the same tokens at the API divided by output tokens",
    sheet="API [USD per million output tokens]",
    average=Ratio(("api_usd",), "output_tokens"),
    heading="the same tokens by API", brief="API, USD per million")  # fmt: skip


def _sold(run: MeasuredRun) -> SoldTokens | None:
    """Return the tokens sold in the window; None where the scenario states no revenue."""
    if run.costs.revenue is None:
        return None
    prompts, outputs = _tokens(run)
    prices = run.costs.revenue.of(run.plan.service or "")
    if run.plan.services and run.costs.revenue.services:
        parts = results_by_service(run.result)
        prices = run.costs.revenue.blended(
            {name: _tokens(MeasuredRun(one, billed=True)) for name, one in parts.items()}
        )
    return SoldTokens(prices, prompts, outputs, run.ledger.total_nano_usd / NANO_PER_USD)


def _tokens(run: MeasuredRun) -> tuple[float, float]:
    """Return the prompt tokens, cached ones included, and the output tokens of the window."""
    return run.total("prompt_tokens") + run.total("cached_tokens"), run.total("output_tokens")


def _of_sale(name: str, run: MeasuredRun) -> float | None:
    """Return the attribute *name* of the tokens sold; None where the scenario states no revenue."""
    sold = run.once(_sold)
    return None if sold is None else float(getattr(sold, name))


for _name in ("usd", "profit_usd", "output_usd_to_break_even", "output_usd"):
    of_money("revenue_usd" if _name == "usd" else f"revenue_{_name}", optional=True)(partial(_of_sale, _name))

revenue = partial(metric, group="revenue")
revenue("revenue_usd_per_month", "USD/month", "revenue of 730 hours at the prices of `revenue`",
    sheet="revenue [USD/month]",
    average=MeanRate("revenue_usd", HOURS_PER_MONTH))  # fmt: skip
revenue("profit_usd_per_month", "USD/month", "revenue minus all cost, of 730 hours", sheet="profit [USD/month]",
    average=MeanRate("revenue_profit_usd", HOURS_PER_MONTH),
    heading="profit per month", brief="profit [USD/month]")  # fmt: skip
revenue("profit_margin", "share", "profit divided by revenue",
    average=Ratio(("revenue_profit_usd",), "revenue_usd"),
    heading="margin", brief="margin [%]")  # fmt: skip
revenue("break_even_usd_per_million_output_tokens", "USD", "price of output tokens at which revenue equals cost",
    sheet="break-even price [USD per million output tokens]",
    average=Ratio(("revenue_output_usd_to_break_even",), "output_tokens"),
    heading="break-even price", brief="break-even price, USD per million")  # fmt: skip
revenue("price_usd_per_million_output_tokens", "USD",
    "price of output tokens: that of `revenue`, or the one that leaves its margin",
    sheet="price [USD per million output tokens]",
    average=Ratio(("revenue_output_usd",), "output_tokens"),
    heading="price", brief="price, USD per million")  # fmt: skip

carbon = partial(metric, group="carbon", part="carbon")


@carbon(
    "operational_kg_co2e",
    "kg",
    "greenhouse gas emissions of the electricity used in the window",
    sheet="operational emissions [kg CO2e]",
)
def _operational_kg(run: MeasuredRun) -> float | None:
    assert run.plan.carbon is not None
    return run.plan.carbon.operational_kg(run.inside) if run.powered else None


@carbon(
    "embodied_kg_co2e",
    "kg",
    "greenhouse gas emissions of making the hardware, the window's share",
    sheet="embodied emissions [kg CO2e]",
)
def _embodied_kg(run: MeasuredRun) -> float:
    assert run.plan.carbon is not None
    return run.plan.carbon.embodied_kg(run.inside, (run.end_s - run.start_s) / SECONDS_PER_HOUR)


def _scope(name: str, run: MeasuredRun) -> float | None:
    """Return the emissions of a scope of the GHG Protocol in the window [kg CO2e]; None where scopes are not stated."""
    carbon = run.plan.carbon
    if carbon is None or carbon.market is None or not run.powered or run.plan.service:
        return None
    window = MeteredWindow.of(run.log.intervals, run.start_s, run.end_s)
    return carbon.scope_3_kg(window) if name == "3" else carbon.scope_2_kg(window, by_market=name == "market")


for _name, _heading, _text in (
    (
        "scope_2_location",
        "scope 2 per hour, location-based",
        "scope 2 by location: electricity of owned machines at the grid's intensity",
    ),
    (
        "scope_2_market",
        "scope 2 per hour, market-based",
        "scope 2 by market: the same electricity at the intensity of contracts and certificates",
    ),
    ("scope_3", "scope 3 per hour", "scope 3: making of the machines, and electricity of rented ones"),
):
    scope = partial(metric, group="scopes", part="carbon", optional=True)
    scope(
        f"{_name}_kg_co2e",
        "kg",
        f"greenhouse gas emissions of {_text}",
        sheet=f"{_heading.replace(' per hour', '')} [kg CO2e]",
    )(partial(_scope, _name.rpartition("_")[2]))
    scope(f"{_name}_kg_co2e_per_h", "kg/h", f"emissions per hour of {_text}", heading=_heading,
          sheet=f"{_heading.replace(' per hour', '')} [kg CO2e/h]",
          average=Ratio((f"{_name}_kg_co2e",), "window_h"))  # fmt: skip


carbon(
    "kg_co2e_per_h",
    "kg/h",
    "operational and embodied emissions per hour",
    sheet="emissions [kg CO2e/h]",
    average=Ratio(GREENHOUSE_GASES, "window_h"),
)
carbon("kg_co2e_per_million_output_tokens", "kg", "operational and embodied emissions divided by output tokens",
       sheet="emissions [kg CO2e per million output tokens]",
       average=Ratio(GREENHOUSE_GASES, "output_tokens"),
       heading="CO2e per million output tokens", brief="CO2e [kg per million]")  # fmt: skip
carbon("kg_co2e_per_million_tokens", "kg", "operational and embodied emissions divided by prompt and output tokens",
       sheet="emissions [kg CO2e per million tokens]",
       average=Ratio(GREENHOUSE_GASES, "total_tokens"))  # fmt: skip
