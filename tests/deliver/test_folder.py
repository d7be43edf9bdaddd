"""Files of an answer appear together or not at all."""

import json
import os

import pytest

from sim.deliver.folder import begin, owned, written_together
from sim.report.run.tables import write_rows
from sim.scenario.schema import Scenario
from sim.study.execution.durable import whole_folder, write_whole

SCENARIO = Scenario.model_validate(
    {
        "name": "s",
        "seed": 3,
        "workload": {"trace": {"path": "t.csv", "format": "csv"}},
        "fleets": [{"name": "a", "pools": [{"gpu": "l4"}]}],
    }
)


@pytest.fixture
def answered(tmp_path):
    """A folder with an earlier answer, one of whose files the next one lacks, and its simulated points."""
    (tmp_path / "points" / "one").mkdir(parents=True)
    for name in ("table.csv", "picture.png"):
        (tmp_path / name).write_text("earlier")
    return tmp_path


def _began(out):
    return begin(out, SCENARIO, ["gpufleet", "size"], "size")


def _write_half(out):
    with written_together(out, _began(out)) as folder:
        (folder / "table.csv").write_text("later")
        (folder / "picture.png").write_text(1 / 0)


def test_an_answer_takes_the_place_of_the_earlier_one(answered):
    with written_together(answered, _began(answered)) as folder:
        (folder / "table.csv").write_text("later")
        assert (answered / "table.csv").read_text() == "earlier"
    assert {path.name for path in answered.iterdir()} == {"table.csv", "manifest.json", "points"}
    assert (answered / "table.csv").read_text() == "later"
    assert (answered / "points" / "one").is_dir()
    told = json.loads((answered / "manifest.json").read_text())
    assert (told["status"], told["seed"], told["command"]) == ("finished", 3, ["gpufleet", "size"])
    assert 0 <= told["wall_s"] < 60


def test_a_failure_leaves_the_earlier_answer(answered):
    with pytest.raises(ZeroDivisionError):
        _write_half(answered)
    assert {path.name for path in answered.iterdir()} == {"table.csv", "picture.png", "manifest.json", "points"}
    assert (answered / "table.csv").read_text() == "earlier"
    assert json.loads((answered / "manifest.json").read_text())["status"] == "unfinished"


@pytest.mark.parametrize(("umask", "file", "folder"), [(0o077, 0o600, 0o700), (0o027, 0o640, 0o750), (0, 0o666, 0o777)])
def test_files_and_folders_have_the_modes_of_the_umask(tmp_path, umask, file, folder):
    before = os.umask(umask)
    try:
        out = tmp_path / "out"
        with owned(out):
            told = _began(out)
            with whole_folder(out / "points" / "one") as point:
                (point / "intervals").write_text("measured")
            with written_together(out, told) as answer:
                write_rows(answer / "table.csv", [{"a": 1}])
                write_whole(answer / "scenario.yaml", "name: s\n")
    finally:
        os.umask(before)
    modes = {path.relative_to(out).as_posix(): path.stat().st_mode & 0o777 for path in (out, *out.rglob("*"))}
    assert {modes.pop(name) for name in (".", "points", "points/one")} == {folder}
    assert set(modes) == {
        *("manifest.json", "scenario.yaml", "table.csv", "points/one/SHA256SUMS", "points/one/intervals")
    }
    assert set(modes.values()) == {file}
