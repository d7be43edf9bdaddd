"""Whether a model fits on its GPUs, and how much KV cache is left."""

from sim.memory.advice import what_fits, which_slices
from sim.memory.fit import DraftMemory, MemoryFit, fit
from sim.memory.kv_cache import KvLayout, StateCache
from sim.memory.lora import Lora, adapter_bytes, module_names, projections, slot_bytes
from sim.memory.offload import KvTier, host_weights
from sim.memory.parallelism import Layout, check_parallel, stage_layers, stage_weight_bytes

__all__ = [
    "DraftMemory",
    "KvLayout",
    "KvTier",
    "Layout",
    "Lora",
    "MemoryFit",
    "StateCache",
    "adapter_bytes",
    "check_parallel",
    "fit",
    "host_weights",
    "module_names",
    "projections",
    "slot_bytes",
    "stage_layers",
    "stage_weight_bytes",
    "what_fits",
    "which_slices",
]
