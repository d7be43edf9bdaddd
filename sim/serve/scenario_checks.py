"""Checks of the page's scenarios in separate processes, and the fields of a form.

A check that takes too long is stopped by ending its process. The process reads no files outside the workspace.
"""

import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

from sim.catalogue.catalog import Catalog, load_catalog, own_folders
from sim.infile import confined
from sim.jobs.load import load_job
from sim.language import N_, _, current, speaking, translate_rendered
from sim.message import Message
from sim.scenario.reading.errors import InputError, ScenarioErrors
from sim.scenario.reading.layers import place_of, value_at
from sim.scenario.reading.load import has_job, load
from sim.scenario.resolving.case import resolve
from sim.scenario.schema import Scenario
from sim.scenario.sweep import as_data, cases
from sim.serve import own_numbers
from sim.serve.refusals import WRONG_INPUT, RefusedRequest, error_data
from sim.serve.workspace import program_folders
from sim.yamlio import Document, YamlError, dump, read_text

USUAL = (
    ("model", N_("Model"), "models"),
    ("quantization", N_("Precision of the weights"), "quantizations"),
    ("workload.arrivals.rate_rps", N_("Requests per second"), ""),
    ("workload.lengths.prompt.mean", N_("Prompt, mean [tokens]"), ""),
    ("workload.lengths.output.mean", N_("Answer, mean [tokens]"), ""),
    ("slo.ttft_s", N_("TTFT at most [s]"), ""),
    ("slo.tpot_s", N_("TPOT at most [s]"), ""),
    ("site.electricity_usd_per_kwh", N_("Electricity [USD/kWh]"), ""),
    ("horizon_s", N_("Simulated time [s]"), ""),
    ("replications", N_("Replications"), ""),
)
"""Fields of the form: path, label, and the kind of catalogue entries that are its values (empty: any value)."""
OF_POOLS = (
    ("gpu", N_("GPU"), "gpus"),
    ("replicas", N_("replicas"), ""),
    ("tensor_parallel_size", N_("tensor parallel"), ""),
)
"""Fields of each pool in the form: key, label, kind of catalogue entries."""


@dataclass(frozen=True, slots=True)
class Field:
    """Field of the form."""

    path: str
    """Dotted path of the input, as in `--set`."""
    label: str
    value: Any
    choices: list[str] = field(default_factory=list)
    """Possible values; empty: any number or text."""


def fields_of(data: dict[str, Any], catalog: Catalog) -> list[Field]:
    """Return the fields that the scenario *data* has; a swept load is the list of its values."""
    found = [_field(data, path, _(label), shelf, catalog) for path, label, shelf in USUAL]
    for i, fleet in enumerate(data.get("fleets") or []):
        pools = fleet.get("pools") if isinstance(fleet, dict) else None
        for j, _pool in enumerate(pools if isinstance(pools, list) else []):
            name = f"{fleet.get('name', i)}"
            if len(pools or []) > 1:
                name = _("{fleet}, pool {number}", fleet=name, number=j + 1)
            for key, label, shelf in OF_POOLS:
                place = f"fleets.{i}.pools.{j}.{key}"
                found.append(_field(data, place, _("{name}: {label}", name=name, label=_(label)), shelf, catalog))
    return [one for one in found if one is not None]


def _field(data: dict[str, Any], path: str, label: str, shelf: str, catalog: Catalog) -> Field | None:
    sweep = data.get("sweep")
    swept = sweep.get(path) if isinstance(sweep, dict) else None
    if isinstance(swept, list):
        of_all = _("{label}, values of the sweep", label=label)
        return Field(f"sweep.{path}", of_all, swept)
    try:
        value = value_at(data, place_of(data, path))
    except LookupError:
        return None
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return None
    return Field(path, label, value, catalog.ids(shelf) if shelf else [])


MOST_AT_ONCE = min(4, os.cpu_count() or 1)
"""Largest number of concurrent checks."""
MOST_WAITING = 8
"""Largest number of waiting checks; further ones are refused with 503."""
LONGEST_S = 30
"""Longest time of a check [s]."""
MOST_BYTES = 4 << 30
"""Memory that a check may reserve beyond that of the program [bytes]; Linux only."""
TOO_LONG = Message(
    "the check took longer than {limit} s and was stopped: name a smaller trace or fewer points", LONGEST_S
)
TOO_LARGE = Message(
    "the check needs more than {limit} GB of memory: name a smaller trace or fewer points", MOST_BYTES >> 30
)


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """Scenario to check."""

    root: Path
    """Folder of the workspace."""
    path: Path
    """Path of the scenario's file, which need not exist."""
    text: str | None
    """Text of the scenario; None: as in the file."""
    sets: Sequence[str]
    language: str = field(default_factory=current)
    form: dict[str, Any] | None = None
    """Values of the form to write into the text, empty to read them only; None: without the form."""


@dataclass(frozen=True, slots=True)
class CheckedScenario:
    """Result of a check."""

    errors: list[dict[str, str | int]] = field(default_factory=list)
    fields: list[dict[str, Any]] = field(default_factory=list)
    """Common fields, for a form."""
    cases: int = 0
    """Number of cases to simulate; 0 for kinds of scenarios without cases."""
    name: str = ""
    data: Any = None
    """Whole scenario, with its bases and overrides; None where it has errors."""
    text: str = ""
    """Text of the scenario with the values of the form."""
    numbers: dict[str, Any] | None = None
    """Values of the form; None for a scenario of another kind."""

    @property
    def frozen(self) -> str:
        """Checked scenario as a single file without bases."""
        return dump(self.data)


def document_of(text: str, path: Path) -> Document:
    """Parse *text* as the content of the file *path*. Raises ScenarioErrors."""
    try:
        document = read_text(text, str(path), patient=True)
    except YamlError as error:
        raise ScenarioErrors([InputError(error.path, error.line, "", error.message)]) from None
    if not isinstance(document.data, dict):
        raise ScenarioErrors([InputError(str(path), 0, "", "a scenario is a mapping: name: ..., fleets: ...")])
    return document


def checked(wanted: CheckRequest) -> CheckedScenario:
    """Check the scenario of *wanted* in this process."""
    fields: list[dict[str, Any]] = []
    if wanted.form is not None:
        return _with_form(wanted, wanted.form)
    try:
        catalog = load_catalog(own=own_folders(wanted.path))
        given: Path | Document = wanted.path
        if wanted.text is not None:
            given = document_of(wanted.text, wanted.path)
            fields = [asdict(one) for one in fields_of(given.data, catalog)]
        read_as = load_job if has_job(given) else load
        scenario: Any = read_as(given, wanted.sets, catalog=catalog)
    except WRONG_INPUT as error:
        return CheckedScenario(error_data(error), fields)
    except MemoryError:
        return CheckedScenario([{"message": TOO_LARGE}], fields)
    except Exception as error:
        text = Message(
            "the check failed ({name}): a file may have changed meanwhile; check again", type(error).__name__
        )
        return CheckedScenario([{"message": translate_rendered(text)}], fields)
    count = len(cases(scenario)) if isinstance(scenario, Scenario) else 0
    return CheckedScenario([], fields, count, scenario.name, as_data(scenario))


def _with_form(wanted: CheckRequest, values: dict[str, Any]) -> CheckedScenario:
    """Check the scenario of *wanted* with *values* of the form; each mistake names its field."""
    text = wanted.text or ""
    try:
        catalog = load_catalog(own=own_folders(wanted.path))
        data = document_of(text, wanted.path).data
    except WRONG_INPUT as error:
        return CheckedScenario(error_data(error), text=text)
    if values:
        data, wrong = own_numbers.with_numbers(data, values, catalog)
        if wrong:
            return CheckedScenario([{**one} for one in wrong], text=text, numbers=values)
        text = dump(data)
    numbers = own_numbers.read(data)
    found = checked(replace(wanted, text=text, form=None))
    errors = found.errors or (list(_unfit(text, wanted, catalog)) if numbers else [])
    placed = [{"field": own_numbers.field_of(str(one.get("where", ""))), **one} for one in errors]
    return replace(found, errors=placed, text=text, numbers=numbers)


def _unfit(text: str, wanted: CheckRequest, catalog: Catalog) -> Iterator[dict[str, str | int]]:
    """Yield a mistake for each fleet that cannot run the model."""
    scenario = load(document_of(text, wanted.path), wanted.sets, catalog=catalog)
    first = {case.fleet: case for case in reversed(cases(scenario))}
    for at, fleet in enumerate(scenario.fleets):
        try:
            reason = resolve(scenario, first[fleet.name], catalog).infeasible
        except WRONG_INPUT as error:
            yield from error_data(error)
        else:
            if reason:
                yield {"message": translate_rendered(reason), "where": f"fleets.{at}"}


class CheckProcesses:
    """Pool of processes that check scenarios, started on demand and reused."""

    def __init__(self, longest_s: float = LONGEST_S) -> None:
        self.longest_s = longest_s
        self._context = multiprocessing.get_context("forkserver")
        self._places, self._turns = BoundedSemaphore(MOST_AT_ONCE + MOST_WAITING), BoundedSemaphore(MOST_AT_ONCE)
        self._free: list[tuple[Any, Connection]] = []

    def prepare(self) -> None:
        """Start a process ahead of the first check, which then does not wait for its imports."""
        self._free.append(self._worker())

    def ask(self, wanted: CheckRequest) -> CheckedScenario:
        """Check a scenario in a process. Raises RefusedRequest where it takes too long, or too many wait."""
        if not self._places.acquire(blocking=False):
            raise RefusedRequest(503, "too many requests at once; ask again in a second")
        try:
            with self._turns:
                return self._answer(wanted)
        finally:
            self._places.release()

    def _answer(self, wanted: CheckRequest) -> CheckedScenario:
        process, pipe = self._worker()
        try:
            pipe.send(wanted)
            if not pipe.poll(self.longest_s):
                raise RefusedRequest(422, TOO_LONG)
            answer: CheckedScenario = pipe.recv()
        except (OSError, EOFError):
            _end(process, pipe)
            raise RefusedRequest(422, TOO_LARGE) from None
        except BaseException:
            _end(process, pipe)
            raise
        self._free.append((process, pipe))
        return answer

    def _worker(self) -> tuple[Any, Connection]:
        while self._free:
            process, pipe = self._free.pop()
            if process.is_alive():
                return process, pipe
            _end(process, pipe)
        self._context.set_forkserver_preload([__name__])
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_work, args=(theirs, self.longest_s), daemon=True)
        process.start()
        theirs.close()
        return process, ours


CHECKS = CheckProcesses()
"""Processes of this server."""


def _end(process: Any, pipe: Connection) -> None:
    process.kill()
    process.join(5)
    pipe.close()


def _work(pipe: Connection, longest_s: float) -> None:
    """Answer checks until the server closes the pipe; a check that outlives its server ends by an alarm."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's interrupt is handled by the server
    os.nice(5)
    _bound_memory()
    with suppress(EOFError, OSError):
        while True:
            wanted: CheckRequest = pipe.recv()
            signal.alarm(int(longest_s) + 5)
            os.chdir(wanted.root)
            with speaking(wanted.language), confined(wanted.root, *program_folders()):
                pipe.send(checked(wanted))
            signal.alarm(0)


def _bound_memory() -> None:
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + MOST_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
