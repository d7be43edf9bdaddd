"""The installed package works without the repository: the wheel contains catalogue and scenarios."""

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from hatchling.builders.sdist import SdistBuilder
from packaging.requirements import Requirement

from hatch_build import modules

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
    asked = "from sim.catalogue.catalog import *; print(data_root(), load_catalog().ids('gpus'))"
    folder, _, listed = installed("-c", asked).partition(" ")
    assert Path(folder) == unpacked / "sim" / "data"
    assert "rtx-4090" in listed


def test_the_command_points_at_the_program(unpacked: Path) -> None:
    [entries] = unpacked.glob("gpufleet-*.dist-info/entry_points.txt")
    module, _, function = entries.read_text().partition("gpufleet = ")[2].strip().partition(":")
    assert callable(getattr(import_module(module), function))


@pytest.mark.slow
def test_the_sdist_carries_what_the_wheel_is_built_from(root: Path) -> None:
    carried = {file.relative_path for file in SdistBuilder(str(root)).recurse_included_files()}
    needed = [path for folder in ("sim", "gpufleet", "data", "scenarios") for path in (root / folder).rglob("*")]
    needed = [path for path in needed if "__pycache__" not in path.parts and path.suffix != ".so" and path.is_file()]
    kept = {str(path.relative_to(root)) for path in needed}
    assert kept | {"README.md", "hatch_build.py", "requirements.lock", "action.yml"} <= carried


def test_the_lock_file_satisfies_every_dependency(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)", (root / "requirements.lock").read_text(), flags=re.MULTILINE))
    wanted = [Requirement(text) for text in asked]
    assert [str(one) for one in wanted if locked.get(one.name.lower(), "0") not in one.specifier] == []


def test_the_version_is_the_same_wherever_it_is_stated(root: Path) -> None:
    fallback = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["version"]["fallback-version"]
    cited = yaml.safe_load((root / "CITATION.cff").read_text())
    released = re.findall(r"^## \[([\d.]+)\] - (\S+)$", (root / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert (cited["version"], str(cited["date-released"])) == released[0]
    assert fallback == released[0][0]


@pytest.mark.slow
def test_compiled_dataclasses_have_no_constants(root: Path) -> None:
    """A compiled dataclass with slots cannot set a ClassVar when it is made."""
    texts = {file: (root / file).read_text(encoding="utf-8") for file in modules(root)}
    found = [
        f"{file}: {node.name}"
        for file, text in texts.items()
        if "ClassVar" in text
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(one) for one in node.decorator_list)
        for line in node.body
        if isinstance(line, ast.AnnAssign) and "ClassVar" in ast.unparse(line.annotation)
    ]
    assert found == []
