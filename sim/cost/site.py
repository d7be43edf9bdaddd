"""Site section of a scenario: electricity, cooling and space."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from sim.cost.charge import Charge, UnitPrice
from sim.cost.clock import SiteClock, TimeZone
from sim.cost.electricity import Band, Cooling, DemandCharge, DemandRatchet, EnergyCharge, Tariff
from sim.cost.hardware import FleetHardware
from sim.cost.hosting import PerKwMonth, PerRack
from sim.cost.power_contract import ContractBook, PowerContract, contract_charges
from sim.cost.prices import CostError, Price, Problem
from sim.message import Message
from sim.spec import Positive, Spec, Tagged

Hosting = Annotated[PerKwMonth | PerRack, Tagged("per")]


def _none_for_text(value: Any) -> Any:
    return None if value == "none" else value


HostingOrNone = Annotated[
    Hosting | None, BeforeValidator(_none_for_text, json_schema_input_type=Hosting | Literal["none"] | None)
]


class Site(Spec):
    """Costs of a site where servers run."""

    electricity_usd_per_kwh: Price | None = None
    """Electricity price at the site's meter; required unless hosting includes electricity."""
    electricity: Tariff | None = None
    """Electricity prices by hour of the day and season, in place of one price; `starts_at` dates the simulated window.
    """
    demand_usd_per_kw_month: Price | None = None
    """Demand charge: price per kW and month of the site's highest draw, the mean over 15 minutes."""
    demand_ratchet: DemandRatchet | None = None
    """Ratchet of the demand charge: earlier peaks are billed in part."""
    power_contracts: tuple[PowerContract, ...] = ()
    """Power purchase contracts, in the order in which they cover the energy drawn; the tariff prices the rest."""
    pue: Annotated[Positive, Field(ge=1)]
    """Power usage effectiveness: the site's energy divided by the servers' energy; 1 excludes cooling and losses."""
    cooling: Cooling | None = None
    """Efficiency of the cooling plant, if `pue` covers power distribution only; default: the PUE includes cooling."""
    timezone: TimeZone | None = None
    """Time zone of the site in the IANA database, such as Europe/Berlin: `starts_at` is local time there, with summer
    time. Default: a clock without summer time."""
    hosting: HostingOrNone = None
    """Rack space or contracted power; `none` for machines without a cost of space."""

    @model_validator(mode="after")
    def _one_tariff(self) -> Self:
        if self.electricity is not None and self.electricity_usd_per_kwh is not None:
            raise ValueError("electricity and electricity_usd_per_kwh are two tariffs: remove one")
        return self

    @model_validator(mode="after")
    def _beside_a_tariff(self) -> Self:
        if self.demand_ratchet is not None and self.demand_usd_per_kw_month is None:
            raise ValueError("demand_ratchet needs demand_usd_per_kw_month: the price of the demand that it raises")
        if self.power_contracts and not self.metered:
            raise ValueError("power_contracts and hosting.electricity: included both pay for electricity: remove one")
        return self

    def charges(
        self, fleet: Sequence[FleetHardware], clock: SiteClock | None = None, others: Sequence[FleetHardware] = ()
    ) -> list[Charge]:
        """Return the charges of space and metered electricity for *fleet*, one per pool. Raises CostError.

        Parameters
        ----------
        fleet
            Hardware at the site.
        clock
            Local time at the site, for tariffs that depend on it.
        others
            Other machines of the fleet at the site, which share its space but are paid by another bill.

        """
        hosting = self.hosting.charges(fleet, others) if self.hosting is not None else []
        if not self.metered:
            return [*hosting]
        book = self.contract_book(
            [pool.name for hardware in (*fleet, *others) for pool in hardware.pools], _copies(fleet)
        )
        charges: list[Charge] = [
            *hosting,
            *self._energy_charges(fleet, clock, book),
            *self._demand_charges(fleet, others),
        ]
        if book is None:
            return charges
        pools = [(pool.name, pool.server_id) for hardware in fleet for pool in hardware.pools]
        prices = [
            one.usd_per_kwh.unit_price("kWh", f"site.power_contracts.{index}.usd_per_kwh")
            for index, one in enumerate(self.power_contracts)
        ]
        return [*charges, *contract_charges(book, pools, prices)]

    def contract_book(self, pools: Iterable[str], copies: int = 1) -> ContractBook | None:
        """Return the contracts for the machines of *pools*; None without contracts."""
        if not self.power_contracts:
            return None
        return ContractBook(self.power_contracts, tuple(sorted(pools)), self.facility_factor, copies)

    @property
    def metered(self) -> bool:
        """True if electricity is metered and paid in addition to hosting."""
        return self.hosting is None or self.hosting.electricity == "metered"

    def _energy_charges(
        self, fleet: Sequence[FleetHardware], clock: SiteClock | None, book: ContractBook | None
    ) -> list[EnergyCharge]:
        prices = list(self._energy_prices(clock))
        unknown = [hardware.gpu for hardware in fleet if hardware.pools[0].gpu_tdp_w is None]
        if unknown:
            text = Message("the power of {id} is not known, so its electricity cannot be charged", unknown[0])
            raise CostError(Problem("cost", Message("{text}: add tdp_w to data/gpus/{id}.yaml", text, unknown[0])))
        shares = {"energy": self.pue}
        if self.cooling is not None:
            shares["cooling"] = self.cooling.per_server_energy
        return [
            EnergyCharge(pool.name, pool.server_id, share, price, band, component, book)
            for component, share in shares.items()
            for hardware in fleet
            for pool in hardware.pools
            for price, band in prices
        ]

    def _demand_charges(self, fleet: Sequence[FleetHardware], others: Sequence[FleetHardware]) -> list[DemandCharge]:
        if self.demand_usd_per_kw_month is None:
            return []
        price = self.demand_usd_per_kw_month.unit_price("kW-month", "site.demand_usd_per_kw_month")
        behind = tuple(sorted(pool.name for hardware in (*fleet, *others) for pool in hardware.pools))
        least_kw = self.demand_ratchet.least_kw / _copies(fleet) if self.demand_ratchet is not None else 0.0
        return [
            DemandCharge(pool.name, pool.server_id, behind, self.facility_factor, price, least_kw)
            for hardware in fleet
            for pool in hardware.pools
        ]

    def usd_per_kwh_by_hour(self, clock: SiteClock | None) -> tuple[float, ...] | None:
        """Return the annual mean price of each hour of the day [USD/kWh]; None with a single price or none."""
        if self.electricity is None or not self.metered or clock is None:
            return None
        return self.electricity.by_hour(clock)

    def usd_per_kwh_by_hour_of_week(self, clock: SiteClock | None) -> tuple[float, ...] | None:
        """Return the annual mean price of each hour of the week [USD/kWh]; None if all days have equal prices."""
        if self.electricity is None or not self.metered or clock is None or not self.electricity.varies_by_weekday:
            return None
        return self.electricity.by_hour(clock, 168)

    @property
    def facility_factor(self) -> float:
        """Site's energy divided by the servers' energy, including cooling."""
        return self.pue + (self.cooling.per_server_energy if self.cooling is not None else 0.0)

    def _energy_prices(self, clock: SiteClock | None) -> Iterator[tuple[UnitPrice, Band | None]]:
        """Yield the prices per kWh and the hours in which each applies."""
        if self.electricity is not None:
            if clock is None:
                text = "prices by the hour need starts_at: the date and time of day at simulated time 0"
                raise CostError(Problem("site.electricity", text))
            for price, key in self.electricity.bands():
                stated = price.unit_price("kWh", f"site.electricity.{key}")
                yield stated, Band(clock, self.electricity, price.usd)
        elif self.electricity_usd_per_kwh is not None:
            yield self.electricity_usd_per_kwh.unit_price("kWh", "site.electricity_usd_per_kwh"), None
        else:
            text = "metered electricity needs a price, or electricity: {hourly_usd_per_kwh: [24 prices]}"
            raise CostError(Problem("site.electricity_usd_per_kwh", text))


def _copies(fleet: Sequence[FleetHardware]) -> int:
    """Return the number of equal fleets at the site."""
    return fleet[0].copies if fleet else 1
