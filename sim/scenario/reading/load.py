"""Loading of scenario files: returns a Scenario or raises all validation issues at once.

An issue is reported at its cause: an axis of a sweep rather than the place that the axis sets. Consequences of other
issues are not reported.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sim.catalogue.catalog import Catalog
from sim.catalogue.hf_config.load import is_config
from sim.infile import STAGE, opened, why_outside
from sim.message import Message
from sim.scenario.checks.limits import closed_loop_issues, transfer_issues, volume_issues
from sim.scenario.checks.scenario import Found, id_issues, plan_issues, salvaged, scenario_issues
from sim.scenario.checks.services import with_one_service
from sim.scenario.reading.errors import InputError, ScenarioErrors
from sim.scenario.reading.layers import (
    LONGEST_SHOWN,
    Layers,
    descend,
    is_there,
    place_of,
    read_layers,
    value_at,
    with_values,
)
from sim.scenario.reading.uncertain import extract_distributions, monte_carlo_issues
from sim.scenario.schema import SECTIONS, Scenario
from sim.scenario.sweep import points, repeated, sound_axes, sweep_issues
from sim.validation import Place, ValidationIssue, dotted, meant_name, nearest, validation_issues
from sim.yamlio import Document


def candidate_axes(one: ValidationIssue, values: dict[str, Place], standing: bool) -> list[str]:
    """Return the axes of a sweep that may cause the issue *one*.

    These are the axis that sets its place, else the axes that set values inside or beside it. An issue that is
    *standing* without the sweep is caused by the axis at its own place only.
    """
    own = [axis for axis, place in values.items() if one.place[: len(place)] == place]
    if own or standing:
        return own[:1]
    return [
        axis for axis, place in values.items() if place[: len(one.place)] == one.place or place[:-1] == one.place[:-1]
    ]


def reported_at_sweep(
    one: ValidationIssue, sweep: Any, index: int, point: dict[str, Any], axis: str, always: bool
) -> ValidationIssue:
    """Return *one* at the value of the sweep that causes it, or at the axis if it *always* occurs."""
    if isinstance(sweep, list):
        place: Place = ("sweep", index, axis)
    elif always and (len(sweep[axis]) > 1 or one.message.startswith("unknown key")):
        place = ("sweep", axis)
    else:
        place = ("sweep", axis, sweep[axis].index(point[axis]))
    where = "" if axis.endswith(str(one.place[-1])) else f"{dotted(one.place)}: "
    return ValidationIssue(place, where + one.message)


def is_consequence(one: ValidationIssue, mistakes: Sequence[ValidationIssue], data: dict[str, Any]) -> bool:
    """Return True if *one* is a consequence of *mistakes* in *data*.

    *one* is an issue of the plan of a scenario from which the values with *mistakes* against the schema were removed.
    """
    unknown = [mistake.place for mistake in mistakes if mistake.message.startswith("unknown key")]
    wrong = [mistake.place for mistake in mistakes if mistake.place not in unknown]
    broken = {place[:4] for place in wrong} | {place[:3] for place in wrong if place[2:3] != ("pools",)}
    return (
        one.place[:4] in broken
        or _section_is_broken(one.place, data, broken)
        or _is_invalid(one, wrong)
        or _is_misspelt(one, unknown)
    )


def _is_misspelt(one: ValidationIssue, unknown: Iterable[Place]) -> bool:
    """Return True if a key that would resolve *one* is present under a misspelt, *unknown* name."""
    beside = (one.place, one.place[:-1])
    return any(nearest(place[-1], one.lacks) for place in unknown if place[:-1] in beside)


def _is_invalid(one: ValidationIssue, wrong: Iterable[Place]) -> bool:
    """Return True if a value that would resolve *one* is present, but *wrong* in itself."""
    paths = [tuple(name.split(".")) for name in one.lacks if "." in name]
    found = [place[2:] if place[:1] == ("services",) else place for place in wrong]
    return any(place and path[: len(place)] == place[: len(path)] for path in paths for place in found)


def _section_is_broken(place: Place, data: dict[str, Any], broken: Collection[Place]) -> bool:
    """Return True if a fleet lacks a section that is given for all fleets at the top and is wrong there."""
    fleet = value_at(data, place[:2]) if place[:1] == ("fleets",) and len(place) > 2 else None
    return isinstance(fleet, dict) and place[2] not in fleet and any(one[:1] == place[2:3] for one in broken)


NOT_HARDWARE = ("workload", "seed", "slo", "horizon_s", "warmup_s")
"""Keys that do not affect layouts and prices."""
EFFORT = frozenset(name for name, section in SECTIONS.items() if section.effort)
SAME_QUESTION = EFFORT | {"name", "question", "seed", "replications", "requests", "horizon_s", "warmup_s"}
"""Keys that leave the scenario's question unchanged when set: they affect the precision of the answer."""
JOBS_REFUSED = "a job does not answer requests: use run, check or price"
WORK_KEYS = frozenset({"job", "jobs"})
"""Keys that make a scenario a job or a queue of jobs, which sim/jobs reads."""
UNNAMED = "scenario"
"""Name of a scenario from Python without a name."""
FILE_KEYS: tuple[Place, ...] = (("workload", "trace", "path"), ("plan", "actuals", "path"))
"""Places whose values are always paths of files."""
FILE_CHOICES = ("model", "calibration")
"""Keys at top, in fleets and in pools whose value may be the path of a file."""


def load(
    path: Path | str | Document,
    sets: Sequence[str] = (),
    *,
    catalog: Catalog,
    seed: int | None = None,
    replications: int | None = None,
    swept: bool = True,
) -> Scenario:
    """Read, merge, override and check a scenario.

    Relative paths inside the scenario become absolute. They start at the folder of the file that contains them; on the
    command line at the working directory, else at the scenario's folder. A distribution in place of a number is
    replaced by its central value and stored in `futures.inputs`.

    Parameters
    ----------
    path
        Scenario file, or the result of `as_document` for data from Python.
    sets
        Overrides `path=value`, with the value in YAML.
    catalog
        Catalogue of models, hardware and prices that ids are checked against.
    seed, replications
        Overrides of the scenario's values.
    swept
        False for a command that simulates loads of its own choice in place of the sweep's.

    Raises
    ------
    ScenarioErrors
        With every mistake found.

    """
    return _load(path, command_line_options(sets, seed, replications), catalog, True, swept)


def has_job(path: Path | str | Document) -> bool:
    """Return True if the scenario has a job or a queue of jobs. Raises ScenarioErrors if it cannot be read."""
    return not WORK_KEYS.isdisjoint(sections(path))


def sections(path: Path | str | Document) -> set[str]:
    """Return the sections among claim, workload, job and jobs in a scenario. Raises ScenarioErrors if unreadable."""
    return {"claim", "workload", *WORK_KEYS} & read_layers(path, ()).data.keys()


def load_for_size(
    path: Path | str | Document,
    sets: Sequence[str] = (),
    *,
    catalog: Catalog,
    seed: int | None = None,
    replications: int | None = None,
    swept: bool = True,
) -> Scenario:
    """Load a scenario as `load` does; with a section `size`, it may have no fleets."""
    return _load(path, command_line_options(sets, seed, replications), catalog, False, swept)


def _load(
    given: Path | str | Document, options: list[tuple[str, str]], catalog: Catalog, needs_fleets: bool, swept: bool
) -> Scenario:
    file = None if isinstance(given, Document) else Path(given)
    if file is not None:
        _refuse_unwritable(file)
    layers = read_layers(given, options)
    layers.log_renamed()
    default_names(layers, file)
    for key in WORK_KEYS & layers.data.keys():
        raise ScenarioErrors([layers.error(ValidationIssue((key,), JOBS_REFUSED))])
    if not layers.faults:
        extend_question(layers, [text for _, text in options])
    _absolute_paths(layers)
    parsed = extract_distributions(layers)
    found: list[ValidationIssue | InputError] = [*layers.faults]
    if too_many := [*volume_issues(layers.data)]:
        layers.data["sweep"] = None
        found += too_many
    elif broken := sweep_issues(layers.data, EFFORT):
        layers.data["sweep"] = sound_axes(layers.data["sweep"], broken)
        found += broken
    overridden = _override_axes(layers, parsed.inputs)
    filled = _filled_from_sweep(layers.data)
    whole, schema = _schema_issues(filled)
    schema += [*_hidden_issues(filled, schema)]
    found += [
        *_point_issues(layers.data, (whole, schema), catalog, overridden),
        *(() if found else _sweep_section_issues(layers.data, swept)),
    ]
    found = [*(one for one in found if isinstance(one, InputError) or not parsed.is_reported(one)), *parsed.found]
    found += monte_carlo_issues(layers.data, parsed, lambda data: _schema_issues(_filled_from_sweep(data))[1])
    if "fleets" not in layers.data and (needs_fleets or layers.data.get("size") is None):
        found.append(ValidationIssue(("fleets",), _no_fleets(layers.data)))
    if found or whole is None:
        raise ScenarioErrors(sorted((layers.error(one) for one in found or schema), key=_by_line))
    return with_one_service(whole)


def _refuse_unwritable(path: Path) -> None:
    """Raise ScenarioErrors for a path that is not UTF-8, as results name files by their absolute paths in UTF-8."""
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        shown = str(path).encode("utf-8", "backslashreplace").decode()
        error = InputError(shown, 0, "", "the path is not UTF-8 text: rename the file or its folder")
        raise ScenarioErrors([error]) from None


def _no_fleets(data: dict[str, Any]) -> str:
    return "is missing" if data.get("size") is None else "is missing: only gpufleet size works without it"


def _by_line(error: InputError) -> tuple[bool, str, int]:
    return (error.line == 0, error.path, error.line)


def command_line_options(sets: Sequence[str], seed: int | None, replications: int | None) -> list[tuple[str, str]]:
    """Return --set, --seed and --replications as (option as typed, value as YAML text). Raises ScenarioErrors."""
    options = []
    for item in sets:
        path, equals, value = item.partition("=")
        if not equals or not path.strip():
            raise ScenarioErrors([InputError(f"--set {item}", 0, "", "path=value is needed")])
        options.append((f"--set {path.strip()}", value))
    named = {"seed": seed, "replications": replications}
    return options + [(f"--{name}", str(value)) for name, value in named.items() if value is not None]


def default_names(layers: Layers, file: Path | None) -> None:
    """Fill in name and question of a scenario that has none."""
    layers.data.setdefault("name", file.stem if file is not None else UNNAMED)
    if "question" not in layers.data:
        layers.data["question"] = opening_comment(file) if file is not None else ""


def opening_comment(path: Path) -> str:
    """Return the comment that opens the file, up to its first empty line: by convention the scenario's question."""
    lines = []
    with opened(path, "r", encoding="utf-8-sig") as file:
        whole = file.read()
    for line in whole.splitlines():
        text = line.lstrip("#").strip()
        if not line.startswith("#") or not text:
            break
        lines.append(text)
    return " ".join(lines)


def extend_question(layers: Layers, texts: Sequence[str]) -> None:
    """Append values from --set to the scenario's question: `plan-grow-72b with plan.years=2`.

    The question of a finished run that is priced again already has such values; they are merged.
    """
    options = zip(layers.options, texts, strict=True)
    values = {
        option.partition(" ")[2]: text.strip() for (place, option), text in options if place[0] not in SAME_QUESTION
    }
    if not values or layers.is_option(("question",)):
        return
    start, question = f"{layers.data['name']} with ", str(layers.data["question"])
    before = question.removeprefix(start).split("; ") if question.startswith(start) else []
    kept = [one for one in before if one.partition("=")[0] not in values]
    cut = {path: f"{text[:LONGEST_SHOWN]}..." if len(text) > LONGEST_SHOWN else text for path, text in values.items()}
    now = [f"{path}={text}" for path, text in cut.items()]
    layers.data["question"] = start + "; ".join([*kept, *now])


def _absolute_paths(layers: Layers) -> None:
    """Make file names in the data and in the sweep's values independent of the working directory."""
    for place, text, is_model in list(_named_files(layers.data)):
        value_at(layers.data, place[:-1])[place[-1]] = _absolute(text, layers, place, is_model)
    refuse_outside(layers, ((place, text) for place, text, _ in _named_files(layers.data)))


def _absolute(text: str, layers: Layers, place: Place, is_model: bool) -> str:
    """Return the absolute path of the file *text*; a model id that is no config file is returned unchanged."""
    path = (layers.folder(place) / text).absolute()
    if layers.is_option(place):
        here, beside = Path(text).absolute(), (Path(layers.file.path).parent / text).absolute()
        path = beside if is_there(beside) and not is_there(here) else here
    is_file = not is_model or text.endswith(".json") or is_config(path)
    return str(path) if text and is_file else text


def refuse_outside(layers: Layers, named: Iterable[tuple[Place, str]]) -> None:
    """Raise ScenarioErrors for every file among *named*, (place, path), that a confined program may not read."""
    paths = ((place, layers.folder(place) / text) for place, text in named)
    if found := [ValidationIssue(place, reason) for place, path in paths if (reason := why_outside(path))]:
        raise ScenarioErrors([*layers.faults, *map(layers.error, found)])


def _named_files(data: dict[str, Any]) -> Iterator[tuple[Place, str, bool]]:
    """Yield (place, text, whether it is a model) of every value that is the path of a file, or a model id."""
    places = [(place, place[-1] == "model") for place in _file_places(data)]
    for axis_place, axis, values in swept_values(data.get("sweep")):
        name = tuple(axis.split("."))
        if name[-3:] in FILE_KEYS or name[-1] in FILE_CHOICES:
            places += [(("sweep", *axis_place, step), name[-1] == "model") for step, _ in values]
    texts = ((place, value_at(data, place), is_model) for place, is_model in places)
    yield from ((place, text, is_model) for place, text, is_model in texts if isinstance(text, str))


def _file_places(data: dict[str, Any]) -> list[Place]:
    places: list[Place] = [place for place in FILE_KEYS if value_at(data, place) is not None]
    fleets = data.get("fleets")
    holders: list[Place] = [()]
    services = data.get("services")
    for i in range(len(services) if isinstance(services, list) else 0):
        holders.append(("services", i))
        places += [("services", i, *place) for place in FILE_KEYS if place[0] == "workload"]
    for i, fleet in enumerate(fleets if isinstance(fleets, list) else []):
        holders.append(("fleets", i))
        pools = fleet.get("pools") if isinstance(fleet, dict) else None
        holders += [("fleets", i, "pools", j) for j in range(len(pools) if isinstance(pools, list) else 0)]
    return places + [(*holder, key) for holder in holders for key in FILE_CHOICES]


def swept_values(sweep: Any) -> list[tuple[Place, str, list[tuple[str | int, Any]]]]:
    """Return (place of the holder below `sweep`, axis, [(key in the holder, value)]) of a grid or explicit points."""
    if isinstance(sweep, dict):
        return [((axis,), str(axis), list(enumerate(v))) for axis, v in sweep.items() if isinstance(v, list)]
    if isinstance(sweep, list):
        return [((i,), str(a), [(a, v)]) for i, p in enumerate(sweep) if isinstance(p, dict) for a, v in p.items()]
    return []


def _override_axes(layers: Layers, drawn: Collection[Place]) -> set[str]:
    """Reduce each axis that the command line sets to the value set, except for axes that are *drawn*. Return them."""
    sweep, overridden = layers.data.get("sweep"), set()
    for place, _ in layers.options:
        if place in drawn:
            continue
        if isinstance(sweep, dict):
            for axis in sweep:
                if place_of(layers.data, axis) == place:
                    sweep[axis] = [value_at(layers.data, place)]
                    overridden.add(axis)
        elif isinstance(sweep, list):
            for point in sweep:
                for axis in point:
                    if place_of(layers.data, axis) == place:
                        point[axis] = value_at(layers.data, place)
                        overridden.add(axis)
            twice = set(repeated(sweep))
            sweep[:] = [point for i, point in enumerate(sweep) if i not in twice]
    return overridden


def _filled_from_sweep(data: dict[str, Any]) -> Any:
    """Return *data* with the values that every point of the sweep sets, so that they need not be given elsewhere."""
    found = points(data.get("sweep"))
    first = {place_of(data, axis): value for axis, value in found[0].items() if all(axis in point for point in found)}
    return with_values(data, {place: value for place, value in first.items() if value_at(data, place) is None})


Checked = tuple[Scenario | None, list[ValidationIssue]]
"""Scenario of some data, None if invalid, and the issues that the schema finds in the data."""


def _point_issues(data: dict[str, Any], whole: Checked, catalog: Catalog, overridden: Collection[str]) -> Found:
    """Return the issues at all points of the sweep; without a sweep, those of the scenario.

    *whole* is the scenario with the values that every point sets. Axes that are *overridden* have their values from
    the command line, where their issues are reported.
    """
    found = points(data.get("sweep"))
    places = [{axis: place_of(data, axis) for axis in point} for point in found]
    planned: list[tuple[Any, list[ValidationIssue]]] = []
    wrong = []
    unswept = data | {"sweep": None}  # prepared once, so that the sweep is not copied at each of its points
    for number, (point, at) in enumerate(zip(found, places, strict=True), 1):
        STAGE.set(Message("checking point {number:,} of {count:,}", number, len(found)))
        values = with_values(unswept, {at[axis]: value for axis, value in point.items()})
        wrong.append(_issues(values, _schema_issues(values) if data.get("sweep") else whole, catalog, planned))
    always = set(wrong[0]).intersection(*wrong)
    standing = always
    if data.get("sweep") and any(wrong):
        standing = set(_issues(unswept, _schema_issues(unswept), catalog, planned))
    reported: dict[ValidationIssue | InputError, None] = {}
    for index, point in enumerate(found):
        for one in wrong[index]:
            axis = None
            if isinstance(one, ValidationIssue):
                swept = {axis: place for axis, place in places[index].items() if axis not in overridden}
                suspects = candidate_axes(one, swept, one in standing)
                axis = _causing_axis(one, suspects, data, point, places[index], catalog)
            if isinstance(one, ValidationIssue) and axis is not None:
                reported[reported_at_sweep(one, data["sweep"], index, point, axis, one in always)] = None
            else:
                reported[one] = None
    reported.update((one, None) for one in whole[1] if _is_in(data, one.place))
    return list(reported)


def _issues(
    at: dict[str, Any], checked: Checked, catalog: Catalog, planned: list[tuple[Any, list[ValidationIssue]]]
) -> Found:
    """Return the issues of the data of one point, whose scenario and schema issues are *checked*.

    *planned* caches the issues of the plans of previous points, by hardware.
    """
    built, schema = checked
    found: Found = [*schema, *id_issues(at, catalog)]
    usable, mistakes = (built, schema) if built is not None else salvaged(at, schema)
    if usable is not None and all(one.place and one.place[0] in SECTIONS for one in schema):
        places = [one.place for one in schema]
        found += [one for one in scenario_issues(usable) if getattr(one, "place", None) not in places]
    hardware = {key: value for key, value in at.items() if key not in NOT_HARDWARE}
    plans = next((plans for earlier, plans in planned if earlier == hardware), None)
    if plans is None:
        plans = plan_issues(usable, catalog) if usable is not None else []
        planned.append((hardware, plans))
    if built is not None and not found and not plans:
        found += [*closed_loop_issues(built, catalog), *transfer_issues(built, catalog)]
    reported = {one.place for one in found if isinstance(one, ValidationIssue)}
    return found + [one for one in plans if one.place not in reported and not is_consequence(one, mistakes, at)]


def _hidden_issues(data: dict[str, Any], schema: Sequence[ValidationIssue]) -> Iterator[ValidationIssue]:
    """Yield the issues of *data* that the unknown keys and kinds among its *schema* issues hide.

    A mapping is checked as a whole only if its kind and each of its keys are known. The value of a misspelt key stands
    under the key that was probably meant, unless that has a value of its own; a misspelt kind is replaced by the one
    that was probably meant.
    """
    renamed, reported = with_values(data, {}), {one.place for one in schema}
    built, new = None, list(schema)
    while built is None and (unknown := [one for one in new if one.message.startswith("unknown ")]):
        for one in unknown:
            holder, key, meant = value_at(renamed, one.place[:-1]), one.place[-1], meant_name(one)
            if not one.message.startswith("unknown key"):
                holder[key] = meant or holder[key]
                continue
            value = holder.pop(key)
            if meant and holder.get(meant) is None:
                holder[meant] = value
        built, hidden = _schema_issues(renamed)
        new = [
            issue
            for issue in (hidden if built is None else scenario_issues(built))
            if isinstance(issue, ValidationIssue) and issue.place not in reported and _is_at_value(data, issue)
        ]
        reported |= {issue.place for issue in new}
        yield from new


def _is_at_value(data: dict[str, Any], issue: ValidationIssue) -> bool:
    """Return whether *data* has the value of *issue*, or the mapping that lacks it."""
    return _is_in(data, issue.place[:-1] if issue.message == "is missing" else issue.place)


def _is_in(data: dict[str, Any], place: Place) -> bool:
    return descend(data, place)[0] == len(place)


def _sweep_section_issues(data: dict[str, Any], swept: bool) -> Iterator[ValidationIssue]:
    """Yield issues of sections that do not fit the sweep; sections wrong in themselves are reported by the schema."""
    for name, section in SECTIONS.items():
        if section.check_sweep is not None and data.get(name) is not None:
            try:
                kind: Any = Scenario.model_fields[name].annotation
                keys = TypeAdapter(kind).validate_python(data[name])
            except ValidationError:
                continue
            yield from section.check_sweep(keys, data, swept)


def _schema_issues(data: Any) -> Checked:
    try:
        return Scenario.model_validate(data), []
    except ValidationError as error:
        return None, validation_issues(error, Scenario, data)


def _causing_axis(
    one: ValidationIssue,
    suspects: Sequence[str],
    data: dict[str, Any],
    point: dict[str, Any],
    places: dict[str, Place],
    catalog: Catalog,
) -> str | None:
    """Return the axis among *suspects* without whose value the issue does not occur."""
    for axis in suspects[:-1]:
        others = {places[other]: value for other, value in point.items() if other != axis}
        rest = with_values(data, others) | {"sweep": None}
        if one not in _issues(rest, _schema_issues(rest), catalog, []):
            return axis
    return suspects[-1] if suspects else None
