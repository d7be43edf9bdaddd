"""The failures of a pool: published rates looked up, and its replicas placed in servers and racks."""

from math import ceil

from sim.catalogue.catalog import Catalog
from sim.failures import Layout, domains_of
from sim.scenario.resolving.bind import BoundPool
from sim.scenario.resolving.resolved import FailurePlan


def failures_of(pool: BoundPool, catalog: Catalog) -> FailurePlan | None:
    """What fails in *pool*; None where nothing does. Raises UnknownId."""
    spec = pool.spec.failures
    if spec is None:
        return None
    laws = {
        kind: one.law(catalog.failure_rate(one.rate).mtbf_h.value if one.rate else one.mtbf_h or 0.0)
        for kind, one in spec.components.items()
    }
    racks = spec.rack.servers if spec.rack is not None else 1
    layout = layout_of(pool)
    settings = (spec.detection_s, spec.crews, spec.maintenance, spec.spares)
    return FailurePlan(domains_of(laws, layout, racks), tuple(layout.servers), *settings)


def layout_of(pool: BoundPool) -> Layout:
    """How the replicas of *pool* stand in servers: one in each where no server is named."""
    gpus = pool.layout.gpus
    slots = int(pool.server.gpu_slots.value) if pool.server is not None else gpus
    return Layout(pool.spec.most_replicas, gpus, max(1, slots // gpus), ceil(gpus / slots))
