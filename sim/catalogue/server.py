"""A server chassis: data/servers/<id>.yaml."""

from sim.catalogue.value import Sourced, Value
from sim.spec import Spec


class PcieSlots(Sourced):
    """Slots of one kind on one CPU, or behind one switch."""

    cpu: int = 0
    generation: int
    lanes: int
    """Of each slot."""
    slots: int
    """One GPU each."""
    uplink_lanes: int | None = None
    """Lanes between the CPU and a PCIe switch that these slots share; None: they are the CPU's own."""


class Server(Spec):
    """Slots, the link between its GPUs, base power, rack units. Its price is in data/prices/<id>.yaml."""

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    gpu: str | None = None
    """The GPU it is built for (id), None: any."""
    gpu_slots: Value
    link: str
    """Id in data/links."""
    pcie: tuple[PcieSlots, ...] = ()
    """Where its GPUs sit, in their order; empty: not known."""
    socket_bytes_per_s: Value | None = None
    """Between two CPUs, each way. None: not known, no limit."""
    linked_gpus: Value | None = None
    """GPUs that its link joins, those of other servers included; None: its own."""
    nics: Value | None = None
    """Network ports for the traffic of its GPUs; None: not known, each replica is taken to have one."""
    base_power_w: Value | None = None
    """Host without GPUs, drawn from the supply's output whenever the server is on. None: not known."""
    max_power_w: Value | None = None
    """Nameplate at the wall with all GPUs, where the maker states it."""
    idle_power_w: Value | None = None
    """At the wall with all GPUs and no work, where someone read it."""
    psu_efficiency: Value
    rack_units: Value | None = None
    host_memory_bytes: Value | None = None
    host_memory_bytes_per_s: Value | None = None
    """Rate of all memory channels of all sockets together, as their modules are rated."""
    host_flops: Value | None = None
    """What its CPUs reach in matrix products of 4-bit weights [FLOP/s]."""
