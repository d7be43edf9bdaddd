"""What keeps a job from being done on a fleet as it is written: one sentence each, with what would fit."""

from collections.abc import Iterator

from sim.catalogue.catalog import Catalog
from sim.catalogue.entries.gpu import Gpu
from sim.scenario.job.bind import Hardware, default_precision, gpus_of, job_figures
from sim.scenario.job.schema import JobPool, JobScenario, TrainingJob
from sim.scenario.job.sizes import size_complaints
from sim.scenario.reading.errors import Complaint, Place, did_you_mean
from sim.training.named import NotTrainable, network_named
from sim.training.network import Network

RATES = {"fp8": "fp8_flops", "nvfp4": "fp4_flops", "tf32": "tf32_flops", "fp32": "fp32_flops"}
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "nvfp4")


def job_complaints(scenario: JobScenario, catalog: Catalog) -> Iterator[Complaint]:
    """All that contradicts itself in a scenario whose ids are known."""
    job, data = scenario.job, job_figures(catalog).data
    try:
        network = network_named(job.model, catalog, data)
    except NotTrainable as error:
        yield Complaint(("job", "model"), str(error))
        return
    yield from _amount(job, network)
    for place, setup in [(("job",), job), *((_pool(i), fleet.pools[0]) for i, fleet in enumerate(scenario.fleets))]:
        if setup.framework is not None and setup.framework not in data.stacks:
            text = f"unknown framework {setup.framework!r}{did_you_mean(setup.framework, data.stacks, listed=20)}"
            yield Complaint((*place, "framework"), text)
    if job.failures is not None and job.failures.gpu is None and job.failures.node is None:
        yield Complaint(("job", "failures"), "names nothing that fails: gpu: {mtbf_h: ...} or node: {mtbf_h: ...}")
    for i, fleet in enumerate(scenario.fleets):
        yield from _on_pool(job, fleet.pools[0], network, _pool(i), catalog)


def _pool(index: int) -> Place:
    return ("fleets", index, "pools", 0)


def _amount(job: TrainingJob, network: Network) -> Iterator[Complaint]:
    """How much there is to train on, and in which pieces."""
    if (job.tokens is None) == (job.samples is None):
        text = "needs tokens or samples" + ("" if job.tokens is None else ", not both")
        yield Complaint(("job",), text)
    if network.is_transformer and job.sequence is None:
        yield Complaint(("job", "sequence"), f"is missing: tokens of a sample of {network.id}")
    if not network.is_transformer:
        for key in ("sequence", "tokens", "lora"):
            if getattr(job, key) is not None:
                fits = "samples" if key == "tokens" else "nothing in its place"
                yield Complaint(("job", key), f"{network.id} has no {key}: give {fits}")
    if job.checkpoint is not None and job.checkpoint.save_s is None and job.checkpoint.bytes_per_s is None:
        text = "needs bytes_per_s (rate at which all ranks together write) or save_s (time of a save)"
        yield Complaint(("job", "checkpoint"), text)


def _on_pool(job: TrainingJob, pool: JobPool, network: Network, place: Place, catalog: Catalog) -> Iterator[Complaint]:
    hardware, wanted = Hardware.of(pool, catalog), pool.parallel.over(job.parallel)
    server = hardware.server
    if server is not None and server.gpu is not None and server.gpu != hardware.gpu.id:
        yield Complaint((*place, "server"), f"{server.id} is built for {server.gpu}, not for {hardware.gpu.id}")
    if pool.power is not None and pool.power.cap_w is not None:
        yield Complaint((*place, "power", "cap_w"), "what a power cap does to training is not known")
    precision = pool.precision or job.precision or default_precision(hardware.gpu)
    if precision not in (able := precisions(hardware.gpu)):
        holder = place if pool.precision is not None else ("job",)
        yield Complaint((*holder, "precision"), f"{hardware.gpu.id} has no {precision}: {', '.join(able)}")
    sizes = list(size_complaints(job, pool, network, place))
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
