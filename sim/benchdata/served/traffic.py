"""The traffic that was seen, as a scenario's `workload`: a file for each stretch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.benchdata.served.seen import EQUAL, Seen, together
from sim.yamlio import dump

LONGEST_OVER_MEAN = 8
"""Longest of drawn lengths."""
HEADER = "# Traffic that was seen, written by `gpufleet calibrate` from {table}.\n"


def traffic_files(path: Path, seen: Sequence[Seen]) -> dict[Path, Seen]:
    """Where the traffic of each stretch goes: to *path*, or of several stretches to files of their own beside it."""
    stretches: dict[str, list[Seen]] = {}
    for one in seen:
        stretches.setdefault(one.stretch or one.id, []).append(one)
    whole = {name: together(servers) if len(servers) > 1 else servers[0] for name, servers in stretches.items()}
    if len(whole) == 1:
        return dict.fromkeys([path], *whole.values())
    return {path.with_stem(f"{path.stem}-{name}"): one for name, one in whole.items()}


def traffic_text(seen: Seen, table: str) -> str:
    """The file that a scenario names as its base."""
    return HEADER.format(table=table) + dump(fragment(seen))


def why_not_written(path: Path, seen: Sequence[Seen], out: Path) -> str:
    """Why the traffic does not go to *path*; empty if it does."""
    if not seen:
        return "a table of runs says nothing of the traffic; name pages of metrics, spans or a report"
    for file in traffic_files(path, seen):
        if file.absolute() == out.absolute():
            return "is the file of the factors; name another one"
        if file.exists() and not (
            file.is_file() and file.read_text(encoding="utf-8", errors="replace").startswith(HEADER.partition("{")[0])
        ):
            return "exists and holds no traffic; name another file"
    return ""


def fragment(seen: Seen) -> dict[str, Any]:
    """The workload as a scenario says it. The rate is left out where it is not known."""
    arrivals: dict[str, Any] = {"process": "poisson"}
    if seen.rate_rps is not None:
        arrivals["rate_rps"] = round(seen.rate_rps, 4)
    workload: dict[str, Any] = {
        "arrivals": arrivals,
        "lengths": {
            "prompt": length(seen.prompt_tokens, seen.prompt_cv),
            "output": length(seen.output_tokens, seen.output_cv),
        },
    }
    shared = round(seen.cached_share * seen.prompt_tokens)
    if shared:
        workload["shared_prefix"] = {"tokens": shared, "prefixes": 1}
    return {"workload": workload}


def length(mean: float, cv: float) -> dict[str, Any]:
    """A law of lengths [tokens]."""
    if cv < EQUAL:
        return {"distribution": "fixed", "value": max(1, round(mean))}
    longest = round(LONGEST_OVER_MEAN * mean)
    return {"distribution": "lognormal", "mean": round(mean, 1), "cv": round(cv, 3), "max": max(1, longest)}
