"""What is wrong with the command line itself is one line too."""

import os
import re
from pathlib import Path

import pytest

from sim.catalogue.catalog import load_catalog
from sim.cli.frame import next_command
from sim.scenario.reading.load import load


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["run", "--foo"], "No such option: --foo"),
        (["show", "gpu"], "Missing argument 'name'."),
        (["run", "s.yaml", "--workers", "0"], "Invalid value for '--workers'"),
        (["fly"], "No such command 'fly'."),
    ],
)
def test_usage_error_is_one_line(gpufleet, args: list[str], told: str) -> None:
    done = gpufleet(*args)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"gpufleet: {told}")


def test_nothing_asked_is_help(gpufleet) -> None:
    done = gpufleet()
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: ")


def test_no_color_may_stand_anywhere(gpufleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    monkeypatch.setenv("FORCE_COLOR", "1")
    for args in (("list", "links", "--no-color"), ("--no-color", "list", "links")):
        done = gpufleet(*args)
        assert (done.returncode, done.stderr) == (0, "")
        assert os.environ["NO_COLOR"] == "1"
        assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", done.stdout)


def test_the_next_command_is_named_to_people_only(gpufleet, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = root / "scenarios" / "4x4090-vs-2xa100.yaml"
    assert "next:" not in gpufleet("check", path).stdout
    monkeypatch.setattr("sim.cli.scenario_files.shown_to_people", lambda: True)
    assert gpufleet("check", path).stdout.endswith(f"next: gpufleet run {path} (simulates it)\n")


def test_what_comes_next(root: Path) -> None:
    scenario = load(root / "scenarios" / "breakeven-4x4090-vs-2xa100.yaml", catalog=load_catalog())
    path, out = Path("s.yaml"), Path("out")
    found = {name: next_command(name, path, out, scenario) for name in ("run", "capacity", "sensitivity", "breakeven")}
    assert [line.split()[2] for line in found.values()] == ["capacity", "sensitivity", "breakeven", "export"]
