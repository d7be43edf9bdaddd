"""Section `size`: the space of fleets that `gpufleet size` searches."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from sim.autoscaling import Autoscaling
from sim.batching import Batching, OfEngine
from sim.catalogue.catalog import Catalog
from sim.coldstart import ColdStart
from sim.cost.buying import Buy
from sim.cost.cost_plan import Cost, resolve_costs
from sim.cost.prices import CostError
from sim.cost.rental import Rent
from sim.failures import COMPONENTS, FailureSpec
from sim.memory.lora import LoraAdapters
from sim.message import Message, first_line
from sim.routing.kv_transfer import KvTransfer
from sim.scenario.experiment import Experiment
from sim.scenario.reading.layers import entries, unknown_ids, unknown_offers, unknown_prices, value_at
from sim.scenario.sections import Section
from sim.spec import Count, Fraction, NonNegative, Number, Positive, Spec, WholeNumber
from sim.validation import Place, ValidationIssue, did_you_mean
from sim.yamlio import dump_line

Label = Annotated[str, Field(min_length=1)]


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Names = Annotated[
    tuple[str, ...], Field(min_length=1), BeforeValidator(_as_list, json_schema_input_type=str | tuple[str, ...])
]
"""A name, or a list of names."""

WHOLE = "none"
"""Value in place of a MIG profile for GPUs that are not sliced."""


class MixedFleets(Spec):
    """Search of fleets with several kinds of replicas, each for a class of prompt lengths."""

    length_classes: Annotated[Count, Field(ge=2)] = 4
    """Number of classes of prompt lengths, each with about the same number of prompt tokens."""
    most_kinds: Annotated[Count, Field(ge=2)] = 2
    """Most kinds of replicas, or acquisitions, in one fleet."""


class SplitFleets(Spec):
    """Search of fleets with separate prefill and decode replicas, in any ratio."""

    kv_transfer: KvTransfer
    """KV transfer from prefill to decode replicas."""


class Budget(Spec):
    """Limits on spending; all limits that are given hold."""

    capex_usd: NonNegative | None = None
    """Capital cost [US dollars], whatever the currency of the report: everything paid at delivery; 0: rent only."""
    usd_per_month: NonNegative | None = None
    """Operating cost [US dollars per month]: rent, electricity, space, staff and all else paid by the month."""
    kw: NonNegative | None = None
    """Nameplate power of the machines bought, at the wall, without cooling [kW]."""

    @model_validator(mode="after")
    def _some_limit(self) -> Self:
        if self.capex_usd is None and self.usd_per_month is None and self.kw is None:
            raise ValueError("capex_usd, usd_per_month or kw is needed")
        return self


class CostCeiling(Spec):
    """Ceiling on the cost of a fleet, below which the fastest fleet is searched; all limits that are given hold."""

    usd_per_h: Positive | None = None
    """Total cost [US dollars per hour]."""
    usd_per_million_output_tokens: Positive | None = None
    """Total cost divided by output tokens at the scenario's load [US dollars per million]."""

    @model_validator(mode="after")
    def _some_limit(self) -> Self:
        if self.usd_per_h is None and self.usd_per_million_output_tokens is None:
            raise ValueError("usd_per_h or usd_per_million_output_tokens is needed")
        return self


class SpareKinds(Spec):
    """Kinds of spare replicas beyond those that the load needs."""

    kinds: Annotated[tuple[Literal["hot", "warm", "cold"], ...], Field(min_length=1)] = ("hot", "warm", "cold")
    """Readiness of spares. hot: serves with the others; warm: switched on, with the weights in memory; cold: switched
    off."""
    takeover_s: NonNegative = 0.0
    """Time from the detection of a failure until a warm spare serves [s]; a cold spare starts by `cold_start`."""


class CommittedBase(Spec):
    """Commitment for the replicas that an autoscaler never stops."""

    months: Positive
    """Term of the commitment [months]."""
    discount: Fraction
    """Discount on the hourly price, as a fraction."""


MOST_SCALED = 1_000_000
"""Largest `max_replicas` of a searched autoscaler that states none; `size.max_replicas` is the limit."""


def _searched_bounds(value: Any) -> Any:
    return {"max_replicas": MOST_SCALED, **value} if isinstance(value, dict) else value


def _offer(value: Any) -> Any:
    if isinstance(value, int | float):
        raise ValueError(
            Message(
                "{value} is a price, and rents name offers of data/prices; prices of your own belong in costs: "
                "{{rented: {{acquisition: rent, quotes: {{GPU: USD per hour}}}}}}",
                value,
            )
        )
    return value


def _check_labels(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError(
            "a label of your choice comes first, then GPU and offer: {rented: {h100: OFFER}}; gpufleet list prices "
            "shows offers, and prices of your own belong in costs: {rented: {acquisition: rent, quotes: {GPU: USD per "
            "hour}}}"
        )
    return value


Offer = Annotated[str, BeforeValidator(_offer)]


class Size(Spec):
    """Search space of fleets, in which `gpufleet size` looks for the cheapest.

    The space has every listed GPU in every layout, format, batching policy and acquisition, and the scenario's fleets.
    """

    gpus: tuple[str, ...] = ()
    """Ids in data/gpus. Default: only the GPUs in `owned`."""
    servers: dict[str, Names] = Field(default_factory=dict)
    """GPU -> server or servers, as ids in data/servers. A GPU left out is bought in the cheapest server of the
    catalogue with slots, power and link for it, and rented without one."""
    mig: Annotated[tuple[str, ...], Field(min_length=1)] = (WHOLE,)
    """MIG profiles of replicas on slices, for the GPUs that have these profiles; `none` adds whole GPUs."""
    tensor_parallel_sizes: Annotated[tuple[Count, ...], Field(min_length=1)] = (1, 2, 4, 8)
    """GPUs that share every layer."""
    pipeline_parallel_sizes: Annotated[tuple[Count, ...], Field(min_length=1)] = (1,)
    """Stages that hold the layers in turn."""
    quantizations: tuple[str, ...] = ()
    """Candidate formats, as ids in data/quantizations. Default: the scenario's."""
    batching: Annotated[tuple[Batching, ...], Field(min_length=1)] = (OfEngine(),)
    """Candidate batching policies and limits. Default: the engine's."""
    lora: tuple[LoraAdapters, ...] = ()
    """Candidate slots for LoRA adapters, where requests use adapters."""
    costs: dict[Label, Cost] = Field(default_factory=dict)
    """Label -> candidate `cost` for every GPU: {bought: {acquisition: buy}}."""
    rents: dict[Label, Annotated[dict[str, Offer], BeforeValidator(_check_labels)]] = Field(default_factory=dict)
    """Label -> GPU -> offer in data/prices: {rented: {l40s: l40s/runpod-lowest-on-demand-2026-09}}."""
    owned: dict[str, Count] = Field(default_factory=dict)
    """GPU -> number owned already. A GPU in use costs its electricity, and its part of the server's space and upkeep;
    unused slots and GPUs cost nothing, as other loads can use them. Candidates are fleets of owned GPUs, fleets of all
    owned GPUs with others added, and fleets without owned GPUs."""
    budget: Budget | None = None
    """Limits on spending. Default: none."""
    cost_ceiling: CostCeiling | None = None
    """Ceiling on cost. The answer adds the fleet with the highest output speed per user (1/TPOT) below it."""
    max_replicas: Count = 8
    """Most replicas that serve the load."""
    spare_replicas: WholeNumber = 0
    """Replicas per pool beyond those that the service level needs; they are paid for and share the load."""
    front_up_to: Annotated[Number, Field(ge=1)] = 1.25
    """Multiple of the cheapest fleet's cost up to which fleets are simulated for the cost-latency front."""
    failures: FailureSpec | None = None
    """Failures in the candidate pools, for `slo.availability`; fleets of the scenario have their own."""
    cold_start: ColdStart | None = None
    """Start of a replica that an autoscaler adds, of one after a repair, and of a cold spare. Default: no start
    time."""
    spares: SpareKinds | None = None
    """Kinds of spares to search for `slo.availability`. Default: hot spares."""
    autoscaling: (
        Annotated[Autoscaling, BeforeValidator(_searched_bounds), WithJsonSchema({"type": "object"})] | None
    ) = None
    """Autoscaler of rented candidates, as in a pool. Its `max_replicas` are searched, and its `min_replicas` where they
    are left out; fleets whose replicas always run are searched as well. Default: all replicas always run."""
    committed_base: CommittedBase | None = None
    """Commitment for the `min_replicas` of autoscaled candidates. Default: they pay the hourly price."""
    mixed: MixedFleets | None = None
    """Search of fleets with several kinds of replicas. Default: one kind per fleet."""
    split: SplitFleets | None = None
    """Search of fleets with separate prefill and decode replicas, each of any kind. Default: every replica does
    both."""

    @model_validator(mode="after")
    def _something_to_pay(self) -> Self:
        if not self.gpus and not self.owned:
            raise ValueError("gpus or owned is needed: the GPUs to choose from")
        if self.gpus and not self.costs and not self.rents:
            raise ValueError("costs or rents is needed: the cost of each fleet is compared")
        return self


LISTS = ("gpus", "mig", "tensor_parallel_sizes", "pipeline_parallel_sizes", "quantizations", "batching", "lora")


def _check_ids(data: Any, catalog: Catalog) -> Iterator[ValidationIssue]:
    """Yield issues of ids in the raw section that are not in the catalogue."""
    servers = value_at(data, ("servers",))
    owned = value_at(data, ("owned",))
    named: list[tuple[Place, Any, Any]] = [
        *((("size", "gpus", i), item, catalog.gpu) for i, item in _items(value_at(data, ("gpus",)))),
        *(
            (("size", "quantizations", i), item, catalog.quantization)
            for i, item in _items(value_at(data, ("quantizations",)))
        ),
    ]
    named += [(("size", "owned", gpu), gpu, catalog.gpu) for gpu in (owned if isinstance(owned, dict) else ())]
    for gpu, found in servers.items() if isinstance(servers, dict) else ():
        place: Place = ("size", "servers", gpu)
        named += [(place, found, catalog.server)] if isinstance(found, str) else []
        named += [((*place, i), item, catalog.server) for i, item in _items(found)]
    for place, name, lookup in named:
        if isinstance(name, str):
            try:
                lookup(name)
            except ValueError as error:
                yield ValidationIssue(place, first_line(str(error)))
    moving = value_at(data, ("split", "kv_transfer"))
    yield from unknown_ids(value_at(data, ("cold_start",)), ("size", "cold_start"), {"link": catalog.link})
    for kind in COMPONENTS:
        keys = ("failures", kind)
        yield from unknown_ids(value_at(data, keys), ("size", *keys), {"rate": catalog.failure_rate})
    yield from unknown_ids(moving, ("size", "split", "kv_transfer"), {"link": catalog.link})
    for label, cost in entries(data, ("costs",)):
        yield from unknown_prices(cost, ("size", "costs", label), catalog)
    for label, _ in entries(data, ("rents",)):
        for gpu, offer in entries(data, ("rents", label)):
            yield from unknown_offers(offer, ("size", "rents", label, gpu), catalog)


def _items(value: Any) -> Iterable[tuple[int, Any]]:
    return enumerate(value) if isinstance(value, list) else ()


def _check_terms(size: Size, scenario: Experiment, catalog: Catalog) -> Iterator[ValidationIssue]:
    """Yield contradictions within the section, and missing terms of buying."""
    for name in LISTS:
        for value, count in Counter(getattr(size, name)).items():
            if count > 1:
                named = isinstance(value, str | int)
                shown = value if named else dump_line(value.model_dump(mode="json", exclude_none=True))
                yield ValidationIssue(("size", name), Message("{value} is given twice", shown))
    for label in size.rents:
        if label in size.costs:
            yield ValidationIssue(("size", "rents", label), Message("the label {label!r} is used in costs, too", label))
    workload = scenario.workload
    steady = workload.stationary and workload.sessions is None and workload.mean_rate_rps()
    if size.mixed is not None and workload.trace is None and not steady:
        text = "needs arrivals at a steady rate, or a trace: it divides the rate among kinds of replicas"
        yield ValidationIssue(("size", "mixed"), text)
    asks = [one.workload for one in scenario.services] or [workload]
    if bool(size.lora) != (needs := any(one.uses_adapters for one in asks)):
        text = "is missing: requests use adapters" if needs else "has slots that no request uses: remove it"
        yield ValidationIssue(("size", "lora"), text)
    if size.mixed is not None and size.lora:
        yield ValidationIssue(("size", "mixed"), "cannot be combined with lora: its bounds do not cover adapter slots")
    if size.mixed is not None and scenario.services:
        yield ValidationIssue(
            ("size", "mixed"), "needs a single service: its classes are lengths of one service's prompts"
        )
    if size.mixed is not None and any(name != WHOLE for name in size.mig):
        yield ValidationIssue(
            ("size", "mixed"), "needs whole GPUs: the cost of another slice depends on the number of slices"
        )
    ceiling = size.cost_ceiling
    yearly = getattr(scenario, "load_profile", None) is not None  # a field of `Scenario`, which `Experiment` lacks
    if yearly and ceiling is not None and ceiling.usd_per_million_output_tokens is not None:
        text = "is for one load, and costs are those of the year of load_profile: give usd_per_h"
        yield ValidationIssue(("size", "cost_ceiling", "usd_per_million_output_tokens"), text)
    if ceiling is not None and scenario.services:
        yield ValidationIssue(("size", "cost_ceiling"), "needs a single service: users of several differ in speed")
    yield from _split_issues(size, scenario)
    yield from _autoscaling_issues(size, scenario)
    yield from _owned_issues(size, scenario)
    yield from _failure_issues(size, scenario)
    if size.spare_replicas and any(pool.autoscaling for fleet in scenario.fleets for pool in fleet.pools):
        text = "need fleets whose replicas always run: an autoscaler sets the number of replicas"
        yield ValidationIssue(("size", "spare_replicas"), text)
    yield from _gpu_issues(size)
    yield from _server_issues(size, catalog)
    yield from _profile_issues(size, catalog)
    for label, cost in size.costs.items():
        try:
            resolve_costs(cost, scenario.site, scenario.finance, [], lambda _: None)
        except CostError as error:
            for path, text in error.problems:
                steps: Place = tuple(path.split("."))
                yield ValidationIssue(("size", "costs", label, *steps[1:]) if steps[0] == "cost" else steps, text)


def _split_issues(size: Size, scenario: Experiment) -> Iterator[ValidationIssue]:
    """Yield issues of options that a search of prefill and decode replicas excludes."""
    if size.split is None:
        return
    if size.mixed is not None:
        yield ValidationIssue(("size", "split"), "conflicts with mixed: search one of them at a time")
    if scenario.slo.availability is not None:
        text = "cannot be searched for with slo.availability: replicas of one role do not replace those of another"
        yield ValidationIssue(("size", "split"), text)
    if scenario.services:
        yield ValidationIssue(("size", "split"), "needs a single service: pools with a role serve one")
    if any(name != WHOLE for name in size.mig):
        yield ValidationIssue(("size", "split"), "needs whole GPUs: slices have no ports of their own")
    if size.max_replicas < 2:
        yield ValidationIssue(
            ("size", "max_replicas"), "must be at least 2 for split: one for prompts, one for answers"
        )


def _autoscaling_issues(size: Size, scenario: Experiment) -> Iterator[ValidationIssue]:
    """Yield issues of options that a search of autoscaled fleets excludes."""
    if size.autoscaling is None:
        if size.committed_base is not None:
            yield ValidationIssue(("size", "committed_base"), "applies to autoscaled candidates: give size.autoscaling")
        return
    place: Place = ("size", "autoscaling")
    others = {
        "mixed": size.mixed is not None,
        "split": size.split is not None,
        "spare_replicas": bool(size.spare_replicas),
        "failures": size.failures is not None,
        "slo.availability": scenario.slo.availability is not None,
    }
    for name in (name for name, stated in others.items() if stated):
        yield ValidationIssue(place, Message("cannot be searched together with {name}: remove one of them", name))
    if not size.rents and not any(cost.acquisition == "rent" for cost in size.costs.values()):
        yield ValidationIssue(
            place, "saves rent, but nothing is rented: bought machines are paid for all day; add rents, or remove it"
        )
    if size.autoscaling.min_replicas >= size.max_replicas:
        text = Message("must be below size.max_replicas, which is {most}", size.max_replicas)
        yield ValidationIssue((*place, "min_replicas"), text)
    if size.committed_base is None:
        return
    if any(name != WHOLE for name in size.mig):
        yield ValidationIssue(("size", "committed_base"), "needs whole GPUs: a commitment is for whole GPUs")
    for label, cost in size.costs.items():
        if isinstance(cost, Rent) and cost.commitment is not None:
            yield ValidationIssue(
                ("size", "costs", label, "commitment"), "conflicts with committed_base: remove one of them"
            )


OWNED = "owned"
"""Label of the purchase option of GPUs that are owned already."""


def _owned_issues(size: Size, scenario: Experiment) -> Iterator[ValidationIssue]:
    """Yield issues of options that a search around owned GPUs excludes, and missing terms of their running costs."""
    if not size.owned:
        return
    others = {
        "mixed": size.mixed is not None,
        "split": size.split is not None,
        "spare_replicas": bool(size.spare_replicas),
        "slo.availability": scenario.slo.availability is not None,
    }
    for name in (name for name, stated in others.items() if stated):
        yield ValidationIssue(
            ("size", "owned"), Message("cannot be searched beside {name}: leave one of them out", name)
        )
    for section in ("costs", "rents"):
        if OWNED in getattr(size, section):
            yield ValidationIssue(("size", section, OWNED), "is the label of GPUs in size.owned: choose another one")
    try:
        owned = Buy(acquisition="buy", owned=True)
        resolve_costs(owned, scenario.site, scenario.finance, [], lambda _: None, operations=scenario.operations)
    except CostError as error:
        for path, text in error.problems:
            yield ValidationIssue(tuple(path.split(".")), text)


def _failure_issues(size: Size, scenario: Experiment) -> Iterator[ValidationIssue]:
    """Yield issues of failures without an availability target, and of given spares with one."""
    has_target = scenario.slo.availability is not None
    if size.failures is not None and not has_target:
        text = "apply only with slo.availability, the share of requests over failures: set it, to 0.999 for example"
        yield ValidationIssue(("size", "failures"), text)
    if size.failures is not None and size.failures.spares is not None:
        text = "is left to the search, which adds replicas until slo.availability is reached: remove it"
        yield ValidationIssue(("size", "failures", "spares"), text)
    if size.cold_start is not None and size.failures is None and size.autoscaling is None:
        yield ValidationIssue(
            ("size", "cold_start"), "is the start after a repair, and nothing fails: give size.failures"
        )
    if size.spares is not None:
        yield from _spare_issues(size, size.spares)
    if has_target and size.spare_replicas:
        yield ValidationIssue(
            ("size", "spare_replicas"), "conflicts with slo.availability, which finds the number of spares: remove it"
        )
    if has_target and size.mixed is not None:
        yield ValidationIssue(("size", "mixed"), "cannot be searched for with slo.availability: remove one of them")


def _spare_issues(size: Size, spares: SpareKinds) -> Iterator[ValidationIssue]:
    """Yield issues of spare kinds without failures or a start, and of settings for kinds that are not listed."""
    if size.failures is None:
        yield ValidationIssue(("size", "spares"), "are kept for failures: give size.failures and slo.availability")
    for kind, count in Counter(spares.kinds).items():
        if count > 1:
            yield ValidationIssue(("size", "spares", "kinds"), Message("{kind} is given twice", kind))
    if "cold" in spares.kinds and size.failures is not None and size.cold_start is None:
        yield ValidationIssue(("size", "spares", "kinds"), "a cold spare starts first: give size.cold_start")
    if spares.takeover_s and "warm" not in spares.kinds:
        yield ValidationIssue(("size", "spares", "takeover_s"), "applies to warm spares, which are not among kinds")


def _gpu_issues(size: Size) -> Iterator[ValidationIssue]:
    named: list[tuple[Place, str]] = [(("size", "servers", gpu), gpu) for gpu in size.servers if gpu not in size.owned]
    named += [(("size", "rents", label, gpu), gpu) for label, offers in size.rents.items() for gpu in offers]
    for place, gpu in named:
        if gpu not in size.gpus:
            yield ValidationIssue(
                place, Message("{gpu} is not among size.gpus{hint}", gpu, did_you_mean(gpu, size.gpus))
            )


def _profile_issues(size: Size, catalog: Catalog) -> Iterator[ValidationIssue]:
    try:
        cut = [gpu.mig.profiles for name in size.gpus if (gpu := catalog.gpu(name)).mig is not None]
    except ValueError:
        return  # `_check_ids` reports the unknown id
    known = dict.fromkeys(name for profiles in cut for name in profiles)
    for i, name in enumerate(size.mig):
        if name != WHOLE and name not in known:
            have = Message("they have {names}", ", ".join(known)) if known else "none of them can be cut"
            text = Message(
                "no GPU among size.gpus has a MIG profile {name!r}: {known}{hint}",
                name,
                have,
                did_you_mean(name, known),
            )
            yield ValidationIssue(("size", "mig", i), text)


def _server_issues(size: Size, catalog: Catalog) -> Iterator[ValidationIssue]:
    for gpu, servers in size.servers.items():
        for name in servers:
            try:
                holds = catalog.server(name).gpu
            except ValueError:
                continue  # `_check_ids` reports the unknown id
            if holds is not None and holds != gpu:
                yield ValidationIssue(("size", "servers", gpu), f"{name} holds {holds}")


SIZE = Section(
    command="size",
    of_fleets=True,
    check_ids=_check_ids,
    check_terms=_check_terms,
    example="""\
# what to choose from, for `gpufleet size`; costs are ways to pay, as in a fleet
# size: {gpus: [rtx-4090, l40s], tensor_parallel_sizes: [1, 2], quantizations: [none, fp8], max_replicas: 4,
#   budget: {capex_usd: 15000, usd_per_month: 500, kw: 3}, spare_replicas: 1, mixed: {},
#   costs: {bought: {acquisition: buy}, rented: {acquisition: rent, quotes: {rtx-4090: 0.4, l40s: 0.9}}}}""",
)
