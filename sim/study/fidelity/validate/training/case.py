"""A row of a training table as a job: what it says, and the usual where it says nothing."""

import re
from dataclasses import dataclass

from sim.benchdata.training import TrainingRow
from sim.catalogue.catalog import Catalog
from sim.study.fidelity.validate.training.names import (
    gpu_of,
    link_of,
    method_of,
    network_of,
    node_bytes_per_s,
    precision_of,
)
from sim.training.figures import Stack, TrainingData
from sim.training.job import Job, Method, Parallel, Recompute
from sim.training.memory import EIGHT_BIT, EIGHT_BIT_BYTES
from sim.training.network import Network
from sim.training.steptime import LORA_SHARE

USUAL_NODE = 8
COUNT = r"0*([1-9][0-9]{0,8})\b"
BATCH_PER_RANK = re.compile(rf"batch per DP {COUNT}")
"""A whole batch at once, which only recomputation makes possible."""
NVL72_GPUS = 72
LARGEST_SHARE = 0.6
"""Of the memory that weights, gradients and states may take where a layout is not known."""
BYTES_PER_PARAM, STATE_SHARE = 18.0, 12.0
SEQUENCE = 2048
PCIE4_HOST_BYTES_PER_S = 20e9
"""Optimizer states on their way to host memory, both ways at once."""


@dataclass(frozen=True, slots=True)
class TrainingCase:
    """A row and the job that repeats it."""

    row: TrainingRow
    job: Job
    stack: str
    step_is_micro_batch: bool
    """No global batch is known: `step_s` is one micro-batch's."""


def case_of(row: TrainingRow, catalog: Catalog, data: TrainingData) -> TrainingCase:
    """The job of *row*. Raises NotCovered."""
    gpu = gpu_of(row.text("gpu"), catalog)
    network = network_of(row, catalog, data)
    stack = data.stack(row.text("source_key"), network.is_transformer and network.causal)
    facts = data.stacks[stack]
    precision = precision_of(row, gpu, network, data, stack)
    method, note = method_of(row), row.text("note")
    link = link_of(row, gpu, catalog)
    gpus = row.count("n_gpus") or 1
    host = row.count("gpus_per_node") or USUAL_NODE
    per_node = min(gpus, host)
    if link.id == "nvlink5-nvl72":
        host = row.count("gpus_per_node") or USUAL_NODE
    per_node = min(gpus, NVL72_GPUS)
    sequence = (row.count("seq_len") or facts.sequence or SEQUENCE) if network.is_transformer else 1
    global_batch = row.count("global_batch")
    if network.id.startswith("transformer-xl"):
        sequence = row.count("seq_len") or (192 if "base" in network.id else 384)
    small = facts.eight_bit_weights and precision in EIGHT_BIT
    held = _held_bytes(network, method, small)
    parallel = _parallel(row, network, gpus, per_node, gpu.memory_bytes.value, global_batch, method, facts, held)
    micro, count = _batches(row, network, parallel, global_batch, sequence)
    offloaded = "offload-opt" in note or "offload-master" in note
    job = Job(
        gpu=gpu,
        link=link,
        network=network,
        parallel=parallel,
        micro_batch=micro,
        micro_batches=count,
        sequence=sequence,
        precision=precision,
        method=method,
        recompute=_recompute(row, facts.recompute, network),
        gpus_per_node=per_node,
        node_bytes_per_s=node_bytes_per_s(row.text("interconnect_inter"), gpu, host) * max(1.0, per_node / host),
        host_bytes_per_s=PCIE4_HOST_BYTES_PER_S if offloaded else 0.0,
        fill=facts.fill.get(network.id, 1.0),
    )
    return TrainingCase(row, job, stack, global_batch is None)


def _recompute(row: TrainingRow, usual: Recompute, network: Network) -> Recompute:
    said = row.text("recompute").lower()
    if BATCH_PER_RANK.search(row.text("note")):
        return "full"
    if not said:
        return usual if network.is_transformer else "none"
    return "full" if said in ("full", "yes") else "selective" if said == "selective" else "none"


def _parallel(
    row: TrainingRow,
    network: Network,
    gpus: int,
    per_node: int,
    memory_bytes: float,
    global_batch: int | None,
    method: Method,
    facts: Stack,
    held: float,
) -> Parallel:
    """*held*: bytes of weights, gradients and states on one copy of the model."""
    tp, pp, dp = row.count("tp"), row.count("pp"), row.count("dp")
    note = row.text("note")
    zero = int(found[0]) if (found := re.search(r"[0-3]", row.text("zero"))) else None
    chunks, experts = re.search(rf"\bVP {COUNT}", note), re.search(rf"\bEP {COUNT}", note)
    context = int(found[1]) if (found := re.search(rf"\bCP {COUNT}", note)) else 1
    guessed = tp is None and pp is None and dp is None and facts.model_parallel
    if guessed:
        tp, pp = _usual_split(network, gpus, per_node, memory_bytes, method, held)
    if not network.hidden:  # nothing to exchange: the network cannot be split
        tp = pp = 1
    tp, pp = min(tp or 1, gpus), min(pp or 1, gpus)
    ranks = max(1, gpus // (tp * pp))
    if dp is None:
        dp = max(1, ranks // context)
        if global_batch is not None and network.is_transformer and dp > global_batch:
            dp, context = global_batch, max(1, ranks // global_batch)
    else:
        dp = min(dp, ranks)  # a table may count context-parallel ranks, or name another number of GPUs
        context = context if tp * pp * dp * context <= gpus else 1
    if zero is None:
        fits = held <= LARGEST_SHARE * memory_bytes * tp * pp
        zero = 1 if tp * pp > 1 else 2 if "DeepSpeed" in note and fits else 0 if fits else 3
    expert = min(tp * dp, int(experts[1]) if experts else USUAL_NODE) if network.expert_params else 1
    virtual = 1 if pp == 1 else int(chunks[1]) if chunks else _usual_chunks(network.layers, pp) if guessed else 1
    return Parallel(tp, pp, dp, context, expert, virtual, zero, facts.sequence_parallel)


def _usual_chunks(layers: int, pipeline: int) -> int:
    """Chunks per stage where nobody says how a model is split: of two layers each, as published layouts have them."""
    return max(1, layers // pipeline // 2)


def _held_bytes(network: Network, method: Method, eight_bit_weights: bool) -> float:
    """Weights, gradients and optimizer states; frozen weights may be held at 8 bits."""
    if method == "full":
        return network.params * BYTES_PER_PARAM
    frozen = 0.6 if method == "qlora" else EIGHT_BIT_BYTES if eight_bit_weights else 2.0
    return network.params * (frozen + LORA_SHARE * BYTES_PER_PARAM)


def _usual_split(
    network: Network, gpus: int, per_node: int, memory_bytes: float, method: Method, held: float
) -> tuple[int, int]:
    """(tensor, pipeline) ranks that hold the model, its states sharded over the rest: tensor first, within a node."""
    sharded = network.params * STATE_SHARE if method == "full" else 0.0
    for pipeline in (1, 2, 4, 8, 16, 32):
        for tensor in (1, 2, 4, 8):
            if tensor * pipeline > gpus or tensor > per_node or (pipeline > 1 and tensor < min(4, per_node)):
                continue
            rest = gpus // (tensor * pipeline)
            if (held - sharded + sharded / rest) / (tensor * pipeline) <= LARGEST_SHARE * memory_bytes:
                return tensor, pipeline
    return min(8, per_node), max(1, min(16, gpus // min(8, per_node)))


def _batches(
    row: TrainingRow, network: Network, parallel: Parallel, global_batch: int | None, sequence: int
) -> tuple[int, int]:
    """(samples of a micro-batch, micro-batches of a step)."""
    micro = row.count("micro_batch")
    whole = BATCH_PER_RANK.search(row.text("note"))
    if whole and parallel.pipeline == 1:
        return int(whole[1]), 1
    if global_batch is None:
        said = re.search(rf"(?:GA|accumulate) {COUNT}", row.text("note"))
        return micro or _usual_micro(sequence), int(said[1]) if said else (
            8 * parallel.pipeline if parallel.pipeline > 1 else 1
        )
    mine = max(1, round(global_batch / parallel.data))
    if micro is None:
        large = network.params > 1e9
        micro = min(mine, 1 if parallel.pipeline > 1 else _usual_micro(sequence)) if large else mine
    return micro, max(1, round(mine / micro))


def _usual_micro(sequence: int) -> int:
    """Samples of a micro-batch of some 8,192 tokens."""
    return max(1, 8192 // max(1, sequence))
