"""What keeps a job from being done on a fleet as it is written: one sentence each, with what would fit."""

from collections.abc import Iterator

from sim.catalogue.catalog import Catalog
from sim.catalogue.entries.gpu import Gpu
from sim.scenario.job.bind import Hardware, default_precision, gpus_of, job_figures
from sim.scenario.job.schema import JobPool, JobScenario, Setup, TrainingJob
from sim.scenario.job.sizes import size_complaints
from sim.scenario.reading.errors import Complaint, Place, did_you_mean
from sim.training.named import NotTrainable, network_named
from sim.training.network import Network

RATES = {"fp8": "fp8_flops", "nvfp4": "fp4_flops", "tf32": "tf32_flops", "fp32": "fp32_flops"}
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "nvfp4")


def job_complaints(scenario: JobScenario, catalog: Catalog) -> Iterator[Complaint]:
    """All that contradicts itself in a scenario whose ids are known."""
    yield from training_complaints(scenario.job, ("job",), catalog)
    for i, fleet in enumerate(scenario.fleets):
        place: Place = ("fleets", i, "pools", 0)
        yield from hardware_complaints(fleet.pools[0], place, catalog)
        yield from placed_complaints(scenario.job, ("job",), fleet.pools[0], place, catalog)


def training_complaints(job: TrainingJob, at: Place, catalog: Catalog) -> Iterator[Complaint]:
    """Of the *job*, which stands *at* a place, whatever it runs on."""
    data = job_figures(catalog).data
    try:
        network = network_named(job.model, catalog, data)
    except NotTrainable as error:
        yield Complaint((*at, "model"), str(error))
        return
    yield from _amount(job, at, network)
    yield from _framework(job, at, catalog)
    if job.failures is not None and job.failures.gpu is None and job.failures.node is None:
        yield Complaint((*at, "failures"), "names nothing that fails: gpu: {mtbf_h: ...} or node: {mtbf_h: ...}")
    if job.checkpoint is not None and job.checkpoint.save_s is None and job.checkpoint.bytes_per_s is None:
        text = "needs bytes_per_s (rate at which all ranks together write) or save_s (time of a save)"
        yield Complaint((*at, "checkpoint"), text)


def _amount(job: TrainingJob, at: Place, network: Network) -> Iterator[Complaint]:
    """How much there is to train on, and in which pieces."""
    if (job.tokens is None) == (job.samples is None):
        text = "needs tokens or samples" + ("" if job.tokens is None else ", not both")
        yield Complaint(at, text)
    if network.is_transformer and job.sequence is None:
        yield Complaint((*at, "sequence"), f"is missing: tokens of a sample of {network.id}")
    if not network.is_transformer:
        for key in ("sequence", "tokens", "lora"):
            if getattr(job, key) is not None:
                fits = "give samples" if key == "tokens" else "remove it"
                yield Complaint((*at, key), f"{network.id} has no {key}: {fits}")


def _framework(setup: Setup, at: Place, catalog: Catalog) -> Iterator[Complaint]:
    known = job_figures(catalog).data.stacks
    if setup.framework is not None and setup.framework not in known:
        text = f"unknown framework {setup.framework!r}{did_you_mean(setup.framework, known, listed=20)}"
        yield Complaint((*at, "framework"), text)


def hardware_complaints(pool: JobPool, place: Place, catalog: Catalog) -> Iterator[Complaint]:
    """Of a *pool* at a *place*, whatever runs on it."""
    hardware = Hardware.of(pool, catalog)
    server = hardware.server
    if server is not None and server.gpu is not None and server.gpu != hardware.gpu.id:
        yield Complaint((*place, "server"), f"{server.id} is built for {server.gpu}, not for {hardware.gpu.id}")
    if pool.power is not None and pool.power.cap_w is not None:
        yield Complaint((*place, "power", "cap_w"), "what a power cap does to training is not known")
    yield from _framework(pool, place, catalog)


def placed_complaints(
    job: TrainingJob, at: Place, pool: JobPool, place: Place, catalog: Catalog
) -> Iterator[Complaint]:
    """Of the *job* on that *pool*: precision, sizes, the network between servers."""
    try:
        network = network_named(job.model, catalog, job_figures(catalog).data)
    except NotTrainable:
        return  # training_complaints says so
    hardware, wanted = Hardware.of(pool, catalog), pool.parallel.over(job.parallel)
    precision = pool.precision or job.precision or default_precision(hardware.gpu)
    if precision not in (able := precisions(hardware.gpu)):
        holder = place if pool.precision is not None else at
        yield Complaint((*holder, "precision"), f"{hardware.gpu.id} has no {precision}: {', '.join(able)}")
    sizes = list(size_complaints(job, at, pool, network, place))
    yield from sizes
    if not sizes and gpus_of(wanted, pool) > hardware.gpus_per_node and pool.network is None:
        text = (
            f"is missing: {gpus_of(wanted, pool)} GPUs fill more than one server of {hardware.gpus_per_node}: "
            "{link: infiniband-ndr, adapters: 8}"
        )
        yield Complaint((*place, "network"), text)


def precisions(gpu: Gpu) -> list[str]:
    """What *gpu* multiplies matrices in."""
    return [
        one
        for one in PRECISIONS
        if (one not in RATES or getattr(gpu, RATES[one]) is not None)
        and (one != "bf16" or default_precision(gpu) == "bf16")
    ]
