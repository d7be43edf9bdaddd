"""What a folder of results answers, so that nothing in it is replaced by the answer to another question.

More replications, a narrower `precision`, further sweep points and further fleets extend a question: what was found
stays part of the answer. The content of files is no part of it, nor are catalogue and program: when these change, the
same question has a new answer.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from sim.scenario.schema import SECTIONS, Scenario
from sim.scenario.sweep import as_data, points
from sim.study.cases.inputs import placeless

SWEEPING = ("run", "price")
"""The other commands ask about the workload as it stands."""
EFFORT = frozenset(name for name, section in SECTIONS.items() if section.effort)
BY_THEMSELVES = EFFORT | {"question", "base", "replications", "sweep", "fleets"}

Question = dict[str, Any]
"""As it stands in the manifest: `command`, and what else has to agree; values of the scenario by their digests."""


def question_of(command: str, scenario: Scenario, **options: Any) -> Question:
    """What *command* asks about *scenario* with such *options*."""
    data = placeless(as_data(scenario))
    left_out = BY_THEMSELVES.union(name for name, one in SECTIONS.items() if one.command not in ("", command))
    sweeping = command in SWEEPING
    return {
        "command": command,
        "options": options,
        "values": {key: digest(value) for key, value in data.items() if key not in left_out},
        "fleets": {fleet["name"]: digest(fleet) for fleet in data.get("fleets", ())},
        "sweep": data.get("sweep") if sweeping else None,
        "replications": scenario.replications,
        "precision": data.get("precision") if sweeping else None,
    }


def digest(value: Any) -> str:
    """Of a part of a scenario, short."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def differences(before: Mapping[str, Any] | None, now: Question) -> list[str]:
    """What keeps *now* from being the question *before*, or its extension; empty if nothing does."""
    if before is None:
        return ["written by an earlier version, which did not note its question"]
    if before.get("command") != now["command"]:
        return [f"an answer of gpufleet {before.get('command')}"]
    return list(_differences(before, now))


def _differences(before: Mapping[str, Any], now: Question) -> Iterator[str]:
    for part in ("options", "values"):
        was, is_now = before.get(part, {}), now.get(part, {})
        yield from (key for key in {**was, **is_now} if was.get(key) != is_now.get(key))
    for name, was in before.get("fleets", {}).items():
        if now.get("fleets", {}).get(name) != was:
            yield f"fleets.{name}"
    every = [json.dumps(point, sort_keys=True) for point in points(now.get("sweep"))]
    if any(json.dumps(point, sort_keys=True) not in every for point in points(before.get("sweep"))):
        yield "sweep"
    if now.get("replications", 0) < before.get("replications", 0):
        yield "replications"
    if not _as_exact(before.get("precision"), now.get("precision")):
        yield "precision"


def _as_exact(before: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> bool:
    """Whether no replication of *before* is left out."""
    if before is None or before == now:
        return True
    if now is None:
        return False
    others = [{key: value for key, value in one.items() if key != "relative"} for one in (before, now)]
    return others[0] == others[1] and bool(now["relative"] <= before["relative"])
