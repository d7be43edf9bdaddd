"""`sim.catalog`: GPUs, models, prices and other data that come with the program, every number with its source."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import pandas as pd

from sim.catalogue.catalog import Catalog, load_catalog
from sim.catalogue.drafter import Drafter
from sim.catalogue.engine import Engine
from sim.catalogue.failure_rate import FailureRate
from sim.catalogue.gpu import Gpu
from sim.catalogue.kernel import Kernel
from sim.catalogue.link import Link
from sim.catalogue.market import Grid, PriceList
from sim.catalogue.model import Model, OtherModel
from sim.catalogue.quantization import Quantization
from sim.catalogue.server import Server
from sim.catalogue.value import Value
from sim.report.json_document import numbers, stated_fields
from sim.spec import Spec

Thing = TypeVar("Thing", bound=Spec)


class Shelf(Mapping[str, Thing]):
    """Catalogue entries of one kind by id or alias. Each value has `.value` and `.source`."""

    def __init__(self, catalog: Catalog, kind: str, look_up: Callable[[str], Thing]) -> None:
        self._catalog, self._kind, self._look_up = catalog, kind, look_up

    def __getitem__(self, name: str) -> Thing:
        """Return the entry *name*. Raises UnknownId, a KeyError that suggests similar ids."""
        if not isinstance(name, str):
            raise KeyError(name)
        return self._look_up(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._catalog.ids(self._kind))

    def __len__(self) -> int:
        return len(self._catalog.ids(self._kind))

    @property
    def table(self) -> pd.DataFrame:
        """Entries as rows, price lists with a row per offer; numbers without sources, units in the names of columns.

        Nested entries with names of their own, such as the MIG profiles of a GPU, are a dict in one column.
        """
        rows = [row for name, thing in self.items() for row in _rows(name, thing)]
        return pd.DataFrame(rows).dropna(axis="columns", how="all")

    def _repr_html_(self) -> str:
        html: str = self.table.to_html(index=False, na_rep="", max_cols=12)
        return html

    def __repr__(self) -> str:
        return f"<{len(self)} {self._kind}: {', '.join(self)}>"


def _rows(name: str, thing: Spec) -> list[dict[str, Any]]:
    if isinstance(thing, PriceList):
        return [{"id": name, "offer": offer, **_cells(found)} for offer, found in thing.offers.items()]
    return [{"id": name, **_cells(thing)}]


def _cells(thing: Spec, prefix: str = "") -> dict[str, Any]:
    """Return the cells of an entry by column: numbers, texts and dicts; fields of a part have dotted names."""
    found: dict[str, Any] = {}
    for name in stated_fields(thing):
        value = getattr(thing, name)
        is_part = isinstance(value, Spec) and not isinstance(value, Value)
        found |= _cells(value, f"{prefix}{name}.") if is_part else {f"{prefix}{name}": numbers(value)}
    return found


class CatalogShelves:
    """Catalogue by kind, as `sim.catalog()` returns it."""

    def __init__(self, catalog: Catalog) -> None:
        self.gpus: Shelf[Gpu] = Shelf(catalog, "gpus", catalog.gpu)
        self.models: Shelf[Model | OtherModel] = Shelf(catalog, "models", catalog.any_model)
        self.quantizations: Shelf[Quantization] = Shelf(catalog, "quantizations", catalog.quantization)
        self.kernels: Shelf[Kernel] = Shelf(catalog, "kernels", catalog.kernel)
        self.engines: Shelf[Engine] = Shelf(catalog, "engines", catalog.engine)
        self.servers: Shelf[Server] = Shelf(catalog, "servers", catalog.server)
        self.links: Shelf[Link] = Shelf(catalog, "links", catalog.link)
        self.prices: Shelf[PriceList] = Shelf(catalog, "prices", catalog.price_list)
        self.grids: Shelf[Grid] = Shelf(catalog, "grids", catalog.grid)
        self.drafters: Shelf[Drafter] = Shelf(catalog, "drafters", catalog.drafter)
        self.failures: Shelf[FailureRate] = Shelf(catalog, "failures", catalog.failure_rate)

    def __repr__(self) -> str:
        return "\n".join(map(repr, vars(self).values()))


def catalog() -> CatalogShelves:
    """Return the catalogue that comes with the program.

    Returns
    -------
    CatalogShelves
        Mappings from id to entry, each with a `table`: gpus, models, quantizations, kernels, engines, servers, links,
        prices, grids, drafters and failures. Entries are read on first access.

    Examples
    --------
    >>> import sim
    >>> gpu = sim.catalog().gpus["rtx-4090"]
    >>> gpu.memory_bytes_per_s.value / 1e9, gpu.memory_bytes_per_s.kind
    (1008.0, 'datasheet')
    >>> "rtx-4090" in sim.catalog().gpus, "rtx-9999" in sim.catalog().gpus
    (True, False)

    """
    return CatalogShelves(load_catalog())
