"""From scrapes of a server's counters and histograms to what it served between the first and the last of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, sqrt
from pathlib import Path
from statistics import fmean
from typing import Any

from sim.benchdata.errors import BenchdataError
from sim.benchdata.served.samples import Scrape, labelled
from sim.benchdata.served.seen import LEAST_REQUESTS, Seen

MS_PER_S = 1000.0
LAST_BUCKET = 2.0
"""Upper end of the bucket without one, over its lower end."""
QUEUED = 0.05
"""A server on which more than this share of requests waits has a queue, whose length says nothing about the engine."""
ENGINES = {"vllm": "vLLM", "sglang": "SGLang"}
NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "vllm": {
        "prompt": ("request_prompt_tokens",),
        "output": ("request_generation_tokens",),
        "ttft": ("time_to_first_token_seconds",),
        "itl": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
        "e2e": ("e2e_request_latency_seconds",),
        "hits": ("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
        "asked": ("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
        "running": ("num_requests_running",),
        "waiting": ("num_requests_waiting",),
    },
    "sglang": {
        "prompt": ("prompt_tokens_histogram",),
        "output": ("generation_tokens_histogram",),
        "ttft": ("time_to_first_token_seconds",),
        "itl": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
        "e2e": ("e2e_request_latency_seconds",),
        "hits": ("cached_tokens_total",),
        "asked": ("prompt_tokens_total",),
        "running": ("num_running_reqs",),
        "waiting": ("num_queue_reqs",),
    },
}
"""What is read -> names behind the engine's prefix, the newest first."""
STEADY = 0.25
"""A server whose requests in flight at the ends lie further than this from their mean was filling or draining."""
MOST_REQUESTS = 500
"""Of a run that stands for what was seen."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """What fell into it between the scrapes."""

    count: float
    total: float
    buckets: tuple[tuple[float, float], ...]
    """(upper end, count up to it)."""

    @property
    def mean(self) -> float:
        """Exact: the sum over the count."""
        return self.total / self.count

    @property
    def cv(self) -> float:
        """Standard deviation over mean, the values of a bucket spread evenly over it."""
        below, low = 0.0, 0.0
        first = second = 0.0
        for high, upto in self.buckets:
            end = high if high < inf else LAST_BUCKET * low
            number = upto - below
            first += number * (low + end) / 2
            second += number * (low * low + low * end + end * end) / 3
            below, low = upto, end
        mean = first / self.count
        return sqrt(max(0.0, second / self.count - mean * mean)) / mean if mean else 0.0


def seen_in(scrapes: Sequence[Scrape], seconds: float | None) -> Seen:
    """The stretch from the first scrape to the last; of a single one, all since the server began.

    *seconds*: its length where the samples carry no time. Raises BenchdataError.
    """
    first, last = (scrapes[0] if len(scrapes) > 1 else Scrape(scrapes[0].place)), scrapes[-1]
    _in_order(scrapes)
    engine, model = _who(scrapes)
    between = _Between(first, last, engine)
    prompt, output = between.histogram("prompt"), between.histogram("output")
    ttft, itl = between.histogram("ttft"), between.histogram("itl")
    if seconds is None and first.time_s is not None and last.time_s is not None:
        seconds = last.time_s - first.time_s
    running = [between.gauge("running", one) for one in scrapes]
    waiting = sum(between.gauge("waiting", one) for one in scrapes)
    measured = {"tpot_mean_ms": MS_PER_S * itl.mean}
    load: dict[str, Any] = {}
    if seconds and len(scrapes) > 1 and waiting <= QUEUED * sum(running) and _steady(running):
        # only a server that keeps up is known by its rate, and its first tokens say something about the engine
        measured["ttft_mean_ms"] = MS_PER_S * ttft.mean
        requests = min(MOST_REQUESTS, max(LEAST_REQUESTS, round(ttft.count)))
        load = {"load": "poisson", "rate_req_s": ttft.count / seconds, "num_requests": requests}
    return Seen(
        id=Path(last.place).stem,
        model=model,
        engine=ENGINES[engine],
        requests=ttft.count,
        seconds=seconds,
        prompt_tokens=prompt.mean,
        output_tokens=output.mean,
        prompt_cv=prompt.cv,
        output_cv=output.cv,
        cached_share=between.share("hits", "asked"),
        in_flight=_in_flight(running, itl, seconds),
        load=load,
        measured=measured,
    )


def _steady(running: Sequence[float]) -> bool:
    usual = fmean(running)
    return all(abs(end - usual) <= max(1.0, STEADY * usual) for end in (running[0], running[-1]))


def _in_flight(running: Sequence[float], itl: Histogram, seconds: float | None) -> float | None:
    """Requests that a token shares its step with: gauges weigh by themselves, since each running request makes a token
    a step. Two gauges say little; then the time that answers took, over the time that passed.
    """
    if len(running) > 2 and any(running):
        return sum(one * one for one in running) / sum(running)
    return itl.total / seconds if seconds else (max(running) or None)


class _Between:
    """Differences of counters; series of several engine processes add up."""

    def __init__(self, first: Scrape, last: Scrape, engine: str) -> None:
        self.first, self.last, self.engine = first, last, engine

    def histogram(self, what: str) -> Histogram:
        name = self._name(what, "_count")
        if name is None:
            self._refuse(f"has no {self._wanted(what)}: of a server that answered requests, the metrics page has it")
        bounds: dict[float, float] = {}
        for series in self.last.values:
            if series[0] == f"{name}_bucket":
                end = float(labelled(series)["le"])
                bounds[end] = bounds.get(end, 0.0) + self._change(series)
        if not bounds:
            self._refuse(f"{name} has no buckets; keep the series {name}_bucket")
        count = self._sum(f"{name}_count")
        if not count:
            self._refuse(f"{name} counts nothing between the scrapes: no request was answered")
        return Histogram(count, self._sum(f"{name}_sum"), tuple(sorted(bounds.items())))

    def share(self, part: str, whole: str) -> float:
        name, of = self._name(part), self._name(whole)
        asked = self._sum(of) if of else 0.0
        return self._sum(name) / asked if name and asked else 0.0

    def gauge(self, what: str, at: Scrape) -> float:
        name = self._name(what)
        return sum(value for series, value in at.values.items() if series[0] == name)

    def _name(self, what: str, suffix: str = "") -> str | None:
        known = {series[0] for series in self.last.values}
        names = [f"{self.engine}:{name}" for name in NAMES[self.engine][what]]
        return next((name for name in names if f"{name}{suffix}" in known), None)

    def _wanted(self, what: str) -> str:
        return f"{self.engine}:{NAMES[self.engine][what][0]}"

    def _sum(self, name: str) -> float:
        return sum(self._change(series) for series in self.last.values if series[0] == name)

    def _change(self, series: tuple[str, tuple[tuple[str, str], ...]]) -> float:
        before, after = self.first.values.get(series, 0.0), self.last.values[series]
        if after < before:
            self._refuse(
                f"{series[0]} falls from {before:g} to {after:g}: the server was started again between the scrapes, or "
                f"they stand in the wrong order"
            )
        return after - before

    def _refuse(self, text: str) -> None:
        raise BenchdataError([(self.last.place, 0, text)])


def _in_order(scrapes: Sequence[Scrape]) -> None:
    for earlier, later in pairwise(scrapes):
        if earlier.time_s is not None and later.time_s is not None and later.time_s <= earlier.time_s:
            text = f"is no later than {earlier.place}; name the scrapes in the order in which they were taken"
            raise BenchdataError([(later.place, 0, text)])


def _who(scrapes: Sequence[Scrape]) -> tuple[str, str]:
    """(engine, model)."""
    engines = {series[0].partition(":")[0] for one in scrapes for series in one.values}
    models = {name for one in scrapes for series in one.values if (name := labelled(series).get("model_name"))}
    problems = []
    if len(engines) > 1:
        problems.append("holds metrics of vLLM and of SGLang; calibrate one server at a time")
    if len(models) > 1:
        named = " and ".join(sorted(models))
        problems.append(f"holds metrics of several models, {named}; keep the series of one model_name")
    if problems:
        raise BenchdataError([(scrapes[-1].place, 0, text) for text in problems])
    return engines.pop(), (models or {""}).pop()
