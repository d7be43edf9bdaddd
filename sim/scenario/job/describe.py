"""A job's plan as plain data: for resolved.yaml, for `gpufleet check`, for the report."""

from typing import Any

from sim.catalogue.catalog import Catalog
from sim.scenario.job.plan import JobPlan
from sim.scenario.job.pool import PoolOfJobs
from sim.scenario.resolving.describe import charges_of, sources_of, values_of
from sim.units import GB

PARTS = ("weights", "gradients", "states", "activations", "logits", "reserve", "total")


def described_pool(pool: PoolOfJobs) -> dict[str, Any]:
    """GPUs, servers and power of a pool."""
    return {
        "name": pool.name,
        "gpu": pool.gpu,
        "gpus": pool.gpus,
        "server": pool.server,
        "servers": pool.servers,
        "peak_w": pool.power.peak_w if pool.power else None,
    }


def describe_job(plan: JobPlan, catalog: Catalog) -> dict[str, Any]:
    """Everything that the job rests on: settings, memory, every catalogue value with its origin, and the sources."""
    job, memory = plan.run.bound.job, plan.run.bound.memory
    values = values_of(plan.fleet, plan.facts, plan.pool.costs, plan.pool.carbon, catalog)
    return {
        "fleet": plan.fleet,
        "job": plan.run.spec.model_dump(mode="json", exclude_none=True, exclude={"parallel"}),
        "infeasible": plan.infeasible,
        "notes": list(plan.pool.notes),
        "pool": {
            **described_pool(plan.pool),
            "gpus_per_node": job.gpus_per_node,
            "link": job.link.id,
            "network_bytes_per_s": job.node_bytes_per_s or None,
        },
        "parallel": {
            "dp": job.parallel.data,
            "tp": job.parallel.tensor,
            "pp": job.parallel.pipeline,
            "cp": job.parallel.context,
            "ep": job.parallel.expert,
            "virtual_stages": job.parallel.virtual_stages,
            "zero": job.parallel.zero,
            "sequence_parallel": job.parallel.sequence,
            "recompute": job.recompute,
            "micro_batch": job.micro_batch,
            "micro_batches": job.micro_batches,
        },
        "precision": job.precision,
        "framework": plan.run.bound.framework,
        "steps": plan.run.steps,
        "mtbf_h": None if not plan.run.makespan.failures else plan.run.stops.mtbf_s / 3600,
        "save_s": plan.run.stops.save_s or None,
        "restart_s": plan.run.stops.restart_s or None,
        "memory_gb_per_gpu": {name: round(getattr(memory, f"{name}_bytes") / GB, 3) for name in PARTS}
        | {"available": round(job.gpu.memory_bytes.value / GB, 3)},
        "capex_usd": plan.pool.costs.capex_usd if plan.pool.costs else None,
        "charges": charges_of(plan.pool.costs),
        "values": values,
        "sources": sources_of(values, catalog),
    }
