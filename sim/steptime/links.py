"""Messages between the GPUs of one replica in a step, and the share of the work of each pipeline stage.

Links connect tensor-parallel ranks, the ranks that share the experts, and pipeline stages. A stage has its share of the
model's layers, of the LM head and of the host's work.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import log2

from sim.steptime.collective import AcrossServers, AllReduce, Send
from sim.steptime.inputs import ACTIVATION_BYTES, RooflineInputs
from sim.units import BITS_PER_BYTE

NORM_BYTES = 8
"""Bytes per token of the sums of squares of queries and keys, in 32 bit."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Equal messages between the GPUs of a replica in one step; with pipeline parallelism, those of the mean stage."""

    what: str
    """Kind of message. all-reduce: partial sums; experts: tokens to the experts of other ranks and back; stage:
    activations to the next stage."""
    own: bool
    """True if the engine's own kernel runs the message, not the library (NCCL)."""
    calls: float
    message_bytes: float
    """Bytes per GPU; for experts, bytes of all GPUs that exchange, the mean of those gathered and scattered."""
    each_s: float
    over: tuple[str, ...]
    """Names of the link, and of the network if the GPUs are in several servers."""


Links = tuple[AllReduce | AcrossServers, AllReduce | AcrossServers, Send]


def links_of(inputs: RooflineInputs) -> Links:
    """Return the links of (tensor-parallel ranks, ranks that share the experts, a stage to the next stage).

    Data-parallel ranks gather their tokens before the experts and scatter the sums after them.
    """
    factor, network = inputs.coefficients.allreduce_factor(inputs.gpu, inputs.link).value, inputs.network

    def here(ranks: int) -> int:
        return ranks if network is None else min(ranks, network.gpus_per_server)

    def all_reduce(ranks: int) -> AllReduce | AcrossServers:
        own_bytes = inputs.own_all_reduce_bytes(ranks)
        inside = AllReduce.over(inputs.link, here(ranks), factor, inputs.lanes_stretch, own_bytes)
        return inside if network is None else network.all_reduce(inside, ranks)

    def exchange(ranks: int) -> AllReduce | AcrossServers:
        inside = AllReduce.exchange(inputs.link, here(ranks), factor, inputs.lanes_stretch)
        return inside if network is None else network.exchange(inside, ranks)

    gathers = inputs.expert_ranks > inputs.tensor_parallel_size
    return (
        all_reduce(inputs.tensor_parallel_size),
        (exchange if gathers else all_reduce)(inputs.expert_ranks),
        Send.over(inputs.link, inputs.lanes_stretch, inputs.boundary_s),
    )


def exchanges_of(
    inputs: RooflineInputs, links: Links, layers_share: float, tokens: int, replica_tokens: int
) -> tuple[Exchange, ...]:
    """Return the messages over *links* in a step of *tokens* new tokens, on a stage with *layers_share* of the layers.

    *replica_tokens*: see `Batch.replica_tokens`.
    """
    ranks, expert_ranks = inputs.tensor_parallel_size, inputs.expert_ranks
    messages = _messages(inputs, links, layers_share, tokens, replica_tokens)
    sums, experts, sends, norms = ((calls, message, time_s(message)) for calls, message, time_s in messages)
    own = sums[1] <= inputs.own_all_reduce_bytes(ranks)
    after = ("experts", False) if expert_ranks > ranks else ("all-reduce", own)
    return (
        Exchange("all-reduce", own, *sums, inputs.link_names(ranks)),
        Exchange(*after, *experts, inputs.link_names(expert_ranks)),
        Exchange("stage", False, *sends, inputs.link_names(inputs.stage_ranks)),
        Exchange("all-reduce", norms[1] <= inputs.own_all_reduce_bytes(ranks), *norms, inputs.link_names(ranks)),
    )


def messages_s(inputs: RooflineInputs, links: Links, layers_share: float, tokens: int, replica_tokens: int) -> float:
    """Return the time of the messages that `exchanges_of` returns for the same arguments [s]."""
    messages = _messages(inputs, links, layers_share, tokens, replica_tokens)
    return sum(calls * time_s(message) for calls, message, time_s in messages if calls)


_Messages = tuple[float, float, Callable[[float], float]]
"""(calls, bytes of each, function from bytes to the time of each [s])."""


def _messages(
    inputs: RooflineInputs, links: Links, layers_share: float, tokens: int, replica_tokens: int
) -> tuple[_Messages, _Messages, _Messages, _Messages]:
    """Return the messages (summed by tensor-parallel ranks, to the experts, to the next stage, of norms over ranks)."""
    model, ranks = inputs.model, inputs.tensor_parallel_size
    all_reduce, exchange, send = links
    message = tokens * model.hidden * ACTIVATION_BYTES
    gathered: float = replica_tokens * model.hidden * ACTIVATION_BYTES or message * (inputs.expert_ranks // ranks)
    if bits := inputs.gathered_bits:
        gathered *= (1 + bits.value / (ACTIVATION_BYTES * BITS_PER_BYTE)) / 2  # mean of what is gathered and scattered
    blocks = model.cached_layers + model.linear_attention_layers + model.feed_forward_layers - model.expert_layers
    sent = message / ranks
    return (
        (blocks * layers_share, message, all_reduce.time_s),
        (model.expert_layers * layers_share, gathered, exchange.time_s),
        (int(inputs.pipeline_parallel_size > 1), sent, partial(_send_s, inputs, send)),
        (model.qk_norm_over_heads * model.cached_layers * layers_share, tokens * NORM_BYTES, all_reduce.time_s),
    )


def _send_s(inputs: RooflineInputs, send: Send, message: float) -> float:
    """Return the time to send *message* bytes from every rank of a stage to the next stage [s].

    The slowest transfer counts: if any stage sends to another server, the network's.
    """
    if inputs.pipeline_parallel_size == 1:
        return 0.0
    if inputs.network is None or inputs.network.servers(inputs.stage_ranks) == 1:
        return send.time_s(message)
    return inputs.network.send_s(message, inputs.tensor_parallel_size)


def stage_slowdown(inputs: RooflineInputs) -> tuple[float, int]:
    """Return (factor on the time of a pipeline stage, number of stages that wait for one).

    The LM head, the sampling and the host's work lie on one stage alone, and the others wait for it. No stage waits,
    and the number is 0, with one stage, or with a single batch in flight through all stages.

    Notes
    -----
    For P stages the factor is pipeline_time_factor_per_doubling^(log2 P), or 1 with a single batch in flight.

    """
    stages = inputs.pipeline_parallel_size
    factor = 1.0 if inputs.serial_stages else inputs.coefficients.pipeline_time_factor_per_doubling.value
    return factor ** log2(stages), stages if stages > 1 and not inputs.serial_stages else 0


def other_stages_load(inputs: RooflineInputs) -> float:
    """Return the power load of waiting for the other stages, per unit of the stage's own time, where stages take turns.

    Stages take turns if only one batch is in flight; pieces of a prompt keep all stages busy.
    """
    if inputs.load is None or not inputs.serial_stages:
        return 0.0
    return (inputs.pipeline_parallel_size - 1) * inputs.load.load(0.0, 0.0, 0.0, 1.0, 1.0)
