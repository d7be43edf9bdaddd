"""One unit of a plan: what it can serve, what it draws at part load, and the prices of one of it.

Quantities come from simulation, prices from the charges that the ledger uses; a month multiplies the two.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sim.cost import CostPlan
from sim.cost.charge import FlatCharge
from sim.cost.egress import EgressCharge
from sim.cost.energy import EnergyCharge
from sim.cost.operations import Operations
from sim.cost.rental import RENTAL
from sim.cost.tariff import MONTHS
from sim.units import GB

BOUGHT = ("gpu_capital", "server_capital", "network_storage", "spares")
"""Components whose purchases are sold again."""
UP_FRONT = (*BOUGHT, "tax", "deployment")
"""Components that a plan pays once, where the ledger spreads them."""
AT_THE_END = "decommissioning"
TENANTS = ("staff", "software")
"""Running costs that rented units have, too."""


@dataclass(frozen=True, slots=True)
class Quantities:
    """What one unit does at several loads, from 0 to its capacity."""

    loads: tuple[float, ...]
    it_kw: tuple[float, ...]
    """Mean power at the servers' plugs."""
    requests_per_s: tuple[float, ...]

    def power_kw(self, load: float) -> float:
        """Between two simulated loads along a straight line."""
        return float(np.interp(load, self.loads, self.it_kw))

    def served_rps(self, load: float) -> float:
        """Requests per second, likewise."""
        return float(np.interp(load, self.loads, self.requests_per_s))


@dataclass(frozen=True, slots=True)
class Prices:
    """What one unit costs, with the prices of today."""

    purchase_usd: Mapping[str, float]
    """Component -> paid with the order; falls as prices do."""
    deployment_usd: float
    """Paid at delivery."""
    resold_usd: float
    """The part of the purchase that is sold again."""
    decommissioning_usd: float
    hourly_usd: Mapping[str, float]
    """Component -> USD/h of a unit in service, whatever it serves."""
    failures_fixed: float
    """Share of the cost of failures that is work and freight, which do not get cheaper."""
    usd_per_kwh: Mapping[str, tuple[float, ...]]
    """energy and cooling -> USD per kWh at the servers' plugs, for each of the calendar's twelve months."""
    usd_per_output_token: float
    """Egress."""
    rental_usd_per_h: float

    @property
    def up_front_usd(self) -> float:
        """Purchase and deployment."""
        return sum(self.purchase_usd.values()) + self.deployment_usd


def prices(costs: CostPlan, operations: Operations | None) -> Prices:
    """The charges of a fleet, sorted by when and how often they are paid."""
    flat = [charge for charge in costs.charges if isinstance(charge, FlatCharge)]
    up_front = {name: sum(c.once_usd for c in flat if c.component == name) for name in UP_FRONT}
    failures = operations.failures if operations is not None else None
    failure_usd = next((charge.price.usd for charge in flat if charge.component == "failures"), 0.0)
    egress = next((charge for charge in costs.charges if isinstance(charge, EgressCharge)), None)
    return Prices(
        purchase_usd={name: usd for name, usd in up_front.items() if name != "deployment" and usd},
        deployment_usd=up_front["deployment"],
        resold_usd=sum(up_front[name] for name in BOUGHT),
        decommissioning_usd=sum(
            charge.units_per_h * charge.price.stated[0].value * charge.price.fx_rate
            for charge in flat
            if charge.component == AT_THE_END
        ),
        hourly_usd=_hourly(charge for charge in flat if charge.component not in (*UP_FRONT, AT_THE_END, *RENTAL)),
        failures_fixed=failures.handling_usd.usd / failure_usd if failures is not None and failure_usd else 0.0,
        usd_per_kwh=_energy([charge for charge in costs.charges if isinstance(charge, EnergyCharge)]),
        usd_per_output_token=egress.price.usd * egress.bytes_per_output_token / GB if egress is not None else 0.0,
        rental_usd_per_h=sum(_hourly(charge for charge in flat if charge.component in RENTAL).values()),
    )


def _hourly(charges: Iterable[FlatCharge]) -> dict[str, float]:
    found: dict[str, float] = {}
    for charge in charges:
        found[charge.component] = found.get(charge.component, 0.0) + charge.units_per_h * charge.price.usd
    return found


def _energy(charges: Sequence[EnergyCharge]) -> dict[str, tuple[float, ...]]:
    """All pools of a fleet pay the same prices: those of the first stand for all."""
    first = [charge for charge in charges if charge.pool == charges[0].pool]
    names = dict.fromkeys(charge.component for charge in first)
    return {
        name: tuple(sum(_in_month(c, month) for c in first if c.component == name) for month in MONTHS)
        for name in names
    }


def _in_month(charge: EnergyCharge, month: int) -> float:
    """Part of a month's mean price per kWh that *charge* holds for: all, or the hours of its band."""
    share = 1.0 if charge.band is None else charge.band.share(month)
    return charge.pue * charge.price.usd * share
