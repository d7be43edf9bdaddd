"""Metrics of the requests that arrived in the window: counts, rates, latencies, service level, endings, prefixes."""

from collections import Counter
from collections.abc import Container
from functools import partial

from sim.routing import PowerOfTwo, Random
from sim.scenario.slo import LATENCIES, Slo
from sim.study.metrics.averages import JUDGED, Aggregate, Cases, Mean, MeanShare, numbers, within_runs
from sim.study.metrics.batch_means import half_widths, mean_half_width, percentile_half_width, rate_intervals
from sim.study.metrics.metric import FORMATS, PERCENTILES, REGISTERED, Format, MeasuredRun, MetricColumn, figure, metric
from sim.study.metrics.service_level import ATTAINED_SHARE, cases_overloaded
from sim.study.metrics.statistics import LEAST_FOR_INTERVAL, mean
from sim.study.metrics.window_requests import WindowRequests, keep, percentile_of_sorted

LOW_SAMPLE_TAIL = 20
"""Least number of requests beyond a percentile; with fewer the percentile is marked as low-sample."""
SHARE = MeanShare()


def _total_tokens(run: MeasuredRun) -> int:
    return sum(one.prompt_tokens + one.cached_tokens + one.output_tokens for one in run.meters)


state = partial(metric, group="state", average=JUDGED)
state("status", "", "`ok`, or `infeasible` where the fleet cannot run")
state("reason", "", "reason why the fleet cannot run")
state("replications", "", "number of replications in the row")

traffic = partial(metric, group="traffic", part="traffic")
of_traffic = partial(figure, part="traffic")
traffic("requests", "", "requests that arrived in the measured window")(lambda run: run.requests)
traffic("completed", "", "requests of the window that were answered in full")(
    lambda run: run.count(run.cohort.finished)
)
traffic("rejected", "", "requests of the window that were refused or can never fit")(
    lambda run: run.count(run.cohort.rejected)
)


@traffic("unfinished", "", "requests of the window without a complete answer at the end of the run")
def _unfinished(run: MeasuredRun) -> int:
    cohort = run.cohort
    return run.requests - run.count(cohort.finished) - run.count(cohort.rejected) - run.count(cohort.given_up)


traffic("offered_rps", "1/s", "arrival rate of requests", sheet="offered load [requests/s]")(
    lambda run: run.requests / run.window_s
)
traffic("requests_per_s", "1/s", "completion rate of requests", sheet="completed requests [1/s]")(
    lambda run: float(run.cohort.served().sum()) / run.window_s
)
traffic(
    "output_tokens_per_s", "tokens/s", "output tokens per second", sheet="output tokens [1/s]",
    heading="output tokens", brief="output [tokens/s]", paired=True,
)(lambda run: run.total("output_tokens") / run.window_s)  # fmt: skip
traffic(
    "total_tokens_per_s", "tokens/s", "prompt and output tokens per second", sheet="prompt and output tokens [1/s]"
)(lambda run: _total_tokens(run) / run.window_s)
traffic(
    "goodput_rps", "1/s",
    "rate of requests within all per-request limits of the SLO; if the SLO limits percentiles only, rate of answered "
    "requests", sheet="goodput [requests/s]", group="goodput", paired=True,
)(lambda run: run.good / run.window_s)  # fmt: skip
traffic(
    "slo_attainment", "share",
    "fraction of requests within all per-request limits of the SLO; limits on percentiles do not count",
    group="service level", average=ATTAINED_SHARE, heading="within SLO", brief="within SLO [%]", paired=True,
)(lambda run: run.good / run.requests if run.requests else None)  # fmt: skip
metric(
    "meets_slo", "",
    "whether `slo_attainment` reaches `attainment` (if requests have limits) and every limited percentile is within "
    "its limit; empty without an SLO", "service level", sheet="meets the SLO", average=JUDGED,
)  # fmt: skip
traffic(
    "overloaded", "", "whether the queue grows through the whole run because the load exceeds what the fleet can serve",
    group="service level", average=Aggregate(cases_overloaded),
)(lambda run: run.growth.certain)  # fmt: skip
of_traffic("queue_growth")(lambda run: run.growth.requests)
of_traffic("waiting_growth")(lambda run: run.growth.waiting)


def _unsteady(cases: Cases) -> int | None:
    """Return the number of replications without a steady part; None where the warm-up was given."""
    steady = [one["warmup_steady"] for one in cases]
    return None if any(one is None for one in steady) else steady.count(False)


def _warmup_found_s(cases: Cases) -> float | None:
    """Return the mean of the warm-ups that were found [s]; None where the warm-up was given."""
    return None if _unsteady(cases) is None else mean(numbers(cases, "warmup_s"))


warm_up = partial(traffic, group="warm-up")
warm_up(
    "warmup_s",
    "s",
    "length of the automatic warm-up, which is not measured",
    sheet="warm-up [s]",
    average=Aggregate(_warmup_found_s),
)(lambda run: run.plan.warmup_s)
warm_up(
    "warmup_unsteady",
    "",
    "replications without a steady part after the automatic warm-up",
    sheet="replications with an unsteady warm-up",
    average=Aggregate(_unsteady),
)
# stores whether an automatic warm-up found a steady part; None for a given warm-up
of_traffic("warmup_steady")(lambda run: run.plan.warmup_steady if run.plan.warmup_auto else None)
of_traffic("output_tokens")(lambda run: run.total("output_tokens"))


of_traffic("total_tokens")(_total_tokens)
traffic(
    "preemptions", "", "preempted sequences, whose KV cache was freed for others and computed again", group="preemption"
)(lambda run: run.total("preemptions"))
# stores `Growth.late`, the likely growth late in the window, and its standard error
of_traffic("late_growth")(lambda run: run.growth.late)
of_traffic("late_growth_error")(lambda run: run.growth.late_error)

WORDS = {"ttft_s": "time to first token, queueing included", "tpot_s": "time per output token after the first",
         "e2e_s": "time from arrival to last token"}  # fmt: skip
HEADED = {"ttft_s_p50": "", "ttft_s_p95": "TTFT p95 [s]", "ttft_s_p99": "", "tpot_s_p50": "",
          "tpot_s_p95": "TPOT p95 [ms]", "e2e_s_p95": ""}  # fmt: skip
"""Latency columns in the tables of report.html -> heading in the terminal (empty: not shown there)."""
OF_LATENCY = {"ttft_s": FORMATS["s"], "tpot_s": Format("ms", 1e3, "steady"), "e2e_s": FORMATS["s"]}


def latency_column(latency: str, part: str) -> MetricColumn:
    """Return the column of the mean or a percentile of a latency.

    Parameters
    ----------
    latency
        `ttft_s`, `tpot_s` or `e2e_s`.
    part
        `mean`, or a percentile such as `p95`.

    """
    name, short = f"{latency}_{part}", latency.removesuffix("_s").upper()
    words = f"{'mean' if part == 'mean' else f'{part[1:]}th percentile'} of the {WORDS[latency]}"
    head, brief = (f"{short} {part}", HEADED[name]) if name in HEADED else ("", "")
    paired = part in ("mean", "p95") or name in ("ttft_s_p50", "ttft_s_p99")
    return MetricColumn(name, "s", words, "latency", Mean(), head, brief, "", paired, format=OF_LATENCY[latency])


LATENCY_COLUMNS = tuple(
    latency_column(latency, part) for latency in LATENCIES for part in ("mean", *(f"p{p}" for p in PERCENTILES))
)
REGISTERED |= {one.name: one for one in LATENCY_COLUMNS}
metric("queue_s_p95", "s", "95th percentile of the wait from arrival until the first step that works on the request",
       "queue", sheet="wait p95 [s]")  # fmt: skip


def percents(slo: Slo, latency: str) -> list[float]:
    """Return the percentiles of *latency* that are measured: the usual ones, and those that *slo* names."""
    return list(dict.fromkeys([*PERCENTILES, *(one.percent for one in slo.percentiles if one.latency == latency)]))


def low_sample_percentiles(slo: Slo, cohort: WindowRequests) -> list[str]:
    """Return the columns of the percentiles with fewer than LOW_SAMPLE_TAIL requests beyond them."""
    sizes = {name: int(cohort.members(name).sum()) for name in LATENCIES}
    return [
        f"{name}_p{percent:g}"
        for name, size in sizes.items()
        for percent in percents(slo, name)
        if size * min(percent, 100 - percent) / 100 < LOW_SAMPLE_TAIL
    ]


def percentiles_s(
    slo: Slo, cohort: WindowRequests, latency: str, known: Container[str] = ()
) -> dict[str, float | None]:
    """Return the percentiles of *latency* by column [s], without the columns *known*.

    A percentile is inf where it falls on a request without an answer, and None where no request was measured.
    """
    named = ((f"{latency}_p{percent:g}", percent) for percent in percents(slo, latency))
    wanted = {name: percent for name, percent in named if name not in known}
    if not wanted:
        return {}
    ordered = cohort.measured_s(latency)
    ordered.sort()
    return {name: percentile_of_sorted(ordered, percent) if ordered.size else None for name, percent in wanted.items()}


def _low_sample_names(cases: Cases) -> str:
    """Return the names of the percentiles with too few requests in the tail of some replication."""
    return " ".join(dict.fromkeys(name for one in cases for name in one["low_sample_percentiles"]))


mark = partial(metric, group="marks")
mark(
    "slo_verdict", "",
    "`met`, `missed`, or `inconclusive` if the 95 % interval of the attained value contains the limit or the queue "
    "seems to grow; without an SLO empty, or `inconclusive` for such a queue", sheet="verdict on the SLO",
    average=JUDGED,
)  # fmt: skip
metric("low_sample_percentiles", "", "percentiles with fewer than 20 requests beyond them", "marks", "latencies",
       sheet="percentiles of few requests",
       average=Aggregate(_low_sample_names))(lambda run: low_sample_percentiles(run.plan.slo, run.cohort))  # fmt: skip


@figure("latencies", "latencies")
def _latencies(run: MeasuredRun) -> dict[str, float | None]:
    """Return means and percentiles of the latencies by column [s]."""
    cohort = run.cohort
    found: dict[str, float | None] = {}
    for name in LATENCIES:
        found[f"{name}_mean"] = _mean_s(cohort, name)
        found |= percentiles_s(run.plan.slo, cohort, name)
    queued = cohort.measured_s("queue_s")
    queued.sort()
    return found | {"queue_s_p95": percentile_of_sorted(queued, 95) if queued.size else None}


def _mean_s(cohort: WindowRequests, latency: str) -> float | None:
    """Return the mean of *latency* over the answered requests [s]; None without any."""
    answered = keep(getattr(cohort, latency), cohort.members(latency) & cohort.finished)
    return float(answered.mean()) if answered.size else None


def goal_shares(slo: Slo, cohort: WindowRequests) -> list[float | None]:
    """Return the share of the measured requests within each goal of *slo*, without tenants with own limits."""
    return cohort.shares(slo, ~cohort.of_tenants(slo.tenants or ()))


def tenant_shares(slo: Slo, cohort: WindowRequests) -> dict[str, list[float | None]] | None:
    """Return the share within each goal of every tenant that has its own limits; None without such tenants."""
    levels = slo.tenants or {}
    return {name: cohort.shares(level, cohort.of_tenants((name,))) for name, level in levels.items()} or None


figure("slo", "level")(lambda run: run.plan.slo.model_dump(exclude_none=True))
figure("slo_shares", "level")(lambda run: goal_shares(run.plan.slo, run.cohort))
figure("tenant_shares", "level", optional=True)(lambda run: tenant_shares(run.plan.slo, run.cohort))
figure("good_output_tokens", "samples")(
    lambda run: run.total("output_tokens") * run.cohort.good_share_of_tokens(run.within_limits)
)


@figure("batch_ci95", "samples")
def _batch_intervals(run: MeasuredRun) -> dict[str, float]:
    """Return half-widths of 95 % intervals from this run alone, by column, for metrics counted by request.

    Empty for a deterministic or non-stationary load, for a queue that grows, and where replicas are started, stopped or
    fail: these events are too few for the parts of a run to stand for runs.
    """
    workload, cohort = run.plan.workload, run.cohort
    if any(pool.switched for pool in run.plan.pools) or cohort.open_end:
        return {}
    if workload.deterministic or not workload.stationary or run.growth.certain:
        return {}
    found: dict[str, float | None] = {}
    for name in LATENCIES:
        measured = percents(run.plan.slo, name)
        halves = half_widths(cohort.measured_s(name), measured)
        found |= zip((f"{name}_mean", *(f"{name}_p{percent:g}" for percent in measured)), halves, strict=True)
    found["queue_s_p95"] = percentile_half_width(cohort.measured_s("queue_s"), 95)
    found["slo_attainment"] = mean_half_width(run.within_limits[cohort.measured].astype(float))
    found |= rate_intervals(cohort, run.within_limits)
    return {name: half for name, half in found.items() if half is not None}


# stores whether another seed would give another run
figure("chance", "samples")(
    lambda run: not run.plan.workload.deterministic or isinstance(run.plan.routing, Random | PowerOfTwo)
)

REPLICATIONS, BATCH_MEANS, NO_INTERVAL = "replications", "batch means", "none"


def _basis(cases: Cases) -> str:
    """Return the source of the intervals: replications, batch means, none, or empty where nothing depends on chance."""
    if len(cases) >= LEAST_FOR_INTERVAL:
        return REPLICATIONS
    if any(within_runs(cases, name) is not None for name in cases[0]["batch_ci95"] or ()):
        return BATCH_MEANS
    return "" if cases[0]["chance"] is False else NO_INTERVAL


mark("nonstationary_columns", "", "columns that depend on the horizon because the queue grows",
     sheet="columns that depend on the horizon",
     average=JUDGED)  # fmt: skip
mark(
    "intervals", "",
    "source of the `_ci95` columns: `replications` (three or more), `batch means` of one or two, or `none`; empty if "
    "nothing depends on chance", sheet="source of the intervals", average=Aggregate(_basis),
)  # fmt: skip


def _endings(run: MeasuredRun) -> Counter[str]:
    return run.cohort.endings(run.log.requests)


ending = partial(metric, group="endings", part="endings")
ending("timed_out", "", "requests of the window that timed out at their client (`client`)")(
    lambda run: run.once(_endings)["timed_out"]
)
ending("lost", "", "requests of the window that were lost when a replica failed and were not retried")(
    lambda run: run.once(_endings)["lost"]
)


@ending(
    "attempts_per_request", "",
    "mean number of attempts per request of the window: fleet load divided by offered load",
)  # fmt: skip
def _attempts_per_request(run: MeasuredRun) -> float | None:
    inside = run.cohort.measured.tolist()
    attempts = [one.attempts for one, measured in zip(run.log.requests, inside, strict=True) if measured]
    return sum(attempts) / len(attempts) if attempts else None


# stores whether clients send again; without a `client`, only the router does, for requests lost with a replica
figure("clients_ask", "endings")(lambda run: run.plan.client is not None)

prefix = partial(metric, group="prefixes", part="prefixes", average=SHARE)
prefix("prefix_hit_rate", "share", "fraction of prompt tokens found in the prefix cache of the chosen replica")(
    lambda run: run.prefixes and run.prefixes.prefix_hit_rate
)
prefix(
    "prefix_hit_bound", "share",
    "fraction of prompt tokens that a single unlimited cache would have held, with requests in arrival order",
)(lambda run: run.prefixes and run.prefixes.prefix_hit_bound)  # fmt: skip
