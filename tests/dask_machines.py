"""A dask scheduler and workers, as processes of their own, for the tests of everything that runs on a cluster."""

import atexit
import json
import time
from functools import cache
from pathlib import Path

from warm import START_S, Started, Warm

ROOT = Path(__file__).resolve().parent.parent
IMPORTS = "import distributed.cli.dask_scheduler, distributed.cli.dask_worker, sim.study.execution.cluster"


@cache
def warm() -> Warm:
    """Return the one fork server for all tests of this process."""
    found = Warm(ROOT, IMPORTS)
    atexit.register(found.stop)
    return found


class Machines:
    """A scheduler and its workers, each a process of its own, in a folder that holds nothing of the scenario."""

    def __init__(self, folder: Path, *security: str) -> None:
        self.folder, self.file = folder, folder / "scheduler.json"
        self.processes: list[Started] = []
        self.security = security
        host = "tls://127.0.0.1" if security else "127.0.0.1"
        self._start("scheduler", "--host", host, "--port", "0", "--no-dashboard", "--scheduler-file", str(self.file))
        started = time.monotonic()
        while not (self.file.exists() and (text := self.file.read_text()).endswith("}")):
            assert time.monotonic() - started < START_S
            time.sleep(0.05)
        self.address = json.loads(text)["address"]

    def worker(self, preload: str = "") -> Started:
        """Start a worker that first executes the program *preload*."""
        words = ["--nthreads", "1", "--no-nanny", "--no-dashboard"]
        if preload:
            file = self.folder / f"preload{len(self.processes)}.py"
            file.write_text(preload)
            words += ["--preload", str(file)]
        return self._start("worker", self.address, *words)

    def _start(self, kind: str, *arguments: str) -> Started:
        words = (*arguments, *self.security)
        process = warm().start(
            f"distributed.cli.dask_{kind}",
            *words,
            folder=self.folder,
            environment={"PATH": "", "HOME": str(self.folder)},
        )
        self.processes.append(process)
        return process

    def stop(self) -> None:
        while self.processes:
            process = self.processes.pop()
            process.kill()
            process.wait()


def contents(points: Path) -> dict[str, bytes]:
    return {str(path.relative_to(points)): path.read_bytes() for path in sorted(points.rglob("*")) if path.is_file()}
