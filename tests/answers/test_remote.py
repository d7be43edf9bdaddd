"""Results folders on shared storage: readers find a whole answer or an unfinished one, and no failure loses results."""

import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_scenario import TINY
from typer.testing import CliRunner, Result

from sim.answers.folder import MANIFEST, FolderBusy, FolderRefused, FolderUnreachable, owned
from sim.answers.remote import RemoteFolder, _is_ours, fetched, located
from sim.cli import app

fsspec = pytest.importorskip("fsspec")
ADDRESS = "memory://bucket/run"
STORE = fsspec.filesystem("memory")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    STORE.store.clear()


def stored() -> dict[str, str]:
    return {name.removeprefix("/bucket/run/"): STORE.cat_file(name).decode() for name in STORE.find("/bucket/run")}


def status() -> str:
    return str(json.loads(stored()[MANIFEST])["status"])


def write(tables: dict[str, str], cases: tuple[str, ...] = ("one",), started: str = "now") -> RemoteFolder:
    """Write an answer with *tables* and *cases* to ADDRESS, as a command does; return its folder."""
    remote = RemoteFolder(ADDRESS)
    with owned(remote.folder), remote.copied():
        for case in cases:
            (remote.folder / "points" / case).mkdir(parents=True, exist_ok=True)
            (remote.folder / "points" / case / "case.json").write_text(case)
        entries = {"program": "gpufleet", "status": "finished", "started_at": started}
        for name, text in (tables | {MANIFEST: json.dumps(entries)}).items():
            (remote.folder / name).write_text(text)
    return remote


def test_answer_is_uploaded_whole_and_the_manifest_last(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    for method in ("put_file", "pipe_file"):
        plain = getattr(STORE, method)

        def noting(first: Any, second: Any, *rest: Any, plain: Any = plain, name: str = method, **more: Any) -> Any:
            path = str(second if name == "put_file" else first).removeprefix("/bucket/run/")
            assert "table.csv" not in path or status() == "unfinished"
            order.append(path)
            return plain(first, second, *rest, **more)

        monkeypatch.setattr(STORE, method, noting)
    write({"table.csv": "1"})
    assert order == [".gpufleet-check", "points/one/case.json", MANIFEST, "table.csv", MANIFEST]
    assert stored().keys() == {"points/one/case.json", "table.csv", MANIFEST}
    assert status() == "finished"


def test_another_machine_continues_from_the_uploaded_answer() -> None:
    folder = write({"table.csv": "1", "paired.csv": "2"}).folder
    shutil.rmtree(folder)
    folder.mkdir()
    with RemoteFolder(ADDRESS).copied():
        assert (folder / "points/one/case.json").read_text() == "one"
        assert (folder / "paired.csv").read_text() == "2"
        (folder / "paired.csv").unlink()
        (folder / "points/two").mkdir()
        (folder / "points/two/case.json").write_text("two")
    assert stored().keys() == {"points/one/case.json", "points/two/case.json", "table.csv", MANIFEST}


def test_download_keeps_cases_and_drops_tables_of_the_earlier_answer() -> None:
    folder = write({"table.csv": "1"}).folder
    shutil.move(folder, "elsewhere")
    write({"table.csv": "2"}, ("two",), "later")
    shutil.rmtree(folder)
    shutil.move("elsewhere", folder)
    (folder / "stale.csv").write_text("")
    assert fetched(ADDRESS) == fetched(Path(ADDRESS)) == folder
    assert (folder / "table.csv").read_text() == "2"
    assert not (folder / "stale.csv").exists()
    assert sorted(path.name for path in (folder / "points").iterdir()) == ["one", "two"]


def test_lost_connection_keeps_the_results_and_the_same_command_uploads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    write({"table.csv": "1"})
    plain = STORE.put_file

    def lost(here: str, there: str, *rest: Any, **more: Any) -> None:
        if there.endswith(".csv"):
            raise OSError("connection lost")
        plain(here, there, *rest, **more)

    with monkeypatch.context() as patched:
        patched.setattr(STORE, "put_file", lost)
        with pytest.raises(FolderUnreachable, match=r"lost; results are in outputs/\S+; the same command uploads"):
            write({"table.csv": "2"}, ("one", "two"), "later")
    assert status() == "unfinished"
    with pytest.raises(FolderRefused, match="is not a finished run"):
        fetched(ADDRESS)
    assert (located(ADDRESS)[0] / "table.csv").read_text() == "2"
    write({"table.csv": "2"}, ("one", "two"), "later")
    assert (status(), stored()["table.csv"]) == ("finished", "2")


def test_file_written_in_the_tick_of_the_download_is_uploaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file has the time of the system's last tick, here 10 ms before that of the clock."""
    write({"table.csv": "1"})
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + 0.01)
    write({"table.csv": "2"}, started="later")
    assert stored()["table.csv"] == "2"


def test_answer_of_another_machine_is_not_replaced_unseen() -> None:
    remote = RemoteFolder(ADDRESS)
    command = remote.copied()
    command.__enter__()
    STORE.pipe_file(f"/bucket/run/{MANIFEST}", b"{}")
    with pytest.raises(FolderBusy, match="another gpufleet has written there meanwhile"):
        command.__exit__(None, None, None)
    assert stored() == {MANIFEST: "{}"}


@pytest.mark.parametrize("name", ["notes.txt", MANIFEST])
def test_other_files_are_refused_before_anything_is_written(name: str) -> None:
    STORE.pipe_file(f"/bucket/run/{name}", b"[]")
    with pytest.raises(FolderRefused, match="holds files that are not a gpufleet run"):
        write({})
    assert stored() == {name: "[]"}


@pytest.mark.parametrize("name", ["points/../../up", "/etc/passwd", "points//x", ".ssh/keys", "points/.x", "a\\..\\b"])
def test_names_that_lead_elsewhere_are_no_part_of_an_answer(name: str) -> None:
    assert not _is_ours(name)
    assert _is_ours("points/0a/case.json")


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("s3://bucket", "a folder is needed"),
        ("memory://", "a folder is needed"),
        ("simplecache::s3://bucket/run", ""),
        ("s3://key:secret@bucket/run", "^s3://bucket/run: an address holds no user or key"),
        ("s33://bucket/run", "no storage is called s33; did you mean s3"),
    ],
)
def test_address_names_a_folder_of_a_known_storage(address: str, told: str) -> None:
    if not told:
        assert located(address) == (Path(address), None)
        return
    with pytest.raises(FolderRefused, match=told):
        located(address)


def test_file_address_is_the_folder_itself(tmp_path: Path) -> None:
    assert located(f"file://{tmp_path}/out") == located(Path(f"file://{tmp_path}/out")) == (tmp_path / "out", None)


def gpufleet(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


@pytest.mark.slow
def test_commands_write_and_read_addresses() -> None:
    Path("tiny.yaml").write_text(TINY)
    done = gpufleet("run", "tiny.yaml", "--no-report", "--out", ADDRESS)
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, f"copied to {ADDRESS}"), done.stderr
    assert gpufleet("diff", ADDRESS, str(located(ADDRESS)[0])).exit_code == 0
    assert gpufleet("price", "memory://bucket/none").exit_code == 2
    assert gpufleet("price", "--all-runs", "memory://bucket").exit_code == 2
    refused = gpufleet("export", ADDRESS, "--out", "memory://bucket/run.xlsx")
    assert (refused.exit_code, "a file on this machine is needed" in refused.stderr) == (2, True)


@pytest.mark.slow
def test_missing_extra_is_named_and_nothing_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Path("tiny.yaml").write_text(TINY)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    done = gpufleet("run", "tiny.yaml", "--out", "s3://bucket/run")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "s3://bucket/run needs fsspec and s3fs: pip install 'gpufleet[cloud]'\n"
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]
