"""The fleets that a search may choose from: one kind of replica each, in any number, under one way to pay."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil
from typing import Any

from sim.catalog.catalog import Catalog
from sim.cost import CostError, Problem
from sim.cost.charge import FlatCharge
from sim.cost.energy import EnergyCharge
from sim.scenario.bind import bind
from sim.scenario.pool_checks import pool_complaints
from sim.scenario.resolve import FleetPlan, resolve_fleet
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.size import Size
from sim.study.size_bounds import Demand, Floor


@dataclass(frozen=True, slots=True)
class Unit:
    """Replicas of one kind and how they are paid for; or a fleet of the scenario's own, which is as it is."""

    name: str
    pool: dict[str, Any]
    """As a scenario says it, without `replicas`; empty for a fleet of the scenario."""
    cost: dict[str, Any]
    machine: str
    """The same for units that differ only in how they are paid for."""
    own: Fleet | None = None
    own_spares: int = 0
    """Replicas in each pool of `own` that are spares."""

    def fleet(self, replicas: int, spare: int = 0) -> Fleet:
        """So many replicas behind one router, and *spare* ones; of the scenario's own, spares may be out of service."""
        if self.own is not None:
            out = self.own_spares - spare
            pools = [pool.model_copy(update={"replicas": pool.replicas - out}) for pool in self.own.pools]
            return self.own.model_copy(update={"pools": tuple(pools)}) if out else self.own
        data = {
            "name": self.counted(replicas, spare),
            "pools": [self.pool | {"replicas": replicas + spare}],
            "cost": self.cost,
        }
        return Fleet.model_validate(data)

    def counted(self, replicas: int, spare: int = 0) -> str:
        """The name of so many replicas."""
        count = f"{replicas}+{spare}" if spare else str(replicas)
        return f"{count}x ({self.name})" if replicas + spare > 1 else self.name


def units(scenario: Scenario, size: Size) -> Iterator[Unit]:
    """The scenario's fleets, then every combination of the section."""
    for fleet in scenario.fleets:
        yield Unit(fleet.name, {}, {}, f"fleet {fleet.name}", fleet, size.spare_replicas)
    formats = size.quantizations or (None,)
    layouts = product(size.gpus, size.tensor_parallel_sizes, size.pipeline_parallel_sizes, formats, size.batching)
    for gpu, tensor, pipeline, quantization, batching in layouts:
        servers = size.servers.get(gpu, (None,))
        for server in servers:
            limits = batching.model_dump(mode="json", exclude_unset=True)
            pool = {
                "gpu": gpu,
                "tensor_parallel_size": tensor,
                "pipeline_parallel_size": pipeline,
                "server": server,
                "quantization": quantization,
                "batching": limits,
            }
            pool = {key: value for key, value in pool.items() if value is not None and value != {}}
            words = [f"{tensor * pipeline}x {gpu}"]
            words += [quantization] if quantization else []
            words += [f"in {pipeline} stages"] if pipeline > 1 else []
            words += [f"in {server}"] if server and len(servers) > 1 else []
            words += _limits(limits) if len(size.batching) > 1 else []
            what = " ".join(words)
            for label, cost in _ways(size, gpu, server):
                yield Unit(f"{what}, {label}", pool, cost, what)


def _limits(limits: dict[str, Any]) -> list[str]:
    return [str(value) if key == "policy" else f"{key} {value}" for key, value in limits.items() if value != "engine"]


def _ways(size: Size, gpu: str, server: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Label and `cost` of each way to pay, of its quotes those for *gpu* and *server*."""
    for label, cost in size.costs.items():
        data = cost.model_dump(mode="json", exclude_unset=True)
        quotes = {item: quote for item, quote in data.pop("quotes", {}).items() if item in (gpu, server)}
        yield label, data | ({"quotes": quotes} if quotes else {})
    for label, offers in size.rents.items():
        offer = {"price": offers[gpu]} if gpu in offers else {}
        yield label, {"acquisition": "rent", **offer}


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
        self.scenario, self.catalog, self.demand = scenario, catalog, Demand.of(scenario)
        self._machines: dict[str, Machine] = {}
        self._starts: dict[str, bool] = {}

    def look(self, unit: Unit) -> Machine:
        """Whether and with how many replicas *unit* may serve the load."""
        if unit.machine not in self._machines:
            self._machines[unit.machine] = self._machine(unit)
        return self._machines[unit.machine]

    def _machine(self, unit: Unit) -> Machine:
        if unit.own is not None and any(pool.replicas <= unit.own_spares for pool in unit.own.pools):
            return Machine(f"has no {unit.own_spares} spare replicas in every pool", 0)
        if refusal := self._refusal(unit):
            return Machine(refusal, 0)
        try:
            plan = self.plan(unit)
        except (ValueError, ArithmeticError) as error:
            return Machine(str(error).splitlines()[0], 0)
        if plan.infeasible or unit.own is not None:
            return Machine(plan.infeasible, 1)
        floor = Floor(plan.pools[0], self.demand)
        reason = floor.refusal(self.scenario.slo)
        rate = self.demand.rate_rps
        return Machine(reason, 1 if rate is None or reason else max(1, ceil(rate / floor.replica_rps())))

    def cannot_start(self, unit: Unit) -> bool:
        """Whether *unit* does not hold the model, or its layout or limits are refused."""
        if unit.machine not in self._starts:
            self._starts[unit.machine] = not self._refusal(unit) and not self.plan(unit).infeasible
        return not self._starts[unit.machine]

    def plan(self, unit: Unit) -> FleetPlan:
        """One replica, without prices."""
        return resolve_fleet(self.scenario, unit.fleet(1).model_copy(update={"cost": None}), self.catalog)

    def _refusal(self, unit: Unit) -> str:
        """What is wrong with its layout or limits; empty if nothing is."""
        fleet = unit.fleet(1)
        try:
            bound = [bind(self.scenario, fleet, pool, self.catalog) for pool in fleet.pools]
            wrong = [one for pool in bound for one in pool_complaints(pool, ())]
        except (ValueError, ArithmeticError) as error:
            return str(error).splitlines()[0]
        return "; ".join(f"{one.place[-1]}: {one.message}" for one in wrong)

    def usd_per_h(self, unit: Unit, replicas: int, spare: int) -> float:
        """Least that the fleet costs: what runs with the clock. Raises CostError."""
        return least_usd_per_h(resolve_fleet(self.scenario, unit.fleet(replicas, spare), self.catalog), unit.name)


def least_usd_per_h(plan: FleetPlan, name: str) -> float:
    """Charges that no load changes, and electricity without any work at its lowest price [USD/h].

    Raises CostError for a fleet without a `cost` section.
    """
    if plan.costs is None:
        raise CostError(Problem("cost", f"{name} has no cost section"))
    flat = sum(one.units_per_h * one.price.usd for one in plan.costs.charges if isinstance(one, FlatCharge))
    energy: dict[tuple[str, str], float] = {}
    for one in plan.costs.charges:
        if isinstance(one, EnergyCharge):
            key, usd_per_kwh = (one.pool, one.component), one.pue * one.price.usd
            energy[key] = min(energy.get(key, usd_per_kwh), usd_per_kwh)
    # replicas on a schedule are off at times
    least_kw = {
        pool.name: pool.replicas * pool.power.least_w / 1e3
        for pool in plan.pools
        if pool.power is not None and pool.schedule is None
    }
    return flat + sum(least_kw.get(pool, 0.0) * usd_per_kwh for (pool, _), usd_per_kwh in energy.items())
