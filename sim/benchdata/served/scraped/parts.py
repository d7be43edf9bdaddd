"""A stretch in which a server filled, queued or drained, cut into runs whose requests are known by their counts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sim.benchdata.counted import Counted, all_answers
from sim.benchdata.served.load import QUEUED, cuts
from sim.benchdata.served.scraped.between import Between
from sim.benchdata.served.seen import Seen

MS_PER_S = 1000.0
LEAST_PAGES = 3
"""Two say what came, and not whether it came before the server filled or after."""


def with_parts(whole: Seen, between: Between, seconds: float) -> Seen:
    """*whole* with the answers of all requests, not only of those that ended, and with its parts.

    *seconds*: from the first page to the last, which were taken evenly where they carry no times.
    """
    if len(between.scrapes) < LEAST_PAGES:
        return whole
    at_s = [seconds * page / (len(between.scrapes) - 1) for page in range(len(between.scrapes))]
    if between.seconds is not None:
        at_s = [(one.time_s or 0.0) - (between.scrapes[0].time_s or 0.0) for one in between.scrapes]
    if whole.output_cv:
        whole = _with_all_answers(whole, between, at_s)
    return replace(whole, parts=tuple(_parts(whole, between, at_s)))


def _with_all_answers(whole: Seen, between: Between, at_s: Sequence[float]) -> Seen:
    running, gap_s = between.gauges("running"), between.histogram("itl").mean
    begun = Counted(running[0], 0.0, _since(at_s, between.begun()), gap_s * whole.output_tokens)
    ended = between.histogram("output")
    mean, cv = all_answers((ended.mean, whole.output_cv), ended.count, running[-1], begun, gap_s)
    return replace(whole, output_tokens=mean, output_cv=cv)


def _parts(whole: Seen, between: Between, at_s: Sequence[float]) -> Iterator[Seen]:
    running, waiting = between.gauges("running"), between.gauges("waiting")
    came = [begun + queue for begun, queue in zip(between.begun(), waiting, strict=True)]
    answer_s = between.histogram("itl").mean * whole.output_tokens
    for first, last in cuts(came):
        part = Between(between.scrapes[first : last + 1], between.engine)
        if not part.made_tokens:
            continue
        measured = {"tpot_mean_ms": MS_PER_S * part.histogram("itl").mean}
        if waiting[first] <= QUEUED * running[first] and (ttft_s := part.streamed_ttft_s()) is not None:
            measured["ttft_mean_ms"] = MS_PER_S * ttft_s
        pages = slice(first, last + 1)
        counted = Counted(running[first], waiting[first], _since(at_s[pages], came[pages]), answer_s)
        seconds, requests = at_s[last] - at_s[first], max(1, round(came[last] - came[first]))
        load = {"load": "poisson", "rate_req_s": requests / seconds, "num_requests": requests}
        load["avg_batch"] = part.in_flight(seconds)
        prompt = part.begun_prompt() or whole.prompt_tokens
        name = f"{whole.id} from {at_s[first]:.0f} s"
        yield replace(whole, id=name, prompt_tokens=prompt, load=load, counted=counted, measured=measured)


def _since(at_s: Sequence[float], numbers: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """(seconds, number) since the first page, of all others."""
    return tuple((at - at_s[0], one - numbers[0]) for at, one in zip(at_s[1:], numbers[1:], strict=True))
