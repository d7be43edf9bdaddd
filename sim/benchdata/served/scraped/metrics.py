"""From scrapes of a server's counters and histograms to what it served between the first and the last of them."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import fmean
from typing import NoReturn

from sim.benchdata.errors import BenchdataError
from sim.benchdata.served.load import rate_seen
from sim.benchdata.served.scraped.histogram import Histogram
from sim.benchdata.served.scraped.names import ENGINES, NAMES
from sim.benchdata.served.scraped.samples import Scrape, Series, labelled
from sim.benchdata.served.scraped.servers import by_server, check_growth, gauge, label_of, ranks_of
from sim.benchdata.served.seen import Seen

MS_PER_S = 1000.0
SETTINGS = {"cache_dtype": "kv_dtype", "gpu_memory_utilization": "gpu_memory_utilization"}
"""What vLLM says of its cache -> columns."""
ALIKE = "no histogram of lengths: all are taken to be alike; --about prompt_cv=... and output_cv=... say how they vary"


def seen_in(scrapes: Sequence[Scrape], seconds: float | None, stretch: str = "") -> list[Seen]:
    """What each server served from the first scrape to the last; of a single one, all since it began.

    *seconds*: the time between where the samples carry none. *stretch*: its name. Raises BenchdataError.
    """
    _in_order(scrapes)
    engine, model = _who(scrapes)
    name = stretch or Path(scrapes[-1].place).stem
    servers = {called: _Between(parts, engine) for called, parts in by_server(scrapes).items()}
    busy = {called: one for called, one in servers.items() if len(servers) == 1 or one.answered}
    if not busy:
        raise BenchdataError([(scrapes[-1].place, 0, "none of its servers answered a request between the scrapes")])
    idle = [f"{called} answered no request and is left out" for called in servers if called and called not in busy]
    found: list[Seen] = []
    for called, between in busy.items():
        named = f"{name} {called}" if len(servers) > 1 else name
        one = _seen(between, seconds, named, name, model, () if found else tuple(idle))
        found.append(replace(one, stretch_s=seconds or _time_between(scrapes)))
    return found


def _seen(
    between: "_Between", seconds: float | None, name: str, stretch: str, model: str, remarks: tuple[str, ...]
) -> Seen:
    scrapes, engine = between.scrapes, between.engine
    ttft, itl = between.histogram("ttft"), between.histogram("itl")
    between.check_no_drafts()
    seconds = seconds or _time_between(scrapes)
    if seconds is None and len(scrapes) < 3:
        between.refuse("says nothing of the time that passed: give --seconds, or three scrapes or more")
    running = [between.gauge("running", one) for one in scrapes]
    waiting = [between.gauge("waiting", one) for one in scrapes]
    usual = fmean(running) if len(running) > 2 else (itl.total + ttft.total) / (seconds or inf)
    load = rate_seen(ttft.count, seconds if len(scrapes) > 1 else None, usual, running, waiting)
    measured = {"tpot_mean_ms": MS_PER_S * itl.mean}
    if load and (first := between.streamed_ttft_s()) is not None:
        measured["ttft_mean_ms"] = MS_PER_S * first
    prompt, prompt_cv = between.lengths("prompt")
    output, output_cv = between.lengths("output")
    return Seen(
        id=name,
        stretch=stretch,
        model=model,
        engine=ENGINES[engine],
        requests=max(1.0, ttft.count + waiting[-1] - (waiting[0] if len(scrapes) > 1 else 0.0)),  # that came
        seconds=seconds,
        prompt_tokens=prompt,
        output_tokens=output,
        prompt_cv=prompt_cv or 0.0,
        output_cv=output_cv or 0.0,
        cached_share=between.cached_share(),
        in_flight=_in_flight(running, itl, seconds),
        ranks=ranks_of(scrapes[-1]),
        settings=between.settings(),
        load=load,
        measured=measured,
        remarks=(*remarks, *(() if prompt_cv is not None and output_cv is not None else (f"{name}: {ALIKE}",))),
    )


def _time_between(scrapes: Sequence[Scrape]) -> float | None:
    """From the first to the last, where they carry times."""
    begin_s, end_s = scrapes[0].time_s, scrapes[-1].time_s
    return end_s - begin_s if len(scrapes) > 1 and begin_s is not None and end_s is not None else None


def _in_flight(running: Sequence[float], itl: Histogram, seconds: float | None) -> float | None:
    """Requests that a token shares its step with: gauges weigh by themselves, since each running request makes a token
    a step. Two gauges say little; then the time that answers took, over the time that passed.
    """
    if len(running) > 2 and any(running):
        return sum(one * one for one in running) / sum(running)
    return itl.total / seconds if seconds else None


class _Between:
    """Differences of one server's counters; series of several engine processes add up."""

    def __init__(self, scrapes: Sequence[Scrape], engine: str) -> None:
        check_growth(scrapes)
        self.scrapes, self.engine = scrapes, engine
        self.last = scrapes[-1]
        self.first = scrapes[0] if len(scrapes) > 1 else Scrape(self.last.place)
        self._known = {series[0] for series in self.last.values}

    @property
    def answered(self) -> bool:
        """Whether a request had its first token between the scrapes."""
        name = self._name("ttft", "_count")
        return name is not None and self._sum(f"{name}_count") > 0

    def histogram(self, what: str) -> Histogram:
        """Raises BenchdataError where there is none or nothing fell into it."""
        name = self._name(what, "_count")
        if name is None:
            self.refuse(f"has no {self._wanted(what)}: of a server that answered requests, the metrics page has it")
        bounds: dict[float, float] = {}
        for series in self.last.values:
            if series[0] == f"{name}_bucket":
                end = self._bound(series)
                bounds[end] = bounds.get(end, 0.0) + self._change(series)
        if not bounds:
            self.refuse(f"{name} has no buckets; keep the series {name}_bucket")
        count = self._sum(f"{name}_count")
        if not count:
            self.refuse(f"{name} counts nothing between the scrapes: no request was answered")
        found = Histogram(count, self._sum(f"{name}_sum"), tuple(sorted(bounds.items())))
        if not found.plausible:
            self.refuse(f"{name}: sum, count and buckets are not of the same values; keep all series of the histogram")
        return found

    def _bound(self, series: Series) -> float:
        try:
            return float(labelled(series).get("le", ""))
        except ValueError:
            self.refuse(f"{series[0]} has a bucket whose label le is no number")

    def streamed_ttft_s(self) -> float | None:
        """Mean over streamed answers, where they are told apart: of the others SGLang sees many tokens at once."""
        name = self._name("ttft", "_count")
        parts = [
            sum(self._change(one) for one in self.last.values if one[0] == f"{name}{end}" and _streamed(one))
            for end in ("_sum", "_count")
        ]
        return parts[0] / parts[1] if parts[1] else None

    def lengths(self, what: str) -> tuple[float, float | None]:
        """(mean, spread over mean) of prompts or answers; the spread is not known without a histogram."""
        tokens, requests = self._name(f"{what}_sum"), self._name("e2e", "_count")
        if self._name(what, "_count") is None and tokens and requests:
            answered = self._sum(f"{requests}_count")
            if answered and (total := self._sum(tokens)):
                return total / answered, None
        found = self.histogram(what)
        return found.mean, found.cv

    def cached_share(self) -> float:
        """Share of prompt tokens out of the prefix cache; of servers without counters, what their gauge showed."""
        hits, asked = self._name("hits"), self._name("asked")
        total = self._sum(asked) if asked else 0.0
        if hits and total:
            return min(1.0, self._sum(hits) / total)
        shown = [
            value for one in self.scrapes for (name, _), value in one.values.items() if name == self._name("hit_share")
        ]
        return min(1.0, fmean(max(0.0, one) for one in shown)) if shown else 0.0

    def check_no_drafts(self) -> None:
        """Raises BenchdataError where answers were decoded speculatively."""
        drafts, accepted = self._name("drafts"), self._name("accepted")
        at_a_time = max((gauge(one, accepted) for one in self.scrapes), default=0.0) if accepted else 0.0
        if (drafts and self._sum(drafts) > 0) or at_a_time > 1:
            self.refuse("decodes speculatively, and steps with drafts do not tell how fast steps are; measure without")

    def settings(self) -> dict[str, str]:
        """Columns that the server told of itself."""
        name = self._name("settings")
        told = label_of(self.last, name) if name else {}
        return {ours: told[theirs] for theirs, ours in SETTINGS.items() if told.get(theirs, "None") != "None"}

    def gauge(self, what: str, at: Scrape) -> float:
        """Of all ranks."""
        name = self._name(what)
        value = gauge(at, name) if name else 0.0
        if value < 0:
            raise BenchdataError([(at.place, 0, f"{name} must be at least 0, not {value:g}")])
        return value

    def refuse(self, text: str) -> NoReturn:
        """Raises BenchdataError."""
        raise BenchdataError([(self.last.place, 0, text)])

    def _name(self, what: str, suffix: str = "") -> str | None:
        names = [f"{self.engine}:{name}" for name in NAMES[self.engine].get(what, ())]
        return next((name for name in names if f"{name}{suffix}" in self._known), None)

    def _wanted(self, what: str) -> str:
        return f"{self.engine}:{NAMES[self.engine][what][0]}"

    def _sum(self, name: str) -> float:
        return sum(self._change(series) for series in self.last.values if series[0] == name)

    def _change(self, series: Series) -> float:
        return self.last.values[series] - self.first.values.get(series, 0.0)


def _streamed(series: Series) -> bool:
    return labelled(series).get("is_streaming", "true") == "true"


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
