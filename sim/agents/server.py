"""Tools and resources of the MCP server."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from pydantic import Field

from sim.agents.answers import (
    Answer,
    CatalogueAnswer,
    CheckAnswer,
    DiffAnswer,
    ExplainAnswer,
    small_answer,
    small_check,
    small_diff,
)
from sim.agents.commands import Execute, in_child
from sim.agents.workspace import ToolWorkspace
from sim.build import program_version
from sim.catalogue.catalog import KINDS, load_catalog
from sim.catalogue.data_folder import UnknownId
from sim.message import Message
from sim.report.catalogue import entry
from sim.report.json_document import entry_document
from sim.scenario.reading.shipped import scenario_file, shipped_names
from sim.scenario.template import schema_text

MOST_IDS = 100
LONGEST_TEXT = 12_000
"""Longest explanation [characters]."""
INSTRUCTIONS = """\
gpufleet simulates fleets of GPUs that serve language models: latency, capacity, energy and cost, with sourced prices.
1. Start from an example (resource gpufleet://examples) or write a scenario in YAML (gpufleet://schema).
2. Call check first: it tells whether models fit, and how many simulations a run takes.
3. run compares fleets at stated loads; capacity finds the highest load within the service level; size finds the
   cheapest fleet; breakeven compares renting, buying and an API; price bills a finished run at other prices; diff
   compares two runs; explain shows one request.
4. Quote numbers of the answer only, with its digest and sources, and say which values were assumed.
"""
Scenario = Annotated[str, Field(description="Name of an example, path within the root, or a scenario as YAML text.")]
Values = Annotated[
    dict[str, Any] | None,
    Field(description="Values that replace those of the scenario, by dotted path: {'workload.arrivals.rate_rps': 2}."),
]
Replications = Annotated[int | None, Field(ge=1, le=100, description="Runs with other random numbers.")]


def server_of(workspace: ToolWorkspace, execute: Execute = in_child) -> MCPServer[Any]:
    """Return the server whose tools work in *workspace*; *execute* runs its commands."""
    server: MCPServer[Any] = MCPServer(
        "gpufleet", instructions=INSTRUCTIONS, version=program_version(), log_level="WARNING"
    )
    tools = _Tools(workspace, execute)
    for tool in (
        *(tools.list_catalogue, tools.check, tools.run, tools.size, tools.capacity, tools.breakeven),
        *(tools.price, tools.diff, tools.explain),
    ):
        server.tool()(tool)
    server.resource("gpufleet://schema", mime_type="application/json", description="JSON schema of scenarios.")(schema)
    server.resource("gpufleet://examples", mime_type="application/json", description="Examples by question.")(examples)
    server.resource("gpufleet://examples/{name}", mime_type="application/yaml", description="Example scenario.")(
        example
    )
    return server


def schema() -> str:
    """Return the JSON schema of scenarios."""
    return schema_text()


def examples() -> str:
    """Return the names of the shipped scenarios with their questions."""
    found = {}
    for name in shipped_names():
        lines = scenario_file(Path(name)).read_text("utf-8").splitlines()
        found[name] = lines[0].lstrip("# ") if lines else ""
    return json.dumps(found, ensure_ascii=False)


def example(name: str) -> str:
    """Return the text of a shipped scenario."""
    if name not in shipped_names():
        text = Message("no example {name!r}; there are {names}", name, ", ".join(shipped_names()))
        raise ResourceNotFoundError(text)
    return scenario_file(Path(name)).read_text("utf-8")


class _Tools:
    """Tools of the server: their names, arguments and docstrings are those that agents see."""

    def __init__(self, workspace: ToolWorkspace, execute: Execute) -> None:
        self._workspace, self._execute = workspace, execute
        self._locks: dict[Path, asyncio.Lock] = {}

    def list_catalogue(
        self,
        kind: Annotated[str, Field(description=f"One of {', '.join(KINDS)}.")] = "gpus",
        contains: Annotated[str, Field(description="Part of the ids to list.")] = "",
        name: Annotated[str, Field(description="Id or alias of one entry, to see its sourced values.")] = "",
    ) -> CatalogueAnswer:
        """List GPUs, models, prices and other entries of the catalogue, or show one entry with its sources."""
        catalog = load_catalog()
        try:
            ids = [one for one in catalog.ids(kind) if contains.lower() in one]
            found = entry_document(kind, entry(catalog, kind, name)) if name else {}
        except UnknownId as error:
            raise ToolError(str(error)) from None
        return CatalogueAnswer(kind, len(ids), ids[:MOST_IDS], json.loads(json.dumps(found, default=str)))

    async def check(self, ctx: Context[Any, Any], scenario: Scenario, set: Values = None) -> CheckAnswer:
        """Check a scenario without simulating: whether each model fits, limits, number of simulations.

        Every mistake is returned at once, with line and nearest valid name.
        """
        file, sets = self._file_and_settings(scenario, set, None)
        return small_check(await self._document(ctx, ["check", str(file), *sets, "--format", "json"]))

    async def run(
        self,
        ctx: Context[Any, Any],
        scenario: Scenario,
        set: Values = None,
        replications: Replications = None,
    ) -> Answer:
        """Simulate every fleet at every load of the sweep: latency, throughput, energy, cost, and which is cheaper."""
        return await self._ask(ctx, "run", scenario, set, replications)

    async def size(self, ctx: Context[Any, Any], scenario: Scenario, set: Values = None) -> Answer:
        """Find the cheapest fleet that meets the service level; the scenario's section `size` has the candidates."""
        return await self._ask(ctx, "size", scenario, set, None)

    async def capacity(self, ctx: Context[Any, Any], scenario: Scenario, set: Values = None) -> Answer:
        """Find the highest load at which each fleet meets its service level."""
        return await self._ask(ctx, "capacity", scenario, set, None)

    async def breakeven(self, ctx: Context[Any, Any], scenario: Scenario, set: Values = None) -> Answer:
        """Compare buying, renting and a hosted API over utilisation and time, and find where the order changes."""
        return await self._ask(ctx, "breakeven", scenario, set, None)

    async def price(
        self,
        ctx: Context[Any, Any],
        run: Annotated[str, Field(description="Folder of a finished run, as a tool returned it.")],
        set: Values = None,
    ) -> Answer:
        """Bill a finished run at other prices and terms, without simulating again."""
        folder, sets = self._workspace.folder(run), self._workspace.settings(set)
        out = self._workspace.answer_folder("price", run, set)
        words = ["price", str(folder), *sets, "--out", str(out), "--no-report", "--force", "--format", "json"]
        return small_answer(await self._in_turn(ctx, words, out), out, self._workspace.root)

    async def diff(
        self,
        ctx: Context[Any, Any],
        first: Annotated[str, Field(description="Folder of a finished run.")],
        second: Annotated[str, Field(description="Folder of another finished run.")],
    ) -> DiffAnswer:
        """Compare two finished runs: which inputs differ, and by how much each metric changed."""
        folders = [str(self._workspace.folder(one)) for one in (first, second)]
        return small_diff(await self._document(ctx, ["diff", *folders, "--format", "json"]))

    async def explain(
        self,
        ctx: Context[Any, Any],
        scenario: Scenario,
        request: Annotated[int, Field(ge=0, description="Number of the request in order of arrival.")] = 0,
        fleet: Annotated[str, Field(description="Name of the fleet; default: the first.")] = "",
        set: Values = None,
    ) -> ExplainAnswer:
        """Show the steps of one request and what kept it waiting."""
        file, sets = self._file_and_settings(scenario, set, None)
        words = ["explain", str(file), "--request", str(request), *sets, *(["--fleet", fleet] if fleet else [])]
        return ExplainAnswer((await self._output(ctx, words))[:LONGEST_TEXT])

    async def _ask(
        self, ctx: Context[Any, Any], command: str, scenario: str, values: dict[str, Any] | None, runs: int | None
    ) -> Answer:
        file, sets = self._file_and_settings(scenario, values, runs)
        out = self._workspace.answer_folder(command, scenario, values, runs)
        words = [command, str(file), *sets, "--out", str(out), "--no-report", "--force", "--format", "json"]
        words += ["--replications", str(runs)] if runs else []
        return small_answer(await self._in_turn(ctx, words, out), out, self._workspace.root)

    async def _in_turn(self, ctx: Context[Any, Any], words: Sequence[str], out: Path) -> dict[str, Any]:
        """Return the document of a command that writes to *out*; equal calls wait for one another."""
        lock = self._locks.setdefault(out, asyncio.Lock())
        try:
            async with lock:
                return await self._document(ctx, words)
        finally:
            if not lock.locked():
                self._locks.pop(out, None)

    def _file_and_settings(
        self, scenario: str, values: dict[str, Any] | None, runs: int | None
    ) -> tuple[Path, Sequence[str]]:
        sets = self._workspace.settings(values)
        file = self._workspace.scenario(scenario)
        self._workspace.check_size(file, values, runs)
        return file, sets

    async def _document(self, ctx: Context[Any, Any], words: Sequence[str]) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(await self._output(ctx, words))
        return document

    async def _output(self, ctx: Context[Any, Any], words: Sequence[str]) -> str:
        """Return the output of a command; if the command fails, its error becomes that of the tool."""
        limit_s = self._workspace.limit_s

        async def progress(seconds: float, line: str) -> None:
            await ctx.report_progress(min(seconds, limit_s), limit_s, line)

        found = await self._execute(words, self._workspace.root, limit_s, progress)
        if found.code:
            lines = found.stderr.strip() or Message("ended with {code}", found.code)
            raise ToolError(lines.replace(f"{self._workspace.root}/", "")[:LONGEST_TEXT])
        return found.stdout
