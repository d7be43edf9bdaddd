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
from sim.study.execution.forked import ForkedProcess, assisted, beside, finish_beside

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="forks are for Linux")]


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


def number_of(scenario: Scenario, catalog: object, number: int) -> int:
    return number


def test_copies_share_the_tasks_of_a_pool() -> None:
    call = Call(number_of, Scenario.model_construct(name="s"), load_catalog())
    with ProcessPool(3, fork=True) as place:
        assert dict(place.map(call, [(one,) for one in range(40)])) == {one: one for one in range(40)}
        assert len(place._helpers) == 2
