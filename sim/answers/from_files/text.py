"""Commented YAML of a draft."""

from collections.abc import Mapping
from textwrap import wrap
from typing import Any

from sim.answers.from_files.draft import Draft
from sim.answers.from_files.summary import sections
from sim.scenario.reading.layers import SCHEMA_VERSION, VERSION_KEY
from sim.scenario.template import SCHEMA_FILE
from sim.yamlio import dump_line

WIDTH = 118
"""Longest line of the file [characters]."""
COLUMN = 30
"""Column of comments behind short values."""


def scenario_text(draft: Draft, command: str) -> str:
    """Return the file of *draft*, which *command* writes."""
    data, assumed = draft.data, draft.assumed
    lines = [
        *_comment(draft.question),
        "",
        f"# yaml-language-server: $schema={SCHEMA_FILE}",
        f"# Written by `{command}`.",
    ]
    if assumed:
        lines.append("# Values with the comment `assumed` are in none of these files: check them first.")
    for title, sentences in sections(draft):
        lines += ["#", f"# {title}:", *(line for one in sentences for line in _comment(one, "  "))]
    lines += [f"name: {dump_line(draft.name)}", f"{VERSION_KEY}: {SCHEMA_VERSION}"]
    for key in ("model", "checkpoint", "quantization", "engine"):
        lines += _entry(key, data[key], assumed.get(key)) if key in data else []
    lines += ["", *_workload(data["workload"], assumed), ""]
    for key in ("horizon_s", "warmup_s", "replications", "seed", "slo"):
        if key in data:
            lines += _entry(key, data[key], assumed.get(key))
    lines += ["", f"{'fleets:':<{COLUMN}}# more candidates: further items of this list"]
    for fleet in data["fleets"]:
        lines.append(f"  - name: {dump_line(fleet['name'])}")
        for key in (one for one in fleet if one not in ("name", "pools", "cost")):
            lines += _entry(key, fleet[key], assumed.get(key), "    ")
        lines.append("    pools:")
        for pool in fleet["pools"]:
            own: list[str] = []
            for key, value in pool.items():
                own += _entry(
                    key,
                    value,
                    assumed.get(key) if key in ("gpu", "tensor_parallel_size", "cold_start") else None,
                    "        ",
                )
            lines += [f"      - {own[0].lstrip()}", *own[1:]]
        if "cost" in fleet:
            lines += _entry("cost", fleet["cost"], assumed.get("cost"), "    ")
        else:
            quotes = f"{{{fleet['pools'][0]['gpu']}: 2.0}}"
            lines.append(f"    # cost: {{acquisition: rent, quotes: {quotes}}}   # dollars per GPU-hour")
    lines += ["", f"{'sweep:':<{COLUMN}}# multiples of the load"]
    lines += [f"  {key}: {dump_line(value)}" for key, value in data["sweep"].items()]
    first = data["fleets"][0]
    if "cost" in first:
        gpu = first["pools"][0]["gpu"]
        size = {"gpus": [gpu], "rents": {"listed": {gpu: first["cost"]["price"]}}}
        lines += ["", "# Candidates for `gpufleet size`, which finds the cheapest fleet:", f"# size: {dump_line(size)}"]
    return "\n".join(lines) + "\n"


def _comment(sentence: str, indent: str = "") -> list[str]:
    text = " ".join(sentence.split())
    return [f"# {indent}{line}" for line in wrap(text, WIDTH - len(indent), break_on_hyphens=False)]


def _entry(key: str, value: Any, assumed: str | None, indent: str = "") -> list[str]:
    """Return the lines of a key: its comment is behind it, or above it where the line would be long."""
    text = f"{indent}{key}: {dump_line(value)}"
    if isinstance(value, dict) and len(text) > WIDTH:
        return [f"{indent}{key}:", *(f"{indent}  {name}: {dump_line(one)}" for name, one in value.items())]
    if assumed is None:
        return [text]
    line = f"{text:<{COLUMN - 1}} # assumed: {assumed}"
    if len(line) <= WIDTH:
        return [line]
    return [*(f"{indent}{one}" for one in _comment(f"assumed: {assumed}")), text]


def _workload(workload: dict[str, Any], assumed: Mapping[str, str]) -> list[str]:
    reason = assumed.get("workload")
    lines = [f"{'workload:':<{COLUMN}}# assumed: {reason}" if reason else "workload:"]
    for key, value in workload.items():
        if key == "lengths":
            lines += ["  lengths:", *(f"    {side}: {dump_line(one)}" for side, one in value.items())]
        else:
            lines += _entry(key, value, assumed.get(f"workload.{key}"), "  ")
    return lines
