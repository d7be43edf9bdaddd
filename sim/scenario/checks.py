"""What the schema cannot see: ids that the catalogue lacks, and settings that contradict each other or the hardware."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sim.batching import Slots, foreign
from sim.catalog.catalog import Catalog, UnknownId
from sim.cost import CostError, resolve_costs
from sim.memory import check_parallel
from sim.scenario.bind import BoundPool, bind, power_coefficients
from sim.scenario.calibration import load_calibration
from sim.scenario.errors import Complaint, InputError, Place, did_you_mean
from sim.scenario.layers import value_at, with_values
from sim.scenario.resolve import resolve_fleet
from sim.scenario.schema import Fleet, Scenario, nearest
from sim.steptime import Affine, Roofline
from sim.workload import TraceError, hourly_table, length_table

Found = list[Complaint | InputError]

MOST_REQUESTS = 20_000_000
"""In one case: about 15 GB."""


def id_complaints(data: Any, catalog: Catalog) -> list[Complaint]:
    """Names in raw scenario data that the catalogue does not know, whatever else is wrong with the data."""
    everywhere: dict[str, Callable[[str], object]] = {
        "model": catalog.model,
        "quantization": catalog.quantization,
        "kernel": catalog.kernel,
        "engine": catalog.engine,
        "calibration": load_calibration,
    }
    in_pools = everywhere | {"gpu": catalog.gpu, "server": catalog.server, "link": catalog.link}
    found = list(_unknown(data, (), everywhere))
    found += _unknown(value_at(data, ("workload", "arrivals")), ("workload", "arrivals"), {"shape": hourly_table})
    for side in ("prompt", "output"):
        held: Place = ("workload", "lengths", side)
        found += _unknown(value_at(data, held), held, {"table": length_table})
    for i, fleet in _mappings(data, "fleets"):
        place: Place = ("fleets", i)
        found += _unknown(fleet, place, everywhere)
        found += _price_complaints(fleet.get("cost"), (*place, "cost"), catalog)
        for j, pool in _mappings(fleet, "pools"):
            found += _unknown(pool, (*place, "pools", j), in_pools)
    return found


def _mappings(holder: Any, key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    items = holder.get(key) if isinstance(holder, dict) else None
    for i, item in enumerate(items if isinstance(items, list) else []):
        if isinstance(item, dict):
            yield i, item


def _unknown(holder: Any, place: Place, lookups: Mapping[str, Callable[[str], object]]) -> Iterator[Complaint]:
    for key, lookup in lookups.items() if isinstance(holder, dict) else ():
        if isinstance(name := holder.get(key), str):
            try:
                lookup(name)
            except ValueError as error:
                yield Complaint((*place, key), str(error).splitlines()[0])


def _price_complaints(cost: Any, place: Place, catalog: Catalog) -> Iterator[Complaint]:
    if not isinstance(cost, dict):
        return
    yield from _offer_complaints(cost.get("price"), (*place, "price"), catalog)
    quotes = cost.get("quotes")
    known = {*catalog.ids("gpus"), *catalog.ids("servers")}
    for item in quotes if isinstance(quotes, dict) else ():
        if item not in known:
            yield Complaint(
                (*place, "quotes", item), f"unknown gpu or server {item!r}{did_you_mean(item, sorted(known))}"
            )


def _offer_complaints(name: Any, place: Place, catalog: Catalog) -> Iterator[Complaint]:
    if not isinstance(name, str):
        return
    try:
        catalog.offer(name)
    except UnknownId as error:
        item = name.partition("/")[0]
        prices = None if error.suggestions else catalog.prices(item)
        known = [f"{item}/{offer}" for offer in prices.offers] if prices else []
        yield Complaint(place, str(error) + did_you_mean(name, known))


def salvaged(data: Any, found: Iterable[Complaint]) -> Scenario | None:
    """*data* without the places in *found*, so that one mistake does not hide another; None if too little is left."""
    data = with_values(data, {})
    for one in found:
        if one.place[:1] == ("workload",) or not one.place:
            data["workload"] = _ANY_WORKLOAD
            continue
        *above, last = one.place
        holder = value_at(data, tuple(above))
        if isinstance(holder, dict):
            holder.pop(last, None)
    try:
        return Scenario.model_validate(data)
    except ValidationError:
        return None


_ANY_WORKLOAD = {
    "arrivals": {"process": "burst", "num_requests": 1},
    "lengths": {side: {"distribution": "fixed", "value": 1} for side in ("prompt", "output")},
}


def scenario_complaints(scenario: Scenario) -> Found:
    """Contradictions between keys, and what is wrong in the trace."""
    found: Found = list(_twice((("fleets", i, "name"), fleet.name) for i, fleet in enumerate(scenario.fleets)))
    for i, fleet in enumerate(scenario.fleets):
        named = ((("fleets", i, "pools", j, "name"), pool.name) for j, pool in enumerate(fleet.pools) if pool.name)
        found += _twice(named)
    found += _breakeven_complaints(scenario)
    if "/" in scenario.name or scenario.name in ("", ".", ".."):
        found.append(Complaint(("name",), f"{scenario.name!r} is no name for a folder: the results go to one"))
    if scenario.requests_cost and scenario.requests == "none":
        found.append(Complaint(("requests_cost",), "stands in the request table: requests must be csv or parquet"))
    if scenario.horizon_s is None and scenario.workload.needs_horizon:
        found.append(Complaint(("horizon_s",), "is missing: nothing else ends these arrivals"))
    if scenario.horizon_s is not None and scenario.warmup_s >= scenario.horizon_s:
        message = f"must be below horizon_s ({scenario.horizon_s:g}), not {scenario.warmup_s:g}"
        found.append(Complaint(("warmup_s",), message))
        return found
    try:
        scenario.workload.verify()
    except TraceError as error:
        return found + [_in_the_trace(*one) for one in error.errors]
    except UnknownId:
        return found  # id_complaints names it
    found += _too_many(scenario)
    if scenario.workload.trace is not None:
        found += _unmeasured(scenario)
    return found


def _breakeven_complaints(scenario: Scenario) -> Iterator[Complaint]:
    """Ways to pay for fleets that are not there."""
    names = [fleet.name for fleet in scenario.fleets]
    for name in scenario.breakeven.also if scenario.breakeven else ():
        if name not in names:
            yield Complaint(("breakeven", "also", name), f"there is no fleet {name!r}{did_you_mean(name, names)}")


def _too_many(scenario: Scenario) -> Iterator[Complaint]:
    """More requests than one case can hold in memory."""
    workload, horizon_s = scenario.workload, scenario.horizon_s
    if workload.arrivals is None:
        return
    rate_rps, limit = workload.mean_rate_rps(), workload.arrivals.num_requests
    expected = inf if rate_rps is None or horizon_s is None else rate_rps * horizon_s
    if limit is not None:
        expected = min(expected, limit)
    elif expected == inf:
        return
    if expected > MOST_REQUESTS:
        yield Complaint(
            ("workload", "arrivals"),
            f"about {expected:.2g} requests; at most {MOST_REQUESTS:.0e} are simulated in one case",
        )


def _twice(named: Iterable[tuple[Place, str]]) -> Iterator[Complaint]:
    seen: Counter[str] = Counter()
    for place, name in named:
        seen[name] += 1
        if seen[name] == 2:
            yield Complaint(place, f"the name {name!r} stands twice")


def _in_the_trace(path: str, line: int, message: str) -> Complaint | InputError:
    shown = Path(path)
    if shown.is_relative_to(Path.cwd()):
        shown = shown.relative_to(Path.cwd())
    if line == 0 and message.startswith("cannot be read"):
        return Complaint(("workload", "trace", "path"), f"{shown} {message}")
    return InputError(str(shown), line, "", message)


def _unmeasured(scenario: Scenario) -> Iterator[Complaint]:
    """A window in which no request of the trace arrives."""
    assert scenario.workload.trace is not None
    arrived_s = scenario.workload.trace.requests(scenario.horizon_s).arrived_s
    if len(arrived_s) == 0 or arrived_s[-1] < scenario.warmup_s:
        key = "warmup_s" if len(arrived_s) else "horizon_s"
        yield Complaint((key,), "no request of the trace arrives in the measured window")


def plan_complaints(scenario: Scenario, catalog: Catalog) -> list[Complaint]:
    """What keeps the fleets from being built: layouts and limits that an engine refuses, missing prices."""
    found: list[Complaint] = []
    bound: list[BoundPool] = []
    complete = True
    for i, fleet in enumerate(scenario.fleets):
        try:
            pools = [bind(scenario, fleet, pool, catalog) for pool in fleet.pools]
        except ValueError:
            complete = False
            found += _terms_complaints(scenario, i, fleet)  # an unknown id: id_complaints names it
            continue
        bound += pools
        wrong = [one for j, pool in enumerate(pools) for one in _pool_complaints(pool, ("fleets", i, "pools", j))]
        wrong += _unused_calibration(fleet.calibration, pools, ("fleets", i))
        wrong += [one for pool in pools for one in _cap_complaints(pool, fleet, ("fleets", i), catalog)]
        found += wrong
        found += _terms_complaints(scenario, i, fleet) if wrong else _cost_complaints(scenario, i, fleet, catalog)
    if complete and not found:
        found += _other_ways_complaints(scenario, catalog)
    return [*found, *(_unused_calibration(scenario.calibration, bound, ()) if complete else ())]


def _other_ways_complaints(scenario: Scenario, catalog: Catalog) -> Iterator[Complaint]:
    """Ways to pay that `breakeven` names and that cannot be billed."""
    fleets = {fleet.name: fleet for fleet in scenario.fleets}
    for name, ways in scenario.breakeven.also.items() if scenario.breakeven else ():
        for label, cost in ways.items() if name in fleets else ():
            try:
                resolve_fleet(scenario, fleets[name].model_copy(update={"cost": cost}), catalog)
            except CostError as error:
                for path, text in error.problems:
                    steps: Place = tuple(path.split("."))
                    inside = steps[0] == "cost"
                    yield Complaint(("breakeven", "also", name, label, *steps[1:]) if inside else steps, text)


def _unused_calibration(path: str | None, pools: Sequence[BoundPool], place: Place) -> Iterator[Complaint]:
    """A calibration of a GPU that none of *pools* has."""
    if path is not None and not any(pool.calibration for pool in pools):
        yield Complaint((*place, "calibration"), f"is one of {load_calibration(path).gpu}, which no pool here has")


def _pool_complaints(pool: BoundPool, place: Place) -> Iterator[Complaint]:
    yield from _missing(pool, place)
    yield from _layout_complaints(pool, place)
    yield from _limit_complaints(pool, place)
    yield from _unused_calibration(pool.spec.calibration, [pool], place)


def _cap_complaints(pool: BoundPool, fleet: Fleet, place: Place, catalog: Catalog) -> Iterator[Complaint]:
    """A power cap that nobody has measured the GPU under."""
    if pool.gpu is None or pool.power.cap_w is None or pool.speed is not None:
        return
    if pool.spec.power is not None:
        place = (*place, "pools", fleet.pools.index(pool.spec))
    try:
        power_coefficients(catalog).speed(pool.gpu, pool.power.cap_w)
    except ValueError as error:
        holder = place if nearest(pool.spec.power, fleet.power) is not None else ()
        yield Complaint((*holder, "power", "cap_w"), str(error))


def _missing(pool: BoundPool, place: Place) -> Iterator[Complaint]:
    given = isinstance(pool.steptime, Affine)
    if given and pool.batching.num_gpu_blocks is not None:
        return
    why = "the KV cache follows from it; or give batching.num_gpu_blocks" if given else "the step time follows from it"
    for key, value in (("gpu", pool.gpu), ("model", pool.model)):
        if value is None:
            yield Complaint((*place, key), f"is missing: {why}")
    lacks = [
        what for what, known in (("overheads", pool.engine.overheads), ("memory", pool.engine.memory)) if not known
    ]
    if lacks and isinstance(pool.steptime, Roofline):
        yield Complaint((*place, "engine"), f"{pool.engine.id} has no known {' and '.join(lacks)} to compute with")


def _layout_complaints(pool: BoundPool, place: Place) -> Iterator[Complaint]:
    if pool.model is not None and pool.quantization is not None:
        told: set[str] = set()
        for text in check_parallel(pool.model, pool.quantization, pool.layout):
            key = next((key for key in type(pool.spec).model_fields if text.startswith(key)), "tensor_parallel_size")
            if key not in told:
                yield Complaint((*place, key), text.removeprefix(f"{key}: ").removeprefix(f"{key} "))
            told.add(key)
    server, ranks = pool.server, pool.layout.tensor_parallel_size
    if server is None:
        return
    slots = int(server.gpu_slots.value)
    if ranks > slots:
        yield Complaint((*place, "tensor_parallel_size"), f"{ranks} ranks do not fit the {slots} slots of {server.id}")
    if server.gpu is not None and pool.gpu is not None and server.gpu != pool.gpu.id:
        yield Complaint((*place, "server"), f"{server.id} is built for {server.gpu}, not for {pool.gpu.id}")


def _limit_complaints(pool: BoundPool, place: Place) -> Iterator[Complaint]:
    """Limits that the engine does not know or refuses to start with, its defaults included."""
    limits, given = pool.batching, pool.spec.batching
    for key in foreign(given, pool.engine.batching):
        message = f"is nothing that {pool.engine.id} knows, which schedules by {pool.engine.batching}"
        yield Complaint((*place, "batching", key), message)
    if limits.max_model_len is None and isinstance(limits, Slots):
        yield Complaint((*place, "batching", "max_model_len"), "is missing: it is the context of a slot")
    for key in ("max_num_seqs", "max_num_batched_tokens"):
        if getattr(limits, key) is None:
            yield Complaint((*place, "batching", key), f"is missing: {pool.engine.id} has no known default")
    seats, tokens = limits.max_num_seqs, limits.max_num_batched_tokens
    if (
        seats is not None
        and tokens is not None
        and tokens < seats
        and None in (given.max_num_seqs, given.max_num_batched_tokens)
    ):
        key = "max_num_seqs" if given.max_num_batched_tokens is None else "max_num_batched_tokens"
        yield Complaint(
            (*place, "batching", key),
            f"max_num_batched_tokens ({tokens}) must not be below max_num_seqs ({seats}); "
            f"the one left out is {pool.engine.id}'s default",
        )
    if pool.model is not None and limits.max_model_len is not None and limits.max_model_len > pool.model.max_context:
        holder = (*place, "batching") if given.max_model_len is not None else place
        message = f"{limits.max_model_len} tokens exceed the {pool.model.max_context} that {pool.model.id} was made for"
        yield Complaint((*holder, "max_model_len"), message)


def _terms_complaints(scenario: Scenario, index: int, fleet: Fleet) -> Iterator[Complaint]:
    """What buying needs, whatever is wrong with the hardware."""
    if fleet.cost is None:
        return
    try:
        resolve_costs(fleet.cost, fleet.site or scenario.site, fleet.finance or scenario.finance, [], lambda _: None)
    except CostError as error:
        yield from (Complaint(("fleets", index, *path.split(".")), text) for path, text in error.problems)


def _cost_complaints(scenario: Scenario, index: int, fleet: Fleet, catalog: Catalog) -> Iterator[Complaint]:
    try:
        resolve_fleet(scenario, fleet, catalog)
    except ArithmeticError:
        yield Complaint(("fleets", index), "holds a number too large or too small to compute with")
    except CostError as error:
        for path, text in error.problems:
            steps: Place = tuple(path.split("."))
            shared = steps[0] != "cost" and getattr(fleet, str(steps[0])) is None
            stands_at_top = shared and getattr(scenario, str(steps[0])) is not None
            yield Complaint(steps if stands_at_top else ("fleets", index, *steps), text)
