"""Jobs on this machine: this process simulates, too, and after a moment so do others."""

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

from joblib.externals.loky import ProcessPoolExecutor

from sim.study.execute import Call, Job

ALONE_S = 0.5
"""Work goes on for so long before other processes are started: a short run ends sooner without them."""
KEPT_S = 60
"""How long a process without work is kept."""
Task = tuple[Any, Callable[[], Any]]
"""What the result is asked for by, and what is to be done."""


class Cores:
    """So many processes, of which this one is the first.

    The others start beside the work and take tasks from the same queue, so that nobody waits for anybody's start. They
    end with the context, or when anything fails.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._waiting: deque[Task] = deque()
        self._done: SimpleQueue[tuple[Any, Any, BaseException | None]] = SimpleQueue()
        self._lock = threading.Lock()
        self._elsewhere = 0
        self._alarm: threading.Timer | None = None
        self._helped = False
        self._others: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(at_once=error is not None)

    def submit(self, job: Job) -> None:
        """One more job to do."""
        self._queue(job, job.run)

    def finished(self) -> Job:
        """One of the submitted jobs, stored; done here if none has come back and any is left."""
        job: Job = self._next()[0]
        return job

    def map(self, call: Call, items: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """(place, value) of *call* for each of *items*, in any order."""
        for place, item in enumerate(items):
            self._queue(place, partial(call, *item))
        for _ in items:
            yield self._next()

    def stop(self, at_once: bool = True) -> None:
        """Ends the other processes; *at_once* whatever they are doing."""
        self._waiting.clear()
        self._helped = False
        if self._alarm is not None:
            self._alarm.cancel()
        with self._lock:
            others, self._others = self._others, None
        if others is not None:
            others.shutdown(wait=True, kill_workers=at_once)

    def _queue(self, token: Any, call: Callable[[], Any]) -> None:
        self._waiting.append((token, call))
        if self._helped:
            self._hand_out()

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
        if self._done.empty():
            task = self._taken()
            if task is not None:
                token, call = task
                return token, call()
        token, value, error = self._done.get()
        if error is not None:
            raise error
        return token, value

    def _taken(self) -> Task | None:
        """The next task, if any waits."""
        try:
            return self._waiting.popleft()
        except IndexError:  # another thread has taken the last one
            return None

    def _call_help(self) -> None:
        """Starts the other processes; each gets its first task once it is there."""
        with self._lock:
            if not self._waiting:
                self._alarm = None
                return
            others = self._elsewhere = self._workers - 1
            self._others = ProcessPoolExecutor(others, timeout=KEPT_S, initializer=_ignore_interrupt)
            calls = [self._others.submit(_here) for _ in range(others)]
            self._helped = True
        for one in calls:
            one.add_done_callback(self._arrived)

    def _arrived(self, future: "Future[None]") -> None:
        with self._lock:
            self._elsewhere -= 1
        self._hand_out()

    def _hand_out(self) -> None:
        """One task to each of the other processes that has none."""
        while self._helped:
            with self._lock:
                task = self._taken() if self._elsewhere < self._workers - 1 else None
                if task is None:
                    return
                token, call = task
                self._elsewhere += 1
                future = self._others.submit(call)
            future.add_done_callback(partial(self._returned, token))

    def _returned(self, token: Any, future: "Future[Any]") -> None:
        with self._lock:
            self._elsewhere -= 1
        error = None if future.cancelled() else future.exception()
        self._done.put((token, None if future.cancelled() or error else future.result(), error))
        self._hand_out()


def _here() -> None:
    """The first thing that another process does: by then it has imported what it needs."""


def _ignore_interrupt() -> None:
    """Ctrl-C reaches every process of a terminal, a batch system's signal every process; the first ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
