"""A worker that is killed, at its start too, leaves no run waiting; its task is done by another, or is an error."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from sim.catalogue.catalog import Catalog, load_catalog
from sim.scenario.schema import Scenario
from sim.study.execution import cores
from sim.study.execution.cases import Call, WorkerLost
from sim.study.execution.cores import ProcessPool

pytestmark = pytest.mark.slow

SCENARIO, CATALOG = Scenario.model_construct(name="s"), load_catalog()


def workers() -> set[int]:
    """Processes that simulate for this one."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"loky.backend.popen_loky" in (process / "cmdline").read_bytes():
                found.add(int(process.name))
        except OSError:
            continue
    return found


KILLED: set[int] = set()
"""Workers that a test has killed; empty in them."""


def wait_for_killed(scenario: Scenario, catalog: Catalog, main: int, _: int) -> int:
    """Return the number of this process; the first one waits until a worker was killed."""
    last = time.monotonic() + 60  # a busy machine starts processes late
    while os.getpid() == main and not KILLED and time.monotonic() < last:
        time.sleep(0.02)
    return os.getpid()


def deadly(scenario: Scenario, catalog: Catalog, main: int, marks: str, times: int) -> str:
    """Kill the process, up to *times* times; never the process *main*, which waits for the others."""
    folder = Path(marks)
    if os.getpid() == main:
        last = time.monotonic() + 60  # a busy machine starts processes late
        while len(list(folder.iterdir())) < times and time.monotonic() < last:
            time.sleep(0.05)
    elif (left := len(list(folder.iterdir()))) < times:
        (folder / str(left)).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def test_workers_killed_at_their_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "ALONE_S", 0.0)
    over = threading.Event()
    KILLED.clear()

    def kill() -> None:
        while not over.is_set():
            for one in workers() - KILLED:
                KILLED.add(one)
                os.kill(one, signal.SIGKILL)
            time.sleep(0.001)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with ProcessPool(2) as place:
            found = dict(place.map(Call(wait_for_killed, SCENARIO, CATALOG), [(os.getpid(), i) for i in range(20)]))
    finally:
        over.set()
        killer.join()
    assert KILLED
    assert found.keys() == set(range(20))


@pytest.mark.parametrize(("deaths", "fine"), [(1, True), (2, False)])
def test_task_is_retried_up_to_the_limit_of_killed_workers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, deaths: int, fine: bool
) -> None:
    """A task may kill as many processes as the limit allows: two here, the first a copy, as others start slowly."""
    assert cores.DEATHS == 3
    monkeypatch.setattr(cores, "may_fork", lambda: True)
    monkeypatch.setattr(cores, "DEATHS", 2)
    monkeypatch.setattr(cores, "ALONE_S", 0.0)
    items = [(os.getpid(), str(tmp_path), deaths)] * (4 if fine else 6)
    with ProcessPool(2, fork=True) as place:
        results = place.map(Call(deadly, SCENARIO, CATALOG), items)
        if fine:
            assert [value for _, value in results] == ["done"] * len(items)
        else:
            with pytest.raises(WorkerLost, match="2 processes were killed while they simulated it"):
                list(results)


def test_threads_take_turns_more_often_while_processes_share_work() -> None:
    usual_s = sys.getswitchinterval()
    with ProcessPool(1) as place, place.lend(lambda run_there: None):
        assert sys.getswitchinterval() < usual_s
    assert sys.getswitchinterval() == usual_s
