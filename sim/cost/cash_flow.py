"""Cash flows of a bill: payments at delivery, month by month, and at the end (docs/money.md)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import fsum
from typing import Any

from sim.cost.buying import PAYMENT_TERMS
from sim.cost.charge import Charge, MarketPrice, PaymentTime, amount_usd
from sim.cost.cost_plan import CostPlan
from sim.cost.finance import Annuity, StraightLine
from sim.cost.metering import MeteredWindow
from sim.cost.time_value import Horizon

Lines = Mapping[str, float]
"""Map from component to amount."""


@dataclass(frozen=True, slots=True)
class CashFlows:
    """Cash flows of a fleet at constant load, at the prices of the first month."""

    booked_usd_per_h: Lines = field(default_factory=dict)
    """Cost per component, with one-time payments spread over the life as in the ledger [USD/h]."""
    delivery_usd: Lines = field(default_factory=dict)
    """Payments at delivery, by component [USD]."""
    monthly_usd_per_h: Lines = field(default_factory=dict)
    """Operating cost paid at the end of every month, including rent, by component [USD/h]."""
    end_usd: Lines = field(default_factory=dict)
    """Payments at the end of the machines' life, by component [USD]."""
    agreed_months: Lines = field(default_factory=dict)
    """Months for which the price of each monthly component is agreed (a commitment's term); 0: each month has its own
    price."""
    moved_usd: Mapping[tuple[int, int], float] = field(default_factory=dict)
    """(Months after which a contract is renewed, or 0 for the life of hardware; month from its start) -> payment beside
    those at delivery and by month; they sum to 0 (VAT, payment terms, prepaid rent) [USD]."""
    terms_usd: Mapping[int, float] = field(default_factory=dict)
    """Part of `moved_usd` for terms of payment of the price: month from the delivery -> payment [USD]."""
    profiles: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Monthly component -> ratio of each month's amount, over the life or contract, to the level amount."""
    resold_usd: float = 0.0
    """Part of the purchases that is resold at the end, at its price when new [USD]."""
    rent_usd_per_h: float = 0.0
    """Rent within the operating cost, in the first month [USD/h]."""
    rent_monthly_usd_per_h: Lines = field(default_factory=dict)
    """Part of each monthly component that is proportional to the rent [USD/h]."""
    hardware_usd_per_h: float = 0.0
    """Part of all costs that is proportional to the price of hardware, in the first month [USD/h]."""
    hardware_monthly_usd_per_h: Lines = field(default_factory=dict)
    """Part of each monthly component that is proportional to the price of hardware [USD/h]."""
    prompts_usd_per_h: Lines = field(default_factory=dict)
    """Part of each component for prompt tokens; empty where no time of prefill was metered [USD/h]."""
    answers_usd_per_h: Lines = field(default_factory=dict)
    """Part of each component for output tokens; empty where no time of decode was metered [USD/h]."""

    def of_month(self, component: str, month: int) -> float:
        """Return the amount of *component* in *month* (from 1) of the life or contract, as a ratio to the level one."""
        profile = self.profiles.get(component)
        return profile[(month - 1) % len(profile)] if profile else 1.0

    @property
    def usd_per_h(self) -> float:
        """Total cost, as booked in the ledger [USD/h]."""
        return fsum(self.booked_usd_per_h.values())

    @property
    def capex_usd(self) -> float:
        """Total of the payments at delivery [USD]."""
        return fsum(self.delivery_usd.values())

    @property
    def opex_usd_per_h(self) -> float:
        """Operating cost in the first month [USD/h]."""
        return fsum(self.monthly_usd_per_h.values())

    @property
    def removal_usd(self) -> float:
        """Total of the payments at the end of the machines' life [USD]."""
        return fsum(self.end_usd.values())

    def levelised_usd_per_h(self, finance: StraightLine | Annuity | None, horizon: Horizon) -> float:
        """Return the levelised cost: the equal payment over *horizon* with the present value of all costs [USD/h]."""
        return _levelised(self.usd_per_h, self.monthly_usd_per_h, self.agreed_months, finance, horizon)

    def levelised_rent_usd_per_h(self, finance: StraightLine | Annuity | None, horizon: Horizon) -> float:
        """Return the part of the levelised cost that is proportional to the rent [USD/h]."""
        return _levelised(self.rent_usd_per_h, self.rent_monthly_usd_per_h, self.agreed_months, finance, horizon)

    def levelised_hardware_usd_per_h(self, finance: StraightLine | Annuity | None, horizon: Horizon) -> float:
        """Return the part of the levelised cost that is proportional to the price of hardware [USD/h]."""
        monthly = self.hardware_monthly_usd_per_h
        return _levelised(self.hardware_usd_per_h, monthly, self.agreed_months, finance, horizon)

    def levelised_lines(self, finance: StraightLine | Annuity | None, horizon: Horizon) -> Lines:
        """Return the levelised cost of each component [USD/h]."""
        return {
            name: _levelised(usd, {name: self.monthly_usd_per_h.get(name, 0.0)}, self.agreed_months, finance, horizon)
            for name, usd in self.booked_usd_per_h.items()
        }

    def levelised_prompts_usd_per_h(self, finance: StraightLine | Annuity | None, horizon: Horizon) -> float | None:
        """Return the part of the levelised cost for prompt tokens [USD/h]; the rest is that for output tokens.

        None unless both prefill and decode were metered.

        Notes
        -----
        The cost of each pool is divided as its GPU time between prefill and decode, see `MeteredWindow.prefill_share`.
        A component whose pools did neither is divided as the other components together.

        """
        prompts, answers = self.prompts_usd_per_h, self.answers_usd_per_h
        if not prompts or not answers:
            return None
        divided = {name: prompts.get(name, 0.0) + answers.get(name, 0.0) for name in {**prompts, **answers}}
        whole = fsum(divided.values())
        usual = fsum(prompts.values()) / whole if whole else 0.0
        return fsum(
            usd * (prompts.get(name, 0.0) / divided[name] if divided.get(name) else usual)
            for name, usd in self.levelised_lines(finance, horizon).items()
        )


def _levelised(
    usd_per_h: float,
    monthly: Lines,
    agreed_months: Lines,
    finance: StraightLine | Annuity | None,
    horizon: Horizon,
) -> float:
    """Return *usd_per_h* with its *monthly* part levelised over *horizon* [USD/h].

    Notes
    -----
    usd_per_h + sum over components of monthly * (level_factor - 1), see `Horizon.level_factor`.

    """
    if finance is None or not finance.inflation:
        return usd_per_h
    factors = {name: horizon.level_factor(finance.growth_of(name), agreed_months.get(name, 0.0)) for name in monthly}
    return usd_per_h + fsum(usd * (factors[name] - 1) for name, usd in monthly.items())


def flows_of(costs: CostPlan, window: MeteredWindow, copies: int = 1) -> CashFlows:
    """Return the cash flows of the bill *costs*.

    Parameters
    ----------
    costs
        Cost plan of all copies together.
    window
        Meter readings of one copy.
    copies
        Number of equal fleets.

    """
    booked = [(charge, _usd_per_h(charge, window, copies)) for charge in costs.charges]
    rent = _following(booked, MarketPrice.RENT)
    hardware = _following(booked, MarketPrice.HARDWARE, MarketPrice.MACHINES)
    return CashFlows(
        booked_usd_per_h=_by_component((charge, usd) for charge, usd in booked),
        delivery_usd=_by_component((one, one.once_usd) for one in costs.charges if one.paid is PaymentTime.AT_DELIVERY),
        monthly_usd_per_h=_by_component((charge, usd) for charge, usd in booked if charge.paid.monthly),
        end_usd=_by_component((one, one.once_usd) for one in costs.charges if one.paid is PaymentTime.AT_END),
        moved_usd=_moved_payments(costs),
        terms_usd=_payment_terms(costs),
        profiles={charge.component: charge.profile for charge in costs.charges if charge.profile},
        agreed_months={charge.component: charge.agreed_months for charge in costs.charges if charge.paid.monthly},
        resold_usd=fsum(charge.once_usd for charge in costs.charges if charge.resold),
        rent_usd_per_h=fsum(usd for _, usd in rent),
        rent_monthly_usd_per_h=_by_component((charge, usd) for charge, usd in rent if charge.paid.monthly),
        hardware_usd_per_h=fsum(usd for _, usd in hardware),
        hardware_monthly_usd_per_h=_by_component((charge, usd) for charge, usd in hardware if charge.paid.monthly),
        **_by_kind(booked, window),
    )


def _by_kind(booked: Iterable[tuple[Charge, float]], window: MeteredWindow) -> dict[str, Lines]:
    """Return the parts of `CashFlows` for prompt and for output tokens."""
    shares = [(charge, usd, window.prefill_share(charge.pool)) for charge, usd in booked]
    return {
        "prompts_usd_per_h": _by_component((charge, share * usd) for charge, usd, share in shares if share),
        "answers_usd_per_h": _by_component(
            (charge, (1 - share) * usd) for charge, usd, share in shares if share is not None and share < 1
        ),
    }


def _moved_payments(costs: CostPlan) -> dict[tuple[int, int], float]:
    found: dict[tuple[int, int], float] = {}
    for charge in costs.charges:
        for month, usd in charge.moved_usd:
            place = round(charge.agreed_months), month
            found[place] = found.get(place, 0.0) + usd
    return found


def _payment_terms(costs: CostPlan) -> dict[int, float]:
    found: dict[int, float] = {}
    for month, usd in (
        one for charge in costs.charges if charge.component == PAYMENT_TERMS for one in charge.moved_usd
    ):
        found[month] = found.get(month, 0.0) + usd
    return found


def _following(booked: Iterable[tuple[Charge, float]], *prices: MarketPrice) -> list[tuple[Charge, float]]:
    """Return the part of each charge that is proportional to one of the market *prices*."""
    return [(charge, usd * charge.follows_share) for charge, usd in booked if charge.follows in prices]


def mean_flows(weighted: Sequence[tuple[CashFlows, float]]) -> CashFlows:
    """Return the weighted mean of cash flows, component by component."""
    total = fsum(weight for _, weight in weighted)
    found: dict[str, Any] = {}
    for one in fields(CashFlows):
        values = [(getattr(flows, one.name), weight / total) for flows, weight in weighted]
        if one.name == "profiles":  # profiles do not depend on the load
            found[one.name] = values[0][0]
        elif isinstance(values[0][0], Mapping):
            names = dict.fromkeys(name for lines, _ in values for name in lines)
            found[one.name] = {name: fsum(part * lines.get(name, 0.0) for lines, part in values) for name in names}
        else:
            found[one.name] = fsum(part * value for value, part in values)
    return CashFlows(**found)


def with_peak(mean: CashFlows, peak: CashFlows, costs: CostPlan) -> CashFlows:
    """Return *mean*, an average over the hours of a year, with the charges for monthly peaks taken from *peak*.

    *peak* is the cash flow in the busiest hours.
    """
    names = {charge.component for charge in costs.charges if charge.by_peak}
    booked, monthly = (
        {name: (busiest if name in names else usual)[name] for name in usual}
        for usual, busiest in (
            (mean.booked_usd_per_h, peak.booked_usd_per_h),
            (mean.monthly_usd_per_h, peak.monthly_usd_per_h),
        )
    )
    return replace(mean, booked_usd_per_h=booked, monthly_usd_per_h=monthly)


def _usd_per_h(charge: Charge, window: MeteredWindow, copies: int) -> float:
    """Return the amount of *charge* per hour for all copies; charges by the clock already cover all copies [USD/h]."""
    return amount_usd(charge, window) / window.hours * (1 if charge.paid.by_the_clock else copies)


def _by_component(amounts: Iterable[tuple[Charge, float]]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for charge, usd in amounts:
        found.setdefault(charge.component, []).append(usd)
    return {name: fsum(parts) for name, parts in found.items()}
