"""Checks of a scenario that its schema cannot express: unknown ids and contradictory settings.

Checks of the whole scenario are here: its names, warm-up, site, plan and prices. Those of its pools, services, routers
and limits are called from here.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unicodedata import normalize

from pydantic import ValidationError

from sim.catalogue.catalog import Catalog
from sim.catalogue.checkpoint_names import model_of
from sim.catalogue.data_folder import UnknownId
from sim.catalogue.hf_config.config import ConfigError
from sim.cost import token_api
from sim.cost.actuals import ActualsError
from sim.cost.clock import ClockError, SiteClock
from sim.cost.cost_plan import Cost, resolve_costs
from sim.cost.finance import Finance
from sim.cost.metering import DEMAND_INTERVAL_S
from sim.cost.prices import CostError
from sim.cost.site import Site
from sim.message import Message
from sim.scenario.checks.limits import load_issues
from sim.scenario.checks.pools import (
    cap_issues,
    ejection_issues,
    fleet_switching_issues,
    pool_issues,
    unknown_rates,
    unused_calibration,
)
from sim.scenario.checks.routing import (
    adapter_use_issues,
    fair_issues,
    level_issues,
    queue_limit_issues,
    role_issues,
    routing_issues,
)
from sim.scenario.checks.services import service_workload_issues, sharing_issues
from sim.scenario.experiment import Experiment
from sim.scenario.reading.errors import InputError
from sim.scenario.reading.layers import mappings, unknown_ids, unknown_prices, value_at, with_values
from sim.scenario.resolving.bind import BoundPool, load_calibration
from sim.scenario.resolving.resolve import pool_models, pool_names, resolve_fleet
from sim.scenario.resolving.terms import FleetTerms, other_currencies
from sim.scenario.schema import LONGEST_NAME, SECTIONS, Fleet, Pool, Scenario
from sim.scenario.sections import Section
from sim.validation import Place, ValidationIssue, validation_issues
from sim.workload import TraceError, hourly_table, length_table


def warmup_issues(scenario: Experiment) -> Iterator[ValidationIssue]:
    """Yield an issue for an automatic warm-up of a workload without a steady state."""
    if scenario.warmup_s == "auto" and not scenario.workload.stationary:
        text = "auto looks for a steady state, and a trace, a burst or a profile has none; give seconds"
        yield ValidationIssue(("warmup_s",), text)
    elif scenario.warmup_s == "auto" and scenario.horizon_s is None:
        yield ValidationIssue(
            ("warmup_s",), "auto looks for a steady state, and without horizon_s the run ends in a drain"
        )


def site_issues(scenario: Scenario) -> Iterator[ValidationIssue]:
    """Yield issues of local times and time zones, and of meters too slow for a demand charge."""
    sites: list[tuple[Place, Site | None]] = [(("site",), scenario.site)]
    sites += [(("fleets", i, "site"), fleet.site) for i, fleet in enumerate(scenario.fleets)]
    for place, site in sites:
        if site is None:
            continue
        if site.demand_usd_per_kw_month is not None and scenario.meter_interval_s > DEMAND_INTERVAL_S:
            text = Message(
                "must be at most {demand_interval_s:g} (15 minutes), over which a demand charge averages power",
                DEMAND_INTERVAL_S,
            )
            yield ValidationIssue(
                ("meter_interval_s",), Message("{text}, not {given:g}", text, scenario.meter_interval_s)
            )
        if site.timezone is None:
            continue
        if scenario.starts_at is None:
            yield ValidationIssue((*place, "timezone"), "needs starts_at: the date and local time at simulated time 0")
            continue
        try:
            SiteClock.of(scenario.starts_at, site.timezone)
        except ClockError as error:
            yield ValidationIssue(("starts_at",), str(error))


Found = list[ValidationIssue | InputError]

MOST_ROUNDS = 3
"""Number of rounds of removals: invalid values first, then values that are invalid without those removed."""


def _checkpoint_issues(data: Any, catalog: Catalog) -> Iterator[ValidationIssue]:
    """Yield an issue for each checkpoint that is known as one of another model than the nearest one stated with it."""
    levels: list[tuple[Place, Any, Any]] = [((), data, None)]
    levels += [(("services", i), one, data) for i, one in mappings(data, "services")]
    for i, fleet in mappings(data, "fleets"):
        levels += [(("fleets", i), fleet, data)]
        levels += [(("fleets", i, "pools", j), pool, data | fleet) for j, pool in mappings(fleet, "pools")]
    for place, level, above in levels:
        name = level.get("checkpoint") if isinstance(level, dict) else None
        stated = level.get("model", (above or {}).get("model")) if name else None
        if not isinstance(name, str) or not isinstance(stated, str):
            continue
        with suppress(UnknownId, ConfigError):
            model = catalog.any_model(stated)
            if model.id in catalog.ids("models") and (own := model_of(name, catalog)).id != model.id:
                yield ValidationIssue(
                    (*place, "checkpoint"),
                    Message(
                        "is one of {own}, and the model is {model}: remove it, or name one of this model",
                        own.id,
                        model.id,
                    ),
                )


def id_issues(data: Any, catalog: Catalog) -> list[ValidationIssue]:
    """Return issues of duplicate names and of ids that are not in the catalogue, in raw scenario *data*."""
    everywhere: dict[str, Callable[[str], object]] = {
        "model": catalog.any_model,
        "quantization": catalog.quantization,
        "kernel": catalog.kernel,
        "engine": catalog.engine,
        "calibration": load_calibration,
    }
    in_pools = everywhere | {"gpu": catalog.gpu, "server": catalog.server, "link": catalog.link}
    found = [*_name_issues(data), *unknown_ids(data, (), everywhere), *_checkpoint_issues(data, catalog)]
    found += unknown_ids(value_at(data, ("workload", "arrivals")), ("workload", "arrivals"), {"shape": hourly_table})
    found += unknown_ids(value_at(data, ("carbon",)), ("carbon",), {"grid": catalog.grid})
    for side in ("prompt", "output"):
        lengths: Place = ("workload", "lengths", side)
        found += unknown_ids(value_at(data, lengths), lengths, {"table": length_table})
    for i, service in mappings(data, "services"):
        found += unknown_ids(service, ("services", i), everywhere)
    booked: Place = ("operations", "failures")
    found += unknown_ids(value_at(data, booked), booked, {"rate": catalog.failure_rate})
    for i, fleet in mappings(data, "fleets"):
        place: Place = ("fleets", i)
        found += unknown_ids(value_at(fleet, booked), (*place, *booked), {"rate": catalog.failure_rate})
        found += unknown_ids(fleet, place, everywhere)
        found += unknown_ids(fleet.get("kv_transfer"), (*place, "kv_transfer"), {"link": catalog.link})
        found += unknown_ids(fleet.get("carbon"), (*place, "carbon"), {"grid": catalog.grid})
        found += unknown_prices(fleet.get("cost"), (*place, "cost"), catalog)
        for j, pool in mappings(fleet, "pools"):
            found += unknown_ids(pool, (*place, "pools", j), in_pools)
            found += unknown_prices(pool.get("cost"), (*place, "pools", j, "cost"), catalog)
            drafts: Place = (*place, "pools", j, "batching", "speculative")
            in_drafts = {"draft_model": catalog.model, "acceptance": catalog.accepted}
            found += unknown_ids(value_at(data, drafts), drafts, in_drafts)
            found += unknown_rates(pool, (*place, "pools", j), catalog)
            found += unknown_ids(pool.get("network"), (*place, "pools", j, "network"), {"link": catalog.link})
            found += unknown_ids(pool.get("cold_start"), (*place, "pools", j, "cold_start"), {"link": catalog.link})
    for name, section in SECTIONS.items():
        if section.check_ids is not None:
            found += section.check_ids(value_at(data, (name,)), catalog)
    return found


def salvaged(data: Any, found: Iterable[ValidationIssue]) -> tuple[Scenario | None, list[ValidationIssue]]:
    """Return *data* without its mistakes, so that one does not hide another (None if invalid), and these mistakes.

    The mistakes are those *found* in the data, and those that the schema finds once the places of these are removed.
    """
    data, mistakes = with_values(data, {}), [*found]
    wrong = mistakes
    for _ in range(MOST_ROUNDS):
        _take_out(data, wrong)
        try:
            return Scenario.model_validate(data), mistakes
        except ValidationError as error:  # a mapping without its invalid key may be invalid: removed in the next round
            wrong = validation_issues(error, Scenario, data)
            mistakes = mistakes + wrong
    return None, mistakes


def _take_out(data: dict[str, Any], wrong: Iterable[ValidationIssue]) -> None:
    for one in wrong:
        if one.place[:1] == ("workload",) or not one.place:
            data["workload"] = _ANY_WORKLOAD
            continue
        *above, last = one.place
        holder = value_at(data, tuple(above))
        if isinstance(holder, dict) and last not in holder and above:  # a missing key: its mapping is removed
            *above, last = above
            holder = value_at(data, tuple(above))
        if isinstance(holder, dict):
            holder.pop(last, None)


_ANY_WORKLOAD = {
    "arrivals": {"process": "burst", "num_requests": 1},
    "lengths": {side: {"distribution": "fixed", "value": 1} for side in ("prompt", "output")},
}


def scenario_issues(scenario: Scenario) -> Found:
    """Return contradictions between keys, and mistakes in the trace."""
    found: Found = []
    for section, keys in _given(scenario):
        if section.check is not None:
            found += section.check(keys, scenario, scenario_issues)
    if "/" in scenario.name or scenario.name in ("", ".", ".."):
        found.append(
            ValidationIssue(
                ("name",), Message("{name!r} is not the name of a folder, which the results need", scenario.name)
            )
        )
    elif len(scenario.name.encode("utf-8", "replace")) > LONGEST_NAME:
        text = Message("is too long a name for a folder: at most {longest_name} bytes in UTF-8", LONGEST_NAME)
        found.append(ValidationIssue(("name",), text))
    scheduled = any(pool.schedule for fleet in scenario.fleets for pool in fleet.pools)
    if scheduled and scenario.horizon_s is None:
        found.append(ValidationIssue(("horizon_s",), "is missing: a schedule has no end"))
    failing = any(pool.failures or pool.spot for fleet in scenario.fleets for pool in fleet.pools)
    if failing and not scheduled and scenario.horizon_s is None:
        found.append(ValidationIssue(("horizon_s",), "is missing: failures have no end"))
    if scenario.cost_per_request and scenario.requests == "none":
        found.append(ValidationIssue(("cost_per_request",), "uses the request table: requests must be csv or parquet"))
    if scenario.horizon_s is None and scenario.workload.needs_horizon:
        found.append(ValidationIssue(("horizon_s",), "is missing: nothing else ends these arrivals"))
    found += service_workload_issues(scenario)
    found += level_issues(scenario)
    found += site_issues(scenario)
    found += warmup_issues(scenario)
    found += _actuals_issues(scenario)
    if scenario.horizon_s is not None and scenario.warmup_s != "auto" and scenario.warmup_s >= scenario.horizon_s:
        message = Message(
            "must be below horizon_s ({horizon_s:g}), not {warmup_s:g}", scenario.horizon_s, scenario.warmup_s
        )
        found.append(ValidationIssue(("warmup_s",), message))
        return found
    try:
        scenario.workload.verify()
    except TraceError as error:
        return found + [_in_the_file(("workload", "trace", "path"), *one) for one in error.errors]
    except UnknownId:
        return found  # `id_issues` reports the id
    found += load_issues(scenario)
    if scenario.workload.trace is not None:
        found += _window_issues(scenario)
    return found


def _given(scenario: Scenario) -> Iterator[tuple[Section[Any], Any]]:
    """Yield the registered sections that *scenario* has, with their values."""
    for name, section in SECTIONS.items():
        if (keys := getattr(scenario, name)) is not None:
            yield section, keys


def _name_issues(data: Any) -> Iterator[ValidationIssue]:
    """Yield issues of services, fleets, and pools of one fleet with the same name."""
    fleets = list(mappings(data, "fleets"))
    for key in ("services", "fleets"):
        yield from _repeated_name_issues(((key, i, "name"), held.get("name")) for i, held in mappings(data, key))
    if any(holder.get("api") for holder in (data, *(fleet for _, fleet in fleets))):
        for i, fleet in fleets:
            if fleet.get("name") == token_api.NAME:
                text = Message(
                    "{name!r} is the name of the API in tables (section api); choose another name", token_api.NAME
                )
                yield ValidationIssue(("fleets", i, "name"), text)
    for i, fleet in fleets:
        yield from _repeated_name_issues(
            (("fleets", i, "pools", j, "name"), pool.get("name")) for j, pool in mappings(fleet, "pools")
        )


def _repeated_name_issues(named: Iterable[tuple[Place, Any]]) -> Iterator[ValidationIssue]:
    seen: Counter[str] = Counter()
    for place, name in named:
        if isinstance(name, str):
            read = normalize("NFKC", name)
            seen[read] += 1
            if seen[read] == 2:
                yield ValidationIssue(place, Message("the name {name!r} is given twice", name))


def _actuals_issues(scenario: Scenario) -> Iterator[ValidationIssue | InputError]:
    """Yield issues of the file of actual payments beside a plan."""
    if scenario.plan is None or (actuals := scenario.plan.actuals) is None:
        return
    names = [fleet.name for fleet in scenario.fleets]
    names += [token_api.NAME] if scenario.api or any(fleet.api for fleet in scenario.fleets) else []
    try:
        actuals.read(scenario.plan.dates, names)
    except ActualsError as error:
        for line, text in error.errors:
            yield _in_the_file(("plan", "actuals", "path"), actuals.path, line, text)


def _in_the_file(place: Place, path: str, line: int, message: str) -> ValidationIssue | InputError:
    shown = Path(path)
    if shown.is_relative_to(Path.cwd()):
        shown = shown.relative_to(Path.cwd())
    if line == 0 and message.startswith("cannot be read"):
        return ValidationIssue(place, Message("{shown} {message}", shown, message))
    return InputError(str(shown), line, "", message)


def _window_issues(scenario: Scenario) -> Iterator[ValidationIssue]:
    """Yield an issue for a measured window in which no request of the trace arrives."""
    assert scenario.workload.trace is not None
    arrived_s = scenario.workload.trace.requests(scenario.horizon_s).arrived_s
    warmup_s = 0.0 if scenario.warmup_s == "auto" else scenario.warmup_s
    if len(arrived_s) == 0 or arrived_s[-1] < warmup_s:
        key = "warmup_s" if len(arrived_s) else "horizon_s"
        yield ValidationIssue((key,), "no request of the trace arrives in the measured window")


def plan_issues(scenario: Scenario, catalog: Catalog) -> list[ValidationIssue]:
    """Return the issues with which fleets cannot be built: refused layouts and limits, missing prices."""
    found: list[ValidationIssue] = []
    bound: list[BoundPool] = []
    complete = True
    sections = list(_given(scenario))
    for section, keys in sections:
        if section.check_terms is not None:
            found += section.check_terms(keys, scenario, catalog)
    found += [ValidationIssue(("fleets", i, "finance", "currency"), told) for i, told in other_currencies(scenario)]
    found += _fiscal_year_issues(scenario)
    for i, fleet in enumerate(scenario.fleets):
        try:
            models = [pool_models(scenario, fleet, pool, catalog) for pool in fleet.pools]
        except ValueError:  # an unknown id, which `id_issues` reports
            models = []
        if not models or not all(_serves_known_services(scenario, pool) for pool in fleet.pools):
            complete = False
            found += _terms_issues(scenario, i, fleet)
            continue
        pools = [replace(each[0], spec=pool) for each, pool in zip(models, fleet.pools, strict=True)]
        bound += [pool for each in models for pool in each]
        wrong: list[ValidationIssue] = []
        for j, each in enumerate(models):
            issues = (one for pool in each for one in pool_issues(pool, ("fleets", i, "pools", j), catalog))
            wrong += dict.fromkeys(issues)
            wrong += sharing_issues(scenario, fleet, each, ("fleets", i, "pools", j))
        wrong += unused_calibration(fleet.calibration, pools, ("fleets", i))
        wrong += [one for pool in pools for one in cap_issues(pool, fleet, ("fleets", i), catalog)]
        wrong += fleet_switching_issues(fleet, ("fleets", i))
        wrong += ejection_issues(scenario, fleet, ("fleets", i))
        wrong += fair_issues(scenario, pools, ("fleets", i))
        wrong += queue_limit_issues(scenario, fleet, pools, ("fleets", i))
        wrong += adapter_use_issues(scenario, fleet, pools, ("fleets", i))
        wrong += role_issues(scenario, fleet, pools, ("fleets", i))
        wrong += routing_issues(fleet, pools, pool_names(pools), ("fleets", i))
        found += wrong
        found += _terms_issues(scenario, i, fleet) if wrong else _cost_issues(scenario, i, models, catalog)
    if complete and not found:
        for section, keys in sections:
            if section.check_bills is not None:
                found += section.check_bills(keys, scenario, lambda one: resolve_fleet(scenario, one, catalog))
    tried = _tried_gpus(scenario, catalog)
    return [*found, *(unused_calibration(scenario.calibration, bound, (), tried) if complete else ())]


def _fiscal_year_issues(scenario: Scenario) -> Iterator[ValidationIssue]:
    """Yield issues of fiscal years by the calendar where no month has a date."""
    if scenario.plan is not None or (scenario.price_paths is not None and scenario.price_paths.starts is not None):
        return
    holders: list[tuple[Place, Finance | None]] = [(("finance",), scenario.finance)]
    holders += [(("fleets", i, "finance"), fleet.finance) for i, fleet in enumerate(scenario.fleets)]
    text = "needs a date: state the month of delivery in price_paths.starts, or a plan"
    for place, finance in holders:
        if finance is not None and finance.fiscal_year_start_month is not None:
            key = (*place, "fiscal_year_start_month")
            yield ValidationIssue(key, text, ("plan.starts", "price_paths.starts"))


def _tried_gpus(scenario: Scenario, catalog: Catalog) -> set[str]:
    """Return the ids of the GPUs of which `size` builds fleets."""
    try:
        return {catalog.gpu(name).id for name in scenario.size.gpus} if scenario.size else set()
    except UnknownId:
        return set()  # `id_issues` reports the id


def _serves_known_services(scenario: Scenario, pool: Pool) -> bool:
    """Return True if the services of *pool* are known; their names are checked elsewhere."""
    names = {service.name for service in scenario.services}
    return not names or (bool(pool.served) and names.issuperset(pool.served))


def _terms_issues(scenario: Scenario, index: int, fleet: Fleet) -> Iterator[ValidationIssue]:
    """Yield issues of the terms of buying, which are checked independently of the hardware."""
    ordered = FleetTerms.of(scenario, fleet).ordered
    costs: list[tuple[Place, Cost | None]] = [((), ordered(fleet.cost))]
    costs += [(("pools", j), ordered(pool.cost)) for j, pool in enumerate(fleet.pools)]
    reported: set[tuple[str, str]] = set()
    site, finance = fleet.site or scenario.site, fleet.finance or scenario.finance
    operations = fleet.operations or scenario.operations
    for holder, cost in costs:
        try:
            if cost is not None:
                resolve_costs(cost, site, finance, [], lambda _: None, operations=operations)
        except CostError as error:
            for path, text in error.problems:
                inside = path.split(".")[0] == "cost"
                if inside:
                    yield ValidationIssue(("fleets", index, *holder, *path.split(".")), text)
                elif (path, text) not in reported:
                    yield ValidationIssue(_of_fleet(scenario, index, fleet, path), text)
                reported.add((path, text))


def _cost_issues(
    scenario: Scenario, index: int, models: Sequence[Sequence[BoundPool]], catalog: Catalog
) -> Iterator[ValidationIssue]:
    """Yield issues of planning and pricing the fleet at *index*, whose bound pools are *models*."""
    fleet = scenario.fleets[index]
    try:
        resolve_fleet(scenario, fleet, catalog, models)
    except ArithmeticError:
        yield ValidationIssue(("fleets", index), "holds a number too large or too small to compute with")
    except UnknownId:
        return  # `id_issues` reports the id
    except ClockError:
        return  # `site_issues` reports the error
    except CostError as error:
        for path, text in error.problems:
            yield ValidationIssue(_of_fleet(scenario, index, fleet, path), text)


def _of_fleet(scenario: Scenario, index: int, fleet: Fleet, path: str) -> Place:
    """Return the place of *path* of a fleet's terms: in the fleet, or at the top for a shared section."""
    steps: Place = tuple(int(step) if step.isdecimal() else step for step in path.split("."))
    shared = steps[0] != "cost" and getattr(fleet, str(steps[0])) is None
    stands_at_top = shared and getattr(scenario, str(steps[0])) is not None
    return steps if stands_at_top else ("fleets", index, *steps)
