"""Traffic and latencies observed on a server: as rows to calibrate with, and as a scenario's `workload`.

Where nobody knows the load that a server was under, it is worked out from the requests in flight.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, sqrt
from pathlib import Path
from typing import Any

from sim.benchdata.errors import BenchdataError
from sim.benchdata.row import BenchRow, CountedTraffic
from sim.benchdata.table import Problem, row_of
from sim.yamlio import dump

QUEUED = 0.05
"""A server on which more than this share of requests waits has a queue, whose length says nothing about the engine."""
STEADY, CHANCE_SD = 0.25, 2.0
"""A server was filling or draining if its requests in flight at the ends lie further from their mean than this share of
it, and than this number of standard deviations of independent arrivals."""
WAVES, LEAST_REQUESTS, MOST_REQUESTS = 3, 64, 500
"""Requests of a run that stands for a stretch: per client, at least and at most."""
MOST_PARTS = 3
"""Of a stretch in which the load changed."""


def rate_seen(
    requests: float, seconds: float | None, usual: float, running: Sequence[float], waiting: Sequence[float]
) -> dict[str, Any]:
    """Columns of a server that keeps up with *requests* in *seconds*; empty where it did not, or the time is not known.

    *usual*: its requests in flight on average; *running*, *waiting*: at moments, of which the first and the last are
    the ends. Only a server that keeps up is known by its rate, and its first tokens say something about the engine.
    """
    queued = sum(waiting) > QUEUED * sum(running)
    far = max(1.0, STEADY * usual, CHANCE_SD * sqrt(usual))
    if not seconds or queued or any(abs(end - usual) > far for end in (running[0], running[-1])):
        return {}
    count = min(MOST_REQUESTS, max(LEAST_REQUESTS, round(requests)))
    return {"load": "poisson", "rate_req_s": requests / seconds, "num_requests": count}


def kept_in_flight(in_flight: float | None) -> Mapping[str, Any]:
    """Columns of a server whose clients nobody knows: as many requests as it answered on average are kept in flight.

    Its time per token depends on these, whatever came in.
    """
    clients = max(1, round(in_flight or 1.0))
    return {"load": "closed_loop", "concurrency": clients, "num_requests": max(LEAST_REQUESTS, WAVES * clients)}


def cuts(came: Sequence[float]) -> list[tuple[int, int]]:
    """(first page, last page) of runs of about as many requests, MOST_REQUESTS at most; where there are more than
    MOST_PARTS, the first, the last and some between. *came*: requests by each page, since any moment.
    """
    total = came[-1] - came[0]
    number = max(1, ceil(total / MOST_REQUESTS))
    share = [(one - came[0]) / total * number if total > 0 else 0.0 for one in came]
    inner = [next(page for page, one in enumerate(share) if one >= part) for part in range(1, number)]
    edges = [0, *inner, len(came) - 1]
    found = [one for one in pairwise(edges) if one[0] < one[1] and came[one[1]] - came[one[0]] <= 2 * MOST_REQUESTS]
    kept = min(MOST_PARTS, len(found))
    return [found[round(place * (len(found) - 1) / max(1, kept - 1))] for place in range(kept)]


EQUAL = 0.01
"""Lengths whose spread over mean is smaller count as equal."""


@dataclass(frozen=True, slots=True)
class ServedPeriod:
    """One stretch of time of one server."""

    id: str
    model: str
    engine: str
    requests: float
    seconds: float | None
    """None: the length of the stretch is not known, and no rate follows."""
    prompt_tokens: float
    """Mean."""
    output_tokens: float
    prompt_cv: float = 0.0
    """Standard deviation over mean."""
    output_cv: float = 0.0
    cached_share: float = 0.0
    """Of prompt tokens, out of the prefix cache."""
    in_flight: float | None = None
    """Requests that were answered at a time, on average."""
    stretch: str = ""
    """Servers of one stretch share its traffic."""
    stretch_s: float | None = None
    """Its length; the server may have been there for a part of it."""
    ranks: int = 1
    """Data-parallel ranks that it counts apart."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Columns that the server told of itself."""
    load: Mapping[str, Any] = field(default_factory=dict)
    """What the client was told: load, rate_req_s, concurrency; empty: nobody knows."""
    counted: CountedTraffic | None = None
    """The requests that came one by one; None: they came as `load` says."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """By METRICS of `row`."""
    parts: tuple["ServedPeriod", ...] = ()
    """Of a stretch in which the load changed: each is a run of its own."""
    remarks: tuple[str, ...] = ()
    """What a reader must know."""

    @property
    def rate_rps(self) -> float | None:
        """Requests per second."""
        return self.requests / self.seconds if self.seconds else None

    def row(self, path: Path, about: Mapping[str, str]) -> BenchRow:
        """As a row of a table; *about* has what the server does not tell: gpu, tp, precision. Raises BenchdataError."""
        cells: dict[str, Any] = {
            "id": self.id,
            "model": self.model,
            "engine": self.engine,
            "isl": self.prompt_tokens,
            "osl": self.output_tokens,
            "prompt_cv": self.prompt_cv if self.prompt_cv >= EQUAL else None,
            "output_cv": self.output_cv if self.output_cv >= EQUAL else None,
            "cached_share": self.cached_share or None,
            **self.settings,
            **(self.load or kept_in_flight(self.in_flight)),
            **self.measured,
            **about,
        }
        problems: list[Problem] = []
        if not cells["model"]:
            problems.append((0, "names no model: say which with --about model=..."))
        if self.ranks > 1 and str(about.get("dp", "")) != str(self.ranks):
            problems.append((0, f"counts {self.ranks} data-parallel ranks apart: say --about dp={self.ranks}"))
        row = None if problems else row_of(cells, 0, path.parent, problems)
        if row is None:
            raise BenchdataError([(str(path), line, text) for line, text in problems])
        return replace(row, counted=self.counted)

    def rows(self, path: Path, about: Mapping[str, str]) -> list[BenchRow]:
        """Its runs: one, or one for each part. Raises BenchdataError."""
        return [one.row(path, about) for one in self.parts or (self,)]


def together(servers: Sequence[ServedPeriod]) -> ServedPeriod:
    """All that the servers of one stretch were asked."""
    first, requests = servers[0], sum(one.requests for one in servers)
    prompt, prompt_cv = _mixed([(one.requests, one.prompt_tokens, one.prompt_cv) for one in servers])
    output, output_cv = _mixed([(one.requests, one.output_tokens, one.output_cv) for one in servers])
    cached = sum(one.requests * one.prompt_tokens * one.cached_share for one in servers)
    return ServedPeriod(
        id=first.stretch or first.id,
        model=first.model,
        engine=first.engine,
        requests=requests,
        seconds=first.stretch_s,
        prompt_tokens=prompt,
        output_tokens=output,
        prompt_cv=prompt_cv,
        output_cv=output_cv,
        cached_share=cached / (requests * prompt) if requests else 0.0,
    )


def _mixed(parts: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Mean and spread over mean of (number, mean, spread over mean) thrown together."""
    number = sum(count for count, _, _ in parts) or 1.0
    mean = sum(count * one for count, one, _ in parts) / number
    squares = sum(count * one**2 * (1 + cv**2) for count, one, cv in parts) / number
    return mean, sqrt(max(0.0, squares / mean**2 - 1)) if len(parts) > 1 else parts[0][2]


LONGEST_OVER_MEAN = 8
"""Longest of drawn lengths."""
HEADER = "# Traffic that was seen, written by `gpufleet calibrate` from {table}.\n"


def traffic_files(path: Path, seen: Sequence[ServedPeriod]) -> dict[Path, ServedPeriod]:
    """Where the traffic of each stretch goes: to *path*, or of several stretches to files of their own beside it."""
    stretches: dict[str, list[ServedPeriod]] = {}
    for one in seen:
        stretches.setdefault(one.stretch or one.id, []).append(one)
    whole = {name: together(servers) if len(servers) > 1 else servers[0] for name, servers in stretches.items()}
    if len(whole) == 1:
        return dict.fromkeys([path], *whole.values())
    return {path.with_stem(f"{path.stem}-{name}"): one for name, one in whole.items()}


def traffic_text(seen: ServedPeriod, table: str) -> str:
    """The file that a scenario names as its base."""
    return HEADER.format(table=table) + dump(fragment(seen))


def why_not_written(path: Path, seen: Sequence[ServedPeriod], out: Path) -> str:
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


def fragment(seen: ServedPeriod) -> dict[str, Any]:
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
