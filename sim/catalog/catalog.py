"""Looking things up in data/: one file a thing, read when it is first asked for."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from sim import yamlio
from sim.catalog.engine import Engine
from sim.catalog.gpu import Gpu
from sim.catalog.kernel import Kernel
from sim.catalog.link import Link
from sim.catalog.model import Model
from sim.catalog.price import Offer, PriceList
from sim.catalog.quantization import Quantization
from sim.catalog.server import Server
from sim.catalog.source import Source
from sim.spec import Spec

Entry = TypeVar("Entry", bound=Spec)

_SINGULAR = {
    "gpus": "gpu",
    "models": "model",
    "quantizations": "quantization",
    "kernels": "kernel",
    "engines": "engine",
    "servers": "server",
    "links": "link",
    "prices": "price list",
}
KINDS: tuple[str, ...] = tuple(_SINGULAR)
"""What the catalogue holds: the folders of data/."""
_ALIASES = re.compile(r"^aliases:(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)


class UnknownId(ValueError):  # noqa: N818 - it names what is wrong, like KeyError
    """A name that the catalogue does not know; `suggestions` are the ids that come nearest."""

    def __init__(self, kind: str, name: str, suggestions: tuple[str, ...]) -> None:
        self.kind, self.name, self.suggestions = kind, name, suggestions
        hint = f"; did you mean {' or '.join(suggestions)}?" if suggestions else ""
        super().__init__(f"unknown {kind} {name!r}{hint}")


class CatalogError(ValueError):
    """A data file that does not say what it should: one line an error, `file:line: path: message`."""


def data_root() -> Path:
    """Folder of the catalogue: inside the installed package, else at the repository root. Raises FileNotFoundError."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "data", package.parent / "data"):
        if (folder / "sources.yaml").is_file():
            return folder
    raise FileNotFoundError(
        f"no catalogue: neither {package / 'data'} nor {package.parent / 'data'} holds sources.yaml"
    )


def load_catalog(root: Path | None = None) -> "Catalog":
    """The catalogue under *root* (default: the one that came with the program). Reads nothing yet."""
    return Catalog(data_root() if root is None else root)


class Catalog:
    """Things by id or alias (case does not matter), each file read once and only when it is asked for.

    Look-ups raise UnknownId for a name that is not there, CatalogError and YamlError for a file that is wrong.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._entries: dict[tuple[str, str], Any] = {}
        self._aliases: dict[str, dict[str, str]] = {}
        self._sources: dict[str, Source] | None = None

    def gpu(self, name: str) -> Gpu:
        """A GPU: data/gpus."""
        return self._lookup("gpus", name, Gpu)

    def model(self, name: str) -> Model:
        """A model: data/models."""
        return self._lookup("models", name, Model)

    def quantization(self, name: str) -> Quantization:
        """A weight format: data/quantizations."""
        return self._lookup("quantizations", name, Quantization)

    def kernel(self, name: str) -> Kernel:
        """A matrix kernel: data/kernels."""
        return self._lookup("kernels", name, Kernel)

    def engine(self, name: str) -> Engine:
        """A serving engine: data/engines."""
        return self._lookup("engines", name, Engine)

    def server(self, name: str) -> Server:
        """A chassis: data/servers."""
        return self._lookup("servers", name, Server)

    def link(self, name: str) -> Link:
        """A link between GPUs: data/links."""
        return self._lookup("links", name, Link)

    def prices(self, item: str) -> PriceList | None:
        """The offers for *item*; None where nobody has asked for a price yet (the file would be `price_file(item)`)."""
        key = item.strip().lower()
        return self._lookup("prices", key, PriceList) if _is_id(key) and self._path("prices", key).is_file() else None

    def price_file(self, item: str) -> Path:
        """Where the offers for *item* stand or would have to stand."""
        return self._path("prices", item.strip().lower())

    def offer(self, name: str) -> Offer:
        """One offer by `item/offer`. Raises UnknownId."""
        item, _, key = name.partition("/")
        offers = self._lookup("prices", item, PriceList).offers
        if key not in offers:
            raise UnknownId("offer", name, tuple(f"{item}/{near}" for near in _nearest(key, offers)))
        return offers[key]

    def ids(self, kind: str) -> list[str]:
        """All ids of one kind ("gpus", "models", ...), sorted. Raises UnknownId."""
        if kind not in _SINGULAR:
            raise UnknownId("kind", kind, _nearest(kind, KINDS))
        return sorted(path.stem for path in (self.root / kind).glob("*.yaml"))

    def source(self, key: str) -> Source:
        """The source that values cite as *key*. Raises UnknownId."""
        sources = self.sources()
        if key not in sources:
            raise UnknownId("source", key, _nearest(key, sources))
        return sources[key]

    def sources(self) -> dict[str, Source]:
        """All sources by key."""
        if self._sources is None:
            document = yamlio.read(self.root / "sources.yaml")
            self._sources = {
                key: _validated(document, Source, entry, (key,)) for key, entry in (document.data or {}).items()
            }
        return self._sources

    def _lookup(self, kind: str, name: str, spec: type[Entry]) -> Entry:
        key = name.strip().lower()
        if not (_is_id(key) and self._path(kind, key).is_file()):
            key = self._alias_index(kind).get(key, "")
        if not key:
            known = [*self.ids(kind), *self._alias_index(kind)]
            near = (self._alias_index(kind).get(match, match) for match in _nearest(name, known))
            raise UnknownId(_SINGULAR[kind], name, tuple(dict.fromkeys(near)))
        if (kind, key) not in self._entries:
            document = yamlio.read(self._path(kind, key))
            entry = _validated(document, spec, document.data, ())
            if entry.model_dump(include={"id"})["id"] != key:
                raise CatalogError(f"{document.path}:{document.line(('id',))}: id: must be the file's name, {key!r}")
            self._entries[kind, key] = entry
        found: Entry = self._entries[kind, key]
        return found

    def _alias_index(self, kind: str) -> dict[str, str]:
        """Alias in lower case -> id. Only the `aliases:` part of each file is parsed."""
        if kind not in self._aliases:
            index: dict[str, str] = {}
            for name in self.ids(kind):
                part = _ALIASES.search(self._path(kind, name).read_text("utf-8"))
                aliases = yamlio.parse(part.group(1)) if part else None
                index.update({str(alias).lower(): name for alias in aliases or ()})
            self._aliases[kind] = index
        return self._aliases[kind]

    def _path(self, kind: str, key: str) -> Path:
        return self.root / kind / f"{key}.yaml"


def _is_id(key: str) -> bool:
    """Whether *key* can be a file name of the catalogue; keeps paths such as ../x out of it."""
    return re.fullmatch(r"[a-z0-9][a-z0-9._-]*", key) is not None


def _nearest(name: str, known: Iterable[str]) -> tuple[str, ...]:
    return tuple(get_close_matches(name.strip().lower(), list(known), n=3, cutoff=0.6))


def _validated(document: yamlio.Document, spec: type[Entry], data: Any, place: tuple[str | int, ...]) -> Entry:
    """*data*, which stands at *place* in *document*, as a *spec*. Raises CatalogError with all that is wrong."""
    try:
        return spec.model_validate(data)
    except ValidationError as error:
        lines = []
        for problem in error.errors(include_url=False):
            path = (*place, *problem["loc"])
            dotted = ".".join(str(step) for step in path) or "file"
            lines.append(f"{document.path}:{document.line(path)}: {dotted}: {problem['msg']}")
        raise CatalogError("\n".join(lines)) from None
