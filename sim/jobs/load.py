"""Reading and validation of scenario files with a `job` or with `jobs`; mistakes are reported with their lines."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sim.catalogue.catalog import Catalog
from sim.catalogue.hf_config.load import is_config
from sim.cost.clock import ClockError
from sim.cost.prices import CostError
from sim.jobs.plan import queue_issues, resolve_queue
from sim.jobs.schema import QueueScenario
from sim.message import Message
from sim.scenario.checks.limits import volume_issues
from sim.scenario.reading.errors import InputError, ScenarioErrors
from sim.scenario.reading.layers import (
    Layers,
    mappings,
    place_of,
    put,
    read_layers,
    unknown_ids,
    unknown_prices,
    value_at,
    with_values,
)
from sim.scenario.reading.load import (
    candidate_axes,
    command_line_options,
    default_names,
    extend_question,
    refuse_outside,
    reported_at_sweep,
    swept_values,
)
from sim.scenario.schema import Pool, Scenario
from sim.scenario.sweep import points, sweep_issues
from sim.training.bind import job_figures
from sim.training.checks import job_issues
from sim.training.figures import NotTrainable, network_named
from sim.training.plan import clock_of, resolve_job
from sim.training.schema import JobPool, JobScenario
from sim.validation import Place, ValidationIssue, validation_issues
from sim.yamlio import Document

AnyScenario = JobScenario | QueueScenario
TRACE_FILES: tuple[Place, ...] = (("jobs", "trace", "path"), ("jobs", "trace", "job_table"))
SERVING_ONLY = "applies to a workload of requests, and this scenario has jobs: remove one of them"
PARALLEL_KEYS = {
    "tensor_parallel_size": "use parallel: {tp: ...}",
    "pipeline_parallel_size": "use parallel: {pp: ...}",
    "data_parallel_size": "use parallel: {dp: ...}",
    "enable_expert_parallel": "use parallel: {ep: ...}",
}
"""Advice for keys of serving pools that training jobs express otherwise."""


def load_job(
    path: Path | str | Document,
    sets: Sequence[str] = (),
    *,
    catalog: Catalog,
    seed: int | None = None,
    replications: int | None = None,
) -> AnyScenario:
    """Read, merge, override and check a scenario with a `job` or `jobs`.

    The arguments are those of `sim.scenario.reading.load.load`.

    Raises
    ------
    ScenarioErrors
        The scenario has mistakes; the error lists all of them.

    """
    options = command_line_options(sets, seed, replications)
    layers = read_layers(path, options)
    layers.log_renamed()
    default_names(layers, None if isinstance(path, Document) else Path(path))
    if not layers.faults:
        extend_question(layers, [text for _, text in options])
    kind = KINDS["jobs" if "jobs" in layers.data else "job"]
    for place in kind.files(layers.data):
        _absolute(layers, place)
    refuse_outside(layers, _named_files(layers.data, kind))
    found: list[ValidationIssue | InputError] = [*layers.faults, *volume_issues(layers.data)]
    found += sweep_issues(layers.data, ())
    if {"job", "jobs"} <= layers.data.keys():
        found.append(ValidationIssue(("jobs",), "conflicts with job: a scenario has only one of them"))
    if not found:
        _options_win_over_sweep(layers)
        found += _issues_at_points(layers.data, kind, catalog)
    if found:
        errors = {layers.error(one): None for one in found}
        raise ScenarioErrors(sorted(errors, key=lambda one: (one.line == 0, one.path, one.line)))
    return kind.spec.model_validate(layers.data)


def _absolute(layers: Layers, place: Place) -> None:
    """Make the file name at *place* absolute, relative to the folder of the file that contains it."""
    name = value_at(layers.data, place)
    if not isinstance(name, str):
        return
    path = (layers.folder(place) / name).absolute()
    if place[-1] != "model" or name.endswith(".json") or is_config(path):
        put(layers.data, place, str(path))


def _named_files(data: dict[str, Any], kind: "_Kind") -> Iterator[tuple[Place, str]]:
    """Yield (place, text) of every value that is a file name, or, for a model, possibly an id."""
    places = kind.files(data)
    names = {place[-1] for place in places}
    for axis_place, axis, values in swept_values(data.get("sweep")):
        if axis.rpartition(".")[2] in names:
            places += [("sweep", *axis_place, step) for step, _ in values]
    texts = ((place, value_at(data, place)) for place in places)
    yield from ((place, text) for place, text in texts if isinstance(text, str))


def _options_win_over_sweep(layers: Layers) -> None:
    """Reduce the axis of a value that is set on the command line to that value."""
    sweep: Any = layers.data.get("sweep")
    for place, _ in layers.options:
        for axis in sweep if isinstance(sweep, dict) else ():
            if place_of(layers.data, axis) == place:
                sweep[axis] = [value_at(layers.data, place)]


def _issues_at_points(data: dict[str, Any], kind: "_Kind", catalog: Catalog) -> list[ValidationIssue | InputError]:
    """Return the issues at the points of the sweep, each at the swept value that causes it."""
    found = points(data.get("sweep"))
    if len(found) == 1 and not found[0]:
        return list(dict.fromkeys(_issues(data, kind, catalog)))
    standing = set(_issues(data | {"sweep": None}, kind, catalog))
    messages: dict[ValidationIssue | InputError, None] = {}
    wrong = []
    places = [{axis: place_of(data, axis) for axis in point} for point in found]
    for point, at in zip(found, places, strict=True):
        values = with_values(data, {at[axis]: value for axis, value in point.items()})
        wrong.append(list(_issues(values | {"sweep": None}, kind, catalog)))
    always = set(wrong[0]).intersection(*wrong)
    for index, (point, at) in enumerate(zip(found, places, strict=True)):
        for one in wrong[index]:
            if isinstance(one, InputError):
                messages[one] = None
                continue
            suspects = candidate_axes(one, at, one in standing)
            if not suspects and one not in standing:
                suspects = list(point)[-1:]
            swept = suspects and reported_at_sweep(one, data["sweep"], index, point, suspects[-1], one in always)
            messages[swept or one] = None
    return list(messages)


def _issues(data: dict[str, Any], kind: "_Kind", catalog: Catalog) -> Iterator[ValidationIssue | InputError]:
    """Yield the issues of one point: keys, then ids, then contradictions, then prices."""
    schema: list[ValidationIssue] = []
    try:
        scenario = kind.spec.model_validate(data)
    except ValidationError as error:
        schema = [_reworded(one) for one in validation_issues(error, kind.spec, data)]
    ids = list(_id_issues(data, kind, catalog))
    yield from [*schema, *ids]
    if schema or ids:
        return
    contradictions = list(kind.check(scenario, catalog))
    yield from contradictions
    for i, fleet in enumerate(scenario.fleets):
        try:
            if not contradictions:
                kind.resolve(scenario, fleet, {}, catalog)
            else:
                clock_of(scenario, fleet)
        except CostError as error:
            for path, text in error.problems:
                yield ValidationIssue(_place(scenario, i, path), text)
        except ClockError as error:
            yield ValidationIssue(("starts_at",), str(error))
        except ArithmeticError:
            yield ValidationIssue(("fleets", i), "holds a number too large or too small to compute with")


def _reworded(one: ValidationIssue) -> ValidationIssue:
    """Reword the issue *one* if its unknown key belongs to serving scenarios."""
    if not one.message.startswith("unknown key"):
        return one
    key = str(one.place[-1])
    in_pool = len(one.place) == 5 and one.place[0] == "fleets"
    if in_pool and key in PARALLEL_KEYS:
        return ValidationIssue(one.place, PARALLEL_KEYS[key])
    known = (Pool if in_pool else Scenario).model_fields
    return ValidationIssue(one.place, SERVING_ONLY) if key in known and key not in JobPool.model_fields else one


def _id_issues(data: dict[str, Any], kind: "_Kind", catalog: Catalog) -> Iterator[ValidationIssue]:
    """Yield an issue for every id that is not in the catalogue, and every duplicate fleet name."""
    figures = job_figures(catalog).data

    def model(name: str) -> None:
        with suppress(NotTrainable):  # `job_issues` reports models that cannot be trained
            network_named(name, catalog, figures)

    for training in kind.trainings(data):
        yield from unknown_ids(value_at(data, training), training, {"model": model})
    yield from unknown_ids(value_at(data, ("carbon",)), ("carbon",), {"grid": catalog.grid})
    names = [fleet.get("name") for _, fleet in mappings(data, "fleets")]
    for i, fleet in mappings(data, "fleets"):
        place: Place = ("fleets", i)
        if fleet.get("name") in names[:i]:
            yield ValidationIssue((*place, "name"), Message("the name {name!r} is given twice", fleet["name"]))
        yield from unknown_prices(fleet.get("cost"), (*place, "cost"), catalog)
        for j, pool in mappings(fleet, "pools"):
            here = (*place, "pools", j)
            yield from unknown_ids(pool, here, {"gpu": catalog.gpu, "server": catalog.server, "link": catalog.link})
            yield from unknown_ids(pool.get("network"), (*here, "network"), {"link": catalog.link})
            yield from unknown_prices(pool.get("cost"), (*here, "cost"), catalog)


def _place(scenario: AnyScenario, index: int, path: str) -> Place:
    """Return the place of *path* in a fleet's terms.

    The place is at the top of the scenario if the section is shared by all fleets, else in the fleet.
    """
    steps: Place = tuple(int(step) if step.isdecimal() else step for step in path.split("."))
    section = str(steps[0])
    shared = section not in ("cost", "pools") and getattr(scenario.fleets[index], section, None) is None
    return steps if shared and getattr(scenario, section, None) is not None else ("fleets", index, *steps)


@dataclass(frozen=True, slots=True)
class _Kind:
    """Functions that check and resolve one kind of work."""

    spec: type[AnyScenario]
    check: Callable[[Any, Catalog], Iterable[ValidationIssue | InputError]]
    """Function (scenario, catalogue) -> contradictions."""
    resolve: Callable[[Any, Any, dict[str, Any], Catalog], object]
    """Function (scenario, fleet, axes, catalogue) that raises CostError if prices are missing."""
    trainings: Callable[[dict[str, Any]], list[Place]]
    """Function raw data -> places of training jobs."""

    def files(self, data: dict[str, Any]) -> list[Place]:
        """Return the places of raw *data* that may hold file names."""
        return [*((*place, "model") for place in self.trainings(data)), *TRACE_FILES]


def _trainings_of_queue(data: dict[str, Any]) -> list[Place]:
    return [("jobs", j, "training") for j, one in mappings(data, "jobs") if isinstance(one.get("training"), dict)]


KINDS = {
    "job": _Kind(JobScenario, job_issues, resolve_job, lambda data: [("job",)]),
    "jobs": _Kind(QueueScenario, queue_issues, resolve_queue, _trainings_of_queue),
}
"""Kinds of work, keyed by their section of the scenario."""
