"""Errors of the machine are one line on stderr: a full disk, a read-only folder, an unknown locale."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import typer
from small_scenario import REFEREE, variant

from sim import cli
from sim.cli.scenario_files import _write
from sim.study.execution import cases

SHORT = {
    "workload.arrivals": {"process": "constant", "rate_rps": 1.0},
    "horizon_s": 3,
    "sweep": {"workload.arrivals.rate_rps": [1, 2, 3]},
}
ASCII = {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


def called(name: str, fleet: str) -> str:
    return variant(REFEREE, SHORT | {"name": name, "fleets.0.name": fleet})


IN_ONE_PROCESS = """
import json, sys
from sim.cli import main
for sys.argv in json.loads(sys.argv[1]):
    try:
        main()
    except SystemExit as end:
        print("code", end.code or 0)
"""


def commands(*words: tuple[str | Path | int, ...], **env: str) -> subprocess.CompletedProcess[bytes]:
    """Run commands one after the other in one process of their own, and print the exit code of each."""
    root = Path(__file__).parents[2]
    base = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHON"))}
    asked = json.dumps([["gpufleet", *map(str, one)] for one in words])
    return subprocess.run(
        [sys.executable, "-c", IN_ONE_PROCESS, asked],
        cwd=root, env=base | env, capture_output=True, check=False,
    )  # fmt: skip


def ended(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> Any:
    """The exit code of the program, in this process."""
    monkeypatch.setattr(sys, "argv", ["gpufleet", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return caught.value.code


@pytest.mark.slow
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    scenario, out = tmp_path / "s.yaml", tmp_path / "out"
    scenario.write_text(called("s", "a"))
    asked = ("run", scenario, "--out", out, "--workers", 1, "--quiet", "--no-report")
    whole, calls = cases.save_case, iter([False, True])

    def full(folder: Path, *rest: Any) -> None:
        if next(calls):
            raise OSError(errno.ENOSPC, "No space left on device", str(folder))
        whole(folder, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(cases, "save_case", full)
        assert ended(monkeypatch, *map(str, asked)) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"gpufleet: {out}/points/"[:100])
    assert line.endswith(
        "no space left on device; finished points are kept: make room, and the same command continues from them"
    )
    assert len(list((out / "points").iterdir())) == 1
    assert ended(monkeypatch, *map(str, asked)) == 0
    assert len(list((out / "points").iterdir())) == 3


@pytest.mark.slow
def test_a_table_that_finds_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tables are written aside: the points stay, and nothing is left lying about."""
    from sim.answers import run as deliver

    scenario, out = tmp_path / "s.yaml", tmp_path / "out"
    scenario.write_text(called("s", "a"))

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(deliver, "write_report", full)
    assert ended(monkeypatch, "run", scenario, "--out", out, "--workers", "1", "--quiet") == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert len(list((out / "points").iterdir())) == 3
    assert {path.name for path in tmp_path.iterdir()} == {"s.yaml", "out"}


@pytest.mark.parametrize("asked", [("run", "{s}", "--out"), ("init",), ("check",)])
def test_names_of_5000_characters(
    asked: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.yaml").write_text(called("s", "a"))
    monkeypatch.chdir(tmp_path)
    assert ended(monkeypatch, *(one.format(s="s.yaml") for one in asked), "x" * 5000) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "file name too long" in line
    assert len(line) < 400


@pytest.mark.slow
@pytest.mark.parametrize("env", [{"LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}, ASCII])
def test_names_and_folders_of_any_script_in_any_locale(tmp_path: Path, env: dict[str, str]) -> None:
    scenario, out = tmp_path / "s.yaml", tmp_path / "out"
    scenario.write_text(called("結果", "四張顯示卡 ☃"), encoding="utf-8")
    run = ("run", scenario, "--workers", 1, "--no-report", "--set", "sweep=null", "--out")
    done = commands((*run, out), (*run, tmp_path / "more" / "結果", "--quiet"), **env)
    codes = [line for line in done.stdout.splitlines() if line.startswith(b"code")]
    assert (codes[0], len(codes), done.stderr.count(b"Traceback")) == (b"code 0", 2, 0), done.stderr
    assert "四張顯示卡 ☃" in (out / "summary.csv").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["漢" * 100, "a\nb", "\U0001f600" * 60])
def test_names_that_are_no_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text(called("s", "a"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert ended(monkeypatch, "run", scenario, "--set", f'name="{name}"'.replace("\n", "\\n"), "--quiet") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("--set name: ")


def test_a_path_that_is_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    (folder / "s.yaml").write_text(called("s", "a"))
    assert ended(monkeypatch, "check", folder / "s.yaml") == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "the path is not UTF-8 text: rename the file or its folder" in line


def test_a_full_disk_leaves_the_scenario_of_init_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "chat.yaml"
    scenario.write_text("before")
    monkeypatch.setattr(
        "sim.study.execution.durable.os.fsync", Mock(side_effect=OSError(28, "No space left on device"))
    )
    with pytest.raises(typer.Exit):
        _write(scenario, "after")
    assert capsys.readouterr().err == f"{scenario}: cannot be written: no space left on device\n"
    assert [*tmp_path.iterdir()] == [scenario]
    assert scenario.read_text() == "before"
