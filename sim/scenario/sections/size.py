"""What `gpufleet size` searches, as a scenario says it."""

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from sim.batching import Batching, OfEngine
from sim.cost import Cost
from sim.spec import Count, NonNegative, Number, Spec, WholeNumber

Label = Annotated[str, Field(min_length=1)]


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class Mixed(Spec):
    """Fleets of several kinds of replicas, each for prompts of some lengths."""

    length_classes: Annotated[Count, Field(ge=2)] = 4
    """Classes of prompt lengths, each with about as many prompt tokens as the others."""
    most_kinds: Annotated[Count, Field(ge=2)] = 2
    """Most kinds of replicas, or ways to pay for them, in one fleet."""


class Budget(Spec):
    """What may be spent; all limits that are given hold."""

    capex_usd: NonNegative | None = None
    """Capital cost in US dollars, whatever the currency of the report: everything paid at delivery; 0: rent only."""
    usd_per_month: NonNegative | None = None
    """Operating cost in US dollars: rent, electricity, space, staff and all else paid month by month."""
    kw: NonNegative | None = None
    """Power at the wall of the machines bought, by their nameplates, cooling left out."""

    @model_validator(mode="after")
    def _some_limit(self) -> Self:
        if self.capex_usd is None and self.usd_per_month is None and self.kw is None:
            raise ValueError("capex_usd, usd_per_month or kw is needed")
        return self


class Size(Spec):
    """The space of fleets: every GPU in every layout, format, limit and way to pay; the scenario's own fleets, too."""

    gpus: Annotated[tuple[str, ...], Field(min_length=1)]
    """Ids in data/gpus."""
    servers: dict[str, Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(_listed)]] = Field(
        default_factory=dict
    )
    """GPU -> id in data/servers, or several of them. A GPU left out is bought in the cheapest server of the catalogue
    with slots, power and link for it, and rented without one."""
    tensor_parallel_sizes: Annotated[tuple[Count, ...], Field(min_length=1)] = (1, 2, 4, 8)
    """GPUs that share every layer."""
    pipeline_parallel_sizes: Annotated[tuple[Count, ...], Field(min_length=1)] = (1,)
    """Stages that hold the layers in turn."""
    quantizations: tuple[str, ...] = ()
    """Ids in data/quantizations; left out: the scenario's own."""
    batching: Annotated[tuple[Batching, ...], Field(min_length=1)] = (OfEngine(),)
    """Schedulers and limits to try; left out: the engine's own."""
    costs: dict[Label, Cost] = Field(default_factory=dict)
    """Label -> a `cost` for every GPU: {bought: {acquisition: buy}}."""
    rents: dict[Label, dict[str, str]] = Field(default_factory=dict)
    """Label -> GPU -> offer in data/prices: {rented: {l40s: l40s/runpod-lowest-on-demand-2026-09}}."""
    budget: Budget | None = None
    """What may be spent; left out: anything."""
    max_replicas: Count = 8
    """Most replicas that may carry the load."""
    spare_replicas: WholeNumber = 0
    """Replicas beyond those that the service level needs, in each pool; they are paid for and share the load."""
    front_up_to: Annotated[Number, Field(ge=1)] = 1.25
    """Fleets whose lower bound is below this multiple of the cheapest are simulated, too: what less latency costs."""
    mixed: Mixed | None = None
    """Look for fleets of several kinds, too; left out: one kind a fleet."""

    @model_validator(mode="after")
    def _something_to_pay(self) -> Self:
        if not self.costs and not self.rents:
            raise ValueError("costs or rents is needed: what a fleet costs is the question")
        return self
