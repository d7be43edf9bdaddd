"""Traffic and latencies that were seen on a server, whoever counted them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from pathlib import Path
from typing import Any

from sim.benchdata.counted import Counted
from sim.benchdata.csv_rows import Problem
from sim.benchdata.errors import BenchdataError
from sim.benchdata.row import BenchRow
from sim.benchdata.served.load import kept_in_flight
from sim.benchdata.table import row_of

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
    counted: Counted | None = None
    """The requests that came one by one; None: they came as `load` says."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """By METRICS of `row`."""
    parts: tuple["Seen", ...] = ()
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


def together(servers: Sequence[Seen]) -> Seen:
    """All that the servers of one stretch were asked."""
    first, requests = servers[0], sum(one.requests for one in servers)
    prompt, prompt_cv = _mixed([(one.requests, one.prompt_tokens, one.prompt_cv) for one in servers])
    output, output_cv = _mixed([(one.requests, one.output_tokens, one.output_cv) for one in servers])
    cached = sum(one.requests * one.prompt_tokens * one.cached_share for one in servers)
    return Seen(
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
