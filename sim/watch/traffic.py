"""Traffic of a running fleet for a new scenario: the busiest hour of the last week, read from Prometheus."""

from sim.answers.from_files.source import SourceFile
from sim.answers.from_files.traffic import cached_lines, lengths_line
from sim.benchdata.errors import BenchdataError
from sim.benchdata.served import ServedPeriod, fragment
from sim.benchdata.served.metrics import CounterDifferences, by_server
from sim.benchdata.served.scrapes import labelled
from sim.benchdata.served.traffic import combined_traffic
from sim.message import Message
from sim.watch.answer import moment
from sim.watch.observed import HOUR_S, STEP_S, HourObserved
from sim.watch.recalibration import scrapes_of
from sim.watch.rounds import first_hour, hours_between, settled_end
from sim.watch.source import LacksMetrics, Source

HISTORY_DAYS = 7.0
"""Time before now in which the busiest hour is searched [days]."""
TRIES = 5
"""Busiest hours that are tried, until one can be read as traffic: servers that start or restart in an hour hide it."""


def watched_traffic(source: Source) -> SourceFile:
    """Return the traffic of the busiest hour of the last week.

    Raises
    ------
    LacksMetrics
        The server has none of the metrics, or no hour with requests.
    SourceError
        The server cannot be queried.

    """
    now_s = source.now_s()
    read = hours_between(source, first_hour(source, HISTORY_DAYS, now_s), settled_end(now_s), with_power=False)
    hours = [one for group in read for one in group if one.usable and one.requests]
    if not hours:
        raise LacksMetrics(
            Message("{url}: has no whole hour with requests in the last {days:g} days", source.shown, HISTORY_DAYS)
        )
    mean_rps = sum(one.requests for one in hours) / sum(one.covered_s for one in hours)
    busiest = sorted(hours, key=lambda one: -one.rate_rps)[:TRIES]
    reason = ""
    for hour in busiest:
        try:
            seen = _traffic(source, hour)
        except BenchdataError as error:
            reason = reason or error.problems[0][2]
            continue
        return _as_source(source, hour, seen, mean_rps, len(hours))
    raise LacksMetrics(Message("{url}: the busiest hours cannot be read as traffic: {reason}", source.shown, reason))


def _traffic(source: Source, hour: HourObserved) -> ServedPeriod:
    """Return the traffic of all servers in *hour*. Raises BenchdataError."""
    series = source.engine_series(hour.hour, hour.hour + HOUR_S, STEP_S)
    engine = next((name.partition(":")[0] for name, _ in series), "vllm")
    model = next((labels["model_name"] for one in series if (labels := labelled(one)).get("model_name")), "")
    periods = []
    for name, scrapes in by_server(scrapes_of(series, source.shown)).items():
        between = CounterDifferences(scrapes, engine)
        if not between.answered:
            continue
        prompt, prompt_cv = between.lengths("prompt")
        output, output_cv = between.lengths("output")
        ended = between.ended()
        periods.append(
            ServedPeriod(
                id=name,
                model=model,
                engine=engine,
                requests=max(1.0, ended[-1] - ended[0]),
                seconds=float(HOUR_S),
                prompt_tokens=prompt,
                output_tokens=output,
                prompt_cv=prompt_cv or 0.0,
                output_cv=output_cv or 0.0,
                cached_share=between.cached_share(),
            )
        )
    if not periods:
        raise BenchdataError([(source.shown, 0, "no server has samples in the whole hour")])
    return combined_traffic(periods)


def _as_source(source: Source, hour: HourObserved, seen: ServedPeriod, mean_rps: float, count: int) -> SourceFile:
    workload = fragment(seen)["workload"]
    rate_rps = workload["arrivals"]["rate_rps"] = round(hour.rate_rps, 4)  # also of servers that began in the hour
    found = SourceFile(source.shown, "Prometheus", workload=workload, rate_rps=rate_rps, span_s=float(HOUR_S))
    found.model, found.engine, found.observed_servers = seen.model, seen.engine.lower(), round(hour.servers)
    found.read += [
        Message(
            "busiest hour of the last {count} with requests: {rate:,.3g} requests/s on {when} UTC (mean {mean:,.3g})",
            count,
            hour.rate_rps,
            moment(hour.hour),
            mean_rps,
        ),
        lengths_line(seen),
    ]
    if hour.ttft_s_mean is not None and hour.ttft_s_p95 is not None and hour.tpot_s_mean is not None:
        found.read.append(
            Message(
                "latency in this hour: TTFT {ttft:,.3g} s (p95 {ttft_p95:,.3g} s), {tpot:,.3g} ms per output token; "
                "compare slo",
                hour.ttft_s_mean,
                hour.ttft_s_p95,
                1000 * hour.tpot_s_mean,
            )
        )
    found.read += cached_lines(seen)
    return found
