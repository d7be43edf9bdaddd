"""Scenario files of the workspace: routes that read, check and save them, and templates."""

import hashlib
import json
from asyncio import Lock
from pathlib import Path
from typing import Any, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from sim.infile import opened, write_below
from sim.language import N_, _
from sim.scenario.reading.shipped import shipped_folder
from sim.scenario.template import schema_text, template
from sim.serve.guard import MOST_BODY_BYTES
from sim.serve.parameters import MOST_VALUES, required_parameter
from sim.serve.refusals import RefusedRequest
from sim.serve.scenario_checks import CHECKS, CheckRequest
from sim.serve.workspace import SCENARIOS, Workspace

NEW = "new"
STARTS = Path(__file__).parent / "starts"
NAMED = {
    NEW: N_("A commented scenario with the usual sections"),
    "energy-mac-vs-4090": N_("Home server: a Mac or an RTX 4090"),
    "office": N_("An office of 40 people"),
    "chat-from-a-trace": N_("A chat service, from a trace of its requests"),
    "4x4090-vs-2xa100": N_("Two fleets for a 72B chat service"),
    "breakeven-4x4090-vs-2xa100": N_("Rent, buy, or an API"),
    "rent-by-day": N_("Rent by the day or own"),
    "training-4090-vs-a100": N_("A training job"),
}
"""Titles of the common templates by name; the other shipped scenarios follow under their names."""


def templates() -> list[dict[str, str]]:
    """Return the templates, the common ones first."""
    known = [NEW, *_files()]
    others = [name for name in known if name not in NAMED]
    return [{"name": name, "title": _(NAMED[name])} for name in NAMED if name in known] + [
        {"name": name, "title": name} for name in others
    ]


def template_text(name: str) -> str:
    """Return the text of the template *name*. Raises RefusedRequest for an unknown name."""
    if name == NEW:
        return template("scenario")
    files = _files()
    if name not in files:
        raise RefusedRequest(404, f"{name[:60]!r} is no template: {', '.join(one['name'] for one in templates())} are")
    return files[name].read_text(encoding="utf-8")


def _files() -> dict[str, Path]:
    return {path.stem: path for folder in (STARTS, shipped_folder()) for path in sorted(folder.glob("*.yaml"))}


class SentScenario(NamedTuple):
    """Scenario as sent by the page."""

    path: str
    text: str
    sets: list[str]
    digest: str
    """Digest of the text that the page has read from the file; empty for a new file."""


class ScenarioRoutes:
    """Routes of scenario files."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._writing_schema = Lock()

    def routes(self) -> list[BaseRoute]:
        """Return the routes of scenario files, keyed by URL path."""
        return [
            Route("/api/scenario", self.read),
            Route("/api/scenario", self.save, methods=["PUT"]),
            Route("/api/check", self.check, methods=["POST"]),
            Route("/api/schema", self.json_schema),
            Route("/api/templates", self.listed),
        ]

    def read(self, request: Request) -> JSONResponse:
        """Return the text of the file `path`, or of the template `template`."""
        if "template" in request.query_params:
            name = required_parameter(request, "template")
            return JSONResponse({"path": "", "text": template_text(name), "digest": "", "name": name})
        name = required_parameter(request, "path")
        text = text_of(self.workspace.file(self._scenario(name)))
        return JSONResponse({"path": name, "text": text, "digest": _digest(text)})

    async def save(self, request: Request) -> JSONResponse:
        """Save the text in its file. Refused where the file has changed since the page read it."""
        sent = await sent_scenario(request)
        return await run_in_threadpool(self._save, sent)

    def _save(self, sent: SentScenario) -> JSONResponse:
        path = self.workspace.path(self._scenario(sent.path))
        now = _digest(text_of(path)) if path.exists() else ""
        if now not in (sent.digest, _digest(sent.text)):
            raise RefusedRequest(
                409, f"{sent.path}: has been changed elsewhere; save under another name, or reload the page"
            )
        write_below(self.workspace.root, path, sent.text)
        return JSONResponse({"path": sent.path, "digest": _digest(sent.text)})

    async def check(self, request: Request) -> JSONResponse:
        """Return every mistake with its line; without any, the common fields and the number of cases to simulate."""
        sent = await sent_scenario(request)
        return await run_in_threadpool(self._check, sent)

    def _check(self, sent: SentScenario) -> JSONResponse:
        path = self.workspace.path(sent.path or "scenario.yaml")
        found = CHECKS.ask(CheckRequest(self.workspace.root, path, sent.text, sent.sets))
        return JSONResponse({"errors": found.errors, "fields": found.fields, "cases": found.cases})

    async def json_schema(self, _: Request) -> Response:
        """Return the JSON schema of scenarios, for completion.

        Generating it takes a second, so that a lock lets only the first request do so.
        """
        async with self._writing_schema:
            text = await run_in_threadpool(schema_text)
        return Response(text, media_type="application/json")

    async def listed(self, _: Request) -> JSONResponse:
        """Return the templates."""
        return JSONResponse({"templates": templates()})

    def _scenario(self, name: str) -> str:
        if not name.endswith(SCENARIOS):
            raise RefusedRequest(400, f"{name[:60]!r} is no name of a scenario: it ends in .yaml")
        return name


async def sent_scenario(request: Request) -> SentScenario:
    """Return the scenario that the page has sent. Raises RefusedRequest."""
    data = await json_body(request)
    texts = {name: data.get(name, "") for name in ("path", "text", "digest")}
    sets = data.get("set", [])
    if not all(isinstance(one, str) for one in (*texts.values(), *(sets if isinstance(sets, list) else [None]))):
        raise RefusedRequest(400, "path, text and digest are texts, and set is a list of texts")
    if len(sets) > MOST_VALUES:
        raise RefusedRequest(400, f"at most {MOST_VALUES} values can be set at once")
    try:
        "".join([*texts.values(), *sets]).encode()
    except UnicodeEncodeError:
        raise RefusedRequest(400, "what was sent is no UTF-8 text") from None
    return SentScenario(texts["path"], texts["text"], sets, texts["digest"])


async def json_body(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body of *request*. Raises RefusedRequest."""
    try:
        data = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise RefusedRequest(400, "what was sent is no JSON") from None
    if not isinstance(data, dict):
        raise RefusedRequest(400, "a JSON object is needed")
    return data


def text_of(path: Path) -> str:
    """Return the text of the file *path*. Raises RefusedRequest where it is too large or not UTF-8."""
    try:
        with opened(path) as file:
            content = file.read(MOST_BODY_BYTES + 1)
        if len(content) > MOST_BODY_BYTES:
            raise RefusedRequest(413, f"{path.name}: is larger than {MOST_BODY_BYTES / 1e6:g} MB")
        text: str = content.decode("utf-8-sig")
        return text
    except UnicodeDecodeError:
        raise RefusedRequest(422, f"{path.name}: is no UTF-8 text") from None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
