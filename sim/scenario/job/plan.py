"""What a job on one fleet at one sweep point comes to once every id is a sourced value."""

from dataclasses import dataclass
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.scenario.job.bind import Hardware
from sim.scenario.job.facts import hardware_facts, training_facts
from sim.scenario.job.pool import PoolOfJobs, pool_of_jobs
from sim.scenario.job.schema import JobFleet, JobScenario
from sim.scenario.job.training import TrainingRun, training_run
from sim.scenario.resolving.resolved import Fact


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A job on one fleet."""

    fleet: str
    axes: dict[str, Any]
    """Sweep axis -> value."""
    run: TrainingRun
    pool: PoolOfJobs
    facts: tuple[Fact, ...]

    @property
    def infeasible(self) -> str:
        """Why it cannot be done here; empty if it can."""
        return self.run.infeasible


def resolve_job(scenario: JobScenario, fleet: JobFleet, axes: dict[str, Any], catalog: Catalog) -> JobPlan:
    """The plan of *scenario*'s job on *fleet*. Raises CostError with every price that is missing."""
    hardware = Hardware.of(fleet.pools[0], catalog)
    run = training_run(scenario.job, fleet.pools[0], catalog)
    pool = pool_of_jobs(scenario, fleet, hardware, run.gpus, catalog)
    prefix = f"fleets.{fleet.name}"
    facts = [*hardware_facts(prefix, hardware, pool, catalog), *training_facts(prefix, run.bound, hardware, catalog)]
    return JobPlan(fleet.name, axes, run, pool, tuple(dict.fromkeys(facts)))
