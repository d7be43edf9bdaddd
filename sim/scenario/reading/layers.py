"""Raw data of a scenario before it is typed: its layers, and functions that read and set values at a place.

The layers are the bases of a file, the file itself, and the values set on the command line; or data from Python, with
the current directory as its folder. Ids that the catalogue does not know are reported from here, as they are found
without types.
"""

import errno
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.catalogue.data_folder import UnknownId
from sim.infile import why_outside
from sim.message import Message, first_line
from sim.scenario.reading.distribution import FAMILIES
from sim.scenario.reading.errors import InputError, ScenarioErrors
from sim.scenario.reading.shipped import shipped_names
from sim.spec import Spec
from sim.validation import Place, ValidationIssue, did_you_mean, dotted
from sim.yamlio import Document, YamlError, dump, dump_line, parse, read, read_text, rename_key

KINDS = ("process", "distribution", "policy", "model", "acquisition", "per", "method", "mode")
"""Keys that define the kind of a mapping: a mapping of another kind replaces the base's mapping as a whole."""
LONGEST_SHOWN = 200
VERSION_KEY = "schema_version"
SCHEMA_VERSION = 1
"""Version of the keys of a scenario. A file without `schema_version` may have the keys of any version up to this."""
NOT_INHERITED = ("name", "question", "base", VERSION_KEY)
RENAMED = {
    ("operations", "tax"): "sales_tax",
    ("inflation", "rental_unused"): "unused commitment",
    ("", "requests_cost"): "cost_per_request",
}
"""Renamed keys: (key of the mapping, old key) -> new key. Both are read, also in dotted paths."""
LOG = logging.getLogger("gpufleet")


@dataclass(slots=True)
class Layers:
    """Merged data of a scenario, with the layer that each value came from."""

    data: dict[str, Any]
    file: Document
    bases: Sequence[Document] = ()
    """Chain of base files: the file's base, the base of that file, and so on."""
    options: list[tuple[Place, str]] = field(default_factory=list)
    """Values set by options: (place, option as typed); later ones override."""
    faults: list[InputError] = field(default_factory=list)
    """Mistakes in the YAML of the files that leave the rest readable, and mistakes in the options."""
    renamed: list[InputError] = field(default_factory=list)
    """Old names of renamed keys, at their lines."""

    def log_renamed(self) -> None:
        """Log a warning for each key with an old name."""
        for one in self.renamed:
            LOG.warning("%s", one)

    def error(self, issue: ValidationIssue | InputError) -> InputError:
        """Return *issue* at the line, or the option, that gave the value."""
        if isinstance(issue, InputError):
            return issue
        where = dotted(issue.place)
        for place, option in reversed(self.options):
            if issue.place[: len(place)] == place:
                named = option.partition(" ")[2]
                return InputError(option, 0, "" if where in (named, dotted(place)) else where, issue.message)
        if (cause := self._causing_option(issue.place)) is not None:
            return InputError(cause, 0, where, issue.message)
        document = self._origin(issue.place)
        return InputError(document.path, document.line(issue.place), where, issue.message)

    def _causing_option(self, place: Place) -> str | None:
        """Return the option that created *place* or a mapping above its value, or deleted what is missing there."""
        documents = (self.file, *self.bases)
        made = all(descend(document.data, place)[0] < len(place) for document in documents)
        for set_place, option in reversed(self.options):
            if made and place and set_place[: len(place)] == place:
                return option
            gone = descend(self.data, set_place)[0] < len(set_place)
            if gone and place[-len(set_place) :] == set_place:
                return option
        return None

    def folder(self, place: Place) -> Path:
        """Return the folder to which a relative path at *place* is relative."""
        return Path(self._origin(place).path).parent

    def _origin(self, place: Place) -> Document:
        """Return the file with the longest part of *place*, the topmost of several; lists hide those of the bases."""
        documents: list[Document] = []
        for document in (self.file, *self.bases):
            documents.append(document)
            if any(isinstance(value_at(document.data, place[:depth]), list) for depth in range(1, len(place))):
                break
        return max(documents, key=lambda document: descend(document.data, place)[0])

    def is_option(self, place: Place) -> bool:
        """Return True if the command line set the value at *place*."""
        return any(place[: len(set_place)] == set_place for set_place, _ in self.options)


def read_layers(path: Path | str | Document, sets: Sequence[tuple[str, str]]) -> Layers:
    """Read a file and its bases, and apply *sets*: (option as typed, its value as YAML text).

    Raises ScenarioErrors.
    """
    file = path if isinstance(path, Document) else read_mapping(path)
    bases = _read_bases(file)
    versions = [issue for document in (file, *bases) for issue in version_issues(document)]
    renamed = [_rename(document, *old) for document in (file, *bases) for old in [*old_keys(document.data)]]
    data: dict[Any, Any] = {}
    for document in reversed((file, *bases)):
        data = _merge({k: v for k, v in data.items() if k not in NOT_INHERITED}, document.data)
    layers = Layers(_deep_copy(data), file, bases)
    layers.data.pop("base", None)
    layers.data.pop(VERSION_KEY, None)
    errors = layers.faults
    errors += versions
    for one, twice in renamed:
        (errors if twice else layers.renamed).append(one)
    errors += (as_input(fault) for document in (file, *bases) for fault in document.faults)
    for option, text in sets:
        try:
            place = place_of(layers.data, option.partition(" ")[2] or option.lstrip("-"))
            value = Document("", {place[-1]: parse(text)}, None)
            renames = [_rename(value, *old) for old in [*old_keys(value.data)]]
            errors += [InputError(option, 0, one.where, one.message) for one, twice in renames if twice]
            _set(layers.data, place, value.data[place[-1]])
            _drop_alternatives(layers.data, place)
            layers.options.append((place, option))
        except YamlError as error:
            errors.append(InputError(option, 0, "", error.message))
        except LookupError as error:
            errors.append(InputError(option, 0, "", str(error.args[0])))
    return layers


def version_issues(document: Document) -> Iterator[InputError]:
    """Yield what is wrong with `schema_version` of *document*. Raises ScenarioErrors if it is a later version."""
    version = document.data.get(VERSION_KEY, SCHEMA_VERSION)
    line = document.line((VERSION_KEY,))
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        yield InputError(
            document.path, line, VERSION_KEY, Message("is {value!r}: a number from 1 on is needed", version)
        )
    elif version > SCHEMA_VERSION:
        later = Message(
            "{version} is later than {newest}, the newest that this gpufleet reads; pip install --upgrade gpufleet",
            version,
            SCHEMA_VERSION,
        )
        raise ScenarioErrors([InputError(document.path, line, VERSION_KEY, later)])


def old_keys(data: Any, place: Place = (), seen: set[int] | None = None) -> Iterator[tuple[Place, str]]:
    """Yield the places in *data* of keys with an old name, inner ones first, and their present names.

    A mapping that aliases repeat counts once: its places share one key in the file.
    """
    seen = set() if seen is None else seen
    if isinstance(data, dict | list):
        if id(data) in seen:
            return
        seen.add(id(data))
    if isinstance(data, dict):
        for key, value in data.items():
            yield from old_keys(value, (*place, key), seen)
            if (_last_key(place), key) in RENAMED:
                yield (*place, key), RENAMED[_last_key(place), key]
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from old_keys(value, (*place, index), seen)


def _last_key(place: Sequence[str | int]) -> str:
    """Return the last key of *place*; an axis of a sweep is a dotted path."""
    return next((step.rpartition(".")[2] for step in reversed(place) if isinstance(step, str)), "")


def both_names(document: Document, place: Place, name: str) -> InputError:
    """Return the error that the key at *place* and its present *name* are both given."""
    told = Message("is an earlier name of {name}: remove one of them", name)
    return InputError(document.path, document.line(place), dotted(place), told)


def _rename(document: Document, place: Place, name: str) -> tuple[InputError, bool]:
    """Rename the key at *place* to *name*. Return a line about it, and whether *name* is there as well."""
    holder = value_at(document.data, place[:-1])
    if name in holder:
        del holder[place[-1]]
        return both_names(document, place, name), True
    line = document.line(place)
    rename_key(document, place, name)
    return InputError(
        document.path, line, dotted(place), Message("is called {name} now; the earlier name is read as well", name)
    ), False


def _set(data: dict[str, Any], place: Place, value: Any) -> None:
    """Set *value* at *place*; null deletes the key, as in a file over its base."""
    holder = value_at(data, place[:-1])
    if value is None and isinstance(holder, dict) and place[-1] in holder:
        del holder[place[-1]]
    else:
        put(data, place, value)


def _drop_alternatives(data: dict[str, Any], place: Place) -> None:
    """Delete arrivals and lengths after a trace was set, and the reverse, as in a file over its base."""
    workload = data.get("workload")
    if len(place) < 2 or place[0] != "workload" or not isinstance(workload, dict):
        return
    for rival in {"trace": ("arrivals", "lengths"), "arrivals": ("trace",), "lengths": ("trace",)}.get(
        str(place[1]), ()
    ):
        workload.pop(rival, None)


def read_mapping(path: Path | str) -> Document:
    """Read a scenario file whose top level is a mapping, without its bases. Raises ScenarioErrors."""
    try:
        document = read(path, patient=True)
    except YamlError as error:
        hint = "" if is_there(Path(path)) else _suggestion(Path(path))
        raise ScenarioErrors([replace(as_input(error), message=error.message + hint)]) from None
    if not isinstance(document.data, dict):
        message = "is empty" if document.data is None else "a mapping (key: value) is needed"
        raise ScenarioErrors([InputError(document.path, 0 if document.data is None else 1, "", message)])
    return document


def is_there(path: Path) -> bool:
    """Return True if *path* is an existing file or folder."""
    try:
        return path.exists()
    except OSError:  # the name is too long, or a folder is not accessible
        return False


def _suggestion(path: Path) -> str:
    """Compose a hint on a missing file, `; did you mean ...?`; empty if no name is similar.

    Names are those of the files beside it and of the shipped scenarios.
    """
    beside = [found.name for found in path.parent.glob("*.yaml")]
    return did_you_mean(path.name, beside, listed=0) or did_you_mean(path.stem, shipped_names(), listed=0)


def as_input(error: YamlError) -> InputError:
    """Return the mistake *error* of a file."""
    return InputError(error.path, error.line, "", error.message)


def _read_bases(file: Document) -> list[Document]:
    """Return the base of *file*, the base of that file, and so on; paths are relative to the file that names them."""
    found: list[Document] = []
    chain = [Path(file.path).resolve()]
    while "base" in file.data:
        named, line = file.data["base"], file.line(("base",))
        if not isinstance(named, str):
            raise ScenarioErrors([InputError(file.path, line, "base", "the path of another scenario is needed")])
        path = Path(file.path).parent / named
        if reason := why_outside(path):
            raise ScenarioErrors([InputError(file.path, line, "base", reason)])
        if path.resolve() in chain:
            message = Message(
                "{path} is this scenario itself, or a scenario based on it: the bases form a circle", path
            )
            raise ScenarioErrors([InputError(file.path, line, "base", message)])
        file = _read_base(file, path, line)
        found.append(file)
        chain.append(path.resolve())
    return found


def _read_base(file: Document, path: Path, line: int) -> Document:
    if not is_there(path) or path.is_dir():
        shown = str(path) if len(str(path)) <= LONGEST_SHOWN else f"{str(path)[:LONGEST_SHOWN]}..."
        raise ScenarioErrors([InputError(file.path, line, "base", Message("there is no file {file}", shown))])
    return read_mapping(path)


def _merge(base: dict[Any, Any], over: dict[Any, Any]) -> dict[Any, Any]:
    """Merge *over* onto *base*: mappings merge, lists and scalars replace, null deletes the base's key."""
    merged = dict(base)
    for key, value in over.items():
        below = base.get(key)
        if value is None and key in base:
            del merged[key]
        elif isinstance(value, dict) and isinstance(below, dict) and not _other_kind(below, value):
            merged[key] = _merge(below, value)
        else:
            merged[key] = value
    return merged


def _other_kind(below: dict[Any, Any], over: dict[Any, Any]) -> bool:
    """Return True if two mappings are of different kinds: process, distribution, or trace versus arrivals."""
    if any(kind in over and over[kind] != below.get(kind, over[kind]) for kind in KINDS):
        return True
    families = [[name for name in FAMILIES if name in data] for data in (below, over)]
    if families[0] != families[1] and (families[1] or set(over) != {"note"}):
        return True
    return ("trace" in over and "arrivals" in below) or ("arrivals" in over and "trace" in below)


def _deep_copy(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _deep_copy(value) for key, value in data.items()}
    return [_deep_copy(item) for item in data] if isinstance(data, list) else data


def place_of(data: Any, path: str) -> Place:
    """Return the place that a dotted *path* names in *data*.

    Items of a list are named by index or by their `name`; names and keys may contain dots and blanks. Keys that do not
    exist yet are accepted.

    >>> place_of({"fleets": [{"name": "2x A100 v1.5", "pools": [{}]}]}, "fleets.2x A100 v1.5.pools.0.replicas")
    ('fleets', 0, 'pools', 0, 'replicas')

    Raises LookupError where a list has no such item or a plain value would need keys.
    """
    place: list[str | int] = []
    rest = path
    while rest:
        if isinstance(data, dict):
            step, rest = _key(data, rest, whole=place == ["sweep"])
            step = RENAMED.get((_last_key(place), step), step)
            data = data.get(step)
        elif isinstance(data, list):
            step, rest = _index(data, rest, dotted(tuple(place)))
            data = data[step]
        elif data is None:
            step, _, rest = rest.partition(".")
            step = RENAMED.get((_last_key(place), step), step)
        else:
            raise LookupError(Message("{place} is {value!r}: it has no keys", dotted(tuple(place)), data))
        place.append(step)
    if not place:
        raise LookupError("a path is needed")
    return tuple(place)


def _key(data: dict[Any, Any], rest: str, whole: bool) -> tuple[Any, str]:
    """Split *rest* into the longest key of *data* that it starts with, else its first word, and the remainder.

    With *whole*, an unknown key is all of *rest* (axes of a sweep).
    """
    fitting = [key for key in data if rest == str(key) or rest.startswith(f"{key}.")]
    if fitting:
        key = max(fitting, key=lambda key: len(str(key)))
        return key, rest[len(str(key)) + 1 :]
    if whole:
        return rest, ""
    step, _, rest = rest.partition(".")
    return step, rest


def _index(data: list[Any], rest: str, where: str) -> tuple[int, str]:
    names = {
        item["name"]: i for i, item in enumerate(data) if isinstance(item, dict) and isinstance(item.get("name"), str)
    }
    fitting = [name for name in names if rest == name or rest.startswith(f"{name}.")]
    if fitting:
        name = max(fitting, key=len)
        return names[name], rest[len(name) + 1 :]
    step, _, rest = rest.partition(".")
    if step.isdecimal() and int(step) < len(data):
        return int(step), rest
    if step.isdecimal():
        raise LookupError(Message("{where} has no item {place}, only {count} counted from 0", where, step, len(data)))
    raise LookupError(Message("{where} has no item named {name!r}{hint}", where, step, did_you_mean(step, names)))


def put(data: Any, place: Place, value: Any) -> None:
    """Set *value* at *place*, creating missing mappings on the way."""
    for step in place[:-1]:
        if isinstance(data, dict) and data.get(step) is None:
            data[step] = {}
        data = data[step]
    data[place[-1]] = value


def descend(data: Any, place: Place) -> tuple[int, Any]:
    """Return the number of steps of *place* that exist in *data*, and the value reached."""
    for depth, step in enumerate(place):
        exists = step in data if isinstance(data, dict) else isinstance(data, list) and step in range(len(data))
        if not exists:
            return depth, data
        data = data[step]
    return len(place), data


def value_at(data: Any, place: Place) -> Any:
    """Return the value at *place*, or None if there is none."""
    depth, value = descend(data, place)
    return value if depth == len(place) else None


def with_values(data: Any, values: dict[Place, Any]) -> Any:
    """Return a copy of *data* with *values* set at their places."""
    copied = _deep_copy(data)
    for place, value in values.items():
        put(copied, place, value)
    return copied


def as_document(data: Mapping[str, Any] | Spec) -> Document:
    """Convert *data* from Python to a document for `load`.

    Relative paths in it start at the current directory; errors name places and no lines.

    Raises ScenarioErrors where a value cannot be part of a scenario, TypeError if *data* is no mapping.
    """
    if not isinstance(data, Mapping | Spec):
        kind = type(data).__name__
        raise TypeError(
            Message("a scenario is a path, the name of a shipped one, a dict or a Scenario, not {kind}", kind)
        )
    try:
        return Document("", read_text(dump(plain(data)), "").data, None)
    except YamlError as error:
        raise ScenarioErrors([InputError("", 0, "", error.message)]) from None


def options(values: Mapping[str, Any]) -> list[str]:
    """Convert values by dotted path to options of the command line, as `load` takes them.

    >>> options({"workload.arrivals.rate_rps": 0.5, "engine": "vllm", "slo": {"ttft_s": 1}})
    ['workload.arrivals.rate_rps=0.5', 'engine=vllm', 'slo={ttft_s: 1}']
    """
    if not isinstance(values, Mapping):
        raise TypeError(Message("set is a dict of dotted paths to values, not {name}", type(values).__name__))
    return [f"{path}={dump_line(plain(value, (path,)))}" for path, value in values.items()]


def plain(value: Any, place: Place = ()) -> Any:
    """Convert *value* to YAML types: mappings, lists, texts, numbers, true, false and null.

    Arrays, pandas columns and tuples become lists, numpy numbers Python numbers, paths and dates text. Raises
    ScenarioErrors.
    """
    if isinstance(value, Spec):
        return value.model_dump(mode="json", exclude_unset=True)
    if callable(as_list := getattr(value, "tolist", None)):  # arrays of numpy and columns of pandas
        return plain(as_list(), place)
    if isinstance(value, Mapping):
        return {key: plain(item, (*place, str(key))) for key, item in value.items()}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Sequence | range) and not isinstance(value, bytes | bytearray):
        return [plain(item, (*place, index)) for index, item in enumerate(value)]
    raise ScenarioErrors(
        [InputError("", 0, dotted(place), Message("{name} cannot be used in a scenario", type(value).__name__))]
    )


def entries(data: Any, place: Place) -> list[tuple[Any, Any]]:
    """Return the items of the mapping at *place* of raw *data*; empty if there is none."""
    value = value_at(data, place)
    return list(value.items()) if isinstance(value, dict) else []


def mappings(holder: Any, key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the mappings in the list *key* of a raw *holder*, each with its index."""
    items = holder.get(key) if isinstance(holder, dict) else None
    for i, item in enumerate(items if isinstance(items, list) else []):
        if isinstance(item, dict):
            yield i, item


def unknown_ids(holder: Any, place: Place, lookups: Mapping[str, Callable[[str], object]]) -> Iterator[ValidationIssue]:
    """Yield an issue for each id in the raw *holder* for which the lookup of its key raises ValueError."""
    for key, lookup in lookups.items() if isinstance(holder, dict) else ():
        if isinstance(name := holder.get(key), str):
            try:
                lookup(name)
            except ValueError as error:
                yield ValidationIssue((*place, key), first_line(str(error)))


def unknown_prices(cost: Any, place: Place, catalog: Catalog) -> Iterator[ValidationIssue]:
    """Yield issues for the offer and the quoted items of a raw `cost` that are not in the catalogue."""
    if not isinstance(cost, dict):
        return
    named = cost.get("price")
    yield from unknown_offers(named, (*place, "price"), catalog)
    for index, offer in enumerate(named) if isinstance(named, list) else ():
        yield from unknown_offers(offer, (*place, "price", index), catalog)
    quotes = cost.get("quotes")
    known = {*catalog.ids("gpus"), *catalog.ids("servers")}
    for item in quotes if isinstance(quotes, dict) else ():
        if item not in known:
            yield ValidationIssue(
                (*place, "quotes", item),
                Message("unknown gpu or server {item!r}{hint}", item, did_you_mean(item, sorted(known))),
            )


def unknown_offers(name: Any, place: Place, catalog: Catalog) -> Iterator[ValidationIssue]:
    """Yield an issue if the offer *name*, written item/offer, is not in the catalogue."""
    if not isinstance(name, str):
        return
    try:
        catalog.offer(name)
    except UnknownId as error:
        item = name.partition("/")[0]
        prices = None if error.suggestions else catalog.prices(item)
        known = [f"{item}/{offer}" for offer in prices.offers] if prices else []
        yield ValidationIssue(place, str(error) + did_you_mean(name, known))


FILE_KEYS = ("path", "calibration", "model")
"""Keys of a scenario whose value may be the path of a file."""


def files_of(data: Any) -> Iterator[Path]:
    """Yield the files that the *data* of a scenario names; for the folder of a model, its config.json."""
    if isinstance(data, dict):
        for key, value in data.items():
            last = str(key).rpartition(".")[2]  # an axis of a sweep is a dotted path
            if last not in FILE_KEYS:
                if isinstance(value, dict | list | tuple):
                    yield from files_of(value)
                continue
            for one in value if isinstance(value, list | tuple) else [value]:
                if (file := named_file(last, one)) is not None:
                    yield file
                else:
                    yield from files_of(one)
    elif isinstance(data, list | tuple):
        for value in data:
            yield from files_of(value)


def named_file(key: Any, value: Any) -> Path | None:
    """Return the file that the *value* of *key* names, or None."""
    if key not in FILE_KEYS or not isinstance(value, str):
        return None
    path = Path(value)
    try:
        if key == "model" and path.is_dir():
            path /= "config.json"
        return path if path.is_file() else None
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        return None
