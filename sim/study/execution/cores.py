"""Jobs on this machine: this process simulates, too, and after a moment so do others."""

import logging
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

from sim.study.execution.cases import Call, CaseJob, WorkerLost

LOG = logging.getLogger("gpufleet")
ALONE_S = 0.5
"""Work goes on for so long before other processes are started: a short run ends sooner without them."""
KEPT_S = 60
"""How long a process without work is kept."""
DEATHS = 3
"""Processes that may be killed at one task, or one after the other at their start."""


@dataclass(slots=True)
class _Task:
    token: Any
    """What the result is asked for by."""
    call: Callable[[], Any]
    deaths: int = 0
    """Processes that were killed while they did it."""


class ProcessPool:
    """A number of processes, of which this one is the first.

    The others start beside the work and take tasks from the same queue, so that nobody waits for anybody's start. They
    end with the context, or when anything fails. The task of a process that was killed is handed out again; one that
    has cost `DEATHS` processes raises WorkerLost.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._changed = threading.Condition()
        """Guards all that follows; waiting for it is waiting for a task, a result or the end."""
        self._waiting: deque[_Task] = deque()
        self._done: deque[tuple[Any, Any, BaseException | None]] = deque()
        self._helpers: list[_Helper] = []
        self._alarm: threading.Timer | None = None
        self._stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(at_once=error is not None)

    def submit(self, job: CaseJob) -> None:
        """One more job to do."""
        self._put(_Task(job, job.run))

    def finished(self) -> CaseJob:
        """One of the submitted jobs, stored; done here if none has come back and any is left."""
        job: CaseJob = self._next()[0]
        return job

    def map(self, call: Call, items: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """(place, value) of *call* for each of *items*, in any order."""
        for place, item in enumerate(items):
            self._put(_Task(place, partial(call, *item)))
        for _ in items:
            yield self._next()

    def stop(self, at_once: bool = True) -> None:
        """Ends the other processes; *at_once* whatever they are doing."""
        if self._alarm is not None:
            self._alarm.cancel()
        with self._changed:
            self._stopped = True
            self._waiting.clear()
            self._changed.notify_all()
            helpers, self._helpers = self._helpers, []
        for helper in helpers:
            helper.stop(at_once)

    def _put(self, task: _Task) -> None:
        with self._changed:
            self._waiting.append(task)
            self._changed.notify()

    def _next(self) -> tuple[Any, Any]:
        try:
            return self._result()
        except BaseException:
            self.stop()
            raise

    def _result(self) -> tuple[Any, Any]:
        if self._workers > 1 and self._alarm is None:
            self._alarm = threading.Timer(ALONE_S, self._call_help)
            self._alarm.daemon = True
            self._alarm.start()
        with self._changed:
            while not self._done and (task := self._mine()) is None:
                self._changed.wait()
            if self._done:
                token, value, error = self._done.popleft()
                if error is not None:
                    raise error
                return token, value
        assert task is not None  # the loop has seen to it
        return task.token, task.call()

    def _mine(self) -> _Task | None:
        """The next task for this process; what has killed another is for the others, while there are any."""
        task = next((task for task in self._waiting if not (task.deaths and self._helpers)), None)
        if task is not None:
            self._waiting.remove(task)
        return task

    def _call_help(self) -> None:
        with self._changed:
            if self._stopped:
                return
            if not self._waiting:
                self._alarm = None
                return
            self._helpers = [_Helper(self) for _ in range(self._workers - 1)]
            for helper in self._helpers:
                helper.start()

    def take(self) -> _Task | None:
        """The next task for a helper, which waits for it; None at the end."""
        with self._changed:
            while not self._stopped:
                if self._waiting:
                    return self._waiting.popleft()
                self._changed.wait()
        return None

    def bring(self, task: _Task, value: Any, error: BaseException | None) -> None:
        """What a helper has made of *task*. One whose process was killed is handed out again."""
        with self._changed:
            if isinstance(error, BrokenProcessPool):
                task.deaths += 1
                if task.deaths < DEATHS:
                    self._waiting.appendleft(task)
                    self._changed.notify_all()
                    return
                error = WorkerLost(task.token, DEATHS)
            self._done.append((task.token, value, error))
            self._changed.notify_all()

    def give_up(self, helper: "_Helper") -> None:
        """Goes on without *helper*, whose processes are killed before they have done anything."""
        with self._changed:
            if helper in self._helpers:
                LOG.warning("%s processes in a row were killed at their start; the work goes on with one less", DEATHS)
                self._helpers.remove(helper)
                self._changed.notify_all()

    @property
    def stopped(self) -> bool:
        """True if nothing is to be done any more."""
        return self._stopped


class _Helper(threading.Thread):
    """Has tasks of *cores* done by a process of its own, and by another one when that was killed."""

    def __init__(self, cores: ProcessPool) -> None:
        super().__init__(daemon=True)
        self._cores = cores
        self._process = _process()

    def run(self) -> None:
        """Until the work is done."""
        starts = 0
        while not self._cores.stopped and starts < DEATHS:
            starts += 1
            if self._did(_Task(None, _here))[1] is None:  # by then it has imported what it needs
                starts = 0
                self._work()
            self._process.shutdown(wait=True, kill_workers=True)
            if not self._cores.stopped:
                self._process = _process()
        self._cores.give_up(self)

    def _work(self) -> None:
        """Task by task, until the process is killed or nothing is left."""
        while (task := self._cores.take()) is not None:
            value, error = self._did(task)
            if self._cores.stopped:
                return
            self._cores.bring(task, value, error)
            if isinstance(error, BrokenProcessPool):
                return

    def _did(self, task: _Task) -> tuple[Any, BaseException | None]:
        try:
            return self._process.submit(task.call).result(), None
        except BaseException as error:  # of the task, or of the process
            return None, error

    def stop(self, at_once: bool) -> None:
        """Ends the process; *at_once* whatever it is doing."""
        self._process.shutdown(wait=True, kill_workers=at_once)
        self.join()


def _process() -> Any:
    """Return an executor of one process, which starts with the first task.

    It is joblib's: a process of concurrent.futures runs the user's script once more, which a script without a guard
    and a notebook do not survive, and it cannot take a policy that a notebook defines. It has one process, since a
    process that is killed breaks its whole executor and does not say at which task.
    """
    from joblib.externals.loky import ProcessPoolExecutor  # slow to import; a short run needs no other process

    return ProcessPoolExecutor(1, timeout=KEPT_S, initializer=_ignore_interrupt)


def _here() -> None:
    """The first thing that another process does."""


def _ignore_interrupt() -> None:
    """Ctrl-C reaches every process of a terminal, a batch system's signal every process; the first ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
