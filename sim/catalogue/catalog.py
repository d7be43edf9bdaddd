"""Looking things up in data/: one file a thing, read when it is first asked for."""

import re
from collections.abc import Callable, Iterable
from datetime import date
from difflib import SequenceMatcher, get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from sim import yamlio
from sim.catalogue.data_folder import CatalogError, UnknownId, data_root
from sim.catalogue.drafter import Drafter
from sim.catalogue.engine import Engine, at_version, family_of, outside, version_of
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

Entry = TypeVar("Entry")

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
"""What the catalogue holds: the folders of data/."""
_ANY_MODEL: TypeAdapter[Model | OtherModel] = TypeAdapter(AnyModel)
_LONGEST_ID = 100
LEAST_PART = 3
"""Characters of a name or word that is looked for inside of others."""
ALMOST = 0.9
"""Likeness of two names of which one is a slip of the other."""
MOST_OFFERED = 4
"""Ids in place of an unknown one."""
_RELEASE = re.compile(r"(.*?)[\s_=:@-]*v?(\d+(?:\.\d+)+[a-z0-9.+-]*)")
"""An engine's name and a release of it."""
_AS_OF = re.compile(r"\bas_of: (\d{4}-\d{2}-\d{2})\b")
_NAME = re.compile(r"^name: (.+)$", re.MULTILINE)
_ALIASES = re.compile(r"^aliases:(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)


def load_catalog(root: Path | None = None) -> "Catalog":
    """The catalogue under *root*. Reads nothing yet.

    Without *root*, the one that came with the program: one per process, so that each of its files is read once.
    """
    return _shipped() if root is None else Catalog(root)


@cache
def _shipped() -> "Catalog":
    return Catalog(data_root())


class Catalog:
    """Things by id or alias (case does not matter), each file read once and only when it is asked for.

    Look-ups raise UnknownId for a name that is not there, CatalogError and YamlError for a file that is wrong.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._entries: dict[tuple[str, str], Any] = {}
        self._ids: dict[str, list[str]] = {}
        self._aliases: dict[str, dict[str, str]] = {}
        self._sources: dict[str, Source] | None = None

    def gpu(self, name: str) -> Gpu:
        """A GPU: data/gpus."""
        return self._lookup("gpus", name, Gpu.model_validate)

    def model(self, name: str) -> Model:
        """A language model: data/models, or a path to a Hugging Face config.json (or to the folder that holds one).

        Raises ConfigError for a config that cannot be read, UnknownId also for a network that is no language model.
        """
        model = self.any_model(name)
        if isinstance(model, OtherModel):
            raise UnknownId("language model", name, ())
        return model

    def any_model(self, name: str) -> Model | OtherModel:
        """A language model (by id, or by the path of its config.json) or another network: data/models.

        Raises ConfigError for a config that cannot be read, UnknownId.
        """
        if name.endswith(".json") or is_config(Path(name)):
            return model_from_config(Path(name))
        return self._lookup("models", name, _ANY_MODEL.validate_python)

    def quantization(self, name: str) -> Quantization:
        """A weight format: data/quantizations."""
        return self._lookup("quantizations", name, Quantization.model_validate)

    def kernel(self, name: str) -> Kernel:
        """A matrix kernel: data/kernels."""
        return self._lookup("kernels", name, Kernel.model_validate)

    def engine(self, name: str) -> Engine:
        """A serving engine: data/engines. With a release in its name ("vllm-0.17.1") it is the entry that stands for
        that, with its defaults.
        """
        try:
            return self._lookup("engines", name, Engine.model_validate)
        except UnknownId:
            released = _RELEASE.fullmatch(name.strip().lower())
            if released is None:
                raise
            eras = self._eras(released[1])
            if not eras:
                raise
            version = version_of(released[2])
            era = min(eras, key=lambda one: outside(one.versions, version))
            if any(outside(era.versions, version)):
                raise UnknownId("engine", name, (era.id,)) from None
            return at_version(era, version)

    def _eras(self, name: str) -> list[Engine]:
        """Entries of the engine that *name* without a release stands for; none if there is no such engine."""
        known = {family_of(one): family_of(one) for one in self.ids("engines")}
        known |= {alias: family_of(one) for alias, one in self._alias_index("engines").items()}
        family = known.get(name)
        found = [one for one in self.ids("engines") if family and family_of(one) == family]
        return [self._lookup("engines", one, Engine.model_validate) for one in found]

    def server(self, name: str) -> Server:
        """A chassis: data/servers."""
        return self._lookup("servers", name, Server.model_validate)

    def link(self, name: str) -> Link:
        """A link between GPUs: data/links."""
        return self._lookup("links", name, Link.model_validate)

    def grid(self, name: str) -> Grid:
        """An electricity grid: data/grids."""
        return self._lookup("grids", name, Grid.model_validate)

    def drafter(self, name: str) -> Drafter:
        """How much of what is drafted holds: data/drafters."""
        return self._lookup("drafters", name, Drafter.model_validate)

    def accepted(self, name: str) -> tuple[Drafter, str]:
        """A drafter and one of its tasks by `drafter/task`. Raises UnknownId."""
        item, _, task = name.partition("/")
        drafter = self.drafter(item)
        if task not in drafter.accepted_per_step:
            near = _nearest(task, drafter.accepted_per_step) or tuple(drafter.accepted_per_step)
            raise UnknownId("task", name, tuple(f"{drafter.id}/{one}" for one in near[:MOST_OFFERED]))
        return drafter, task

    def failure_rate(self, name: str) -> FailureRate:
        """A published failure rate: data/failures."""
        return self._lookup("failures", name, FailureRate.model_validate)

    def prices(self, item: str) -> PriceList | None:
        """The offers for *item*; None where nobody has asked for a price yet (the file would be `price_file(item)`)."""
        key = item.strip().lower()
        return (
            self._lookup("prices", key, PriceList.model_validate)
            if _is_id(key) and self._path("prices", key).is_file()
            else None
        )

    def price_list(self, item: str) -> PriceList:
        """The offers for *item*. Raises UnknownId where there are none."""
        prices = self.prices(item)
        if prices is None:
            raise UnknownId("price list", item, _nearest(item, self.ids("prices"))[:MOST_OFFERED])
        return prices

    def price_file(self, item: str) -> Path:
        """Where the offers for *item* stand or would have to stand."""
        return self._path("prices", item.strip().lower())

    def newest_price(self) -> date:
        """The latest day on which a price of data/prices was asked; its files are not read as entries."""
        texts = (path.read_text(encoding="utf-8") for path in (self.root / "prices").glob("*.yaml"))
        return max(date.fromisoformat(day) for text in texts for day in _AS_OF.findall(text))

    def offer(self, name: str) -> Offer:
        """One offer by `item/offer`. Raises UnknownId."""
        item, _, key = name.partition("/")
        offers = self._lookup("prices", item, PriceList.model_validate).offers
        if key not in offers:
            raise UnknownId("offer", name, tuple(f"{item}/{near}" for near in _nearest(key, offers)[:MOST_OFFERED]))
        return offers[key]

    def ids(self, kind: str) -> list[str]:
        """All ids of one kind ("gpus", "models", ...), sorted. Raises UnknownId."""
        if kind not in _SINGULAR:
            raise UnknownId("kind", kind, _nearest(kind, KINDS)[:MOST_OFFERED])
        if kind not in self._ids:
            self._ids[kind] = sorted(path.stem for path in (self.root / kind).glob("*.yaml"))
        return list(self._ids[kind])

    def source(self, key: str) -> Source:
        """The source that values cite as *key*. Raises UnknownId."""
        sources = self.sources()
        if key not in sources:
            raise UnknownId("source", key, _nearest(key, sources)[:MOST_OFFERED])
        return sources[key]

    def sources(self) -> dict[str, Source]:
        """All sources by key."""
        if self._sources is None:
            document = yamlio.read(self.root / "sources.yaml")
            if not isinstance(document.data, dict):
                raise CatalogError(f"{document.path}:1: file: must hold sources by their keys")
            self._sources = {
                key: _validated(document, Source.model_validate, entry, (key,)) for key, entry in document.data.items()
            }
        return self._sources

    def _lookup(self, kind: str, name: str, read: Callable[[Any], Entry]) -> Entry:
        key = name.strip().lower()
        if (kind, key) not in self._entries and not (_is_id(key) and self._path(kind, key).is_file()):
            key = self._alias_index(kind).get(key, "")
        if not key:
            known = [*self.ids(kind), *self._alias_index(kind)]
            near = (self._alias_index(kind).get(match, match) for match in _nearest(name, known))
            raise UnknownId(_SINGULAR[kind], name, tuple(dict.fromkeys(near))[:MOST_OFFERED])
        if (kind, key) not in self._entries:
            document = yamlio.read(self._path(kind, key))
            entry = _validated(document, read, document.data, ())
            if document.data.get("id") != key:
                raise CatalogError(f"{document.path}:{document.line(('id',))}: id: must be the file's name, {key!r}")
            self._entries[kind, key] = entry
        found: Entry = self._entries[kind, key]
        return found

    def _alias_index(self, kind: str) -> dict[str, str]:
        """Alias, or name as lists show it, in lower case -> id. Only these parts of each file are parsed."""
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

    def _path(self, kind: str, key: str) -> Path:
        return self.root / kind / f"{key}.yaml"


def _is_id(key: str) -> bool:
    """Whether *key* can be a file name of the catalogue; keeps paths such as ../x out of it."""
    return len(key) <= _LONGEST_ID and re.fullmatch(r"[a-z0-9][a-z0-9._-]*", key) is not None


def _nearest(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """What *name* may stand for, likeliest first: names that hold it, with the same numbers, almost the same, alike.

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
    """
    wanted, names = re.sub(r"[\s_]+", "-", name.strip().lower()[:_LONGEST_ID]), sorted(known)
    holding = [one for one in names if len(wanted) >= LEAST_PART and wanted in one.lower()]
    holding.sort(key=lambda one: (one.lower().find(wanted) > 0, one))
    shared = {one: len(_numbers(wanted) & _numbers(one)) for one in names}
    most = max(shared.values(), default=0)
    sharing = [one for one in names if most and shared[one] == most]
    almost, alike = (get_close_matches(wanted, names, n=3, cutoff=cutoff) for cutoff in (ALMOST, 0.6))
    near = sorted({*almost, *sharing}, key=lambda one: SequenceMatcher(None, wanted, one.lower()).ratio(), reverse=True)
    near.sort(key=lambda one: shared[one], reverse=True)
    return tuple(dict.fromkeys([*holding, *near, *alike]))


def _numbers(text: str) -> set[str]:
    """Words with a digit, which distinguish products."""
    words = re.split(r"[^a-z0-9.]+", text.lower())
    return {word for word in words if len(word) >= LEAST_PART and any(map(str.isdecimal, word))}


def _validated(
    document: yamlio.Document, read: Callable[[Any], Entry], data: Any, place: tuple[str | int, ...]
) -> Entry:
    """What *read* makes of *data*, which stands at *place* in *document*. Raises CatalogError with every error."""
    try:
        return read(data)
    except ValidationError as error:
        lines = []
        for problem in error.errors(include_url=False):
            steps = problem["loc"]
            if steps and isinstance(data, dict) and steps[0] == data.get("kind"):
                steps = steps[1:]  # pydantic puts the tag of a union in front
            path = (*place, *steps)
            dotted = ".".join(str(step) for step in path) or "file"
            message = problem["msg"].removeprefix("Value error, ")
            lines.append(f"{document.path}:{document.line(path)}: {dotted}: {message}")
        raise CatalogError("\n".join(lines)) from None
