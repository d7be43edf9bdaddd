"""The links of one replica: between its tensor-parallel ranks, those that share the experts, and its stages."""

from dataclasses import dataclass

from sim.steptime.inputs import RooflineInputs
from sim.steptime.links.collective import AllReduce, Send
from sim.steptime.links.network import AcrossServers


@dataclass(frozen=True, slots=True)
class Exchange:
    """Equal messages between the GPUs of a replica in one step; with pipeline parallelism, of the mean stage."""

    what: str
    """all-reduce: of partial sums; experts: tokens to the experts of other ranks and back; stage: to the next one."""
    own: bool
    """The engine's own kernel does it, not the library (NCCL)."""
    calls: float
    message_bytes: float
    """Of each GPU; for experts, of all that exchange."""
    each_s: float
    over: tuple[str, ...]
    """Names of the link, and of the network where the GPUs stand in several servers."""


def links_of(inputs: RooflineInputs) -> tuple[AllReduce | AcrossServers, AllReduce | AcrossServers, Send]:
    """What ranks exchange: (tensor-parallel ranks; those that share the experts; one stage with the next).

    Data-parallel ranks gather their tokens before the experts and scatter the sums after.
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
