"""Preparation of a question from the caller's arguments: the checked scenario, a folder and processes."""

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from sim.answers.folder import FolderRefused, owned, why_not
from sim.answers.remote import copied, located
from sim.api.errors import in_python
from sim.catalogue.catalog import Catalog, load_catalog, own_folders
from sim.message import Message
from sim.scenario.checks.hardware import gpus_without_server_notes
from sim.scenario.reading.errors import InputError, ScenarioErrors
from sim.scenario.reading.layers import as_document, options
from sim.scenario.reading.load import load
from sim.scenario.reading.shipped import scenario_file
from sim.scenario.schema import Scenario
from sim.study.capacity_tolerance import NARROWEST, WIDEST
from sim.study.execution.cores import ProcessPool
from sim.yamlio import Document

Given = str | Path | Mapping[str, Any] | Scenario
"""Scenario file, name of a shipped scenario, dict with the keys of such a file, or Scenario."""
Catalogs = str | Path | Sequence[str | Path]
"""Folder or folders with entries of the caller's own, laid out like data/."""
Values = Mapping[str, Any]
"""Values by dotted path, as for `--set` of the command line: {"workload.arrivals.rate_rps": 0.5}."""


def as_read(scenario: Given) -> Path | Document:
    """Return the file of *scenario*, or its data."""
    return scenario_file(Path(scenario)) if isinstance(scenario, str | Path) else as_document(scenario)


class Folder:
    """Folder of an answer: the caller's, or a temporary folder that is removed with the last reference.

    For an address of shared storage it is the copy on this machine.
    """

    def __init__(self, out: str | Path | None) -> None:
        self.temporary, self.remote = False, None
        if out is not None:
            path, self.remote = located(out)
            self.path = path.absolute()  # the caller may change the current directory
            if refusal := why_not(self.path):
                raise FolderRefused(f"out={out}: {refusal}")
            return
        self._make()

    def _make(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="gpufleet-"))
        self.temporary = True
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Lock the folder, and copy its answer to shared storage at the end where it has an address."""
        with owned(self.path), copied(self.remote):
            yield

    def __getstate__(self) -> dict[str, Any]:
        files = (file for file in self.path.rglob("*") if self.temporary and file.is_file())
        return {"path": self.path, "files": {str(file.relative_to(self.path)): file.read_bytes() for file in files}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.path, self.temporary, self.remote = state["path"], False, None
        if state["files"]:
            self._make()
        for name, content in state["files"].items():
            file = self.path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)


class Prepared:
    """Question with its scenario, catalogue and folder. Raises ScenarioErrors, UnknownId, FolderRefused."""

    def __init__(
        self,
        scenario: Given,
        values: Values | None,
        *,
        seed: int | None = None,
        replications: int | None = None,
        out: str | Path | None = None,
        read: Callable[..., Any] = load,
        catalog: Catalogs = (),
    ) -> None:
        """Read the scenario with *read*, a function like `load` that turns a file or data into a scenario."""
        data = as_read(scenario)
        stated = [Path(catalog)] if isinstance(catalog, str | Path) else [Path(one) for one in catalog]
        with in_python():
            own = own_folders(data if isinstance(data, Path) else None, stated)
            self.catalog: Catalog = load_catalog(own=own)
        self.file = str(data) if isinstance(data, Path) else ""
        """Name of the scenario's file in errors; empty for a scenario from Python."""
        numbers = {"seed": seed, "replications": replications}
        with in_python():
            self.scenario: Scenario = read(data, options(values or {}), catalog=self.catalog, **numbers)
        self.folder = Folder(out)
        self.ignored: tuple[str, ...] = ()
        """Notes on parts of the scenario that the question ignores."""

    @property
    def out(self) -> Path:
        """Folder of the answer."""
        return self.folder.path

    @property
    def remarks(self) -> list[str]:
        """Notes on ignored parts of the scenario, and on GPUs bought without a server."""
        return [*self.ignored, *self.catalog.replaced(), *gpus_without_server_notes(self.scenario, self.catalog)]

    def __getstate__(self) -> dict[str, Any]:
        own = {"own": self.catalog.own}
        return {name: value for name, value in vars(self).items() if name != "catalog"} | own

    def __setstate__(self, state: dict[str, Any]) -> None:
        own = state.pop("own", ())
        vars(self).update(state, catalog=load_catalog(own=own))

    def again(self, scenario: Scenario, folder: Folder) -> "Prepared":
        """Return the same question about *scenario*, answered in *folder*."""
        other = copy(self)
        other.scenario, other.folder = scenario, folder
        return other

    def errors(self, texts: Iterable[str]) -> list[InputError]:
        """Return *texts* about the scenario as errors in its file."""
        return [InputError(self.file, 0, "", text) for text in texts]

    def refuse(self, *refusals: str) -> None:
        """Raise ScenarioErrors with those of *refusals* that are not empty."""
        if found := self.errors(filter(None, refusals)):
            raise ScenarioErrors(found)

    def answered(
        self, name: str, write: Callable[..., Any], workers: int | None, quiet: bool, force: bool, **more: Any
    ) -> Any:
        """Call *write*, a function of sim.answers that simulates and writes the folder for `sim.name`.

        Raises FolderBusy, FolderRefused, WorkerLost.
        """
        with in_python(), self._cores(workers) as cores:
            return write(
                scenario=self.scenario,
                catalog=self.catalog,
                out=self.out,
                workplace=cores,
                quiet=quiet,
                command=["python", f"sim.{name}"],
                force=force,
                **more,
            )

    @contextmanager
    def _cores(self, workers: int | None) -> Iterator[ProcessPool]:
        """Provide *workers* processes (None: one per CPU core), and lock the folder meanwhile."""
        count = _whole(workers) if workers is not None else os.cpu_count() or 1
        with self.folder.owned(), ProcessPool(count) as cores:
            yield cores


def _whole(workers: Any) -> int:
    """Return the number of *workers*. Raises ValueError unless it is a whole number of at least 1."""
    try:
        count = index(workers)
    except TypeError:
        count = 0
    if count < 1:
        raise ValueError(Message("workers: a whole number of at least 1 is needed, not {value!r}", workers))
    return count


def fraction(relative: Any) -> float:
    """Return *relative*, the width of a bracket, as a float. Raises ValueError outside the allowed range."""
    if not (isinstance(relative, int | float | np.number) and NARROWEST <= relative <= WIDEST):
        raise ValueError(
            Message("relative: a number from {low:g} to {high:g} is needed, not {value!r}", NARROWEST, WIDEST, relative)
        )
    return float(relative)
