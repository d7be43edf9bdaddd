"""One of several services, as a scenario of its own that every command works on."""

from typing import Any

from sim.scenario.schema import Scenario
from sim.scenario.sweep import as_data

OWN = ("name", "workload", "slo", "priority", "weight", "rate_limit")
"""Keys of a service that are no choice of what runs; priority and weight mean nothing without the others."""


def with_one_service(scenario: Scenario) -> Scenario:
    """*scenario* with its chosen `service` alone: its workload and limits, and of every fleet its pools.

    The pools have GPUs of their own then: what slices of other services would share a card with them is not there.
    A scenario that chooses none is returned as it is, and so is one whose chosen service shares a pool: it is not the
    same without the others.
    """
    if scenario.service is None or shares_a_pool(scenario):
        return scenario
    data = as_data(scenario)
    services, name = data.pop("services"), data.pop("service")
    chosen = next(one for one in services if one["name"] == name)
    choices = {key: value for key, value in chosen.items() if key not in OWN}
    data |= {key: chosen[key] for key in ("workload", "slo") if key in chosen}
    if data.get("size"):
        data |= choices  # what it chooses from runs the same
    for fleet in data.get("fleets", ()):
        own = (pool for pool in fleet["pools"] if pool.get("service") == name)
        fleet["pools"] = [choices | {key: value for key, value in pool.items() if key != "service"} for pool in own]
        if not any(pool.get("role") == "prefill" for pool in fleet["pools"]):
            fleet.pop("kv_transfer", None)
    if data.get("sweep"):
        data["sweep"] = _sweep(data["sweep"], [f"services.{name}.", f"services.{services.index(chosen)}."])
    return Scenario.model_validate(data)


def shares_a_pool(scenario: Scenario) -> bool:
    """Whether the chosen service has a pool together with others."""
    return any(scenario.service in pool.services for fleet in scenario.fleets for pool in fleet.pools)


def _sweep(sweep: Any, prefixes: list[str]) -> Any:
    """The axes of the chosen service under the names that they have in a scenario of its own."""
    if isinstance(sweep, list | tuple):
        return [_sweep(point, prefixes) for point in sweep]
    renamed = {}
    for axis, value in sweep.items():
        for prefix in prefixes:
            axis = axis.removeprefix(prefix)
        renamed[axis] = value
    return renamed
