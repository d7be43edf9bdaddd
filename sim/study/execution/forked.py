"""Copies of this process that work beside it: a fork takes milliseconds, and has all modules imported.

`ForkedProcess` runs calls one after another; `beside` runs those that nothing waits for until `finish_beside`.
"""

import os
import signal
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, NoReturn

Call = Callable[[], Any]
SAFE_THREADS = {"jemalloc_bg_thd"}
"""Threads of libraries that survive a fork: of pyarrow's allocator."""


def may_fork() -> bool:
    """Return whether a copy of this process works: on Linux, in a process with a single thread."""
    if sys.platform != "linux" or threading.active_count() > 1:
        return False
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return len([name for name in names if name not in SAFE_THREADS]) == 1


class ForkedProcess:
    """Copy of this process with the interface of an executor: calls and values are pickled.

    It ends when it is shut down, or with this process.
    """

    def __init__(self) -> None:
        self._pipe, theirs = Pipe()
        self._lock = threading.Lock()
        """Lock of sending, and of the end."""
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python counts the threads of libraries
            self._pid = os.fork()
        if self._pid == 0:
            _serve(theirs)
        theirs.close()

    def submit(self, call: Call) -> "ForkedCall":
        """Send *call* to the process, which runs it after those sent before. Raises BrokenProcessPool if it ended."""
        with self._lock:
            try:
                self._pipe.send(call)
            except OSError as error:
                raise BrokenProcessPool from error
        return ForkedCall(self._pipe)

    def shutdown(self, wait: bool = True, kill_workers: bool = False) -> None:
        """End the process and wait for it; *kill_workers*: without waiting for its calls."""
        with self._lock:
            if not self._pid:
                return
            if kill_workers:
                os.kill(self._pid, signal.SIGKILL)
            else:
                with suppress(OSError):  # it has ended
                    self._pipe.send(None)
            os.waitpid(self._pid, 0)
            self._pid = 0


class ForkedCall:
    """Call that was sent to a copy of this process; the results of several are read in the order of the calls."""

    def __init__(self, pipe: "Connection[Any, Any]") -> None:
        self._pipe = pipe

    def result(self) -> Any:
        """Return the value of the call, or raise its error. Raises BrokenProcessPool if the process was killed."""
        try:
            value, error = self._pipe.recv()
        except (EOFError, OSError) as lost:
            raise BrokenProcessPool from lost
        if error is not None:
            raise error
        return value


def _serve(pipe: "Connection[Any, Any]") -> NoReturn:
    """Run the calls that arrive at *pipe*, then end this process without what the first process does at its end."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends the others
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # the end of the first process closes the pipes of all its copies, and unlocks the folder of the results
        for handle in {int(entry.name) for entry in Path("/proc/self/fd").iterdir()} - {0, 1, 2, pipe.fileno()}:
            with suppress(OSError):  # that of the folder itself
                os.close(handle)
        while (call := pipe.recv()) is not None:
            outcome = _outcome(call)
            try:
                pipe.send(outcome)
            except (TypeError, AttributeError, ValueError) as error:  # it cannot be pickled
                pipe.send((None, error))
    except (EOFError, OSError):
        pass  # the first process has ended
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _outcome(call: Call) -> tuple[Any, BaseException | None]:
    try:
        return call(), None
    except BaseException as error:
        error.add_note(traceback.format_exc())
        return None, error


class _Assistant:
    """Copy of this process that has run *prepare*, with the calls that it has not answered yet."""

    def __init__(self, prepare: Call) -> None:
        self._process = ForkedProcess()
        self._sent: deque[tuple[Call, ForkedCall]] = deque([(_nothing, self._process.submit(prepare))])

    def send(self, call: Call) -> None:
        self._sent.append((call, self._process.submit(call)))

    def finish(self) -> None:
        while self._sent:
            call, sent = self._sent.popleft()
            try:
                sent.result()
            except BrokenProcessPool:
                call()

    def end(self) -> None:
        self._process.shutdown(kill_workers=True)


def _nothing() -> None:
    """Do nothing, where there is nothing to do again."""


_ASSISTANTS: list[_Assistant] = []


@contextmanager
def assisted(prepare: Call) -> Iterator[None]:
    """Let a copy of this process run *prepare*, and what is done `beside` within this context; where it `may_fork`."""
    if not may_fork():
        yield
        return
    assistant = _Assistant(prepare)
    _ASSISTANTS.append(assistant)
    try:
        yield
    finally:
        _ASSISTANTS.remove(assistant)
        assistant.end()


def beside(call: Call) -> None:
    """Run *call* in the copy of this process that assists it, until `finish_beside`; without one, run it now."""
    for assistant in _ASSISTANTS:
        with suppress(BrokenProcessPool):
            assistant.send(call)
            return
    call()


def finish_beside() -> None:
    """Wait for all calls of `beside`, and raise the first error; the calls of a killed process are run again here."""
    for assistant in _ASSISTANTS:
        assistant.finish()
