"""Deployment of the fleet that a finished answer recommends, as the text of a tool's file."""

import hashlib
from collections.abc import Iterator, Sequence
from math import isnan
from pathlib import Path
from typing import Any

from sim.answers.deployments.formats import FORMATS
from sim.answers.deployments.objects import SCALED, SLACK, gauges_of, metric_name
from sim.answers.deployments.servers import NoDeployment, ServerGroup, groups_of
from sim.answers.folder import manifest_of
from sim.catalogue.catalog import Catalog
from sim.message import Message
from sim.report.export.stored_answer import read_table
from sim.report.words.text import listing
from sim.scenario.reading.load import load
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case, cases
from sim.study.reprice import SCENARIO_FILE

WINNER = "winner.yaml"
"""Scenario with the fleet that `gpufleet size` recommends."""
COST = "usd_per_million_output_tokens"
SHOWN = {
    "rate_rps": "{} requests/s",
    "ttft_s_p95": "TTFT p95 {} s",
    "tpot_s_p95": "TPOT p95 {} s",
    "output_tokens_per_s": "{} output tokens/s",
    "cost_usd_per_h": "{} USD/h",
    COST: "{} USD per million output tokens",
}
"""Column of summary.csv -> its text in the head of a deployment."""


def deployment_text(folder: Path, form: str, fleet: str | None, catalog: Catalog) -> tuple[str, list[str]]:
    """Return the file of a tool that deploys a fleet of the answer in *folder*, and its open points.

    Parameters
    ----------
    folder
        Folder of a finished answer.
    form
        Tool: a key of FORMATS.
    fleet
        Name of the fleet; None for the recommended fleet: the winner of `size`, else the cheapest of the fleets that
        meet the SLO at 90 % or more of the highest load at which any fleet meets it.
    catalog
        Catalogue in which the ids of the scenario are looked up.

    Raises
    ------
    NoDeployment
        If the tool cannot run the fleet, the answer has no such fleet, or it recommends none.

    """
    winner = folder / WINNER
    file = winner if fleet is None and winner.is_file() else folder / SCENARIO_FILE
    if not file.is_file():
        raise NoDeployment(Message("{folder}: has no fleets to deploy; export a run, or an answer of size", folder))
    scenario = load(file, catalog=catalog)
    if not isinstance(scenario, Scenario):
        raise NoDeployment(Message("{folder}: jobs have no servers to deploy", folder))
    case, row = _chosen(scenario, folder, fleet, file == winner)
    groups = groups_of(scenario, case, catalog)
    open_points = list(_open_points(groups, form))
    return FORMATS[form][1](groups, [*_head(scenario, case, row, folder, groups), *open_points]), open_points


def _chosen(scenario: Scenario, folder: Path, fleet: str | None, is_winner: bool) -> tuple[Case, dict[Any, Any]]:
    """Return the case of the fleet to deploy, and its row of summary.csv; an empty row where there is none."""
    found = [case for case in cases(scenario) if case.replication == 0]
    names = list(dict.fromkeys(case.fleet for case in found))
    if fleet is not None and fleet not in names:
        raise NoDeployment(Message("--fleet {fleet}: the fleets are {names}", fleet, listing(names)))
    summary = folder / "summary.csv"
    rows = read_table(summary).to_dict("records") if summary.is_file() and not is_winner else []
    if len(rows) != len(found):
        rows = [{} for _ in found]
    pairs = [(case, row) for case, row in zip(found, rows, strict=True) if fleet in (None, case.fleet)]
    good = [(case, row) for case, row in pairs if str(row.get("meets_slo")).lower() == "true"]
    if fleet is None and len(names) > 1 and not good:
        raise NoDeployment(
            Message("{folder}: recommends no fleet: name one with --fleet ({names})", folder, listing(names))
        )
    if not good:
        return pairs[0]
    highest = max(_number(row, "offered_rps") for _, row in good)
    there = [(case, row) for case, row in good if _number(row, "offered_rps") >= 0.9 * highest]
    if fleet is None and len({case.fleet for case, _ in there}) > 1 and not all(_number(row, COST) for _, row in there):
        raise NoDeployment(
            Message("{folder}: has no costs: name a fleet with --fleet ({names})", folder, listing(names))
        )
    return min(there, key=lambda one: _number(one[1], COST))


def _number(row: dict[Any, Any], column: str) -> float:
    value = row.get(column)
    return 0.0 if value is None or isnan(value) else float(value)


def digest_of(folder: Path) -> str:
    """Return a digest of the scenario and the main table of the answer in *folder*."""
    content = hashlib.sha256()
    for name in (SCENARIO_FILE, WINNER, "summary.csv", "search.csv"):
        if (folder / name).is_file():
            content.update((folder / name).read_bytes())
    return content.hexdigest()[:16]


def _head(
    scenario: Scenario, case: Case, row: dict[Any, Any], folder: Path, groups: Sequence[ServerGroup]
) -> list[str]:
    version = (manifest_of(folder) or {}).get("version", "")
    lines: list[str] = [
        Message("{fleet} of {name}, by gpufleet {version}", case.fleet, scenario.name, version),
        Message("answer {digest_of} ({name})", digest_of(folder), folder.name),
    ]
    known = [how.format(f"{row[name]:.4g}") for name, how in SHOWN.items() if isinstance(row.get(name), int | float)]
    if known:
        lines.append(Message("simulated: {known}", ", ".join(known)))
    lines += [
        Message("{model}: replace it by your own checkpoint if you serve a fine-tuned one", model)
        for model in dict.fromkeys(group.model for group in groups if group.model != group.checkpoint)
    ]
    lines += [
        Message(
            "{name}: a cold start takes {start_s:.0f} s; the startup probe allows {slack} times this",
            group.name,
            group.start_s,
            SLACK,
        )
        for group in groups
        if group.start_s is not None
    ]
    return lines


def _open_points(groups: Sequence[ServerGroup], form: str) -> Iterator[str]:
    """Yield sentences on what a tool or its operator must add."""
    for group in groups:
        yield from group.notes
        if group.image.endswith(":latest"):
            yield Message("{name}: the scenario names no release of {engine}: pin the image", group.name, group.engine)
        if group.servers_per_replica > 1 and form not in ("vllm", "dynamo", "keda"):
            yield Message(
                "{name}: a replica fills {count} servers: start it with a LeaderWorkerSet",
                group.name,
                group.servers_per_replica,
            )
        if group.autoscaling is None:
            continue
        policy = group.autoscaling.policy
        if policy not in SCALED:
            yield Message("{name}: the autoscaler {policy} is not an object of Kubernetes or KEDA", group.name, policy)
        elif form in ("vllm", "llm-d", "dynamo"):
            yield Message("{name}: its autoscaler is in the file of --format keda", group.name)
        if (
            policy == "hpa"
            and group.autoscaling.metric == "outstanding_per_replica"
            and form in ("kubernetes", "kserve")
        ):
            running, waiting = gauges_of(group.engine, group.autoscaling.metric)
            metric = metric_name(group.engine, group.autoscaling.metric)[0]
            yield Message(
                "{name}: record {metric} as {running} + {waiting} in Prometheus", group.name, metric, running, waiting
            )
