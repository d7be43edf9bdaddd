"""Look-up of catalogue entries in data/ by id, alias or path; each entry is a file, read at its first look-up."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from difflib import SequenceMatcher, get_close_matches
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from sim import yamlio
from sim.catalogue.data_folder import CatalogError, UnknownId, data_root
from sim.catalogue.drafter import Drafter
from sim.catalogue.engine import Engine, at_version, family_of, version_distance, version_of
from sim.catalogue.failure_rate import FailureRate
from sim.catalogue.gpu import Gpu
from sim.catalogue.hf_config.load import is_config, model_from_config
from sim.catalogue.kernel import Kernel
from sim.catalogue.link import Link
from sim.catalogue.market import Grid, Offer, PriceList
from sim.catalogue.model import AnyModel, Model, OtherModel
from sim.catalogue.quantization import Quantization
from sim.catalogue.server import Server
from sim.catalogue.value import Source
from sim.message import Message, joined, located, placed
from sim.validation import Place, dotted, validation_issues

Entry = TypeVar("Entry", bound=BaseModel)

_SINGULAR = {
    "gpus": "gpu",
    "models": "model",
    "quantizations": "quantization",
    "kernels": "kernel",
    "engines": "engine",
    "servers": "server",
    "links": "link",
    "prices": "price list",
    "grids": "grid",
    "drafters": "drafter",
    "failures": "failure rate",
}
KINDS: tuple[str, ...] = tuple(_SINGULAR)
"""Names of the catalogue's folders, one per kind of entry."""
_LONGEST_ID = 100
OWN_FOLDER = "gpufleet.d"
"""Name of the folder with a user's own entries beside a scenario."""
SOURCES = "sources.yaml"
MIN_MATCH_LENGTH = 3
"""Minimum length of a name or word that is searched for inside other names [characters]."""
MISSPELLING_SIMILARITY = 0.9
"""Similarity from which a name counts as a misspelling of another, from 0 to 1."""
MAX_SUGGESTIONS = 4
"""Maximum number of ids suggested in place of an unknown one."""
_RELEASE = re.compile(r"(.*?)[\s_=:@-]*v?(\d+(?:\.\d+)+[a-z0-9.+-]*)")
"""Pattern of an engine's name followed by a release number."""
_AS_OF = re.compile(r"\bas_of: (\d{4}-\d{2}-\d{2})\b")
_NAME = re.compile(r"^name: (.+)$", re.MULTILINE)
_ALIASES = re.compile(r"^aliases:(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)


def load_catalog(root: Path | None = None, own: Sequence[Path] = ()) -> "Catalog":
    """Return the catalogue under the folder *root* with the entries of the folders *own*, later ones first.

    No file of *root* is read yet; those of *own* are read and checked. Without both, return the catalogue shipped with
    the program, which is shared by the whole process so that each of its files is read once. Raises CatalogError with
    all mistakes in *own*.
    """
    if own:
        return Catalog(root or data_root(), tuple(own)).with_own_checked()
    return _shipped_catalog() if root is None else Catalog(root)


def own_folders(scenario: Path | None, stated: Sequence[Path] = ()) -> list[Path]:
    """Return the folders with the user's entries: gpufleet.d beside the file *scenario*, then those *stated*.

    Raises CatalogError for a stated folder that does not exist.
    """
    if missing := [Message("{folder}: is not a folder", folder) for folder in stated if not folder.is_dir()]:
        raise CatalogError(joined("\n", missing))
    beside = scenario.absolute().parent / OWN_FOLDER if scenario is not None else None
    found = [beside] if beside is not None and beside.is_dir() else []
    return list(dict.fromkeys([*found, *(folder.absolute() for folder in stated)]))


@cache
def _shipped_catalog() -> "Catalog":
    return Catalog(data_root())


class Catalog:
    """Catalogue entries by id or alias, ignoring case; each file is read once, at its first look-up.

    Look-ups raise UnknownId for an unknown name, and CatalogError or YamlError for a file with errors.
    """

    def __init__(self, root: Path, own: tuple[Path, ...] = ()) -> None:
        self.root = root
        self.own = own
        """Folders with the user's entries, which replace those of `root`; the last one wins."""
        self._entries: dict[tuple[str, str], Any] = {}
        self._ids: dict[str, list[str]] = {}
        self._aliases: dict[str, dict[str, str]] = {}
        self._sources: dict[str, Source] | None = None
        self._newest_price: date | None = None

    def gpu(self, name: str) -> Gpu:
        """Return the GPU *name* from data/gpus."""
        return self._lookup("gpus", name, Gpu)

    def model(self, name: str) -> Model:
        """Return the language model *name* from data/models, or from the path of a config.json or its folder.

        Raises
        ------
        ConfigError
            The config.json cannot be read as a language model.
        UnknownId
            The name is unknown, or names a network that is not a language model.

        """
        model = self.any_model(name)
        if isinstance(model, OtherModel):
            raise UnknownId("language model", name, ())
        return model

    def any_model(self, name: str) -> Model | OtherModel:
        """Return the language model or one-pass network *name* from data/models, or the model of a config.json.

        Raises
        ------
        ConfigError
            The config.json cannot be read as a language model.
        UnknownId
            The name is unknown.

        """
        if name.endswith(".json") or is_config(Path(name)):
            return model_from_config(Path(name))
        found: Model | OtherModel = self._lookup("models", name, _SPECS["models"])
        return found

    def quantization(self, name: str) -> Quantization:
        """Return the weight format *name* from data/quantizations."""
        return self._lookup("quantizations", name, Quantization)

    def kernel(self, name: str) -> Kernel:
        """Return the matrix kernel *name* from data/kernels."""
        return self._lookup("kernels", name, Kernel)

    def engine(self, name: str) -> Engine:
        """Return the serving engine *name* from data/engines.

        A name with a release ("vllm-0.17.1") returns the entry whose versions contain that release, with the defaults
        of that release. Raises UnknownId if there is no such entry.
        """
        try:
            return self._lookup("engines", name, Engine)
        except UnknownId:
            key = name.strip().lower()
            released = _RELEASE.fullmatch(key)
            if released is None:
                raise
            eras = self._eras(released[1])
            if not eras:
                raise
            version = version_of(released[2])
            era = min(eras, key=lambda one: version_distance(one.versions, version))
            if any(version_distance(era.versions, version)):
                raise UnknownId("engine", name, (era.id,)) from None
            found: Engine = self._entries.setdefault(("engines", key), at_version(era, version))
            return found

    def _eras(self, name: str) -> list[Engine]:
        """Return the entries of all versions of engine *name* (given without a release); empty if unknown."""
        known = {family_of(one): family_of(one) for one in self.ids("engines")}
        known |= {alias: family_of(one) for alias, one in self._alias_index("engines").items()}
        family = known.get(name)
        found = [one for one in self.ids("engines") if family and family_of(one) == family]
        return [self._lookup("engines", one, Engine) for one in found]

    def server(self, name: str) -> Server:
        """Return the server chassis *name* from data/servers."""
        return self._lookup("servers", name, Server)

    def link(self, name: str) -> Link:
        """Return the link between GPUs *name* from data/links."""
        return self._lookup("links", name, Link)

    def grid(self, name: str) -> Grid:
        """Return the electricity grid *name* from data/grids."""
        return self._lookup("grids", name, Grid)

    def drafter(self, name: str) -> Drafter:
        """Return the measured acceptance of drafted tokens *name* from data/drafters."""
        return self._lookup("drafters", name, Drafter)

    def accepted(self, name: str) -> tuple[Drafter, str]:
        """Return the drafter and the task named by `drafter/task`. Raises UnknownId."""
        item, _, task = name.partition("/")
        drafter = self.drafter(item)
        if task not in drafter.accepted_per_step:
            near = _nearest(task, drafter.accepted_per_step) or tuple(drafter.accepted_per_step)
            raise UnknownId("task", name, tuple(f"{drafter.id}/{one}" for one in near[:MAX_SUGGESTIONS]))
        return drafter, task

    def failure_rate(self, name: str) -> FailureRate:
        """Return the published failure rate *name* from data/failures."""
        return self._lookup("failures", name, FailureRate)

    def prices(self, item: str) -> PriceList | None:
        """Return the price offers for *item*; None if it has no price file (see `price_file`)."""
        key = item.strip().lower()
        return self._lookup("prices", key, PriceList) if _is_id(key) and self._path("prices", key).is_file() else None

    def price_list(self, item: str) -> PriceList:
        """Return the price offers for *item*. Raises UnknownId if it has none."""
        prices = self.prices(item)
        if prices is None:
            raise UnknownId("price list", item, _nearest(item, self.ids("prices"))[:MAX_SUGGESTIONS])
        return prices

    def price_file(self, item: str) -> Path:
        """Return the path of the price file of *item*, whether or not it exists."""
        return self._path("prices", item.strip().lower())

    def newest_price(self) -> date:
        """Return the latest `as_of` date in data/prices, found by pattern search without parsing the files."""
        if self._newest_price is None:
            texts = (path.read_text("utf-8") for folder in self.folders for path in (folder / "prices").glob("*.yaml"))
            self._newest_price = date.fromisoformat(max(day for text in texts for day in _AS_OF.findall(text)))
        return self._newest_price

    def offer(self, name: str) -> Offer:
        """Return the offer named by `item/offer`. Raises UnknownId."""
        item, _, key = name.partition("/")
        offers = self._lookup("prices", item, PriceList).offers
        if key not in offers:
            raise UnknownId("offer", name, tuple(f"{item}/{near}" for near in _nearest(key, offers)[:MAX_SUGGESTIONS]))
        return offers[key]

    def ids(self, kind: str) -> list[str]:
        """Return all ids of one kind ("gpus", "models", ...), sorted. Raises UnknownId for an unknown kind."""
        if kind not in _SINGULAR:
            raise UnknownId("kind", kind, _nearest(kind, KINDS)[:MAX_SUGGESTIONS])
        if kind not in self._ids:
            paths = (path for folder in self.folders for path in (folder / kind).glob("*.yaml"))
            self._ids[kind] = sorted({path.stem for path in paths})
        return list(self._ids[kind])

    def source(self, key: str) -> Source:
        """Return the source that values cite as *key*. Raises UnknownId."""
        sources = self.sources()
        if key not in sources:
            raise UnknownId("source", key, _nearest(key, sources)[:MAX_SUGGESTIONS])
        return sources[key]

    def sources(self) -> dict[str, Source]:
        """Return all sources by key."""
        if self._sources is None:
            found, _, wrong = self._read_sources()
            if wrong:
                raise CatalogError(joined("\n", wrong))
            self._sources = found
        return self._sources

    def _read_sources(self) -> tuple[dict[str, Source], set[str], list[str]]:
        """Return the valid sources by key, the keys of all, and the mistakes in the others.

        Raises CatalogError or YamlError for a file that holds no mapping.
        """
        found: dict[str, Source] = {}
        keys: set[str] = set()
        wrong: list[str] = []
        for folder in self.folders:
            if folder == self.root or (folder / SOURCES).is_file():
                document = yamlio.read(folder / SOURCES)
                if not isinstance(document.data, dict):
                    raise CatalogError(Message("{path}:1: file: must hold sources by their keys", document.path))
                keys.update(document.data)
                for key, data in document.data.items():
                    entry, mistakes = _checked(Source, data)
                    if entry is None:
                        wrong.append(_told(document, [((key, *place), text) for place, text in mistakes]))
                    else:
                        found[key] = entry
        return found, keys, wrong

    @property
    def folders(self) -> tuple[Path, ...]:
        """All folders of the catalogue, the shipped one first; an entry is read from the last that has it."""
        return (self.root, *self.own)

    def replaced(self) -> list[str]:
        """Return a sentence for each shipped entry that an own folder replaces."""
        return [
            Message(
                "{folder}/{kind}/{file} replaces the {noun} {id} of the catalogue",
                path.parent.parent.name,
                kind,
                path.name,
                _SINGULAR[kind],
                path.stem,
            )
            for folder in self.own
            for kind in KINDS
            for path in sorted((folder / kind).glob("*.yaml"))
            if (self.root / kind / path.name).is_file()
        ]

    def with_own_checked(self) -> "Catalog":
        """Return this catalogue after a check of all own entries. Raises CatalogError with all mistakes."""
        problems = [one for folder in self.own for one in _misplaced(folder)]
        keys: set[str] | None = None
        try:
            found, keys, wrong = self._read_sources()
            self._sources = None if wrong else found
            problems += wrong
        except (CatalogError, yamlio.YamlError) as error:
            problems.append(str(error))
        for folder in self.own:
            for kind in KINDS:
                for path in sorted((folder / kind).glob("*.yaml")):
                    problems += self._mistakes_in(kind, path, keys)
        if problems:
            raise CatalogError(joined("\n", problems))
        return self

    def _mistakes_in(self, kind: str, path: Path, sources: set[str] | None) -> list[str]:
        """Return the mistakes in the own file *path* of *kind*; *sources* are the known ones, None if unreadable."""
        if not _is_id(path.stem):
            return [Message("{path}: an id has small letters, digits, dots, underscores and dashes", path)]
        try:
            document = yamlio.read(path)
        except yamlio.YamlError as error:
            return [str(error)]
        _, found = _checked(_SPECS[kind], document.data)
        if not isinstance(document.data, dict):
            return [_told(document, found)]
        if ("id",) not in dict(found):
            found += _wrong_id(document)
        found += self._unknown_entries(document.data)
        for place, value in _sourced(document.data):
            number, key = value.get("value"), value["source"]
            if isinstance(number, int | float) and number < 0:
                found.append(((*place, "value"), Message("must be {limit:g} or more, not {value}", 0, f"{number:g}")))
            if sources is not None and key not in sources:
                near = _nearest(key, sources)
                hint = Message("; did you mean {near}?", near[0]) if near else ""
                text = Message("unknown source {key!r}{hint} (see {sources})", key, hint, SOURCES)
                found.append(((*place, "source"), text))
        return [_told(document, found)] if found else []

    def _unknown_entries(self, data: dict[str, Any]) -> Iterator[tuple[Place, str]]:
        """Yield the mistakes in the names of other entries that the entry *data* relies on."""
        look_ups = {"gpu": self.gpu, "link": self.link, "kernel": self.kernel}
        for key, look_up in look_ups.items():
            try:
                if isinstance(name := data.get(key), str):
                    look_up(name)
            except UnknownId as error:
                yield (key,), str(error)
            except (CatalogError, yamlio.YamlError):
                continue  # mistakes of that entry are its own

    def _lookup(self, kind: str, name: str, spec: type[Entry]) -> Entry:
        key = name.strip().lower()
        if (kind, key) not in self._entries and not (_is_id(key) and self._path(kind, key).is_file()):
            key = self._alias_index(kind).get(key, "") or self._spelled_alike(kind, key)
        if not key:
            raise UnknownId(_SINGULAR[kind], name, partial(self._similar, kind, name))
        if (kind, key) not in self._entries:
            self._entries[kind, key] = _entry(spec, yamlio.read(self._path(kind, key)))
        found: Entry = self._entries[kind, key]
        return found

    def _similar(self, kind: str, name: str) -> tuple[str, ...]:
        """Return the ids of *kind* that *name* may mean, likeliest first."""
        aliases = self._alias_index(kind)
        near = (aliases.get(match, match) for match in _nearest(name, [*self.ids(kind), *aliases]))
        return tuple(dict.fromkeys(near))[:MAX_SUGGESTIONS]

    def _alias_index(self, kind: str) -> dict[str, str]:
        """Return the map from alias or display name, in lower case, to id. Only these parts of each file are parsed."""
        if kind not in self._aliases:
            index: dict[str, str] = {}
            names: dict[str, str] = {}
            for key in self.ids(kind):
                text = self._path(kind, key).read_text("utf-8")
                part = _ALIASES.search(text)
                aliases = yamlio.parse(part.group(1)) if part else None
                index.update({str(alias).lower(): key for alias in aliases or ()})
                if named := _NAME.search(text):
                    names[str(yamlio.parse(named.group(1))).lower()] = key
            self._aliases[kind] = names | index
        return self._aliases[kind]

    def _spelled_alike(self, kind: str, name: str) -> str:
        """Return the only id spelled as *name* but for hyphens, underscores, spaces and the maker; else empty."""
        names, wanted = {**self._alias_index(kind), **{key: key for key in self.ids(kind)}}, _spelling(name)
        alike = {key for known, key in names.items() if _spelling(known) == wanted}
        return alike.pop() if len(alike) == 1 else ""

    def _path(self, kind: str, key: str) -> Path:
        """Return the file of an entry, in the last folder that has it, else in `root`."""
        paths = (folder / kind / f"{key}.yaml" for folder in reversed(self.own))
        return next((path for path in paths if path.is_file()), self.root / kind / f"{key}.yaml")


_SPECS: dict[str, Any] = {
    "gpus": Gpu,
    "models": AnyModel,
    "quantizations": Quantization,
    "kernels": Kernel,
    "engines": Engine,
    "servers": Server,
    "links": Link,
    "prices": PriceList,
    "grids": Grid,
    "drafters": Drafter,
    "failures": FailureRate,
}
"""Spec of an entry, by kind."""


def _entry(spec: type[Entry], document: yamlio.Document) -> Entry:
    """Return the *spec* in *document*; its id must be the name of the file. Raises CatalogError."""
    entry, found = _checked(spec, document.data)
    if entry is None or (found := _wrong_id(document)):
        raise CatalogError(_told(document, found))
    return entry


def _wrong_id(document: yamlio.Document) -> list[tuple[Place, str]]:
    key = Path(document.path).stem
    return [] if document.data.get("id") == key else [(("id",), Message("must be the file's name, {key!r}", key))]


def _misplaced(folder: Path) -> Iterator[str]:
    """Yield a sentence for each file or folder of *folder* that is no part of a catalogue."""
    for path in sorted(folder.iterdir()):
        name = path.name
        if name.startswith(".") or name == SOURCES or name.lower().startswith("readme"):
            continue
        if not path.is_dir():
            yield Message(
                "{path}: belongs in one of the folders {kinds}; beside them there is only {sources}",
                path,
                ", ".join(KINDS),
                SOURCES,
            )
        elif name not in KINDS:
            near = get_close_matches(name, KINDS, n=1)
            yield Message("{path}: no folder of a catalogue", path) + (
                Message("; did you mean {near}?", near[0]) if near else ""
            )
        else:
            for one in sorted(path.iterdir()):
                if one.suffix != ".yaml" and not one.name.startswith("."):
                    yield Message("{path}: an entry is a file <id>.yaml", one)


def _sourced(data: Any, place: Place = ()) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Yield the place and content of each mapping of *data* that cites a source."""
    if isinstance(data, dict):
        if isinstance(data.get("source"), str):
            yield place, data
        for key, value in data.items():
            yield from _sourced(value, (*place, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _sourced(value, (*place, index))


def _is_id(key: str) -> bool:
    """Return whether *key* is a valid file name of an entry; paths such as ../x are not."""
    return len(key) <= _LONGEST_ID and re.fullmatch(r"[a-z0-9][a-z0-9._-]*", key) is not None


_MAKER = r"^(?:(?:nvidia|tesla|geforce|amd|instinct|radeon|intel)-)+"
"""Words before the name of a GPU, of which some tools print all and others none."""


@cache
def _spelling(name: str) -> str:
    """Return *name* without its maker, with hyphens between words, and none between a letter and a number.

    >>> _spelling("Gemma 4 12B"), _spelling("gemma4-12b"), _spelling("Llama 2-7B")
    ('gemma4-12b', 'gemma4-12b', 'llama2-7b')
    >>> _spelling("NVIDIA GeForce RTX 3060 12 GB"), _spelling("RTX 3060-12GB")
    ('rtx3060-12gb', 'rtx3060-12gb')
    """
    return re.sub(rf"{_MAKER}|(?<=[a-z])-(?=\d)|(?<=\d)-(?=gb\b)", "", re.sub(r"[\s_]+", "-", name.strip().lower()))


def _nearest(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return the ids that *name* may mean, likeliest first.

    Order: ids that contain *name*, ids with the same numbers or nearly the same spelling, other similar ids. Ids with
    the letters of *name* in another order are returned alone.


    >>> _nearest("a100", ["a10", "h100-sxm", "a100-80gb-sxm", "a100-40gb-pcie"])
    ('a100-40gb-pcie', 'a100-80gb-sxm', 'a10')
    >>> _nearest("nvidia a100", ["a10", "a100-80gb-sxm"])
    ('a100-80gb-sxm',)
    >>> _nearest("qwen3-32bb", ["qwen3-0.6b", "qwen3-14b", "qwen3-32b"])
    ('qwen3-32b', 'qwen3-14b', 'qwen3-0.6b')
    >>> _nearest("qwen3-33b", ["qwen3-0.6b", "qwen3-14b", "qwen3-32b"])[0]
    'qwen3-32b'
    >>> _nearest("kimi k2 thinking", ["glm-5", "kimi-k2"])
    ('kimi-k2',)
    >>> _nearest("rtx4900", ["rtx-4070", "rtx-4080", "rtx-4090"])
    ('rtx-4090',)
    """
    wanted, names = re.sub(r"[\s_]+", "-", name.strip().lower()[:_LONGEST_ID]), sorted(known)
    holding = [one for one in names if len(wanted) >= MIN_MATCH_LENGTH and wanted in one.lower()]
    holding.sort(key=lambda one: (one.lower().find(wanted) > 0, one))
    if not holding and (swapped := [one for one in names if _letters(one) == _letters(wanted)]):
        return tuple(swapped)
    shared = {one: len(_numbers(wanted) & _numbers(one)) for one in names}
    most = max(shared.values(), default=0)
    sharing = [one for one in names if most and shared[one] == most]
    alike = get_close_matches(wanted, names, n=3)
    almost = get_close_matches(wanted, alike, n=3, cutoff=MISSPELLING_SIMILARITY)
    near = sorted({*almost, *sharing}, key=lambda one: SequenceMatcher(None, wanted, one.lower()).ratio(), reverse=True)
    near.sort(key=lambda one: shared[one], reverse=True)
    return tuple(dict.fromkeys([*holding, *near, *alike]))


def _letters(text: str) -> list[str]:
    return sorted(filter(str.isalnum, text.lower()))


def _numbers(text: str) -> set[str]:
    """Return the words of *text* that contain a digit; they distinguish products."""
    words = re.split(r"[^a-z0-9.]+", text.lower())
    return {word for word in words if len(word) >= MIN_MATCH_LENGTH and any(map(str.isdecimal, word))}


@cache
def _validator(spec: Any) -> TypeAdapter[Any]:
    """Return the validator of *spec*, a model or a union of models."""
    return TypeAdapter(spec)


def _checked(spec: type[Entry], data: Any) -> tuple[Entry | None, list[tuple[Place, str]]]:
    """Return *data* as a *spec*, None if invalid, and the place and text of each mistake in it."""
    try:
        return _validator(spec).validate_python(data), []
    except ValidationError as error:
        return None, [(one.place, one.message) for one in validation_issues(error, spec, data)]


def _told(document: yamlio.Document, found: Iterable[tuple[Place, str]]) -> str:
    """Return a line `file:line: place: mistake` for each mistake in *found*, in the order of the file."""
    by_line = sorted((document.line(place), dotted(place) or "file", text) for place, text in found)
    return located([(str(document.path), line, placed(place, text)) for line, place, text in by_line])
