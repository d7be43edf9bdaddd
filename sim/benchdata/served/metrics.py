"""Traffic of each server between its first and last scrape, from differences of its counters.

Labels distinguish servers and data-parallel ranks. A recording during which a server filled, queued or drained is
divided into runs with counted requests.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import fmean
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from sim.benchdata.errors import BenchdataError
from sim.benchdata.row import CountedTraffic
from sim.benchdata.served.lengths import Histogram, TokenProgress, all_answers, remaining_answers
from sim.benchdata.served.scrapes import CUMULATIVE, ENGINES, NAMES, MetricsScrape, Series, labelled
from sim.benchdata.served.traffic import QUEUED, ServedPeriod, rate_seen, runs_of_recording
from sim.message import Message

TARGET = ("cluster", "namespace", "job", "pod", "instance")
"""Labels by which collectors distinguish servers; engines do not set them."""
SAME_REQUESTS = ("tp_rank", "pp_rank", "moe_ep_rank", "moe_dp_rank", "attn_cp_rank", "pid")
"""Labels of ranks that process the same requests, which each rank counts."""
PART = "priority"
"""Label of partial gauges of SGLang; without it, or if it is empty, a gauge is their sum."""
RANK = ("engine", "dp_rank")
"""Labels of data-parallel ranks, each with its own requests."""
Target = tuple[str, ...]


def by_server(scrapes: Sequence[MetricsScrape]) -> dict[str, list[MetricsScrape]]:
    """Return the scrapes of each server, keyed by its name; the name is empty without labels."""
    found: dict[Target, list[MetricsScrape]] = {}
    for one in scrapes:
        own: dict[Target, MetricsScrape] = {}
        for series, value in one.values.items():
            labels = labelled(series)
            target = tuple(labels.get(name, "") for name in TARGET)
            own.setdefault(target, MetricsScrape(one.place, one.time_s)).values[series] = value
        for target, part in own.items():
            found.setdefault(target, []).append(part)
    return {_server_name(target): parts for target, parts in sorted(found.items())}


def _server_name(target: Target) -> str:
    """Return the pod and the address of *target*, or its job without either."""
    named = dict(zip(TARGET, target, strict=True))
    return " ".join(dict.fromkeys(named[name] for name in ("pod", "instance") if named[name])) or named["job"]


def check_growth(scrapes: Sequence[MetricsScrape]) -> None:
    """Check that the counters of a server never decrease. Raises BenchdataError."""
    for earlier, later in pairwise(scrapes):
        for series, after in later.values.items():
            before = earlier.values.get(series, 0.0)
            if after < before and series[0].endswith(CUMULATIVE):
                text = Message(
                    "{series} falls from {before:g} to {after:g}: the server was started again between the "
                    "scrapes, or they are in the wrong order",
                    series[0],
                    before,
                    after,
                )
                raise BenchdataError([(later.place, 0, text)])


def ranks_of(scrape: MetricsScrape) -> int:
    """Return the number of data-parallel ranks that the labels distinguish, at least 1."""
    labels = [labelled(series) for series in scrape.values]
    return max(1, *(len({one[name] for one in labels if name in one}) for name in RANK))


def gauge(scrape: MetricsScrape, name: str) -> float:
    """Return the sum of a gauge over the ranks with their own requests."""
    found: dict[tuple[tuple[str, str], ...], float] = {}
    for series, value in scrape.values.items():
        if series[0] == name and not labelled(series).get(PART):
            whose = tuple(label for label in series[1] if label[0] not in SAME_REQUESTS)
            found[whose] = max(value, found.get(whose, value))
    return sum(found.values())


def label_of(scrape: MetricsScrape, name: str) -> dict[str, str]:
    """Return the labels of the first series called *name*."""
    series_found: Series | None = next((series for series in scrape.values if series[0] == name), None)
    return dict(series_found[1]) if series_found else {}


SETTINGS = {"cache_dtype": "kv_dtype", "gpu_memory_utilization": "gpu_memory_utilization"}
"""Columns of the labels of vLLM's cache configuration."""


def time_between(scrapes: Sequence[MetricsScrape]) -> float | None:
    """Return the time from the first to the last scrape [s]; None if they have no times."""
    begin_s, end_s = scrapes[0].time_s, scrapes[-1].time_s
    return end_s - begin_s if len(scrapes) > 1 and begin_s is not None and end_s is not None else None


class CounterDifferences:
    """Differences of a server's counters; series of several engine processes are added."""

    def __init__(self, scrapes: Sequence[MetricsScrape], engine: str) -> None:
        check_growth(scrapes)
        self.scrapes, self.engine = scrapes, engine
        self.last = scrapes[-1]
        self.first = scrapes[0] if len(scrapes) > 1 else MetricsScrape(self.last.place)
        self._known = {series[0] for series in self.last.values}

    @property
    def answered(self) -> bool:
        """True if a request got its first token between the scrapes."""
        return self._counted("ttft")

    @property
    def seconds(self) -> float | None:
        """Time from the first to the last scrape [s]; None if they have no times."""
        return time_between(self.scrapes)

    def in_flight(self, seconds: float | None) -> float | None:
        """Return the mean number of requests with which a token shares its step.

        Each running request produces a token per step, so gauges are weighted by their own value. With two gauges or
        fewer, it is the total time between tokens divided by the elapsed time.
        """
        running = self.gauges("running")
        if len(running) > 2 and any(running):
            return sum(one * one for one in running) / sum(running)
        return self.histogram("itl").total / seconds if seconds else None

    @property
    def made_tokens(self) -> bool:
        """True if a token other than a first one was produced between the scrapes."""
        return self._counted("itl")

    def counts(self, what: str, end: str = "_count") -> list[float]:
        """Return the cumulative count of a histogram at each scrape, or with *end* "_sum" the sum of its values."""
        name = f"{self._name(what, '_count')}{end}"
        return [sum(value for (one, _), value in at.values.items() if one == name) for at in self.scrapes]

    def ended(self) -> list[float]:
        """Return the cumulative number of ended requests at each scrape."""
        return self.counts("e2e" if self._name("e2e", "_count") else "output")

    def begun_prompt(self) -> float | None:
        """Return the mean prompt length of requests with their first token between the scrapes [tokens].

        The result is None if these prompts are not counted.
        """
        name, number = self._name("begun_prompts"), self._sum(f"{self._name('ttft', '_count')}_count")
        return self._sum(name) / number if name and number else None

    def histogram(self, what: str) -> Histogram:
        """Return the histogram of *what*. Raises BenchdataError if it is absent or empty."""
        name = self._name(what, "_count")
        if name is None:
            self.refuse(
                Message(
                    "has no {wanted}: a server's metrics page has it after the first answered request",
                    self._metric_name(what),
                )
            )
        bounds: dict[float, float] = {}
        for series in self.last.values:
            if series[0] == f"{name}_bucket":
                end = self._bucket_bound(series)
                bounds[end] = bounds.get(end, 0.0) + self._change(series)
        if not bounds:
            self.refuse(Message("{name} has no buckets; keep the series {name}_bucket", name))
        count = self._sum(f"{name}_count")
        if not count:
            self.refuse(Message("{name} counts nothing between the scrapes: no request was answered", name))
        found = Histogram(count, self._sum(f"{name}_sum"), tuple(sorted(bounds.items())))
        if not found.plausible:
            self.refuse(
                Message(
                    "{name}: sum, count and buckets are not of the same values; keep all series of the histogram", name
                )
            )
        return found

    def _bucket_bound(self, series: Series) -> float:
        try:
            return float(labelled(series).get("le", ""))
        except ValueError:
            self.refuse(Message("{series} has a bucket whose label le is not a number", series[0]))

    def streamed_ttft_s(self) -> float | None:
        """Return the mean time to first token of streamed answers, if distinguished [s].

        For other answers SGLang counts many tokens at once.
        """
        name = self._name("ttft", "_count")
        parts = [
            sum(self._change(one) for one in self.last.values if one[0] == f"{name}{end}" and _is_streaming(one))
            for end in ("_sum", "_count")
        ]
        return parts[0] / parts[1] if parts[1] else None

    def lengths(self, what: str) -> tuple[float, float | None]:
        """Return mean and coefficient of variation of prompts or answers; the latter is None without a histogram."""
        tokens, requests = self._name(f"{what}_sum"), self._name("e2e", "_count")
        if self._name(what, "_count") is None and tokens and requests:
            answered = self._sum(f"{requests}_count")
            if answered and (total := self._sum(tokens)):
                return total / answered, None
        found = self.histogram(what)
        return found.mean, found.cv

    def cached_share(self) -> float:
        """Return the fraction of prompt tokens found in the prefix cache, from counters or the gauge."""
        for hits, asked in (("cached", "prompt_sum"), ("hits", "asked")):
            counted, whole = self._name(hits), self._name(asked)
            if counted and whole and (total := self._sum(whole)):
                return min(1.0, self._sum(counted) / total)
        shown = [
            value for one in self.scrapes for (name, _), value in one.values.items() if name == self._name("hit_share")
        ]
        return min(1.0, fmean(max(0.0, one) for one in shown)) if shown else 0.0

    def check_no_drafts(self) -> None:
        """Check that no answers were decoded speculatively. Raises BenchdataError."""
        drafts, accepted = self._name("drafts"), self._name("accepted")
        at_a_time = max((gauge(one, accepted) for one in self.scrapes), default=0.0) if accepted else 0.0
        if (drafts and self._sum(drafts) > 0) or at_a_time > 1:
            self.refuse("decodes speculatively, which hides the step time; measure without drafts")

    def settings(self) -> dict[str, str]:
        """Return the columns that the server reports about itself."""
        name = self._name("settings")
        labels = label_of(self.last, name) if name else {}
        return {ours: labels[theirs] for theirs, ours in SETTINGS.items() if labels.get(theirs, "None") != "None"}

    def gauges(self, what: str) -> list[float]:
        """Return the sum of a gauge over all ranks at each scrape. Raises BenchdataError."""
        name = self._name(what)
        found = [gauge(one, name) if name else 0.0 for one in self.scrapes]
        for value, at in zip(found, self.scrapes, strict=True):
            if value < 0:
                raise BenchdataError([(at.place, 0, Message("{name} must be at least 0, not {value:g}", name, value))])
        return found

    def refuse(self, text: str) -> NoReturn:
        """Raise BenchdataError at the last scrape."""
        raise BenchdataError([(self.last.place, 0, text)])

    def _name(self, what: str, suffix: str = "") -> str | None:
        names = [f"{self.engine}:{name}" for name in NAMES[self.engine].get(what, ())]
        return next((name for name in names if f"{name}{suffix}" in self._known), None)

    def _counted(self, what: str) -> bool:
        """Return whether a histogram counted anything."""
        name = self._name(what, "_count")
        return name is not None and self._sum(f"{name}_count") > 0

    def _metric_name(self, what: str) -> str:
        return f"{self.engine}:{NAMES[self.engine][what][0]}"

    def _sum(self, name: str) -> float:
        return sum(self._change(series) for series in self.last.values if series[0] == name)

    def _change(self, series: Series) -> float:
        return self.last.values[series] - self.first.values.get(series, 0.0)


def _is_streaming(series: Series) -> bool:
    return labelled(series).get("is_streaming", "true") == "true"


Floats = NDArray[np.float64]

MS_PER_S = 1000.0
LEAST_PAGES = 3
"""Smallest number of scrapes to divide; two do not show when requests arrived."""


def with_parts(whole: ServedPeriod, between: CounterDifferences) -> ServedPeriod:
    """Return *whole* with the answer lengths of all requests, ended or not, and with its parts.

    All scrapes have times.
    """
    if len(between.scrapes) < LEAST_PAGES:
        return whole
    at_s = np.array([one.time_s for one in between.scrapes], np.float64) - (between.scrapes[0].time_s or 0.0)
    if whole.output_cv:
        mean, cv = all_answers(whole.output_tokens, whole.output_cv, _pace(between, at_s))
        whole = replace(whole, output_tokens=mean, output_cv=cv)
    return replace(whole, parts=tuple(_parts(whole, between, at_s)))


def _parts(whole: ServedPeriod, between: CounterDifferences, at_s: Floats) -> Iterator[ServedPeriod]:
    running, waiting = between.gauges("running"), between.gauges("waiting")
    came = [begun + queue for begun, queue in zip(between.counts("ttft"), waiting, strict=True)]
    for first, last in runs_of_recording(came):
        pages = slice(first, last + 1)
        part, since_s = CounterDifferences(between.scrapes[pages], between.engine), at_s[pages] - at_s[first]
        if not part.made_tokens:
            continue
        requests, seconds = max(1, round(came[last] - came[first])), float(since_s[-1])
        load = {"load": "poisson", "rate_req_s": requests / seconds, "num_requests": requests}
        yield replace(
            whole,
            id=f"{whole.id} from {at_s[first]:.0f} s",
            prompt_tokens=part.begun_prompt() or whole.prompt_tokens,
            load=load | {"avg_batch": part.in_flight(seconds)},
            counted=_counted(whole, part, since_s, np.array(came[pages]) - came[first]),
            measured=_measured_latencies(part, first_tokens=waiting[first] <= QUEUED * running[first]),
        )


def _measured_latencies(part: CounterDifferences, first_tokens: bool) -> dict[str, float]:
    found = {"tpot_mean_ms": MS_PER_S * part.histogram("itl").mean}
    if first_tokens and (ttft_s := part.streamed_ttft_s()) is not None:
        found["ttft_mean_ms"] = MS_PER_S * ttft_s
    return found


def _counted(whole: ServedPeriod, part: CounterDifferences, since_s: Floats, came: Floats) -> CountedTraffic:
    pace = _pace(part, since_s)
    return CountedTraffic(
        remaining=tuple(remaining_answers(whole.output_tokens, whole.output_cv, pace).tolist()),
        waiting=part.gauges("waiting")[0],
        came=tuple(zip(since_s[1:].tolist(), came[1:].tolist(), strict=True)),
        answer=whole.output_tokens,
        gap_s=float(since_s[1] / pace.tokens[1]),
        recording=whole.id,
    )


def _pace(between: CounterDifferences, at_s: Floats) -> TokenProgress:
    """Return the progress at the scrapes at *at_s*.

    If no token was produced between two scrapes, the mean time per token is assumed.
    """
    usual_s = between.histogram("itl").mean
    gaps, gaps_s = np.diff(between.counts("itl")), np.diff(between.counts("itl", "_sum"))
    gap_s = np.divide(gaps_s, gaps, out=np.full(len(gaps), usual_s), where=(gaps > 0) & (gaps_s > 0))
    begun, ended = np.array(between.counts("ttft")), np.array(between.ended())
    running = between.gauges("running")
    return TokenProgress(
        np.concatenate([[0.0], np.cumsum(np.diff(at_s) / gap_s)]),
        begun - begun[0],
        ended - ended[0],
        (round(running[0]), round(running[-1])),
    )


EQUAL_LENGTHS = (
    "no histogram of lengths: all requests are assumed to have the mean length; --about prompt_cv=... and "
    "output_cv=... set their variation"
)


def seen_in(scrapes: Sequence[MetricsScrape], seconds: float | None, recording: str = "") -> list[ServedPeriod]:
    """Return the traffic of each server between its first and last scrape.

    Parameters
    ----------
    scrapes
        Scrapes in order; a single scrape gives the traffic since the server started.
    seconds
        Time between the first and the last scrape, used if not all samples have times [s].
    recording
        Name of the recording.

    Raises
    ------
    BenchdataError
        The scrapes are inconsistent, lack needed metrics, or show no answered request.

    """
    _check_order(scrapes)
    scrapes = _with_times(scrapes, seconds)
    engine, model = _engine_and_model(scrapes)
    name = recording or Path(scrapes[-1].place).stem
    servers = {called: CounterDifferences(parts, engine) for called, parts in by_server(scrapes).items()}
    busy = {called: one for called, one in servers.items() if len(servers) == 1 or one.answered}
    if not busy:
        raise BenchdataError([(scrapes[-1].place, 0, "none of its servers answered a request between the scrapes")])
    idle = [
        Message("{called} is ignored: it answered no request", called)
        for called in servers
        if called and called not in busy
    ]
    found: list[ServedPeriod] = []
    for called, between in busy.items():
        named = f"{name} {called}" if len(servers) > 1 else name
        one = _period(between, seconds, named, name, model, () if found else tuple(idle))
        found.append(replace(one, recording_s=time_between(scrapes) or seconds))
    return found


def _period(
    between: CounterDifferences, seconds: float | None, name: str, recording: str, model: str, remarks: tuple[str, ...]
) -> ServedPeriod:
    scrapes, engine = between.scrapes, between.engine
    ttft, itl = between.histogram("ttft"), between.histogram("itl")
    between.check_no_drafts()
    seconds = between.seconds or seconds
    if seconds is None and len(scrapes) < 3:
        between.refuse("has no elapsed time: give --seconds, or at least three scrapes")
    running, waiting = between.gauges("running"), between.gauges("waiting")
    usual = fmean(running) if len(running) > 2 else (itl.total + ttft.total) / (seconds or inf)
    load = rate_seen(ttft.count, seconds if len(scrapes) > 1 else None, usual, running, waiting)
    measured = {"tpot_mean_ms": MS_PER_S * itl.mean}
    if load and (first := between.streamed_ttft_s()) is not None:
        measured["ttft_mean_ms"] = MS_PER_S * first
    prompt, prompt_cv = between.lengths("prompt")
    output, output_cv = between.lengths("output")
    whole = ServedPeriod(
        id=name,
        recording=recording,
        model=model,
        engine=ENGINES[engine],
        # requests that arrived
        requests=max(1.0, ttft.count + waiting[-1] - (waiting[0] if len(scrapes) > 1 else 0.0)),
        seconds=seconds,
        prompt_tokens=prompt,
        output_tokens=output,
        prompt_cv=prompt_cv or 0.0,
        output_cv=output_cv or 0.0,
        cached_share=between.cached_share(),
        in_flight=between.in_flight(seconds),
        ranks=ranks_of(scrapes[-1]),
        settings=between.settings(),
        load=load,
        measured=measured,
        remarks=(*remarks, *(() if prompt_cv is not None and output_cv is not None else (f"{name}: {EQUAL_LENGTHS}",))),
    )
    return whole if load or seconds is None else with_parts(whole, between)


def _check_order(scrapes: Sequence[MetricsScrape]) -> None:
    for earlier, later in pairwise(scrapes):
        if earlier.time_s is not None and later.time_s is not None and later.time_s <= earlier.time_s:
            text = Message(
                "is no later than {place}; name the scrapes in the order in which they were taken", earlier.place
            )
            raise BenchdataError([(later.place, 0, text)])


def _with_times(scrapes: Sequence[MetricsScrape], seconds: float | None) -> Sequence[MetricsScrape]:
    """Return the scrapes with times for all or for none; with *seconds* alone they are evenly spaced."""
    if all(one.time_s is not None for one in scrapes):
        return scrapes
    step_s = seconds / (len(scrapes) - 1) if seconds and len(scrapes) > 1 else None
    return [replace(one, time_s=None if step_s is None else number * step_s) for number, one in enumerate(scrapes)]


def _engine_and_model(scrapes: Sequence[MetricsScrape]) -> tuple[str, str]:
    """Return the engine and the model. Raises BenchdataError if there are several."""
    engines = {series[0].partition(":")[0] for one in scrapes for series in one.values}
    models = {name for one in scrapes for series in one.values if (name := labelled(series).get("model_name"))}
    problems = []
    if len(engines) > 1:
        problems.append("holds metrics of vLLM and of SGLang; calibrate one server at a time")
    if len(models) > 1:
        named = " and ".join(sorted(models))
        problems.append(Message("holds metrics of several models, {named}; keep the series of one model_name", named))
    if problems:
        raise BenchdataError([(scrapes[-1].place, 0, text) for text in problems])
    return engines.pop(), (models or {""}).pop()
