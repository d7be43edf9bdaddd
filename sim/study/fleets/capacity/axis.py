"""The load that a search for a capacity raises."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sim.scenario.schema import Scenario
from sim.scenario.sections.sensitivity import ALL_LOADS
from sim.workload import Workload


@dataclass(frozen=True, slots=True)
class LoadAxis:
    """What is raised until the service level breaks."""

    path: str
    """Of the load in the scenario; empty where several are raised together."""
    label: str
    start: float
    """The scenario's own load; the search begins at the power of two that is nearest to it."""
    whole: bool
    """Clients come in whole numbers."""
    together: Mapping[str, float] = field(default_factory=dict)
    """Where the loads of several services are raised in proportion: path -> the scenario's own."""

    @classmethod
    def of(cls, scenario: Scenario) -> "LoadAxis":
        """Rate of arrivals, number of clients, or speed of a trace; of several services the chosen one's, else those of
        all in proportion. Raises ValueError for a burst, which has no rate.
        """
        if not scenario.services:
            return cls._of(scenario.workload, "")
        each = {one.name: cls._of(one.workload, f"services.{i}.") for i, one in enumerate(scenario.services)}
        if scenario.service is not None:
            return each[scenario.service]
        if clients := [name for name, axis in each.items() if axis.whole]:
            raise ValueError(f"{clients[0]} has clients, which do not grow in proportion: choose it with `service`")
        if still := [one.name for one in scenario.services if not one.workload.mean_rate_rps()]:
            raise ValueError(f"all requests of {still[0]} come at once, so it has no rate to raise")
        return cls("", ALL_LOADS, 1.0, False, {axis.path: axis.start for axis in each.values()})

    @classmethod
    def _of(cls, workload: Workload, before: str) -> "LoadAxis":
        """*before* stands before the workload's key."""
        if workload.trace is not None:
            return cls(f"{before}workload.trace.rate_scale", "rate_scale", workload.trace.rate_scale, False)
        loop = workload.closed_loop()
        if loop is not None:
            return cls(f"{before}workload.arrivals.concurrency", "concurrency", float(loop.concurrency), True)
        rate = workload.mean_rate_rps()
        if rate is None:
            raise ValueError("a burst has no rate to raise; give arrivals with a rate, a closed loop or a trace")
        return cls(f"{before}workload.arrivals.rate_rps", "rate_rps", rate, False)

    def value(self, load: float) -> float | int:
        """*load* as the scenario says it."""
        return max(1, round(load)) if self.whole else load

    def overrides(self, value: float) -> dict[str, float]:
        """Path -> load of the scenario at *value*."""
        if self.together:
            return {path: value * own for path, own in self.together.items()}
        return {self.path: value}
