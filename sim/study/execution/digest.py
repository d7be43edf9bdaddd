"""Digest of all inputs of a case: its part of the scenario, and the content of all files that it reads."""

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator
from functools import cache, wraps
from operator import is_
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from sim.build import program_version
from sim.catalogue.catalog import Catalog
from sim.infile import state_of
from sim.message import Message
from sim.registry import versions
from sim.scenario.reading.layers import FILE_KEYS, files_of, named_file
from sim.scenario.schema import SECTIONS, TERMS, Fleet, Scenario
from sim.scenario.sweep import Case, as_data, at_point
from sim.scenario.year import load_by_hour
from sim.study.execution.durable import file_digest

Found = TypeVar("Found")

NOT_IN_DIGEST = ("name", "question", "sweep", "replications", "fleets", "base", "checkpoint", *SECTIONS)
_OF_DEPLOYMENTS: dict[str, Any] = {"checkpoint": True, "pools": {"__all__": {"checkpoint"}}}
"""Keys of a fleet that no result depends on."""
MONEY = (*TERMS, *(name for name, section in SECTIONS.items() if section.repriced))
"""Keys of scenario and fleet that no simulated quantity depends on, beside the `cost` of a fleet and of its pools."""
CATALOGUE_OF_MONEY = ("prices", "grids", "sources.yaml")
"""Parts of the catalogue that no simulated quantity depends on."""
CATALOGUE_OF_REPORTS = ("fidelity",)
"""Parts of the catalogue that no case depends on: prediction errors, which only reports show."""
SCENARIO = "the scenario"
"""Name of the case's part of the scenario, among the inputs of a case."""


def digest(scenario: Scenario, case: Case, catalog: Catalog) -> str:
    """Return the digest of all inputs of *case*: values, files, catalogue and program.

    The location of a file makes no difference, so a folder that was moved keeps its finished cases.
    """
    data = _priced(scenario, case)
    parts = [
        json.dumps(placeless(data, with_content=True), sort_keys=True),
        json.dumps({"axes": case.axes, "replication": case.replication}, sort_keys=True),
        json.dumps(catalogue_digests(catalog)),
        program_digest(),
        *map(json.dumps, versions(data["fleet"]).items()),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def rests_on(scenario: Scenario, case: Case, catalog: Catalog) -> dict[str, str]:
    """Return the inputs of the simulated quantities of *case* with their digests, without prices and terms."""
    data = _without_prices(scenario, case)
    named = {"/".join(file.parts[-2:]): _content(file) for file in files_of(data)}
    parts = catalogue_digests(catalog)
    return {
        SCENARIO: _short(json.dumps(placeless(data), sort_keys=True)),
        **{Message("the file {name}", name): content[:16] for name, content in named.items()},
        **{_catalogue_part(part): parts[part] for part in parts if part not in CATALOGUE_OF_MONEY},
        "the program": program_digest(),
        **{Message("the policy {name}", name): text for name, text in versions(data["fleet"]).items()},
    }


@cache
def _catalogue_part(part: str) -> Message:
    return Message("the catalogue ({part})", part)


def quantities(scenario: Scenario, case: Case) -> str:
    """Return the digest of what *case* simulates, without its prices and the name of its fleet.

    Cases of one catalogue and program with different digests differ in more than prices.
    """
    data, metered = _without_prices(scenario, case), _metered(scenario, case)
    policies = versions(data["fleet"])
    nameless = data | {"fleet": {key: value for key, value in data["fleet"].items() if key != "name"}}
    data_of_quantities = placeless(nameless, with_content=True), metered, policies, case.replication
    return _short(json.dumps(data_of_quantities, sort_keys=True))


def _once_per_point(function: Callable[[Scenario, Case], Found]) -> Callable[[Scenario, Case], Found]:
    """Decorate *function*, whose value does not depend on the replication: consecutive replications share it."""
    last: tuple[Any, ...] = ()

    @wraps(function)
    def found(scenario: Scenario, case: Case) -> Found:
        nonlocal last
        key, known = (scenario, case.fleet, case.overrides), last  # another thread may replace the last one
        if not known or not all(map(is_, key, known)):
            last = known = (*key, function(scenario, case))
        value: Found = known[-1]
        return value

    return found


@_once_per_point
def _priced(scenario: Scenario, case: Case) -> dict[str, Any]:
    """Return the scenario's data of *case*, with prices and terms."""
    at, fleet = _at_case(scenario, case)
    data = at.model_dump(mode="json", exclude_unset=True, exclude={*NOT_IN_DIGEST})
    data["fleet"] = _data_of(at, fleet)
    if (hours := load_by_hour(at)) is not None:
        data["load_by_hour"] = hours  # the annual cost weights the hours of a tariff by this load
    return data


@_once_per_point
def _metered(scenario: Scenario, case: Case) -> tuple[Any, ...]:
    """Return the terms that affect meter readings: shared servers, and the full hours of the local clock."""
    at, fleet = _at_case(scenario, case)
    site = fleet.site or at.site
    costs = fleet.cost, *(pool.cost for pool in fleet.pools)
    return [cost is not None and cost.share for cost in costs], site and site.timezone


@_once_per_point
def _at_case(scenario: Scenario, case: Case) -> tuple[Scenario, Fleet]:
    """Return *scenario* at the point of *case*, and the case's fleet there."""
    at = at_point(scenario, case.overrides)
    return at, next(fleet for fleet in at.fleets if fleet.name == case.fleet)


def _data_of(at: Scenario, fleet: Fleet) -> dict[str, Any]:
    """Return the data of *fleet*, one of the fleets of *at*, with all defaults.

    The scenario writes them: a serializer of fleets alone would take as long to build as half of the scenario's.
    """
    place = next(place for place, one in enumerate(at.fleets) if one is fleet)
    data = at.model_dump(mode="json", include={"fleets": {place}}, exclude={"fleets": {place: _OF_DEPLOYMENTS}})
    found: dict[str, Any] = data["fleets"][0]
    return found


@_once_per_point
def _without_prices(scenario: Scenario, case: Case) -> dict[str, Any]:
    """Return the scenario's data of *case*, without prices and terms."""
    at, fleet = _at_case(scenario, case)
    data = at.model_dump(mode="json", exclude_unset=True, exclude={*NOT_IN_DIGEST, *MONEY})
    whole = _data_of(at, fleet)
    data["fleet"] = {key: value for key, value in whole.items() if key not in ("cost", *MONEY)}
    data["fleet"]["pools"] = [{key: pool[key] for key in pool if key != "cost"} for pool in whole["pools"]]
    return data


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def files_outside(scenario: Scenario, *folders: Path) -> list[Path]:
    """Return the files that *scenario* reads, at any point of its sweep, and that are below none of *folders*."""
    files = dict.fromkeys(files_of(as_data(scenario)))
    return [file for file in files if not any(map(file.resolve().is_relative_to, map(Path.resolve, folders)))]


def placeless(data: Any, with_content: bool = False) -> Any:
    """Return *data* with each file by its name and its folder's name, and *with_content* also by its digest."""
    if data is None or isinstance(data, (str, int, float)):  # most values
        return data
    if isinstance(data, dict):
        return {key: _placeless(key, value, with_content) for key, value in data.items()}
    return [placeless(value, with_content) for value in data] if isinstance(data, list | tuple) else data


def _placeless(key: Any, value: Any, with_content: bool) -> Any:
    last = str(key).rpartition(".")[2]  # an axis of a sweep is a dotted path
    if last not in FILE_KEYS:
        return placeless(value, with_content)
    if isinstance(value, list):
        return [_placeless(last, one, with_content) for one in value]
    file = named_file(last, value)
    if file is None:
        return placeless(value, with_content)
    name = "/".join(file.parts[-2:])
    return f"{name} {_content(file)}" if with_content else name


_CATALOGUES: WeakKeyDictionary[Catalog, dict[str, str]] = WeakKeyDictionary()
"""Digests of the parts of each catalogue, computed once: a catalogue reads each of its files once."""
_FILES: dict[Path, tuple[tuple[int, ...], str]] = {}
"""File -> its state, and the digest of its content in that state."""


def catalogue_digests(catalog: Catalog) -> dict[str, str]:
    """Return a digest for each folder of the catalogue that a case may read, over all files of the folder.

    All files count, because the files that a case reads are known only afterwards.
    """
    if catalog not in _CATALOGUES:
        found: dict[str, str] = {}
        for place, file in files_below(catalog.root, ".yaml", CATALOGUE_OF_REPORTS):
            part = place.partition("/")[0]
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            found[part] = f"{found.get(part, '')}{place} {content}\n"
        for folder in catalog.own:
            for place, file in files_below(folder, ".yaml"):
                part = place.partition("/")[0]
                found[part] = f"{found.get(part, '')}own {place} {file_digest(file)}\n"
        _CATALOGUES[catalog] = {part: _short(lines) for part, lines in found.items()}
    return _CATALOGUES[catalog]


def files_below(root: Path, ending: str = "", without: Collection[str] = ()) -> Iterator[tuple[str, Path]]:
    """Yield each file with this *ending*, with its path below *root*, except below the folders *without*.

    Links are followed, as the catalogue does, but those to no file, and each folder is visited once.
    """
    found, seen = [], set()
    for folder, folders, names in os.walk(root, followlinks=True):
        status = Path(folder).stat()
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = sorted(name for name in folders if name not in without)
        found += [Path(folder, name) for name in names if name.endswith(ending)]
    for path in sorted(found):
        if path.is_file():
            yield path.relative_to(root).as_posix(), path


def _content(path: Path) -> str:
    """Return the digest of a file's content, read again only when the file's state has changed."""
    state = state_of(path)
    known = _FILES.get(path)
    if known is None or known[0] != state:
        known = _FILES[path] = (state, file_digest(path))
    return known[1]


@cache
def program_digest() -> str:
    """Return the version of the program with a digest of all its source files."""
    found = hashlib.sha256()
    for place, file in files_below(Path(__file__).parents[2], ".py"):
        found.update(place.encode() + file.read_bytes())
    return f"{program_version()} ({found.hexdigest()[:12]})"
