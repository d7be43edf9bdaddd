"""What is wrong with the space that `gpufleet size` is to search."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.cost import CostError, resolve_costs
from sim.scenario.reading.errors import Complaint, Place, did_you_mean
from sim.scenario.reading.layers import value_at
from sim.scenario.schema import Scenario
from sim.scenario.sections.size import Size
from sim.yamlio import dump_line

LISTS = ("gpus", "tensor_parallel_sizes", "pipeline_parallel_sizes", "quantizations", "batching")


def size_id_complaints(data: Any, catalog: Catalog) -> Iterator[Complaint]:
    """Names in the raw section that the catalogue does not know."""
    servers = value_at(data, ("size", "servers"))
    named: list[tuple[Place, Any, Any]] = [
        *((("size", "gpus", i), item, catalog.gpu) for i, item in _items(value_at(data, ("size", "gpus")))),
        *(
            (("size", "quantizations", i), item, catalog.quantization)
            for i, item in _items(value_at(data, ("size", "quantizations")))
        ),
    ]
    for gpu, found in servers.items() if isinstance(servers, dict) else ():
        place: Place = ("size", "servers", gpu)
        named += [(place, found, catalog.server)] if isinstance(found, str) else []
        named += [((*place, i), item, catalog.server) for i, item in _items(found)]
    for place, name, lookup in named:
        if isinstance(name, str):
            try:
                lookup(name)
            except ValueError as error:
                yield Complaint(place, str(error).splitlines()[0])


def _items(value: Any) -> Iterable[tuple[int, Any]]:
    return enumerate(value) if isinstance(value, list) else ()


def size_complaints(scenario: Scenario, catalog: Catalog) -> Iterator[Complaint]:
    """Contradictions within the section, and terms without which nothing can be bought."""
    size = scenario.size
    if size is None:
        return
    for name in LISTS:
        for value, count in Counter(getattr(size, name)).items():
            if count > 1:
                named = isinstance(value, str | int)
                shown = value if named else dump_line(value.model_dump(mode="json", exclude_none=True))
                yield Complaint(("size", name), f"{shown} stands twice")
    for label in size.rents:
        if label in size.costs:
            yield Complaint(("size", "rents", label), f"the label {label!r} stands in costs, too")
    workload = scenario.workload
    if size.mixed is not None and workload.trace is None and not (workload.stationary and workload.mean_rate_rps()):
        text = "needs arrivals at a steady rate, or a trace: it divides the rate among kinds of replicas"
        yield Complaint(("size", "mixed"), text)
    yield from _strange_gpus(size)
    yield from _servers_of_others(size, catalog)
    for label, cost in size.costs.items():
        try:
            resolve_costs(cost, scenario.site, scenario.finance, [], lambda _: None)
        except CostError as error:
            for path, text in error.problems:
                steps: Place = tuple(path.split("."))
                yield Complaint(("size", "costs", label, *steps[1:]) if steps[0] == "cost" else steps, text)


def _strange_gpus(size: Size) -> Iterator[Complaint]:
    named: list[tuple[Place, str]] = [(("size", "servers", gpu), gpu) for gpu in size.servers]
    named += [(("size", "rents", label, gpu), gpu) for label, offers in size.rents.items() for gpu in offers]
    for place, gpu in named:
        if gpu not in size.gpus:
            yield Complaint(place, f"{gpu} is not among size.gpus{did_you_mean(gpu, size.gpus)}")


def _servers_of_others(size: Size, catalog: Catalog) -> Iterator[Complaint]:
    for gpu, servers in size.servers.items():
        for name in servers:
            try:
                holds = catalog.server(name).gpu
            except ValueError:
                continue  # size_id_complaints names it
            if holds is not None and holds != gpu:
                yield Complaint(("size", "servers", gpu), f"{name} holds {holds}")
