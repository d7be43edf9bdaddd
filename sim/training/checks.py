"""Validation of training jobs against the fleets that should run them.

Every contradiction is reported as a `ValidationIssue` at its place in the scenario, with values that would fit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sim.catalogue.catalog import Catalog
from sim.catalogue.gpu import Gpu
from sim.message import Message
from sim.training.bind import JobHardware, default_precision, gpus_of, job_figures
from sim.training.figures import NotTrainable, network_named
from sim.training.network import ForwardCost
from sim.training.schema import JobPool, JobScenario, ParallelSpec, TrainingJob, TrainingSetup, divisors
from sim.validation import Place, ValidationIssue, did_you_mean

MOST_NAMED = 8
"""Largest number of fitting sizes that a message offers."""


@dataclass(frozen=True, slots=True)
class _RequestedLayout:
    """Requested parallelism of a job on a pool, with the places of both in the scenario."""

    job: TrainingJob
    at: Place
    """Place of the job."""
    pool: JobPool
    wanted: ParallelSpec
    place: Place
    """Place of the pool."""

    def size(self, key: str) -> int:
        return getattr(self.wanted, key) or 1

    def issue(self, key: str, text: str) -> ValidationIssue:
        """Return the issue *text* at *key* of `parallel`, in the section that sets it."""
        holder = self.place if getattr(self.pool.parallel, key) is not None else self.at
        return ValidationIssue((*holder, "parallel", key), text)


def size_issues(
    job: TrainingJob, at: Place, pool: JobPool, network: ForwardCost, place: Place
) -> Iterator[ValidationIssue]:
    """Check that ranks, GPUs and batches of *job* divide evenly on *pool*.

    *at* and *place* are the places of the job and the pool. Batches are checked only if all ranks are consistent.
    """
    layout = _RequestedLayout(job, at, pool, pool.parallel.over(job.parallel), place)
    split = list(_network_issues(layout, network))
    yield from split
    counted = [] if split and not network.is_transformer else list(_gpu_issues(layout, network))
    yield from counted
    if not split and not counted:
        yield from _batch_issues(layout)


def _network_issues(layout: _RequestedLayout, network: ForwardCost) -> Iterator[ValidationIssue]:
    """Check that tensor ranks divide the heads and pipeline stages the layers of *network*."""
    if not network.is_transformer:
        for key in ("tp", "pp", "cp", "ep"):
            if layout.size(key) > 1:
                text = Message("{id} runs whole on every GPU: remove it; only dp divides the work", network.id)
                yield layout.issue(key, text)
        return
    tp, pp, chunks = (layout.size(key) for key in ("tp", "pp", "virtual_stages"))
    if network.heads % tp:
        text = Message(
            "{tp} does not divide the {heads} heads of {id}: {fitting}",
            tp,
            network.heads,
            network.id,
            fitting(network.heads),
        )
        yield layout.issue("tp", text)
    if chunks > 1 and pp == 1:
        yield layout.issue("virtual_stages", "needs pipeline stages: pp above 1")
    elif network.layers % (pp * chunks):
        what = Message("pp {pp} x virtual_stages {chunks} does", pp, chunks) if chunks > 1 else f"{pp} does"
        text = Message(
            "{what} not divide the {layers} layers of {id}: {fitting}",
            what,
            network.layers,
            network.id,
            fitting(network.layers),
        )
        yield layout.issue("pp", text)


def _gpu_issues(layout: _RequestedLayout, network: ForwardCost) -> Iterator[ValidationIssue]:
    """Check that the ranks add up to the pool's GPUs and that experts spread evenly over them."""
    wanted, ranks = layout.wanted, layout.size("tp") * layout.size("pp") * layout.size("cp")
    gpus = gpus_of(wanted, layout.pool)
    if gpus % ranks or (wanted.dp is not None and gpus != ranks * wanted.dp):
        needed = ranks * (wanted.dp or 1)
        named = [key for key in ("dp", "tp", "pp", "cp") if getattr(wanted, key)]
        shape = " x ".join(f"{key} {getattr(wanted, key)}" for key in named)
        multiple = "" if wanted.dp else " or a multiple"
        counted = Message(
            "{gpus} GPU{are} not {shape} = {needed}{multiple}",
            gpus,
            "s are" if gpus > 1 else " is",
            shape,
            needed,
            multiple,
        )
        fits = needed if wanted.dp else max(1, gpus // ranks) * ranks
        yield ValidationIssue((*layout.place, "gpus"), counted + f": gpus: {fits}")
        return
    experts, share = layout.size("ep"), layout.size("tp") * gpus // ranks
    if experts > 1 and not network.routed_copies:
        yield layout.issue("ep", Message("{id} has no experts to spread: leave it out", network.id))
    elif share % experts:
        text = Message(
            "{experts} does not divide the {share} ranks of data and tensor parallelism: {fitting}",
            experts,
            share,
            fitting(share),
        )
        yield layout.issue("ep", text)


def _batch_issues(layout: _RequestedLayout) -> Iterator[ValidationIssue]:
    """Check that the data-parallel ranks divide the global batch, and micro-batches the samples of a rank."""
    ranks = layout.size("tp") * layout.size("pp") * layout.size("cp")
    batch, micro = layout.job.global_batch, layout.wanted.micro_batch
    dp = gpus_of(layout.wanted, layout.pool) // ranks
    if batch % dp:
        near = sorted({max(1, batch // dp) * dp, (batch // dp + 1) * dp})
        text = Message(
            "{batch} samples do not divide by the {dp} data-parallel ranks of {gpu}: ", batch, dp, layout.pool.gpu
        )
        yield ValidationIssue((*layout.at, "global_batch"), text + " or ".join(map(str, near)))
    elif micro is not None and batch // dp % micro:
        mine = batch // dp
        text = Message(
            "{micro} does not divide the {mine} samples of a data-parallel rank: {fitting}", micro, mine, fitting(mine)
        )
        yield layout.issue("micro_batch", text)


def fitting(whole: int) -> str:
    """Return the divisors of *whole* as text, shortened in the middle if there are many.

    >>> fitting(12)
    '1, 2, 3, 4, 6 or 12 do'
    """
    found: Sequence[int] = divisors(whole)
    if len(found) == 1:
        return "only 1 does"
    if len(found) > MOST_NAMED:
        found = [*found[: MOST_NAMED - 1], whole]
    return f"{', '.join(map(str, found[:-1]))} or {found[-1]} do"


RATES = {"fp8": "fp8_flops", "nvfp4": "fp4_flops", "tf32": "tf32_flops", "fp32": "fp32_flops"}
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "nvfp4")


def job_issues(scenario: JobScenario, catalog: Catalog) -> Iterator[ValidationIssue]:
    """Report contradictions in a scenario whose ids are known."""
    yield from training_issues(scenario.job, ("job",), catalog)
    for i, fleet in enumerate(scenario.fleets):
        place: Place = ("fleets", i, "pools", 0)
        yield from hardware_issues(fleet.pools[0], place, catalog)
        yield from placement_issues(scenario.job, ("job",), fleet.pools[0], place, catalog)


def training_issues(job: TrainingJob, at: Place, catalog: Catalog) -> Iterator[ValidationIssue]:
    """Report contradictions within *job*, which is at the place *at*, on any hardware."""
    data = job_figures(catalog).data
    try:
        network = network_named(job.model, catalog, data)
    except NotTrainable as error:
        yield ValidationIssue((*at, "model"), str(error))
        return
    yield from _amount_issues(job, at, network)
    yield from _framework_issues(job, at, catalog)
    if job.failures is not None and job.failures.gpu is None and job.failures.node is None:
        yield ValidationIssue((*at, "failures"), "states no component: gpu: {mtbf_h: ...} or node: {mtbf_h: ...}")
    if job.checkpoint is not None and job.checkpoint.save_s is None and job.checkpoint.bytes_per_s is None:
        text = "needs bytes_per_s (rate at which all ranks together write) or save_s (time of a save)"
        yield ValidationIssue((*at, "checkpoint"), text)


def _amount_issues(job: TrainingJob, at: Place, network: ForwardCost) -> Iterator[ValidationIssue]:
    """Check the amount of training data and the keys that only transformers have."""
    if (job.tokens is None) == (job.samples is None):
        text = "needs tokens or samples" + ("" if job.tokens is None else ", not both")
        yield ValidationIssue(at, text)
    if network.is_transformer and not network.image_tokens and job.sequence is None:
        yield ValidationIssue((*at, "sequence"), Message("is missing: tokens of a sample of {id}", network.id))
    absent = ("tokens",) if network.image_tokens else () if network.is_transformer else ("sequence", "tokens", "lora")
    for key in absent:
        if getattr(job, key) is not None:
            fits = "give samples" if key == "tokens" else "remove it"
            yield ValidationIssue((*at, key), Message("{model} has no {key}: {advice}", network.id, key, fits))


def _framework_issues(setup: TrainingSetup, at: Place, catalog: Catalog) -> Iterator[ValidationIssue]:
    known = job_figures(catalog).data.stacks
    if setup.framework is not None and setup.framework not in known:
        text = Message(
            "unknown framework {framework!r}{hint}", setup.framework, did_you_mean(setup.framework, known, listed=20)
        )
        yield ValidationIssue((*at, "framework"), text)


def hardware_issues(pool: JobPool, place: Place, catalog: Catalog) -> Iterator[ValidationIssue]:
    """Report contradictions within *pool*, which is at *place*, for any job."""
    hardware = JobHardware.of(pool, catalog)
    server = hardware.server
    if server is not None and server.gpu is not None and server.gpu != hardware.gpu.id:
        yield ValidationIssue(
            (*place, "server"),
            Message("{server} is built for {gpu}, not for {other}", server.id, server.gpu, hardware.gpu.id),
        )
    if pool.power is not None and pool.power.cap_w is not None:
        yield ValidationIssue((*place, "power", "cap_w"), "the effect of a power cap on training is not known")
    yield from _framework_issues(pool, place, catalog)


def placement_issues(
    job: TrainingJob, at: Place, pool: JobPool, place: Place, catalog: Catalog
) -> Iterator[ValidationIssue]:
    """Report contradictions between *job* and *pool*: precision, sizes, missing network between servers."""
    try:
        network = network_named(job.model, catalog, job_figures(catalog).data)
    except NotTrainable:
        return  # `training_issues` reports it
    hardware, wanted = JobHardware.of(pool, catalog), pool.parallel.over(job.parallel)
    precision = pool.precision or job.precision or default_precision(hardware.gpu)
    if precision not in (supported := precisions(hardware.gpu)):
        holder = place if pool.precision is not None else at
        yield ValidationIssue((*holder, "precision"), f"{hardware.gpu.id} has no {precision}: {', '.join(supported)}")
    sizes = list(size_issues(job, at, pool, network, place))
    yield from sizes
    if not sizes and gpus_of(wanted, pool) > hardware.gpus_per_node and pool.network is None:
        text = Message(
            "is missing: {gpus_of} GPUs fill more than one server of {gpus_per_node}: "
            "{{link: infiniband-ndr, adapters: 8}}",
            gpus_of(wanted, pool),
            hardware.gpus_per_node,
        )
        yield ValidationIssue((*place, "network"), text)


def precisions(gpu: Gpu) -> list[str]:
    """Return the precisions in which *gpu* can multiply matrices."""
    return [
        one
        for one in PRECISIONS
        if (one not in RATES or getattr(gpu, RATES[one]) is not None)
        and (one != "bf16" or default_precision(gpu) == "bf16")
    ]
