"""Services that share a pool: which of them run the same model, and what memory each model has."""

from dataclasses import replace

from sim.batching.sharing import Swapped
from sim.catalogue.catalog import Catalog
from sim.memory import MemoryFit
from sim.scenario.experiment import Experiment, Fleet, Pool
from sim.scenario.resolving.bind import BoundPool, bind
from sim.scenario.resolving.scheduler.switches import AHEAD
from sim.units import GB


def models_of(scenario: Experiment, fleet: Fleet, pool: Pool, catalog: Catalog) -> list[BoundPool]:
    """*pool* as it is with each of the models that it runs, with the services of that model; one where all services
    run the same.

    Raises UnknownId (a ValueError); ValueError for a config.json that cannot be read.
    """
    groups: list[tuple[BoundPool, list[str]]] = []
    for name in pool.services:
        bound = bind(scenario, fleet, _of_services(pool, (name,)), catalog)
        alike = next((names for one, names in groups if replace(one, spec=pool) == replace(bound, spec=pool)), None)
        if alike is None:
            groups.append((bound, [name]))
        else:
            alike.append(name)
    if len(groups) == 1:
        return [replace(groups[0][0], spec=pool)]
    several = [bind(scenario, fleet, bound.spec, catalog, beside_others=True) for bound, _ in groups]
    return [
        _with_its_memory(bound, tuple(names), pool, len(groups))
        for bound, (_, names) in zip(several, groups, strict=True)
    ]


def _of_services(pool: Pool, names: tuple[str, ...]) -> Pool:
    return pool.model_copy(update={"service": None, "services": names})


def _with_its_memory(bound: BoundPool, names: tuple[str, ...], pool: Pool, models: int) -> BoundPool:
    """*bound* with the services *names*, and the share of the memory that its engine has beside the other *models*."""
    batching, sharing = bound.batching, pool.sharing
    whole = getattr(batching, "gpu_memory_utilization", None)
    given = {} if sharing is None or isinstance(sharing, Swapped) else sharing.gpu_memory_utilization
    share = sum(given.get(name, 0.0) for name in names)
    if not share and whole is not None:
        share = whole - _asleep(bound, models - 1) if isinstance(sharing, Swapped) else whole / models
    filled: dict[str, float | bool] = {"gpu_memory_utilization": share} if share else {}
    for name in AHEAD:
        if getattr(batching, name, None) and getattr(pool.batching, name, None) is None:
            filled[name] = False
    return replace(bound, spec=_of_services(pool, names), batching=batching.model_copy(update=filled))


def _asleep(bound: BoundPool, models: int) -> float:
    """Share of the memory that *models* asleep keep: their CUDA contexts."""
    if bound.gpu is None or bound.engine.memory is None:
        return 0.0
    return models * bound.engine.memory.context_bytes.value / bound.gpu.memory_bytes.value


def why_no_sleep(bound: BoundPool, fits: list[MemoryFit | None]) -> str:
    """Why the host cannot keep the weights of all models; empty if it can, or where its memory is not known."""
    start, server = bound.spec.cold_start, bound.server
    keeps = isinstance(bound.spec.sharing, Swapped) and start is not None and start.sleep_level == 1
    if not keeps or server is None or server.host_memory_bytes is None:
        return ""
    needed = sum(one.weights_bytes * one.gpus for one in fits if one is not None) * bound.replicas_per_host
    has = server.host_memory_bytes.value
    return (
        ""
        if needed <= has
        else f"sleeping models need {needed / GB:.0f} GB of host memory, {server.id} has {has / GB:.0f}"
    )
