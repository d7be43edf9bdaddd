"""Whether a model fits on its GPUs, and how much KV cache is left."""

from sim.memory.adapters import Lora, adapter_bytes, module_names, projections, slot_bytes
from sim.memory.advice import what_fits, which_slices
from sim.memory.drafts import DraftMemory
from sim.memory.fit import MemoryFit, fit
from sim.memory.groups import KvLayout
from sim.memory.host import host_weights
from sim.memory.parallel import check_parallel
from sim.memory.shard import Layout, stage_layers, stage_weight_bytes
from sim.memory.states import StateCache
from sim.memory.tiers import KvTier

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
