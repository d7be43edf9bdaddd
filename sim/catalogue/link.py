"""Links between the GPUs of one server or between servers: data/links/<id>.yaml."""

from bisect import bisect_right
from math import log

from sim.catalogue.value import Sourced, Value
from sim.message import Message
from sim.spec import Spec


class AllReduceTable(Sourced):
    """Measured times of a collective for one number of GPUs on one combination of link, host and library."""

    gpus: int
    bytes: tuple[float, ...]
    """Message sizes per GPU, ascending [bytes]."""
    time_s: tuple[float, ...]

    def at(self, size: float) -> float:
        """Return the time of a message of *size* bytes [s].

        Interpolated log-log between points, constant below the first point, proportional to size above the last.
        """
        after = bisect_right(self.bytes, size)
        if after in (0, len(self.bytes)):
            return self.time_s[0] if after == 0 else self.time_s[-1] * size / self.bytes[-1]
        (left, right), (low, high) = self.bytes[after - 1 : after + 1], self.time_s[after - 1 : after + 1]
        return low * float((high / low) ** (log(size / left) / log(right / left)))

    def no_faster_than(self, other: "AllReduceTable") -> "AllReduceTable":
        """Return a table with the larger of both times at every message size of either table.

        Used for longer paths: they cannot be faster than shorter ones, even if the measured hosts differ.
        """
        sizes = tuple(sorted({*self.bytes, *other.bytes}))
        times = tuple(max(self.at(size), other.at(size)) for size in sizes)
        return self.model_copy(update={"bytes": sizes, "time_s": times})


class Link(Spec):
    """Link between GPUs, with its transfer rates and collective times.

    Notes
    -----
    All-reduce time is interpolated log-log in the tables; without tables it is latency + 2 (n-1)/n * bytes / bus
    bandwidth for n GPUs. A gather and a scatter together move as many bytes as an all-reduce, in two calls.

    """

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    peer_to_peer: bool
    """True if GPUs copy to each other directly; if not, traffic is staged through host memory."""
    theoretical_bytes_per_s: Value
    """Theoretical rate per direction [B/s]."""
    measured_bytes_per_s: Value | None = None
    """Measured point-to-point rate per direction [B/s]."""
    transfer_bytes_per_s: Value | None = None
    """Rate of bulk memory transfers between servers over one port, per direction [B/s]. None: the measured
    point-to-point rate, else the theoretical rate."""
    allreduce_latency_s: dict[int, Value]
    """Time of a very small all-reduce, by number of GPUs [s]."""
    allreduce_bus_bytes_per_s: dict[int, Value]
    """Bus bandwidth of a very large all-reduce, by number of GPUs [B/s]."""
    allreduce_tables: tuple[AllReduceTable, ...] = ()
    nccl_tables: tuple[AllReduceTable, ...] = ()
    """All-reduce times of NCCL alone; `allreduce_tables` holds the minimum over NCCL and the engines' own kernels."""
    exchange_tables: tuple[AllReduceTable, ...] = ()
    """Times of an all-gather followed by a reduce-scatter, by the total bytes of all GPUs."""
    socket_tables: tuple[AllReduceTable, ...] = ()
    """NCCL all-reduce times between GPUs attached to two CPUs, half to each."""

    def across_sockets(self) -> "Link":
        """Return the link between GPUs attached to two CPUs.

        Its times are never below those on one CPU, and equal them for numbers of GPUs without a measurement.
        """
        crossed = {table.gpus: table for table in self.socket_tables}
        changed = {
            name: tuple(crossed.get(table.gpus, table).no_faster_than(table) for table in getattr(self, name))
            for name in ("allreduce_tables", "nccl_tables")
        }
        return self.model_copy(update={"name": Message("{name}, across two CPUs", self.name), **changed})

    @property
    def bulk_bytes_per_s(self) -> Value:
        """Rate of bulk transfers over one port, per direction [B/s]."""
        return self.transfer_bytes_per_s or self.measured_bytes_per_s or self.theoretical_bytes_per_s

    @property
    def over_pcie(self) -> bool:
        """True if traffic runs over the PCIe lanes of the server's slots."""
        return self.id.startswith("pcie")
