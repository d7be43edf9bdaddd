"""Section `claim` of a scenario: a statement, the figures that check it, and the rules of its verdict.

Every kind of figure gives one number. A simulated figure is a result of the claim's own scenario with some values
replaced; a simulation runs once for all figures that need it. A new kind of figure is a class here and a function in
sim/claims/figures.py.
"""

import re
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import Field, model_validator

from sim.catalogue.catalog import Catalog
from sim.message import Message
from sim.scenario.experiment import Experiment
from sim.scenario.sections import Everything, Section
from sim.spec import Number, Positive, Spec, Tagged
from sim.validation import ValidationIssue, did_you_mean

Label = Annotated[str, Field(min_length=1)]
Values = dict[Label, Any]
"""Dotted path in the scenario -> value for this figure."""


class CatalogueFigure(Spec):
    """Figure that is a value of the catalogue."""

    kind: Literal["catalogue"]
    of: Annotated[str, Field(pattern=r"^(gpu|server|link|model|offer) \S+$")]
    """Kind and id of the entry: `gpu rtx-4090`, `offer dgx-h100/new-2025-10`."""
    value: Label
    """Field of the entry, dotted where it is nested: fp16_flops."""
    per: Positive = 1
    """Divisor of the value, for another unit: 1e12 for TFLOPS."""
    absent: Number | None = None
    """Figure where the catalogue states that there is no value (a card without NVLink). Default: an error."""


class FormulaFigure(Spec):
    """Figure computed by a formula of sim/claims/formulas.py."""

    kind: Literal["arithmetic"]
    formula: Label
    """Name of a formula in sim/claims/formulas.py."""
    of: dict[Label, Number | str] | tuple[Number | str, ...] = ()
    """Arguments in order or by name: numbers, or names of other figures."""


class WeightsFigure(Spec):
    """Figure for the bytes of a language model's weights in a format, over all GPUs."""

    kind: Literal["weights"]
    model: str
    """Model id of the catalogue."""
    quantization: str = "none"
    """Id in data/quantizations; none: the model's own dtype."""
    per: Positive = 1e9
    """Divisor of the bytes: 1e9 for GB, 1073741824 for GiB."""


class MemoryFigure(Spec):
    """Figure of the memory fit of a fleet's first pool; nothing is simulated."""

    kind: Literal["memory"]
    fleet: str
    """Name of a fleet of the scenario."""
    value: Literal["fits", "kv_tokens", "gpus", "reserved_gb"]
    """Quantity of the memory fit. fits: 1 where the model and at least one request fit, else 0; reserved_gb: memory
    that the engine reserves on all GPUs of a replica for weights, cache and itself."""
    set: Values = Field(default_factory=dict)
    """Dotted path in the scenario -> value that replaces its value for this figure."""


class SummaryFigure(Spec):
    """Figure from a column of summary.csv for one fleet at one point."""

    kind: Literal["run"]
    fleet: str
    """Name of a fleet of the scenario."""
    metric: Label
    """Column of summary.csv."""
    set: Values = Field(default_factory=dict)
    """Dotted path in the scenario -> value that replaces its value for this figure."""


class LedgerFigure(Spec):
    """Figure for the cost of one bill component [USD/h], for one fleet at one point."""

    kind: Literal["ledger"]
    fleet: str
    """Name of a fleet of the scenario."""
    component: Label
    """Component as in costs.csv: hosting, energy, staff, ..."""
    set: Values = Field(default_factory=dict)
    """Dotted path in the scenario -> value that replaces its value for this figure."""


class CapacityFigure(Spec):
    """Figure from a column of capacity.csv: results of a fleet at the highest load within the service level."""

    kind: Literal["capacity"]
    fleet: str
    """Name of a fleet of the scenario."""
    metric: Label = "load"
    """Column of capacity.csv; load: the capacity itself."""
    set: Values = Field(default_factory=dict)
    """Dotted path in the scenario -> value that replaces its value for this figure."""
    relative: Positive = 0.05
    """Relative width of the last bracket of the search."""


class CheapestFigure(Spec):
    """Figure for the monthly cost of the cheapest fleet that `size` finds, of one kind of GPU or of all."""

    kind: Literal["size"]
    gpu: str | None = None
    """Id of the only GPU in the fleet. Default: any."""
    value: Literal["usd_per_month", "gpus"] = "usd_per_month"
    """Quantity of the cheapest fleet: its monthly cost [USD/month] or its number of GPUs."""
    set: Values = Field(default_factory=dict)
    """Dotted path in the scenario -> value that replaces its value for this figure."""


FigureSpec = Annotated[
    CatalogueFigure
    | FormulaFigure
    | WeightsFigure
    | MemoryFigure
    | SummaryFigure
    | LedgerFigure
    | CapacityFigure
    | CheapestFigure,
    Tagged("kind"),
]


Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
Text = Annotated[str, Field(min_length=1)]
PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_]*)(?::([,.0-9a-z%+]*))?\}")
"""Pattern of `{name}` or `{name:.1f}` in a text, which is replaced by the figure of that name."""


class HasName(Protocol):
    """Fleet of any kind of scenario, with a name."""

    @property
    def name(self) -> str:
        """Name of the fleet in the outputs."""


class ClaimRule(Spec):
    """Rule that a figure must satisfy for its part of the claim to hold; exactly one key."""

    within: Positive | None = None
    """Largest relative deviation from the claimed figure."""
    at_least: Number | None = None
    """Smallest figure with which the part holds."""
    at_most: Number | None = None
    """Largest figure with which the part holds."""
    between: tuple[Number, Number] | None = None
    """Smallest and largest figure with which the part holds."""

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if len(self.model_dump(exclude_none=True)) != 1:
            raise ValueError("exactly one of within, at_least, at_most and between is needed")
        if self.between is not None and self.between[0] > self.between[1]:
            raise ValueError("between: the lower end comes first")
        return self


class ClaimPart(Spec):
    """Part of the claim, with the figure that decides whether it holds."""

    says: Text
    """Statement of this part, as in parts.csv."""
    figure: Name | None = None
    """Name of the deciding figure; alternative to `cases`."""
    cases: dict[Text, Name] = Field(default_factory=dict)
    """Condition that the claim leaves open -> the figure under it."""
    claimed: Number | None = None
    """Number in the article, in `unit`. Default: the article gives none."""
    unit: str = ""
    """Unit of the figure; `yes/no` for a figure that is 1 or 0."""
    holds: ClaimRule
    """Rule that decides from the figure whether the part holds."""
    own_arithmetic: bool = False
    """True if the figure is the article's own formula with its own inputs: where it fails, the article has
    miscalculated."""

    @model_validator(mode="after")
    def _figure_or_cases(self) -> Self:
        if (self.figure is None) == (not self.cases):
            raise ValueError("figure or cases is needed, and not both")
        if self.holds.within is not None and not self.claimed:
            raise ValueError("holds.within is a fraction of `claimed`, which is missing or 0")
        return self

    @property
    def named(self) -> dict[str, str]:
        """Figures by condition; the key is empty for a figure without a condition."""
        return dict(self.cases) if self.figure is None else {"": self.figure}


class Claim(Spec):
    """Claim of an article: a statement, figures, and rules. The first part is the headline in claims.csv."""

    article: Literal["000", "001", "002", "003", "004"]
    """Number of the article that makes the claim."""
    statement: Text
    """Statement of the article, in our words."""
    figures: Annotated[dict[Name, FigureSpec], Field(min_length=1)]
    """Name -> figure that parts, formulas and texts refer to."""
    parts: Annotated[tuple[ClaimPart, ...], Field(min_length=1)]
    """Statements that are judged one by one, the headline first."""
    reason: Text
    """Sentence that explains the verdict, with `{figure}` where a figure is inserted."""
    notes: tuple[Text, ...] = ()
    """Notes on the basis of the verdict, on open points of the article, and on its contradictions."""

    def order(self) -> list[str]:
        """Return the names of the figures, each after those that it is computed from. Raises CycleError."""
        return list(TopologicalSorter({name: needs(spec) for name, spec in self.figures.items()}).static_order())


def needs(spec: Any) -> list[str]:
    """Return the names of the figures that a figure is computed from."""
    if not isinstance(spec, FormulaFigure):
        return []
    arguments = spec.of.values() if isinstance(spec.of, dict) else spec.of
    return [one for one in arguments if isinstance(one, str)]


def claim_issues(claim: Claim) -> Iterator[ValidationIssue]:
    """Yield issues of unknown figures, circular figures, and placeholders without a figure."""
    known = claim.figures
    for name, spec in known.items():
        for other in needs(spec):
            if other not in known:
                yield ValidationIssue(("claim", "figures", name, "of"), _unknown_figure(other, known))
    for index, part in enumerate(claim.parts):
        for name in part.named.values():
            if name not in known:
                yield ValidationIssue(("claim", "parts", index), _unknown_figure(name, known))
    texts: list[tuple[tuple[str | int, ...], str]] = [(("claim", "reason"), claim.reason)]
    texts += [(("claim", "notes", index), note) for index, note in enumerate(claim.notes)]
    for place, text in texts:
        for found in PLACEHOLDER.finditer(text):
            if found[1] not in known:
                yield ValidationIssue(place, _unknown_figure(found[1], known))
    try:
        claim.order()
    except CycleError as error:
        yield ValidationIssue(
            ("claim", "figures"), Message("figures depend on each other: {figures}", " on ".join(error.args[1]))
        )


def _unknown_figure(name: str, known: Any) -> str:
    return Message("there is no figure {name!r}{hint}", name, did_you_mean(name, known))


def fleet_issues(claim: Claim, fleets: Iterable[HasName]) -> Iterator[ValidationIssue]:
    """Yield issues of figures of fleets that the scenario does not have."""
    names = [fleet.name for fleet in fleets]
    for name, spec in claim.figures.items():
        fleet = getattr(spec, "fleet", None)
        if fleet is not None and fleet not in names:
            place = ("claim", "figures", name, "fleet")
            yield ValidationIssue(
                place, Message("there is no fleet {fleet!r}{hint}", fleet, did_you_mean(fleet, names))
            )


def _check(claim: Claim, scenario: Experiment, _: Everything) -> Iterator[ValidationIssue]:
    yield from fleet_issues(claim, scenario.fleets)


def _check_terms(claim: Claim, _: Experiment, __: Catalog) -> Iterator[ValidationIssue]:
    yield from claim_issues(claim)


CLAIM = Section(command="claims", of_fleets=True, check=_check, check_terms=_check_terms)
