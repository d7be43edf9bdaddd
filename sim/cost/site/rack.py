"""Hosting by the rack: servers share racks, as far as height and power go."""

from collections.abc import Sequence
from math import floor, inf
from typing import Literal, NamedTuple, Self

from pydantic import model_validator

from sim.cost.bill.charge import FlatCharge
from sim.cost.hardware import Hardware
from sim.cost.money import Price
from sim.cost.prices import CostError, Problem
from sim.cost.site.packing import ServerKind, racks_needed, whole
from sim.spec import Count, Positive, Spec, WholeNumber
from sim.units import HOURS_PER_MONTH


class RackFit(NamedTuple):
    """How many servers of one kind one rack holds, with parts of a server."""

    by_space: float
    by_power: float


class PerRack(Spec):
    """A price per rack and month. All servers of a fleet at the site share racks."""

    per: Literal["rack"]
    usd_per_month: Price
    power_limit_kw: Positive
    """What one rack supplies and cools; servers count with their nameplate."""
    units: Count = 42
    """Height of a rack [rack units]; servers count with their `rack_units`."""
    reserved_units: WholeNumber = 0
    """Of these for switches, patch panels and power strips."""
    servers_per_rack: Count | None = None
    """In place of heights: places in one rack, one for any server."""
    count: Literal["fraction", "whole"]
    """whole: the fewest racks that hold all servers are rented. fraction: the larger of their parts of a rack's height
    and power is paid, somebody else fills the rest."""
    electricity: Literal["metered", "included"] = "metered"

    @model_validator(mode="after")
    def _one_measure(self) -> Self:
        if self.servers_per_rack is not None and self.model_fields_set & {"units", "reserved_units"}:
            raise ValueError("servers_per_rack stands in place of units and reserved_units: remove one")
        if self.reserved_units >= self.units:
            raise ValueError(f"reserved_units must be below units ({self.units}), not {self.reserved_units}")
        return self

    @property
    def by_height(self) -> bool:
        """Whether the servers' `rack_units` count."""
        return self.servers_per_rack is None

    def charges(self, fleet: Sequence[Hardware], beside: Sequence[Hardware] = ()) -> list[FlatCharge]:
        """Racks for *fleet*, a charge per pool; *beside* are servers in the same racks that another bill pays for.

        Raises CostError with every kind of server that no rack holds.
        """
        every = (*fleet, *beside)
        problems: list[Problem] = []
        fits: list[RackFit] = []
        for hardware in every:
            try:
                fits.append(self._fit(hardware))
            except CostError as error:
                problems += error.problems
        if problems:
            raise CostError(*problems)
        price = self.usd_per_month.unit_price("rack-month", "site.hosting.usd_per_month")
        racks = self._racks([hardware.servers for hardware in every], fits)
        return [
            FlatCharge("hosting", pool.name, pool.server_id, months_per_h, price)
            for hardware, part in zip(fleet, racks, strict=False)
            for pool, months_per_h in hardware.shared(part / HOURS_PER_MONTH)
        ]

    def _racks(self, servers: Sequence[float], fits: Sequence[RackFit]) -> list[float]:
        """Racks that each kind of server pays for."""
        if self.count == "fraction" and not self.by_height:  # so many of the kind fit into a rack, whole ones
            return [n / min(fit.by_space, whole(fit.by_power)) for n, fit in zip(servers, fits, strict=True)]
        by_space = [count / fit.by_space for count, fit in zip(servers, fits, strict=True)]
        by_power = [count / fit.by_power for count, fit in zip(servers, fits, strict=True)]
        parts = max(by_space, by_power, key=sum)
        if self.count == "fraction":
            return parts
        kinds = [
            ServerKind(number, size / fit.by_space, size / fit.by_power)
            for count, fit in zip(servers, fits, strict=True)
            for number, size in ((floor(count), 1.0), (1, count % 1))  # the last one may belong to others in part
            if number and size
        ]
        racks = racks_needed(tuple(kinds))
        return [racks * part / sum(parts) for part in parts]

    def _fit(self, hardware: Hardware) -> RackFit:
        """How many servers like those of *hardware* a rack holds. Raises CostError if not even one."""
        server = hardware.server
        if server is None or hardware.server_w is None:
            text = f"racks hold servers: name a server with a known power for pool {hardware.pool_names}"
            raise CostError(Problem("site.hosting", text))
        problems = []
        kw, places = hardware.server_w / 1000, float(self.servers_per_rack or 0)
        by_power = self.power_limit_kw / kw if kw > 0 else inf
        if not whole(by_power):
            text = f"{server.id} draws up to {kw:g} kW, a rack gives {self.power_limit_kw:g}"
            problems.append(Problem("site.hosting.power_limit_kw", text))
        if self.by_height and server.rack_units is None:
            text = f"the height of {server.id} is not known: add rack_units to data/servers/{server.id}.yaml"
            problems.append(Problem("site.hosting", f"{text}, or state servers_per_rack"))
        elif self.by_height and server.rack_units is not None:
            free, units = self.units - self.reserved_units, server.rack_units.value
            places = free / units
            if not whole(places):
                text = f"{server.id} takes {units:g} rack units, a rack has {free} free"
                problems.append(Problem("site.hosting.units", text))
        if problems:
            raise CostError(*problems)
        return RackFit(places, by_power)
