"""Finished runs in memory, and the routes that answer from them."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock, Semaphore
from typing import Any

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from sim.answers.folder import is_finished
from sim.answers.loaded import QuestionAnswer, QuestionAnswers, repeatable
from sim.catalogue.catalog import Catalog
from sim.language import _
from sim.report.diff import diff_document, in_words
from sim.report.json_document import as_json
from sim.report.prediction_accuracy import confidence_text, confidences_by_key, ring_key
from sim.report.run.verdict import verdict_of
from sim.report.words.money import showing
from sim.scenario.reading.load import has_job
from sim.serve.page_data import (
    WorkAnswer,
    WorkAnswers,
    answer_data,
    capacity_data,
    gap_data,
    work_data,
    work_gap,
    work_verdict,
)
from sim.serve.parameters import required_parameter, values_of
from sim.serve.question_page import question_data, question_gap, question_verdict
from sim.serve.refusals import RefusedRequest
from sim.serve.workspace import Workspace
from sim.study.confidence import MARKS
from sim.study.diff import StoredRun, compare
from sim.study.execution.durable import MANIFEST
from sim.study.loaded_runs import RunAnswer, RunAnswers
from sim.study.points import sweep_of
from sim.study.reprice import SCENARIO_FILE

MOST_LOADED = 4
"""Largest number of runs in memory; the least recently used is dropped."""
MOST_WAITING = 16
"""Largest number of requests that wait for their answer; further ones are refused with 503."""

Answer = RunAnswer | WorkAnswer | QuestionAnswer

LONGEST_WAIT_S = 60
"""Longest time that a request waits for its turn [s]."""


class LoadedRuns:
    """Finished runs of a workspace, kept in memory."""

    def __init__(self, workspace: Workspace, catalog: Catalog) -> None:
        self.workspace, self.catalog = workspace, catalog
        self._loaded: OrderedDict[tuple[Path, int], RunAnswers | WorkAnswers | QuestionAnswers] = OrderedDict()
        self._one_at_a_time, self._waiting = Lock(), Semaphore(MOST_WAITING)

    def answer(self, run: str, values: Mapping[str, Any]) -> Answer:
        """Return the answer of the finished run in the folder *run* under *values*.

        Raises RefusedRequest where there is not a finished run, or where too many requests wait; ScenarioErrors.
        """
        with self.turn():
            return self._answers(run).under(values)

    def question(self, run: str) -> QuestionAnswers:
        """Return the evaluations of the answer of `breakeven` or `plan` in *run*, for a caller that has its turn."""
        found = self._answers(run)
        assert isinstance(found, QuestionAnswers), f"{run} is another answer"
        return found

    def prepare(self, run: str) -> None:
        """Read what other prices and limits of the finished run in the folder *run* need, unless too many wait.

        Errors are ignored here: the first change reads again, and reports them.
        """
        with suppress(Exception), self.turn():
            answers = self._answers(run)
            if isinstance(answers, RunAnswers):
                answers.prepare()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait until no other request is computed in this process.

        Raises RefusedRequest where too many wait, or for too long.
        """
        busy = RefusedRequest(503, "too many requests at once; ask again in a second")
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
        """Read the finished run in the folder *run* from the disk. Raises RefusedRequest, ScenarioErrors."""
        self._finished_folder(run)
        with self.turn():
            return StoredRun.read(self.workspace.folder(run), self.catalog)

    def _finished_folder(self, run: str) -> Path:
        folder = self.workspace.path(run)
        if not is_finished(folder):
            text = "has not finished yet" if folder.is_dir() else "no longer exists; reload the page"
            raise RefusedRequest(404, f"{run}: {text}")
        return folder

    def _answers(self, run: str) -> RunAnswers | WorkAnswers | QuestionAnswers:
        folder = self._finished_folder(run)
        key = (folder, (folder / MANIFEST).stat().st_mtime_ns)
        if key not in self._loaded:
            self.workspace.folder(run)
            self._loaded[key] = self._read(folder)
        self._loaded.move_to_end(key)
        while len(self._loaded) > MOST_LOADED:
            self._loaded.popitem(last=False)
        return self._loaded[key]

    def _read(self, folder: Path) -> RunAnswers | WorkAnswers | QuestionAnswers:
        if has_job(folder / SCENARIO_FILE):
            return WorkAnswers(folder, self.catalog)
        question = repeatable(folder)
        return RunAnswers(folder, self.catalog) if question is None else QuestionAnswers(folder, self.catalog, question)


class AnswerRoutes:
    """Routes of the answers of runs."""

    def __init__(self, runs: LoadedRuns) -> None:
        self.runs = runs

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the answers, keyed by URL path."""
        return [
            Route("/api/answer", self.answer),
            Route("/api/verdict", self.verdict),
            Route("/api/capacity", self.capacity),
            Route("/api/gap", self.gap),
            Route("/api/diff", self.diff),
            Route("/api/marks", self.marks),
        ]

    def answer(self, request: Request) -> JSONResponse:
        """Return all data of a run that the page shows."""
        return self._response(
            request,
            lambda found: answer_data(found, self.runs.catalog),
            lambda found: work_data(found, self.runs.catalog),
            lambda found: question_data(found, self.runs.catalog),
        )

    def verdict(self, request: Request) -> JSONResponse:
        """Return the verdict of a run: headline and findings."""
        return self._response(
            request, self._verdict, work_verdict, lambda found: question_verdict(found, self.runs.catalog)
        )

    def capacity(self, request: Request) -> JSONResponse:
        """Return the capacity of every fleet within the sweep."""
        return self._response(request, _capacity, lambda _: {"capacity": []}, lambda _: {"capacity": []})

    def gap(self, request: Request) -> JSONResponse:
        """Return the components of the cost of every point."""
        return self._response(
            request,
            lambda found: {"gap": gap_data(sweep_of(found.points, found.axes))},
            lambda found: {"gap": work_gap(found)},
            lambda found: {"gap": question_gap(found)},
        )

    def marks(self, request: Request) -> JSONResponse:
        """Return the confidence of each point's prediction, keyed by point.

        Confidence is independent of prices and limits, so the loaded answer for the page's values is reused. The page
        requests marks once it shows its answer; after this response, the run's meters are read for its sliders.
        """
        found = self.runs.answer(required_parameter(request, "run"), values_of(request))
        if not isinstance(found, RunAnswer):
            return JSONResponse({"marks": {}, "key": []})
        with showing(found.scenario):
            confidences = confidences_by_key(found.scenario, self.runs.catalog, found.points)
            marks = {
                key: {"mark": one.mark, "far": MARKS.index(one.mark), "name": _(one.mark), "text": confidence_text(one)}
                for key, one in confidences.items()
            }
            return JSONResponse(
                {"marks": marks, "key": ring_key(confidences.values())},
                background=BackgroundTask(self.runs.prepare, required_parameter(request, "run")),
            )

    def diff(self, request: Request) -> Response:
        """Compare the runs `a` and `b`."""
        runs = [self.runs.stored(required_parameter(request, name)) for name in ("a", "b")]
        with showing(runs[1].scenario):
            document = diff_document(runs[0], runs[1], compare(runs[0], runs[1]))
            return Response(as_json(in_words(document)), media_type="application/json")

    def _verdict(self, found: RunAnswer) -> dict[str, Any]:
        verdict = verdict_of(found.scenario, self.runs.catalog, found.points, disputes=found.disputes)
        return {"headline": verdict.headline, "findings": list(verdict.findings)}

    def _response(
        self,
        request: Request,
        shape: Callable[[RunAnswer], dict[str, Any]],
        of_work: Callable[[WorkAnswer], dict[str, Any]],
        of_question: Callable[[QuestionAnswer], dict[str, Any]],
    ) -> JSONResponse:
        found = self.runs.answer(required_parameter(request, "run"), values_of(request))
        with showing(found.scenario):
            if isinstance(found, QuestionAnswer):
                return JSONResponse(of_question(found))
            return JSONResponse(of_work(found) if isinstance(found, WorkAnswer) else shape(found))


def _capacity(found: RunAnswer) -> dict[str, Any]:
    sweep = sweep_of(found.points, found.axes)
    lines = sweep.lines if sweep.numeric else ()
    return {"capacity": [capacity_data(line, sweep, found.scenario.slo) for line in lines]}
