"""The memory of one GPU of one pipeline stage, split as the engine splits it; `fit.py` has the formulas."""

from dataclasses import dataclass

from sim.catalogue.entries.engine import EngineMemory
from sim.catalogue.entries.gpu import Gpu
from sim.catalogue.entries.model import Model, matrices
from sim.catalogue.entries.offload import HostWeights
from sim.catalogue.entries.quantization import Quantization, padded
from sim.memory.host import host_weight_bytes
from sim.memory.shard import Layout, stage_layers, stage_weight_bytes


@dataclass(frozen=True, slots=True)
class Stage:
    """One GPU of one pipeline stage."""

    layers: int
    usable_bytes: float
    weights_bytes: float
    activations_bytes: float
    library_bytes: float
    graphs_bytes: float
    comms_bytes: float
    kv_bytes: float

    @classmethod
    def of(
        cls,
        gpu: Gpu,
        model: Model,
        quantization: Quantization,
        need: EngineMemory,
        layout: Layout,
        stage: int,
        share: float,
        seats: int,
        tokens: int,
        host: HostWeights,
        further_weights_bytes: float,
        near_layer_bytes: float,
    ) -> "Stage":
        """The GPU of *stage* with the layers of a stage of *layout*, *seats* sequences and *tokens* a step, where the
        engine may use *share*; *near_layer_bytes* are those of a layer's tokens that are kept beside its cache.
        """
        stored = padded(quantization, model)
        shapes = matrices(stored)
        first, last = stage_layers(model.layers, layout.pipeline_parallel_size)[stage]
        weights = further_weights_bytes + stage_weight_bytes(stored, quantization, shapes, layout, stage)
        if host != HostWeights():
            weights -= host_weight_bytes(host, stored, quantization, layout)
        activations = _activation_bytes(stored, need, layout, seats, tokens, last == model.layers)
        activations += near_layer_bytes * (last - first)
        graphs = need.graph_bytes_per_layer.value * (last - first)
        buffers = need.comms_bytes_pcie if gpu.pcie_card else need.comms_bytes
        comms = buffers.value if layout.joined > 1 else 0.0
        library = need.library_bytes.value
        device = gpu.memory_bytes.value - need.driver_reserved_bytes.value
        if gpu.usable_memory_fraction is not None:
            device *= gpu.usable_memory_fraction.value
        working = activations + library + comms + (graphs if need.graphs_in_share else 0.0)
        room = device - need.context_bytes.value
        if need.share == "everything":
            usable = min(share * device, room)
            kv = usable - weights - working
        elif need.share == "weights_and_kv":
            # SGLang takes its share of what is free once the ranks have met, before it loads the weights
            usable = min(share * (room - comms), room - working)
            kv = usable - weights
        else:
            usable = room
            kv = share * (room - weights - working) if room > weights + working else room - weights - working
        return cls(last - first, usable, weights, activations, library, graphs, comms, kv)


def _activation_bytes(
    model: Model, need: EngineMemory, layout: Layout, seats: int, tokens: int, samples: bool
) -> float:
    tp = layout.tensor_parallel_size
    gates = 2 if model.gated_mlp else 1
    forward = tokens * (gates + 1) * model.intermediate / tp
    if model.moe is not None:
        inner = model.moe.moe_intermediate / (1 if layout.enable_expert_parallel else tp)
        at_once = tokens if need.expert_chunk_tokens is None else min(tokens, need.expert_chunk_tokens.value)
        forward = max(forward, at_once * model.moe.experts_per_token * (max(gates * inner, model.hidden) + inner))
    peak = 2.0 * (tokens * need.forward_hidden_rows.value * model.hidden + forward)
    if not samples:
        return peak
    sampling = need.sampling_bytes_per_logit.value * seats * model.vocab
    return max(peak, sampling + 2.0 * tokens * need.sampling_hidden_rows.value * model.hidden)
