"""`sim.catalog`: GPUs, models, prices and all else that comes with the program, every number with its source."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import pandas as pd

from sim.catalogue.catalog import Catalog, UnknownId, load_catalog
from sim.catalogue.entries.engine import Engine
from sim.catalogue.entries.gpu import Gpu
from sim.catalogue.entries.grid import Grid
from sim.catalogue.entries.kernel import Kernel
from sim.catalogue.entries.link import Link
from sim.catalogue.entries.model import Model, OtherModel
from sim.catalogue.entries.price import PriceList
from sim.catalogue.entries.quantization import Quantization
from sim.catalogue.entries.server import Server
from sim.report.page.document import listing_document

Thing = TypeVar("Thing")


class Shelf(Mapping[str, Thing]):
    """Things of one kind by id; an alias finds them, too. A value is a number with its source: `.value`, `.source`."""

    def __init__(self, catalog: Catalog, kind: str, look_up: Callable[[str], Thing]) -> None:
        self._catalog, self._kind, self._look_up = catalog, kind, look_up

    def __getitem__(self, name: str) -> Thing:
        """The thing called *name*. Raises UnknownId, which says what was probably meant."""
        return self._look_up(name)

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and self._look_up(name) is not None
        except UnknownId:
            return False

    def get(self, name: str, default: Any = None) -> Any:
        """The thing called *name*, else *default*."""
        try:
            return self[name]
        except UnknownId:
            return default

    def __iter__(self) -> Iterator[str]:
        return iter(self._catalog.ids(self._kind))

    def __len__(self) -> int:
        return len(self._catalog.ids(self._kind))

    @property
    def table(self) -> pd.DataFrame:
        """One row per thing, numbers without their sources; units stand in the names of the columns."""
        return pd.json_normalize(listing_document(self._catalog, self._kind)["items"])

    def _repr_html_(self) -> str:
        html: str = self.table.to_html(index=False, na_rep="", max_cols=12)
        return html

    def __repr__(self) -> str:
        return f"<{len(self)} {self._kind}: {', '.join(self)}>"


class CatalogShelves:
    """The catalogue by kind; `sim.catalog()` makes it."""

    def __init__(self, catalog: Catalog) -> None:
        self.gpus: Shelf[Gpu] = Shelf(catalog, "gpus", catalog.gpu)
        self.models: Shelf[Model | OtherModel] = Shelf(catalog, "models", catalog.any_model)
        self.quantizations: Shelf[Quantization] = Shelf(catalog, "quantizations", catalog.quantization)
        self.kernels: Shelf[Kernel] = Shelf(catalog, "kernels", catalog.kernel)
        self.engines: Shelf[Engine] = Shelf(catalog, "engines", catalog.engine)
        self.servers: Shelf[Server] = Shelf(catalog, "servers", catalog.server)
        self.links: Shelf[Link] = Shelf(catalog, "links", catalog.link)
        self.prices: Shelf[PriceList | None] = Shelf(catalog, "prices", catalog.prices)
        self.grids: Shelf[Grid] = Shelf(catalog, "grids", catalog.grid)

    def __repr__(self) -> str:
        return "\n".join(map(repr, vars(self).values()))


def catalog() -> CatalogShelves:
    """The catalogue that came with the program: gpus, models, quantizations, kernels, engines, servers, links, prices
    and grids, each a mapping from id to entry with a `table`. Entries are read when they are asked for.

    >>> import sim
    >>> gpu = sim.catalog().gpus["rtx-4090"]
    >>> gpu.memory_bytes_per_s.value / 1e9, gpu.memory_bytes_per_s.kind
    (1008.0, 'datasheet')
    >>> "rtx-4090" in sim.catalog().gpus, "rtx-9999" in sim.catalog().gpus
    (True, False)
    """
    return CatalogShelves(load_catalog())
