"""A job's plan as plain data: for resolved.yaml, for `gpufleet check`, for the report."""

from typing import Any

from sim.catalogue.catalog import Catalog
from sim.scenario.job.plan import JobPlan
from sim.scenario.resolving.describe import sources_of, values_of
from sim.units import GB

PARTS = ("weights", "gradients", "states", "activations", "logits", "reserve", "total")


def describe_job(plan: JobPlan, catalog: Catalog) -> dict[str, Any]:
    """Everything that the job rests on: settings, memory, every catalogue value with its origin, and the sources."""
    job, memory = plan.bound.job, plan.bound.memory
    values = values_of(plan.fleet, plan.facts, plan.costs, plan.carbon, catalog)
    return {
        "fleet": plan.fleet,
        "job": plan.spec.model_dump(mode="json", exclude_none=True, exclude={"parallel"}),
        "infeasible": plan.infeasible,
        "notes": [*(plan.costs.notes if plan.costs else ()), *(plan.carbon.notes if plan.carbon else ())],
        "pool": {
            "name": plan.pool,
            "gpu": plan.gpu,
            "gpus": plan.gpus,
            "server": plan.server,
            "servers": plan.servers,
            "gpus_per_node": job.gpus_per_node,
            "link": job.link.id,
            "network_bytes_per_s": job.node_bytes_per_s or None,
            "peak_w": plan.power.peak_w if plan.power else None,
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
        "framework": plan.bound.framework,
        "steps": plan.steps,
        "mtbf_h": None if not plan.makespan.failures else plan.stops.mtbf_s / 3600,
        "save_s": plan.stops.save_s or None,
        "restart_s": plan.stops.restart_s or None,
        "memory_gb_per_gpu": {name: round(getattr(memory, f"{name}_bytes") / GB, 3) for name in PARTS}
        | {"available": round(job.gpu.memory_bytes.value / GB, 3)},
        "capex_usd": plan.costs.capex_usd if plan.costs else None,
        "values": values,
        "sources": sources_of(values, catalog),
    }
