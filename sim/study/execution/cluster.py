"""Cases on a dask.distributed cluster, with the same results as on one machine, also when workers fail.

Workers need gpufleet and nothing else: no shared disk, no catalogue, no trace. The files that a scenario reads are sent
with it, once to each worker; a finished case comes back as an archive of its folder and is stored here. When a worker
is lost, the scheduler reassigns its cases. A worker with another version of the program is reported and gets no cases,
and a case that runs far longer than its siblings is also started on an idle worker.
"""

import asyncio
import hashlib
import io
import json
import logging
import platform
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from queue import Empty, SimpleQueue
from statistics import median
from types import TracebackType
from typing import Any, Self

from distributed import Client, Future, KilledWorker, Security, get_worker
from distributed.comm.core import connect

from sim.catalogue.catalog import Catalog
from sim.infile import opened
from sim.message import Message
from sim.registry import Registration, enter, entered
from sim.scenario.reading.layers import FILE_KEYS, files_of
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case, as_data, at_point
from sim.study.execution.cases import Call, CaseJob, catalog_of
from sim.study.execution.digest import files_below, program_digest
from sim.study.execution.durable import atomic_folder

CONNECT_S, WORKERS_S = 10, 30
"""Default limits [s]: on the scheduler's answer, and on the time that a run continues without any worker."""
TLS_SETTINGS = "set DASK_DISTRIBUTED__COMM__TLS__CA_FILE, ..__TLS__CLIENT__CERT and ..__TLS__CLIENT__KEY"
REFRESH_S = 2.0
"""Time between two checks of the workers and their programs [s]."""
LONG_FACTOR, LONG_LEAST_S, LEAST_SIBLINGS = 3.0, 10.0, 3
"""Definition of a straggler.

In order: its run time over the median of its finished siblings; its least run time [s]; the number of siblings that
must have finished before.
"""
PACKAGES = ("numpy", "scipy", "simpy", "pydantic")
"""Packages whose version may change a result."""


class ClusterError(Exception):
    """Error of a cluster that cannot be used as it is; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class ProgramMismatch:
    """Answer of a worker with another program, in place of a result."""

    address: str
    program: dict[str, str]


@dataclass(slots=True, eq=False)
class _Work:
    """Submitted call, with its copies on the workers."""

    what: Any
    """Job of the call, or position of its item."""
    call: tuple[Any, ...]
    """Function and arguments."""
    futures: list[Future[Any]] = field(default_factory=list)
    since_s: float | None = None
    """Time of the first check at which a worker had the call [s]."""
    tries: int = 0
    """Attempts that ended on a worker with another program."""


class SubmittedCalls:
    """Submitted calls of one kind, whose results come in any order."""

    def __init__(self) -> None:
        self.done: SimpleQueue[Future[Any]] = SimpleQueue()
        self.open: dict[Future[Any], _Work] = {}
        self.parked: list[_Work] = []
        """Calls that wait for a worker with this program."""
        self.lost: list[Future[Any]] = []
        """Futures whose result was lost with its worker, until the scheduler has computed it again."""
        self.took_s: list[float] = []


class Cluster:
    """Workers of the scheduler at *address*; the connection lasts from the first job to the end of the context.

    Parameters
    ----------
    address
        Address of the dask scheduler.
    wait_s
        Time that the run continues without any worker [s].
    report
        Callback for a sentence about each worker that is left out and each case that is copied.

    Raises
    ------
    ClusterError
        By all methods, where the cluster cannot be used.

    """

    def __init__(
        self, address: str, wait_s: float | None = None, report: Callable[[str], None] = lambda sentence: None
    ) -> None:
        self._address = address
        self._wait_s = WORKERS_S if wait_s is None else wait_s
        self._report = report
        self._client: Client | None = None
        self._jobs = SubmittedCalls()
        self._inputs: dict[tuple[str, ...], Future[bytes]] = {}
        """Catalogue root and paths of the files that a scenario names -> archive that has been sent."""
        self._fit: set[str] = set()
        """Addresses of the workers that are present and have this program."""
        self._working: set[str] = set()
        """Addresses of the workers that had a call at the last check."""
        self._mismatched: dict[str, str] = {}
        """Address of a worker -> differences of its program from this one."""
        self._bound: set[str] = set()
        """Addresses to which all open work is bound; empty where it is not bound."""
        self._any_joined = False
        self._refreshed_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            self._client.close()

    def _connected(self) -> Client:
        if self._client is None:
            self._client = _connected(self._address)
            self._refresh_workers()
        return self._client

    def submit(self, job: CaseJob) -> None:
        """Give *job* to the workers."""
        client = self._connected()
        # prices and terms name no files, so the files of *job* suffice for its repricings
        inputs = self._send_inputs(client, _scenario_at_point(job), job.catalog)
        batch = [(_scenario_at_point(one), replace(one.case, overrides={}), one.folder.name) for one in job.members]
        known = [one.foundations() for one in job.members]
        self._start(self._jobs, _Work(job, (simulate_on_worker, _program(), inputs, batch, known)))

    def finished(self) -> CaseJob:
        """Wait for one of the submitted jobs, and store its result here."""
        job, archives = self._answer(self._jobs)
        for one, archive in zip(job.members, archives, strict=True):
            unpack(archive, one.folder)
        return job  # type: ignore[no-any-return]

    def map(self, call: Call, items: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """Yield (place, value) of *call* for each of *items*, in any order."""
        if not items:
            return
        client = self._connected()
        inputs = self._send_inputs(client, call.scenario, call.catalog)
        known = _program(), inputs, _policies(call.scenario)
        group = SubmittedCalls()
        for place, item in enumerate(items):
            self._start(group, _Work(place, (call_on_worker, *known, call.function, call.scenario, item)))
        for _ in items:
            place, (value,) = self._answer(group)
            yield place, value

    def _send_inputs(self, client: Client, scenario: Scenario, catalog: Catalog) -> Future[bytes]:
        """Send the files that *scenario* names and its catalogue, as a task, so that a lost copy is made again.

        The task is a builtin function, which a worker without this program computes as well.
        """
        files = tuple(dict.fromkeys(map(str, files_of(as_data(scenario)))))
        key = (*map(str, catalog.folders), *files)
        if key not in self._inputs:
            self._inputs[key] = client.submit(bytes, packed(files, catalog), pure=False)
        return self._inputs[key]

    def _start(self, group: SubmittedCalls, work: _Work, on: str | None = None) -> None:
        """Submit *work* to the worker *on* or to any with this program; set it aside where there is none."""
        assert self._client is not None
        workers = [on] if on else sorted(self._fit) if self._mismatched else None
        if workers == []:
            group.parked.append(work)
            return
        self._follow(group, work, self._client.submit(*work.call, pure=False, workers=workers))

    def _follow(self, group: SubmittedCalls, work: _Work, future: Future[Any]) -> None:
        """Put *future*, a copy of *work*, into the queue of finished calls once it is done."""
        work.futures.append(future)
        group.open[future] = work
        if future.status == "lost":  # dask counts it as done
            group.lost.append(future)
        else:
            future.add_done_callback(group.done.put)

    def _answer(self, group: SubmittedCalls) -> tuple[Any, Any]:
        """Wait for a call of *group*; return its job or position, and its result."""
        while True:
            future = self._next_done(group)
            work = group.open.pop(future, None)
            if work is None:
                continue  # a copy of a call that has been answered
            work.futures.remove(future)
            try:
                if future.status == "cancelled":
                    raise self._lost_scheduler()
                if future.status == "lost":
                    raise TimeoutError
                result = future.result(timeout=CONNECT_S)
            except KilledWorker as error:
                raise ClusterError(Message("one simulation has ended several workers: {error}", error)) from None
            except TimeoutError:
                if future.status == "error":
                    raise
                # the worker with the result has left: the scheduler computes the result again
                self._follow(group, work, future)
                continue
            except ClusterError:
                raise
            except Exception:
                self._refresh_workers()
                if not self._mismatched or work.tries:
                    raise
                # any error counts as a mismatch, because a worker with another program may fail in any way
                result = ProgramMismatch("", {})
            if isinstance(result, ProgramMismatch):
                work.tries += 1
                self._leave_out(result.address, result.program)
                if not work.futures:
                    self._start(group, work)
                continue
            for other in work.futures:
                group.open.pop(other, None)
            if work.futures:
                self._client.cancel(work.futures, force=True)  # type: ignore[union-attr]
            # a call that no check has seen running ran between two checks
            group.took_s.append(REFRESH_S if work.since_s is None else time.monotonic() - work.since_s)
            return work.what, result

    def _lost_scheduler(self) -> ClusterError:
        return ClusterError(
            Message("the scheduler at {address} no longer answers; finished cases are kept", self._address)
        )

    def _next_done(self, group: SubmittedCalls) -> Future[Any]:
        """Wait until a call is done, and return its future.

        Raises
        ------
        ClusterError
            Where no worker has been present for the time to wait.

        """
        assert self._client is not None  # set by the first submitted call
        alone_since = time.monotonic()
        while True:
            for future in [one for one in group.lost if one.status != "lost"]:
                group.lost.remove(future)
                future.add_done_callback(group.done.put)
            if self._client.status != "running" and group.done.empty():
                raise self._lost_scheduler()
            now = time.monotonic()
            if now - self._refreshed_s > REFRESH_S:
                if self._refresh_workers():
                    alone_since = now
                    try:
                        self._reschedule(group, now)
                    except OSError:
                        raise self._lost_scheduler() from None
                elif now - alone_since > self._wait_s and group.done.empty():
                    raise self._without_workers()
            try:
                return group.done.get(timeout=REFRESH_S)
            except Empty:
                continue

    def _without_workers(self) -> ClusterError:
        if self._mismatched:
            found = "; ".join(f"{address} has {other}" for address, other in self._mismatched.items())
            return ClusterError(
                Message(
                    "no worker at {address} has this program: {found}: install the same on both", self._address, found
                )
            )
        if self._any_joined:
            return ClusterError(Message("no worker is left at {address}; finished cases are kept", self._address))
        return ClusterError(
            Message(
                "no worker has joined the scheduler at {address} in {wait_s:g} s (--wait)", self._address, self._wait_s
            )
        )

    def _refresh_workers(self) -> set[str]:
        """Refresh the set of workers, and return the addresses of those with this program."""
        assert self._client is not None
        scheduler = self._client.scheduler
        assert scheduler is not None
        try:
            # nthreads() has no time limit: it would wait minutes for a scheduler that has just stopped
            there = set(self._client.sync(scheduler.ncores_running, callback_timeout=REFRESH_S))
            new = sorted(there - self._fit - self._mismatched.keys())
            answers = self._client.run(worker_program, workers=new, on_error="return") if new else {}
        except TimeoutError:
            return self._fit  # the scheduler is slow or gone, which its connection status will soon show
        except OSError:
            raise self._lost_scheduler() from None
        self._refreshed_s = time.monotonic()
        self._any_joined |= bool(there)
        for address in sorted(self._working - there):
            self._report(Message("worker {address} is lost; its simulations run again elsewhere", address))
        self._working &= there
        for address in new:
            if answers.get(address) != _program():
                self._leave_out(address, answers.get(address))
        self._fit = there - self._mismatched.keys()
        return self._fit

    def _leave_out(self, address: str, program: Any) -> None:
        """Stop giving work to the worker at *address*, which has another *program*."""
        if not address or address in self._mismatched:
            return
        self._mismatched[address] = other = _difference(program)
        self._fit.discard(address)
        self._report(
            Message("worker {address} has {difference}: it gets no cases; install the same on both", address, other)
        )

    def _reassign(self, group: SubmittedCalls) -> None:
        """Allow open work on all workers with this program, so that workers that join later get a share of it."""
        assert self._client is not None
        scheduler = self._client.scheduler
        assert scheduler is not None
        keys = [one.key for one in group.open if not one.done()]
        try:
            self._client.sync(scheduler.set_restrictions, worker=dict.fromkeys(keys, sorted(self._fit)))
        except KeyError:
            return  # some calls have not reached the scheduler yet: the next check tries again
        self._bound = set(self._fit)

    def _reschedule(self, group: SubmittedCalls, now: float) -> None:
        """Start work that was set aside or has lost its workers, and copies of stragglers on idle workers."""
        assert self._client is not None
        parked, group.parked = group.parked, []
        for work in parked:
            self._start(group, work)
        if self._mismatched and self._bound != self._fit:
            self._reassign(group)
        buffer: dict[str, Sequence[Any]] = self._client.processing()
        worker_of = {str(key): address for address, keys in buffer.items() for key in keys}
        self._working = set(worker_of.values())
        works = list({id(work): work for work in group.open.values()}.values())
        for work in works:
            running = [one for one in work.futures if str(one.key) in worker_of]
            if running and work.since_s is None:
                work.since_s = now
            elif not running and self._mismatched and not any(one.done() for one in work.futures):
                # the call is bound to workers that have left, or not bound at all
                for future in work.futures:
                    group.open.pop(future, None)
                self._client.cancel(work.futures)
                work.futures, work.since_s = [], None
                self._start(group, work)
        idle = sorted(self._fit - {address for address, keys in buffer.items() if keys})
        if not idle or len(group.took_s) < LEAST_SIBLINGS:
            return
        most_s = max(LONG_LEAST_S, LONG_FACTOR * median(group.took_s))
        slow = [
            one for one in works if one.since_s is not None and now - one.since_s > most_s and len(one.futures) == 1
        ]
        slow = [one for one in slow if str(one.futures[0].key) in worker_of]
        for work, address in zip(sorted(slow, key=lambda one: one.since_s or 0.0), idle, strict=False):
            there, took_s = worker_of[str(work.futures[0].key)], now - (work.since_s or 0.0)
            self._report(
                Message(
                    "a case runs for {took_s:.0f} s on {there}; it is started on {address}, too", took_s, there, address
                )
            )
            self._start(group, work, address)


def _difference(program: Any) -> str:
    """Return a description of the differences of *program*, a worker's answer, from this program."""
    if not isinstance(program, Mapping):
        return Message("no gpufleet that answers ({error})", type(program).__name__)
    mine = _program()
    other = [name for name in dict(mine) | dict(program) if mine.get(name) != program.get(name)]
    return ", ".join(
        Message("{name} {theirs} instead of {ours}", name, program.get(name, "missing"), mine.get(name, "none"))
        for name in other
    )


def _connected(address: str) -> Client:
    # a lost connection is reported as a ClusterError, so dask need not log it
    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        asyncio.run(_reach(address))
        return Client(address, timeout=CONNECT_S, set_as_default=False)
    except TypeError:
        raise ClusterError(Message("{address} needs certificates: {settings}", address, TLS_SETTINGS)) from None
    except (OSError, ValueError) as error:
        raise ClusterError(Message("no scheduler answers at {address}: {error}", address, error)) from None


async def _reach(address: str) -> None:
    """Open and close a connection to *address*: a `Client` that fails to connect leaves its thread running."""
    connection = await connect(address, timeout=CONNECT_S, **Security().get_connection_args("client"))
    await connection.close()


def _scenario_at_point(job: CaseJob) -> Scenario:
    """Return the scenario of *job* at its sweep point, which may name files of its own."""
    return at_point(job.scenario, job.case.overrides)


@cache
def _program() -> dict[str, str]:
    """Return the versions that must be equal on a worker for equal results: program, Python and packages."""
    found = {"gpufleet": program_digest(), "Python": ".".join(platform.python_version_tuple()[:2])}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    return found


def worker_program() -> dict[str, str]:
    """Return the program of the worker that calls this function."""
    return _program()


def _mismatched(program: dict[str, str]) -> ProgramMismatch | None:
    """Return, on a worker, its answer if its program differs from *program*; None if they are equal."""
    return ProgramMismatch(get_worker().address, _program()) if program != _program() else None


def _policies(scenario: Scenario) -> list[Registration]:
    """Return the registered policies that *scenario* and its sweep name: a scenario does not contain their code."""
    text = json.dumps(as_data(scenario))
    return [one for one in entered() if json.dumps(one.name) in text]


def packed(files: Iterable[str], catalog: Catalog) -> bytes:
    """Return an archive of the catalogue as `data` and `own/<number>`, and of *files* as `files/<digest>`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as archive:
        for place, file in files_below(catalog.root):
            archive.write(file, f"data/{place}")
        for number, folder in enumerate(catalog.own):
            for place, file in files_below(folder, ".yaml"):
                archive.write(file, f"own/{number:03}/{place}")
        for path in files:
            with opened(path) as named:  # a run of the workspace reads no other files, through no link
                archive.writestr(zipfile.ZipInfo(f"files/{_place(Path(path))}"), named.read(), zipfile.ZIP_DEFLATED, 3)
    return buffer.getvalue()


def _place(path: Path) -> str:
    """Return the path of a file on a worker: in its own folder, below a folder with the name of its folder here."""
    folder = path.parent.name if path.parent.name not in ("", "..") else "_"
    return f"{hashlib.sha256(str(path).encode()).hexdigest()[:12]}/{folder}/{path.name}"


CaseInputs = tuple[Scenario, Case, str]
"""Scenario at the sweep point of a case, the case, and the name of its folder."""


def simulate_on_worker(
    program: dict[str, str], inputs: bytes, batch: Sequence[CaseInputs], foundations: Sequence[dict[str, str]]
) -> tuple[bytes, ...] | ProgramMismatch:
    """Simulate, on a worker, the cases of one job.

    Parameters
    ----------
    program
        Program of the command, which the worker's must equal.
    inputs
        Archive made by `packed`.
    batch
        Cases of the job.
    foundations
        Digests of the inputs of each case.

    Returns
    -------
    tuple of bytes or ProgramMismatch
        Archive of each case's folder.

    """
    if (mismatch := _mismatched(program)) is not None:
        return mismatch
    with tempfile.TemporaryDirectory(prefix="gpufleet-") as folder:
        jobs = []
        for scenario, case, point in batch:
            there, catalog = _on_worker(inputs, scenario)
            jobs.append(CaseJob(there, case, Path(folder) / point, catalog))
        replace(jobs[0], repricings=tuple(jobs[1:])).run(foundations)
        return tuple(archived(job.folder) for job in jobs)


def call_on_worker(
    program: dict[str, str],
    inputs: bytes,
    policies: list[Registration],
    function: Callable[..., Any],
    scenario: Scenario,
    item: tuple[Any, ...],
) -> tuple[Any] | ProgramMismatch:
    """Call *function*, on a worker, with the scenario, its catalogue and *item*, after registering *policies*.

    Return a tuple of its value, or ProgramMismatch where the worker's program differs from *program*.
    """
    if (mismatch := _mismatched(program)) is not None:
        return mismatch
    enter(policies)
    return (function(*_on_worker(inputs, scenario), *item),)


def _on_worker(inputs: bytes, scenario: Scenario) -> tuple[Scenario, Catalog]:
    """Return *scenario* with the paths of its files on this worker, and its catalogue."""
    root = _unpack(hashlib.sha256(inputs).hexdigest(), inputs)
    return _relocated(scenario, root / "files"), catalog_of((root / "data", *sorted((root / "own").glob("*"))))


_UNPACKED: dict[str, tempfile.TemporaryDirectory[str]] = {}
"""Digest of inputs -> their folder on this worker, kept until the process ends."""


def _unpack(digest: str, inputs: bytes) -> Path:
    if digest not in _UNPACKED:
        folder = tempfile.TemporaryDirectory(prefix="gpufleet-inputs-")
        with zipfile.ZipFile(io.BytesIO(inputs)) as archive:
            archive.extractall(folder.name)
        _UNPACKED[digest] = folder
    return Path(_UNPACKED[digest].name)


def _relocated(scenario: Scenario, files: Path) -> Scenario:
    """Return *scenario* with the paths of its files on this worker."""

    def moved(data: Any, key: str = "") -> Any:
        if isinstance(data, dict):
            return {name: moved(value, str(name).rpartition(".")[2]) for name, value in data.items()}
        if isinstance(data, list):
            return [moved(value, key) for value in data]
        if key in FILE_KEYS and isinstance(data, str):
            for path in (Path(data), Path(data) / "config.json"):  # a model may be a folder
                if (files / _place(path)).is_file():
                    return str(files / _place(path))
        return data

    return Scenario.model_validate(moved(as_data(scenario)))


def archived(folder: Path) -> bytes:
    """Return the files of *folder* as one archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path in sorted(folder.iterdir()):
            archive.write(path, path.name)
    return buffer.getvalue()


def unpack(archive: bytes, folder: Path) -> None:
    """Extract the files of *archive* to *folder*, which appears complete or not at all."""
    with atomic_folder(folder) as building, zipfile.ZipFile(io.BytesIO(archive)) as files:
        files.extractall(building)
