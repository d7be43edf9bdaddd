"""Cases on a dask.distributed cluster: the same points, the same bytes, whatever becomes of a worker.

Workers need gpufleet and nothing else: no shared disk, no catalogue, no trace. What a scenario reads travels with it,
once to each worker; a finished case comes back as an archive of its folder and is stored here. A worker that is lost
takes no result along: the scheduler gives its cases to others.
"""

import hashlib
import io
import json
import logging
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from distributed import Client, Future, KilledWorker, as_completed

from sim.catalogue.catalog import Catalog
from sim.registry import Registration, enter, entered
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case, as_data, at_point
from sim.study.cases.durable import whole_folder
from sim.study.cases.execute import Call, Job, catalog_of
from sim.study.cases.inputs import FILE_KEYS, files_of, program_digest

CONNECT_S, WORKERS_S = 10, 30
"""How long a scheduler may take to answer, and a worker to be there."""
TLS_SETTINGS = "set DASK_DISTRIBUTED__COMM__TLS__CA_FILE, ..__TLS__CLIENT__CERT and ..__TLS__CLIENT__KEY"
LOOK_S = 2.0
"""Time between two looks for whether any worker is left."""


class ClusterError(Exception):
    """The cluster cannot be used as it is; the message says why."""


class Cluster:
    """The workers of the scheduler at *address*; connected with the first job, until the context ends.

    All methods raise ClusterError.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._client: Client | None = None
        self._coming: Any = None
        self._jobs: dict[Future[tuple[bytes, ...]], Job] = {}
        self._inputs: dict[tuple[str, ...], Future[bytes]] = {}
        """What is read from files -> the archive that has been sent."""

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
            self._coming = as_completed([], loop=self._client.loop, with_results=True)
        return self._client

    def submit(self, job: Job) -> None:
        """One more job to do."""
        client = self._connected()
        inputs = self._sent(client, _at(job), job.catalog)  # money names no files
        asked = [(_at(one), replace(one.case, overrides={}), one.folder.name) for one in job.members]
        known = [one.foundations() for one in job.members]
        future = client.submit(simulate_there, _program(), inputs, asked, known, pure=False)
        self._jobs[future] = job
        self._coming.add(future)

    def finished(self) -> Job:
        """Waits for one of the submitted jobs, and stores it here."""
        future, archives = self._answer(self._coming)
        job = self._jobs.pop(future)
        for one, archive in zip(job.members, archives, strict=True):
            unpack(archive, one.folder)
        return job

    def map(self, call: Call, items: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """(place, value) of *call* for each of *items*, in any order."""
        if not items:
            return
        client = self._connected()
        inputs = self._sent(client, call.scenario, call.catalog)
        known = _program(), inputs, _policies(call.scenario)
        places = {
            client.submit(call_there, *known, call.function, call.scenario, item, pure=False): place
            for place, item in enumerate(items)
        }
        coming = as_completed(list(places), loop=client.loop, with_results=True)
        for _ in items:
            future, (value,) = self._answer(coming)
            yield places[future], value

    def _sent(self, client: Client, scenario: Scenario, catalog: Catalog) -> Future[bytes]:
        """What *scenario* rests on, as a task of its own, so that what was lost with a worker is made again."""
        files = tuple(dict.fromkeys(map(str, files_of(as_data(scenario)))))
        key = (str(catalog.root), *files)
        if key not in self._inputs:
            self._inputs[key] = client.submit(_itself, packed(files, catalog), pure=False)
        return self._inputs[key]

    def _answer(self, coming: Any) -> tuple[Any, Any]:
        """The next future that is done, and its result."""
        self._await(coming)
        try:
            future, result = next(coming)
        except KilledWorker as error:
            raise ClusterError(f"one job has cost several workers: {error}") from None
        if not isinstance(result, tuple):  # what dask gives for a future that nobody works on any more
            raise self._gone()
        return future, result

    def _gone(self) -> ClusterError:
        return ClusterError(f"the scheduler at {self._address} is gone; what was finished is kept")

    def _await(self, coming: Any) -> None:
        """Until something is done. Raises ClusterError where for `WORKERS_S` nobody has been there to do it."""
        assert self._client is not None  # something has been submitted
        scheduler = self._client.scheduler
        assert scheduler is not None
        alone_since = None
        while not coming.has_ready() and self._client.status == "running":
            now = time.monotonic()
            try:
                # nthreads() has no time limit of its own and looks minutes long for a scheduler that has just gone
                working = self._client.sync(scheduler.ncores_running, callback_timeout=LOOK_S)
            except TimeoutError:
                continue  # slow, or gone: then the status says so by now
            except OSError:
                raise self._gone() from None
            if working:
                alone_since = None
            elif alone_since is None:
                alone_since = now
            elif now - alone_since > WORKERS_S:
                raise ClusterError(f"no worker is left at {self._address}; what was finished is kept")
            until = now + LOOK_S
            while not coming.has_ready() and time.monotonic() < until:
                time.sleep(0.01)


def _connected(address: str) -> Client:
    for name in ("distributed", "distributed.client"):  # a lost connection is reported as a ClusterError
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = Client(address, timeout=CONNECT_S, set_as_default=False)
    except TypeError:
        raise ClusterError(f"{address} needs certificates: {TLS_SETTINGS}") from None
    except (OSError, ValueError) as error:
        raise ClusterError(f"no scheduler answers at {address}: {error}") from None
    try:
        client.wait_for_workers(1, timeout=WORKERS_S)
    except TimeoutError:
        client.close()
        raise ClusterError(f"no worker has joined the scheduler at {address}") from None
    return client


def _at(job: Job) -> Scenario:
    """Its scenario at its point, which may name files of its own."""
    return at_point(job.scenario, job.case.overrides)


def _itself(value: bytes) -> bytes:
    """A task of its own, so that what was lost with a worker is made again."""
    return value


def _program() -> str:
    """The program, to the last byte: another one on a worker would give other results."""
    return program_digest()


def _policies(scenario: Scenario) -> list[Registration]:
    """The registered policies that *scenario* names: those of its fleets would travel in it, those of its sweep not."""
    said = json.dumps(as_data(scenario))
    return [one for one in entered() if json.dumps(one.name) in said]


def packed(files: Iterable[str], catalog: Catalog) -> bytes:
    """An archive of the catalogue as `data` and of *files* as `files/<digest>`."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as archive:
        for file in sorted(path for path in catalog.root.rglob("*") if path.is_file()):
            archive.write(file, f"data/{file.relative_to(catalog.root)}")
        for path in files:
            archive.write(path, f"files/{_place(Path(path))}")
    return held.getvalue()


def _place(path: Path) -> str:
    """Where a file lies on a worker: in a folder of its own, below one with the name of its folder here."""
    folder = path.parent.name if path.parent.name not in ("", "..") else "_"
    return f"{hashlib.sha256(str(path).encode()).hexdigest()[:12]}/{folder}/{path.name}"


Asked = tuple[Scenario, Case, str]
"""A scenario at the point of a case, the case, and the name of its folder."""


def simulate_there(
    program: str, inputs: bytes, asked: Sequence[Asked], foundations: Sequence[dict[str, str]]
) -> tuple[bytes, ...]:
    """On a worker: the archive of the folder of each case *asked* for, which are one job; what each rests on stands in
    *foundations*.

    Raises ClusterError where the worker runs another program.
    """
    with tempfile.TemporaryDirectory(prefix="gpufleet-") as folder:
        jobs = []
        for scenario, case, point in asked:
            there, catalog = _there(program, inputs, scenario)
            jobs.append(Job(there, case, Path(folder) / point, catalog))
        replace(jobs[0], beside=tuple(jobs[1:])).run(foundations)
        return tuple(archived(job.folder) for job in jobs)


def call_there(
    program: str,
    inputs: bytes,
    policies: list[Registration],
    function: Callable[..., Any],
    scenario: Scenario,
    item: tuple[Any, ...],
) -> tuple[Any]:
    """On a worker that knows no *policies* yet: the value of *function*.

    Raises ClusterError where the worker runs another program.
    """
    enter(policies)
    return (function(*_there(program, inputs, scenario), *item),)


def _there(program: str, inputs: bytes, scenario: Scenario) -> tuple[Scenario, Catalog]:
    """*scenario* with the paths of its files as they are on this worker, and its catalogue."""
    if program != _program():
        raise ClusterError(f"this is gpufleet {program}, a worker has {_program()}: install the same on both")
    root = _unpacked(hashlib.sha256(inputs).hexdigest(), inputs)
    return _relocated(scenario, root / "files"), catalog_of(root / "data")


_UNPACKED: dict[str, tempfile.TemporaryDirectory[str]] = {}
"""Digest of inputs -> where they lie on this worker, until the process ends."""


def _unpacked(digest: str, inputs: bytes) -> Path:
    if digest not in _UNPACKED:
        folder = tempfile.TemporaryDirectory(prefix="gpufleet-inputs-")
        with zipfile.ZipFile(io.BytesIO(inputs)) as archive:
            archive.extractall(folder.name)
        _UNPACKED[digest] = folder
    return Path(_UNPACKED[digest].name)


def _relocated(scenario: Scenario, files: Path) -> Scenario:
    """*scenario* with the paths of its files as they are on this worker."""

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
    """The files of *folder* as one archive."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for path in sorted(folder.iterdir()):
            archive.write(path, path.name)
    return held.getvalue()


def unpack(archive: bytes, folder: Path) -> None:
    """Puts the files of *archive* into *folder*, which appears complete or not at all."""
    with whole_folder(folder) as building, zipfile.ZipFile(io.BytesIO(archive)) as files:
        files.extractall(building)
