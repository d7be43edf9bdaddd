"""Load axis of a search for a capacity: the numbers of a scenario that follow the load, and loads that have no mean."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sim.message import Message
from sim.scenario.schema import Scenario
from sim.scenario.sections.sensitivity import ALL_LOADS
from sim.units import SECONDS_PER_DAY, SECONDS_PER_HOUR
from sim.workload import Profile, Workload
from sim.workload.tenants import Tenant

ONLY_RAISED = (
    "tenant: only capacity and breakeven raise the load of one tenant at constant load of the others: remove `tenant`"
)


@dataclass(frozen=True, slots=True)
class LoadAxis:
    """Load that the search raises until the fleet misses its service level."""

    path: str
    """Path of the load in the scenario; empty where several loads are raised together."""
    label: str
    """Name of the load in tables, and the axis of its cases."""
    start: float
    """Scenario's own load; the search begins at the nearest power of two."""
    whole: bool
    """True if the load is a whole number of clients."""
    scaled_numbers: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Numbers of the scenario that follow the load, if several do: path -> (value at load 0, gain per unit load)."""
    raised: str = ""
    """Service or tenant whose load is raised while all others keep theirs; empty: the load of all is raised."""

    @classmethod
    def of(cls, scenario: Scenario) -> "LoadAxis":
        """Return the axis of *scenario*: rate of arrivals, number of clients, or speed of a trace.

        With services or tenants, it is the load of the one that the scenario chooses, else the load of all in
        proportion.

        Raises
        ------
        ValueError
            For a load that cannot be raised, such as a burst, which has no rate.

        """
        if not scenario.services:
            return cls._of(scenario.workload, "", scenario.tenant)
        each = {
            one.name: cls._of(one.workload, f"services.{i}.", scenario.tenant if one.name == scenario.service else None)
            for i, one in enumerate(scenario.services)
        }
        if scenario.service is not None:
            chosen = each[scenario.service]
            return replace(chosen, raised=chosen.raised or scenario.service)
        if clients := [name for name, axis in each.items() if axis.whole]:
            raise ValueError(
                Message(
                    "{clients} is a closed loop, whose clients do not grow in proportion: choose it with `service`",
                    clients[0],
                )
            )
        if still := [one.name for one in scenario.services if not one.workload.mean_rate_rps()]:
            raise ValueError(Message("all requests of {service} come at once, so it has no rate to raise", still[0]))
        return cls("", ALL_LOADS, 1.0, False, {axis.path: (0.0, axis.start) for axis in each.values()})

    @classmethod
    def _of(cls, workload: Workload, before: str, tenant: str | None) -> "LoadAxis":
        """Return the axis of *workload*, whose key in the scenario has the prefix *before*."""
        if workload.trace is not None:
            return cls(f"{before}workload.trace.rate_scale", "rate_scale", workload.trace.rate_scale, False)
        loop = workload.closed_loop()
        if loop is not None:
            return cls(f"{before}workload.arrivals.concurrency", "concurrency", float(loop.concurrency), True)
        rate = workload.mean_rate_rps()
        if rate is None:
            raise ValueError("a burst has no rate to raise; give arrivals with a rate, a closed loop or a trace")
        path = f"{before}workload.arrivals.rate_rps"
        whole = cls(path, "rate_rps", rate, False)
        return whole if tenant is None else whole._of_tenant(workload.tenants, tenant, before)

    def _of_tenant(self, tenants: Sequence[Tenant], name: str, before: str) -> "LoadAxis":
        """Return the axis of tenant *name*: total rate and shares change so that the other tenants keep their rates."""
        place = next(i for i, one in enumerate(tenants) if one.name == name)
        others = sum(one.share for one in tenants if one.name != name)
        own = self.start * tenants[place].share / (others + tenants[place].share)
        if not others:
            return replace(self, raised=name)
        held = self.start - own
        scaled_numbers = {self.path: (held, 1.0), f"{before}workload.tenants.{place}.share": (0.0, others / held)}
        return LoadAxis("", self.label, own, False, scaled_numbers, name)

    def value(self, load: float) -> float | int:
        """Return *load* as the scenario states it: a number of clients is whole and at least 1."""
        return max(1, round(load)) if self.whole else load

    def overrides(self, value: float) -> dict[str, float]:
        """Return the overrides of the scenario at the load *value*: path -> number."""
        if self.scaled_numbers:
            return {path: still + each * value for path, (still, each) in self.scaled_numbers.items()}
        return {self.path: value}


def why_not_its_mean(scenario: Scenario) -> str:
    """Return why the window does not cover whole days or a whole profile; empty if it does."""
    if not _sees_whole_days(scenario):
        return (
            "horizon_s: with a schedule the answer would depend on the hours that are simulated: "
            "measure whole days (horizon_s less warmup_s a multiple of 86400)"
        )
    end_s = scenario.horizon_s
    for workload in [one.workload for one in scenario.services] or [scenario.workload]:
        arrivals = workload.arrivals
        if isinstance(arrivals, Profile) and end_s is not None and end_s < arrivals.length_s:
            hours = arrivals.length_s / SECONDS_PER_HOUR
            return Message(
                "horizon_s: ends before the profile of {hours:g} hours does, so the run does not cover its mean load",
                hours,
            )
    return ""


def _sees_whole_days(scenario: Scenario) -> bool:
    """Return whether the window consists of whole days; true for fleets without a schedule."""
    if not has_schedule(scenario):
        return True
    if scenario.horizon_s is None or scenario.warmup_s == "auto":
        return False
    measured_s = scenario.horizon_s - scenario.warmup_s
    return measured_s > 0 and measured_s % SECONDS_PER_DAY == 0


def has_schedule(scenario: Scenario) -> bool:
    """Return whether a pool of *scenario* follows a schedule."""
    return any(pool.schedule is not None for fleet in scenario.fleets for pool in fleet.pools)
