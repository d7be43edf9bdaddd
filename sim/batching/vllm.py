"""Continuous batching as vLLM's V1 scheduler does it."""

from typing import Literal

from sim.batching.limits import VllmLimits


class Vllm(VllmLimits):
    """Who runs comes first, then prompts in chunks up to the step's budget; KV blocks are handed out on demand.

    `sim/engine/schedulers/rank.py` holds the rules that these limits steer.
    """

    policy: Literal["vllm"]
