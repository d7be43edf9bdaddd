"""The link between the GPUs of one server (or between servers): data/links/<id>.yaml."""

from sim.catalogue.value import Sourced, Value
from sim.spec import Spec


class AllReduceTable(Sourced):
    """Measured times of a collective for one number of GPUs: the curve of one link, host and library."""

    gpus: int
    bytes: tuple[float, ...]
    """Message size per GPU, rising."""
    time_s: tuple[float, ...]


class Link(Spec):
    """How GPUs talk to each other.

    All-reduce time is interpolated (log-log) in the tables where there are any, else it is
    latency + 2(n-1)/n * bytes / bus bandwidth. A gather and a scatter move as much as an all-reduce, in two calls.
    """

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    peer_to_peer: bool
    """False: traffic is staged through host memory."""
    theoretical_bytes_per_s: Value
    """Per direction."""
    measured_bytes_per_s: Value | None = None
    """Point to point, per direction."""
    transfer_bytes_per_s: Value | None = None
    """Bulk transfers of memory between servers over one port, per direction. None: as measured point to point, else the
    theoretical rate."""
    allreduce_latency_s: dict[int, Value]
    """By number of GPUs: time of a very small all-reduce."""
    allreduce_bus_bytes_per_s: dict[int, Value]
    """By number of GPUs: bus bandwidth of a very large all-reduce."""
    allreduce_tables: tuple[AllReduceTable, ...] = ()
    nccl_tables: tuple[AllReduceTable, ...] = ()
    """All-reduces of NCCL alone, where `allreduce_tables` are the least of it and of the engines' own kernels."""
    exchange_tables: tuple[AllReduceTable, ...] = ()
    """All-gather and reduce-scatter one after the other, by the bytes of all GPUs together."""
    socket_tables: tuple[AllReduceTable, ...] = ()
    """All-reduces of NCCL between GPUs that hang on two CPUs, half of them on each."""

    def across_sockets(self) -> "Link":
        """The link between GPUs on two CPUs; numbers of GPUs that were not measured there are as on one."""
        crossed = {table.gpus: table for table in self.socket_tables}
        changed = {
            name: tuple(crossed.get(table.gpus, table) for table in getattr(self, name))
            for name in ("allreduce_tables", "nccl_tables")
        }
        return self.model_copy(update={"name": f"{self.name}, across two CPUs", **changed})

    @property
    def bulk_bytes_per_s(self) -> Value:
        """Rate of bulk transfers over one port, each way."""
        return self.transfer_bytes_per_s or self.measured_bytes_per_s or self.theoretical_bytes_per_s

    @property
    def over_pcie(self) -> bool:
        """Whether the lanes of a server's slots carry it."""
        return self.id.startswith("pcie")
