"""Everything that a fleet is charged for, with prices in USD: what the ledger multiplies metered quantities by."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from sim.catalog.price import PriceList
from sim.catalog.value import Value
from sim.cost.charge import Charge
from sim.cost.finance import Annuity, StraightLine
from sim.cost.hardware import Hardware, PoolFacts, group_hardware
from sim.cost.prices import CostError, PriceBook, Problem, quote_source
from sim.cost.purchase import Buy
from sim.cost.rental import Rent
from sim.cost.site import Site

Cost = Annotated[Buy | Rent, Field(discriminator="acquisition")]


@dataclass(frozen=True, slots=True)
class CostPlan:
    """A fleet's charges."""

    charges: tuple[Charge, ...]
    notes: tuple[str, ...] = ()
    """What a reader of the bill must know: sentences for the report."""

    @property
    def capex_usd(self) -> float:
        """Purchase money up front; 0 when renting."""
        return sum(charge.capex_usd for charge in self.charges)

    @property
    def values(self) -> dict[str, Value]:
        """The catalogue's prices that the plan rests on, by `item/offer`."""
        return {charge.price.offer: charge.price.value for charge in self.charges if charge.price.value is not None}


def resolve_costs(
    cost: Buy | Rent,
    site: Site | None,
    finance: StraightLine | Annuity | None,
    pools: Sequence[PoolFacts],
    prices: Callable[[str], PriceList | None],
) -> CostPlan:
    """Price the hardware of *pools*; *prices* gives the catalogue's price list of an item.

    Raises CostError with all that is missing at once; nothing is ever charged at zero for want of a price.
    """
    fleet = group_hardware(pools, cost.share)
    book = PriceBook(cost.quotes, finance.fx if finance else {}, prices)
    if isinstance(cost, Rent):
        rent = cost.charges(fleet, book)
        return CostPlan(tuple(rent), (*_rent_notes(cost), *_unused_quotes(cost, rent)))
    problems: list[Problem] = []
    charges: list[Charge] = []
    if finance is None:
        problems.append(Problem("finance", "buying needs finance: method, life_years, residual_fraction"))
    else:
        charges += _collect(problems, lambda: cost.charges(fleet, book, finance))
    if site is None:
        problems.append(Problem("site", "buying needs a site: electricity_usd_per_kwh, pue, hosting"))
    else:
        charges += _collect(problems, lambda: site.charges(fleet))
    if problems or site is None or finance is None:
        raise CostError(*problems)
    notes = (*_server_notes(fleet, cost.share), *_terms_notes(site, finance), *_unused_quotes(cost, charges))
    return CostPlan(tuple(charges), notes)


def _collect(problems: list[Problem], price: Callable[[], Sequence[Charge]]) -> Sequence[Charge]:
    try:
        return price()
    except CostError as error:
        problems += error.problems
        return ()


def _unused_quotes(cost: Buy | Rent, charges: Sequence[Charge]) -> Iterator[str]:
    used = {charge.price.source for charge in charges}
    for item in cost.quotes:
        if quote_source(item) not in used:
            yield f"The quote for {item} is not used."


def _rent_notes(cost: Rent) -> Iterator[str]:
    yield "Rent is taken to include space, electricity and repair; every rented hour is paid, busy or not."
    if cost.share:
        yield "Rented instances are shared: only the GPUs in use are paid for."


def _server_notes(fleet: Sequence[Hardware], share: bool) -> Iterator[str]:
    for hardware in fleet:
        if hardware.server is None:
            yield f"Pool {hardware.pool_names} names no server: its GPUs are charged without one."
        elif hardware.gpus % hardware.slots and share:
            yield f"{hardware.server.name} is shared: {hardware.gpus} GPUs pay for {hardware.servers:g} servers."
        elif hardware.gpus % hardware.slots:
            slots = int(hardware.servers) * hardware.slots
            yield f"{slots - hardware.gpus} of {slots} slots of {hardware.server.name} are paid for and not used."


def _terms_notes(site: Site, finance: StraightLine | Annuity) -> Iterator[str]:
    if site.hosting is None:
        yield "No hosting is charged: space, racks and cooling plant are left out."
    elif site.hosting.electricity == "included":
        yield "Hosting includes electricity: energy is metered and not charged."
    if isinstance(finance, StraightLine) and finance.discount_rate > 0:
        yield "Straight line leaves the discount rate out."
