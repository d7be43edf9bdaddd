"""Where the machines stand: electricity, cooling, space."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from sim.cost.charge import Charge, UnitPrice
from sim.cost.colocation import PerKwMonth
from sim.cost.energy import EnergyCharge
from sim.cost.hardware import Hardware
from sim.cost.prices import CostError, Problem
from sim.cost.rack import PerRack
from sim.spec import NonNegative, Positive, Spec

Hosting = Annotated[PerKwMonth | PerRack, Field(discriminator="per")]


def _none(value: Any) -> Any:
    return None if value == "none" else value


HostingOrNone = Annotated[
    Hosting | None, BeforeValidator(_none, json_schema_input_type=Hosting | Literal["none"] | None)
]


class Site(Spec):
    """What a place charges for keeping servers running."""

    electricity_usd_per_kwh: NonNegative | None = None
    """Tariff at the site's meter; needed unless hosting includes electricity."""
    pue: Annotated[Positive, Field(ge=1)]
    """Power usage effectiveness: the site's energy over the servers' energy; 1 leaves out cooling and losses."""
    hosting: HostingOrNone = None
    """Rack space or contracted power; `none` for machines that stand where nobody charges for it."""

    def charges(self, fleet: Sequence[Hardware]) -> list[Charge]:
        """Space for *fleet* and the electricity that is metered on top, a charge per pool. Raises CostError."""
        hosting = self.hosting.charges(fleet) if self.hosting is not None else []
        return [*hosting, *self._energy_charges(fleet)]

    def _energy_charges(self, fleet: Sequence[Hardware]) -> list[EnergyCharge]:
        if self.hosting is not None and self.hosting.electricity == "included":
            return []
        if self.electricity_usd_per_kwh is None:
            raise CostError(Problem("site.electricity_usd_per_kwh", "metered electricity needs a tariff"))
        unknown = [hardware.gpu for hardware in fleet if hardware.pools[0].gpu_tdp_w is None]
        if unknown:
            text = f"the power of {unknown[0]} is not known, so its electricity cannot be charged"
            raise CostError(Problem("cost", f"{text}: add tdp_w to data/gpus/{unknown[0]}.yaml"))
        price = UnitPrice(self.electricity_usd_per_kwh, "kWh", "scenario: site.electricity_usd_per_kwh")
        return [
            EnergyCharge(pool.name, pool.server_id, self.pue, price)
            for hardware in fleet
            for pool in hardware.pools
        ]
