"""The options of every engine, for pools that leave the policy to theirs."""

from typing import Literal

from sim.batching.limits import VllmLimits
from sim.batching.prefill_first import PrefillFirstLimits
from sim.batching.reserve import ReserveLimits
from sim.batching.slots import SlotLimits


class OfEngine(VllmLimits, PrefillFirstLimits, ReserveLimits, SlotLimits):
    """The engine's own policy, with its own defaults for what is left out: what a pool without a policy gets. An option
    that the engine does not know is refused once the engine is known.
    """

    policy: Literal["engine"] = "engine"
