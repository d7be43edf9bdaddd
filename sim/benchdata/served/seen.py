"""Traffic and latencies that were seen on a server, whoever counted them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim.benchdata.csv_rows import Problem
from sim.benchdata.errors import BenchdataError
from sim.benchdata.row import AMOUNTS, COUNTS, TEXTS, BenchRow
from sim.benchdata.table import row_of
from sim.yamlio import dump

LONGEST_OVER_MEAN = 8
"""Longest of drawn lengths."""
WAVES, LEAST_REQUESTS = 3, 64
"""Requests of a run that stands for a stretch: per client, and at least."""
EQUAL = 0.01
"""Lengths whose spread over mean is smaller count as equal."""


@dataclass(frozen=True, slots=True)
class Seen:
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
    load: Mapping[str, Any] = field(default_factory=dict)
    """What the client was told: load, rate_req_s, concurrency; empty: nobody knows."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """By METRICS of `row`."""

    @property
    def rate_rps(self) -> float | None:
        """Requests per second."""
        return self.requests / self.seconds if self.seconds else None

    def row(self, path: Path, about: Mapping[str, str]) -> BenchRow:
        """As a row of a table; *about* has what the server does not tell: gpu, tp, precision. Raises BenchdataError.

        Of a server whose clients nobody knows, as many requests are kept in flight as it answered on average: its time
        per token depends on these, whatever came in.
        """
        cells: dict[str, Any] = {
            "id": self.id,
            "model": self.model,
            "engine": self.engine,
            "isl": self.prompt_tokens,
            "osl": self.output_tokens,
            "prompt_cv": self.prompt_cv if self.prompt_cv >= EQUAL else None,
            "output_cv": self.output_cv if self.output_cv >= EQUAL else None,
            "cached_share": self.cached_share or None,
            **(self.load or self._kept_in_flight()),
            **self.measured,
            **about,
        }
        problems: list[Problem] = [
            (0, f"--about {name}: there is no such column; one of {', '.join((*TEXTS, *COUNTS, *AMOUNTS))}")
            for name in about
            if name not in (*TEXTS, *COUNTS, *AMOUNTS)
        ]
        row = None if problems else row_of(cells, 0, path.parent, problems)
        if row is None:
            raise BenchdataError([(str(path), line, text) for line, text in problems])
        return row

    def _kept_in_flight(self) -> dict[str, Any]:
        clients = max(1, round(self.in_flight or 1.0))
        return {"load": "closed_loop", "concurrency": clients, "num_requests": max(LEAST_REQUESTS, WAVES * clients)}


HEADER = "# Traffic that was seen, written by `gpufleet calibrate` from {table}.\n"


def traffic_text(seen: Seen, table: str) -> str:
    """The file that a scenario names as its base."""
    return HEADER.format(table=table) + dump(fragment(seen))


def why_not_written(path: Path, seen: Sequence[Seen], out: Path) -> str:
    """Why the traffic does not go to *path*; empty if it does."""
    if not seen:
        return "a table of runs says nothing of the traffic; name pages of metrics, spans or a report"
    if len(seen) > 1:
        return f"these are {len(seen)} loads; name the file of one"
    if path.absolute() == out.absolute():
        return "is the file of the factors; name another one"
    if path.exists() and not (
        path.is_file() and path.read_text(encoding="utf-8", errors="replace").startswith(HEADER.partition("{")[0])
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
