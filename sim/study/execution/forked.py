"""Copies of this process that work beside it: a fork takes milliseconds, and has all modules imported.

`ForkedProcess` runs calls one after another; `beside` runs those that nothing waits for until `finish_beside`.
"""

import os
import pickle
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
from queue import SimpleQueue
from typing import Any, NoReturn

Call = Callable[[], Any]
SAFE_THREADS = {"jemalloc_bg_thd"}
"""Threads of libraries that survive a fork: of pyarrow's allocator."""
SIGNALS_OF_FIRST = {signal.SIGINT, signal.SIGTERM}
"""Signals that other processes ignore: the first process ends them."""


def leave_signals_to_first() -> None:
    """Ignore the signals that end the first process: it ends this one."""
    for one in SIGNALS_OF_FIRST:
        signal.signal(one, signal.SIG_IGN)


def may_fork() -> bool:
    """Return whether this process can be copied: on Linux, with a single thread beside SAFE_THREADS."""
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
        self._sending, self._ending = threading.Lock(), threading.Lock()
        _flush()
        # an interrupt before the copy ignores it would run what this process does at its end
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS_OF_FIRST)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # Python counts the threads of libraries
                self._pid = os.fork()
            if self._pid == 0:
                _serve(theirs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def submit(self, call: Call) -> "ForkedCall":
        """Send *call* to the process, which runs it after those sent before. Raises BrokenProcessPool if it ended."""
        with self._sending:
            try:
                self._pipe.send(call)
            except OSError as error:
                raise BrokenProcessPool from error
        return ForkedCall(self._pipe)

    def shutdown(self, wait: bool = True, kill_workers: bool = False) -> None:
        """End the process and wait for it; *kill_workers*: without waiting for its calls."""
        with self._ending:
            if not self._pid:
                return
            if kill_workers:
                with suppress(ProcessLookupError):  # it has ended, and where SIGCHLD is ignored nothing remains of it
                    os.kill(self._pid, signal.SIGKILL)
            else:
                with self._sending, suppress(OSError):  # it has ended
                    self._pipe.send_bytes(b"")
            with suppress(ChildProcessError):  # SIGCHLD is ignored
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
        leave_signals_to_first()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS_OF_FIRST)
        _close_files_but(pipe.fileno())
        calls: SimpleQueue[bytes] = SimpleQueue()
        threading.Thread(target=_receive, args=(pipe, calls), daemon=True).start()
        while data := calls.get():
            outcome = _run(data)
            try:
                pipe.send(outcome)
            except OSError:
                break  # the first process has ended
            except Exception as error:  # it cannot be pickled
                pipe.send((None, error))
    finally:
        try:
            _flush()
        finally:
            os._exit(0)


def _receive(pipe: "Connection[Any, Any]", calls: "SimpleQueue[bytes]") -> None:
    """Queue the pickled *calls* that arrive at *pipe*, until an empty one; end this process with the first one.

    The first process can thus send a large call while it does not read the large value of another.
    """
    try:
        while data := pipe.recv_bytes():
            calls.put(data)
        calls.put(b"")
    except (EOFError, OSError):
        os._exit(0)


def _flush() -> None:
    """Write out what was printed; a stream that was closed before the start is None."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def _close_files_but(kept: int) -> None:
    """Close all files of this process but *kept* and the standard streams.

    The end of the first process then closes the pipes of all its copies, and unlocks the folder of the results.
    """
    streams = {number for number, stream in enumerate((sys.__stdin__, sys.__stdout__, sys.__stderr__)) if stream}
    for file in list(Path("/proc/self/fd").iterdir()):
        if (number := int(file.name)) not in {*streams, kept}:
            with suppress(OSError):  # it listed the others
                os.close(number)
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass  # libraries abort where a standard stream is missing
    os.close(number)


def _run(call: bytes) -> tuple[Any, BaseException | None]:
    """Run the pickled *call*. Return its value, or its error with the traceback of this process as a note."""
    try:
        return pickle.loads(call)(), None
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
            except Exception:  # it was killed, or this process has what it lacks
                call()

    def end(self) -> None:
        self._process.shutdown(kill_workers=True)


def _nothing() -> None:
    """Do nothing, where there is nothing to do again."""


_ASSISTANTS: list[_Assistant] = []


@contextmanager
def assisted(prepare: Call) -> Iterator[None]:
    """Let a copy of this process run *prepare*, and what is done `beside` within this context; where it `may_fork`."""
    with suppress(OSError):  # no further process can start
        if may_fork():
            _ASSISTANTS.append(_Assistant(prepare))
    try:
        yield
    finally:
        stop_beside()


def beside(call: Call) -> None:
    """Run *call* in the copy of this process that assists it, until `finish_beside`; without one, run it now."""
    for assistant in _ASSISTANTS:
        with suppress(BrokenProcessPool):
            assistant.send(call)
            return
    call()


def finish_beside() -> None:
    """Wait for all calls of `beside`, and raise the first error; calls that failed in the copy are run again here."""
    for assistant in _ASSISTANTS:
        assistant.finish()


def stop_beside() -> None:
    """End the copy of this process that assists it, which writes no further files; later calls run here."""
    while _ASSISTANTS:
        _ASSISTANTS.pop().end()
