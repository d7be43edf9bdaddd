"""How an engine forms its batches. A new policy: its file here, its name in `Batching`, its engine in `sim/engine`."""

from sim.batching.vllm import Vllm

Batching = Vllm

__all__ = ["Batching", "Vllm"]
