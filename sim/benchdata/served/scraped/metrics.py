"""From scrapes of a server's counters and histograms to what it served between the first and the last of them."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import fmean

from sim.benchdata.errors import BenchdataError
from sim.benchdata.served.load import rate_seen
from sim.benchdata.served.scraped.between import Between, time_between
from sim.benchdata.served.scraped.names import ENGINES
from sim.benchdata.served.scraped.parts import with_parts
from sim.benchdata.served.scraped.samples import Scrape, labelled
from sim.benchdata.served.scraped.servers import by_server, ranks_of
from sim.benchdata.served.seen import Seen

MS_PER_S = 1000.0
ALIKE = "no histogram of lengths: all are taken to be alike; --about prompt_cv=... and output_cv=... say how they vary"


def seen_in(scrapes: Sequence[Scrape], seconds: float | None, stretch: str = "") -> list[Seen]:
    """What each server served from the first scrape to the last; of a single one, all since it began.

    *seconds*: the time between where not all samples carry theirs. *stretch*: its name. Raises BenchdataError.
    """
    _in_order(scrapes)
    scrapes = _timed(scrapes, seconds)
    engine, model = _who(scrapes)
    name = stretch or Path(scrapes[-1].place).stem
    servers = {called: Between(parts, engine) for called, parts in by_server(scrapes).items()}
    busy = {called: one for called, one in servers.items() if len(servers) == 1 or one.answered}
    if not busy:
        raise BenchdataError([(scrapes[-1].place, 0, "none of its servers answered a request between the scrapes")])
    idle = [f"{called} answered no request and is left out" for called in servers if called and called not in busy]
    found: list[Seen] = []
    for called, between in busy.items():
        named = f"{name} {called}" if len(servers) > 1 else name
        one = _seen(between, seconds, named, name, model, () if found else tuple(idle))
        found.append(replace(one, stretch_s=time_between(scrapes) or seconds))
    return found


def _seen(
    between: Between, seconds: float | None, name: str, stretch: str, model: str, remarks: tuple[str, ...]
) -> Seen:
    scrapes, engine = between.scrapes, between.engine
    ttft, itl = between.histogram("ttft"), between.histogram("itl")
    between.check_no_drafts()
    seconds = between.seconds or seconds
    if seconds is None and len(scrapes) < 3:
        between.refuse("says nothing of the time that passed: give --seconds, or three scrapes or more")
    running, waiting = between.gauges("running"), between.gauges("waiting")
    usual = fmean(running) if len(running) > 2 else (itl.total + ttft.total) / (seconds or inf)
    load = rate_seen(ttft.count, seconds if len(scrapes) > 1 else None, usual, running, waiting)
    measured = {"tpot_mean_ms": MS_PER_S * itl.mean}
    if load and (first := between.streamed_ttft_s()) is not None:
        measured["ttft_mean_ms"] = MS_PER_S * first
    prompt, prompt_cv = between.lengths("prompt")
    output, output_cv = between.lengths("output")
    whole = Seen(
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
        in_flight=between.in_flight(seconds),
        ranks=ranks_of(scrapes[-1]),
        settings=between.settings(),
        load=load,
        measured=measured,
        remarks=(*remarks, *(() if prompt_cv is not None and output_cv is not None else (f"{name}: {ALIKE}",))),
    )
    return whole if load or seconds is None else with_parts(whole, between)


def _in_order(scrapes: Sequence[Scrape]) -> None:
    for earlier, later in pairwise(scrapes):
        if earlier.time_s is not None and later.time_s is not None and later.time_s <= earlier.time_s:
            text = f"is no later than {earlier.place}; name the scrapes in the order in which they were taken"
            raise BenchdataError([(later.place, 0, text)])


def _timed(scrapes: Sequence[Scrape], seconds: float | None) -> Sequence[Scrape]:
    """With times of all or of none; where *seconds* is all that is known, they were taken evenly."""
    if all(one.time_s is not None for one in scrapes):
        return scrapes
    step_s = seconds / (len(scrapes) - 1) if seconds and len(scrapes) > 1 else None
    return [replace(one, time_s=None if step_s is None else number * step_s) for number, one in enumerate(scrapes)]


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
