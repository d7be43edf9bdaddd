"""Entries of a user's own folder: added, overriding, checked, and part of a case's digest."""

import pickle
from pathlib import Path

import pytest

from sim.catalogue.catalog import load_catalog, own_folders
from sim.catalogue.data_folder import CatalogError
from sim.scenario.reading.load import load
from sim.scenario.sweep import cases
from sim.study.execution.cases import Call
from sim.study.execution.digest import digest, files_below
from tests.small_scenario import SMALL

SHIPPED = load_catalog()


def own(folder: Path, **files: str) -> Path:
    """Return gpufleet.d in *folder* with *files*, keyed by path with two underscores for the slash."""
    for name, text in files.items():
        path = folder / "gpufleet.d" / f"{name.replace('__', '/').replace('_', '-')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "gpufleet.d"


def my_gpu(name: str = "my-gpu", **changes: str) -> str:
    """Return a GPU like the RTX 4090 under the id *name*."""
    text = (SHIPPED.root / "gpus" / "rtx-4090.yaml").read_text("utf-8")
    text = text.replace("id: rtx-4090", f"id: {name}")
    text = "\n".join(line for line in text.splitlines() if not line.startswith("aliases"))
    for old, new in changes.items():
        text = text.replace(old, new)
    return text + "\n"


SOURCE = "my-vendor: {title: Offer of my vendor, accessed: 2026-11-01, trust: good}\n"
PRICE = """\
id: my-gpu
item: my-gpu
default_purchase: offer-2026
offers:
  offer-2026:
    what: purchase
    price: {value: 1234, source: my-vendor, kind: quoted, as_of: 2026-11-01}
    unit: each
"""


@pytest.mark.slow
def test_entries_are_added_to_the_shipped_ones(tmp_path: Path) -> None:
    catalog = load_catalog(own=[own(tmp_path, gpus__my_gpu=my_gpu(), prices__my_gpu=PRICE, sources=SOURCE)])
    assert catalog.gpu("My-GPU").id == "my-gpu"
    assert catalog.offer("my-gpu/offer-2026").price.value == 1234
    assert catalog.source("my-vendor").title == "Offer of my vendor"
    assert set(catalog.ids("gpus")) == {"my-gpu", *SHIPPED.ids("gpus")}
    assert catalog.gpu("h100-80gb-sxm") == SHIPPED.gpu("h100-80gb-sxm")
    assert catalog.replaced() == []
    assert "my-gpu" not in SHIPPED.ids("gpus")


@pytest.mark.slow
def test_an_entry_with_a_shipped_id_replaces_it_and_is_named(tmp_path: Path) -> None:
    text = my_gpu("rtx-4090").replace("1.008e12", "2e12").replace("1008e9", "2e12")
    catalog = load_catalog(own=[own(tmp_path, gpus__rtx_4090=text)])
    assert catalog.replaced() == ["gpufleet.d/gpus/rtx-4090.yaml replaces the gpu rtx-4090 of the catalogue"]
    assert catalog.gpu("rtx-4090").memory_bytes_per_s.value == 2e12


@pytest.mark.slow
def test_all_mistakes_are_reported_with_file_and_line(tmp_path: Path) -> None:
    folder = own(
        tmp_path,
        gpus__my_gpu=my_gpu("other"),
        gpus__bad=my_gpu("bad") + "memory: 5\n",
        prices__my_gpu=PRICE,
        pricess__x="id: x\n",
        links__none="[",
    )
    (folder / "notes.txt").write_text("remember the milk")
    with pytest.raises(CatalogError) as caught:
        load_catalog(own=[folder])
    lines = str(caught.value).replace(f"{folder}/", "").splitlines()
    assert lines[0].startswith("notes.txt: belongs in one of the folders gpus, models")
    assert lines[1] == "pricess: no folder of a catalogue; did you mean prices?"
    assert any(line.startswith("gpus/bad.yaml:") and "memory: " in line for line in lines)
    assert any(line.endswith("id: must be the file's name, 'my-gpu'") for line in lines)
    assert any(line.startswith("links/none.yaml:") for line in lines)
    [unknown] = [line for line in lines if "unknown source" in line]
    assert unknown.startswith("prices/my-gpu.yaml:7: offers.offer-2026.price.source: unknown source 'my-vendor'")
    assert len(lines) == 6


@pytest.mark.slow
def test_mistakes_are_told_in_plain_words_with_the_nearest_name(tmp_path: Path) -> None:
    network = (SHIPPED.root / "models/3d-unet.yaml").read_text("utf-8").replace("id: 3d-unet", "id: net")
    folder = own(
        tmp_path,
        gpus__my_gpu=my_gpu(**{"\nmemory_bytes:": "\nmemory_byts:"}),
        prices__my_gpu=PRICE.replace("my-vendor", "cloudgpus").replace("kind: quoted", "kind: quotd"),
        models__net=network.replace("kind: other", "kind: othr"),
        grids__mine="",
    )
    with pytest.raises(CatalogError) as caught:
        load_catalog(own=[folder])
    told = [line.split(": ", 1)[1] for line in str(caught.value).splitlines()]
    assert "memory_bytes: is missing" in told
    assert "memory_byts: unknown key; did you mean memory_bytes?" in told
    assert "kind: unknown kind 'othr'; did you mean other?" in told
    assert "file: a mapping (key: value) is needed, not nothing" in told
    [kind] = [line for line in told if line.startswith("offers.")]
    assert kind.startswith("offers.offer-2026.price.kind: must be one of datasheet, quoted, ")
    assert kind.endswith(", not 'quotd'; did you mean quoted?")
    assert len(told) == 5


@pytest.mark.slow
def test_all_mistakes_of_a_file_are_told_in_the_order_of_its_lines(tmp_path: Path) -> None:
    changes = {"source: smi,": "source: smii,", "pcie4-x16-no-p2p": "pcie4-x16-nop2p", "{value: 450": "{value: -450"}
    sources = "a: 5\nb: {title: B, accessed: 2026-11-01, trust: goood}\n"
    folder = own(tmp_path, gpus__my_gpu=my_gpu("other", vendor="vendr", **changes), sources=sources)
    with pytest.raises(CatalogError) as caught:
        load_catalog(own=[folder])
    lines = str(caught.value).replace(f"{folder}/", "").splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        *("a", "b.trust", "id", "vendor", "vendr", "link", "memory_bytes.source", "tdp_w.value", "idle_w.source")
    ]
    assert "link: unknown link 'pcie4-x16-nop2p'; did you mean pcie4-x16-no-p2p?" in lines[5]
    assert lines[7].endswith("tdp_w.value: must be 0 or more, not -450")


def test_folders_beside_the_scenario_and_stated_ones(tmp_path: Path) -> None:
    folder = own(tmp_path, gpus__my_gpu=my_gpu())
    assert own_folders(tmp_path / "a.yaml") == [folder]
    assert own_folders(tmp_path / "sub" / "a.yaml") == []
    assert own_folders(tmp_path / "a.yaml", [folder, tmp_path]) == [folder, tmp_path]
    with pytest.raises(CatalogError, match="none: is not a folder"):
        own_folders(None, [tmp_path / "none"])


def id_of_gpu(scenario: object, catalog: object) -> str:
    """Return the id of the user's GPU in another process."""
    return str(catalog.gpu("my-gpu").id)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_workers_and_digests_see_the_entries(tmp_path: Path) -> None:
    folder = own(tmp_path, gpus__my_gpu=my_gpu())
    file = tmp_path / "a.yaml"
    file.write_text(SMALL.replace("gpu: rtx-4090", "gpu: my-gpu"))
    catalog = load_catalog(own=[folder])
    scenario = load(file, catalog=catalog)
    assert pickle.loads(pickle.dumps(Call(id_of_gpu, scenario, catalog)))() == "my-gpu"
    before = digest(scenario, cases(scenario)[0], catalog)
    own(tmp_path, gpus__my_gpu=my_gpu() + "# a comment\n")
    assert digest(scenario, cases(scenario)[0], load_catalog(own=[folder])) != before


def test_files_below_links_are_found_once_and_links_to_no_file_are_not(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "l4b.yaml").write_text("id: l4b")
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "gpus").symlink_to(shared)
    (shared / "loop").symlink_to(folder)
    (folder / ".#lock.yaml").symlink_to("user@host:1")
    (folder / "folder.yaml").mkdir()
    assert list(files_below(folder, ".yaml")) == [("gpus/l4b.yaml", folder / "gpus" / "l4b.yaml")]
