"""A dask scheduler and workers, as processes of their own, for the tests of everything that runs on a cluster."""

import json
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from sim.study.cases import cluster

START_S = 120
"""On a machine that does a lot besides."""


class Machines:
    """A scheduler and its workers, each a process of its own, in a folder that holds nothing of the scenario."""

    def __init__(self, folder: Path, *security: str) -> None:
        self.folder, self.file, self.processes = folder, folder / "scheduler.json", []
        self.security = security
        host = "tls://127.0.0.1" if security else "127.0.0.1"
        self._start("scheduler", "--host", host, "--port", "0", "--no-dashboard", "--scheduler-file", str(self.file))
        started = time.monotonic()
        while not self.file.exists():
            assert time.monotonic() - started < START_S
            time.sleep(0.05)
        self.address = json.loads(self.file.read_text())["address"]

    def worker(self) -> subprocess.Popen[bytes]:
        return self._start("worker", self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard")

    def _start(self, kind: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *arguments, *self.security]
        process = subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={"PYTHONPATH": str(Path(cluster.__file__).parents[3]), "PATH": "", "HOME": str(self.folder)},
        )  # fmt: skip
        self.processes.append(process)
        return process

    def stop(self) -> None:
        for process in reversed(self.processes):
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()


def contents(points: Path) -> dict[str, bytes]:
    return {str(path.relative_to(points)): path.read_bytes() for path in sorted(points.rglob("*")) if path.is_file()}
