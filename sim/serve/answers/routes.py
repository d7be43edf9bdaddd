"""The addresses under which a finished run answers."""

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from sim.language import _
from sim.report.charts.marks import ring_key, worth_told, worths_by_key
from sim.report.fleets.diff.answer import diff_document, in_words
from sim.report.fleets.run.verdict import verdict_of
from sim.report.page.document import as_json
from sim.report.words.money import showing
from sim.scenario.reading.errors import InputError, ScenarioErrors
from sim.serve.answers.held import HeldRuns
from sim.serve.answers.shapes import answer_data, capacity_data, gap_data
from sim.serve.answers.work import WorkAnswer, work_data, work_gap, work_verdict
from sim.serve.refused import Refused
from sim.study.fidelity.marks import MARKS
from sim.study.fleets.diff.runs import compare
from sim.study.fleets.held.answer import Answer
from sim.study.fleets.run.sweep import sweep_of
from sim.yamlio import YamlError, parse

MOST_VALUES = 60
"""Overrides in one address."""


class AnswerRoutes:
    """Routes of the answers of runs."""

    def __init__(self, runs: HeldRuns) -> None:
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
        """Everything that the page shows of a run."""
        return self._answered(
            request,
            lambda found: answer_data(found, self.runs.catalog),
            lambda found: work_data(found, self.runs.catalog),
        )

    def verdict(self, request: Request) -> JSONResponse:
        """The sentence alone, and what qualifies it."""
        return self._answered(request, self._verdict, work_verdict)

    def capacity(self, request: Request) -> JSONResponse:
        """Return the capacity of every fleet within the sweep."""
        return self._answered(request, _capacity, lambda _: {"capacity": []})

    def gap(self, request: Request) -> JSONResponse:
        """Return the components of the cost of every point."""
        return self._answered(
            request,
            lambda found: {"gap": gap_data(sweep_of(found.points, found.axes))},
            lambda found: {"gap": work_gap(found)},
        )

    def marks(self, request: Request) -> JSONResponse:
        """How near each point of a run is to what was measured, by its key. Prices and limits do not change that; where
        they are those of the page, its answer is not computed twice.
        """
        found = self.runs.answer(asked_for(request, "run"), values_of(request))
        if isinstance(found, WorkAnswer):
            return JSONResponse({"marks": {}, "key": []})
        with showing(found.scenario):
            worths = worths_by_key(found.scenario, self.runs.catalog, found.points)
            marks = {
                key: {"mark": one.mark, "far": MARKS.index(one.mark), "name": _(one.mark), "text": worth_told(one)}
                for key, one in worths.items()
            }
            return JSONResponse({"marks": marks, "key": ring_key(worths.values())})

    def diff(self, request: Request) -> Response:
        """The runs `a` and `b` beside each other."""
        runs = [self.runs.stored(asked_for(request, name)) for name in ("a", "b")]
        with showing(runs[1].scenario):
            document = diff_document(runs[0], runs[1], compare(runs[0], runs[1]))
            return Response(as_json(in_words(document)), media_type="application/json")

    def _verdict(self, found: Answer) -> dict[str, Any]:
        told = verdict_of(found.scenario, self.runs.catalog, found.points, disputes=found.disputes)
        return {"headline": told.headline, "findings": list(told.findings)}

    def _answered(
        self,
        request: Request,
        shape: Callable[[Answer], dict[str, Any]],
        of_work: Callable[[WorkAnswer], dict[str, Any]],
    ) -> JSONResponse:
        found = self.runs.answer(asked_for(request, "run"), values_of(request))
        with showing(found.scenario):
            return JSONResponse(of_work(found) if isinstance(found, WorkAnswer) else shape(found))


def _capacity(found: Answer) -> dict[str, Any]:
    sweep = sweep_of(found.points, found.axes)
    lines = sweep.lines if sweep.numeric else ()
    return {"capacity": [capacity_data(line, sweep, found.scenario.slo) for line in lines]}


def asked_for(request: Request, name: str) -> str:
    """The value of *name* in the address. Raises Refused without one."""
    given = request.query_params.getlist(name)
    if len(given) != 1 or not given[0]:
        raise Refused(400, f"the address needs {name}=..., once")
    return given[0]


def values_of(request: Request) -> dict[str, Any]:
    """The overrides in the address: `set=site.pue=1.2`, as often as needed. Raises Refused, ScenarioErrors."""
    given = request.query_params.getlist("set")
    if len(given) > MOST_VALUES:
        raise Refused(400, f"at most {MOST_VALUES} values can be set at once")
    found: dict[str, Any] = {}
    for item in given:
        path, equals, text = item.partition("=")
        if not equals or not path.strip():
            raise ScenarioErrors([InputError(f"set={item[:60]}", 0, "", "path=value is needed")])
        try:
            found[path.strip()] = parse(text)
        except YamlError as error:
            raise ScenarioErrors([InputError(f"--set {path}", 0, "", error.message)]) from None
    return found
