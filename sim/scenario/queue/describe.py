"""A queue's plan as plain data: for resolved.yaml, for `gpufleet check`, for the report."""

from typing import Any

from sim.catalogue.catalog import Catalog
from sim.scenario.job.describe import described_pool
from sim.scenario.queue.plan import QueuePlan
from sim.scenario.resolving.describe import charges_of, sources_of, values_of
from sim.units import SECONDS_PER_HOUR


def describe_queue(plan: QueuePlan, catalog: Catalog) -> dict[str, Any]:
    """Everything that the queue rests on: cluster, policy, jobs in short, every value with its origin, sources."""
    pool, jobs = plan.pool, plan.jobs
    values = values_of(plan.fleet, plan.facts, pool.costs, pool.carbon, catalog)
    return {
        "fleet": plan.fleet,
        "infeasible": plan.infeasible,
        "notes": [*plan.notes, *pool.notes],
        "policy": plan.policy.model_dump(),
        "pool": described_pool(pool),
        **_serving(plan),
        "jobs": {
            "number": len(jobs),
            "last_arrival_h": jobs[-1].arrived_s / SECONDS_PER_HOUR,
            "largest_gpus": max(job.gpus for job in jobs),
            "gpu_hours": sum(job.gpus * job.duration_s for job in jobs) / SECONDS_PER_HOUR,
        },
        "capex_usd": pool.costs.capex_usd if pool.costs else None,
        "charges": charges_of(pool.costs),
        "values": values,
        "sources": sources_of(values, catalog),
    }


def _serving(plan: QueuePlan) -> dict[str, Any]:
    """The service beside the jobs, with its schedule as times of day."""
    if plan.serving is None:
        return {}
    replicas = {f"{at // 60:02}:{at % 60:02}": count for at, count in sorted(plan.serving.replicas.items())}
    return {"serving": plan.serving.model_dump() | {"replicas": replicas}}
