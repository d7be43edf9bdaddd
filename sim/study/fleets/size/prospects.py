"""Which of the fleets of a search may serve, with how many replicas at least, and what they cost at least."""

from dataclasses import dataclass
from math import ceil

from sim.catalogue.catalog import Catalog
from sim.cost import CostError, Problem
from sim.scenario.checks.pools import pool_complaints
from sim.scenario.checks.routing import adapter_use_complaints, role_complaints
from sim.scenario.checks.services import sharing_complaints
from sim.scenario.resolving.resolve import FleetPlan, pool_models, resolve_fleet
from sim.scenario.resolving.resolved import PoolPlan
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.sections.size import Size
from sim.scenario.sections.slo import Slo
from sim.study.fleets.availability.over_failures import why_no_availability
from sim.study.fleets.capacity.axis import ONLY_RAISED
from sim.study.fleets.capacity.search import why_not_its_mean
from sim.study.fleets.size.bounds import Floor, OfferedLoad
from sim.study.fleets.size.budget import Needs, least_kw_by_pool
from sim.study.fleets.size.units import Unit


def why_no_size(scenario: Scenario) -> str:
    """What the scenario lacks for a search, with its key; empty if nothing."""
    if scenario.size is None:
        return "size: is missing: it names the GPUs, layouts and prices to choose from"
    if scenario.tenant is not None:
        return ONLY_RAISED
    if scenario.service is not None:
        return f"service: {scenario.service} shares pools, and a fleet is sized for all who share it: remove `service`"
    levels = [(f"services.{i}.", one.slo) for i, one in enumerate(scenario.services)]
    told = (_why_no_level(*one) for one in levels or [("", scenario.slo)])
    first = next((one for one in told if one), "")
    return (
        first or why_not_its_mean(scenario) or why_no_availability(scenario.slo, scenario.fleets, scenario.operations)
    )


def _why_no_level(place: str, slo: Slo) -> str:
    """What a service level lacks; *place* stands before its key."""
    if not slo.goals:
        return f"{place}slo: a fleet is sized to at least one limit: ttft_s, tpot_s or e2e_s"
    if slo.tenants is not None:
        return (
            f"{place}slo.tenants: a fleet is sized to one service level: remove it, or compare fleets with run and "
            "capacity"
        )
    if place and slo.availability is not None:
        return f"{place}slo.availability: is not looked at for several services: remove it"
    return ""


@dataclass(frozen=True, slots=True)
class Machine:
    """What is known of a replica before anything is simulated."""

    reason: str
    """Why it cannot serve; empty if it may."""
    least_replicas: int
    """Fewer cannot carry the load."""


class Prospects:
    """Bounds of all units, each machine worked out once."""

    def __init__(self, scenario: Scenario, catalog: Catalog) -> None:
        self.scenario, self.catalog, self.demand = scenario, catalog, OfferedLoad.of(scenario)
        self.demands = OfferedLoad.of_services(scenario)
        """Of each of several services."""
        self.levels = [one.slo for one in scenario.services]
        self._machines: dict[str, Machine] = {}
        self._starts: dict[str, bool] = {}

    def look(self, unit: Unit) -> Machine:
        """Whether and with how many replicas *unit* may serve the load."""
        machine = unit.machine if unit.beside is None else unit.beside.kinds
        if machine not in self._machines:
            self._machines[machine] = self._machine(unit)
        return self._machines[machine]

    def _machine(self, unit: Unit) -> Machine:
        if unit.refusal:
            return Machine(unit.refusal, 0)
        if unit.own is not None and any(pool.replicas <= unit.own_spares for pool in unit.own.pools):
            return Machine(f"has no {unit.own_spares} spare replicas in every pool", 0)
        if refusal := self.refusal(unit):
            return Machine(refusal, 0)
        try:
            plan = self.plan(unit)
        except (ValueError, ArithmeticError) as error:
            return Machine(str(error).splitlines()[0], 0)
        if plan.infeasible or unit.own is not None:
            return Machine(plan.infeasible, 1)
        if self.demands:
            return self._serving_all(plan.pools[0])
        demand = self.demand
        if plan.kv_transfer is not None:
            demand = demand.prompts_alone(plan.kv_transfer.min_prompt_tokens)
        floor = Floor(plan.pools[0], demand)
        reason = floor.refusal(self.scenario.slo) if unit.beside is None else ""
        rate = demand.rate_rps
        return Machine(reason, 1 if rate is None or reason else max(1, ceil(rate / floor.replica_rps())))

    def _serving_all(self, pool: PoolPlan) -> Machine:
        """A replica that serves all services. Those of one model are in the same batches; models take turns."""
        for one in self.scenario.services:
            floor = Floor(pool.serving(one.name), self.demands[one.name])
            if reason := floor.refusal(one.slo):
                return Machine(f"{one.name}: {reason}", 0)
        busy = 0.0
        for model in pool.models or (pool,):
            demand = OfferedLoad.together([self.demands[name] for name in model.served])
            busy += (demand.rate_rps or 0.0) / Floor(model, demand).replica_rps()
        return Machine("", max(1, ceil(busy)))

    def cannot_start(self, unit: Unit) -> bool:
        """Whether *unit* does not hold the model, or its layout or limits are refused."""
        if unit.refusal:
            return True
        if unit.machine not in self._starts:
            self._starts[unit.machine] = not self.refusal(unit) and not self.plan(unit).infeasible
        return not self._starts[unit.machine]

    @staticmethod
    def most_replicas(unit: Unit, size: Size) -> int:
        """That may carry the load."""
        if unit.own is not None:
            return 1
        most = size.max_replicas - (unit.beside.replicas if unit.beside is not None else 0)
        most = most if unit.most is None else min(most, unit.most - size.spare_replicas)
        return most - (unit.standby.count if unit.standby is not None else 0)

    def plan(self, unit: Unit) -> FleetPlan:
        """One replica, without prices."""
        fleet = unit.fleet(1)
        if unit.beside is not None:
            free = tuple(pool.model_copy(update={"cost": None}) for pool in fleet.pools)
            fleet = fleet.model_copy(update={"pools": free})
        return resolve_fleet(self.scenario, fleet.model_copy(update={"cost": None}), self.catalog)

    def refusal(self, unit: Unit) -> str:
        """What is wrong with its layout or limits; empty if nothing is."""
        fleet = unit.fleet(1)
        try:
            models = [pool_models(self.scenario, fleet, pool, self.catalog) for pool in fleet.pools]
            wrong = [one for pool in models for own in pool for one in pool_complaints(own, (), self.catalog)]
            wrong += [one for pool in models for one in sharing_complaints(self.scenario, fleet, pool, ())]
            wrong += adapter_use_complaints(self.scenario, fleet, [pool[0] for pool in models], ())
            wrong += role_complaints(self.scenario, fleet, [pool[0] for pool in models], ())
        except (ValueError, ArithmeticError) as error:
            return str(error).splitlines()[0]
        return "; ".join(f"{one.place[-1]}: {one.message}" for one in wrong)

    def usd_per_h(self, unit: Unit, replicas: int, spare: int) -> float:
        """Least that the fleet costs: what runs with the clock. Raises CostError."""
        return self.floor(unit, replicas, spare)[0]

    def floor(self, unit: Unit, replicas: int, spare: int) -> tuple[float, Needs]:
        """Least that the fleet costs [USD/h], and what it asks of a budget. Raises CostError."""
        fleet = unit.fleet(replicas, spare)
        plan = resolve_fleet(self.scenario, fleet, self.catalog)
        return least_usd_per_h(plan, unit.name), Needs.of(plan, fleet)

    def needs(self, fleet: Fleet) -> Needs:
        """What *fleet* asks of a budget. Raises CostError."""
        return Needs.of(resolve_fleet(self.scenario, fleet, self.catalog), fleet)


def least_usd_per_h(plan: FleetPlan, name: str) -> float:
    """Charges that no load changes, and electricity without any work, at the mean prices of the year [USD/h]: an idle
    fleet draws it in all hours alike. Raises CostError for a fleet without a `cost` section.
    """
    if plan.costs is None:
        raise CostError(Problem("cost", f"{name} has no cost section"))
    least_kw = least_kw_by_pool(plan)
    charges = plan.costs.averaged().charges
    return sum(charge.least_usd_per_h(least_kw.get(charge.pool, 0.0)) for charge in charges)
