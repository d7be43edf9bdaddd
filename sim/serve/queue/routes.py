"""Routes of the queue: list, start, watch, restart and cancel jobs."""

import asyncio
import json
from collections.abc import AsyncIterator

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import BaseRoute, Route

from sim.serve.queue.jobs import Queue, question_text
from sim.serve.refused import Refused
from sim.serve.scenarios.reading import CHECKS, Wanted
from sim.serve.scenarios.routes import Sent, sent_scenario
from sim.serve.workspace import Workspace

MOST_WATCHERS = 20
LOOKS_S = 0.25
"""Interval at which a watcher's connection looks for changes [s]; it holds no thread."""
BEATS = 60
"""Looks without a change after which a watcher gets a sign of life."""


class JobRoutes:
    """Routes of the queue."""

    def __init__(self, workspace: Workspace, queue: Queue) -> None:
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

    def _start(self, sent: Sent) -> JSONResponse:
        path = self.workspace.file(sent.path)
        found = CHECKS.ask(Wanted(self.workspace.root, path, None, sent.sets))
        if found.errors:
            return JSONResponse({"errors": found.errors}, 422)
        question = question_text(found.data, sent.sets)
        job = self.queue.add(sent.path, found.name, question, sent.sets, found.cases, found.frozen)
        return JSONResponse({"job": job.as_data()})

    def again(self, request: Request) -> JSONResponse:
        """Start a job that did not end well once more: as it was checked, from what it has finished."""
        return JSONResponse({"job": self.queue.again(request.path_params["name"]).as_data()})

    def cancel(self, request: Request) -> JSONResponse:
        """Stop a job; its finished points are kept."""
        return JSONResponse({"job": self.queue.cancel(request.path_params["name"]).as_data()})

    async def events(self, request: Request) -> StreamingResponse:
        """Return all jobs, now and whenever one of them changes, as server-sent events."""
        if self._watchers >= MOST_WATCHERS:
            raise Refused(503, "too many pages watch the queue; close some")
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
                elif quiet % BEATS == 0:
                    yield ": still here\n\n"
                version = now
                await asyncio.sleep(LOOKS_S)
        finally:
            self._watchers -= 1
