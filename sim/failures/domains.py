"""Failure domains: which replicas of a pool go down with which component."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil

from sim.failures.law import Law

SITE = "site"
FAIL_WHILE_OFF = (SITE, "rack")
"""What others feed and use: it fails whether replicas are switched on or not."""


@dataclass(frozen=True, slots=True)
class Domain:
    """One component, and the replicas that need it."""

    name: str
    """Names its random stream: kind and number, counted from the first replica of its pool on."""
    replicas: tuple[int, ...]
    """Places in the pool."""
    law: Law
    needs_power: bool = False
    """It works only while one of its replicas is switched on, and fails only then."""


@dataclass(frozen=True, slots=True)
class Layout:
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

        >>> Layout(3, 4, replicas_per_server=2).servers
        [(0, 1), (2,)]
        """
        if self.servers_per_replica > 1:
            return [(place,) for place in range(self.replicas) for _ in range(self.servers_per_replica)]
        each = self.replicas_per_server
        groups = ceil(self.replicas / each)
        return [tuple(range(first * each, min((first + 1) * each, self.replicas))) for first in range(groups)]


def domains_of(laws: Mapping[str, Law], layout: Layout, servers_per_rack: int) -> tuple[Domain, ...]:
    """The components of a pool: kind -> law, each as often as *layout* has it."""
    return tuple(
        Domain(f"{kind} {number}", replicas, law, kind not in FAIL_WHILE_OFF)
        for kind, law in laws.items()
        for number, replicas in enumerate(_held(kind, layout, servers_per_rack))
    )


def _held(kind: str, layout: Layout, servers_per_rack: int) -> Iterator[tuple[int, ...]]:
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
