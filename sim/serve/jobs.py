"""Queue of the workspace's runs, and its routes: jobs run one after the other, each a command in its own process.

A job is stored on the disk: the checked scenario, its state, and the output of its process. A process holds the lock of
its job until it ends, so that a new server finds processes that still run after their server was killed. Finished
points stay on the disk, whichever process is killed: the same run resumes from them when it is started again.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import BaseRoute, Route

from sim.answers.folder import is_finished
from sim.infile import ROOTS, confined
from sim.language import current, translate_rendered
from sim.language.catalogue import OWN
from sim.message import Message, joined
from sim.serve.refusals import RefusedRequest
from sim.serve.scenario_checks import CHECKS, CheckRequest
from sim.serve.scenarios import SentScenario, sent_scenario
from sim.serve.workspace import Workspace, program_folders
from sim.study.execution.durable import POINTS, write_atomically

WAITING, RUNNING, DONE = "waiting", "running", "done"
FAILED, CANCELLED, INTERRUPTED = "failed", "cancelled", "interrupted"
OPEN_STATES = frozenset({WAITING, RUNNING})
RESTARTABLE = frozenset({FAILED, CANCELLED, INTERRUPTED})
"""States from which a job can be started again."""
MOST_WAITING = 20
MOST_KEPT = 100
"""Largest number of stored jobs; finished jobs are removed first, their results stay."""
CHECK_INTERVAL_S = 0.3
"""Interval at which a running job is checked [s]."""
GRACE_S = 10.0
"""Time that a process has to end after SIGTERM before it is killed [s]."""
SIGNALLED = 128
"""Exit codes of a shell above this mean that a signal has ended the command."""
LAST_CHARACTERS = 2000
LONGEST_SHOWN = 1000
"""Longest value shown in the list of jobs [characters]."""
OUTPUTS = "outputs"
QUEUE_FOLDER = ".gpufleet/queue"
"""Folder of the jobs in the workspace, with a subfolder per job."""
SCENARIO, JOB, STDERR_FILE, LOCK, PID, CODE = "scenario.yaml", "job.json", "said", "lock", "run.pid", "run.code"
COMMAND = (sys.executable, "-P", "-m", "sim")
"""Start of a run's command; -P prevents a folder called sim in the workspace from being imported."""
OPTIONS = ("--quiet",)
RECORDING_WRAPPER = ("/bin/sh", "-c", 'echo $$ >"$0.pid"; "$@"; echo $? >"$0.code"')
"""Wrapper of a run's command that records its process group and its exit code in files."""
STOPPED = "finished points are kept; the same run continues from them"


@dataclass(frozen=True, slots=True)
class JobLimits:
    """Limits of a run's time and memory."""

    hours: float = 24.0
    """Largest wall-clock time [h]."""
    gigabytes: float = field(default_factory=lambda: round(0.75 * _machine_bytes() / 1e9, 1))
    """Largest resident memory of all processes [GB]; 0: unlimited. Default: three quarters of the machine's memory."""


@dataclass(slots=True)
class QueuedCommand:
    """Run of a gpufleet command in the queue."""

    id: str
    scenario: str
    """Name of the scenario's file in the workspace."""
    sets: list[str]
    folder: str
    """Name of the folder of its results."""
    cases: int
    """Number of cases to simulate; 0 where unknown."""
    command: str = "run"
    """Command of gpufleet: run, size, ..."""
    state: str = WAITING
    done: int = 0
    message: str = ""
    began: float = 0.0
    """Start of the job's process, in seconds since 1970; 0 before."""

    def as_data(self) -> dict[str, Any]:
        """Return the job as JSON data for the page."""
        data = {name: value for name, value in asdict(self).items() if name != "began"}
        return data | {"message": translate_rendered(self.message), "again": self.state in RESTARTABLE}


class CommandQueue:
    """Queue of the jobs of a workspace. `version` increases with every change."""

    def __init__(self, workspace: Workspace, limits: JobLimits, cluster: Sequence[str] = ()) -> None:
        self.workspace, self.limits = workspace, limits
        self.cluster = cluster
        """Options of a run that name a cluster; empty: the run uses the cores of this machine."""
        self.root, self.queue_folder = workspace.root, workspace.root / QUEUE_FOLDER
        self.language = current()
        """Language of the messages of runs: that of the page."""
        self.version = 0
        self._jobs: OrderedDict[str, QueuedCommand] = OrderedDict()
        self._changed = threading.Condition(threading.RLock())
        self._ends = False
        self._queue_lock: int | None = None
        """Descriptor of the lock of the queue, held by the server that runs it; None: another server may run it."""
        self._worker: threading.Thread | None = None

    def resume(self) -> None:
        """Resume the jobs of an earlier server, unless another server runs the queue."""
        with suppress(RefusedRequest, OSError):
            if self.queue_folder.is_dir():
                self._claim()

    def add(
        self,
        scenario: str,
        name: str,
        question: str,
        sets: Sequence[str],
        cases: int,
        frozen: str,
        command: str = "run",
    ) -> QueuedCommand:
        """Return the job that runs *command* on the scenario text *frozen*; it is new unless it is in the queue.

        *name* and *question* determine its folder, so that different questions have different folders. *scenario* and
        *sets* state the origin of the text. Raises RefusedRequest.
        """
        folder = f"{OUTPUTS}/{_safe(name)}-{hashlib.sha256(question.encode()).hexdigest()[:8]}"
        self.workspace.path(folder)
        with self._changed:
            self._claim()
            for job in self._jobs.values():
                if job.folder == folder and job.state in OPEN_STATES:
                    return job
            self._refuse_crowd()
            shown = [one[:LONGEST_SHOWN] for one in sets]
            job = QueuedCommand(f"{time.time_ns()}-{os.urandom(3).hex()}", scenario, shown, folder, cases, command)
            self._place(job).mkdir(mode=0o700)
            write_atomically(self._place(job) / SCENARIO, frozen)
            self._keep(job)
            self._jobs[job.id] = job
            self._forget()
            self._notify()
        return job

    def again(self, name: str) -> QueuedCommand:
        """Queue the failed, cancelled or interrupted job *name* again. Raises RefusedRequest where there is none."""
        with self._changed:
            job = self._job(name)
            if job.state in RESTARTABLE:
                if any(one.folder == job.folder and one.state in OPEN_STATES for one in self._jobs.values()):
                    raise RefusedRequest(409, "the same run is in the queue already")
                self._refuse_crowd()
                self._set(job, WAITING, "")
        return job

    def cancel(self, name: str) -> QueuedCommand:
        """Stop the job *name*; its finished points are kept. Raises RefusedRequest where there is none."""
        with self._changed:
            job = self._job(name)
            if job.state in OPEN_STATES:
                self._set(job, CANCELLED, STOPPED)
        return job

    def listed(self) -> list[dict[str, Any]]:
        """Return all jobs as JSON data, the newest first."""
        with self._changed:
            return [job.as_data() for job in reversed(self._jobs.values())]

    @property
    def closed(self) -> bool:
        """True if the server is about to end."""
        return self._ends

    def close(self) -> None:
        """Stop the running job, which the next server resumes."""
        with self._changed:
            self._ends = True
            self._changed.notify_all()
        if self._worker is not None:
            self._worker.join(GRACE_S + 5)
        if self._queue_lock is not None:
            os.close(self._queue_lock)
            self._queue_lock = None

    def _job(self, name: str) -> QueuedCommand:
        job = self._jobs.get(name)
        if job is None:
            raise RefusedRequest(404, "there is no such run in the queue any more")
        return job

    def _refuse_crowd(self) -> None:
        if sum(job.state == WAITING for job in self._jobs.values()) >= MOST_WAITING:
            raise RefusedRequest(
                503, Message("{most_waiting} runs are waiting already; cancel one, or try again later", MOST_WAITING)
            )

    def _claim(self) -> None:
        """Take the lock of the queue and read its jobs. Raises RefusedRequest where another server holds it."""
        if self._queue_lock is not None:
            return
        for folder in (self.queue_folder.parent, self.queue_folder):
            if folder.is_symlink():
                raise RefusedRequest(
                    403, Message("{kept}: is a link, or lies behind one, and links are not followed", QUEUE_FOLDER)
                )
            folder.mkdir(mode=0o700, exist_ok=True)
        lock = _locked(self.queue_folder / LOCK)
        if lock is None:
            raise RefusedRequest(409, "another gpufleet serve works on the runs of this folder: start them there")
        self._queue_lock = lock
        for folder in sorted(path for path in self.queue_folder.iterdir() if path.is_dir()):
            if (found := _read(folder)) is not None:
                self._jobs[found.id] = found
        self._worker = threading.Thread(target=self._work, daemon=True)
        self._worker.start()

    def _work(self) -> None:
        """Follow the running jobs of an earlier server, then run the waiting jobs one after the other."""
        with self._changed:
            left = [one for one in self._jobs.values() if one.state == RUNNING]
        for running in left:
            self._guarded(running, False)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ends or self._next() is not None)
                job = self._next()
                if self._ends or job is None:
                    return
                for name in (PID, CODE):
                    with suppress(OSError):
                        (self._place(job) / name).unlink()
                self._set(job, RUNNING, "", time.time())
            self._guarded(job, True)

    def _guarded(self, job: QueuedCommand, starts: bool) -> None:
        """Follow *job* to its end, started first if *starts*; a failure is recorded in the job."""
        try:
            with confined(self.root, *program_folders()):
                process = self._start_process(job) if starts else None
                self._follow(job)
                if process is not None:
                    process.wait(GRACE_S)
        except Exception as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            with self._changed:
                self._set(job, FAILED, Message("it could not be started: {reason}", str(reason)[:LONGEST_SHOWN]))

    def _next(self) -> QueuedCommand | None:
        return next((job for job in self._jobs.values() if job.state == WAITING), None)

    def _start_process(self, job: QueuedCommand) -> "subprocess.Popen[bytes]":
        self.workspace.path(job.folder)  # the folder may have become a link
        place, machines = self._place(job), self.cluster or ["--workers", str(os.cpu_count() or 1)]
        roots = json.dumps([str(folder.resolve()) for folder in (self.root, place, *program_folders())])
        command = [*COMMAND, job.command, *OPTIONS, str(place / SCENARIO), "--out", job.folder, *machines]
        lock = _locked(place / LOCK)
        if lock is None:
            raise RefusedRequest(409, "its process still runs")
        try:
            with (place / STDERR_FILE).open("wb") as stderr:
                return subprocess.Popen(
                    [*RECORDING_WRAPPER, str(place / "run"), *command], cwd=self.root, start_new_session=True,
                    env=_environment(self.language) | {ROOTS: roots}, pass_fds=(lock,),
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr,
                )  # fmt: skip
        finally:
            os.close(lock)

    def _follow(self, job: QueuedCommand) -> None:
        """Watch *job* until its process has ended, whichever server has started it."""
        place, stopped_at, why = self._place(job), 0.0, ""
        while _is_locked(place / LOCK):
            with self._changed:
                self._changed.wait_for(
                    lambda: self._ends or job.state != RUNNING, 0.0 if stopped_at else CHECK_INTERVAL_S
                )
                done, stops = _points(self.root / job.folder), self._ends or job.state != RUNNING
                said = job.message if stops or not self.cluster else _stderr_tail(place).rpartition("\n")[2]
                if (done, said) != (job.done, job.message):
                    job.done, job.message = done, said
                    self._notify()
            pid, now = _number(place / PID), time.monotonic()
            if pid and not stopped_at:
                why = self._exceeded(job, pid)
                if stops or why:
                    stopped_at = now
                    _stop(pid, signal.SIGTERM)
            elif stopped_at:
                time.sleep(CHECK_INTERVAL_S)
                if pid and now - stopped_at > GRACE_S:
                    _stop(pid, signal.SIGKILL)
        with self._changed:
            job.done, code = _points(self.root / job.folder), _number(place / CODE)
            if job.state != RUNNING:
                self._notify()
            elif code == 0 and is_finished(self.root / job.folder):
                self._set(job, DONE, "")
            elif why:
                self._set(job, FAILED, joined("; ", [why, STOPPED]))
            elif self._ends or (
                code is None and not (place / PID).exists()
            ):  # the server ends, or was killed before the job started
                self._set(job, WAITING, "")
            elif code is None or code > SIGNALLED:
                self._set(job, INTERRUPTED, Message("its process was killed; {stopped}", STOPPED))
            else:
                self._set(job, FAILED, _stderr_tail(place) or "it ended before it finished")

    def _exceeded(self, job: QueuedCommand, pid: int) -> str:
        """Return the limit that the processes of *job* exceed, as a message; empty if none."""
        if time.time() - job.began > 3600 * self.limits.hours:
            return Message("it ran for longer than {hours:g} h (--run-hours) and was stopped", self.limits.hours)
        if self.limits.gigabytes and _resident_bytes(pid) > 1e9 * self.limits.gigabytes:
            return Message(
                "it needed more than {gigabytes:g} GB of memory (--run-gb) and was stopped", self.limits.gigabytes
            )
        return ""

    def _place(self, job: QueuedCommand) -> Path:
        return self.queue_folder / job.id

    def _set(self, job: QueuedCommand, state: str, message: str, began: float | None = None) -> None:
        """Change the state of *job*, in memory and on the disk."""
        job.state, job.message = state, message
        if began is not None:
            job.began = began
        with suppress(OSError):  # a full disk does not end the queue
            self._keep(job)
        self._notify()

    def _keep(self, job: QueuedCommand) -> None:
        write_atomically(self._place(job) / JOB, json.dumps(asdict(job)))

    def _forget(self) -> None:
        closed = [job for job in self._jobs.values() if job.state not in OPEN_STATES]
        for job in closed[: max(0, len(self._jobs) - MOST_KEPT)]:
            del self._jobs[job.id]
            shutil.rmtree(self._place(job), ignore_errors=True)

    def _notify(self) -> None:
        self.version += 1
        self._changed.notify_all()


def question_text(data: Any, sets: Sequence[str]) -> str:
    """Return the text that identifies a run: the whole content of its scenario."""
    return json.dumps([data, sorted(sets)], sort_keys=True, default=str)


def _read(folder: Path) -> QueuedCommand | None:
    """Read the job in *folder*; None where it holds none, as after a crash during its writing."""
    try:
        data = json.loads((folder / JOB).read_text(encoding="utf-8"))
        job = QueuedCommand(**{one.name: data[one.name] for one in fields(QueuedCommand)})
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return job if job.id == folder.name and (folder / SCENARIO).is_file() else None


def _locked(path: Path) -> int | None:
    """Take the lock *path* and return its descriptor; None where another process holds it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def _is_locked(path: Path) -> bool:
    """Return whether a process holds the lock *path*."""
    handle = _locked(path)
    if handle is not None:
        os.close(handle)
    return handle is None


def _number(path: Path) -> int | None:
    """Read the number in the file *path*; None where there is none yet."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _stderr_tail(place: Path) -> str:
    """Return the end of the stderr of a job's process."""
    with suppress(OSError), (place / STDERR_FILE).open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LAST_CHARACTERS))
        return file.read().decode("utf-8", "replace").strip()
    return ""


def _points(folder: Path) -> int:
    with suppress(OSError), os.scandir(folder / POINTS) as found:
        return sum(not one.name.startswith(".") for one in found)
    return 0


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", name).strip("-.")[:80] or "run"


def _stop(pid: int, how: signal.Signals) -> None:
    """Send the signal *how* to the processes of a run.

    SIGTERM is the signal that a batch system sends at the time limit: the command keeps its finished points and ends.
    """
    with suppress(OSError):
        os.killpg(pid, how)


def _machine_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0


def _resident_bytes(group: int) -> int:
    """Return the resident memory of all processes of the *group* [bytes]; 0 on systems other than Linux."""
    pages = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            values = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            pages += int(values[21]) if int(values[2]) == group else 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _environment(language: str) -> dict[str, str]:
    """Return the environment that runs this program in *language*, wherever the server was started."""
    above = str(Path(__file__).resolve().parents[2])
    found = os.pathsep.join(filter(None, [above, os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": found, OWN: language}


MOST_WATCHERS = 20
WATCHER_INTERVAL_S = 0.25
"""Interval at which a watcher's connection looks for changes [s]; it occupies no thread."""
CHECKS_PER_KEEP_ALIVE = 60
"""Number of checks without a change after which a watcher gets a keep-alive line."""


class JobRoutes:
    """Routes of the queue."""

    def __init__(self, workspace: Workspace, queue: CommandQueue) -> None:
        self.workspace, self.queue = workspace, queue
        self._watchers = 0

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the queue, keyed by URL path."""
        return [
            Route("/api/jobs", self.listed),
            Route("/api/jobs", self.start, methods=["POST"]),
            Route("/api/jobs/{name}", self.cancel, methods=["DELETE"]),
            Route("/api/jobs/{name}", self.again, methods=["POST"]),
            Route("/api/events", self.events),
        ]

    def listed(self, _: Request) -> JSONResponse:
        """Return all jobs, the newest first."""
        return JSONResponse({"jobs": self.queue.listed()})

    async def start(self, request: Request) -> JSONResponse:
        """Start a run of the scenario file `path` with the values `set`; no run is in the queue twice."""
        return await run_in_threadpool(self._start, await sent_scenario(request))

    def _start(self, sent: SentScenario) -> JSONResponse:
        path = self.workspace.file(sent.path)
        found = CHECKS.ask(CheckRequest(self.workspace.root, path, None, sent.sets))
        if found.errors:
            return JSONResponse({"errors": found.errors}, 422)
        question = question_text(found.data, sent.sets)
        job = self.queue.add(sent.path, found.name, question, sent.sets, found.cases, found.frozen)
        return JSONResponse({"job": job.as_data()})

    def again(self, request: Request) -> JSONResponse:
        """Start a failed, cancelled or interrupted job again, from its finished points."""
        return JSONResponse({"job": self.queue.again(request.path_params["name"]).as_data()})

    def cancel(self, request: Request) -> JSONResponse:
        """Stop a job; its finished points are kept."""
        return JSONResponse({"job": self.queue.cancel(request.path_params["name"]).as_data()})

    async def events(self, request: Request) -> StreamingResponse:
        """Send all jobs, now and at each change, as server-sent events."""
        if self._watchers >= MOST_WATCHERS:
            raise RefusedRequest(503, "too many pages show the queue; close some")
        return StreamingResponse(self._news(request), media_type="text/event-stream")

    async def _news(self, request: Request) -> AsyncIterator[str]:
        self._watchers += 1
        try:
            version, quiet = -1, 0
            while not self.queue.closed and not await request.is_disconnected():
                now = self.queue.version
                quiet = 0 if now != version else quiet + 1
                if now != version:
                    listed = await run_in_threadpool(self.queue.listed)
                    yield f"data: {json.dumps({'jobs': listed})}\n\n"
                elif quiet % CHECKS_PER_KEEP_ALIVE == 0:
                    yield ": still here\n\n"
                version = now
                await asyncio.sleep(WATCHER_INTERVAL_S)
        finally:
            self._watchers -= 1
