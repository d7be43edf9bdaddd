"""People who keep machines running: full-time equivalents times their cost, shared by the machines they look after."""

from collections.abc import Iterator, Sequence
from typing import Self

from pydantic import model_validator

from sim.cost.bill.charge import FlatCharge, Stated
from sim.cost.hardware import Hardware
from sim.cost.money import Price
from sim.cost.operations.component import UserComponent, for_each
from sim.cost.prices import CostError, Problem
from sim.spec import NonNegative, Positive
from sim.units import HOURS_PER_YEAR


class Staff(UserComponent):
    """A team and what it looks after; the fleet pays for its part of that."""

    fte: NonNegative
    """Full-time equivalents in the team."""
    usd_per_fte_year: Price
    """Salary with everything that the employer pays on top."""
    over_servers: Positive | None = None
    """Servers that the team looks after, these and others."""
    over_gpus: Positive | None = None
    """GPUs that the team looks after; state this or `over_servers`."""

    @model_validator(mode="after")
    def _one_measure(self) -> Self:
        if (self.over_servers is None) == (self.over_gpus is None):
            raise ValueError("either over_servers or over_gpus is needed: what the team looks after")
        return self

    def charges(self, fleet: Sequence[Hardware]) -> list[FlatCharge]:
        """The team's time, a charge per pool. Raises CostError where servers are not known."""
        return for_each(fleet, self._time_for)

    def _time_for(self, hardware: Hardware) -> list[FlatCharge]:
        if self.over_gpus is not None:
            share = hardware.gpus / self.over_gpus
        elif self.over_servers is not None and hardware.server is not None:
            share = hardware.servers / self.over_servers
        else:
            text = f"pool {hardware.pool_names} names no server to count: state over_gpus"
            raise CostError(Problem("operations.staff.over_servers", text))
        path = "operations.staff.usd_per_fte_year"
        price = self.usd_per_fte_year.unit_price("FTE-year", path, "FTE and year", *self._team())
        return [
            FlatCharge("staff", pool.name, pool.server_id, fte_years_per_h, price)
            for pool, fte_years_per_h in hardware.shared(self.fte * share / HOURS_PER_YEAR)
        ]

    def _team(self) -> Iterator[Stated]:
        yield Stated("operations.staff.fte", self.fte, "FTE")
        for measure in ("servers", "gpus"):
            if (count := getattr(self, f"over_{measure}")) is not None:
                yield Stated(f"operations.staff.over_{measure}", count, measure)
