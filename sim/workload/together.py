"""What several services of one fleet are asked to do, taken together."""

from collections.abc import Mapping

from sim.catalogue.value import Value
from sim.workload import Workload
from sim.workload.requests import RequestTable
from sim.workload.streams import Streams


class Together(Workload):
    """The workloads of all services, for whoever looks at a fleet as a whole; each service draws its own requests."""

    parts: Mapping[str, Workload] = {}
    """Service -> its workload."""

    @classmethod
    def of(cls, parts: Mapping[str, Workload]) -> "Together":
        """Of workloads that have been checked one by one."""
        nothing = dict.fromkeys(("arrivals", "lengths", "sessions", "shared_prefix", "adapters", "trace"))
        return cls.model_construct(parts=dict(parts), tenants=(), sent_before=0, **nothing)

    @property
    def needs_horizon(self) -> bool:
        """Whether nothing but a horizon would end one of them."""
        return any(one.needs_horizon for one in self.parts.values())

    @property
    def deterministic(self) -> bool:
        """Whether nothing is drawn for any of them."""
        return all(one.deterministic for one in self.parts.values())

    @property
    def stationary(self) -> bool:
        """Whether all go on in the same way for as long as one looks."""
        return all(one.stationary for one in self.parts.values())

    def verify(self) -> None:
        """Read the files they name. Raises TraceError with all that is wrong in a trace, UnknownId."""
        for one in self.parts.values():
            one.verify()

    def facts(self) -> list[tuple[str, Value]]:
        """The published statistics that they draw from, with their places. Raises UnknownId."""
        return [(f"{name}.{place}", value) for name, one in self.parts.items() for place, value in one.facts()]

    def open_table(self, streams: Streams, horizon_s: float | None) -> RequestTable:
        """Raises ValueError: each service has a table of its own."""
        raise ValueError("services have tables of requests of their own")

    def mean_rate_rps(self) -> float | None:
        """Requests of all services per second; None where one has no such rate. Raises TraceError."""
        rates = [one.mean_rate_rps() for one in self.parts.values()]
        return None if any(rate is None for rate in rates) else sum(rate or 0.0 for rate in rates)

    def notes(self) -> tuple[str, ...]:
        """What a reader of the results must know about the requests. Raises TraceError."""
        return tuple(f"{name}: {note}" for name, one in self.parts.items() for note in one.notes())

    def describe(self) -> str:
        """A sentence a service. Raises TraceError."""
        return " ".join(f"{name}: {one.describe()}" for name, one in self.parts.items())
