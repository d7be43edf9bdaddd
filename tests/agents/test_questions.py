"""Tools of the MCP server through the SDK's own client: twenty questions, resources, limits, progress."""

import asyncio
import json
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sim.cli.frame import app
from sim.study import breakeven
from sim.yamlio import read

pytestmark = pytest.mark.usefixtures("coarsely")

QUESTIONS = read(Path(__file__).with_name("questions.yaml")).data
SMALL = """\
name: small
model: llama3.1-8b
workload:
  arrivals: {process: poisson, rate_rps: 1}
  lengths: {prompt: {distribution: fixed, value: 100}, output: {distribution: fixed, value: 20}}
horizon_s: 5
replications: 2
slo: {ttft_s: 2}
site: {electricity_usd_per_kwh: 0.12, pue: 1.5}
finance: {method: straight_line, life_years: 4, residual_fraction: 0.2}
fleets:
  - name: one
    pools: [{gpu: rtx-4090, max_model_len: 1000, batching: {max_num_seqs: 4}}]
    cost: {acquisition: buy, quotes: {rtx-4090: 1900}}
sweep: {workload.arrivals.rate_rps: [1, 2, 4]}
"""
SIZED = SMALL[: SMALL.index("fleets:")].replace("replications: 2", "replications: 1") + (
    "size: {gpus: [rtx-4090], max_replicas: 2, costs: {bought: {acquisition: buy, quotes: {rtx-4090: 1900}}}}\n"
)
BOUGHT = SMALL[: SMALL.index("sweep:")].replace("replications: 2", "replications: 1") + "breakeven: {months: 24}\n"


def served(root: Path, execute: Any = None, **limits: Any) -> Any:
    """Return the server of *root*. It takes two seconds to import, on the one worker that runs these tests alone."""
    from sim.agents.server import server_of
    from sim.agents.workspace import ToolWorkspace

    return server_of(ToolWorkspace(root.resolve(), **limits), execute)


def client(server: Any) -> Any:
    """Return the SDK's client of *server*."""
    import mcp

    return mcp.Client(server)


async def in_this_process(words: Sequence[str], root: Path, limit_s: float, progress: Any) -> Any:
    """Run a command as `gpufleet` does, without a process of its own."""
    from sim.agents.commands import Finished

    await progress(0.5, "running")
    found = CliRunner().invoke(app, [*words, *(["--workers", "1"] if words[0] in ("run", "size", "capacity") else [])])
    error = "" if found.exception is None or isinstance(found.exception, SystemExit) else repr(found.exception)
    return Finished(found.exit_code, found.stdout, found.stderr or error)


@cache
def answering(root: Path) -> Any:
    """Return the server of *root* that runs commands in this process, once: to describe its tools is slow."""
    return served(root, in_this_process)


def called(root: Path, calls: Sequence[tuple[str, dict[str, Any]]], **options: Any) -> list[tuple[bool, str]]:
    """Return (whether it is an error, text) of each call of a tool, by the SDK's client."""

    async def ask() -> list[tuple[bool, str]]:
        limits, execute = options.pop("limits", {}), options.pop("execute", None)
        server = served(root, execute, **limits) if execute else answering(root)
        found = []
        async with client(server) as session:
            for tool, arguments in calls:
                answer = await session.call_tool(tool, arguments, **options)
                structured = answer.structured_content
                text = json.dumps(structured) if structured else " ".join(one.text for one in answer.content)
                found.append((bool(answer.is_error), text))
        return found

    return asyncio.run(ask())


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root with a finished run in the folder `mine`."""
    folder = tmp_path_factory.mktemp("root")
    (folder / "small.yaml").write_text(SMALL.replace("[1, 2, 4]", "[1]").replace("replications: 2", "replications: 1"))
    words = ["run", str(folder / "small.yaml"), "--out", str(folder / "mine"), "--no-report", "--quiet"]
    assert CliRunner().invoke(app, words).exit_code == 0
    return folder


def filled(value: Any) -> Any:
    """Return the arguments of a question with the scenarios that it names."""
    if isinstance(value, dict):
        return {key: filled(one) for key, one in value.items()}
    if value == "HUNDRED_THOUSAND":
        return list(range(1, 100_001))
    texts = {"SMALL": SMALL, "SIZED": SIZED, "BOUGHT": BOUGHT, "RUN": "mine"}
    return texts.get(value, value) if isinstance(value, str) else value


@pytest.mark.slow
@pytest.mark.parametrize("asked", QUESTIONS, ids=[one["question"][:40] for one in QUESTIONS])
def test_questions_in_plain_words(root: Path, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breakeven, "STEPS", 4)
    monkeypatch.setattr(breakeven, "HALVINGS", 4)
    [(failed, text)] = called(root, [(asked["tool"], filled(asked["arguments"]))])
    assert failed == ("error" in asked), text
    for part in asked.get("says", [asked.get("error")]):
        assert part.lower() in text.lower()


def test_there_are_twenty_questions_that_use_every_tool() -> None:
    assert len(QUESTIONS) == 20
    assert {one["tool"] for one in QUESTIONS} == {
        *("list_catalogue", "check", "run", "size", "capacity", "breakeven", "price", "diff", "explain")
    }


@pytest.mark.slow
def test_an_answer_is_small_and_names_its_run_digest_and_sources(root: Path) -> None:
    [(_, text)] = called(root, [("run", {"scenario": SMALL, "set": {"sweep": None}, "replications": 1})])
    answer = json.loads(text)
    assert len(text) < 10_000
    assert (root / answer["run"] / "summary.csv").is_file()
    assert len(answer["digest"]) == 16
    assert answer["sources"]
    assert "cost_usd_per_h" in answer["rows"][0]


@pytest.mark.slow
def test_resources_are_the_schema_and_the_examples(root: Path) -> None:
    from mcp import MCPError

    async def texts() -> list[str]:
        async with client(answering(root)) as session:
            names = ("schema", "examples", "examples/autoscale-day")
            found = [await session.read_resource(f"gpufleet://{name}") for name in names]
            with pytest.raises(MCPError, match="no example 'nosuch'; there are"):
                await session.read_resource("gpufleet://examples/nosuch")
            return [str(one.contents[0].text) for one in found]

    schema, examples, example = asyncio.run(texts())
    assert "properties" in json.loads(schema)
    assert "autoscale-day" in json.loads(examples)
    assert "name: autoscale-day" in example


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "reason"),
    [
        ("../x.yaml", "outside the root"),
        ("nothing", "no file within the root"),
        ("a\0b", "is no path of a file"),
        ("x" * 5000, "is no path of a file"),
        (SMALL.replace("llama3.1-8b", "/etc/config.json"), "paths within the root only"),
        (SMALL + "base: ../../secret.yaml\n", "paths within the root only"),
        ("name: [\n", "not valid YAML"),
        (f"# {'x' * 100_001}\nname: x\n", "at most 100,000"),
        (SMALL.replace("horizon_s", "horizon"), "horizon"),
    ],
)
def test_what_a_scenario_may_not_name(root: Path, scenario: str, reason: str) -> None:
    [(failed, text)] = called(root, [("check", {"scenario": scenario})])
    assert failed
    assert reason in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "values"),
    [
        ("child.yaml", {}),
        ("base.yaml", {"sweep.workload.arrivals.rate_rps": list(range(1, 600))}),
        ("base.yaml", {"replications": 600}),
    ],
)
def test_the_size_counts_the_base_and_values_by_path(tmp_path: Path, scenario: str, values: dict[str, Any]) -> None:
    sweep = str(list(range(1, 600)) if scenario == "child.yaml" else [1])
    (tmp_path / "base.yaml").write_text(SMALL.replace("[1, 2, 4]", sweep))
    (tmp_path / "child.yaml").write_text("base: base.yaml\nname: child\n")
    from sim.agents.workspace import Refused, ToolWorkspace

    with pytest.raises(Refused, match="this server allows 500"):
        ToolWorkspace(tmp_path).check_size(tmp_path / scenario, values, None)


@pytest.mark.slow
def test_equal_calls_of_two_clients_wait_for_one_another(root: Path) -> None:
    from sim.agents.commands import Finished

    busy = False

    async def alone(words: Sequence[str], folder: Path, limit_s: float, progress: Any) -> Finished:
        nonlocal busy
        assert not busy
        busy = True
        await asyncio.sleep(0.01)
        busy = False
        return Finished(1, "", "done")

    async def ask() -> list[str]:
        server = served(root, alone)
        async with client(server) as first, client(server) as second:
            calls = (one.call_tool("run", {"scenario": SMALL}) for one in (first, second))
            return [one.content[0].text for one in await asyncio.gather(*calls)]

    assert all("done" in text for text in asyncio.run(ask()))


@pytest.mark.slow
def test_a_link_out_of_the_root_is_refused(tmp_path: Path) -> None:
    folder, outside = tmp_path / "root", tmp_path / "log.csv"
    folder.mkdir()
    outside.write_text("arrival_s,prompt_tokens,output_tokens\n0,1,1\n")
    (folder / "log.csv").symlink_to(outside)
    lines = "workload: {trace: {path: log.csv, format: csv}}\nfleets: [{name: a, pools: [{gpu: l4}]}]\n"
    (folder / "s.yaml").write_text(lines)
    [(failed, text)] = called(folder, [("check", {"scenario": "s.yaml"})])
    assert failed
    assert "outside the root" in text


@pytest.mark.slow
def test_a_command_in_a_separate_process_reports_its_progress_and_ends_in_time(tmp_path: Path) -> None:
    from sim.agents.commands import in_child

    told: list[str] = []

    async def progress(seconds: float, total: float | None, message: str | None) -> None:
        told.append(str(message))

    calls = [("check", {"scenario": SMALL})]
    [(failed, text)] = called(tmp_path, calls, execute=in_child)
    assert not failed, text
    [(failed, text)] = called(tmp_path, calls, execute=in_child, limits={"limit_s": 0.05})
    assert failed
    assert "stopped after 0.05 s" in text
    called(tmp_path, calls, progress_callback=progress)
    assert told == ["running"]


@pytest.mark.slow
def test_http_refuses_a_wrong_token_and_a_large_request_with_an_error_that_clients_show(tmp_path: Path) -> None:
    from mcp.types import jsonrpc_message_adapter
    from starlette.testclient import TestClient

    from sim.agents.http import MOST_BYTES, guarded

    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {"accept": "application/json, text/event-stream", "host": "127.0.0.1:8766"}
    right = headers | {"authorization": "Bearer secret"}
    with TestClient(guarded(served(tmp_path), "secret", "127.0.0.1", 1000)) as session:
        assert session.post("/mcp", json=ping, headers=right).status_code not in (401, 413)
        for code, body, given in (
            (401, ping, headers),
            (401, ping, headers | {"authorization": "Bearer wrong"}),
            (413, ping | {"params": {"x": "x" * 1000}}, right),
        ):
            answer = session.post("/mcp", json=body, headers=given)
            assert answer.status_code == code
            text = jsonrpc_message_adapter.validate_json(answer.content, by_name=False).error.message
            assert ("the token is missing or wrong" if code == 401 else "more than 1,000 bytes") in text
    assert len(json.dumps(list(range(1, 1_000_001)))) < MOST_BYTES


@pytest.mark.slow
def test_stdio_speaks_with_the_command(tmp_path: Path) -> None:
    from mcp.client.stdio import StdioServerParameters

    async def names() -> list[str]:
        source = str(Path(__file__).resolve().parents[2])
        words = ["-P", "-m", "sim", "mcp", "--root", str(tmp_path)]
        server = StdioServerParameters(command=sys.executable, args=words, env={"PYTHONPATH": source})
        async with client(server) as session:
            return [tool.name for tool in (await session.list_tools()).tools]

    assert "breakeven" in asyncio.run(names())
