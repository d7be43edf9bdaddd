"""How an engine forms its batches. A new policy: its file here, its name in `Scheduler`, its rules in `sim/engine`."""

from typing import Annotated, Any, get_args

from pydantic import BeforeValidator, Field

from sim.batching.limits import QueueLimits
from sim.batching.policies import Dynamic, EngineOptions, OfEngine, PrefillFirst, Reserve, Slots, Static, Vllm
from sim.batching.registered import RegisteredBatching
from sim.registry import Registry

Scheduler = Vllm | PrefillFirst | Reserve | Slots | Static | Dynamic
"""What a pool runs on."""
POLICIES: dict[str, type[Scheduler]] = {
    get_args(spec.model_fields["policy"].annotation)[0]: spec for spec in get_args(Scheduler)
}


def _named(value: Any) -> Any:
    """Limits without a policy steer the engine's own."""
    return {"policy": "engine", **value} if isinstance(value, dict) else value


BuiltinBatching = Vllm | PrefillFirst | Reserve | Slots | Static | Dynamic | OfEngine
Batching = Annotated[
    BuiltinBatching,
    Field(discriminator="policy"),
    Registry("batching", RegisteredBatching, BuiltinBatching),
    BeforeValidator(_named),
]
"""What a scenario may say."""


def scheduler(given: Scheduler | OfEngine, policy: str) -> Scheduler:
    """*given*, or where it leaves the policy to the engine, the engine's *policy* with the limits that it knows."""
    if not isinstance(given, OfEngine):
        return given
    spec = POLICIES[policy]
    known = {key: getattr(given, key) for key in given.model_fields_set & spec.model_fields.keys()}
    return spec(**known | {"policy": policy})


def foreign(given: Scheduler | OfEngine, policy: str) -> list[str]:
    """Keys of *given* that the engine's *policy* does not know; none where it names its own."""
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
