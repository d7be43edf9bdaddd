"""A plan without new units: what exists serves until it is sold, and an API all that is left.

The same part of every hour's traffic goes to the existing units, the largest with which their busiest hours are within
their capacity; so no peak is short. The API is paid by tokens, monthly in arrears: docs/money.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from sim.cost import MultiYear
from sim.cost.finance.cash_flow import price_factor
from sim.cost.finance.finance import Annuity, StraightLine
from sim.cost.rent.api import ApiTariff
from sim.study.money.plan.cash import SECONDS_PER_MONTH, Bills, Row, held_parts, held_rps, present_usd, sold_in
from sim.study.money.plan.existing import HeldUnits, standing
from sim.study.money.plan.unit import Loads

LINE = "api"


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Everything that turns demand into an API's bill."""

    plan: MultiYear
    tariff: ApiTariff
    finance: StraightLine | Annuity | None
    discount_rate: float
    tokens: tuple[float, float]
    """Mean prompt and output tokens of a request."""
    cached_fraction: float
    """Fraction of prompt tokens found in a prefix cache [1]."""
    rate_per_load: float
    """Requests per second at a load of 1."""
    bills: Bills
    """Bills of the units that exist."""

    def usd(self, requests: float, month: int) -> float:
        """Return the cost of a number of *requests* in *month* [USD]."""
        prompt, output = (requests * count for count in self.tokens)
        cached = prompt * self.cached_fraction
        growth = self.finance.growth_of(LINE) if self.finance is not None else 0.0
        return self.tariff.usd(prompt - cached, cached, output) * price_factor(-growth, month)


def no_api_plan(rate_per_load: float | None) -> str:
    """Why there is none; empty where there is one."""
    if rate_per_load is not None:
        return ""
    return "clients that wait for answers ask as fast as these come, and those of an API are not simulated"


def api_rows(demand: Sequence[float], terms: Elsewhere, held: Sequence[HeldUnits]) -> list[Row]:
    """A row a month, and the closing one."""
    return [_row(month, demand, terms, held) for month in range(terms.plan.months + 1)]


def _row(month: int, demand: Sequence[float], terms: Elsewhere, held: Sequence[HeldUnits]) -> Row:
    inside = month < terms.plan.months
    mean = demand[month] if inside else 0.0
    peak = mean * terms.plan.peak_to_mean
    there, sold = standing(held, month), sold_in(month, held)
    capacity = fsum(one.units * one.kind.capacity for one in there)
    share = min(1.0, capacity / peak) if peak else 0.0
    utilisation = Loads(share * mean / capacity, share * peak / capacity) if capacity else Loads(0.0, 0.0)
    elsewhere = (1 - share) * mean
    own, bought = (
        held_rps(there, utilisation) * SECONDS_PER_MONTH,
        elsewhere * terms.rate_per_load * SECONDS_PER_MONTH,
    )
    opex_usd: dict[str, float] = {}
    if inside:
        own_usd, _ = terms.bills.of(month, held_parts(held, month, utilisation))
        opex_usd = {**own_usd, LINE: terms.usd(bought, month)}
    at_start_usd = sold.resale_usd - sold.removal_usd
    units = sum(one.units for one in there)
    return Row(
        month=month,
        demand=mean,
        peak=peak,
        needed=0,
        ordered=0,
        on_order=0,
        owned=units,
        rented=0,
        retired=sum(one.units for one in held if not one.serves(month)),
        capacity=capacity,
        served=share * mean,
        shortfall=0.0,
        requests=own + bought,
        resale_usd=sold.resale_usd,
        decommissioning_usd=sold.removal_usd,
        opex_usd=opex_usd,
        present_usd=present_usd(terms.discount_rate, month, at_start_usd, fsum(opex_usd.values())),
        prompt_tokens=(own + bought) * terms.tokens[0],
        output_tokens=(own + bought) * terms.tokens[1],
        existing=units,
        existing_capacity=capacity,
        existing_sold=sold.units,
        existing_resale_usd=sold.resale_usd,
        gain_usd=sold.gain_usd,
        elsewhere=elsewhere,
    )
