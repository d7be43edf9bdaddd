"""Cost plans: all charges of a fleet with prices in USD, by which the ledger multiplies metered quantities.

`resolve_costs` returns the plan of pools with the same cost terms. `costs_by_pool` combines the plans of pools with
different terms, for example some bought and some rented.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from sim.catalogue.market import USD, PriceList
from sim.catalogue.value import Value
from sim.cost.buying import Buy
from sim.cost.charge import Charge, PaymentTime, UnitPrice
from sim.cost.clock import SiteClock
from sim.cost.finance import Annuity, StraightLine
from sim.cost.hardware import FleetHardware, PoolFacts, group_hardware
from sim.cost.operations import Operations, in_words, left_out
from sim.cost.prices import (
    CostError,
    PriceBook,
    Problem,
    collect,
    foreign_prices,
    missing_rate_text,
    offer_item,
    quote_source,
    with_rates,
)
from sim.cost.rental import Billing, Rent
from sim.cost.revenue import Revenue
from sim.cost.site import Site
from sim.cost.token_api import Api, ApiTariff
from sim.message import Message, placed
from sim.spec import Tagged

Cost = Annotated[Buy | Rent, Tagged("acquisition")]


@dataclass(frozen=True, slots=True)
class CostPlan:
    """Charges of a fleet."""

    charges: tuple[Charge, ...]
    notes: tuple[str, ...] = ()
    """Sentences for the report that readers of the bill need."""
    api: ApiTariff | None = None
    """Tariff of the API to compare with; None if the scenario names none."""
    usd_per_kwh_by_hour: tuple[float, ...] | None = None
    """Annual mean price of each hour of the day, if electricity is metered and priced by the hour [USD/kWh]."""
    usd_per_kwh_by_hour_of_week: tuple[float, ...] | None = None
    """Annual mean price of each hour of the week from Monday on, if days have different prices [USD/kWh]."""
    currency: str = "USD"
    """Currency in which the report also shows the main figures."""
    usd_per_currency: float = 1.0
    finance: StraightLine | Annuity | None = None
    """Financing terms; None if the scenario states none."""
    revenue: Revenue | None = None
    """Prices of the tokens that are sold; None if the scenario states none."""

    @property
    def capex_usd(self) -> float:
        """Total of the payments at delivery [USD]; 0 when renting."""
        return sum(charge.once_usd for charge in self.charges if charge.paid is PaymentTime.AT_DELIVERY)

    @property
    def by_peak(self) -> bool:
        """True if a charge depends on the time of energy use within an hour."""
        return any(charge.by_peak for charge in self.charges)

    def averaged(self, month: int | None = None, by_hour: Sequence[float] | None = None) -> "CostPlan":
        """Return the plan at mean prices over the year or over *month* (1 to 12).

        The mean prices replace those of the simulated hours. Hours of the day are weighted by the 24 numbers *by_hour*;
        default: equally.
        """
        return replace(self, charges=tuple(charge.averaged(month, by_hour) for charge in self.charges))

    @property
    def values(self) -> dict[str, Value]:
        """Catalogue prices used by the plan, by `item/offer`."""
        prices = [charge.price for charge in self.charges]
        prices += [self.api.input, self.api.output] if self.api is not None else []
        return {price.offer: price.value for price in prices if price.value is not None}


def resolve_costs(
    cost: Buy | Rent,
    site: Site | None,
    finance: StraightLine | Annuity | None,
    pools: Sequence[PoolFacts],
    prices: Callable[[str], PriceList | None],
    clock: SiteClock | None = None,
    operations: Operations | None = None,
    api: Api | None = None,
    others: Sequence[FleetHardware] = (),
    copies: int = 1,
) -> CostPlan:
    """Return the cost plan of *copies* copies of *pools*.

    Terms agreed once for all copies, such as a commitment, are not multiplied. A missing price is never taken as zero.

    Parameters
    ----------
    cost
        Terms of purchase or rental.
    site
        Site of bought hardware.
    finance
        Financing of bought hardware, and exchange rates.
    pools
        Pools with these terms.
    prices
        Function that returns the catalogue's price list of an item.
    clock
        Local time at the site, for tariffs that depend on it.
    operations
        Further components of the bill.
    api
        API to compare with.
    others
        Other machines of the fleet at the site, which other plans pay for.
    copies
        Number of equal fleets.

    Raises
    ------
    CostError
        Prices or terms are missing; the error lists all of them.

    """
    fleet = group_hardware(pools, cost.share, copies)
    fx = finance.rates if finance else {}
    book = PriceBook(cost.quotes, fx, prices, cost.offers if isinstance(cost, Buy) else ())
    problems, known = _without_rate(cost, site, operations, api, finance)
    site, operations = with_rates(site, known), with_rates(operations, known)
    elsewhere = collect(problems, lambda: [api.tariff(book)] if api is not None else [])
    if isinstance(cost, Rent):
        rate = finance.spread_rate_per_year if finance is not None else 0.0
        charges: list[Charge] = [*collect(problems, lambda: cost.charges(fleet, book, rate))]
        charges += collect(problems, lambda: operations.rented_charges(fleet) if operations is not None else [])
        notes = [*_rent_notes(cost, fleet), *_gpus_without_server_notes(fleet), *_landlord_notes(operations)]
    else:
        charges, notes = [], [*_owned_notes(cost), *_server_notes(fleet, cost.share)]
        nothing_bought = cost.owned and operations is None
        if finance is None and not nothing_bought:
            problems.append(Problem("finance", "buying needs finance: method, life_years, residual_fraction"))
        elif finance is not None:
            charges += collect(problems, lambda: _capital(cost, fleet, book, finance, operations))
            notes += _finance_notes(finance)
        if site is None:
            text = "buying needs a site: electricity_usd_per_kwh, pue, hosting"
            if cost.owned:
                text = "owned GPUs need a site: electricity_usd_per_kwh, pue, hosting"
            problems.append(Problem("site", text))
        else:
            charges += collect(problems, lambda: site.charges(fleet, clock, others))
            notes += _site_notes(site)
    if problems:
        raise CostError(*dict.fromkeys(problems))
    notes += [*_unused_quotes(cost, charges), *left_out(operations, isinstance(cost, Rent))]
    paid = site if not isinstance(cost, Rent) else None
    by_hour = paid.usd_per_kwh_by_hour(clock) if paid is not None else None
    of_week = paid.usd_per_kwh_by_hour_of_week(clock) if paid is not None else None
    tariff = next(iter(elsewhere), None)
    return CostPlan(tuple(charges), tuple(notes), tariff, by_hour, of_week, *_currency(finance), finance)


def _without_rate(
    cost: Buy | Rent,
    site: Site | None,
    operations: Operations | None,
    api: Api | None,
    finance: StraightLine | Annuity | None,
) -> tuple[list[Problem], dict[str, float]]:
    """Return problems for all currencies without a rate, and rates in which a missing one is 1.

    The placeholder rates let the caller find and report all other problems at the same time.
    """
    fx = finance.rates if finance else {}
    bought = not isinstance(cost, Rent)
    sections = {"cost": cost, "operations": operations, "api": api, "site": site if bought else None}
    named = [one for name, section in sections.items() for one in foreign_prices(section, name)]
    named += [("finance.currency", finance.currency)] if finance and finance.currency != USD else []
    missing = [(path, currency) for path, currency in named if currency not in fx]
    problems = [Problem(path, missing_rate_text(currency, fx)) for path, currency in missing]
    return problems, {**dict.fromkeys((currency for _, currency in missing), 1.0), **fx}


def _currency(finance: StraightLine | Annuity | None) -> tuple[str, float]:
    """Return the report's currency, and the value of one unit in USD."""
    if finance is None or finance.currency == USD:
        return USD, 1.0
    return finance.currency, finance.rates[finance.currency]


def _capital(
    cost: Buy,
    fleet: Sequence[FleetHardware],
    book: PriceBook,
    finance: StraightLine | Annuity,
    operations: Operations | None,
) -> list[Charge]:
    """Return the charges of the hardware, and of components that depend on its price."""
    if cost.owned and operations is None:
        return []
    bought = cost.charges(fleet, book, finance)
    charges = [*bought, *(operations.bought_charges(fleet, bought, book, finance) if operations is not None else ())]
    charges += cost.payment_charges(bought, finance)
    return [one for one in charges if one.paid.monthly] if cost.owned else charges


def _unused_quotes(cost: Buy | Rent, charges: Sequence[Charge]) -> Iterator[str]:
    used = {charge.price.source for charge in charges}
    used |= {f"scenario: {figure.path}" for charge in charges for figure in charge.price.stated}
    for item in cost.quotes:
        if quote_source(item) not in used:
            yield Message("The quote for {item} is not used.", item)
    named = {charge.price.offer for charge in charges}
    for offer in cost.offers if isinstance(cost, Buy) else ():
        if offer not in named and offer_item(offer) not in cost.quotes:
            yield Message("The offer {offer} is not used.", offer)


def _rent_notes(cost: Rent, fleet: Sequence[FleetHardware]) -> Iterator[str]:
    yield "Rent is assumed to include space, electricity and repair; every rented hour is paid, busy or not."
    if cost.share:
        yield "Rented instances are shared: only the GPUs in use are paid for."
    if (term := cost.commitment) is not None:
        yield Message(
            "The commitment (GPUs: {gpus}, months: {months:g}) is paid in full, used or not.",
            term.gpus,
            term.months,
        )
        if any(pool.scheduled for hardware in fleet for pool in hardware.pools):
            if cost.spot is None:
                yield "The commitment covers the replicas that run, up to its GPUs; those beyond it are on demand."
            else:
                yield "The commitment covers the replicas that run, up to its GPUs; those beyond it are spot capacity."
    if cost.billing != Billing():
        step, least = cost.billing.granularity_s, cost.billing.minimum_s
        yield Message(
            "Time from start to stop is billed in steps of {step:g} s, at least {least:g} s per start.", step, least
        )
    if (spot := cost.spot) is not None and spot.availability < 1:
        yield (
            Message(
                "Spot capacity is available in {availability:.0%} of its hours; more is rented to compensate. "
                "Interruptions are not simulated: latencies are those of a fleet without interruptions.",
                spot.availability,
            )
        )


def _gpus_without_server_notes(fleet: Sequence[FleetHardware]) -> Iterator[str]:
    for hardware in fleet:
        if hardware.server is None:
            yield Message(
                "Pool {pool_names} names no server: its power, energy and CO2e are those of its GPUs alone.",
                hardware.pool_names,
            )


def _owned_notes(cost: Buy) -> Iterator[str]:
    if cost.owned:
        yield "Owned hardware: its purchase is not charged; electricity, space and upkeep are."


def _landlord_notes(operations: Operations | None) -> Iterator[str]:
    if operations is not None and (given := operations.landlords):
        yield Message("Paid by the owner of the rented hardware: {costs}.", in_words(given))


def _server_notes(fleet: Sequence[FleetHardware], share: bool) -> Iterator[str]:
    for hardware in fleet:
        if hardware.server is None:
            yield Message("Pool {pool_names} names no server: its GPUs are charged without one.", hardware.pool_names)
        elif hardware.gpus % hardware.slots and share:
            yield Message(
                "{name} is shared: {gpus} GPUs pay for {servers:g} servers.",
                hardware.server.name,
                hardware.gpus,
                hardware.servers,
            )
        elif hardware.gpus % hardware.slots:
            slots = int(hardware.servers) * hardware.slots
            yield Message(
                "{unused} of {slots} slots of {name} are paid for and not used.",
                slots - hardware.gpus,
                slots,
                hardware.server.name,
            )


def _site_notes(site: Site) -> Iterator[str]:
    if site.demand_usd_per_kw_month is not None and site.metered:
        yield "The demand charge takes the highest mean over 15 minutes in the simulated window as every month's peak."
    if site.hosting is None:
        yield "No hosting is charged: space, racks and cooling plant are left out."
    elif site.hosting.electricity == "included":
        yield "Hosting includes electricity: energy is metered and not charged."
    elif site.electricity is not None:
        yield "Electricity is charged at the hours of the simulated window, from starts_at on; other hours differ."


def _finance_notes(finance: StraightLine | Annuity) -> Iterator[str]:
    if isinstance(finance, StraightLine) and finance.discount_rate > 0:
        yield "Straight line books purchases without interest; breakeven, plan and size count the discount rate."
    if finance.resale is not None:
        yield Message(
            "After {life_years:g} years the hardware is sold for {resale_fraction:.0%} of its price.",
            finance.life_years,
            finance.resale_fraction,
        )
        if (fitted := finance.resale.fitted) is not None and fitted.range is not None:
            yield Message(
                "The resale curve {curve} is a fit to second-hand prices: a loss of {loss:.0%} a year, by single "
                "prices {low:.0%} to {high:.0%}.",
                finance.resale.curve,
                fitted.value,
                fitted.range[0],
                fitted.range[1],
            )


Pricer = Callable[[Cost | None, Sequence[PoolFacts], Sequence[FleetHardware]], CostPlan]
"""Function (cost terms, pools, other machines of the fleet at the site) -> cost plan."""


def costs_by_pool(ways: Sequence[Cost | None], pools: Sequence[PoolFacts], priced: Pricer, copies: int = 1) -> CostPlan:
    """Return the cost plan of *pools*, each with its own terms in *ways*.

    *priced* returns the plan of *copies* copies of pools with equal terms. Only such pools share servers; all bought
    pools share racks. Raises CostError with all problems, each at `pools.<i>.cost` of the first pool with the terms.
    """
    groups: list[tuple[Cost | None, list[int]]] = []
    for position, way in enumerate(ways):
        members = next((members for known, members in groups if known == way), None)
        if members is None:
            groups.append((way, [position]))
        else:
            members.append(position)
    plans: list[CostPlan] = []
    problems: dict[Problem, None] = {}
    for way, members in groups:
        holder = f"pools.{members[0]}."
        other_hardware = [
            one
            for other, others in groups
            if other is not way and isinstance(other, Buy)
            for one in group_hardware([pools[i] for i in others], other.share, copies)
        ]
        try:
            plan = priced(way, [pools[i] for i in members], other_hardware)
        except CostError as error:
            found = (Problem(_path_in_pool(one.path, holder), one.text) for one in error.problems)
            problems.update(dict.fromkeys(found))
            continue
        names = ", ".join(pools[i].name for i in members)
        notes = tuple(placed(names, note) for note in plan.notes)
        plans.append(replace(plan, charges=tuple(_within_pool(one, holder) for one in plan.charges), notes=notes))
    if problems:
        raise CostError(*problems)
    metered = next((plan for plan in plans if plan.usd_per_kwh_by_hour is not None), plans[0])
    return replace(
        plans[0],
        charges=tuple(charge for plan in plans for charge in plan.charges),
        notes=tuple(note for plan in plans for note in plan.notes),
        usd_per_kwh_by_hour=metered.usd_per_kwh_by_hour,
        usd_per_kwh_by_hour_of_week=metered.usd_per_kwh_by_hour_of_week,
    )


def _path_in_pool(path: str, holder: str) -> str:
    """Return *path* within the pool that states the terms; paths of fleet-wide sections are unchanged."""
    return f"{holder}{path}" if path.split(".")[0] == "cost" else path


def _within_pool(charge: Charge, holder: str) -> Charge:
    """Return *charge* with the scenario paths of its figures placed within their pool."""
    changed: Any = charge
    found: Charge = replace(changed, price=_price(charge.price, holder))
    return found


def _price(price: UnitPrice, holder: str) -> UnitPrice:
    stated = tuple(one._replace(path=_path_in_pool(one.path, holder)) for one in price.stated)
    scenarios = "scenario: "
    source = price.source
    if source.startswith(scenarios):
        source = scenarios + _path_in_pool(source.removeprefix(scenarios), holder)
    return replace(price, source=source, stated=stated)
