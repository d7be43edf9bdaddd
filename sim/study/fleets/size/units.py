"""The fleets that a search may choose from: one kind of replica each, in any number, under one way to pay."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.cost import CostError, Problem
from sim.scenario.checks.pools import pool_complaints
from sim.scenario.checks.routing import role_complaints
from sim.scenario.resolving.bind import bind
from sim.scenario.resolving.resolve import FleetPlan, resolve_fleet
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.sections.size import WHOLE, Size, Split
from sim.scenario.year import load_by_hour
from sim.study.fleets.availability.standby import StandBy
from sim.study.fleets.size.bounds import Floor, OfferedLoad
from sim.study.fleets.size.budget import Needs, least_kw_by_pool
from sim.study.fleets.size.hosts import NoHost, hosts


@dataclass(frozen=True, slots=True)
class Beside:
    """Replicas that answer what others have computed the prompts of."""

    name: str
    pool: dict[str, Any]
    """As a scenario says it, without `replicas`."""
    cost: dict[str, Any]
    replicas: int
    kv_transfer: dict[str, Any]
    kinds: str
    """Key of the hardware of both, whatever the numbers."""

    def fleet(self, name: str, prompts: dict[str, Any], cost: dict[str, Any], replicas: int, spare: int) -> Fleet:
        """*replicas* of *prompts* in front of these, with *spare* ones of both."""
        pools = [
            {"name": "prompts", "role": "prefill", **prompts, "replicas": replicas + spare, "cost": cost},
            {"name": "answers", "role": "decode", **self.pool, "replicas": self.replicas + spare, "cost": self.cost},
        ]
        return Fleet.model_validate({"name": name, "pools": pools, "kv_transfer": self.kv_transfer})

    def named(self, prompts: str, replicas: int, spare: int) -> str:
        """The name of a fleet."""
        more = f"+{spare}" if spare else ""
        return f"{replicas}{more}x ({prompts}) for prompts, {self.replicas}{more}x ({self.name}) for answers"


@dataclass(frozen=True, slots=True)
class Unit:
    """Replicas of one kind and how they are paid for; or a fleet of the scenario's own, which is as it is."""

    name: str
    pool: dict[str, Any]
    """As a scenario says it, without `replicas`; empty for a fleet of the scenario."""
    cost: dict[str, Any]
    machine: str
    """Key of the hardware: equal for units that differ only in how they are paid for."""
    own: Fleet | None = None
    own_spares: int = 0
    """Replicas in each pool of `own` that are spares."""
    refusal: str = ""
    """Why there is nothing to look at."""
    most: int | None = None
    """Replicas, spares included, that its host carries; None: as many as one likes."""
    choice: str = ""
    """Key: equal for units that differ only in the host that the search chooses for them; empty for all others."""
    way: str = ""
    """Label of the way to pay; empty for a fleet of the scenario."""
    beside: Beside | None = None
    """Who answers, where `pool` computes prompts only."""
    standby: StandBy | None = None
    """Spares that do not serve with the others."""

    def total(self, replicas: int) -> int:
        """All replicas of a fleet with *replicas* of `pool`."""
        return replicas + (self.beside.replicas if self.beside is not None else 0)

    def fleet(self, replicas: int, spare: int = 0) -> Fleet:
        """So many replicas behind one router, and *spare* ones; of the scenario's own, spares may be out of service."""
        if self.own is not None:
            out = self.own_spares - spare
            pools = [pool.model_copy(update={"replicas": pool.replicas - out}) for pool in self.own.pools]
            return self.own.model_copy(update={"pools": tuple(pools)}) if out else self.own
        if self.beside is not None:
            return self.beside.fleet(self.counted(replicas, spare), self.pool, self.cost, replicas, spare)
        pool = self.pool | {"replicas": replicas + spare}
        if self.standby is not None:
            pool |= self.standby.pool | {"replicas": replicas + self.standby.count}
        data = {
            "name": self.counted(replicas, spare),
            "pools": [pool],
            "cost": self.cost,
        }
        return Fleet.model_validate(data)

    def counted(self, replicas: int, spare: int = 0) -> str:
        """The name of a number of replicas."""
        if self.beside is not None:
            return self.beside.named(self.name, replicas, spare)
        if self.standby is not None:
            return f"{replicas}+{self.standby.words} x ({self.name})"
        count = f"{replicas}+{spare}" if spare else str(replicas)
        return f"{count}x ({self.name})" if replicas + spare > 1 else self.name


def units(scenario: Scenario, size: Size, catalog: Catalog) -> Iterator[Unit]:
    """The scenario's fleets, then every combination of the section, then every pair of combinations paid alike, where
    prompts are to be computed by replicas of their own.
    """
    for fleet in scenario.fleets:
        yield Unit(fleet.name, {}, {}, f"fleet {fleet.name}", fleet, size.spare_replicas)
    single = list(_of_one_kind(scenario, size, catalog))
    yield from single
    if size.split is not None:
        yield from _of_two_roles([unit for unit in single if not unit.refusal], size, size.split)


def _of_two_roles(single: Sequence[Unit], size: Size, split: Split) -> Iterator[Unit]:
    """Each of *single* in front of each other, and of itself, in every number of those that answer."""
    transfer = split.kv_transfer.model_dump(mode="json", exclude_unset=True)
    for prompts, answers in product(single, single):
        if prompts.way != answers.way:
            continue
        kinds = f"{prompts.machine} for prompts, {answers.machine} for answers"
        most = size.max_replicas - 1 if answers.most is None else min(size.max_replicas - 1, answers.most)
        for number in range(1, most + 1):
            beside = Beside(answers.name, answers.pool, answers.cost, number, transfer, kinds)
            yield replace(prompts, machine=f"{kinds}, {number}", choice="", beside=beside)


def _of_one_kind(scenario: Scenario, size: Size, catalog: Catalog) -> Iterator[Unit]:
    """Every combination of the section. GPUs that are bought and have no server in the section stand in every server of
    the catalogue that carries them.
    """
    formats = size.quantizations or (None,)
    layouts = product(_cut(size, catalog), size.tensor_parallel_sizes, size.pipeline_parallel_sizes)
    told: set[str] = set()
    for ((gpu, profile), tensor, pipeline), quantization, batching in product(layouts, formats, size.batching):
        if profile is not None and tensor * pipeline > 1:
            continue  # slices have no link between them
        limits = batching.model_dump(mode="json", exclude_unset=True)
        wanted = {
            "gpu": gpu,
            "mig": profile,
            "tensor_parallel_size": tensor,
            "pipeline_parallel_size": pipeline,
            "quantization": quantization,
            "batching": limits,
        }
        words = [f"{tensor * pipeline}x {gpu}" if profile is None else f"{profile} of {gpu}"]
        words += [quantization] if quantization else []
        words += [f"in {pipeline} stages"] if pipeline > 1 else []
        more = _limits(limits) if len(size.batching) > 1 else []
        if gpu in size.servers:
            servers = size.servers[gpu]
            for server in servers:
                what = " ".join([*words, *([f"in {server}"] if len(servers) > 1 else []), *more])
                pool = _given(wanted | {"server": server})
                for label, cost in _ways(size, gpu, server):
                    yield Unit(f"{what}, {label}", pool, cost, what, way=label)
            continue
        what, pool = " ".join([*words, *more]), _given(wanted)
        for label, cost in _ways(size, gpu, None):
            if cost["acquisition"] == "rent":
                yield Unit(f"{what}, {label}", pool, cost, what, way=label)
        yield from _hosted(scenario, size, catalog, pool, (words, more), told)


def _cut(size: Size, catalog: Catalog) -> Iterator[tuple[str, str | None]]:
    """Every GPU whole and in the slices that are asked for, as far as it has them."""
    for gpu in size.gpus:
        cut = catalog.gpu(gpu).mig
        for profile in size.mig:
            if profile == WHOLE:
                yield gpu, None
            elif cut is not None and profile in cut.profiles:
                yield gpu, profile


def _hosted(
    scenario: Scenario,
    size: Size,
    catalog: Catalog,
    pool: dict[str, Any],
    words: tuple[list[str], list[str]],
    told: set[str],
) -> Iterator[Unit]:
    """*pool* bought in every server that carries it; or once, unless it is *told* already, why there is none."""
    gpu, gpus = pool["gpu"], pool["tensor_parallel_size"] * pool["pipeline_parallel_size"]
    cap_w = scenario.power.cap_w if scenario.power is not None else None
    bought = [label for label, cost in size.costs.items() if cost.acquisition == "buy"]
    try:
        found = hosts(catalog.gpu(gpu), gpus, cap_w, catalog)
    except NoHost as error:
        for label in bought:
            name = f"{gpus}x {gpu}, {label}"
            if name not in told:
                told.add(name)
                yield Unit(name, pool, {"acquisition": "buy"}, name, refusal=str(error))
        return
    what = " ".join([*words[0], *words[1]])
    for host in found:
        there = [f"in {host.server}"] if host.server else []
        name = " ".join([*words[0], *there, *words[1]])
        inside = _given(pool | {"server": host.server, "link": host.link})
        most = None if host.most_gpus is None else host.most_gpus * _slices(pool, catalog) // gpus
        # how fast a replica is depends on the link alone
        machine = f"{what}, {host.link or (catalog.server(host.server).link if host.server else '')}"
        for label, cost in _ways(size, gpu, host.server):
            if label in bought:
                yield Unit(f"{name}, {label}", inside, cost, machine, most=most, choice=f"{what}, {label}", way=label)


def _slices(pool: dict[str, Any], catalog: Catalog) -> int:
    """Replicas on one GPU; 1 where it is not cut."""
    cut = catalog.gpu(pool["gpu"]).mig if "mig" in pool else None
    return 1 if cut is None else cut.profiles[pool["mig"]].instances


def _given(pool: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in pool.items() if value is not None and value != {}}


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
        self.scenario, self.catalog, self.demand = scenario, catalog, OfferedLoad.of(scenario)
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
        demand = self.demand
        if plan.kv_transfer is not None:
            demand = demand.prompts_alone(plan.kv_transfer.min_prompt_tokens)
        floor = Floor(plan.pools[0], demand)
        reason = floor.refusal(self.scenario.slo) if unit.beside is None else ""
        rate = demand.rate_rps
        return Machine(reason, 1 if rate is None or reason else max(1, ceil(rate / floor.replica_rps())))

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
            bound = [bind(self.scenario, fleet, pool, self.catalog) for pool in fleet.pools]
            wrong = [one for pool in bound for one in pool_complaints(pool, (), self.catalog)]
            wrong += role_complaints(self.scenario, fleet, bound, ())
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
        by_hour = load_by_hour(self.scenario)
        return least_usd_per_h(plan, unit.name, by_hour), Needs.of(plan, fleet, by_hour)

    def needs(self, fleet: Fleet) -> Needs:
        """What *fleet* asks of a budget. Raises CostError."""
        return Needs.of(resolve_fleet(self.scenario, fleet, self.catalog), fleet, load_by_hour(self.scenario))


def least_usd_per_h(plan: FleetPlan, name: str, by_hour: Sequence[float] | None = None) -> float:
    """Charges that no load changes, and electricity without any work, at the mean prices of the year [USD/h].

    The load falls on the hours of the day as *by_hour* says. Raises CostError for a fleet without a `cost` section.
    """
    if plan.costs is None:
        raise CostError(Problem("cost", f"{name} has no cost section"))
    least_kw = least_kw_by_pool(plan)
    charges = plan.costs.averaged(by_hour=by_hour).charges
    return sum(charge.least_usd_per_h(least_kw.get(charge.pool, 0.0)) for charge in charges)
