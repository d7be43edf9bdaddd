"""What a pool leaves in host memory, and the host as its step time sees it."""

from sim.catalogue.catalog import Catalog
from sim.catalogue.entries.engine import Engine
from sim.catalogue.entries.gpu import Gpu
from sim.catalogue.entries.link import Link
from sim.catalogue.entries.model import Model
from sim.catalogue.entries.offload import HostWeights, Offload
from sim.catalogue.entries.server import Server
from sim.scenario.experiment import Pool
from sim.steptime import Host


def offload_of(pool: Pool, engine: Engine, model: Model | None) -> Offload | None:
    """What *pool* asks for, else what the engine does by itself; None: nothing stays in host memory."""
    asked = Offload(pool.cpu_offload_gb or None, pool.n_gpu_layers, pool.n_cpu_moe)
    if not asked.given and engine.offload is not None and engine.offload.experts_in_host:
        return Offload(n_cpu_moe=model.layers) if model is not None and model.moe is not None else None
    return asked if asked.given else None


def host_link_of(gpu: Gpu | None, catalog: Catalog) -> Link | None:
    """PCIe as the GPU has it; None where its lanes are not known, or nobody has written down such a link."""
    if gpu is None or gpu.pcie_gen is None or gpu.pcie_lanes is None:
        return None
    name = f"pcie{gpu.pcie_gen.value:g}-x{gpu.pcie_lanes.value:g}"
    return catalog.link(name) if name in catalog.ids("links") else None


def host_of(
    engine: Engine, weights: HostWeights, server: Server | None, link: Link | None, replicas: int
) -> Host | None:
    """The host that keeps *weights* and serves *replicas* replicas; None where the engine keeps none there."""
    if engine.offload is None:
        return None
    return Host(
        weights,
        engine.offload,
        memory_bytes_per_s=server.host_memory_bytes_per_s if server else None,
        flops=server.host_flops if server else None,
        link_bytes_per_s=link.theoretical_bytes_per_s if link else None,
        replicas=replicas,
    )
