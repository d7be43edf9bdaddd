"""Failure domains: how long components work and are under repair, and which replicas go down with each.

`FailureTimes` has the distributions of the time to the next failure and of the repair; `FailureDomain` is one
component with the replicas that need it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, gamma, log, log1p, sqrt
from statistics import NormalDist
from typing import Literal

import numpy as np

RepairLaw = Literal["exponential", "fixed", "lognormal"]
LEAST = 2.0**-60
"""In place of a draw of 0, which no inverse distribution takes."""


@dataclass(frozen=True, slots=True)
class FailureTimes:
    """Times of one kind of component."""

    mtbf_s: float
    """Mean time from being repaired to the next failure [s]."""
    repair_s: float
    """Mean time of a repair, a missing part left out [s]."""
    shape: float = 1.0
    """Weibull shape of the time to the next failure; 1 is the exponential law."""
    repair: RepairLaw = "exponential"
    repair_cv: float = 1.0
    """Standard deviation over mean, of lognormal repairs."""
    part_share: float = 0.0
    """Share of repairs that wait for a part."""
    part_s: float = 0.0
    """How long they wait [s]."""

    def outage(self, rng: np.random.Generator) -> tuple[float, float]:
        """Time to the next failure and length of its repair [s].

        Three draws, whatever the law: another mean or shape meets the same luck.
        """
        working, broken, part = np.maximum(rng.random(3), LEAST).tolist()
        waits_s = self.part_s if part < self.part_share else 0.0
        return self.up_s(working), self.down_s(broken) + waits_s

    def up_s(self, chance: float) -> float:
        """Quantile *chance* of the time to the next failure [s].

        >>> round(FailureTimes(mtbf_s=100.0, repair_s=1.0).up_s(0.5), 3)
        69.315
        """
        scale_s = self.mtbf_s / gamma(1 + 1 / self.shape)
        return float(scale_s * (-log1p(-chance)) ** (1 / self.shape))

    def down_s(self, chance: float) -> float:
        """Quantile *chance* of a repair's length [s]."""
        if self.repair == "fixed":
            return self.repair_s
        if self.repair == "exponential":
            return -self.repair_s * log1p(-chance)
        variance = log1p(self.repair_cv**2)
        deviations = NormalDist().inv_cdf(min(chance, 1 - LEAST))
        if not self.repair_s:
            return 0.0
        return float(np.exp(log(self.repair_s) - variance / 2 + sqrt(variance) * deviations))

    @property
    def availability(self) -> float:
        """Share of time that the component works in the long run, failures noticed and repairs begun at once."""
        return self.mtbf_s / (self.mtbf_s + self.repair_s + self.part_share * self.part_s)


SITE = "site"
FAIL_WHILE_OFF = (SITE, "rack")
"""What others feed and use: it fails whether replicas are switched on or not."""


@dataclass(frozen=True, slots=True)
class FailureDomain:
    """One component, and the replicas that need it."""

    name: str
    """Names its random stream: kind and number, counted from the first replica of its pool on."""
    replicas: tuple[int, ...]
    """Places in the pool."""
    law: FailureTimes
    needs_power: bool = False
    """It works only while one of its replicas is switched on, and fails only then."""


@dataclass(frozen=True, slots=True)
class ServerLayout:
    """How the replicas of a pool stand in servers."""

    replicas: int
    gpus_per_replica: int
    """At least one: a slice needs its whole GPU."""
    replicas_per_server: int = 1
    servers_per_replica: int = 1
    """More than one only where a single replica stands in a server."""

    @property
    def servers(self) -> list[tuple[int, ...]]:
        """Replicas of each server.

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
    """The components of a pool: kind -> law, each as often as *layout* has it."""
    return tuple(
        FailureDomain(f"{kind} {number}", replicas, law, kind not in FAIL_WHILE_OFF)
        for kind, law in laws.items()
        for number, replicas in enumerate(_held(kind, layout, servers_per_rack))
    )


def _held(kind: str, layout: ServerLayout, servers_per_rack: int) -> Iterator[tuple[int, ...]]:
    """Replicas that need the components of one kind, component by component."""
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
