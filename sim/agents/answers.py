"""Answers of tools: a verdict, a table of a few columns, sources, and a digest."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sim.answers.deployments.answer import digest_of
from sim.message import Message
from sim.yamlio import YamlError, read

MOST_ROWS = 40
MOST_FINDINGS = 12
MOST_SOURCES = 15
MOST_CHARACTERS = 24_000
"""Largest answer; rows are left out beyond it [characters]."""
LEFT_OUT = ("_ci95", "_ci95_low", "_ci95_high", "_mean", "_p50", "_p99")
"""Suffixes of columns that a small answer omits; the tables in the folder contain them."""
SMALL_ANSWER_COLUMNS = ("replicas_mean", "batch_mean", "gpu_power_w_mean")
MOST_COLUMNS = 26
FIRST = (
    *("fleet", "candidate", "status", "reason", "meets_slo", "slo_attainment", "capacity_rps", "rate_rps", "units"),
    *("ttft_s_p95", "tpot_s_p95", "e2e_s_p95", "requests_per_s", "output_tokens_per_s", "gpus", "limited_by"),
    *("cost_usd_per_h", "usd_per_h", "cost_usd_per_month", "usd_per_million_output_tokens", "net_present_cost_usd"),
    *("capex_usd", "energy_kwh"),
)
"""Columns that come first in a small answer."""


@dataclass
class Answer:
    """Answer to a question about a scenario."""

    headline: str
    """Verdict in a sentence or two."""
    findings: list[str]
    """Sentences that limit or qualify the verdict."""
    rows: list[dict[str, Any]]
    """Main table: a row per fleet and load, or per candidate; units are in the names."""
    rows_left_out: int
    run: str
    """Folder of the answer within the root, for `price` and `diff`."""
    digest: str
    """Digest of scenario and main table."""
    sources: list[str]
    """Sources of the values used."""


@dataclass
class CheckAnswer:
    """Resolved plan of each fleet, without a simulation."""

    headline: str
    simulations: int
    """Cases of a run: fleets x points x replications."""
    fleets: list[dict[str, Any]]
    """Memory, KV cache and limits of each pool, and the reason where it does not fit."""
    predictions: list[dict[str, Any]]
    """Closest measurements and their distance, per fleet."""


@dataclass
class CatalogueAnswer:
    """Ids of a kind of the catalogue, or one entry with its sourced values."""

    kind: str
    total: int
    """Number of ids that match."""
    ids: list[str]
    entry: dict[str, Any]


@dataclass
class DiffAnswer:
    """Differences between two finished runs."""

    first: str
    second: str
    changes: list[Any]
    """Keys of the scenario that differ."""
    points: list[dict[str, Any]]
    """Metrics that changed, per fleet and load."""
    points_left_out: int


@dataclass
class ExplainAnswer:
    """Explanation of one request: its steps, and what kept it waiting."""

    text: str


def small_answer(document: Mapping[str, Any], folder: Path, root: Path) -> Answer:
    """Return the small form of a command's JSON *document*, whose files are in *folder* below *root*."""
    verdict = document.get("verdict") or {}
    rows = [_row(one) for one in _main(document)]
    findings = [*verdict.get("findings", ()), *document.get("notes", ())]
    answer = Answer(
        headline=_plain(str(verdict.get("headline", ""))),
        findings=[_plain(str(one)) for one in findings[:MOST_FINDINGS]],
        rows=rows[:MOST_ROWS],
        rows_left_out=max(0, len(rows) - MOST_ROWS),
        run=folder.relative_to(root).as_posix(),
        digest=digest_of(folder),
        sources=_sources(folder),
    )
    while answer.rows and len(json.dumps(asdict(answer))) > MOST_CHARACTERS:
        answer.rows.pop()
        answer.rows_left_out += 1
    return answer


def small_check(document: Mapping[str, Any]) -> CheckAnswer:
    """Return the small form of the JSON document of `check`: the first point of each fleet."""
    first: dict[str, dict[str, Any]] = {}
    for plan in document.get("plans", ()):
        first.setdefault(str(plan["fleet"]), plan)
    fleets = [
        {
            "fleet": name,
            "model": plan.get("model"),
            "infeasible": plan.get("infeasible", ""),
            "capex_usd": plan.get("capex_usd"),
            "pools": [_pool(pool) for pool in plan.get("pools", ())],
        }
        for name, plan in first.items()
    ]
    unable = [one["fleet"] for one in fleets if one["infeasible"]]
    fits = Message("cannot run: {fleets}", ", ".join(unable)) if unable else "every fleet can run"
    known = document.get("predictions", ())
    predictions = [{key: one.get(key) for key in ("fleet", "mark", "because")} for one in known]
    count = int(document["cases"])
    return CheckAnswer(Message("{count} simulations; {fits}", count, fits), count, fleets, predictions)


def small_diff(document: Mapping[str, Any]) -> DiffAnswer:
    """Return the small form of the JSON document of `diff`."""
    rows = [_row(one) | {"axes": one.get("axes")} for one in document.get("points", ())]
    return DiffAnswer(
        _plain(str((document.get("first") or {}).get("verdict", ""))),
        _plain(str((document.get("second") or {}).get("verdict", ""))),
        list(document.get("changes", ()))[:MOST_ROWS],
        rows[:MOST_ROWS],
        max(0, len(rows) - MOST_ROWS),
    )


def _main(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the first table of *document*."""
    tables = (one for one in document.values() if isinstance(one, list) and one and isinstance(one[0], dict))
    return next(tables, [])


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    kept = {
        key: value
        for key, value in row.items()
        if not isinstance(value, list)
        and value not in (None, "")
        and (key in SMALL_ANSWER_COLUMNS or not key.endswith(LEFT_OUT))
    }
    axes = kept["axes"] if isinstance(kept.get("axes"), dict) else {}
    flat = {key: value for key, value in kept.items() if not isinstance(value, dict)} | axes
    order = [*axes, *(key for key in FIRST if key in flat), *(key for key in flat if key not in FIRST)]
    return {key: flat[key] for key in list(dict.fromkeys(order))[:MOST_COLUMNS]}


def _pool(pool: Mapping[str, Any]) -> dict[str, Any]:
    names = ("name", "gpu", "server", "replicas", "gpus_per_replica", "tensor_parallel_size", "kv_tokens")
    batching = pool.get("batching") or {}
    memory = pool.get("memory_gb_per_gpu") or {}
    limits = {key: batching.get(key) for key in ("max_num_seqs", "max_num_batched_tokens", "max_model_len")}
    return {name: pool.get(name) for name in names} | limits | {"memory_gb_per_gpu": memory}


def _sources(folder: Path) -> list[str]:
    """Return the titles of the sources of the values that an answer in *folder* used."""
    try:
        plans = read(folder / "resolved.yaml").data
    except YamlError:
        return []
    first = plans[0] if isinstance(plans, list) and plans else {}
    held = first.get("sources") if isinstance(first, dict) else None
    titles = [str(one.get("title")) for one in held.values()] if isinstance(held, dict) else []
    return list(dict.fromkeys(titles))[:MOST_SOURCES]


def _plain(text: str) -> str:
    return text.replace("\u00a0", " ").replace("\u202f", " ")
