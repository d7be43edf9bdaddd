"""Scenario files of the workspace: routes that read, check and save them, and templates."""

import hashlib
import json
from asyncio import Lock
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from sim.catalogue.catalog import load_catalog
from sim.infile import opened, write_below
from sim.language import N_, _
from sim.message import Message
from sim.scenario.reading.shipped import shipped_folder
from sim.scenario.template import schema_text, template
from sim.serve import own_numbers
from sim.serve.guard import MOST_BODY_BYTES
from sim.serve.parameters import MOST_VALUES, required_parameter
from sim.serve.refusals import RefusedRequest
from sim.serve.scenario_checks import CHECKS, CheckRequest
from sim.serve.workspace import SCENARIOS, Workspace
from sim.yamlio import dump

NEW, NUMBERS = "new", "my-numbers"
STARTS = Path(__file__).parent / "starts"
GROUPS: dict[str, dict[str, str]] = {
    N_("Which fleet is cheaper for my load?"): {
        "4x4090-vs-2xa100": N_("Two fleets for a 72B chat service, bought"),
        "office": N_("An office of 40 people: an RTX 4090 or a rented H100"),
        "chat-from-a-trace": N_("A chat service, from a trace of its requests"),
        "sxm-servers": N_("Rented servers of V100 against a DGX of H100"),
        "energy-mac-vs-4090": N_("Home server: a Mac or an RTX 4090, in energy per token"),
        "futures-4x4090-vs-2xa100": N_("How often the cheaper fleet stays cheaper when prices are uncertain"),
    },
    N_("How many GPUs do I need?"): {
        "size-72b-chat": N_("The cheapest of four cards for a 72B chat at 2 requests a second"),
        "size-documents-8b": N_("Short chats and long documents: one kind of card or two"),
        "failures-n-plus-k": N_("Spare servers for 99.9 % of the requests"),
        "autoscale-day": N_("Four autoscalers for a load that follows the day"),
        "plan-grow-72b": N_("A service that grows by 80 % a year: what to order, and when"),
    },
    N_("Rent, buy, or an API?"): {
        "breakeven-4x4090-vs-2xa100": N_("Two servers, the same GPUs rented, and an API"),
        "rent-by-day": N_("Eight cards for working hours: own them or rent by the day"),
        "spot-mix": N_("What spot instances save although they are taken back"),
    },
    N_("How do I serve it best?"): {
        "agents": N_("Coding agents on four cards: which routing rule"),
        "disaggregated-h100": N_("Prompts and answers on GPUs of their own"),
        "4090-boxes-on-ethernet": N_("Two servers at home, joined by Ethernet"),
        "kv-tiers": N_("Long chats: more host memory, an SSD, or another GPU"),
        "adapters": N_("Sixty fine-tuned variants on two GPUs"),
        "services-on-one-card": N_("Three services: a card each, or one card for all"),
        "tenants": N_("A batch customer on a shared fleet: who waits, and who pays"),
        "offload-70b-on-4090": N_("A 70B model on one RTX 4090, with layers in host memory"),
        "mig-recommender": N_("A recommender on a whole A100 or on slices of it"),
    },
    N_("Training and jobs"): {
        "training-4090-vs-a100": N_("A small model: one or two RTX 4090, or an A100"),
        "training-gpt3-175b": N_("GPT-3 on A100 and on H100: days and cost"),
        "jobs-on-a-cluster": N_("A queue of jobs on 8 A100: which policy"),
        "jobs-beside-serving": N_("Jobs in the nights of a serving cluster"),
    },
    N_("From an empty page"): {NEW: N_("A commented scenario with the usual sections")},
}
"""Lines of the templates by question and name; other shipped scenarios follow under their names."""


def templates() -> list[dict[str, str]]:
    """Return the templates by question: group, name and line of each."""
    files = [NEW, *_files()]
    known = {name: (group, line) for group, lines in GROUPS.items() for name, line in lines.items()}
    found = [
        {"group": _(group), "name": name, "title": _(line)} for name, (group, line) in known.items() if name in files
    ]
    return [*found, *({"group": "", "name": name, "title": name} for name in files if name not in known)]


def template_text(name: str) -> str:
    """Return the text of the template *name*. Raises RefusedRequest for an unknown name."""
    if name == NEW:
        return template("scenario")
    if name.startswith(NUMBERS):
        return dump(own_numbers.start(name, load_catalog()))
    files = _files()
    if name not in files:
        raise RefusedRequest(
            404,
            Message(
                "{name!r} is not a template: choose {names}", name[:60], ", ".join(one["name"] for one in templates())
            ),
        )
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
            Route("/api/form", self.choices),
            Route("/api/form", self.form, methods=["POST"]),
            Route("/api/schema", self.json_schema),
            Route("/api/templates", self.listed),
        ]

    def read(self, request: Request) -> JSONResponse:
        """Return the text of the file `path`, or of the template `template`."""
        if "template" in request.query_params:
            name = required_parameter(request, "template")
            if name == NUMBERS:
                name = self._free(NUMBERS)
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
                409,
                Message("{path}: has been changed elsewhere; save under another name, or reload the page", sent.path),
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

    def choices(self, _: Request) -> JSONResponse:
        """Return the values that the fields of the form offer."""
        return JSONResponse(own_numbers.choices(load_catalog()))

    async def form(self, request: Request) -> JSONResponse:
        """Write the `values` of the form into the text; without any, read them from it.

        The answer has the text, the values, and every mistake with its field.
        """
        data = await json_body(request)
        sent, values = sent_in(data), data.get("values") or {}
        if not isinstance(values, dict):
            raise RefusedRequest(400, "values is a JSON object")
        return await run_in_threadpool(self._form, sent, values)

    def _form(self, sent: SentScenario, values: dict[str, Any]) -> JSONResponse:
        path = self.workspace.path(sent.path or "scenario.yaml")
        found = CHECKS.ask(CheckRequest(self.workspace.root, path, sent.text, sent.sets, form=values))
        return JSONResponse({"errors": found.errors, "text": found.text, "values": found.numbers, "cases": found.cases})

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

    def _free(self, name: str) -> str:
        """Return *name*, numbered where the workspace has such a file."""
        tried = (f"{name}-{number}" if number > 1 else name for number in count(1))
        return next(one for one in tried if not (self.workspace.root / f"{one}{SCENARIOS[0]}").exists())

    def _scenario(self, name: str) -> str:
        if not name.endswith(SCENARIOS):
            raise RefusedRequest(400, Message("{name!r} is not the name of a scenario, which ends in .yaml", name[:60]))
        return name


async def sent_scenario(request: Request) -> SentScenario:
    """Return the scenario that the page has sent. Raises RefusedRequest."""
    return sent_in(await json_body(request))


def sent_in(data: dict[str, Any]) -> SentScenario:
    """Return the scenario in *data*, the body of a request. Raises RefusedRequest."""
    texts = {name: data.get(name, "") for name in ("path", "text", "digest")}
    sets = data.get("set", [])
    if not all(isinstance(one, str) for one in (*texts.values(), *(sets if isinstance(sets, list) else [None]))):
        raise RefusedRequest(400, "path, text and digest are texts, and set is a list of texts")
    if len(sets) > MOST_VALUES:
        raise RefusedRequest(400, Message("at most {limit} values can be set at once", MOST_VALUES))
    try:
        "".join([*texts.values(), *sets]).encode()
    except UnicodeEncodeError:
        raise RefusedRequest(400, "the data sent is not UTF-8 text") from None
    return SentScenario(texts["path"], texts["text"], sets, texts["digest"])


async def json_body(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body of *request*. Raises RefusedRequest."""
    try:
        data = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise RefusedRequest(400, "the data sent is not JSON") from None
    if not isinstance(data, dict):
        raise RefusedRequest(400, "a JSON object is needed")
    return data


def text_of(path: Path) -> str:
    """Return the text of the file *path*. Raises RefusedRequest where it is too large or not UTF-8."""
    try:
        with opened(path) as file:
            content = file.read(MOST_BODY_BYTES + 1)
        if len(content) > MOST_BODY_BYTES:
            raise RefusedRequest(413, Message("{name}: is larger than {limit:g} MB", path.name, MOST_BODY_BYTES / 1e6))
        text: str = content.decode("utf-8-sig")
        return text
    except UnicodeDecodeError:
        raise RefusedRequest(422, Message("{name}: is not UTF-8 text", path.name)) from None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
