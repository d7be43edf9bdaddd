"""What the pools of a fleet occupy and draw: GPUs and slices of them, servers, power."""

from collections.abc import Sequence
from fractions import Fraction

from sim.catalogue.catalog import Catalog
from sim.catalogue.entries.gpu import Gpu
from sim.catalogue.entries.server import Server
from sim.cost import Cost, PoolFacts
from sim.cost.hardware import boxes_needed
from sim.power import PoolPower, pool_power
from sim.scenario.experiment import Fleet
from sim.scenario.resolving.bind import BoundPool, power_coefficients
from sim.scenario.resolving.hardware.slices import Slices, placed
from sim.scenario.resolving.resolved import PoolPlan
from sim.units import SECONDS_PER_HOUR


def slices_of(bound: Sequence[BoundPool], fleet: Fleet, names: Sequence[str]) -> list[Slices | None]:
    """The MIG slices of each pool, cut from the same GPUs as those of pools of the same server, GPU and cost."""
    groups: list[tuple[tuple[Server | None, Gpu, Cost | None], list[int]]] = []
    for position, (pool, cost) in enumerate(zip(bound, fleet.costs, strict=True)):
        if pool.slicing is not None:
            key = (pool.server, pool.slicing.card, cost)
            members = next((members for known, members in groups if known == key), None)
            if members is None:
                groups.append((key, members := []))
            members.append(position)
    found: list[Slices | None] = [None] * len(bound)
    for _, members in groups:
        wanted = [(str(bound[i].spec.mig), bound[i].spec.most_replicas) for i in members]
        for i in members:
            slicing = bound[i].slicing
            assert slicing is not None
            found[i] = placed(slicing, wanted, ", ".join(names[j] for j in members))
    return found


def servers_per_replica(bound: Sequence[BoundPool], fleet: Fleet, slices: Sequence[Slices | None]) -> list[float]:
    """Each replica's share of the servers that its pool fills, together with pools of the same server, GPU and cost."""
    shares = []
    each = [gpus_per_replica(*one) for one in zip(bound, slices, strict=True)]
    for pool, cost, own in zip(bound, fleet.costs, each, strict=True):
        if pool.server is None:
            shares.append(0.0)
            continue
        shared = cost is not None and cost.share
        gpus = sum(
            its_gpus * other.spec.most_replicas
            for other, its, its_gpus in zip(bound, fleet.costs, each, strict=True)
            if (other.server, _card(other), its) == (pool.server, _card(pool), cost)
        )
        boxes = boxes_needed(int(gpus), int(pool.server.gpu_slots.value), shared)
        shares.append(float(boxes * own / gpus))
    return shares


def gpus_per_replica(pool: BoundPool, slices: Slices | None) -> int | Fraction:
    """All ranks' GPUs; of a slice the part of a GPU that it stands for."""
    return pool.layout.gpus if slices is None else slices.gpus_per_slice


def power_of(pool: BoundPool, slices: Slices | None, servers: float, catalog: Catalog) -> PoolPower | None:
    """Of one replica, with its share of *servers*; None where the power of GPU or server is not known."""
    card = _card(pool)
    if card is None:
        return None
    gpus, reach = gpus_per_replica(pool, slices), 1.0 if slices is None else slices.reach
    return pool_power(pool.power, card, power_coefficients(catalog), gpus, pool.server, servers, reach)


def facts_of(pool: BoundPool, plan: PoolPlan) -> PoolFacts:
    """The hardware of a pool as its bill sees it."""
    card = _card(pool)
    tdp_w = card.tdp_w.value if card and card.tdp_w else None
    return PoolFacts(
        plan.name,
        plan.gpu,
        plan.gpus_per_replica,
        plan.replicas,
        pool.server,
        nameplate_w=_nameplate_w(pool),
        gpu_tdp_w=tdp_w,
        scheduled=plan.scaled,
        fails=plan.failures is not None,
        gpu_mtbf_h=_gpu_mtbf_h(plan),
    )


def _gpu_mtbf_h(plan: PoolPlan) -> float | None:
    """As its `failures` have it; a slice fails with its GPU."""
    domains = plan.failures.domains if plan.failures is not None else ()
    return next((one.law.mtbf_s / SECONDS_PER_HOUR for one in domains if one.name.startswith("gpu ")), None)


def _card(pool: BoundPool) -> Gpu | None:
    """The whole GPU."""
    return pool.slicing.card if pool.slicing else pool.gpu


def _nameplate_w(pool: BoundPool) -> float | None:
    """One server with all its slots filled, at the wall [W]: as set, as its maker says, or the sum of its parts."""
    if pool.power.nameplate_w is not None:
        return pool.power.nameplate_w
    if pool.server is None:
        return None
    if pool.server.max_power_w is not None:
        return pool.server.max_power_w.value
    card = _card(pool)
    if card is None or card.tdp_w is None:
        return None
    if pool.server.base_power_w is None:
        return None
    gpus_w = pool.server.gpu_slots.value * card.tdp_w.value
    return (gpus_w + pool.server.base_power_w.value) / pool.server.psu_efficiency.value
