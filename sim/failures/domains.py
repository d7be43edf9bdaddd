"""Failure domains: distributions of uptime and repair time, and the replicas that each component takes down.

`FailureTimes` has the distributions of the time to the next failure and of the repair; `FailureDomain` is one component
with the replicas that need it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Literal

import numpy as np

from sim.rng import exponential, log_moments, lognormal, weibull

RepairLaw = Literal["exponential", "fixed", "lognormal"]
LEAST = 2.0**-60
"""Smallest random draw: replaces 0, at which inverse distributions diverge."""


@dataclass(frozen=True, slots=True)
class FailureTimes:
    """Distributions of uptime and repair time of one kind of component."""

    mtbf_s: float
    """Mean time from a repair to the next failure [s]."""
    repair_s: float
    """Mean time of a repair, without the wait for a part [s]."""
    shape: float = 1.0
    """Weibull shape of the time to the next failure; 1: exponential."""
    repair: RepairLaw = "exponential"
    repair_cv: float = 1.0
    """Coefficient of variation of lognormal repair times."""
    part_share: float = 0.0
    """Fraction of repairs that wait for a spare part."""
    part_s: float = 0.0
    """Wait for a spare part [s]."""

    def outage(self, rng: "np.random.Generator") -> tuple[float, float]:
        """Draw the time to the next failure and the length of its repair [s].

        Every law uses three draws, so that scenarios with other means or shapes share random numbers.
        """
        working, broken, part = np.maximum(rng.random(3), LEAST).tolist()
        waits_s = self.part_s if part < self.part_share else 0.0
        return self.up_s(working), self.down_s(broken) + waits_s

    def up_s(self, chance: float) -> float:
        """Return quantile *chance* of the time to the next failure [s].

        >>> round(FailureTimes(mtbf_s=100.0, repair_s=1.0).up_s(0.5), 3)
        69.315
        """
        return weibull(chance, self.mtbf_s, self.shape)

    def down_s(self, chance: float) -> float:
        """Return quantile *chance* of a repair's length [s]."""
        if self.repair == "fixed":
            return self.repair_s
        if self.repair == "exponential":
            return exponential(chance, self.repair_s)
        if not self.repair_s:
            return 0.0
        return lognormal(chance, *log_moments(self.repair_s, self.repair_cv))

    @property
    def availability(self) -> float:
        """Long-run fraction of time that the component works, with immediate detection and repair."""
        return self.mtbf_s / (self.mtbf_s + self.repair_s + self.part_share * self.part_s)


SITE = "site"
FAIL_WHILE_OFF = (SITE, "rack")
"""Components that fail whether or not replicas are switched on: others feed and use them, too."""


@dataclass(frozen=True, slots=True)
class FailureDomain:
    """Component that fails as a whole, with the replicas that need it."""

    name: str
    """Kind and number of the component, counted from the pool's first replica; names its random stream."""
    replicas: tuple[int, ...]
    """Indices of the replicas in the pool."""
    law: FailureTimes
    needs_power: bool = False
    """True if the component works, and fails, only while one of its replicas is switched on."""


@dataclass(frozen=True, slots=True)
class ServerLayout:
    """Placement of a pool's replicas in servers."""

    replicas: int
    gpus_per_replica: int
    """GPUs per replica, at least one: a MIG slice needs its whole GPU."""
    replicas_per_server: int = 1
    servers_per_replica: int = 1
    """Servers per replica; above one only where a server has a single replica."""

    @property
    def servers(self) -> list[tuple[int, ...]]:
        """Replica indices of each server.

        >>> ServerLayout(3, 4, replicas_per_server=2).servers
        [(0, 1), (2,)]
        """
        if self.servers_per_replica > 1:
            return [(place,) for place in range(self.replicas) for _ in range(self.servers_per_replica)]
        each = self.replicas_per_server
        groups = ceil(self.replicas / each)
        return [tuple(range(first * each, min((first + 1) * each, self.replicas))) for first in range(groups)]


def domains_of(
    laws: Mapping[str, FailureTimes], layout: ServerLayout, servers_per_rack: int
) -> tuple[FailureDomain, ...]:
    """Return all components of a pool as failure domains.

    *laws* maps each kind of component to its distributions; *layout* gives the number of components of each kind.
    """
    return tuple(
        FailureDomain(f"{kind} {number}", replicas, law, kind not in FAIL_WHILE_OFF)
        for kind, law in laws.items()
        for number, replicas in enumerate(_replicas_by_component(kind, layout, servers_per_rack))
    )


def _replicas_by_component(kind: str, layout: ServerLayout, servers_per_rack: int) -> Iterator[tuple[int, ...]]:
    """Yield the replicas that need each component of one kind."""
    if kind == SITE:
        yield tuple(range(layout.replicas))
    elif kind == "replica":
        yield from ((place,) for place in range(layout.replicas))
    elif kind == "gpu":
        yield from ((place,) for place in range(layout.replicas) for _ in range(layout.gpus_per_replica))
    elif kind == "rack":
        servers = layout.servers
        for first in range(0, len(servers), servers_per_rack):
            inside = servers[first : first + servers_per_rack]
            yield tuple(sorted({place for replicas in inside for place in replicas}))
    else:
        yield from layout.servers
