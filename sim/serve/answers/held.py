"""Finished runs that are kept in memory while somebody looks at them."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, Semaphore
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.deliver.shared.folder import is_finished
from sim.scenario.job.load import has_job
from sim.serve.answers.work import WorkAnswer, WorkAnswers
from sim.serve.refused import Refused
from sim.serve.workspace import Workspace
from sim.study.cases.points import MANIFEST
from sim.study.fleets.diff.runs import StoredRun
from sim.study.fleets.held.answer import Answer, Answers
from sim.study.money.price.reprice import SCENARIO_FILE

MOST_HELD = 4
"""Runs at once; the one that nobody has looked at for longest goes."""
MOST_WAITING = 16
"""Requests that may wait for their answer; further ones are asked to come again."""

LONGEST_WAIT_S = 60
"""Time that a request waits for its turn [s]."""


class HeldRuns:
    """Answers of one workspace."""

    def __init__(self, workspace: Workspace, catalog: Catalog) -> None:
        self.workspace, self.catalog = workspace, catalog
        self._held: OrderedDict[tuple[Path, int], Answers | WorkAnswers] = OrderedDict()
        self._one_at_a_time, self._waiting = Lock(), Semaphore(MOST_WAITING)

    def answer(self, run: str, values: Mapping[str, Any]) -> Answer | WorkAnswer:
        """Return the answer of the finished run in the folder *run* under *values*.

        Raises Refused where there is no finished run any more, or where too many ask at once; ScenarioErrors.
        """
        with self.turn():
            return self._answers(run).under(values)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait until nothing else is computed in this process. Raises Refused where too many wait, or for too long."""
        busy = Refused(503, "too many requests at once; ask again in a second")
        if not self._waiting.acquire(blocking=False):
            raise busy
        try:
            if not self._one_at_a_time.acquire(timeout=LONGEST_WAIT_S):
                raise busy
            try:
                yield
            finally:
                self._one_at_a_time.release()
        finally:
            self._waiting.release()

    def stored(self, run: str) -> StoredRun:
        """The finished run in the folder *run* as it lies on the disk. Raises Refused, ScenarioErrors."""
        self._finished(run)
        with self.turn():
            return StoredRun.read(self.workspace.folder(run), self.catalog)

    def _finished(self, run: str) -> Path:
        folder = self.workspace.path(run)
        if not is_finished(folder):
            text = "has not finished yet" if folder.is_dir() else "is gone; reload the page for what there is"
            raise Refused(404, f"{run}: {text}")
        return folder

    def _answers(self, run: str) -> Answers | WorkAnswers:
        folder = self._finished(run)
        key = (folder, (folder / MANIFEST).stat().st_mtime_ns)
        if key not in self._held:
            self.workspace.folder(run)
            read = WorkAnswers if has_job(folder / SCENARIO_FILE) else Answers
            self._held[key] = read(folder, self.catalog)
        self._held.move_to_end(key)
        while len(self._held) > MOST_HELD:
            self._held.popitem(last=False)
        return self._held[key]
