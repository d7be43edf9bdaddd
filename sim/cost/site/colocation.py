"""Hosting by contracted power: what is reserved is paid, drawn or not."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from sim.cost.bill.charge import FlatCharge
from sim.cost.hardware import Hardware
from sim.cost.money import Price
from sim.cost.prices import CostError, Problem
from sim.spec import Positive, Spec
from sim.units import HOURS_PER_MONTH


def _contracted(value: Any) -> Any:
    if value == "nameplate" or (isinstance(value, int | float) and value > 0):
        return value
    raise ValueError(f"contracted kW above 0 or nameplate is needed, not {value!r}")


class PerKwMonth(Spec):
    """A price per contracted kW and month."""

    per: Literal["kw_month"]
    usd: Price
    kw: Annotated[Literal["nameplate"] | Positive, BeforeValidator(_contracted)] = "nameplate"
    """Contracted kW: the nameplate of all servers, or a number for each fleet, which pools share by their GPUs; each
    unit of a fleet that several are planned of has it."""
    electricity: Literal["metered", "included"] = "metered"
    """Whether the energy is paid on top."""

    def charges(self, fleet: Sequence[Hardware], beside: Sequence[Hardware] = ()) -> list[FlatCharge]:
        """Contracted power of *fleet*, a charge per pool; *beside* is what another bill pays its part for.

        Raises CostError where the nameplate is not known.
        """
        price = self.usd.unit_price("kW-month", "site.hosting.usd")
        gpus = sum(hardware.gpus for hardware in (*fleet, *beside))
        result = []
        for hardware in fleet:
            kw = _nameplate_kw(hardware) if self.kw == "nameplate" else hardware.copies * self.kw * hardware.gpus / gpus
            result += [
                FlatCharge("hosting", pool.name, pool.server_id, months_per_h, price)
                for pool, months_per_h in hardware.shared(kw / HOURS_PER_MONTH)
            ]
        return result


def _nameplate_kw(hardware: Hardware) -> float:
    if hardware.peak_w is None:
        text = f"the nameplate power of pool {hardware.pool_names} is not known: state the contracted kW"
        raise CostError(Problem("site.hosting.kw", text))
    return hardware.peak_w / 1000
