"""Fork server of Python processes with everything imported, as the imports take longest.

python tests/warm.py SOCKET IMPORTS executes IMPORTS and then, for each connection to SOCKET, runs a module as `python
-m` does, in a separate process with the files, folder, environment and arguments of the client.
"""

import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

START_S = 120
"""Longest start on a busy machine [s]."""
POLL_S = 0.02
CLIENT = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    asked = {{"module": {module!r}, "words": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}}
    socket.send_fds(server, [json.dumps(asked).encode()], [0, 1, 2])
    server.recv(16)
    sys.exit(server.recv(1)[0])
"""


class Warm:
    """A process that has executed *imports* with *tree* first on its path, and is asked for forks."""

    def __init__(self, tree: Path, imports: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="warm-")
        self.address = str(Path(self._folder.name) / "s")
        self._said = ""
        command = [sys.executable, str(Path(__file__).resolve()), self.address, imports]
        # it ends with its stdin, however this process ends; its other streams become those of who asks
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self._process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(tree)}, **pipes)

    def client(self, module: str) -> str:
        """The text of a program that runs *module* there and is, for who starts it, that module."""
        self._wait()
        return CLIENT.format(python=sys.executable, address=self.address, module=module)

    def start(self, module: str, *words: str, folder: Path, environment: dict[str, str]) -> "Started":
        """A process that writes nowhere."""
        self._wait()
        asked = {"module": module, "words": words, "folder": str(folder), "environment": environment}
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.address)
        with Path(os.devnull).open("r+b") as nowhere:
            socket.send_fds(connection, [json.dumps(asked).encode()], [nowhere.fileno()] * 3)
        if not (told := connection.recv(16)):
            connection.close()
            self.stop()
            raise AssertionError(f"{module} has not started: {self._said}")
        return Started(connection, int(told))

    def _wait(self) -> None:
        started = time.monotonic()
        while not Path(self.address).exists():
            assert self._process.poll() is None, self._process.communicate()
            assert time.monotonic() - started < START_S
            time.sleep(0.02)

    def stop(self) -> None:
        """Ends it; what it has started goes on."""
        self._process.kill()
        self._process.wait()
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None
        with stdin, stdout, stderr, suppress(BlockingIOError):
            os.set_blocking(stderr.fileno(), False)  # what it has started may hold the other end
            self._said = os.read(stderr.fileno(), 65536).decode()
        self._folder.cleanup()


class Started:
    """Process started by the fork server."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._connection, self.pid = connection, pid

    def __del__(self) -> None:
        self._connection.close()

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self) -> None:
        """Wait until the process has ended."""
        with self._connection:
            self._connection.recv(1)


def serve(address: str, imports: str) -> None:
    """Serve until stdin is closed."""
    gc.disable()
    exec(imports, {})
    gc.freeze()  # or the first search for garbage in each fork would copy all of it
    gc.enable()
    # whoever has ended is forgotten
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{address}-")
        listener.listen()
        Path(f"{address}-").rename(address)
        while listener in select.select([sys.stdin, listener], [], [])[0]:
            connection, _ = listener.accept()
            if os.fork():
                connection.close()
                continue
            listener.close()
            watch(connection)


def watch(connection: socket.socket) -> None:
    """Starts what is asked for, and tells its id and in the end its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, files, *_ = socket.recv_fds(connection, 1_000_000, 3)
    asked = json.loads(message)
    if process := os.fork():
        connection.sendall(f"{process:16d}".encode())
        while (ended := os.waitpid(process, os.WNOHANG))[0] == 0:
            if select.select([connection], [], [], POLL_S)[0]:  # who has asked is gone
                os.kill(process, signal.SIGKILL)
        _, status = ended
        with suppress(BrokenPipeError):
            connection.sendall(bytes([os.waitstatus_to_exitcode(status) & 255]))
        os._exit(0)
    connection.close()
    code = 1
    try:
        code = run(asked, files)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run(asked: dict[str, Any], files: list[int]) -> int:
    """The exit code of the module, which ends by itself."""
    for place, file in enumerate(files):
        os.dup2(file, place)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = [asked["module"], *asked["words"]]
    try:
        runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


if __name__ == "__main__":
    sys.path[0] = os.environ["PYTHONPATH"]
    serve(*sys.argv[1:])
