"""Progress of the simulations that run now, in this process and in its workers.

A worker writes its numbers to a small file that the command's process reads, so that a long simulation shows its
progress wherever it runs.
"""

import contextlib
import struct
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sim.fleet.fleet import RUNNING

WRITE_EVERY_S = 1.0
"""Interval at which a worker writes its progress [s]."""
_RECORD = struct.Struct("4d")
_NONE = -1.0
_FILES: list[Path] = []
"""Files of the workers that run now."""


class SimulationProgress(NamedTuple):
    """Progress of one simulation."""

    now_s: float
    """Simulated time until now [s]."""
    horizon_s: float | None
    """End of arrivals [s]; None where the simulation ends with its last request."""
    requests: int
    """Number of requests that are done."""
    waiting: int
    """Number of requests that have arrived and are not done."""

    @property
    def fraction(self) -> float:
        """Simulated fraction of the horizon [1]; 0 without a horizon."""
        return min(self.now_s / self.horizon_s, 1.0) if self.horizon_s else 0.0


def running() -> list[SimulationProgress]:
    """Return the progress of the simulations that run now, that of this process first."""
    own = [SimulationProgress(*one.progress) for one in RUNNING[:1]]  # the whole, if its parts run
    return [*own, *(found for path in list(_FILES) if (found := _read(path)) is not None)]


@contextlib.contextmanager
def progress_file() -> Iterator[Path]:
    """Provide the file for the progress of one worker, which `running` reads until the context ends."""
    with tempfile.TemporaryDirectory(prefix="gpufleet-") as folder:
        path = Path(folder) / "progress"
        _FILES.append(path)
        try:
            yield path
        finally:
            _FILES.remove(path)


def write_progress(path: Path) -> None:
    """Write the progress of this process to *path* from now on, in a thread that ends with the process."""
    threading.Thread(target=_write_for_ever, args=(path,), daemon=True).start()


def _write_for_ever(path: Path) -> None:
    wait = threading.Event().wait
    with contextlib.suppress(OSError):  # the folder is gone: the command has ended
        while True:
            path.write_bytes(_record())
            wait(WRITE_EVERY_S)


def _record() -> bytes:
    if not RUNNING:
        return b""
    now_s, horizon_s, requests, waiting = RUNNING[0].progress
    return _RECORD.pack(now_s, _NONE if horizon_s is None else horizon_s, requests, waiting)


def _read(path: Path) -> SimulationProgress | None:
    """Return the progress in *path*; None where no simulation runs, or the file is being written."""
    try:
        now_s, horizon_s, requests, waiting = _RECORD.unpack(path.read_bytes())
    except (OSError, struct.error):
        return None
    return SimulationProgress(now_s, None if horizon_s == _NONE else horizon_s, int(requests), int(waiting))
