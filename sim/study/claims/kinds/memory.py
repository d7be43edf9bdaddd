"""How a fleet lies in memory, without a simulation."""

from sim.scenario.claims.figures import Memory
from sim.scenario.resolving.case import resolve
from sim.study.claims.asked import Asked
from sim.study.claims.figure import Figure, NoFigure
from sim.study.claims.kinds.job import FITS, of_job
from sim.study.claims.kinds.registry import finds
from sim.units import GB

JOB_COLUMNS = {"fits": FITS, "reserved_gb": "peak_memory_gb"}


@finds(Memory)
def memory(spec: Memory, asked: Asked) -> Figure:
    """Of the fleet's first pool."""
    if asked.has_job:
        return of_job(spec.fleet, JOB_COLUMNS.get(spec.value, spec.value), asked, spec.set)
    scenario, cases = asked.cases(spec.fleet, spec.set)
    plan = resolve(scenario, cases[0], asked.catalog)
    pool = plan.pools[0]
    if spec.value == "fits":
        return Figure(float(not plan.infeasible))
    if spec.value == "gpus":
        return Figure(float(pool.gpus_per_replica))
    if plan.infeasible or pool.memory is None:
        raise NoFigure(f"{spec.fleet}: {plan.infeasible or 'no memory is computed'}")
    held = pool.memory
    if spec.value == "kv_tokens":
        return Figure(held.kv_tokens)
    parts = held.weights_bytes + held.activations_bytes + held.context_bytes + held.graphs_bytes + held.comms_bytes
    return Figure((parts + held.kv_bytes) * held.gpus / GB)
