"""Parallel sizes and batches that do not divide, each with what would."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sim.scenario.job.bind import gpus_of
from sim.scenario.job.parallel import ParallelSpec, divisors
from sim.scenario.job.schema import JobPool, TrainingJob
from sim.scenario.reading.errors import Complaint, Place
from sim.training.network import Network

MOST_NAMED = 8
"""Sizes that a message offers."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """How a job is to be spread over a pool."""

    job: TrainingJob
    at: Place
    """Of the job."""
    pool: JobPool
    wanted: ParallelSpec
    place: Place
    """Of the pool."""

    def size(self, key: str) -> int:
        return getattr(self.wanted, key) or 1

    def wrong(self, key: str, text: str) -> Complaint:
        """*text* about a key of `parallel`, where it is written."""
        holder = self.place if getattr(self.pool.parallel, key) is not None else self.at
        return Complaint((*holder, "parallel", key), text)


def size_complaints(job: TrainingJob, at: Place, pool: JobPool, network: Network, place: Place) -> Iterator[Complaint]:
    """Of *job*, which stands *at* a place, on the *pool* at *place*; batches are looked at once all ranks are known."""
    asked = _Asked(job, at, pool, pool.parallel.over(job.parallel), place)
    split = list(_of_network(asked, network))
    yield from split
    counted = [] if split and not network.is_transformer else list(_of_gpus(asked, network))
    yield from counted
    if not split and not counted:
        yield from _of_batches(asked)


def _of_network(asked: _Asked, network: Network) -> Iterator[Complaint]:
    """Heads and layers that ranks share."""
    if not network.is_transformer:
        for key in ("tp", "pp", "cp", "ep"):
            if asked.size(key) > 1:
                text = f"{network.id} runs whole on every GPU: leave it out, dp alone shares the work"
                yield asked.wrong(key, text)
        return
    tp, pp, chunks = (asked.size(key) for key in ("tp", "pp", "virtual_stages"))
    if network.heads % tp:
        text = f"{tp} does not divide the {network.heads} heads of {network.id}: {fitting(network.heads)}"
        yield asked.wrong("tp", text)
    if chunks > 1 and pp == 1:
        yield asked.wrong("virtual_stages", "needs pipeline stages: pp above 1")
    elif network.layers % (pp * chunks):
        what = f"pp {pp} x virtual_stages {chunks} do" if chunks > 1 else f"{pp} does"
        text = f"{what} not divide the {network.layers} layers of {network.id}: {fitting(network.layers)}"
        yield asked.wrong("pp", text)


def _of_gpus(asked: _Asked, network: Network) -> Iterator[Complaint]:
    """Ranks that are not as many as the GPUs; experts that do not spread."""
    wanted, ranks = asked.wanted, asked.size("tp") * asked.size("pp") * asked.size("cp")
    gpus = gpus_of(wanted, asked.pool)
    if gpus % ranks or (wanted.dp is not None and gpus != ranks * wanted.dp):
        needed = ranks * (wanted.dp or 1)
        named = [key for key in ("dp", "tp", "pp", "cp") if getattr(wanted, key)]
        shape = " x ".join(f"{key} {getattr(wanted, key)}" for key in named)
        multiple = "" if wanted.dp else " or a multiple"
        counted = f"{gpus} GPU{'s are' if gpus > 1 else ' is'} not {shape} = {needed}{multiple}"
        fits = needed if wanted.dp else max(1, gpus // ranks) * ranks
        yield Complaint((*asked.place, "gpus"), f"{counted}: gpus: {fits}")
        return
    experts, share = asked.size("ep"), asked.size("tp") * gpus // ranks
    if experts > 1 and not network.routed_copies:
        yield asked.wrong("ep", f"{network.id} has no experts to spread: leave it out")
    elif share % experts:
        text = f"{experts} does not divide the {share} ranks of data and tensor parallelism: {fitting(share)}"
        yield asked.wrong("ep", text)


def _of_batches(asked: _Asked) -> Iterator[Complaint]:
    """A global batch that the ranks cannot share, a micro-batch that does not divide a rank's samples."""
    ranks = asked.size("tp") * asked.size("pp") * asked.size("cp")
    batch, micro = asked.job.global_batch, asked.wanted.micro_batch
    dp = gpus_of(asked.wanted, asked.pool) // ranks
    if batch % dp:
        near = sorted({max(1, batch // dp) * dp, (batch // dp + 1) * dp})
        text = f"{batch} samples do not divide by the {dp} data-parallel ranks of {asked.pool.gpu}: "
        yield Complaint((*asked.at, "global_batch"), text + " or ".join(map(str, near)))
    elif micro is not None and batch // dp % micro:
        mine = batch // dp
        text = f"{micro} does not divide the {mine} samples of a data-parallel rank: {fitting(mine)}"
        yield asked.wrong("micro_batch", text)


def fitting(whole: int) -> str:
    """Divisors of *whole*, some in the middle left out where there are many.

    >>> fitting(12)
    '1, 2, 3, 4, 6 or 12 do'
    """
    found: Sequence[int] = divisors(whole)
    if len(found) == 1:
        return "only 1 does"
    if len(found) > MOST_NAMED:
        found = [*found[: MOST_NAMED - 1], whole]
    return f"{', '.join(map(str, found[:-1]))} or {found[-1]} do"
