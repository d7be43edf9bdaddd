"""Files of an answer appear together or not at all.

No result is destroyed by another question, and the same question goes on where it was.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from small_scenario import TINY, variant
from typer.testing import CliRunner, Result

from sim.answers.folder import begin, differences, owned, question_of, replaced_together
from sim.catalogue.catalog import load_catalog
from sim.cli import app
from sim.cli.questions import default_folder
from sim.fidelity.calibration import calibration_text, why_not_replaced
from sim.fidelity.fit import calibration_of
from sim.report.run.tables import write_rows
from sim.scenario.reading.load import load
from sim.scenario.schema import Scenario
from sim.study.execution.durable import atomic_folder, write_atomically

pytestmark = pytest.mark.usefixtures("coarsely")

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
    with replaced_together(out, _began(out)) as folder:
        (folder / "table.csv").write_text("later")
        (folder / "picture.png").write_text(1 / 0)


def test_answer_replaces_the_earlier_one(answered):
    with replaced_together(answered, _began(answered)) as folder:
        (folder / "table.csv").write_text("later")
        assert (answered / "table.csv").read_text() == "earlier"
    assert {path.name for path in answered.iterdir()} == {"table.csv", "manifest.json", "points"}
    assert (answered / "table.csv").read_text() == "later"
    assert (answered / "points" / "one").is_dir()
    told = json.loads((answered / "manifest.json").read_text())
    assert (told["status"], told["seed"], told["command"]) == ("finished", 3, ["gpufleet", "size"])
    assert 0 <= told["wall_s"] < 60


def test_failed_write_keeps_the_earlier_answer(answered):
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
            with atomic_folder(out / "points" / "one") as point:
                (point / "intervals").write_text("measured")
            with replaced_together(out, told) as answer:
                write_rows(answer / "table.csv", [{"a": 1}])
                write_atomically(answer / "scenario.yaml", "name: s\n")
    finally:
        os.umask(before)
    modes = {path.relative_to(out).as_posix(): path.stat().st_mode & 0o777 for path in (out, *out.rglob("*"))}
    assert {modes.pop(name) for name in (".", "points", "points/one")} == {folder}
    assert set(modes) == {
        *("manifest.json", "scenario.yaml", "table.csv", "points/one/SHA256SUMS", "points/one/intervals")
    }
    assert set(modes.values()) == {file}


POOL = {
    "steptime": {"model": "affine", "base_s": 0.05, "per_token_s": 1.0e-5, "per_context_token_s": 1.0e-8},
    "batching": {"policy": "vllm", "max_num_seqs": 2, "max_num_batched_tokens": 2048, "num_gpu_blocks": 50_000},
}


def fleets(*names: str) -> dict[str, Any]:
    return {"precision": {"max_replications": 5}, "fleets": [{"name": name, "pools": [POOL]} for name in names]}


TWO_FLEETS = variant(TINY, fleets("first one", "second"))
CATALOG = load_catalog()
TABLES = ("summary.csv", "requests.csv", "usage.csv")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(TWO_FLEETS)
    return tmp_path


def gpufleet(command: str, *options: str) -> Result:
    return CliRunner().invoke(app, [command, "s.yaml", "--quiet", "--no-report", "--workers", "1", *options])


def answer(out: Path) -> list[bytes]:
    return [(out / name).read_bytes() for name in TABLES]


def points(out: Path) -> set[str]:
    return {path.name for path in (out / "points").iterdir()}


def name(*sets: str, **options: object) -> str:
    return default_folder(load("s.yaml", sets, catalog=CATALOG), "", sets, **options).name


@pytest.mark.slow
def test_what_is_set_goes_to_a_folder_of_its_own(folder: Path) -> None:
    assert gpufleet("run").exit_code == 0
    before = answer(folder / "outputs" / "tiny")
    assert gpufleet("run", "--set", "workload.arrivals.rate_rps=0.5").exit_code == 0
    assert gpufleet("run", "--seed", "4", "--replications", "2").exit_code == 0
    assert gpufleet("capacity", "--set", "horizon_s=5", "--relative", "0.5").exit_code == 0
    assert answer(folder / "outputs" / "tiny") == before
    assert {path.name for path in (folder / "outputs").iterdir()} == {
        "tiny",
        "tiny--rate_rps=0.5",
        "tiny--seed=4--replications=2",
        "tiny-capacity--horizon_s=5--relative=0.5",
    }


@pytest.mark.slow
def test_names_of_folders(folder: Path) -> None:
    assert name() == "tiny"
    assert name("seed=3", "horizon_s=5") == name("horizon_s=5", "seed=3") == "tiny--horizon_s=5--seed=3"
    first = name("fleets.first one.pools.0.replicas=2")
    assert first.startswith("tiny--first-one.pools.0.replicas=2--")
    assert first != name("fleets.second.pools.0.replicas=2") != name("fleets.second.pools.0.replicas=3")
    seeds = [list(range(count)) for count in (90, 91)]
    hostile = [f"sweep={{workload.arrivals.rate_rps: [1, 2], seed: {seed}}}" for seed in seeds]
    long = [name(one) for one in hostile]
    assert long[0] != long[1]
    for one in (first, *long, name("question='a/../../b\\0 ü 中'")):
        assert len(one) <= 120
        assert not set(one) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._=+-")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--set", "workload.arrivals.rate_rps=4"], "workload"),
        (["--seed", "9", "--set", "horizon_s=10"], "horizon_s, seed"),
        (["--set", "sweep={horizon_s: [10, 30]}"], "sweep"),
        (["--set", "fleets.second.pools.0.replicas=2"], "fleets.second"),
    ],
)
def test_another_question_is_refused_without_force(folder: Path, options: list[str], what: str) -> None:
    assert gpufleet("run", "--out", "out").exit_code == 0
    before = {path: path.read_bytes() for path in (folder / "out").rglob("*") if path.is_file()}
    refused = gpufleet("run", "--out", "out", *options)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr == (
        f"--out out: holds results of another question ({what}); "
        "--force replaces them, --out with another folder keeps both\n"
    )
    assert {path: path.read_bytes() for path in (folder / "out").rglob("*") if path.is_file()} == before
    shared = points(folder / "out")
    assert gpufleet("run", "--out", "out", *options, "--force").exit_code == 0
    assert bool(points(folder / "out") & shared) == (what == "fleets.second")
    assert gpufleet("run", "--out", "new", *options).exit_code == 0
    assert answer(folder / "out") == answer(folder / "new")


@pytest.mark.slow
def test_answer_of_another_command_is_refused(folder: Path) -> None:
    assert gpufleet("run", "--out", "out").exit_code == 0
    refused = gpufleet("capacity", "--out", "out", "--relative", "0.5")
    assert refused.exit_code == 2
    assert "an answer of gpufleet run" in refused.stderr
    assert gpufleet("capacity", "--out", "c", "--relative", "0.5").exit_code == 0
    assert "(relative)" in gpufleet("capacity", "--out", "c", "--relative", "0.4").stderr
    assert gpufleet("capacity", "--out", "c", "--relative", "0.5").exit_code == 0


@pytest.mark.slow
def test_extended_question_continues_in_the_folder(folder: Path) -> None:
    assert gpufleet("run", "--out", "out").exit_code == 0
    found = points(folder / "out")
    for options in (["--replications", "2"], ["--replications", "3"]):
        assert gpufleet("run", "--out", "out", *options).exit_code == 0
        assert found < points(folder / "out")
        found = points(folder / "out")
    assert "(replications)" in gpufleet("run", "--out", "out").stderr
    three = fleets("first one", "second", "third") | {"replications": 3}
    (folder / "s.yaml").write_text(variant(TINY, three))
    assert gpufleet("run", "--out", "out").exit_code == 0
    assert found < points(folder / "out")


@pytest.mark.slow
def test_an_edited_file_does_not_replace_the_answer_of_the_one_before(folder: Path) -> None:
    assert gpufleet("run").exit_code == 0
    before = answer(folder / "outputs" / "tiny")
    (folder / "s.yaml").write_text(TWO_FLEETS.replace("horizon_s: 20", "horizon_s: 10"))
    assert "(horizon_s)" in gpufleet("run").stderr
    assert answer(folder / "outputs" / "tiny") == before
    unread = "sensitivity: {metric: ttft_s_p95}\n"
    (folder / "s.yaml").write_text("# What if?\n" + TWO_FLEETS + unread)
    assert gpufleet("run").exit_code == 0


@pytest.mark.slow
def test_precision_may_become_narrower(folder: Path) -> None:
    def asked(relative: float | None) -> dict[str, object]:
        sets = [f"precision={{metric: e2e_s_mean, relative: {relative}}}"] if relative else ["precision=null"]
        return question_of("run", load("s.yaml", sets, catalog=CATALOG))

    assert differences(asked(None), asked(0.1)) == differences(asked(0.1), asked(0.05)) == []
    assert differences(asked(0.05), asked(0.1)) == differences(asked(0.1), asked(None)) == ["precision"]


def test_factors_of_another_gpu_stay(tmp_path: Path) -> None:
    out = tmp_path / "factors.yaml"
    out.write_text(calibration_text(calibration_of("l4", {}).model_copy(update={"table": "runs.csv"})))
    assert why_not_replaced(out, "l4", "somewhere/runs.csv", False) == ""
    assert "--force replaces them" in why_not_replaced(out, "h100-sxm", "runs.csv", False)
    assert why_not_replaced(out, "h100-sxm", "runs.csv", True) == ""
    out.write_text("mine: 1\n")
    assert "is not a calibration" in why_not_replaced(out, "l4", "runs.csv", True)
