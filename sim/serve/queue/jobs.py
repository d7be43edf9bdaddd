"""Runs that the page has asked for: one after the other, each a `gpufleet run` in a process of its own.

What such a process has finished stays on the disk, whoever is killed: the same run asked for again goes on from there.
"""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim.deliver.shared.folder import is_finished
from sim.language import current, retold
from sim.language.known import OWN
from sim.serve.refused import Refused
from sim.study.cases.points import POINTS

WAITING, RUNNING, DONE, FAILED, CANCELLED = "waiting", "running", "done", "failed", "cancelled"
OPEN = frozenset({WAITING, RUNNING})
MOST_WAITING = 20
MOST_KEPT = 100
"""Jobs that are remembered; finished ones are forgotten first, their results stay."""
LOOKS_S = 0.3
"""How often a running job is looked at."""
LAST_LINES = 20
OUTPUTS = "outputs"
COMMAND = (sys.executable, "-P", "-m", "sim")
"""-P: a folder called sim in the workspace is not the program."""
OPTIONS = ("--quiet",)


@dataclass(slots=True)
class Job:
    """One run."""

    id: str
    scenario: str
    """Name of the file in the workspace."""
    sets: list[str]
    folder: str
    """Name of the folder of its results."""
    cases: int
    """Cases to simulate; 0 where that is not known before."""
    command: str = "run"
    """Of gpufleet."""
    state: str = WAITING
    done: int = 0
    message: str = ""
    process: subprocess.Popen[str] | None = field(default=None, repr=False)

    def as_data(self) -> dict[str, Any]:
        """As the page gets it."""
        names = ("id", "scenario", "sets", "folder", "cases", "command", "state", "done", "message")
        return {name: getattr(self, name) for name in names} | {"message": retold(self.message)}


class Queue:
    """The jobs of one server. `version` grows with every change."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.language = current()
        """What its runs say is for the reader of the page."""
        self.version = 0
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._changed = threading.Condition()
        self._ends = False
        self._worker: threading.Thread | None = None

    def add(
        self, scenario: str, name: str, question: str, sets: Sequence[str], cases: int, command: str = "run"
    ) -> Job:
        """The job that gives *scenario* with *sets* to the *command*; the same one where it waits or runs already.

        *name* and *question* name its folder: another question never meets the results of this one. Raises Refused.
        """
        folder = f"{OUTPUTS}/{_safe(name)}-{hashlib.sha256(question.encode()).hexdigest()[:8]}"
        with self._changed:
            for job in self._jobs.values():
                if job.folder == folder and job.state in OPEN:
                    return job
            if sum(job.state == WAITING for job in self._jobs.values()) >= MOST_WAITING:
                raise Refused(503, f"{MOST_WAITING} runs are waiting already; cancel one, or come back later")
            job = Job(f"{len(self._jobs) + 1}-{os.urandom(3).hex()}", scenario, list(sets), folder, cases, command)
            self._jobs[job.id] = job
            self._forget()
            self._tell()
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, daemon=True)
                self._worker.start()
        return job

    def cancel(self, name: str) -> Job:
        """Stops the job *name*; what it has finished is kept. Raises Refused where there is none."""
        with self._changed:
            job = self._jobs.get(name)
            if job is None:
                raise Refused(404, "there is no such run in the queue any more")
            if job.state in OPEN:
                job.state, job.message = CANCELLED, "finished points are kept; the same run goes on from them"
                _stop(job.process)
                self._tell()
        return job

    def listed(self) -> list[dict[str, Any]]:
        """All jobs, the newest first."""
        with self._changed:
            return [job.as_data() for job in reversed(self._jobs.values())]

    def wait(self, version: int, timeout_s: float) -> int:
        """The version now, once it is another than *version* or the time is up."""
        with self._changed:
            self._changed.wait_for(lambda: self.version != version or self._ends, timeout_s)
            return self.version

    @property
    def closed(self) -> bool:
        """Whether the server is about to end."""
        return self._ends

    def close(self) -> None:
        """Ends all that runs."""
        with self._changed:
            self._ends = True
            for job in self._jobs.values():
                _stop(job.process)
            self._changed.notify_all()
        if self._worker is not None:
            self._worker.join(10)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ends or self._next() is not None)
                job = self._next()
                if self._ends or job is None:
                    return
                job.state = RUNNING
                job.process = self._started(job)
                self._tell()
            self._follow(job, job.process)

    def _next(self) -> Job | None:
        return next((job for job in self._jobs.values() if job.state == WAITING), None)

    def _started(self, job: Job) -> subprocess.Popen[str]:
        sets = [word for one in job.sets for word in ("--set", one)]
        command = [
            *COMMAND,
            job.command,
            *OPTIONS,
            job.scenario,
            *sets,
            "--out",
            job.folder,
            "--workers",
            str(os.cpu_count() or 1),
        ]
        environment = _environment(self.language)
        return subprocess.Popen(
            command, cwd=self.root, env=environment, start_new_session=True, text=True, errors="replace",
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip

    def _follow(self, job: Job, process: subprocess.Popen[str]) -> None:
        """Until the process has ended."""
        said: list[str] = []
        assert process.stderr is not None
        reader = threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True)
        reader.start()
        while process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOKS_S)
            done = _points(self.root / job.folder)
            if done != job.done:
                with self._changed:
                    job.done = done
                    self._tell()
        reader.join(5)
        process.stderr.close()
        with self._changed:
            job.done, job.process = _points(self.root / job.folder), None
            if job.state == RUNNING:
                finished = process.returncode == 0 and is_finished(self.root / job.folder)
                job.state = DONE if finished else FAILED
                job.message = "" if finished else "".join(said[-LAST_LINES:]).strip() or "it ended before it was done"
            self._tell()

    def _forget(self) -> None:
        closed = [name for name, job in self._jobs.items() if job.state not in OPEN]
        for name in closed[: max(0, len(self._jobs) - MOST_KEPT)]:
            del self._jobs[name]

    def _tell(self) -> None:
        self.version += 1
        self._changed.notify_all()


def question_text(data: Any, sets: Sequence[str]) -> str:
    """What tells one run from another: all that its scenario says."""
    return json.dumps([data, sorted(sets)], sort_keys=True, default=str)


def _points(folder: Path) -> int:
    with suppress(OSError), os.scandir(folder / POINTS) as found:
        return sum(not one.name.startswith(".") for one in found)
    return 0


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", name).strip("-.")[:80] or "run"


def _stop(process: subprocess.Popen[str] | None) -> None:
    """What a batch system sends when the time is up: the command keeps what it has finished, and ends."""
    if process is not None and process.poll() is None:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGTERM)


def _environment(language: str) -> dict[str, str]:
    """So that the same program runs, wherever the server was started, and speaks *language*."""
    above = str(Path(__file__).resolve().parents[3])
    found = os.pathsep.join(filter(None, [above, os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": found, OWN: language}
