"""Figures that a claim rests on: where each comes from. A new kind is a class here and a function in sim/study/claims.

Every kind gives one number. A figure that is simulated is one of the claim's own scenario, with some of its values
replaced; the same simulation is run once for all figures that need it.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from sim.spec import Number, Positive, Spec

Label = Annotated[str, Field(min_length=1)]
Values = dict[Label, Any]
"""Dotted path in the scenario -> value that it has for this figure."""


class Catalogued(Spec):
    """A value of the catalogue."""

    kind: Literal["catalogue"]
    of: Annotated[str, Field(pattern=r"^(gpu|server|link|model|offer) \S+$")]
    """Kind and id: `gpu rtx-4090`, `offer dgx-h100/new-2025-10`."""
    value: Label
    """Field of the entry, dotted where it is nested: fp16_flops."""
    per: Positive = 1
    """What the value is divided by, for another unit: 1e12 for TFLOPS."""
    absent: Number | None = None
    """The figure where the catalogue knows that there is none (a card without NVLink); left out: an error."""


class Arithmetic(Spec):
    """A formula of sim/study/claims/formulas.py."""

    kind: Literal["arithmetic"]
    formula: Label
    of: dict[Label, Number | str] | tuple[Number | str, ...] = ()
    """Its arguments, in order or by name: numbers, or names of other figures."""


class Weights(Spec):
    """Bytes of a language model's weights in some format, all GPUs together."""

    kind: Literal["weights"]
    model: str
    quantization: str = "none"
    """Id in data/quantizations; none: the model's own dtype."""
    per: Positive = 1e9
    """What the bytes are divided by: 1e9 for GB, 1073741824 for GiB."""


class Memory(Spec):
    """How a fleet's first pool lies in memory; nothing is simulated."""

    kind: Literal["memory"]
    fleet: str
    value: Literal["fits", "kv_tokens", "gpus", "reserved_gb"]
    """fits: 1 where the model and at least one request fit, else 0; reserved_gb: what the engine holds of all GPUs of
    a replica for weights, cache and itself."""
    set: Values = Field(default_factory=dict)


class Run(Spec):
    """A column of summary.csv for one fleet, at one point."""

    kind: Literal["run"]
    fleet: str
    metric: Label
    set: Values = Field(default_factory=dict)


class LedgerLine(Spec):
    """What one component of the bill costs per hour [USD], for one fleet at one point."""

    kind: Literal["ledger"]
    fleet: str
    component: Label
    """As in costs.csv: hosting, energy, staff, ..."""
    set: Values = Field(default_factory=dict)


class Capacity(Spec):
    """A column of capacity.csv for one fleet: what it does at the highest load within the service level."""

    kind: Literal["capacity"]
    fleet: str
    metric: Label = "load"
    """load: the capacity itself."""
    set: Values = Field(default_factory=dict)
    relative: Positive = 0.05
    """Width of the last bracket of the search."""


class Cheapest(Spec):
    """What the cheapest fleet that `size` finds costs per month; of one kind of GPU, or of all."""

    kind: Literal["size"]
    gpu: str | None = None
    """Id of the only GPU in the fleet; left out: any."""
    value: Literal["usd_per_month", "gpus"] = "usd_per_month"
    set: Values = Field(default_factory=dict)


FigureSpec = Annotated[
    Catalogued | Arithmetic | Weights | Memory | Run | LedgerLine | Capacity | Cheapest,
    Field(discriminator="kind"),
]
