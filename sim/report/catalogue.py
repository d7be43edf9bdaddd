"""Output of `gpufleet list` and `gpufleet show`: tables and details of catalogue entries."""

from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from itertools import count
from typing import Any

from sim.catalogue.catalog import KINDS, Catalog
from sim.catalogue.data_folder import UnknownId
from sim.catalogue.gpu import MigProfile
from sim.catalogue.market import Offer
from sim.catalogue.server import PcieSlots
from sim.catalogue.value import Sourced, Value
from sim.language import N_, _
from sim.report.terminal_table import EntryList, FittedTable, ListEntry
from sim.report.words.text import plain
from sim.scenario.resolving.describe import unit_of
from sim.spec import Spec

COLUMNS: dict[str, dict[str, Callable[[Any], str]]] = {
    "gpus": {
        "name": lambda gpu: gpu.name,
        N_("memory GiB"): lambda gpu: _scaled_text(gpu.memory_bytes, 2**30),
        N_("memory TB/s"): lambda gpu: _scaled_text(gpu.memory_bytes_per_s, 1e12),
        N_("fp16 TFLOPS"): lambda gpu: _scaled_text(gpu.fp16_flops, 1e12),
        N_("fp8 TFLOPS"): lambda gpu: _scaled_text(gpu.fp8_flops, 1e12),
        N_("limit W"): lambda gpu: _scaled_text(gpu.tdp_w),
        "link": lambda gpu: gpu.link,
    },
    "models": {
        "name": lambda model: model.name,
        "kind": lambda model: model.kind,
        N_("layers"): lambda model: _field_text(model, "layers"),
        N_("heads"): lambda model: _field_text(model, "heads"),
        N_("KV heads"): lambda model: _field_text(model, "kv_heads"),
        "context": lambda model: _field_text(model, "max_context"),
        "weights": lambda model: _field_text(model, "native_dtype"),
    },
    "quantizations": {
        "name": lambda quantization: quantization.name,
        "bits": lambda quantization: _scaled_text(quantization.bits_per_weight),
        N_("computes in"): lambda quantization: quantization.compute,
        "kernel": lambda quantization: quantization.kernel,
    },
    "kernels": {
        "name": lambda kernel: kernel.name,
        N_("compute time"): lambda kernel: _scaled_text(kernel.compute_time_factor),
        N_("weight time"): lambda kernel: _scaled_text(kernel.weight_time_factor),
    },
    "engines": {
        "name": lambda engine: engine.name,
        "versions": lambda engine: engine.versions,
        "batching": lambda engine: engine.batching,
        N_("can be simulated"): lambda engine: _("yes") if engine.overheads and engine.memory else _("no"),
    },
    "servers": {
        "name": lambda server: server.name,
        "GPUs": lambda server: _scaled_text(server.gpu_slots),
        N_("built for"): lambda server: server.gpu or _("any"),
        "link": lambda server: server.link,
        N_("base W"): lambda server: _scaled_text(server.base_power_w),
        N_("nameplate W"): lambda server: _scaled_text(server.max_power_w),
    },
    "links": {
        "name": lambda link: link.name,
        "GB/s": lambda link: _scaled_text(link.theoretical_bytes_per_s, 1e9),
        N_("measured GB/s"): lambda link: _scaled_text(link.measured_bytes_per_s, 1e9),
        N_("peer to peer"): lambda link: _("yes") if link.peer_to_peer else _("no"),
    },
    "prices": {
        "offers": lambda prices: str(len(prices.offers)),
        N_("default purchase"): lambda prices: prices.default_purchase or "",
        "what": lambda prices: ", ".join(sorted({offer.what for offer in prices.offers.values()})),
    },
    "grids": {
        "name": lambda grid: grid.name,
        "g CO2e/kWh": lambda grid: _scaled_text(grid.g_per_kwh),
    },
    "drafters": {
        "name": lambda drafter: drafter.name,
        "method": lambda drafter: drafter.method,
        "drafts": lambda drafter: _scaled_text(drafter.num_speculative_tokens),
        "tasks": lambda drafter: ", ".join(drafter.accepted_per_step),
    },
    "failures": {
        "name": lambda rate: rate.name,
        "component": lambda rate: rate.component,
        "MTBF [h]": lambda rate: _scaled_text(rate.mtbf_h),
    },
}
"""Columns of the listing by kind: heading -> formatter of an entry."""


def entry(catalog: Catalog, kind: str, name: str) -> Spec:
    """Return an entry of the catalogue. Raises UnknownId."""
    lookups: dict[str, Callable[[str], Spec]] = {
        "gpus": catalog.gpu,
        "models": catalog.any_model,
        "quantizations": catalog.quantization,
        "kernels": catalog.kernel,
        "engines": catalog.engine,
        "servers": catalog.server,
        "links": catalog.link,
        "prices": catalog.price_list,
        "grids": catalog.grid,
        "drafters": catalog.drafter,
        "failures": catalog.failure_rate,
    }
    return lookups[kind_of(kind)](name)


def kind_of(word: str) -> str:
    """Return the catalogue's kind for *word*: `gpu` and `gpus` are `gpus`. Raises UnknownId."""
    plurals = {"quantisation": "quantizations", "quantisations": "quantizations"}
    plurals |= {kind.removesuffix("s"): kind for kind in COLUMNS}
    kind = plurals.get(word.lower(), word.lower())
    if kind not in COLUMNS:
        near = get_close_matches(kind, COLUMNS, n=1)
        raise UnknownId("kind", word, tuple(near) or tuple(COLUMNS))
    return kind


def listing(catalog: Catalog, kind: str) -> FittedTable:
    """Build the table of the entries of *kind*; if it is empty, that of the kinds. Raises UnknownId."""
    if not kind:
        return FittedTable(["kind", "entries"], [[name, str(len(catalog.ids(name)))] for name in KINDS])
    kind = kind_of(kind)
    found = {name: entry(catalog, kind, name) for name in catalog.ids(kind)}
    rows = [[name, *(column(one) for column in COLUMNS[kind].values())] for name, one in found.items()]
    worded = frozenset(place for place in range(len(rows[0])) if not all(_is_figure(row[place]) for row in rows))
    return FittedTable(["id", *COLUMNS[kind]], rows, worded)


def _is_figure(text: str) -> bool:
    return not text or text.replace(",", "").replace(".", "", 1).isdigit()


def details(found: Spec) -> EntryList:
    """List every value of an entry with its source."""
    return EntryList("", [*_entries("", found)])


def _entries(prefix: str, found: Spec) -> Iterator[ListEntry]:
    for name in type(found).model_fields:
        yield from _entry(f"{prefix}{name}", name, getattr(found, name))


def _entry(path: str, name: str, value: Any) -> Iterator[ListEntry]:
    if isinstance(value, Value):
        yield ListEntry(path, _with_unit(value, unit_of(name)), [_origin(value)])
    elif isinstance(value, tuple) and value and isinstance(value[0], PcieSlots):
        first, *below = _tree(value)
        yield ListEntry(path, first, [*below, *dict.fromkeys(map(_origin, value))])
    elif isinstance(value, Sourced):
        fields = {key: getattr(value, key) for key in type(value).model_fields if key not in Sourced.model_fields}
        shown = ", ".join(f"{key} {_short(one)}" for key, one in fields.items() if not isinstance(one, dict))
        yield ListEntry(path, shown, [_origin(value)])
        for key, one in fields.items():
            yield from _entry(f"{path}.{key}", key, one) if isinstance(one, dict) else ()
    elif isinstance(value, MigProfile):
        yield ListEntry(path, _slice(value))
        yield from _entry(f"{path}.memory_bytes", "memory_bytes", value.memory_bytes)
    elif isinstance(value, Offer):
        terms = "; ".join(part for part in (value.what, value.terms, value.provider, value.region) if part)
        yield ListEntry(path, _with_unit(value.price, f"{value.currency}/{value.unit}"), [terms, _origin(value.price)])
    elif isinstance(value, Spec):
        yield from _entries(f"{path}.", value)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _entry(f"{path}.{key}", name, item)
    elif isinstance(value, tuple) and value and isinstance(value[0], Spec):
        for i, item in enumerate(value):
            yield from _entry(f"{path}.{i}", name, item)
    elif value not in (None, "", ()):
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        yield ListEntry(path, f"{shown} {unit_of(name)}".strip())


def _tree(pcie: Sequence[PcieSlots]) -> list[str]:
    """Return the lines of a tree: CPUs, switches behind them, slots and their GPUs."""
    gpus = count()
    lines: list[str] = []
    for cpu in sorted({one.cpu for one in pcie}):
        lines.append(f"CPU {cpu}")
        groups = [_branch(one, gpus) for one in pcie if one.cpu == cpu]
        lines += _draw_branches([line for group in groups for line in group])
    return lines


def _branch(group: PcieSlots, gpus: Iterator[int]) -> list[list[str]]:
    """Return the branches below a CPU for one group of slots: each slot, or the switch with its slots."""
    slots = [f"PCIe {group.generation}.0 x{group.lanes} ── GPU {next(gpus)}" for _slot in range(group.slots)]
    if group.uplink_lanes is None:
        return [[slot] for slot in slots]
    return [
        [_("PCIe {generation}.0 x{lanes} ── switch", generation=group.generation, lanes=group.uplink_lanes), *slots]
    ]


def _draw_branches(branches: Sequence[Sequence[str]]) -> list[str]:
    """Draw *branches* below their parent; the first line of a branch is its head, the others its children."""
    lines: list[str] = []
    for position, (head, *below) in enumerate(branches):
        last = position == len(branches) - 1
        lines.append(f"{'└' if last else '├'}─ {head}")
        lines += [
            f"{' ' if last else '│'}  {line}" for line in (_draw_branches([[one] for one in below]) if below else ())
        ]
    return lines


def _slice(profile: MigProfile) -> str:
    sms = _(", {sms} SMs", sms=profile.sms) if profile.sms is not None else ""
    parts = (
        _("{compute_slices} compute", compute_slices=profile.compute_slices),
        _("{memory_slices} memory slices{sms}", memory_slices=profile.memory_slices, sms=sms),
    )
    return _(
        "{instances} on a GPU: {parts}, {copy_engines} copy engines",
        instances=profile.instances,
        parts=_(" and ").join(parts),
        copy_engines=profile.copy_engines,
    )


def _with_unit(value: Value, unit: str) -> str:
    span = _(" ({low:g} to {high:g})", low=value.range[0], high=value.range[1]) if value.range else ""
    return " ".join(filter(None, [plain(value.value, 6), unit])) + span


def _short(value: Any) -> str:
    """Format *value*: a tuple of numbers as its first, last and count, a tuple of names as a list."""
    if not isinstance(value, tuple) or not value:
        return str(value)
    if not all(isinstance(one, int | float) for one in value):
        return ", ".join(map(str, value))
    return _("{low:g} to {high:g} ({count})", low=value[0], high=value[-1], count=len(value))


def _origin(value: Sourced) -> str:
    return origin(value.kind, value.source, str(value.as_of or ""), value.where, value.note)


def origin(kind: str, source: str, *details: str) -> str:
    """Format the origin of a value: `measured, smi: P8 16-20 W headless`."""
    more = "; ".join(filter(None, details))
    return f"{', '.join(filter(None, (kind, source)))}{f': {more}' if more else ''}"


def _scaled_text(value: Value | None, unit: float = 1.0) -> str:
    return "" if value is None else plain(value.value / unit)


def _field_text(found: Spec, name: str) -> str:
    return str(getattr(found, name, ""))
