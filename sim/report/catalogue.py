"""`gpufleet list` and `gpufleet show`: the catalogue as people browse it."""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from rich import box
from rich.table import Table

from sim.catalog.catalog import Catalog, UnknownId
from sim.catalog.price import Offer, PriceList
from sim.catalog.value import Sourced, Value
from sim.report.text import plain
from sim.scenario.describe import unit_of
from sim.spec import Spec

COLUMNS: dict[str, dict[str, Callable[[Any], str]]] = {
    "gpus": {
        "name": lambda gpu: gpu.name,
        "memory GiB": lambda gpu: _scaled(gpu.memory_bytes, 2**30),
        "memory TB/s": lambda gpu: _scaled(gpu.memory_bytes_per_s, 1e12),
        "fp16 TFLOPS": lambda gpu: _scaled(gpu.fp16_flops, 1e12),
        "fp8 TFLOPS": lambda gpu: _scaled(gpu.fp8_flops, 1e12),
        "limit W": lambda gpu: _scaled(gpu.tdp_w),
        "link": lambda gpu: gpu.link,
    },
    "models": {
        "name": lambda model: model.name,
        "kind": lambda model: model.kind,
        "layers": lambda model: _field(model, "layers"),
        "heads": lambda model: _field(model, "heads"),
        "KV heads": lambda model: _field(model, "kv_heads"),
        "context": lambda model: _field(model, "max_context"),
        "weights": lambda model: _field(model, "native_dtype"),
    },
    "quantizations": {
        "name": lambda quantization: quantization.name,
        "bits": lambda quantization: _scaled(quantization.bits_per_weight),
        "computes in": lambda quantization: quantization.compute,
        "kernel": lambda quantization: quantization.kernel,
    },
    "kernels": {
        "name": lambda kernel: kernel.name,
        "compute time": lambda kernel: _scaled(kernel.compute_time_factor),
        "weight time": lambda kernel: _scaled(kernel.weight_time_factor),
    },
    "engines": {
        "name": lambda engine: engine.name,
        "versions": lambda engine: engine.versions,
        "batching": lambda engine: engine.batching,
        "can be simulated": lambda engine: "yes" if engine.overheads and engine.memory else "no",
    },
    "servers": {
        "name": lambda server: server.name,
        "GPUs": lambda server: _scaled(server.gpu_slots),
        "built for": lambda server: server.gpu or "any",
        "link": lambda server: server.link,
        "base W": lambda server: _scaled(server.base_power_w),
        "nameplate W": lambda server: _scaled(server.max_power_w),
    },
    "links": {
        "name": lambda link: link.name,
        "GB/s": lambda link: _scaled(link.theoretical_bytes_per_s, 1e9),
        "measured GB/s": lambda link: _scaled(link.measured_bytes_per_s, 1e9),
        "peer to peer": lambda link: "yes" if link.peer_to_peer else "no",
    },
    "prices": {
        "offers": lambda prices: str(len(prices.offers)),
        "default purchase": lambda prices: prices.default_purchase or "",
        "what": lambda prices: ", ".join(sorted({offer.what for offer in prices.offers.values()})),
    },
    "grids": {
        "name": lambda grid: grid.name,
        "g CO2e/kWh": lambda grid: _scaled(grid.g_per_kwh),
    },
}
"""By kind: heading -> what stands under it."""


def entry(catalog: Catalog, kind: str, name: str) -> Spec:
    """One thing of the catalogue; Raises UnknownId."""
    lookups: dict[str, Callable[[str], Spec]] = {
        "gpus": catalog.gpu,
        "models": catalog.any_model,
        "quantizations": catalog.quantization,
        "kernels": catalog.kernel,
        "engines": catalog.engine,
        "servers": catalog.server,
        "links": catalog.link,
        "prices": lambda item: _price_list(catalog, item),
        "grids": catalog.grid,
    }
    return lookups[kind_of(kind)](name)


def kind_of(word: str) -> str:
    """The plural under which the catalogue knows *word*: `gpu` and `gpus` are `gpus`. Raises UnknownId."""
    plurals = {"quantisation": "quantizations", "quantisations": "quantizations"}
    plurals |= {kind.removesuffix("s"): kind for kind in COLUMNS}
    kind = plurals.get(word.lower(), word.lower())
    if kind not in COLUMNS:
        near = get_close_matches(kind, COLUMNS, n=1)
        raise UnknownId("kind", word, tuple(near) or tuple(COLUMNS))
    return kind


def _price_list(catalog: Catalog, item: str) -> PriceList:
    prices = catalog.prices(item)
    if prices is None:
        raise UnknownId("price list", item, tuple(get_close_matches(item.lower(), catalog.ids("prices"), n=3)))
    return prices


def listing(catalog: Catalog, kind: str) -> Table:
    """One row a thing. Raises UnknownId for a *kind* that there is not."""
    kind = kind_of(kind)
    ids = catalog.ids(kind)
    table = Table("id", *COLUMNS[kind], box=box.SIMPLE_HEAD)
    for name in ids:
        found = entry(catalog, kind, name)
        table.add_row(name, *(column(found) for column in COLUMNS[kind].values()))
    return table


def details(found: Spec) -> Table:
    """One row a value, with its source."""
    table = Table("field", "value", "unit", "kind", "source", "where, note", box=box.SIMPLE_HEAD)
    _add_rows(table, "", found)
    return table


def _add_rows(table: Table, prefix: str, found: Spec) -> None:
    for name in type(found).model_fields:
        _add_row(table, f"{prefix}{name}", name, getattr(found, name))


def _add_row(table: Table, path: str, name: str, value: Any) -> None:
    if isinstance(value, Value):
        table.add_row(path, _number(value), unit_of(name), *_origin(value))
    elif isinstance(value, Sourced):
        own = [key for key in type(value).model_fields if key not in Sourced.model_fields]
        shown = ", ".join(f"{key} {_short(getattr(value, key))}" for key in own)
        table.add_row(path, shown, "", *_origin(value))
    elif isinstance(value, Offer):
        terms = "; ".join(part for part in (value.what, value.terms, value.provider, value.region) if part)
        kind, source, where = _origin(value.price)
        unit = f"{value.currency}/{value.unit}"
        table.add_row(path, _number(value.price), unit, kind, source, f"{terms}; {where}")
    elif isinstance(value, Spec):
        _add_rows(table, f"{path}.", value)
    elif isinstance(value, dict):
        for key, item in value.items():
            _add_row(table, f"{path}.{key}", name, item)
    elif isinstance(value, tuple) and value and isinstance(value[0], Spec):
        for i, item in enumerate(value):
            _add_row(table, f"{path}.{i}", name, item)
    elif value not in (None, "", ()):
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        table.add_row(path, shown, unit_of(name), "", "", "")


def _number(value: Value) -> str:
    return plain(value.value, 6) + (f" ({value.range[0]:g} to {value.range[1]:g})" if value.range else "")


def _short(value: Any) -> str:
    """A curve by its ends."""
    return f"{value[0]:g} to {value[-1]:g} ({len(value)})" if isinstance(value, tuple) and value else str(value)


def _origin(value: Sourced) -> tuple[str, str, str]:
    dated = f"{value.as_of}" if value.as_of else ""
    return value.kind, value.source, "; ".join(part for part in (dated, value.where, value.note) if part)


def _scaled(value: Value | None, unit: float = 1.0) -> str:
    return "" if value is None else plain(value.value / unit)


def _field(found: Spec, name: str) -> str:
    return str(getattr(found, name, ""))
