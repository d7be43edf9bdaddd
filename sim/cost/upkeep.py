"""Annual costs: staff, software licences, maintenance contract, property tax and insurance."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, Self

from pydantic import model_validator

from sim.cost.charge import FlatCharge, MarketPrice, StatedFigure
from sim.cost.component import OwnedFleet, OwnerComponent, UserComponent, for_each
from sim.cost.hardware import FleetHardware
from sim.cost.prices import CostError, Price, Problem
from sim.cost.time_value import level
from sim.message import Message
from sim.spec import Fraction, NonNegative, Positive
from sim.units import HOURS_PER_YEAR


class Staff(UserComponent):
    """Operations team and the number of machines it looks after; the fleet pays its share.

    Notes
    -----
    fte * usd_per_fte_year * machines of the fleet / machines of the team, per year.

    """

    fte: NonNegative
    """Full-time equivalents in the team."""
    usd_per_fte_year: Price
    """Annual cost of one full-time equivalent, including all employer's costs."""
    over_servers: Positive | None = None
    """Servers that the team looks after, including those outside the fleet."""
    over_gpus: Positive | None = None
    """GPUs that the team looks after, including those outside the fleet; state this or `over_servers`."""

    @model_validator(mode="after")
    def _one_measure(self) -> Self:
        if (self.over_servers is None) == (self.over_gpus is None):
            raise ValueError("either over_servers or over_gpus is needed: what the team looks after")
        return self

    def charges(self, fleet: Sequence[FleetHardware]) -> list[FlatCharge]:
        """Return the cost of the team, a charge per pool. Raises CostError if the servers are unknown."""
        return for_each(fleet, self._time_for)

    def _time_for(self, hardware: FleetHardware) -> list[FlatCharge]:
        if self.over_gpus is not None:
            share = hardware.gpus / self.over_gpus
        elif self.over_servers is not None and hardware.server is not None:
            share = hardware.servers / self.over_servers
        else:
            text = Message("pool {pool_names} names no server to count: state over_gpus", hardware.pool_names)
            raise CostError(Problem("operations.staff.over_servers", text))
        path = "operations.staff.usd_per_fte_year"
        price = self.usd_per_fte_year.unit_price("FTE-year", path, "FTE and year", *self._team())
        return [
            FlatCharge("staff", pool.name, pool.server_id, fte_years_per_h, price)
            for pool, fte_years_per_h in hardware.per_pool(self.fte * share / HOURS_PER_YEAR)
        ]

    def _team(self) -> Iterator[StatedFigure]:
        yield StatedFigure("operations.staff.fte", self.fte, "FTE")
        for measure in ("servers", "gpus"):
            if (count := getattr(self, f"over_{measure}")) is not None:
                yield StatedFigure(f"operations.staff.over_{measure}", count, measure)


class Software(UserComponent):
    """Licences for GPUs in use, for servers, or both."""

    usd_per_gpu_year: Price | None = None
    """Licence price per GPU in use and year [USD]."""
    usd_per_server_year: Price | None = None
    """Licence price per server and year [USD]."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.usd_per_gpu_year is None and self.usd_per_server_year is None:
            raise ValueError("usd_per_gpu_year or usd_per_server_year is needed")
        return self

    def charges(self, fleet: Sequence[FleetHardware]) -> list[FlatCharge]:
        """Return the licence costs, a charge per pool and measure. Raises CostError if the servers are unknown."""
        return for_each(fleet, self._licence_charges)

    def _licence_charges(self, hardware: FleetHardware) -> list[FlatCharge]:
        result = []
        if self.usd_per_gpu_year is not None:
            result += _licences(hardware, hardware.gpus, "gpu", self.usd_per_gpu_year)
        if self.usd_per_server_year is not None:
            if hardware.server is None:
                text = Message("pool {pool_names} names no server to license", hardware.pool_names)
                raise CostError(Problem("operations.software.usd_per_server_year", text))
            result += _licences(hardware, hardware.servers, "server", self.usd_per_server_year)
        return result


def _licences(hardware: FleetHardware, count: float, measure: str, usd_per_year: Price) -> list[FlatCharge]:
    unit = {"gpu": "GPU-year", "server": "server-year"}[measure]
    price = usd_per_year.unit_price(unit, f"operations.software.usd_per_{measure}_year")
    return [
        FlatCharge("software", pool.name, pool.server_id, years_per_h, price)
        for pool, years_per_h in hardware.per_pool(count / HOURS_PER_YEAR)
    ]


class MaintenanceContract(OwnerComponent):
    """Support and repair contract with the maker or a third party.

    Notes
    -----
    Fee per year [USD] = fraction_per_year * purchase price.

    """

    fraction_per_year: Fraction
    """Annual fee divided by the purchase price of servers, GPUs, network and storage."""

    def charges(self, owned: OwnedFleet) -> list[FlatCharge]:
        """Return the fee for everything in service; spares on the shelf are not covered."""
        return [self._fee(charge) for charge in owned.purchases if charge.component != "spares"]

    def _fee(self, charge: FlatCharge) -> FlatCharge:
        usd_per_h = self.fraction_per_year * charge.once_usd / HOURS_PER_YEAR
        each_usd = usd_per_h / charge.units_per_h if charge.units_per_h else 0.0
        stated = StatedFigure(
            "operations.maintenance.fraction_per_year", self.fraction_per_year, "of the price per year"
        )
        price = charge.price.derived(each_usd, charge.price.unit, stated)
        fee = FlatCharge("maintenance", charge.pool, charge.server, charge.units_per_h, price, unused=charge.unused)
        return replace(fee, follows=MarketPrice.MACHINES)


class _ShareOfValue(OwnerComponent):
    """Yearly share of the machines' book value.

    Notes
    -----
    Payment of month m of the life [USD] = fraction_of_value_per_year / 12 * price * b_m, with the book value b_m of
    `finance.book_fractions`; bills per hour contain the equal payment with the same present value.

    """

    fraction_of_value_per_year: Fraction
    """Annual payment divided by the book value of servers, GPUs, network and storage, and spares: the straight line
    from the price to the resale value over `life_years`."""

    expected: ClassVar[bool] = False
    component: ClassVar[str]

    def charges(self, owned: OwnedFleet) -> list[FlatCharge]:
        """Return the payment for everything that is owned, a charge per purchase."""
        path = f"operations.{self.component}.fraction_of_value_per_year"
        stated = StatedFigure(path, self.fraction_of_value_per_year, "of the book value per year")
        values = owned.finance.book_fractions
        equal = level(owned.finance.spread_rate_per_year, values)
        share = self.fraction_of_value_per_year * equal / HOURS_PER_YEAR
        profile = tuple(value / equal for value in values) if equal else ()
        found = []
        for one in owned.purchases:
            each_usd = share * one.once_usd / one.units_per_h if one.units_per_h else 0.0
            price = one.price.derived(each_usd, one.price.unit, stated)
            flat = FlatCharge(self.component, one.pool, one.server, one.units_per_h, price, unused=one.unused)
            found.append(replace(flat, follows=MarketPrice.MACHINES, profile=profile))
        return found


class PropertyTax(_ShareOfValue):
    """Property tax on the machines' book value."""

    component: ClassVar[str] = "property_tax"


class Insurance(_ShareOfValue):
    """Insurance of the machines' book value."""

    component: ClassVar[str] = "insurance"
