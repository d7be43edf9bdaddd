"""The addresses of the queue: start, watch, cancel."""

import json
from collections.abc import AsyncIterator

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import BaseRoute, Route

from sim.catalogue.catalog import Catalog
from sim.scenario.sweep import as_data
from sim.serve.queue.jobs import Queue, question_text
from sim.serve.refused import Refused
from sim.serve.scenarios.reading import document_of, scenario_of
from sim.serve.scenarios.routes import Sent, count_of, sent_scenario, text_of
from sim.serve.workspace import Workspace

MOST_WATCHERS = 20
LONGEST_WAIT_S = 1.0
BEATS = 15
"""Waits without news after which a watcher is told that the server is still there."""


class JobRoutes:
    """What is asked of the queue."""

    def __init__(self, workspace: Workspace, catalog: Catalog, queue: Queue) -> None:
        self.workspace, self.catalog, self.queue = workspace, catalog, queue
        self._watchers = 0

    def routes(self) -> list[BaseRoute]:
        """By address."""
        return [
            Route("/api/jobs", self.listed),
            Route("/api/jobs", self.start, methods=["POST"]),
            Route("/api/jobs/{name}", self.cancel, methods=["DELETE"]),
            Route("/api/events", self.events),
        ]

    def listed(self, _: Request) -> JSONResponse:
        """All jobs, the newest first."""
        return JSONResponse({"jobs": self.queue.listed()})

    async def start(self, request: Request) -> JSONResponse:
        """Runs the scenario file `path` with the values `set`; nothing runs twice at once."""
        return await run_in_threadpool(self._start, await sent_scenario(request))

    def _start(self, sent: Sent) -> JSONResponse:
        path = self.workspace.file(sent.path)
        document = document_of(text_of(path), path, self.workspace, sent.sets)
        scenario = scenario_of(document, sent.sets, self.catalog)
        question = question_text(as_data(scenario), sent.sets)
        job = self.queue.add(sent.path, scenario.name, question, sent.sets, count_of(scenario))
        return JSONResponse({"job": job.as_data()})

    def cancel(self, request: Request) -> JSONResponse:
        """Stops a job; what it has finished is kept."""
        return JSONResponse({"job": self.queue.cancel(request.path_params["name"]).as_data()})

    async def events(self, request: Request) -> StreamingResponse:
        """All jobs, now and whenever one of them changes, as server-sent events."""
        if self._watchers >= MOST_WATCHERS:
            raise Refused(503, "too many pages watch the queue; close some")
        return StreamingResponse(self._news(request), media_type="text/event-stream")

    async def _news(self, request: Request) -> AsyncIterator[str]:
        self._watchers += 1
        try:
            version, quiet = -1, 0
            while not self.queue.closed and not await request.is_disconnected():
                now = await run_in_threadpool(self.queue.wait, version, LONGEST_WAIT_S)
                quiet = 0 if now != version else quiet + 1
                if now != version:
                    yield f"data: {json.dumps({'jobs': self.queue.listed()})}\n\n"
                elif quiet % BEATS == 0:
                    yield ": still here\n\n"
                version = now
        finally:
            self._watchers -= 1
