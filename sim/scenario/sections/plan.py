"""Several years month by month: whether fleets, prices and terms suffice for the section `plan`.

Its keys are those of `sim.cost.MultiYear`.
"""

from collections.abc import Iterator

from sim.catalogue.catalog import Catalog
from sim.cost import CostError, MultiYear
from sim.cost.finance.multi_year import ExistingUnits
from sim.cost.purchase.buying import Buy
from sim.cost.rent.rental import Rent
from sim.scenario.experiment import Experiment, Fleet
from sim.scenario.reading.errors import Complaint, did_you_mean
from sim.scenario.resolving.resolve import resolve_fleet
from sim.scenario.sections.section import Everything, Section


def _check(plan: MultiYear, scenario: Experiment, _: Everything) -> Iterator[Complaint]:
    """Fleets without a cost, names of fleets that do not exist, and a missing discount rate."""
    names = [fleet.name for fleet in scenario.fleets]
    for i, fleet in enumerate(scenario.fleets):
        if fleet.has_own_costs:
            yield Complaint(("fleets", i, "pools"), "a plan over years orders whole fleets: give the fleet one cost")
        elif fleet.cost is None:
            yield Complaint(("fleets", i, "cost"), "is missing: a plan over years needs to know what a unit costs")
        elif plan.discount_rate is None and fleet.finance is None and scenario.finance is None:
            yield Complaint(("plan", "discount_rate"), "is missing: no finance section gives one")
            break
    for name in plan.bridge:
        if name not in names:
            yield Complaint(("plan", "bridge", name), f"unknown fleet {name!r}{did_you_mean(name, names)}")
        elif not isinstance(scenario.fleets[names.index(name)].cost, Buy):
            yield Complaint(("plan", "bridge", name), "rents already: nothing is on the way that could be bridged")
    for index, entry in enumerate(plan.existing):
        for key, text in _existing_problems(scenario, plan, entry):
            yield Complaint(("plan", "existing", index, key), text)


def _existing_problems(scenario: Experiment, plan: MultiYear, entry: ExistingUnits) -> Iterator[tuple[str, str]]:
    """(key, what is wrong) of an entry of `plan.existing`."""
    fleet = next((one for one in scenario.fleets if one.name == entry.fleet), None)
    if fleet is None:
        names = [one.name for one in scenario.fleets]
        yield "fleet", f"unknown fleet {entry.fleet!r}{did_you_mean(entry.fleet, names)}"
    elif isinstance(fleet.cost, Rent):
        yield "fleet", f"{entry.fleet} rents: what exists is owned; name a fleet that buys"
    age = plan.age_months(entry.bought)
    if age < 0:
        yield "bought", f"{entry.bought} is after the plan starts, {plan.starts}: what comes later is an order"
    finance = (fleet.finance or scenario.finance) if fleet is not None else None
    if finance is not None and age >= finance.whole_life_months:
        life = f"a life of {finance.life_years:g} years is over"
        yield "bought", f"{entry.bought} is {age} months before the plan starts: {life}"


def _check_bills(plan: MultiYear, scenario: Experiment, catalog: Catalog) -> Iterator[Complaint]:
    """Prices that are missing for renting what a fleet buys."""
    for fleet in scenario.fleets:
        bridged = bridged_fleet(plan, fleet)
        if bridged is None or not isinstance(fleet.cost, Buy):
            continue
        try:
            resolve_fleet(scenario, bridged, catalog)
        except CostError as error:
            for path, text in error.problems:
                place = ("plan", "bridge", fleet.name, *path.split(".")[1:])
                yield Complaint(place, text.replace("cost.", f"plan.bridge.{fleet.name}."))


def bridged_fleet(plan: MultiYear, fleet: Fleet) -> Fleet | None:
    """*fleet* as it is rented until its own hardware comes; None where the *plan* has no such terms."""
    terms = plan.bridge.get(fleet.name)
    return None if terms is None else fleet.model_copy(update={"cost": terms})


PLAN = Section(
    command="plan",
    of_fleets=True,
    check=_check,
    check_bills=_check_bills,
    months=("years", lambda plan: plan.months),
    example="""\
# months and years to come, for `gpufleet plan`; also reserve_units, rental_term_months, bridge (rent while orders come)
# plan: {years: 4, starts: 2027-01, demand: {growth_per_year: 0.5}, peak_to_mean: 2, lead_time_months: 3,
#   price_decline_per_year: 0.1, existing: [{fleet: 2x RTX 4090, units: 1, bought: 2025-03, book_value_usd: 3000}]}""",
)
