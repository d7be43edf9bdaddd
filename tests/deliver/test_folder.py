"""Files of an answer appear together or not at all."""

import json

import pytest

from sim.deliver.shared.folder import begin, written_together
from sim.scenario.schema import Scenario

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
