"""Files that a confined program reads, and those that it does not; JSON documents and JSON Lines."""

import atexit
import errno
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from small_scenario import SMALL

from sim import infile
from sim.catalogue.catalog import load_catalog
from sim.catalogue.data_folder import data_root
from sim.infile import (
    KeptResults,
    OutsideFolders,
    confined,
    confined_also,
    json_objects,
    keep_beside_bytecode,
    kept_beside_bytecode,
    opened,
    why_outside,
    write_below,
)
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load

SECRET = "secret"


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    """Return a folder with links that lead out of it, beside a private file."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text(SECRET)
    found = tmp_path / "inside"
    (found / "sub").mkdir(parents=True)
    (found / "file").write_text("own")
    (found / ".hidden").write_text(SECRET)
    (found / "link").symlink_to(tmp_path / "outside" / "file")
    (found / "folder").symlink_to(tmp_path / "outside")
    (found / "back").symlink_to(found / "file")
    return found


def text_of(path: Path) -> bytes:
    with opened(path) as file:
        text: bytes = file.read()
    return text


@pytest.mark.parametrize(
    "name",
    ["link", "folder/file", "back", ".hidden", "../outside/file", "sub/../../outside/file", "/etc/passwd", "../none"],
)
def test_a_confined_program_reads_nothing_elsewhere(inside: Path, name: str) -> None:
    with confined(inside):
        assert text_of(inside / "sub" / ".." / "file") == b"own"
        assert why_outside(inside / name)
        with pytest.raises(OutsideFolders, match="outside the workspace") as found:
            opened(inside / name)
        assert SECRET not in str(found.value)
    if name != "../none":  # the command line reads any file
        assert text_of(inside / name)


def test_a_file_that_becomes_a_link_after_its_check_is_not_read(inside: Path) -> None:
    with confined(inside):
        for name, swapped in (("file", "file"), ("sub/file", "sub")):
            (inside / "sub").mkdir(exist_ok=True)
            (inside / name).write_text("own")
            assert why_outside(inside / name) == ""
            (inside / swapped).rename(inside / f"was-{swapped}")
            (inside / swapped).symlink_to(inside.parent / "outside" / ("file" if swapped == "file" else ""))
            with pytest.raises(OutsideFolders):
                opened(inside / name)


def test_pipes_make_no_reader_wait(inside: Path) -> None:
    os.mkfifo(inside / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        opened(inside / "pipe")
    with confined(inside), pytest.raises(OSError, match="not a regular file"):
        opened(inside / "pipe")


def test_a_folder_within_a_root_may_be_a_root_of_its_own(inside: Path) -> None:
    (inside / ".own").mkdir()
    (inside / ".own" / "file").write_text("own")
    with confined(inside):
        with confined_also(inside / ".own"):
            assert text_of(inside / ".own" / "file") == b"own"
        with pytest.raises(OutsideFolders):
            opened(inside / ".own" / "file")


def test_nothing_is_written_through_a_link(inside: Path) -> None:
    write_below(inside, inside / "new" / "file", "text")
    assert (inside / "new" / "file").read_text() == "text"
    for name in ("folder/new", "folder/more/new", "../outside/new", ".hidden"):
        with pytest.raises(OutsideFolders):
            write_below(inside, inside / name, "text")
    write_below(inside, inside / "link", "text")  # the link is replaced, not followed
    assert not (inside / "link").is_symlink()
    assert [path.name for path in (inside.parent / "outside").iterdir()] == ["file"]
    assert (inside.parent / "outside" / "file").read_text() == SECRET


TRACE = "workload: {trace: {path: @, format: csv}}\n"


@pytest.mark.parametrize("file", ["../outside/file", "link", "folder/file", ".hidden"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("replications: 2\n", "base: @\n"),
        ("replications: 2\n", "calibration: @\n"),
        ("    pools:", "    calibration: @\n    pools:"),
        ("replicas: 1,", "replicas: 1, calibration: @,"),
        ("llama3.1-8b", "@.json"),
        ("replications: 2\n", "sweep: {model: [llama3.1-8b, @.json]}\n"),
        ("replications: 2\n", "sweep: [{calibration: @}]\n"),
        (SMALL[SMALL.index("workload") : SMALL.index("horizon_s")], TRACE),
        ("replications: 2\n", "sweep: {workload.trace.path: [@]}\n"),
    ],
)
def test_the_loader_itself_refuses_every_file_elsewhere(inside: Path, old: str, new: str, file: str) -> None:
    for name in ("outside/file", "inside/link", "inside/.hidden"):
        (inside.parent / f"{name}.json").symlink_to(inside.parent / "outside" / "file")
    (inside / "small.yaml").write_text(SMALL.replace(old, new.replace("@", file)))
    with confined(inside, data_root()), pytest.raises(ScenarioErrors) as found:
        load(inside / "small.yaml", catalog=load_catalog())
    (error,) = found.value.errors
    assert ("outside the workspace" in error.message, error.line > 0) == (True, True)
    assert SECRET not in str(found.value)


@pytest.mark.parametrize("inside", ["\u2028", "\u2029", "\x85"])
def test_json_lines_end_at_line_feeds_alone(inside: str) -> None:
    objects = [{"text": f"one{inside}two"}, {"text": "three"}]
    lines = "\r\n".join(json.dumps(one, ensure_ascii=False) for one in objects)
    assert json_objects(f"{lines}\n\n") == objects
    with pytest.raises(json.JSONDecodeError) as found:
        json_objects(f"{lines}\n{{oops")
    assert (found.value.lineno, found.value.colno) == (3, 2)


@pytest.mark.parametrize("line", ["[" * 100_000, "1" * 5000], ids=["nested", "long"])
def test_json_that_python_refuses_to_decode_is_an_error_of_its_line(line: str) -> None:
    assert json_objects(" \n") == []
    with pytest.raises(json.JSONDecodeError) as found:
        json_objects(f"{{}}\n{line}")
    assert found.value.lineno == 2


@pytest.mark.parametrize("failing", [("write_bytes", "unlink"), ("replace",)], ids=["read-only disk", "read-only file"])
def test_files_beside_bytecode_are_kept_where_possible(
    failing: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    with monkeypatch.context() as disk:
        for name in failing:
            disk.setattr(Path, name, refuse)
        keep_beside_bytecode(tmp_path / "some.methods", b"new")
    assert not list(tmp_path.iterdir())
    keep_beside_bytecode(tmp_path / "some.methods", b"new")
    assert [kept_beside_bytecode(path) for path in tmp_path.iterdir()] == [b"new"]


def test_a_file_of_kept_results_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_exit, computed = list[Callable[[], None]](), list[str]()
    monkeypatch.setattr(atexit, "register", at_exit.append)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(infile, "MOST_KEPT", 2)

    def compute(text: str) -> list[str]:
        computed.append(text)
        return [text]

    # the file then holds ab, c alone, c, ca; other code computes anew
    for texts, maker, expected in (
        ("aba", b"", "ab"),
        ("ac", b"", "c"),
        ("c", b"", ""),
        ("ac", b"", "a"),
        ("c", b"new", "c"),
    ):
        computed.clear()
        kept = KeptResults(tmp_path / "some.results", maker)
        assert [kept.result(text, compute) for text in texts] == [[text] for text in texts]
        at_exit.pop()()
        assert computed == list(expected)
