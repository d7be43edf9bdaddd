"""Process pool for jobs on this machine: this process starts work at once, others join if the work takes longer."""

import gc
import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sim.fleet.run import RunThere
from sim.study.execution.cases import Call, CaseJob, WorkerLost
from sim.study.execution.forked import ForkedProcess, leave_signals_to_first, may_fork
from sim.study.execution.worker_progress import progress_file, write_progress

LOG = logging.getLogger("gpufleet")
ALONE_S = 0.5
"""Time before other processes are started [s]: a shorter run finishes sooner without them."""
COPIES = 8
"""Most processes that are copies of this one, ready from the start: each takes some milliseconds."""
AHEAD = 2
"""Tasks sent to a process at a time, of which it runs the first: a simulation here may hold Python's lock for long."""
SWITCH_S = 5e-4
"""Time after which a simulation here lets another thread run while processes share work [s]: a thread needs dozens of
such turns to send a call to its process and to read the result."""
IDLE_S = 60
"""Time that a process without work is kept [s]."""
DEATHS = 3
"""Number of processes killed during a task at which the task fails; a helper ends after as many starts in a row that
were killed."""


@dataclass(slots=True)
class _Task:
    token: Any
    """Job of the task, or position of its item in `map`."""
    call: Callable[[], Any]
    here: Callable[[], Any] | None = None
    """Call to use in this process; None: `call`."""
    deaths: int = 0
    """Number of processes that were killed during the task."""


Work = Callable[[RunThere], None]
"""Work that several processes share; called with a function that runs another function in the calling helper's
process."""


class ProcessPool:
    """Pool of processes, the first of which is this one.

    The others start while this process works, and take tasks from the same queue; no process waits for another to
    start. They end with the context, or after any error. The task of a killed process is queued again; a task during
    which `DEATHS` processes were killed raises WorkerLost.

    With *fork*, the first processes are copies of this one where it `may_fork`; they start with the context.

        submit, map -> waiting tasks -> this process             -> results -> finished, map
                                     -> helper thread -> process ->
    """

    def __init__(self, workers: int, fork: bool = False) -> None:
        self._workers, self._fork = workers, fork
        self._changed = threading.Condition()
        """Lock of the attributes below, signalled on a new task, a new result and the end."""
        self._waiting: deque[_Task] = deque()
        self._lent: list[Work] = []
        """Shared work, one entry for each process that may join when it has no task."""
        self._done: deque[tuple[Any, Any, BaseException | None]] = deque()
        self._helpers: list[_Helper] = []
        self._copies: list[ForkedProcess] = []
        """Copies of this process that no helper has yet."""
        self._alarm: threading.Timer | None = None
        self._stopped = False

    def __enter__(self) -> Self:
        if self._fork and self._workers > 1 and may_fork():
            with suppress(OSError):  # no further process can start
                for _ in range(min(self._workers - 1, COPIES)):
                    self._copies.append(ForkedProcess())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(at_once=error is not None)

    def submit(self, job: CaseJob) -> None:
        """Queue *job*."""
        self._put(_Task(job, job.run, partial(job.run, lend=self.lend)))

    def finished(self) -> CaseJob:
        """Return a submitted job whose result is stored; run a waiting job in this process if no result is ready."""
        job: CaseJob = self._next()[0]
        return job

    def map(self, call: Call, items: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """Yield (position, value) of *call* for each of *items*, in any order."""
        for place, item in enumerate(items):
            self._put(_Task(place, partial(call, *item)))
        for _ in items:
            yield self._next()

    @contextmanager
    def lend(self, work: Work) -> Iterator[None]:
        """Let the other processes take part in *work* of this one while there are no tasks for them."""
        with self._changed:
            self._lent += [work] * (self._workers - 1)
            self._changed.notify_all()
        self._set_alarm()
        interval_s = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        try:
            yield
        finally:
            sys.setswitchinterval(interval_s)
            with self._changed:
                self._lent = [one for one in self._lent if one is not work]

    def stop(self, at_once: bool = True) -> None:
        """End the other processes; *at_once*: without waiting for their tasks."""
        if self._alarm is not None:
            self._alarm.cancel()
        with self._changed:
            self._stopped = True
            self._waiting.clear()
            self._changed.notify_all()
            helpers, self._helpers = self._helpers, []
        for helper in helpers:
            helper.stop(at_once)
        while self._copies:
            self._copies.pop().shutdown(kill_workers=True)

    def _put(self, task: _Task) -> None:
        with self._changed:
            self._waiting.append(task)
            self._changed.notify()

    def _next(self) -> tuple[Any, Any]:
        try:
            return self._next_result()
        except BaseException:
            self.stop()
            raise

    def _next_result(self) -> tuple[Any, Any]:
        self._set_alarm()
        with self._changed:
            while not self._done and (task := self._own_task()) is None:
                self._changed.wait()
            if self._done:
                token, value, error = self._done.popleft()
                if error is not None:
                    raise error
                return token, value
        assert task is not None  # the loop ends only with a task or a result
        return task.token, (task.here or task.call)()

    def _set_alarm(self) -> None:
        """Put the copies of this process to work; start further processes after a while, if there is work for them."""
        with self._changed:
            if self._copies and (len(self._waiting) > 1 or self._lent):
                self._add_helpers(len(self._copies))
        if len(self._helpers) < self._workers - 1 and self._alarm is None:
            self._alarm = threading.Timer(ALONE_S, self._call_help)
            self._alarm.daemon = True
            self._alarm.start()

    def _own_task(self) -> _Task | None:
        """Return the next task for this process.

        A task during which a process was killed is left to the other processes, while there are any.
        """
        task = next((task for task in self._waiting if not (task.deaths and self._helpers)), None)
        if task is not None:
            self._waiting.remove(task)
        return task

    def _call_help(self) -> None:
        with self._changed:
            if self._stopped:
                return
            if not self._waiting and not self._lent:
                self._alarm = None
                return
            self._add_helpers(self._workers - 1 - len(self._helpers))

    def _add_helpers(self, count: int) -> None:
        added = [_Helper(self, self._copies.pop() if self._copies else None) for _ in range(count)]
        self._helpers += added
        for helper in added:
            helper.start()

    def next_task(self) -> _Task | Work | None:
        """Wait for the next task for a helper, or for work to take part in, and return it; None at the end."""
        with self._changed:
            while not self._stopped:
                if self._waiting:
                    return self._waiting.popleft()
                if self._lent:
                    return self._lent.pop()
                self._changed.wait()
        return None

    def task_ahead(self) -> _Task | None:
        """Return a further task for a helper that has one; None if there are few left, for processes without one."""
        with self._changed:
            return self._waiting.popleft() if len(self._waiting) > self._workers else None

    def put_back(self, tasks: Sequence[_Task]) -> None:
        """Queue *tasks* again that a helper's process did not begin before it was killed."""
        with self._changed:
            self._waiting.extendleft(reversed(tasks))
            self._changed.notify_all()

    def put_result(self, task: _Task, value: Any, error: BaseException | None) -> None:
        """Take the result of *task* from a helper; the task of a killed process is queued again."""
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

    def drop_helper(self, helper: "_Helper") -> None:
        """Continue without *helper*, whose last `DEATHS` processes were killed at their start."""
        with self._changed:
            if helper in self._helpers:
                LOG.warning("%s processes in a row were killed at their start; one process fewer is used", DEATHS)
                self._helpers.remove(helper)
                self._changed.notify_all()

    @property
    def stopped(self) -> bool:
        """True if the pool has ended."""
        return self._stopped


class _Helper(threading.Thread):
    """Thread that runs tasks of *cores* in its own process; a killed process is replaced."""

    def __init__(self, cores: ProcessPool, process: ForkedProcess | None) -> None:
        super().__init__(daemon=True)
        self._cores = cores
        self._context = ExitStack()
        self._progress = self._context.enter_context(progress_file())
        self._first_task = _import_this_module if process is None else partial(write_progress, self._progress)
        self._process = process or _process(self._progress)

    def run(self) -> None:
        """Run tasks until the pool has ended, or until DEATHS processes in a row were killed at their start."""
        starts = 0
        while not self._cores.stopped and starts < DEATHS:
            starts += 1
            if self._run_in_process(_Task(None, self._first_task))[1] is None:
                starts = 0
                self._work()
            self._process.shutdown(wait=True, kill_workers=True)
            if not self._cores.stopped:
                self._process, self._first_task = _process(self._progress), _import_this_module
        self._cores.drop_helper(self)
        self._context.close()

    def _work(self) -> None:
        """Run task after task, until the process is killed or the pool has ended."""
        sent: deque[tuple[_Task, Any]] = deque()
        while True:
            if not sent:
                task = self._cores.next_task()
                if task is None:
                    return
                if not isinstance(task, _Task):
                    if not self._takes_part(task):
                        return
                    continue
                sent.append((task, self._submitted(task)))
            while len(sent) < AHEAD and (further := self._cores.task_ahead()) is not None:
                sent.append((further, self._submitted(further)))
            task, answer = sent.popleft()
            value, error = _outcome(answer)
            if self._cores.stopped:
                return
            if isinstance(error, BrokenProcessPool):
                self._cores.put_back([task for task, _ in sent])
            self._cores.put_result(task, value, error)
            if isinstance(error, BrokenProcessPool):
                return

    def _takes_part(self, work: Work) -> bool:
        """Take part in *work*. Return whether the process can continue; errors of *work* are left to this process."""
        try:
            work(self._call_in_process)
        except BrokenProcessPool:
            return False
        except BaseException as error:
            LOG.debug("work is left to the other processes: %s", error)
        return not self._cores.stopped

    def _call_in_process(self, function: Callable[..., Any], *arguments: Any) -> Any:
        value, error = self._run_in_process(_Task(None, partial(function, *arguments)))
        if error is not None:
            raise error
        return value

    def _run_in_process(self, task: _Task) -> tuple[Any, BaseException | None]:
        return _outcome(self._submitted(task))

    def _submitted(self, task: _Task) -> Any:
        """Send *task* to the process. Return its future, or the error that the process is gone."""
        try:
            return self._process.submit(task.call)
        except BaseException as error:
            return error

    def stop(self, at_once: bool) -> None:
        """End the process; *at_once*: without waiting for its task."""
        self._process.shutdown(wait=True, kill_workers=at_once)
        self.join()


def _outcome(answer: Any) -> tuple[Any, BaseException | None]:
    """Return the value of the future *answer*, or the error raised by the task or by the death of its process."""
    if isinstance(answer, BaseException):
        return None, answer
    try:
        return answer.result(), None
    except BaseException as error:
        return None, error


def _process(progress: Path) -> Any:
    """Return an executor of one process, which starts with the first task and writes its progress to *progress*.

    joblib's executor is used: a process of concurrent.futures runs the user's script once more, which fails for a
    script without a `__main__` guard and for a notebook, and cannot unpickle a policy defined in a notebook. The
    executor has a single process, because a killed process breaks a whole executor without an indication of the task.
    """
    from joblib.externals.loky import ProcessPoolExecutor  # slow to import; a short run needs no other process

    return ProcessPoolExecutor(1, timeout=IDLE_S, initializer=_start, initargs=(progress, gc.get_threshold()))


def _import_this_module() -> None:
    """Import this module in a new process, as its first task."""


def _start(progress: Path, threshold: tuple[int, int, int]) -> None:
    """Write progress to the file *progress*, and search for garbage at the *threshold* of the first process."""
    gc.set_threshold(*threshold)
    write_progress(progress)
    leave_signals_to_first()
