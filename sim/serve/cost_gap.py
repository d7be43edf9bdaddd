"""Causes of the cost gap between two fleets: read from answers of `gpufleet sensitivity`, which can be queued."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route

from sim.answers.folder import StoredQuestion, manifest_of, question_of
from sim.infile import opened
from sim.message import Message
from sim.report.words.money import showing, shown
from sim.report.words.text import readable_name
from sim.scenario.reading.layers import options
from sim.serve.adjustable_inputs import adjustable_inputs
from sim.serve.finished_runs import LoadedRuns
from sim.serve.jobs import CommandQueue, question_text
from sim.serve.parameters import required_parameter, values_of
from sim.serve.refusals import RefusedRequest
from sim.serve.scenario_checks import CHECKS, CheckRequest
from sim.study.loaded_runs import SLO, RunAnswer
from sim.study.reprice import SCENARIO_FILE

COMMAND = "sensitivity"
GAP_FILE = "gap.csv"
BESIDE = frozenset({COMMAND, SLO})
"""Parts of a scenario that do not change a cost gap."""


class CostGapRequest(NamedTuple):
    """Question about two fleets of a run, at its own or at other prices."""

    run: str
    values: dict[str, Any]
    between: tuple[str, str]
    found: RunAnswer


class CauseRoutes:
    """Routes of the causes of a cost gap."""

    def __init__(self, runs: LoadedRuns, queue: CommandQueue) -> None:
        self.runs, self.queue = runs, queue

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the cost gap, keyed by URL path."""
        return [
            Route("/api/causes", self.stored),
            Route("/api/causes", self.start, methods=["POST"]),
        ]

    def stored(self, request: Request) -> JSONResponse:
        """Return the parts of the gap in the shown currency; empty until `gpufleet sensitivity` has computed them."""
        context = self._context(request)
        with showing(context.found.scenario):
            return JSONResponse({"gaps": self._gaps(context)})

    async def start(self, request: Request) -> JSONResponse:
        """Queue `gpufleet sensitivity` to compute the gap; parameters are those of `stored`."""
        return await run_in_threadpool(self._start, request)

    def _start(self, request: Request) -> JSONResponse:
        context = self._context(request)
        section = json.dumps({"between": context.between, "inputs": self._cheapest_input(context)}, ensure_ascii=False)
        first, second = context.between
        question = Message("Why does the cost per token differ between {first} and {second}?", first, second)
        sets = [
            *options(context.values),
            f"{COMMAND}={section}",
            f"question={json.dumps(question, ensure_ascii=False)}",
        ]
        file = f"{context.run}/{SCENARIO_FILE}"
        workspace, scenario = self.runs.workspace, context.found.scenario
        text = question_text(question_of(COMMAND, scenario), sets)
        found = CHECKS.ask(CheckRequest(workspace.root, workspace.file(file), None, sets))
        if found.errors:
            return JSONResponse({"errors": found.errors}, 422)
        job = self.queue.add(file, f"{scenario.name}-{COMMAND}", text, sets, 0, found.frozen, COMMAND)
        return JSONResponse({"job": job.as_data()})

    def _cheapest_input(self, context: CostGapRequest) -> dict[str, Any] | None:
        """Return an input that costs no simulation, since only the gap is needed."""
        moved = adjustable_inputs(context.found.scenario, self.runs.catalog, {})
        path = next((one.path for one in moved if not one.path.startswith(SLO)), None)
        return {path: {"relative": 0.1}} if path else None

    def _context(self, request: Request) -> CostGapRequest:
        run, between = required_parameter(request, "run"), request.query_params.getlist("between")
        values = {path: value for path, value in values_of(request).items() if path.partition(".")[0] != SLO}
        found = self.runs.answer(run, values)
        if not isinstance(found, RunAnswer):
            raise RefusedRequest(400, "only the cost of a run is divided among causes")
        known = {fleet.name for fleet in found.scenario.fleets}
        if len(set(between)) != 2 or not known >= set(between):
            raise RefusedRequest(400, "the address needs two different fleets of the run: between=...&between=...")
        return CostGapRequest(run, values, (between[0], between[1]), found)

    def _gaps(self, context: CostGapRequest) -> list[dict[str, Any]]:
        """Return the gaps of the newest answer to the same question, about the two fleets in either order."""
        wanted = question_of(COMMAND, context.found.scenario)
        for one in self.runs.workspace.listed().runs:
            if one["finished"] and one["command"] == COMMAND:
                folder = self.runs.workspace.folder(one["path"])
                if _is_the_same((manifest_of(folder) or {}).get("question") or {}, wanted, context.between):
                    rows = list(_rows(folder, context.between))
                    if rows:
                        return [{"folder": one["path"], **gap} for gap in _by_load(rows)]
        return []


def _is_the_same(stored: StoredQuestion, wanted: StoredQuestion, between: tuple[str, str]) -> bool:
    def values(question: StoredQuestion) -> dict[str, str]:
        return {key: value for key, value in question.get("values", {}).items() if key not in BESIDE}

    fleets = stored.get("fleets", {})
    alike = all(fleets.get(name) == wanted["fleets"][name] for name in between)
    return alike and values(stored) == values(wanted) and stored.get("replications", 0) >= wanted["replications"]


def _rows(folder: Path, between: tuple[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of gap.csv, with the sign of the difference between first and second of *between*."""
    if not (folder / GAP_FILE).is_file():
        return
    with opened(folder / GAP_FILE, "r", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            pair = (row["first"], row["second"])
            if pair in (between, between[::-1]):
                yield row | {"sign": 1.0 if pair == between else -1.0}


def _by_load(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for load in dict.fromkeys(row["load"] for row in rows):
        mine = [row for row in rows if row["load"] == load]
        gap_usd = mine[0]["sign"] * float(mine[0]["gap_usd"])
        yield {
            "load": load,
            "clients": int(mine[0]["clients"] or 0),
            "gap": shown(gap_usd),
            "half": _half(mine[0]["gap_usd_ci95"]),
            "parts": [
                {
                    "group": readable_name(row["group"]),
                    "part": shown(row["sign"] * float(row["part_usd"])),
                    "half": _half(row["part_usd_ci95"]),
                }
                for row in mine
            ],
        }


def _half(text: str) -> float | None:
    return shown(float(text)) if text else None
