"""What is installed works without the repository: the catalogue and the scenarios travel in the wheel."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

Installed = Callable[..., str]


@pytest.fixture(scope="module")
def unpacked(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's contents, in a folder far from the repository."""
    built, folder = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("unpacked")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)]
    subprocess.run(build, cwd=root, check=True, capture_output=True)
    [wheel] = built.glob("gpufleet-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture
def installed(unpacked: Path, tmp_path: Path) -> Installed:
    """Run Python on the wheel's own copy, in an empty directory."""

    def run(*args: str) -> str:
        environment = os.environ | {"PYTHONPATH": str(unpacked)}
        command = [sys.executable, *args]
        return subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout

    return run


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["data", "scenarios"])
def test_the_wheel_carries_every_file(root: Path, unpacked: Path, folder: str) -> None:
    def files(top: Path) -> set[Path]:
        return {path.relative_to(top) for path in top.rglob("*") if path.is_file()}

    assert files(unpacked / "sim" / folder) == files(root / folder) != set()


def test_the_wheel_carries_the_pages_of_the_workspace(unpacked: Path) -> None:
    for name in ("static/main.js", "static/page.css", "static/index.html", "starts/office.yaml"):
        assert (unpacked / "sim" / "serve" / name).is_file()


@pytest.mark.slow
def test_the_installed_package_reads_its_own_catalogue(unpacked: Path, installed: Installed) -> None:
    found = installed("-c", "from sim.catalogue.catalog import data_root; print(data_root())")
    assert Path(found.strip()) == unpacked / "sim" / "data"
    assert "rtx-4090" in installed("-m", "sim", "list", "gpus")


def test_the_command_points_at_the_program(unpacked: Path) -> None:
    [entries] = unpacked.glob("gpufleet-*.dist-info/entry_points.txt")
    module, _, function = entries.read_text().partition("gpufleet = ")[2].strip().partition(":")
    assert callable(getattr(import_module(module), function))
