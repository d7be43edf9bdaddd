"""Batching policies of an engine. A new policy needs a file here, a name in `Scheduler` and rules in `sim/engine`."""

from typing import Annotated, Any, get_args

from pydantic import BeforeValidator

from sim.batching.limits import QueueLimits
from sim.batching.policies import Dynamic, EngineOptions, OfEngine, PrefillFirst, Reserve, Slots, Static, Vllm
from sim.batching.registered import RegisteredBatching
from sim.registry import Registry
from sim.spec import Tagged

Scheduler = Vllm | PrefillFirst | Reserve | Slots | Static | Dynamic
"""Batching policy that a pool runs on, once the engine's default policy is resolved."""
POLICIES: dict[str, type[Scheduler]] = {
    get_args(spec.model_fields["policy"].annotation)[0]: spec for spec in get_args(Scheduler)
}


def _with_policy(value: Any) -> Any:
    """Fill in `policy: engine` where limits are given without a policy."""
    return {"policy": "engine", **value} if isinstance(value, dict) else value


BuiltinBatching = Vllm | PrefillFirst | Reserve | Slots | Static | Dynamic | OfEngine
Batching = Annotated[
    BuiltinBatching,
    Tagged("policy"),
    Registry("batching", RegisteredBatching, BuiltinBatching),
    BeforeValidator(_with_policy),
]
"""Batching policy of a scenario: built-in, left to the engine, or registered by the user."""


def scheduler(given: Scheduler | OfEngine, policy: str) -> Scheduler:
    """Return *given*, or if it leaves the policy to the engine, *policy* with the limits of *given* that it has."""
    if not isinstance(given, OfEngine):
        return given
    spec = POLICIES[policy]
    known = {key: getattr(given, key) for key in given.model_fields_set & spec.model_fields.keys()}
    return spec(**known | {"policy": policy})


def foreign(given: Scheduler | OfEngine, policy: str) -> list[str]:
    """Return the keys of *given* that the engine's *policy* lacks; empty where *given* names a policy itself."""
    if not isinstance(given, OfEngine):
        return []
    return sorted(given.model_fields_set - POLICIES[policy].model_fields.keys())


__all__ = [
    "POLICIES",
    "Batching",
    "Dynamic",
    "EngineOptions",
    "OfEngine",
    "PrefillFirst",
    "QueueLimits",
    "RegisteredBatching",
    "Reserve",
    "Scheduler",
    "Slots",
    "Static",
    "Vllm",
    "foreign",
    "scheduler",
]
