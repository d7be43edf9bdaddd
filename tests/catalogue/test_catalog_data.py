"""Reads every file and every value of the catalogue."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from sim import yamlio
from sim.catalogue.catalog import KINDS, Catalog, _spelling, load_catalog
from sim.catalogue.data_folder import UnknownId
from sim.catalogue.model import OtherModel
from sim.catalogue.value import WEAK_KINDS, Sourced, Value
from sim.report.catalogue import details, entry
from sim.spec import Spec

CATALOG = load_catalog()
LOOKUP = {
    "gpus": Catalog.gpu,
    "models": Catalog.any_model,
    "quantizations": Catalog.quantization,
    "kernels": Catalog.kernel,
    "engines": Catalog.engine,
    "servers": Catalog.server,
    "links": Catalog.link,
    "prices": Catalog.prices,
    "grids": Catalog.grid,
    "drafters": Catalog.drafter,
    "failures": Catalog.failure_rate,
}
FILES = [(kind, name) for kind in KINDS for name in CATALOG.ids(kind)]
GPUS = CATALOG.ids("gpus")


def sourced(entry: Any, path: str = "") -> Iterator[tuple[str, Sourced]]:
    """All statements with provenance inside *entry*, each with its dotted path."""
    if isinstance(entry, Sourced):
        yield path, entry
    if isinstance(entry, Spec):
        for field in type(entry).model_fields:
            yield from sourced(getattr(entry, field), f"{path}.{field}")
    elif isinstance(entry, dict):
        for key, value in entry.items():
            yield from sourced(value, f"{path}.{key}")
    elif isinstance(entry, tuple | list):
        for index, value in enumerate(entry):
            yield from sourced(value, f"{path}.{index}")


def cited(data: Any) -> Iterator[str]:
    """Every `source:` in plain data."""
    if isinstance(data, dict):
        if isinstance(data.get("source"), str):
            yield data["source"]
        for value in data.values():
            yield from cited(value)
    elif isinstance(data, list):
        for value in data:
            yield from cited(value)


@pytest.mark.slow
def test_every_value_has_a_known_source_and_an_honest_kind() -> None:
    for kind, name in FILES:
        entry = LOOKUP[kind](CATALOG, name)
        assert entry is not None
        statements = list(sourced(entry))
        assert statements or isinstance(entry, OtherModel) or entry.note, "neither a sourced value nor a word why not"
        for path, statement in statements:
            assert CATALOG.source(statement.source).title, path
            assert not re.search(r"\b\d{8,11}\b", statement.where), (
                f"{path}: a place in the source, not a record number"
            )
            if isinstance(statement, Value):
                assert statement.weak == (statement.kind in WEAK_KINDS), path
                assert statement.kind != "assumed" or statement.range is not None, path
            if statement.source == "assumption":
                assert statement.kind == "assumed", path
            if statement.source == "recalled":
                assert statement.kind == "recalled", path


@pytest.mark.slow
def test_every_source_is_used() -> None:
    files = [path for path in CATALOG.root.rglob("*.yaml") if path.name != "sources.yaml"]
    used = {key for path in files for key in cited(yamlio.read(path).data)}
    assert set(CATALOG.sources()) == used


def test_aliases_are_unique_and_do_not_hide_ids() -> None:
    for kind in KINDS:
        owner: dict[str, str] = {name: name for name in CATALOG.ids(kind)}
        for name in CATALOG.ids(kind):
            for alias in getattr(LOOKUP[kind](CATALOG, name), "aliases", ()):
                assert owner.setdefault(alias.lower(), name) == name, alias


def test_prices_are_dated_positive_and_name_the_purchase() -> None:
    for name in CATALOG.ids("prices"):
        prices = CATALOG.prices(name)
        assert prices is not None
        assert prices.offers
        for key, offer in prices.offers.items():
            assert offer.price.as_of is not None
            assert offer.price.value > 0
            assert CATALOG.offer(f"{name}/{key}") == offer
            if offer.what == "purchase":
                assert offer.unit == "each"
        if prices.default_purchase is not None:
            assert prices.offers[prices.default_purchase].what == "purchase"


def test_a_bare_server_never_passes_for_one_with_gpus() -> None:
    for name in CATALOG.ids("servers"):
        prices = CATALOG.prices(name)
        for key, offer in ({} if prices is None else prices.offers).items():
            if offer.what == "purchase" and prices is not None and key == prices.default_purchase:
                assert offer.includes_gpus is not None or name == "inspur-nf5288m5"


def test_servers_name_links_and_gpus_that_exist() -> None:
    for name in CATALOG.ids("servers"):
        server = CATALOG.server(name)
        link = CATALOG.link(server.link)
        assert link.id == server.link
        assert server.gpu is None or CATALOG.gpu(server.gpu).id == server.gpu
        assert server.gpu_slots.value <= max(link.allreduce_latency_s) or server.gpu_slots.value > 8
        assert not server.pcie or sum(one.slots for one in server.pcie) == server.gpu_slots.value


def test_all_reduce_figures_are_physical() -> None:
    for name in CATALOG.ids("links"):
        link = CATALOG.link(name)
        assert set(link.allreduce_latency_s) == set(link.allreduce_bus_bytes_per_s)
        assert len({table.gpus for table in link.allreduce_tables}) == len(link.allreduce_tables)
        assert {table.gpus for table in link.allreduce_tables} <= set(link.allreduce_latency_s)
        for bus in link.allreduce_bus_bytes_per_s.values():
            assert bus.value <= 1.05 * link.theoretical_bytes_per_s.value
        for table in link.allreduce_tables:
            assert len(table.bytes) == len(table.time_s) >= 12
            assert list(table.bytes) == sorted(set(table.bytes))
            assert list(table.time_s) == sorted(table.time_s)


def test_gpus_have_a_link_and_dense_rates_below_sparse_ones() -> None:
    for name in GPUS:
        gpu = CATALOG.gpu(name)
        assert CATALOG.link(gpu.link).id == gpu.link
        assert not (gpu.geforce and CATALOG.link(gpu.link).peer_to_peer)
        for dense, sparse in (
            (gpu.fp16_flops, gpu.fp16_sparse_flops),
            (gpu.fp16_fp16acc_flops, gpu.fp16_fp16acc_sparse_flops),
            (gpu.fp8_flops, gpu.fp8_sparse_flops),
            (gpu.fp8_fp16acc_flops, gpu.fp8_fp16acc_sparse_flops),
            (gpu.int8_ops_per_s, gpu.int8_sparse_ops_per_s),
            (gpu.fp4_flops, gpu.fp4_sparse_flops),
        ):
            if dense is not None and sparse is not None:
                assert dense.value < sparse.value
        assert 0.9 < gpu.memory_bytes.value / (gpu.memory_nominal_gib.value * 2**30) <= 1.02
        assert gpu.fp16_fp16acc_flops is None or gpu.fp16_fp16acc_flops.value >= 0.999 * gpu.fp16_flops.value


def test_assumed_nameplates_hold_all_parts_at_their_limits() -> None:
    """A nameplate below what the parts can draw would undercharge contracted power; measured ones stand as they are."""
    catalog = load_catalog()
    for name in catalog.ids("servers"):
        server = catalog.server(name)
        limit = catalog.gpu(server.gpu).tdp_w if server.gpu else None
        if server.max_power_w is None or server.base_power_w is None or limit is None:
            continue
        if server.max_power_w.kind == "assumed":
            drawn_w = server.gpu_slots.value * limit.value + server.base_power_w.value
            assert server.max_power_w.value >= 0.999 * drawn_w / server.psu_efficiency.value, name


def test_a_sequence_costs_no_more_in_process_than_behind_an_api_server() -> None:
    for name in CATALOG.ids("engines"):
        overheads = CATALOG.engine(name).overheads
        assert overheads is None or overheads.per_sequence_in_process_s.value <= overheads.per_sequence_s.value


@pytest.mark.slow
def test_everything_can_be_shown() -> None:
    for kind in KINDS:
        for name in CATALOG.ids(kind):
            assert details(entry(CATALOG, kind, name)).entries


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("Gemma 4 12B", "gemma4-12b"),
        ("Qwen3.5 0.8B", "qwen3.5-0.8b"),
        ("mistral_medium_3.5", "mistral-medium-3.5"),
    ],
)
def test_names_differ_from_ids_by_spaces_and_hyphens(name: str, id: str) -> None:
    assert CATALOG.model(name).id == id


def test_hyphen_between_numbers_counts_in_a_name() -> None:
    with pytest.raises(UnknownId):
        CATALOG.model("Llama-27B")  # not Llama-2-7B


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("A100-SXM4-80GB", "a100-80gb-sxm"),
        ("H100 SXM5 80 GB", "h100-80gb-sxm"),
        ("Instinct MI300X", "mi300x"),
        ("RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-server"),
    ],
)
def test_maker_may_be_left_out_before_the_name_of_a_gpu(name: str, id: str) -> None:
    assert CATALOG.gpu(name).id == id


def test_no_two_entries_are_spelled_alike() -> None:
    for kind in ("gpus", "models", "engines"):
        spellings = [_spelling(one) for one in CATALOG.ids(kind)]
        assert len(set(spellings)) == len(spellings)
