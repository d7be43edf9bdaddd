"""Exchanges between ranks: within a layer, between stages, and of gradients and weights.

An all-reduce moves 2(n-1)/n of its bytes over the bus, a reduce-scatter or an all-gather half of that. Data-parallel
ranks on several nodes exchange over both the link and the network; the slower one decides, since the rings are
pipelined.
"""

from math import ceil

from sim.steptime.links.collective import AllReduce, Send, ring_traffic
from sim.training.job import Job
from sim.training.rates import Rates

ACTIVATION_BYTES = 2
REDUCES_PER_PASS = 2
"""All-reduces that tensor parallelism needs per layer and pass: after attention and after the feed-forward block."""


def tensor_exchange_s(job: Job, rates: Rates, passes: float) -> float:
    """All-reduces of one stage in one micro-batch [s]; *passes* over the layers, the backward pass counted once."""
    ranks = job.parallel.tensor
    if ranks == 1:
        return 0.0
    message = job.units * job.network.hidden * ACTIVATION_BYTES
    layers = job.network.layers / job.parallel.pipeline
    inside = min(ranks, job.gpus_per_node)
    seconds = AllReduce.over(job.link, inside, rates.link_time_factor).time_s(message)
    if ranks > inside:
        nodes = ranks / inside
        seconds += ring_traffic(ceil(nodes)) * message / (job.node_bytes_per_s * rates.network_efficiency)
    return layers * REDUCES_PER_PASS * passes * seconds


def stage_exchange_s(job: Job, rates: Rates) -> float:
    """Activations to the next stage and gradients back, per micro-batch [s]."""
    parallel = job.parallel
    if parallel.pipeline == 1:
        return 0.0
    message = job.units * job.network.hidden * ACTIVATION_BYTES / parallel.tensor
    if job.nodes == 1:
        one_way = Send.over(job.link).time_s(message) * rates.link_time_factor
    else:
        one_way = message * job.gpus_per_node / (job.node_bytes_per_s * rates.network_efficiency)
    return 2 * parallel.virtual_stages * one_way


def expert_exchange_s(job: Job, rates: Rates) -> float:
    """Tokens to their experts and back, forward and backward, one micro-batch of one stage [s].

    Within a node the link carries all copies; beyond it a token crosses the network once for each node that it is
    needed on.
    """
    ranks, network = job.parallel.expert, job.network
    if ranks == 1 or not network.routed_copies:
        return 0.0
    sent = job.units / job.parallel.tensor * network.routed_width * ACTIVATION_BYTES / job.parallel.pipeline
    exchanges = 2 * 2
    inside = sent * exchanges * (1 - 1 / ranks) * rates.link_time_factor / Send.over(job.link).bytes_per_s
    nodes = ceil(ranks / job.gpus_per_node)
    if nodes == 1:
        return inside
    copies = min(network.routed_copies, nodes) / network.routed_copies * (1 - 1 / nodes)
    per_gpu = job.node_bytes_per_s / job.gpus_per_node * rates.network_efficiency
    return max(inside, sent * exchanges * copies / per_gpu)


def reduce_s(job: Job, rates: Rates, gpu_bytes: float) -> float:
    """One all-reduce of *gpu_bytes* per rank between the data-parallel ranks [s]."""
    parallel = job.parallel
    ranks = parallel.data * parallel.context
    if ranks == 1:
        return 0.0
    model_ranks = parallel.tensor * parallel.pipeline
    inside = max(1, min(ranks, job.gpus_per_node // min(model_ranks, job.gpus_per_node)))
    seconds = 0.0
    if inside > 1:
        seconds = AllReduce.over(job.link, inside, rates.link_time_factor).time_s(gpu_bytes)
    if ranks > inside:
        groups = job.gpus_per_node / inside
        network = ring_traffic(ceil(ranks / inside)) * gpu_bytes * groups
        seconds = max(seconds, network / (job.node_bytes_per_s * rates.network_efficiency))
    return seconds
