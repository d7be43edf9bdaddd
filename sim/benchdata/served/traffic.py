"""Traffic and latencies observed on a server, as rows for calibration and as a scenario's `workload`.

If the load of the server is not known, it is derived from the requests in flight.
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
from sim.message import Message
from sim.yamlio import dump

QUEUED = 0.05
"""Ratio of waiting to running requests above which the queue hides the engine's time to first token."""
STEADY, CHANCE_SD = 0.25, 2.0
"""Tolerances between requests in flight at both ends and their mean: fraction of the mean, and standard deviations.

A server beyond both tolerances was filling or draining.
"""
WAVES, LEAST_REQUESTS, MOST_REQUESTS = 3, 64, 500
"""Requests of a run that represents a recording: per client, at least, and at most."""
MOST_PARTS = 3
"""Largest number of parts of a recording with varying load."""


def rate_seen(
    requests: float, seconds: float | None, usual: float, running: Sequence[float], waiting: Sequence[float]
) -> dict[str, Any]:
    """Return the load columns of a server that kept up with *requests* in *seconds*.

    The result is empty if the server did not keep up or the time is not known. *usual* is the mean number of requests
    in flight; *running* and *waiting* are numbers at points in time, the first and last of which are the ends. Only
    for a server that keeps up does the rate determine its state, and the time to first token depend on the engine.
    """
    queued = sum(waiting) > QUEUED * sum(running)
    far = max(1.0, STEADY * usual, CHANCE_SD * sqrt(usual))
    if not seconds or queued or any(abs(end - usual) > far for end in (running[0], running[-1])):
        return {}
    count = min(MOST_REQUESTS, max(LEAST_REQUESTS, round(requests)))
    return {"load": "poisson", "rate_req_s": requests / seconds, "num_requests": count}


def closed_loop_of(in_flight: float | None) -> Mapping[str, Any]:
    """Return the load columns of a server whose clients are not known: a closed loop with its mean requests in flight.

    The time per token depends on these, regardless of the arrivals.
    """
    clients = max(1, round(in_flight or 1.0))
    return {"load": "closed_loop", "concurrency": clients, "num_requests": max(LEAST_REQUESTS, WAVES * clients)}


def runs_of_recording(came: Sequence[float]) -> list[tuple[int, int]]:
    """Divide a recording into runs of similar numbers of requests. Return their (first, last) scrapes.

    A run has at most MOST_REQUESTS requests; of more than MOST_PARTS runs, the first, the last and some between are
    kept. *came* are cumulative arrivals at each scrape.
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
"""Coefficient of variation below which lengths count as equal."""


@dataclass(frozen=True, slots=True)
class ServedPeriod:
    """Traffic of one server during one recording."""

    id: str
    model: str
    engine: str
    requests: float
    seconds: float | None
    """Duration [s]; None: not known, and no rate follows."""
    prompt_tokens: float
    """Mean prompt length [tokens]."""
    output_tokens: float
    """Mean answer length [tokens]."""
    prompt_cv: float = 0.0
    """Coefficient of variation of prompt lengths."""
    output_cv: float = 0.0
    """Coefficient of variation of answer lengths."""
    cached_share: float = 0.0
    """Fraction of prompt tokens found in the prefix cache."""
    in_flight: float | None = None
    """Mean number of running requests."""
    recording: str = ""
    """Name of the recording; servers of one recording share its traffic."""
    recording_s: float | None = None
    """Duration of the recording [s]; the server may have run for a part of it."""
    ranks: int = 1
    """Number of data-parallel ranks with separate counters."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Columns that the server reports about itself."""
    load: Mapping[str, Any] = field(default_factory=dict)
    """Configured load of the client: load, rate_req_s, concurrency; empty if not known."""
    counted: CountedTraffic | None = None
    """Counted requests; None: arrivals follow `load`."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """Measured values, keyed by METRICS of `row`."""
    parts: tuple["ServedPeriod", ...] = ()
    """Parts of a recording with varying load; each is a run of its own."""
    remarks: tuple[str, ...] = ()
    """Remarks for the reader of the results."""

    @property
    def rate_rps(self) -> float | None:
        """Request rate [1/s]; None if the duration is not known."""
        return self.requests / self.seconds if self.seconds else None

    def row(self, path: Path, about: Mapping[str, str]) -> BenchRow:
        """Return a table row; *about* has columns that the server lacks: gpu, tp, precision. Raises BenchdataError."""
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
            **(self.load or closed_loop_of(self.in_flight)),
            **self.measured,
            **about,
        }
        problems: list[Problem] = []
        if not cells["model"]:
            problems.append((0, "names no model: add --about model=..."))
        if self.ranks > 1 and str(about.get("dp", "")) != str(self.ranks):
            problems.append(
                (0, Message("counts {ranks} data-parallel ranks separately: add --about dp={ranks}", self.ranks))
            )
        row = None if problems else row_of(cells, 0, path.parent, problems)
        if row is None:
            raise BenchdataError([(str(path), line, text) for line, text in problems])
        return replace(row, counted=self.counted)

    def rows(self, path: Path, about: Mapping[str, str]) -> list[BenchRow]:
        """Return the rows of the whole period or of each part. Raises BenchdataError."""
        return [one.row(path, about) for one in self.parts or (self,)]


def combined_traffic(servers: Sequence[ServedPeriod]) -> ServedPeriod:
    """Return the combined traffic of the servers of one recording."""
    first, requests = servers[0], sum(one.requests for one in servers)
    prompt, prompt_cv = _mixed([(one.requests, one.prompt_tokens, one.prompt_cv) for one in servers])
    output, output_cv = _mixed([(one.requests, one.output_tokens, one.output_cv) for one in servers])
    cached = sum(one.requests * one.prompt_tokens * one.cached_share for one in servers)
    return ServedPeriod(
        id=first.recording or first.id,
        model=first.model,
        engine=first.engine,
        requests=requests,
        seconds=first.recording_s,
        prompt_tokens=prompt,
        output_tokens=output,
        prompt_cv=prompt_cv,
        output_cv=output_cv,
        cached_share=cached / (requests * prompt) if requests else 0.0,
    )


def _mixed(parts: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Return mean and coefficient of variation of a mixture of (number, mean, coefficient of variation)."""
    number = sum(count for count, _, _ in parts) or 1.0
    mean = sum(count * one for count, one, _ in parts) / number
    squares = sum(count * one**2 * (1 + cv**2) for count, one, cv in parts) / number
    return mean, sqrt(max(0.0, squares / mean**2 - 1)) if len(parts) > 1 else parts[0][2]


LONGEST_OVER_MEAN = 8
"""Largest drawn length divided by the mean."""
HEADER = "# Traffic that was seen, written by `gpufleet calibrate` from {table}.\n"


def traffic_files(path: Path, seen: Sequence[ServedPeriod]) -> dict[Path, ServedPeriod]:
    """Return the traffic of each recording, keyed by file: *path*, or variants of it for several recordings."""
    recordings: dict[str, list[ServedPeriod]] = {}
    for one in seen:
        recordings.setdefault(one.recording or one.id, []).append(one)
    whole = {
        name: combined_traffic(servers) if len(servers) > 1 else servers[0] for name, servers in recordings.items()
    }
    if len(whole) == 1:
        return dict.fromkeys([path], *whole.values())
    return {path.with_stem(f"{path.stem}-{name}"): one for name, one in whole.items()}


def traffic_text(seen: ServedPeriod, table: str) -> str:
    """Return the text of a file that scenarios can use as their base."""
    return HEADER.format(table=table) + dump(fragment(seen))


def why_not_written(path: Path, seen: Sequence[ServedPeriod], out: Path) -> str:
    """Return the reason why the traffic is not written to *path*; empty if it is."""
    if not seen:
        return "a table of runs has no traffic; name metrics pages, spans or a report"
    for file in traffic_files(path, seen):
        if file.absolute() == out.absolute():
            return "is the file of the factors; name another one"
        if file.exists() and not (
            file.is_file() and file.read_text(encoding="utf-8", errors="replace").startswith(HEADER.partition("{")[0])
        ):
            return "exists and holds no traffic; name another file"
    return ""


def fragment(seen: ServedPeriod) -> dict[str, Any]:
    """Return the scenario section `workload` of the traffic, without a rate if it is not known."""
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
    """Return the scenario's distribution of lengths [tokens]."""
    if cv < EQUAL:
        return {"distribution": "fixed", "value": max(1, round(mean))}
    longest = round(LONGEST_OVER_MEAN * mean)
    return {"distribution": "lognormal", "mean": round(mean, 1), "cv": round(cv, 3), "max": max(1, longest)}
