"""A pool of GPUs that jobs run on: its servers, its power, its money."""

from dataclasses import dataclass
from math import ceil

from sim.catalogue.catalog import Catalog
from sim.cost import CarbonPlan, Clock, CostPlan, PoolFacts
from sim.cost.hardware import boxes_needed
from sim.power import PoolPower, Power, pool_power
from sim.scenario.job.bind import Hardware
from sim.scenario.job.schema import JobFleet, WorkScenario
from sim.scenario.resolving.bind import power_coefficients
from sim.scenario.resolving.terms import FleetTerms, Machines


@dataclass(frozen=True, slots=True)
class PoolOfJobs:
    """GPUs of one kind with all that they cost and draw."""

    name: str
    gpu: str
    server: str
    gpus: int
    servers: int
    """Whole ones that the GPUs fill; 0 without a server."""
    power: PoolPower | None
    costs: CostPlan | None
    carbon: CarbonPlan | None
    clock: Clock | None
    pue: float
    by_height: bool
    """Whether the bill depends on the height of servers."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of bill and emissions must know."""
        return (*(self.costs.notes if self.costs else ()), *(self.carbon.notes if self.carbon else ()))


def pool_of_jobs(
    scenario: WorkScenario, fleet: JobFleet, hardware: Hardware, gpus: int, catalog: Catalog
) -> PoolOfJobs:
    """*gpus* of *fleet*'s pool. Raises CostError with every price that is missing."""
    pool, server, gpu = fleet.pools[0], hardware.server, hardware.gpu
    cost, power = pool.cost or fleet.cost, pool.power or Power()
    boxes = boxes_needed(gpus, int(server.gpu_slots.value), cost is not None and cost.share) if server else 0.0
    facts = PoolFacts(
        pool.name or gpu.id,
        gpu.id,
        gpus,
        1,
        server,
        nameplate_w=_nameplate_w(hardware, power),
        gpu_tdp_w=gpu.tdp_w.value if gpu.tdp_w else None,
    )
    terms, machines = _terms(scenario, fleet), Machines((facts,), boxes)
    return PoolOfJobs(
        name=facts.name,
        gpu=gpu.id,
        server=facts.server_id,
        gpus=gpus,
        servers=ceil(boxes),
        power=pool_power(power, gpu, power_coefficients(catalog), gpus, server, boxes),
        costs=terms.costs(machines, catalog),
        carbon=terms.carbon_plan(machines, catalog),
        clock=terms.clock,
        pue=terms.facility_factor,
        by_height=terms.by_height,
    )


def clock_of(scenario: WorkScenario, fleet: JobFleet) -> Clock | None:
    """Local time at the site of *fleet*; None where nothing says when it begins. Raises ClockError."""
    return _terms(scenario, fleet).clock


def _terms(scenario: WorkScenario, fleet: JobFleet) -> FleetTerms:
    """What is paid for *fleet*: its own sections, else the scenario's."""
    return FleetTerms(
        cost=fleet.cost,
        own_costs=tuple(pool.cost for pool in fleet.pools),
        site=fleet.site or scenario.site,
        finance=fleet.finance or scenario.finance,
        operations=fleet.operations or scenario.operations,
        api=None,
        carbon=fleet.carbon or scenario.carbon,
        starts_at=scenario.starts_at,
    )


def _nameplate_w(hardware: Hardware, power: Power) -> float | None:
    """One server with all slots filled, at the wall [W]."""
    server, tdp = hardware.server, hardware.gpu.tdp_w
    if power.nameplate_w is not None or server is None:
        return power.nameplate_w
    if server.max_power_w is not None:
        return server.max_power_w.value
    if tdp is None or server.base_power_w is None:
        return None
    return (server.gpu_slots.value * tdp.value + server.base_power_w.value) / server.psu_efficiency.value
