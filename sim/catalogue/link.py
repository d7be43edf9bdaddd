"""The link between the GPUs of one server (or between servers): data/links/<id>.yaml."""

from bisect import bisect_right
from math import log

from sim.catalogue.value import Sourced, Value
from sim.spec import Spec


class AllReduceTable(Sourced):
    """Measured times of a collective for one number of GPUs: the curve of one link, host and library."""

    gpus: int
    bytes: tuple[float, ...]
    """Message size per GPU, rising."""
    time_s: tuple[float, ...]

    def at(self, size: float) -> float:
        """Seconds of a message of *size* bytes: log-log between points, flat before the first, in proportion after the
        last.
        """
        after = bisect_right(self.bytes, size)
        if after in (0, len(self.bytes)):
            return self.time_s[0] if after == 0 else self.time_s[-1] * size / self.bytes[-1]
        (left, right), (low, high) = self.bytes[after - 1 : after + 1], self.time_s[after - 1 : after + 1]
        return low * float((high / low) ** (log(size / left) / log(right / left)))

    def no_faster_than(self, other: "AllReduceTable") -> "AllReduceTable":
        """The slower of both at every point of either: what goes further takes no less, whatever host was measured."""
        sizes = tuple(sorted({*self.bytes, *other.bytes}))
        times = tuple(max(self.at(size), other.at(size)) for size in sizes)
        return self.model_copy(update={"bytes": sizes, "time_s": times})


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
        """The link between GPUs on two CPUs: never faster than on one, and as on one where nobody measured."""
        crossed = {table.gpus: table for table in self.socket_tables}
        changed = {
            name: tuple(crossed.get(table.gpus, table).no_faster_than(table) for table in getattr(self, name))
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
