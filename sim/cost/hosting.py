"""Hosting of servers in a data centre: price per rack, or per contracted kW.

A price per kW is paid for reserved power, whether drawn or not. `racks_needed` packs servers into racks.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from math import ceil, floor, inf, isfinite
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import BeforeValidator, model_validator

from sim.cost.charge import FlatCharge
from sim.cost.hardware import FleetHardware
from sim.cost.prices import CostError, Price, Problem
from sim.message import Message
from sim.spec import Count, Positive, Spec, WholeNumber
from sim.units import HOURS_PER_MONTH

MAX_FILLINGS = 20_000
"""Maximum number of fillings of one rack for which the integer program runs.

Fleets of a dozen kinds of small servers exceed it and keep the result of first-fit decreasing.
"""
EMPTY = (1.0, 1.0)
"""Space and power of an empty rack, as fractions."""
_ROUNDING = 1e-9  # tolerance of quotients: 30.6 kW supply three servers of 10.2 kW


class ServerKind(NamedTuple):
    """Number and size of the servers of one kind."""

    number: int
    space: float
    """Fraction of a rack's height that one server occupies, 0 to 1."""
    power: float
    """Fraction of a rack's power that one server uses, 0 to 1."""


def whole(number: float) -> float:
    """Return *number* rounded down, with a tolerance for floating-point errors.

    >>> whole(30.6 / 10.2)
    3
    """
    return floor(number + _ROUNDING) if isfinite(number) else number


@lru_cache(maxsize=1024)
def racks_needed(kinds: tuple[ServerKind, ...]) -> int:
    """Return the minimum number of racks for *kinds*, each of which fits into an empty rack.

    Notes
    -----
    Vector bin packing in height and power. First-fit decreasing packs the servers; if it needs more racks than the
    total height and power require, an integer program over the fillings of one rack decides (cutting stock).

    References
    ----------
    Johnson 1974 (first-fit decreasing); Gilmore and Gomory 1961 (cutting stock).

    Examples
    --------
    >>> racks_needed((ServerKind(2, 0.6, 0.2), ServerKind(2, 0.3, 0.7)))
    2

    """
    found = _first_fit(kinds)
    space, power = (sum(kind.number * kind[axis] for kind in kinds) for axis in (1, 2))
    least = ceil(max(space, power) - _ROUNDING)
    if found <= least or len(kinds) == 1:
        return found
    fillings = list(islice(_fillings(kinds, 1.0, 1.0), MAX_FILLINGS + 1))
    return found if len(fillings) > MAX_FILLINGS else _fewest_racks(kinds, fillings)


def _first_fit(kinds: Sequence[ServerKind]) -> int:
    """Return the number of racks of first-fit decreasing; equally filled racks are grouped for speed."""
    racks: Counter[tuple[float, float]] = Counter()
    for servers, space, power in sorted(kinds, key=lambda kind: -max(kind.space, kind.power)):
        left, after = servers, Counter[tuple[float, float]]()
        for free, number in [*racks.items(), (EMPTY, servers)]:
            each = int(min(whole(free[0] / space), whole(free[1] / power) if power else left, left))
            full = min(number, left // each) if each else 0
            rest = left - full * each if each and full < number else 0
            untouched = 0 if free == EMPTY else number - full - bool(rest)
            for added, of in ((each, full), (rest, int(bool(rest))), (0, untouched)):
                if of:
                    after[free[0] - added * space, free[1] - added * power] += of
            left -= full * each + rest
        racks = after
    return racks.total()


def _fillings(kinds: Sequence[ServerKind], space: float, power: float) -> Iterator[tuple[int, ...]]:
    """Yield the fillings of one rack to which no server of the last kind can be added."""
    first, *others = kinds
    most = int(
        min(first.number, whole(space / first.space), whole(power / first.power) if first.power else first.number)
    )
    if not others:
        yield (most,)
        return
    for taken in range(most, -1, -1):
        for rest in _fillings(others, space - taken * first.space, power - taken * first.power):
            yield (taken, *rest)


def _fewest_racks(kinds: Sequence[ServerKind], fillings: Sequence[tuple[int, ...]]) -> int:
    from scipy.optimize import Bounds, LinearConstraint, milp  # slow to import, rarely needed

    table = np.array(fillings, dtype=np.float64).T
    needed = LinearConstraint(table, lb=np.array([float(kind.number) for kind in kinds]))
    costs, whole_numbers = np.ones(len(fillings)), np.ones(len(fillings), dtype=np.int64)
    found = milp(costs, integrality=whole_numbers, bounds=Bounds(0.0, np.inf), constraints=needed)
    if found.fun is None:
        raise RuntimeError(Message("the packing of racks failed: {message}", found.message))
    return round(found.fun)


class RackFit(NamedTuple):
    """Number of servers of one kind that a rack holds, including fractions of a server."""

    by_space: float
    by_power: float


class PerRack(Spec):
    """Hosting at a price per rack and month; all servers of a fleet at the site share racks.

    Notes
    -----
    `count: whole`: racks_needed(servers) * usd_per_month. `count: fraction`: the larger of the sums over servers of
    their fractions of a rack's height and of its power, times usd_per_month.

    """

    per: Literal["rack"]
    usd_per_month: Price
    """Price of a rack [USD/month]."""
    power_limit_kw: Positive
    """Power that one rack supplies and cools [kW]; servers count with their rated power."""
    units: Count = 42
    """Height of a rack [rack units]; servers count with their `rack_units`."""
    reserved_units: WholeNumber = 0
    """Rack units reserved for switches, patch panels and power strips."""
    servers_per_rack: Count | None = None
    """Servers per rack, in place of heights; every server counts as one."""
    count: Literal["fraction", "whole"]
    """Billing of partly filled racks. whole: the minimum number of racks that holds all servers; fraction: the larger
    of the servers' fractions of a rack's height and power, with other users paying for the rest."""
    electricity: Literal["metered", "included"] = "metered"
    """Payment of energy: metered and paid in addition, or included in the price."""

    @model_validator(mode="after")
    def _one_measure(self) -> Self:
        if self.servers_per_rack is not None and self.model_fields_set & {"units", "reserved_units"}:
            raise ValueError("servers_per_rack replaces units and reserved_units: remove one")
        if self.reserved_units >= self.units:
            raise ValueError(
                Message(
                    "reserved_units must be below units ({units}), not {reserved_units}",
                    self.units,
                    self.reserved_units,
                )
            )
        return self

    @property
    def by_height(self) -> bool:
        """True if the servers' `rack_units` determine the number of racks."""
        return self.servers_per_rack is None

    def charges(self, fleet: Sequence[FleetHardware], others: Sequence[FleetHardware] = ()) -> list[FlatCharge]:
        """Return the rack charges of *fleet*, one per pool; another bill pays for *others*, servers in the same racks.

        Raises CostError listing every kind of server that does not fit into a rack.
        """
        every = (*fleet, *others)
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
            for pool, months_per_h in hardware.per_pool(part / HOURS_PER_MONTH)
        ]

    def _racks(self, servers: Sequence[float], fits: Sequence[RackFit]) -> list[float]:
        """Return the number of racks that each kind of server pays for."""
        if self.count == "fraction" and not self.by_height:  # a rack holds whole servers
            return [n / min(fit.by_space, whole(fit.by_power)) for n, fit in zip(servers, fits, strict=True)]
        by_space = [count / fit.by_space for count, fit in zip(servers, fits, strict=True)]
        by_power = [count / fit.by_power for count, fit in zip(servers, fits, strict=True)]
        parts = max(by_space, by_power, key=sum)
        if self.count == "fraction":
            return parts
        kinds = [
            ServerKind(number, size / fit.by_space, size / fit.by_power)
            for count, fit in zip(servers, fits, strict=True)
            # another tenant may pay for the rest of the last server
            for number, size in ((floor(count), 1.0), (1, count % 1))
            if number and size
        ]
        racks = racks_needed(tuple(kinds))
        return [racks * part / sum(parts) for part in parts]

    def _fit(self, hardware: FleetHardware) -> RackFit:
        """Return the number of servers like those of *hardware* per rack. Raises CostError if none fits."""
        server = hardware.server
        if server is None or hardware.server_w is None:
            text = Message(
                "racks hold servers: name a server with a known power for pool {pool_names}", hardware.pool_names
            )
            raise CostError(Problem("site.hosting", text))
        problems = []
        kw, places = hardware.server_w / 1000, float(self.servers_per_rack or 0)
        by_power = self.power_limit_kw / kw if kw > 0 else inf
        if not whole(by_power):
            text = Message(
                "{id} draws up to {kw:g} kW, a rack gives {power_limit_kw:g}", server.id, kw, self.power_limit_kw
            )
            problems.append(Problem("site.hosting.power_limit_kw", text))
        if self.by_height and server.rack_units is None:
            text = Message("the height of {id} is not known: add rack_units to data/servers/{id}.yaml", server.id)
            problems.append(Problem("site.hosting", Message("{text}, or state servers_per_rack", text)))
        elif self.by_height and server.rack_units is not None:
            free, units = self.units - self.reserved_units, server.rack_units.value
            places = free / units
            if not whole(places):
                text = Message("{id} takes {units:g} rack units, a rack has {free} free", server.id, units, free)
                problems.append(Problem("site.hosting.units", text))
        if problems:
            raise CostError(*problems)
        return RackFit(places, by_power)


def _check_contracted(value: Any) -> Any:
    if value == "nameplate" or (isinstance(value, int | float) and value > 0):
        return value
    raise ValueError(Message("contracted kW above 0 or nameplate is needed, not {value!r}", value))


class PerKwMonth(Spec):
    """Hosting at a price per contracted kW and month."""

    per: Literal["kw_month"]
    usd: Price
    """Price per contracted kW and month [USD]."""
    kw: Annotated[Literal["nameplate"] | Positive, BeforeValidator(_check_contracted)] = "nameplate"
    """Contracted power [kW]: the rated power of all servers, or a number per fleet, which pools share in proportion to
    their GPUs; in a plan, a number per unit of a fleet."""
    electricity: Literal["metered", "included"] = "metered"
    """Payment of energy: metered and paid in addition, or included in the price."""

    def charges(self, fleet: Sequence[FleetHardware], others: Sequence[FleetHardware] = ()) -> list[FlatCharge]:
        """Return the charges of contracted power of *fleet*, one per pool; another bill pays for *others*.

        Raises CostError if the rated power is unknown.
        """
        price = self.usd.unit_price("kW-month", "site.hosting.usd")
        gpus = sum(hardware.gpus for hardware in (*fleet, *others))
        result = []
        for hardware in fleet:
            kw = _nameplate_kw(hardware) if self.kw == "nameplate" else hardware.copies * self.kw * hardware.gpus / gpus
            result += [
                FlatCharge("hosting", pool.name, pool.server_id, months_per_h, price)
                for pool, months_per_h in hardware.per_pool(kw / HOURS_PER_MONTH)
            ]
        return result


def _nameplate_kw(hardware: FleetHardware) -> float:
    if hardware.peak_w is None:
        text = Message(
            "the nameplate power of pool {pool_names} is not known: state the contracted kW", hardware.pool_names
        )
        raise CostError(Problem("site.hosting.kw", text))
    return hardware.peak_w / 1000
