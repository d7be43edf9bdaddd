"""A cache of recurrent states beside the KV cache, as SGLang has it (`handle_max_mamba_cache`).

    memory of the states = ratio / (1 + ratio) of what the weights leave; the KV cache gets the rest
    requests at once     = places // places of a request

A place holds the states of all linear layers for one sequence. With a prefix cache a request has places for the states
that it leaves there (three), and for those that are written while the next step is formed (two more).
"""

from dataclasses import dataclass

from sim.catalogue.entries.model import Model, state_bytes
from sim.units import GB


@dataclass(frozen=True, slots=True)
class StateCache:
    """How an engine sizes it."""

    kv_ratio: float
    """Its memory over that of the KV cache."""
    per_request: int
    """Places that a running request counts for."""
    places: int | None = None
    """As the operator set them; None: as many as its memory holds."""

    def places_in(self, free_bytes: float, place_bytes: float) -> int:
        """Places of *place_bytes* where weights leave *free_bytes* of a GPU."""
        if self.places is not None:
            return self.places
        return max(0, int(self.kv_ratio / (1 + self.kv_ratio) * free_bytes // place_bytes))

    def requests(self, places: int) -> int:
        """Most requests that run at once on *places*."""
        return places // self.per_request

    def why_not(self, free_bytes: float, place_bytes: float) -> str:
        """Why no request runs where weights leave *free_bytes* of a GPU; empty if one does, or if nothing is left."""
        if self.places is not None and self.places < self.per_request:
            return f"{self.places} places for recurrent states are fewer than the {self.per_request} of a request"
        needed = (self.places or self.per_request) * place_bytes
        held = self.places_in(free_bytes, place_bytes) * place_bytes
        if free_bytes <= 0 or needed <= held < free_bytes:
            return ""
        return f"needs {needed / GB:.2f} GB for recurrent states, {free_bytes / GB:.2f} GB are left beside the weights"


def place_bytes(model: Model, tensor_parallel_size: int, layers: int) -> float:
    """States of one sequence in a stage of *layers* layers of *model*, on one of its GPUs [B]."""
    return state_bytes(model) * model.linear_attention_layers * layers / model.layers / tensor_parallel_size
