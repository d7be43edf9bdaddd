"""Server chassis: data/servers/<id>.yaml."""

from sim.catalogue.value import Sourced, Value
from sim.spec import Spec


class PcieSlots(Sourced):
    """PCIe slots of one kind, attached to one CPU or to one PCIe switch."""

    cpu: int = 0
    generation: int
    lanes: int
    """PCIe lanes per slot."""
    slots: int
    """Number of slots; each takes one GPU."""
    uplink_lanes: int | None = None
    """Lanes between the CPU and the PCIe switch that these slots share; None: the slots use the CPU's own lanes."""


class Server(Spec):
    """Server chassis: GPU slots, link between its GPUs, base power, rack units. Prices are in data/prices/<id>.yaml."""

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    gpu: str | None = None
    """Id of the GPU that the chassis is built for; None: any GPU."""
    gpu_slots: Value
    link: str
    """Id of the link between the GPUs, in data/links."""
    pcie: tuple[PcieSlots, ...] = ()
    """PCIe slots of the GPUs, in the order of the GPUs; empty: unknown."""
    socket_bytes_per_s: Value | None = None
    """Bandwidth between the two CPUs, per direction [B/s]; None: unknown, no limit applied."""
    linked_gpus: Value | None = None
    """Number of GPUs joined by the link, including GPUs of other servers; None: the server's own."""
    nics: Value | None = None
    """Network ports for GPU traffic; None: unknown, each replica is assumed to have one."""
    base_power_w: Value | None = None
    """Power of the host without GPUs at the power supply's output, drawn whenever the server is on [W]; None: unknown.
    """
    max_power_w: Value | None = None
    """Maker's rated power at the wall with all GPUs [W]."""
    idle_power_w: Value | None = None
    """Measured power at the wall with all GPUs and no work [W]."""
    psu_efficiency: Value
    rack_units: Value | None = None
    host_memory_bytes: Value | None = None
    host_memory_bytes_per_s: Value | None = None
    """Rated memory bandwidth of all channels of all sockets together [B/s]."""
    host_flops: Value | None = None
    """Arithmetic rate of the CPUs in matrix products with 4-bit weights [FLOP/s]."""
