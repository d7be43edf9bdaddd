"""Copies of this process return values and errors, end with it, and are replaced by this process if killed."""

import os
import signal
import sys
from functools import partial
from pathlib import Path

import pytest

from sim.catalogue.catalog import load_catalog
from sim.scenario.schema import Scenario
from sim.study.execution import cores, forked
from sim.study.execution.cases import Call
from sim.study.execution.cores import ProcessPool
from sim.study.execution.forked import ForkedProcess, assisted, beside, finish_beside, stop_beside

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="copies are used on Linux")]


@pytest.fixture(autouse=True)
def forks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cores, forked):
        monkeypatch.setattr(module, "may_fork", lambda: True)


def write_pid(path: Path) -> None:
    path.write_text(str(os.getpid()))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_values_and_errors_come_back_in_order() -> None:
    process = ForkedProcess()
    calls = [
        process.submit(call) for call in (partial(divmod, 7, 2), partial(divmod, 7, 0), partial(open, 0), os.getpid)
    ]
    assert calls[0].result() == (3, 1)
    with pytest.raises(ZeroDivisionError) as raised:
        calls[1].result()
    assert "ZeroDivisionError" in raised.value.__notes__[0]
    with pytest.raises(TypeError, match="pickle"):
        calls[2].result()
    pid = calls[3].result()
    assert pid != os.getpid()
    process.shutdown()
    process.shutdown()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_killed_process_breaks_its_calls() -> None:
    process = ForkedProcess()
    calls = [process.submit(die), process.submit(os.getpid)]
    for call in calls:
        with pytest.raises(cores.BrokenProcessPool):
            call.result()
    process.shutdown(kill_workers=True)


def test_work_beside_is_done_by_a_copy_until_finished(tmp_path: Path) -> None:
    with assisted(os.getpid):
        beside(partial(write_pid, tmp_path / "pid"))
        finish_beside()
        assert int((tmp_path / "pid").read_text()) != os.getpid()
        beside(partial(os.remove, tmp_path / "missing"))
        with pytest.raises(FileNotFoundError):
            finish_beside()
    beside(partial(write_pid, tmp_path / "pid"))
    assert int((tmp_path / "pid").read_text()) == os.getpid()


def test_work_of_a_killed_copy_is_done_here(tmp_path: Path) -> None:
    with assisted(die):
        beside(partial(write_pid, tmp_path / "pid"))
        finish_beside()
    assert int((tmp_path / "pid").read_text()) == os.getpid()


def files_open() -> list[str]:
    links = [link for link in Path("/proc/self/fd").iterdir() if int(link.name) > 2]
    return [str(link.readlink()) for link in links if link.is_symlink()]  # the list itself is closed again


def test_copy_holds_no_file_of_the_first_process_but_its_pipe(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w"):
        process = ForkedProcess()
        held = process.submit(files_open).result()
        assert len(held) == 1
        assert held[0].startswith("socket:")
        process.shutdown()


def test_large_call_is_sent_while_a_large_value_waits() -> None:
    process = ForkedProcess()
    calls = [process.submit(partial(bytes, 1 << 20)), process.submit(partial(len, bytes(1 << 20)))]
    assert [len(calls[0].result()), calls[1].result()] == [1 << 20, 1 << 20]
    process.shutdown()


def stream_files() -> set[int]:
    return {number for number in range(3) if os.fstat(number)}


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_copy_starts_with_closed_streams(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, name, None)
    monkeypatch.setattr(sys, f"__{name}__", None)
    process = ForkedProcess()
    assert process.submit(stream_files).result() == {0, 1, 2}
    process.shutdown()


class Full:
    """Stream that fails to write."""

    def flush(self) -> None:
        raise BrokenPipeError


def break_stdout() -> None:
    sys.stdout = Full()  # type: ignore[assignment]


def test_copy_with_a_broken_stream_ends_without_what_the_first_process_does_at_its_end() -> None:
    first = os.getpid()
    try:
        process = ForkedProcess()
        process.submit(break_stdout).result()
        process.shutdown()
    finally:
        assert os.getpid() == first


def test_process_that_the_system_reaps_is_shut_down() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        process = ForkedProcess()
        with pytest.raises(cores.BrokenProcessPool):
            process.submit(die).result()
        process.shutdown(kill_workers=True)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_no_copy_is_started_where_the_system_has_no_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fork() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    with ProcessPool(3, fork=True) as place, assisted(os.getpid):
        assert not place._copies
        beside(partial(write_pid, tmp_path / "pid"))
    assert int((tmp_path / "pid").read_text()) == os.getpid()


def test_copy_writes_nothing_after_it_was_stopped(tmp_path: Path) -> None:
    with assisted(os.getpid):
        stop_beside()
        beside(partial(write_pid, tmp_path / "pid"))
        assert int((tmp_path / "pid").read_text()) == os.getpid()


def write_pid_in(first: int, path: Path) -> None:
    if os.getpid() != first:
        raise MemoryError
    write_pid(path)


def test_work_that_fails_in_a_copy_is_done_here(tmp_path: Path) -> None:
    with assisted(partial(divmod, 7, 0)):
        beside(partial(write_pid_in, os.getpid(), tmp_path / "pid"))
        finish_beside()
    assert int((tmp_path / "pid").read_text()) == os.getpid()


def number_of(scenario: Scenario, catalog: object, number: int) -> int:
    return number


def test_copies_share_the_tasks_of_a_pool() -> None:
    call = Call(number_of, Scenario.model_construct(name="s"), load_catalog())
    with ProcessPool(3, fork=True) as place:
        assert dict(place.map(call, [(one,) for one in range(40)])) == {one: one for one in range(40)}
        assert len(place._helpers) == 2
