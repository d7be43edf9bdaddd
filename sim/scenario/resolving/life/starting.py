"""The start of a pool's replicas: what is loaded over which links, by which engine."""

from functools import cache
from pathlib import Path

from sim.catalogue.catalog import Catalog
from sim.coldstart import ColdStart, Figures, Loaded, Start, at_once, load_figures, start_of
from sim.memory import MemoryFit
from sim.scenario.experiment import Pool
from sim.scenario.resolving.bind import BoundPool
from sim.scenario.resolving.hardware.wiring import host_bytes_per_s
from sim.scenario.resolving.offload import host_link_of


def start_figures(catalog: Catalog) -> Figures:
    """How fast replicas start: data/coldstart.yaml."""
    return _figures(catalog.root)


@cache
def _figures(root: Path) -> Figures:
    return load_figures(root / "coldstart.yaml")


def start_of_pool(pool: BoundPool, memory: MemoryFit | None, catalog: Catalog) -> Start:
    """What a replica of *pool* goes through.

    Raises StartUnknown for a part that nobody has measured.
    """
    spec, schedule = described_start(pool.spec), pool.spec.schedule
    if spec is not None and (memory is None or memory.fits):
        weights_bytes = memory.weights_bytes * memory.gpus if memory is not None else 0.0
        return start_of(spec, loaded(pool, weights_bytes, catalog), start_figures(catalog))
    return Start(at_once(schedule.starting_s or 0.0 if schedule is not None else 0.0))


def described_start(pool: Pool) -> ColdStart | None:
    """What is said of a start; of an autoscaled pool that says nothing, all is computed."""
    return ColdStart() if pool.cold_start is None and pool.autoscaling is not None else pool.cold_start


def loaded(pool: BoundPool, weights_bytes: float, catalog: Catalog) -> Loaded:
    """What a replica of *pool* is, as far as its start goes."""
    peer = pool.spec.cold_start.link if pool.spec.cold_start is not None else None
    return Loaded(
        engine=pool.engine.id,
        layers=pool.model.layers if pool.model is not None else 0,
        gpus=pool.layout.gpus,
        weights_bytes=weights_bytes,
        host_link=host_link_of(pool.gpu, catalog),
        peer_link=catalog.link(peer) if peer is not None else None,
        lanes_bytes_per_s=host_bytes_per_s(pool, catalog) * pool.layout.gpus,
    )
