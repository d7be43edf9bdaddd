"""How several models share the GPUs of one replica."""

from typing import Annotated, Literal

from pydantic import Field

from sim.spec import Fraction, Positive, Spec


class Resident(Spec):
    """All models are in memory, each with an engine and a KV cache of its own; their steps take turns."""

    models: Literal["resident"]
    gpu_memory_utilization: dict[str, Fraction] = Field(default_factory=dict)
    """Service -> share of the GPU memory that the engine of its model takes, weights included. Left out: equal parts
    of the pool's `gpu_memory_utilization`."""


class Swapped(Spec):
    """One model is awake at a time and has the memory of the GPUs; the others sleep, as the pool's `cold_start` says
    (`sleep_level`), without KV.
    """

    models: Literal["swapped"]
    max_awake_s: Positive = 10.0
    """While requests for another model wait, requests that come later than that after a model woke up wait for its
    next turn. A model falls asleep when it has answered all the others."""


Sharing = Annotated[Resident | Swapped, Field(discriminator="models")]
