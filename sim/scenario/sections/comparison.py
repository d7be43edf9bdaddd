"""Sections `compare`, `breakeven` and `plan`: the fleets that are compared, and the time span.

`compare` ranks fleets, `breakeven` asks where one candidate becomes cheaper than another, `plan` follows several years
month by month (its keys are those of `sim.cost.MultiYear`). The checks report fleets, prices and terms that a
comparison needs and the scenario lacks.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from sim.cost import token_api
from sim.cost.buying import Buy
from sim.cost.cost_plan import Cost
from sim.cost.financing import OWN_MONEY, Financing
from sim.cost.multi_year import ExistingUnits, MultiYear
from sim.cost.prices import CostError
from sim.cost.rental import Rent
from sim.message import Message
from sim.scenario.experiment import Experiment, Fleet, nearest
from sim.scenario.sections import Billing, Everything, Section
from sim.spec import Count, Positive, Spec
from sim.validation import Place, ValidationIssue, did_you_mean


class Compare(Spec):
    """Ranking of fleets."""

    across_models: bool = False
    """True to rank fleets that serve different models against each other, as if their tokens were of equal value.
    Default: verdicts rank the fleets of each model on their own."""


def models_of(scenario: Experiment, compare: Compare | None) -> Mapping[str, str]:
    """Return the model of every fleet where fleets of different models are ranked separately; empty for one ranking.

    Several models of a fleet are joined by commas.
    """
    if compare is not None and compare.across_models:
        return {}
    found = {fleet.name: model_of(fleet, scenario) for fleet in scenario.fleets}
    return found if len(set(found.values())) > 1 else {}


def model_of(fleet: Fleet, scenario: Experiment) -> str:
    """Return the id of the model that *fleet* serves, several joined by commas; empty without a model."""
    models = {
        nearest(pool.model, service, fleet.model, scenario.model)
        for pool in fleet.pools
        for service in [one.model for one in scenario.services if one.name in pool.served] or [None]
    }
    return ", ".join(sorted(model for model in models if model))


COMPARE: Section[Compare] = Section(
    repriced=True,
    of_fleets=True,
    example="# compare: {across_models: true}   # rank fleets that serve different models as one product",
)


OWN_WAY = {"buy": "bought", "rent": "rented"}
"""Label of a fleet's own acquisition where it has other costs as well."""


def candidate_names(fleet: Fleet, ways: Iterable[str]) -> list[str]:
    """Return the names of the candidates of *fleet*: its own cost, then those of `also`."""
    if fleet.cost is None:
        return [fleet.name]
    labels = list(ways)
    own = f"{fleet.name} {OWN_WAY[fleet.cost.acquisition]}" if labels else fleet.name
    return [own, *(f"{fleet.name} {label}" for label in labels)]


class Breakeven(Spec):
    """Other costs of the same hardware, and the time span. All keys are optional."""

    also: dict[str, dict[Annotated[str, Field(min_length=1)], Cost]] = Field(default_factory=dict)
    """Fleet -> label -> another `cost` of the same hardware: {a: {rented: {acquisition: rent, ...}}}."""
    financing: dict[Annotated[str, Field(min_length=1)], Financing] = Field(default_factory=dict)
    """Label -> loan or lease that each purchase is compared with: {bank: {loan: ...}, leasing: {lease: ...}}."""
    load: Positive | None = None
    """Load of the months and of the verdict, in the workload's unit (requests per second, clients, or the trace's
    speed). Default: the workload's. With a `load_profile` it is the mean over the year, to which the profile is scaled;
    default: the profile's own."""
    months: Count = 60
    """Time span of the cash flows [months]."""


def _check_breakeven(breakeven: Breakeven, scenario: Experiment, _: Everything) -> Iterator[ValidationIssue]:
    """Yield issues of unknown fleets in `also`, and of names shared by two candidates."""
    names = [fleet.name for fleet in scenario.fleets]
    for name in breakeven.also:
        if name not in names:
            yield ValidationIssue(
                ("breakeven", "also", name),
                Message("there is no fleet {name!r}{hint}", name, did_you_mean(name, names)),
            )
    yield from _check_financing(breakeven, scenario)
    taken = {token_api.NAME} if scenario.api is not None else set()
    for fleet in scenario.fleets:
        for candidate in candidate_names(fleet, breakeven.also.get(fleet.name, {})):
            if candidate in taken:
                text = Message(
                    "two candidates are called {candidate!r}: choose another label, or rename the fleet", candidate
                )
                yield ValidationIssue(("breakeven", "also", fleet.name), text)
            taken.add(candidate)


def _check_financing(breakeven: Breakeven, scenario: Experiment) -> Iterator[ValidationIssue]:
    """Yield issues of labels that name other rows, and of leases that do not fit the life of hardware."""
    finances = [one for fleet in scenario.fleets if (one := fleet.finance or scenario.finance) is not None]
    for label, way in breakeven.financing.items():
        place: Place = ("breakeven", "financing", label)
        if label in (OWN_MONEY, "loan", "lease"):
            yield ValidationIssue(place, Message("{label!r} is the name of another row: choose another label", label))
        if way.lease is not None:
            texts = dict.fromkeys(text for one in finances if (text := one.misfit(way.lease)))
            yield from (ValidationIssue((*place, "lease", "term_months"), text) for text in texts)


def _check_breakeven_bills(breakeven: Breakeven, scenario: Experiment, billed: Billing) -> Iterator[ValidationIssue]:
    """Yield issues of the costs in `also` that cannot be billed."""
    fleets = {fleet.name: fleet for fleet in scenario.fleets}
    for name, ways in breakeven.also.items():
        for label, cost in ways.items() if name in fleets else ():
            try:
                billed(fleets[name].model_copy(update={"cost": cost}))
            except CostError as error:
                for path, text in error.problems:
                    steps: Place = tuple(path.split("."))
                    inside = steps[0] == "cost"
                    yield ValidationIssue(("breakeven", "also", name, label, *steps[1:]) if inside else steps, text)


BREAKEVEN = Section(
    command="breakeven",
    repriced=True,
    of_fleets=True,
    check=_check_breakeven,
    check_bills=_check_breakeven_bills,
    months=("months", lambda breakeven: breakeven.months),
    example="""\
# other ways to pay for a fleet, for `gpufleet breakeven`
# breakeven: {also: {2x RTX 4090: {rented: {acquisition: rent, quotes: {rtx-4090: 0.4}}}}}""",
)


def _check_plan(plan: MultiYear, scenario: Experiment, _: Everything) -> Iterator[ValidationIssue]:
    """Yield issues of fleets without a cost, of unknown fleets, and of a missing discount rate."""
    names = [fleet.name for fleet in scenario.fleets]
    for i, fleet in enumerate(scenario.fleets):
        if fleet.has_own_costs:
            yield ValidationIssue(
                ("fleets", i, "pools"), "a plan over years orders whole fleets: give the fleet one cost"
            )
        elif fleet.cost is None:
            yield ValidationIssue(
                ("fleets", i, "cost"), "is missing: a plan over years needs to know what a unit costs"
            )
        elif plan.discount_rate is None and fleet.finance is None and scenario.finance is None:
            yield ValidationIssue(("plan", "discount_rate"), "is missing: no finance section gives one")
            break
    rents: list[tuple[Place, Any]] = [(("fleets", i, "cost"), fleet.cost) for i, fleet in enumerate(scenario.fleets)]
    rents += [(("plan", "bridge", name), cost) for name, cost in plan.bridge.items()]
    for place, cost in rents:
        ramp = cost.commitment.ramp if isinstance(cost, Rent) and cost.commitment is not None else None
        if ramp is not None and ramp.gpus:
            text = "a plan rents what it needs beyond one number of committed GPUs: remove gpus"
            yield ValidationIssue((*place, "commitment", "ramp"), text)
    for name in plan.bridge:
        if name not in names:
            yield ValidationIssue(
                ("plan", "bridge", name), Message("unknown fleet {name!r}{hint}", name, did_you_mean(name, names))
            )
        elif not isinstance(scenario.fleets[names.index(name)].cost, Buy):
            yield ValidationIssue(
                ("plan", "bridge", name), "rents already: no order is on the way that could be bridged"
            )
    for index, entry in enumerate(plan.existing):
        for key, text in _existing_problems(scenario, plan, entry):
            yield ValidationIssue(("plan", "existing", index, key), text)


def _existing_problems(scenario: Experiment, plan: MultiYear, entry: ExistingUnits) -> Iterator[tuple[str, str]]:
    """Yield (key, message) for the problems of an entry of `plan.existing`."""
    fleet = next((one for one in scenario.fleets if one.name == entry.fleet), None)
    if fleet is None:
        names = [one.name for one in scenario.fleets]
        yield "fleet", Message("unknown fleet {fleet!r}{hint}", entry.fleet, did_you_mean(entry.fleet, names))
    elif isinstance(fleet.cost, Rent):
        yield "fleet", Message("{fleet} rents: existing units are owned; name a fleet that buys", entry.fleet)
    age = plan.age_months(entry.bought)
    if age < 0:
        yield (
            "bought",
            Message(
                "{bought} is after the start of the plan, {starts}: later purchases are orders",
                entry.bought,
                plan.starts,
            ),
        )
    finance = (fleet.finance or scenario.finance) if fleet is not None else None
    if finance is not None and age >= finance.whole_life_months:
        life = Message("a life of {life_years:g} years is over", finance.life_years)
        yield "bought", Message("{bought} is {age} months before the plan starts: {life}", entry.bought, age, life)


def _check_plan_bills(plan: MultiYear, scenario: Experiment, billed: Billing) -> Iterator[ValidationIssue]:
    """Yield issues of prices that are missing to rent what a fleet buys."""
    for fleet in scenario.fleets:
        bridged = bridged_fleet(plan, fleet)
        if bridged is None or not isinstance(fleet.cost, Buy):
            continue
        try:
            billed(bridged)
        except CostError as error:
            for path, text in error.problems:
                place = ("plan", "bridge", fleet.name, *path.split(".")[1:])
                yield ValidationIssue(place, text.replace("cost.", f"plan.bridge.{fleet.name}."))


def bridged_fleet(plan: MultiYear, fleet: Fleet) -> Fleet | None:
    """Return *fleet* as rented until its own hardware is delivered; None if the *plan* has no such terms."""
    terms = plan.bridge.get(fleet.name)
    return None if terms is None else fleet.model_copy(update={"cost": terms})


PLAN = Section(
    command="plan",
    of_fleets=True,
    check=_check_plan,
    check_bills=_check_plan_bills,
    months=("years", lambda plan: plan.months),
    example="""\
# months and years to come, for `gpufleet plan`; also reserve_units, rental_term_months, bridge (rent while orders come)
# plan: {years: 4, starts: 2027-01, demand: {growth_per_year: 0.5}, peak_to_mean: 2, lead_time_months: 3,
#   price_decline_per_year: 0.1, existing: [{fleet: 2x RTX 4090, units: 1, bought: 2025-03, book_value_usd: 3000}]}""",
)
