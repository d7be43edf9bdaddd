from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sim import yamlio
from sim.catalogue.catalog import Catalog, load_catalog
from sim.catalogue.data_folder import CatalogError, UnknownId, data_root

SOURCES = "sheet: {title: A sheet, accessed: 2026-11, trust: good}\n"
KERNEL = """id: plain
aliases: [Plain One,
  "second name"]
name: A kernel
compute_time_factor: {value: 1, source: sheet, kind: quoted}
weight_time_factor: {value: 1, source: sheet, kind: quoted}
moe_compute_time_factor: {value: 1, source: sheet, kind: quoted}
moe_weight_time_factor: {value: 1, source: sheet, kind: quoted}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "sources.yaml").write_text(SOURCES)
    (tmp_path / "kernels" / "plain.yaml").write_text(KERNEL)
    return tmp_path


def test_an_id_or_an_alias_in_any_case_finds_the_same_object(root: Path) -> None:
    catalog = Catalog(root)
    assert catalog.kernel("Plain") is catalog.kernel("plain one") is catalog.kernel(" SECOND NAME ")


def test_only_the_requested_file_is_read(root: Path) -> None:
    (root / "kernels" / "broken.yaml").write_text("id: [\n")
    assert Catalog(root).kernel("plain").name == "A kernel"


def test_a_file_is_read_once(root: Path) -> None:
    catalog = Catalog(root)
    first = catalog.kernel("plain")
    (root / "kernels" / "plain.yaml").unlink()
    (root / "kernels" / "plain.yaml").write_text("gone")
    assert catalog.kernel("plain") is first


@pytest.mark.parametrize(("kind", "find"), [("gpus", Catalog.gpu), ("models", Catalog.any_model)])
def test_a_name_that_a_list_shows_is_found(kind: str, find: Callable[[Catalog, str], Any]) -> None:
    catalog = load_catalog()
    for key in catalog.ids(kind):
        assert find(catalog, find(catalog, key).name).id == key


def test_an_unknown_name_suggests_the_nearest_ids() -> None:
    with pytest.raises(UnknownId, match=r"^unknown gpu 'rtx4900'; did you mean rtx-4090\?$") as caught:
        load_catalog().gpu("rtx4900")
    assert caught.value.suggestions == ("rtx-4090",)


def test_an_unknown_offer_and_an_unknown_source_are_named() -> None:
    with pytest.raises(UnknownId, match="unknown offer 'rtx-4090/vast'"):
        load_catalog().offer("rtx-4090/vast")
    with pytest.raises(UnknownId, match="unknown price list 'no-such-thing'"):
        load_catalog().offer("no-such-thing/x")
    with pytest.raises(UnknownId, match="unknown source"):
        load_catalog().source("nobody")
    with pytest.raises(UnknownId, match="did you mean gpus"):
        load_catalog().ids("gpu")


def test_a_network_that_is_no_language_model_is_refused_as_one() -> None:
    assert load_catalog().any_model("resnet-50").name
    with pytest.raises(UnknownId, match="unknown language model 'resnet-50'"):
        load_catalog().model("resnet-50")


def test_a_path_is_read_as_a_hugging_face_config(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"config.json"):
        load_catalog().model(str(tmp_path / "config.json"))


def test_missing_price_list_is_none_and_has_a_path() -> None:
    catalog = load_catalog()
    assert catalog.prices("a40-not-there") is None
    assert catalog.price_file("A40-not-there") == catalog.root / "prices" / "a40-not-there.yaml"


@pytest.mark.parametrize("name", ["../sources", "", "/etc/passwd", "gpus/../rtx-4090"])
def test_a_name_cannot_leave_the_catalogue(name: str) -> None:
    with pytest.raises(UnknownId):
        load_catalog().gpu(name)


def test_all_errors_of_a_file_come_with_line_and_path(root: Path) -> None:
    file = root / "kernels" / "plain.yaml"
    file.write_text(
        KERNEL.replace("value: 1, source: sheet, kind: quoted}", "value: x, source: sheet, kind: guess}", 1)
    )
    with pytest.raises(CatalogError) as caught:
        Catalog(root).kernel("plain")
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"{file}:5: compute_time_factor.kind: ")
    assert second.startswith(f"{file}:5: compute_time_factor.value: ")


def test_an_assumed_value_without_a_range_is_refused(root: Path) -> None:
    file = root / "kernels" / "plain.yaml"
    file.write_text(KERNEL.replace("kind: quoted", "kind: assumed", 1))
    with pytest.raises(CatalogError, match="5: compute_time_factor: an assumed value needs a range"):
        Catalog(root).kernel("plain")


def test_the_id_must_be_the_file_name(root: Path) -> None:
    (root / "kernels" / "other.yaml").write_text(KERNEL)
    with pytest.raises(CatalogError, match=r"other.yaml:1: id: must be the file's name, 'other'"):
        Catalog(root).kernel("other")


def test_a_wrong_sources_file_is_named(root: Path) -> None:
    (root / "sources.yaml").write_text("sheet: {title: A sheet, accessed: last year, trust: good}\n")
    with pytest.raises(CatalogError, match=r"sources.yaml:1: sheet.accessed: "):
        Catalog(root).source("sheet")
    (root / "sources.yaml").write_text("- a list\n")
    with pytest.raises(CatalogError, match="must hold sources by their keys"):
        Catalog(root).source("sheet")


def test_a_duplicate_key_is_refused(root: Path) -> None:
    (root / "kernels" / "plain.yaml").write_text(KERNEL + "name: again\n")
    with pytest.raises(yamlio.YamlError, match="is given twice"):
        Catalog(root).kernel("plain")


def test_catalogue_is_found_next_to_the_package() -> None:
    assert (data_root() / "sources.yaml").is_file()
    assert len(load_catalog().ids("gpus")) >= 48


@pytest.mark.parametrize(
    ("name", "found", "whole_prompts", "share"),
    [
        ("vllm-0.12", "vllm-0.11", 0, 0.9),
        ("vLLM v0.17.1", "vllm-0.14", 0, 0.9),
        ("vllm==0.19", "vllm-0.14", None, 0.9),
        ("vllm-0.25.1", "vllm-0.14", None, 0.92),
        ("vllm-0.14", "vllm-0.14", None, 0.9),
        ("sglang-0.5.6.post2", "sglang-0.5", None, 0.88),
        ("trtllm-1.3.0rc10", "tensorrt-llm-1.0", None, 0.92),
    ],
)
def test_a_release_has_the_defaults_of_its_time(
    name: str, found: str, whole_prompts: float | None, share: float
) -> None:
    engine = load_catalog().engine(name)
    assert engine.limits is not None
    assert engine.memory is not None
    reserved = engine.limits.scheduler_reserve_full_isl
    assert (engine.id, reserved and reserved.value) == (found, whole_prompts)
    assert engine.memory.gpu_memory_utilization.value == share


@pytest.mark.parametrize(("name", "near"), [("vllm-0.99", "vllm-0.14"), ("tensorrt-llm-0.16", "tensorrt-llm-0.14")])
def test_release_outside_all_entries_is_unknown(name: str, near: str) -> None:
    with pytest.raises(UnknownId) as caught:
        load_catalog().engine(name)
    assert caught.value.suggestions == (near,)
