"""Ways in which several models share the GPUs of one replica."""

from typing import Annotated, Literal

from pydantic import Field

from sim.spec import Fraction, Positive, Spec, Tagged


class Resident(Spec):
    """All models stay in GPU memory, each with its own engine and KV cache; their steps alternate."""

    models: Literal["resident"]
    gpu_memory_utilization: dict[str, Fraction] = Field(default_factory=dict)
    """Service -> fraction of the GPU memory for its engine, weights included. Default: equal parts of the pool's
    `gpu_memory_utilization`."""


class Swapped(Spec):
    """Model swapping: one model is awake and has the GPUs' memory, while the others sleep without KV cache.

    The pool's `cold_start` sets how they sleep (`sleep_level`).
    """

    models: Literal["swapped"]
    max_awake_s: Positive = 10.0
    """Time after a model's wake-up from which on its new requests wait for its next turn, while requests for another
    model wait [s]. A model is put to sleep once it has answered the earlier requests."""


Sharing = Annotated[Resident | Swapped, Tagged("models")]
