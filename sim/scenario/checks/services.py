"""What services that answer in one pass need, and what they cannot have."""

from collections.abc import Iterator

from sim.batching import Dynamic
from sim.batchtime import AffineBatch, OnePass, missing_work
from sim.catalogue.catalog import Catalog
from sim.scenario.reading.errors import Complaint, Place
from sim.scenario.resolving.bind import BoundPool, one_pass_step_time
from sim.scenario.schema import Scenario


def service_workload_complaints(scenario: Scenario) -> Iterator[Complaint]:
    """Lengths where requests have none, or the reverse; language models and services behind one router."""
    workload = scenario.workload
    dynamic = [[isinstance(pool.batching, Dynamic) for pool in fleet.pools] for fleet in scenario.fleets]
    for i, pools in enumerate(dynamic):
        if any(pools) and not all(pools):
            text = "serves a language model and a service behind one router: give each a fleet of its own"
            yield Complaint(("fleets", i), text)
    served = [one for pools in dynamic for one in pools]
    if workload.trace is not None and any(served):
        yield Complaint(("workload", "trace"), "brings tokens, and a request of a service is one unit: give arrivals")
    if workload.lengths is not None and any(served):
        text = "a request of a service is one unit of work: remove lengths, or policy: dynamic"
        yield Complaint(("workload", "lengths"), text)
    if workload.trace is None and workload.lengths is None and not (served and all(served)):
        text = "needs arrivals and lengths, or a trace; only arrivals is given"
        yield Complaint(("workload",), text)


def service_complaints(pool: BoundPool, place: Place, catalog: Catalog) -> Iterator[Complaint]:
    """A language model's keys on a service, and the reverse; a model whose batch time cannot be computed."""
    dynamic, service = isinstance(pool.batching, Dynamic), pool.service
    if not dynamic:
        if service is not None:
            text = f"{service.id} answers in one pass: say batching: {{policy: dynamic, max_batch_size: 8}}"
            yield Complaint((*place, "batching"), text)
        elif isinstance(pool.steptime, AffineBatch | OnePass):
            text = f"{pool.steptime.model} times whole batches: it needs batching: {{policy: dynamic, ...}}"
            yield Complaint((*place, "steptime", "model"), text)
        return
    if pool.model is not None:
        text = f"{pool.model.id} makes tokens: policy dynamic is for services that answer in one pass"
        yield Complaint((*place, "batching", "policy"), text)
    if not isinstance(pool.steptime, AffineBatch | OnePass):
        text = f"{pool.steptime.model} times steps of tokens: a dynamic batch takes affine_batch or one_pass"
        yield Complaint((*place, "steptime", "model"), text)
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
        if getattr(pool.spec, name) != 1 and pool.slicing is None:
            yield Complaint((*place, name), "must be 1: a service runs on one GPU; more of them are more replicas")
    if isinstance(pool.steptime, OnePass):
        yield from _uncomputable(pool, place, catalog)


def _uncomputable(pool: BoundPool, place: Place, catalog: Catalog) -> Iterator[Complaint]:
    why = "the batch time follows from it; or give steptime: {model: affine_batch, base_s: ..., per_item_s: ...}"
    for key, value in (("gpu", pool.gpu), ("model", pool.service or pool.model)):
        if value is None:
            yield Complaint((*place, key), f"is missing: {why}")
    if pool.gpu is None or pool.service is None:
        return
    lacks = missing_work(pool.service)
    if lacks:
        yield Complaint((*place, "model"), f"{pool.service.id} has no known {' and '.join(lacks)} to compute with")
        return
    sizes = isinstance(pool.steptime, OnePass) and (pool.steptime.steps or pool.steptime.resolution)
    if sizes and pool.service.generator is None:
        yield Complaint((*place, "steptime"), f"{pool.service.id} makes no images: it has no steps and no resolution")
    try:
        one_pass_step_time(pool, catalog)
    except ValueError as error:
        yield Complaint((*place, "quantization"), f"{error}: choose another quantization")
