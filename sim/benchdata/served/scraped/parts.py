"""A stretch in which a server filled, queued or drained, cut into runs whose requests are known by their counts."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sim.benchdata.counted import Counted
from sim.benchdata.served.load import QUEUED, cuts
from sim.benchdata.served.scraped.answers import Pace, all_answers, remaining_answers
from sim.benchdata.served.scraped.between import Between
from sim.benchdata.served.seen import Seen

Floats = NDArray[np.float64]

MS_PER_S = 1000.0
LEAST_PAGES = 3
"""Two say what came, and not whether it came before the server filled or after."""


def with_parts(whole: Seen, between: Between) -> Seen:
    """*whole* with the answers of all requests, not only of those that ended, and with its parts.

    The pages have times.
    """
    if len(between.scrapes) < LEAST_PAGES:
        return whole
    at_s = np.array([one.time_s for one in between.scrapes], np.float64) - (between.scrapes[0].time_s or 0.0)
    if whole.output_cv:
        mean, cv = all_answers(whole.output_tokens, whole.output_cv, _pace(between, at_s))
        whole = replace(whole, output_tokens=mean, output_cv=cv)
    return replace(whole, parts=tuple(_parts(whole, between, at_s)))


def _parts(whole: Seen, between: Between, at_s: Floats) -> Iterator[Seen]:
    running, waiting = between.gauges("running"), between.gauges("waiting")
    came = [begun + queue for begun, queue in zip(between.counts("ttft"), waiting, strict=True)]
    for first, last in cuts(came):
        pages = slice(first, last + 1)
        part, since_s = Between(between.scrapes[pages], between.engine), at_s[pages] - at_s[first]
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
            measured=_measured(part, first_tokens=waiting[first] <= QUEUED * running[first]),
        )


def _measured(part: Between, first_tokens: bool) -> dict[str, float]:
    found = {"tpot_mean_ms": MS_PER_S * part.histogram("itl").mean}
    if first_tokens and (ttft_s := part.streamed_ttft_s()) is not None:
        found["ttft_mean_ms"] = MS_PER_S * ttft_s
    return found


def _counted(whole: Seen, part: Between, since_s: Floats, came: Floats) -> Counted:
    pace = _pace(part, since_s)
    return Counted(
        remaining=tuple(remaining_answers(whole.output_tokens, whole.output_cv, pace).tolist()),
        waiting=part.gauges("waiting")[0],
        came=tuple(zip(since_s[1:].tolist(), came[1:].tolist(), strict=True)),
        answer=whole.output_tokens,
        gap_s=float(since_s[1] / pace.tokens[1]),
        stretch=whole.id,
    )


def _pace(between: Between, at_s: Floats) -> Pace:
    """Of pages at *at_s*; where no answer went on between two of them, a token takes what it usually does."""
    usual_s = between.histogram("itl").mean
    gaps, gaps_s = np.diff(between.counts("itl")), np.diff(between.counts("itl", "_sum"))
    gap_s = np.divide(gaps_s, gaps, out=np.full(len(gaps), usual_s), where=(gaps > 0) & (gaps_s > 0))
    begun, ended = np.array(between.counts("ttft")), np.array(between.ended())
    running = between.gauges("running")
    return Pace(
        np.concatenate([[0.0], np.cumsum(np.diff(at_s) / gap_s)]),
        begun - begun[0],
        ended - ended[0],
        (round(running[0]), round(running[-1])),
    )
