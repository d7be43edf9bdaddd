"""Integrity of stored results: changed files and bytes are detected, and only one process writes.

A point counts as itself alone, and a run is billed anew only while what it has simulated is unchanged.
"""

import csv
import json
import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_scenario import TINY, ran
from typer.testing import CliRunner

from sim.answers.folder import FolderBusy, owned, replaced_together
from sim.catalogue.catalog import load_catalog
from sim.cli import app
from sim.infile import OutsideFolders, confined
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.scenario.sweep import cases
from sim.study.execution.digest import digest, quantities
from sim.study.execution.durable import DamagedFile, atomic_folder, read_sealed, write_sealed
from sim.study.execution.store import load_case, read_case, requests_table
from sim.study.metrics.metric import MeasuredRun
from sim.study.reprice import load_repriced

ROOFLINE = """\
name: mine
model: mine
workload:
  arrivals: {process: constant, rate_rps: 1}
  lengths: {prompt: {distribution: fixed, value: 100}, output: {distribution: fixed, value: 10}}
horizon_s: 20
fleets: [{name: a, pools: [{gpu: rtx-4090}]}]
"""
CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 16,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}


def run(folder: Path, *options: str) -> str:
    """Return the output on stderr."""
    command = ["run", str(folder / "s.yaml"), "--out", str(folder / "out"), "--no-report", "--quiet"]
    done = CliRunner().invoke(app, [*command, *options])
    assert done.exit_code == 0, done.stderr
    return done.stderr


def tables(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir() if path.is_file() and path.name != "manifest.json"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s.yaml").write_text(TINY)
    return tmp_path


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """The messages that the program logs."""
    log, messages, handler = logging.getLogger("gpufleet"), [], logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    log.addHandler(handler)
    yield messages
    log.removeHandler(handler)


def test_changed_config_json_gives_another_case(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(ROOFLINE)
    (tmp_path / "mine").mkdir()
    config = tmp_path / "mine" / "config.json"
    config.write_text(json.dumps(CONFIG))
    catalog = load_catalog()

    def name() -> str:
        scenario = load(tmp_path / "s.yaml", (), catalog=catalog)
        return digest(scenario, cases(scenario)[0], catalog)

    before, status = name(), config.stat()
    config.write_text(json.dumps(CONFIG | {"num_hidden_layers": 32}))
    os.utime(config, ns=(status.st_atime_ns, status.st_mtime_ns))  # as a copy with dates leaves it
    assert name() != before
    config.write_text(json.dumps(CONFIG))
    assert name() == before


@pytest.mark.parametrize("tenant", ["", "blue"])
def test_words_of_requests_are_stored_as_each_request_has_them(tmp_path: Path, tenant: str) -> None:
    result = ran(tmp_path, TINY, "horizon_s=1", "drain_limit_s=0")
    result.log.requests[1].replica = -1
    if tenant:
        result.log.requests[2].tenant = tenant
    table = requests_table(MeasuredRun(result))
    for name in ("service", "status"):
        texts = [getattr(one, name) for one in result.log.requests]
        assert table.column(name).chunk(0).equals(pa.array(texts).dictionary_encode()), name
    pool = result.plan.pools[0].name
    assert table.column("pool").to_pylist() == [pool if one.replica >= 0 else "" for one in result.log.requests]
    assert {*table.column("status").to_pylist()} == {"finished", "unfinished"}


def test_the_checkpoint_of_a_deployment_gives_the_same_case(folder: Path) -> None:
    name = "acme/chat-7b"
    stated = ([], [f"checkpoint={name}"], [f"fleets.0.checkpoint={name}"], [f"fleets.0.pools.0.checkpoint={name}"])
    read = [load(folder / "s.yaml", sets, catalog=load_catalog()) for sets in stated]
    assert len({digest(one, cases(one)[0], load_catalog()) for one in read}) == 1
    assert len({quantities(one, cases(one)[0]) for one in read}) == 1


@pytest.mark.slow
def test_data_files_count_by_content(folder: Path, tmp_path: Path) -> None:
    root = shutil.copytree(load_catalog().root, tmp_path / "data")
    scenario = load(folder / "s.yaml", (), catalog=load_catalog())

    def name() -> str:
        return digest(scenario, cases(scenario)[0], load_catalog(root))

    card, before = root / "gpus" / "rtx-4090.yaml", name()
    status, text = card.stat(), card.read_text()
    card.write_text(text.replace("1", "2", 1))
    os.utime(card, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert name() != before
    card.write_text(text)
    assert name() == before


def test_a_folder_that_was_moved_keeps_its_cases(folder: Path) -> None:
    rows = "arrival_s,prompt_tokens,output_tokens\n0,100,10\n"
    found = []
    for place in ("here", "there"):
        base = folder / place / "study"
        base.mkdir(parents=True)
        (base / "t.csv").write_text(rows)
        traced = TINY[: TINY.index("  arrivals")] + "  trace: {path: t.csv, format: csv}\n"
        (base / "s.yaml").write_text(traced + TINY[TINY.index("fleets:") :])
        scenario = load(base / "s.yaml", (), catalog=load_catalog())
        found.append(digest(scenario, cases(scenario)[0], load_catalog()))
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["truncated", "edited", "gone", "no checksums"])
def test_a_damaged_point_is_simulated_again(folder: Path, how: str, logged: list[str]) -> None:
    out = folder / "out"
    command = ["run", str(folder / "s.yaml"), "--out", str(out), "--no-report", "--quiet"]
    assert CliRunner().invoke(app, command).exit_code == 0
    sound = tables(out)
    (point,) = (out / "points").iterdir()
    whole = {path.name: path.read_bytes() for path in point.iterdir()}
    if how == "truncated":
        (point / "tables.arrow").write_bytes(whole["tables.arrow"][:100])
    elif how == "edited":
        (point / "case.json").write_bytes(whole["case.json"].replace(b'"status": "ok"', b'"status":"ok" '))
    else:
        (point / ("SHA256SUMS" if how == "no checksums" else "case.json")).unlink()
    assert CliRunner().invoke(app, command).exit_code == 0
    assert [f"{point} is damaged" in message for message in logged] == [True]
    assert {path.name: path.read_bytes() for path in point.iterdir()} == whole
    assert tables(out) == sound
    assert CliRunner().invoke(app, command).exit_code == 0
    assert len(logged) == 1


@pytest.mark.slow
def test_tables_in_a_file_each_are_read(folder: Path) -> None:
    command = ["run", str(folder / "s.yaml"), "--out", str(folder / "out"), "--no-report", "--quiet"]
    assert CliRunner().invoke(app, command).exit_code == 0
    (point,) = (folder / "out" / "points").iterdir()
    now = read_case(point)
    record = json.loads((point / "case.json").read_text())
    names = record.pop("tables")
    for name in names:
        pq.write_table(getattr(now, name)(), point / f"{name}.parquet", compression="zstd")
    (point / "case.json").write_text(json.dumps(record))
    (point / "tables.arrow").unlink()
    with (folder / "out" / "requests.csv").open() as file:
        assert len(file.readlines()) - 1 == read_case(point).requests().num_rows > 0
    assert read_case(point).usage().num_rows > 0


def test_a_case_file_that_may_not_be_read_is_not_damaged(tmp_path: Path, logged: list[str]) -> None:
    point, away = tmp_path / "points" / "a", tmp_path / "away.json"
    with atomic_folder(point) as building:
        (building / "case.json").write_text("{}")
    (point / "case.json").rename(away)
    assert load_case(point) is None
    assert "does not agree" in " ".join(logged)
    (point / "case.json").symlink_to(away)
    with confined(point.parent), pytest.raises(OutsideFolders):
        load_case(point)


def test_damaged_counterfactual_is_detected(tmp_path: Path) -> None:
    write_sealed(tmp_path / "h.json", [1.5, 0.1, 2e-7])
    assert read_sealed(tmp_path / "h.json") == [1.5, 0.1, 2e-7]
    (tmp_path / "h.json").write_text((tmp_path / "h.json").read_text().replace("1.5", "1.6"))
    with pytest.raises(DamagedFile, match="checksum"):
        read_sealed(tmp_path / "h.json")
    (tmp_path / "h.json").write_text("")
    with pytest.raises(DamagedFile, match="cannot be read"):
        read_sealed(tmp_path / "h.json")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python counts the threads of libraries
def test_one_process_owns_a_folder(folder: Path) -> None:
    out, (told, tell) = folder / "out", os.pipe()
    if not (owner := os.fork()):
        try:
            with owned(out):
                os.write(tell, b"mine")
                time.sleep(60)
        finally:
            os._exit(0)
    os.close(tell)
    try:
        assert os.read(told, 4) == b"mine"
        second = CliRunner().invoke(app, ["run", str(folder / "s.yaml"), "--out", str(out), "--no-report", "--quiet"])
        assert second.exit_code == 1
        assert second.stderr == (
            f"--out {out}: another gpufleet (process {owner}) writes there; wait for it, or name another folder\n"
        )
    finally:
        os.kill(owner, signal.SIGKILL)
        os.waitpid(owner, 0)
        os.close(told)
    assert (out / ".lock").exists()
    assert run(folder) == ""
    assert not (out / ".lock").exists()


def test_folder_lock_is_released_at_once(tmp_path: Path) -> None:
    for _ in range(3):
        with owned(tmp_path / "out"), pytest.raises(FolderBusy), owned(tmp_path / "out"):
            pass


def test_interrupted_replacement_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of its steps was the last."""

    class Killed(BaseException):
        pass

    def deliver(out: Path, last: int) -> None:
        with owned(out):
            (out / "points" / "old").mkdir(parents=True)
            (out / "points" / "new").mkdir()
            for name in ("manifest.json", "gone.csv", "kept.csv"):
                (out / name).write_text('{"program": "gpufleet", "status": "finished"}')
            steps = iter(range(last))

            def step(self: Path, *args: object, **more: object) -> object:
                if next(steps, None) is None:
                    raise Killed
                return replace(self, *args, **more)

            replace = Path.replace
            told = {"program": "gpufleet", "started_at": "2026-01-01T00:00:00+00:00"}
            with replaced_together(out, told, ["new"]) as folder:
                (folder / "kept.csv").write_text("new")
                (folder / "more.csv").write_text("new")
                monkeypatch.setattr(Path, "replace", step)

    for last in range(6):
        out = tmp_path / str(last)
        try:
            deliver(out, last)
        except Killed:
            monkeypatch.undo()
        monkeypatch.undo()
        with owned(out):
            pass
        found = {path.name: path.read_text() for path in out.iterdir() if path.is_file()}
        if last < 2:  # the manifest itself, and the answer as a whole: before that the earlier one stands
            assert found.keys() == {"manifest.json", "gone.csv", "kept.csv"}
        else:
            assert found.keys() == {"manifest.json", "kept.csv", "more.csv"}
            assert found["kept.csv"] == found["more.csv"] == "new"
            assert [path.name for path in (out / "points").iterdir()] == ["new"]
        assert json.loads(found["manifest.json"])["status"] == "finished"
        assert not list(out.glob(".*"))


@pytest.mark.slow
def test_nothing_is_taken_for_finished_while_it_is_written(folder: Path) -> None:
    over, found = threading.Event(), []

    def look() -> None:
        last = False
        while not last:
            last = over.is_set()
            found.extend(load_case(point) is not None for point in (folder / "out").glob("points/[!.]*"))
            time.sleep(0.002)

    looker = threading.Thread(target=look)
    looker.start()
    try:
        run(folder, "--set", "sweep={workload.arrivals.rate_rps: [1, 2, 3, 4, 5]}")
    finally:
        over.set()
        looker.join()
    assert found
    assert all(found)


TWICE = f"{TINY}replications: 2\n"
TRACED = """\
name: traced
model: llama3.1-8b
workload: {trace: {path: t.csv, format: csv}}
fleets:
  - name: a
    pools: [{gpu: rtx-4090, server: workstation-1x4090}]
    cost: {acquisition: buy, quotes: {rtx-4090: 2000, workstation-1x4090: 1300}}
site: {electricity_usd_per_kwh: 0.2, pue: 1.4}
finance: {method: annuity, discount_rate: 0.08, life_years: 4}
"""


def tables_of(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir() if path.suffix == ".csv"}


def by_replication(out: Path) -> list[Path]:
    points = list((out / "points").iterdir())
    return sorted(points, key=lambda point: '"replication": 1' in (point / "case.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("how", ["copied", "swapped", "linked", "linked to nothing"])
def test_a_point_that_is_another_one_is_simulated_again(tmp_path: Path, how: str, logged: list[str]) -> None:
    (tmp_path / "s.yaml").write_text(TWICE)
    out = tmp_path / "out"
    command = ["run", str(tmp_path / "s.yaml"), "--out", str(out), "--no-report", "--quiet", "--workers", "1"]
    assert CliRunner().invoke(app, command).exit_code == 0
    sound, (first, second) = tables_of(out), by_replication(out)
    aside = shutil.move(second, tmp_path / "aside")
    if how == "copied":
        shutil.copytree(first, second)
    elif how == "swapped":
        shutil.move(first, second)
        shutil.move(aside, first)
    else:
        second.symlink_to(first if how == "linked" else tmp_path / "nowhere")
    assert CliRunner().invoke(app, command).exit_code == 0
    strange = {"copied": 1, "swapped": 2, "linked": 1, "linked to nothing": 0}[how]
    assert ["holds another point" in message for message in logged] == [True] * strange
    assert tables_of(out) == sound
    assert CliRunner().invoke(app, command).exit_code == 0
    assert len(logged) == strange


@pytest.mark.slow
def test_search_counts_each_point_once(tmp_path: Path, logged: list[str]) -> None:
    text = (
        TWICE.replace("horizon_s: 20", "horizon_s: 5")
        .replace("max_num_seqs: 256", "max_num_seqs: 2")
        .replace("base_s: 0.005", "base_s: 0.05")
    )
    (tmp_path / "s.yaml").write_text(text)
    out = tmp_path / "out"
    command = [
        "capacity",
        str(tmp_path / "s.yaml"),
        "--out",
        str(out),
        "--quiet",
        "--relative",
        "0.3",
        "--workers",
        "1",
    ]
    assert CliRunner().invoke(app, command).exit_code == 0
    sound, (first, *_, last) = tables_of(out), by_replication(out)
    shutil.rmtree(last)
    shutil.copytree(first, last)
    assert CliRunner().invoke(app, command).exit_code == 0
    assert ["holds another point" in message for message in logged] == [True]
    assert tables_of(out) == sound


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    (folder / "s.yaml").write_text(TRACED)
    (folder / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,100,10\n1,200,20\n")
    command = ["run", str(folder / "s.yaml"), "--out", str(folder / "out"), "--no-report", "--quiet"]
    assert CliRunner().invoke(app, command).exit_code == 0
    return folder


@pytest.mark.slow
def test_edited_scenario_cannot_be_repriced(finished: Path) -> None:
    kept = finished / "out/scenario.yaml"
    text = kept.read_text()
    other = finished / "priced"
    for more in ("seed: 3\n", "slo: {ttft_s: 0.001}\n"):
        kept.write_text(text + more)
        told = CliRunner().invoke(app, ["price", str(finished / "out"), "--out", str(other)])
        assert told.exit_code == 2
        assert told.stderr.startswith(f"{kept}: differs from what was simulated in more than site, finance")
        assert not other.exists()
    kept.write_text(text.replace("pue: 1.4", "pue: 1.2"))  # is one
    assert CliRunner().invoke(app, ["price", str(finished / "out"), "--out", str(other), "--no-report"]).exit_code == 0
    kept.write_text(text)
    with (other / "summary.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert float(row["facility_power_w_mean"]) == pytest.approx(1.2 * float(row["it_power_w_mean"]))
    again = CliRunner().invoke(app, ["price", str(other), "--set", "site.pue=1.4", "--no-report"])
    assert again.exit_code == 0, "what was billed anew can be billed once more"


CHANGED = "has changed since this run was simulated: run its scenario again"


@pytest.mark.slow
def test_changed_trace_is_reported(finished: Path) -> None:
    trace = finished / "t.csv"
    text = trace.read_text()
    trace.write_text(text + "2,300,30\n")
    told = CliRunner().invoke(app, ["price", str(finished / "out"), "--set", "site.pue=1.1"])
    trace.write_text(text)
    assert told.exit_code == 2
    name = f"{finished.name}/t.csv"
    assert told.stderr == f"{finished}/out: the file {name} {CHANGED}\n"


@pytest.mark.slow
def test_changed_catalogue_is_reported_where_simulations_read_it(finished: Path, tmp_path: Path) -> None:
    root = shutil.copytree(load_catalog().root, tmp_path / "data")
    card = root / "gpus/rtx-4090.yaml"
    card.write_text(card.read_text().replace("450", "451", 1))
    with pytest.raises(ScenarioErrors) as caught:
        load_repriced(finished / "out", (), load_catalog(root))
    assert str(caught.value).endswith(f"out: the catalogue (gpus) {CHANGED}")
    shutil.copy(load_catalog().root / "gpus/rtx-4090.yaml", card)
    for file in (*(root / "prices").glob("*.yaml"), root / "fidelity/intervals.yaml"):
        file.write_text(file.read_text() + "\n# of another day\n")
    assert load_repriced(finished / "out", (), load_catalog(root)).name == "traced"
