"""What one server counted between two scrapes."""

from collections.abc import Sequence
from statistics import fmean
from typing import NoReturn

from sim.benchdata.errors import BenchdataError
from sim.benchdata.served.scraped.histogram import Histogram
from sim.benchdata.served.scraped.names import NAMES
from sim.benchdata.served.scraped.samples import Scrape, Series, labelled
from sim.benchdata.served.scraped.servers import check_growth, gauge, label_of

SETTINGS = {"cache_dtype": "kv_dtype", "gpu_memory_utilization": "gpu_memory_utilization"}
"""What vLLM says of its cache -> columns."""


def time_between(scrapes: Sequence[Scrape]) -> float | None:
    """From the first to the last, where they carry times."""
    begin_s, end_s = scrapes[0].time_s, scrapes[-1].time_s
    return end_s - begin_s if len(scrapes) > 1 and begin_s is not None and end_s is not None else None


class Between:
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
        return self._counted("ttft")

    @property
    def seconds(self) -> float | None:
        """From the first scrape to the last, where they carry times."""
        return time_between(self.scrapes)

    def in_flight(self, seconds: float | None) -> float | None:
        """Requests that a token shares its step with: gauges weigh by themselves, since each running request makes a
        token a step. Two gauges say little; then the time that answers took, over the time that passed.
        """
        running = self.gauges("running")
        if len(running) > 2 and any(running):
            return sum(one * one for one in running) / sum(running)
        return self.histogram("itl").total / seconds if seconds else None

    @property
    def made_tokens(self) -> bool:
        """Whether an answer went on between the scrapes."""
        return self._counted("itl")

    def counts(self, what: str, end: str = "_count") -> list[float]:
        """Of a histogram's values, or with *end* "_sum" their sum, at each scrape since the server began."""
        name = f"{self._name(what, '_count')}{end}"
        return [sum(value for (one, _), value in at.values.items() if one == name) for at in self.scrapes]

    def ended(self) -> list[float]:
        """Requests that had ended, at each scrape since the server began."""
        return self.counts("e2e" if self._name("e2e", "_count") else "output")

    def begun_prompt(self) -> float | None:
        """Mean prompt of the requests that had their first token between the scrapes, where that is counted."""
        name, number = self._name("begun_prompts"), self._sum(f"{self._name('ttft', '_count')}_count")
        return self._sum(name) / number if name and number else None

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
        for hits, asked in (("cached", "prompt_sum"), ("hits", "asked")):
            counted, whole = self._name(hits), self._name(asked)
            if counted and whole and (total := self._sum(whole)):
                return min(1.0, self._sum(counted) / total)
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

    def gauges(self, what: str) -> list[float]:
        """Of all ranks, at each scrape. Raises BenchdataError."""
        name = self._name(what)
        found = [gauge(one, name) if name else 0.0 for one in self.scrapes]
        for value, at in zip(found, self.scrapes, strict=True):
            if value < 0:
                raise BenchdataError([(at.place, 0, f"{name} must be at least 0, not {value:g}")])
        return found

    def refuse(self, text: str) -> NoReturn:
        """Raises BenchdataError."""
        raise BenchdataError([(self.last.place, 0, text)])

    def _name(self, what: str, suffix: str = "") -> str | None:
        names = [f"{self.engine}:{name}" for name in NAMES[self.engine].get(what, ())]
        return next((name for name in names if f"{name}{suffix}" in self._known), None)

    def _counted(self, what: str) -> bool:
        """Whether anything fell into a histogram."""
        name = self._name(what, "_count")
        return name is not None and self._sum(f"{name}_count") > 0

    def _wanted(self, what: str) -> str:
        return f"{self.engine}:{NAMES[self.engine][what][0]}"

    def _sum(self, name: str) -> float:
        return sum(self._change(series) for series in self.last.values if series[0] == name)

    def _change(self, series: Series) -> float:
        return self.last.values[series] - self.first.values.get(series, 0.0)


def _streamed(series: Series) -> bool:
    return labelled(series).get("is_streaming", "true") == "true"
