"""Every column of summary.csv, declared once: its name, unit and meaning, and how it comes from the replications.

The table, the JSON answer, the documentation, the paired differences and what the terminal and report.html show are
read from here. Whether prices move a column follows from the figures that it rests on (see
`sim.study.bill`).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sim.scenario.slo import LATENCIES
from sim.study.metrics.averages import (
    PLANNED,
    Average,
    Cases,
    First,
    Judged,
    Mean,
    MeanRate,
    OfAll,
    Ratio,
    Share,
    Usual,
    numbers,
    within_runs,
)
from sim.study.metrics.case_metrics import GROUP_OF, PERCENTILES
from sim.study.metrics.service_level import ATTAINED, cases_overloaded
from sim.study.metrics.statistics import LEAST_FOR_INTERVAL, mean
from sim.units import HOURS_PER_MONTH

MEAN, SHARE, FIRST, JUDGED = Mean(), Share(), First(), Judged()
WORDS = {"ttft_s": "time to first token, queueing included", "tpot_s": "time per output token after the first",
         "e2e_s": "time from arrival to last token"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """Column of summary.csv."""

    name: str
    unit: str
    """Empty for text and counts; `share` of one."""
    meaning: str
    average: Average
    head: str = ""
    """Heading in report.html; empty where it is not in IN_REPORT."""
    brief: str = ""
    """Heading in the terminal, with the unit shown there; empty: not shown."""

    @property
    def needs_cost(self) -> bool:
        """Whether there is none without a price."""
        return "money" in self._groups

    @property
    def moved_by_prices(self) -> bool:
        """Whether `gpufleet price` can change it."""
        return bool(self._groups & {"site", "money", "carbon"})

    @property
    def _groups(self) -> set[str]:
        return {GROUP_OF[part] for part in self.average.parts(self.name) if part in GROUP_OF}


def unsteady(cases: Cases) -> int | None:
    """Number of replications without a steady part; None where the warm-up was given."""
    steady = [one.traffic.warmup_steady for one in cases]
    return None if any(one is None for one in steady) else steady.count(False)


def warmup_found_s(cases: Cases) -> float | None:
    """Mean of the warm-ups that were found [s]; None where the warm-up was given."""
    return None if unsteady(cases) is None else mean(numbers(cases, "warmup_s"))


def thin(cases: Cases) -> str:
    """Names of the percentiles with a thin tail in some replication."""
    return " ".join(dict.fromkeys(name for one in cases for name in one.latencies.thin_percentiles))


REPLICATIONS, BATCH_MEANS, NO_INTERVAL = "replications", "batch means", "none"


def basis(cases: Cases) -> str:
    """What the intervals rest on."""
    if len(cases) >= LEAST_FOR_INTERVAL:
        return REPLICATIONS
    if any(within_runs(cases, name) is not None for name in cases[0].samples.batch_ci95):
        return BATCH_MEANS
    return "" if cases[0].samples.chance is False else NO_INTERVAL


def usd_per_million(tokens: str) -> Ratio:
    """Cost over millions of *tokens*."""
    return Ratio(("cost_usd",), tokens)


BRIEF = {"ttft_s_p95": "TTFT p95 [s]", "tpot_s_p95": "TPOT p95 [ms]"}


def latency_column(latency: str, part: str) -> Column:
    """The column of a latency's mean or percentile: *latency* ttft_s, tpot_s or e2e_s, *part* mean or p95."""
    name, short = f"{latency}_{part}", latency.removesuffix("_s").upper()
    words = f"{'mean' if part == 'mean' else f'{part[1:]}th percentile'} of the {WORDS[latency]}"
    return Column(name, "s", words, MEAN, f"{short} {part}", BRIEF.get(name, ""))


LATENCY_COLUMNS = tuple(
    latency_column(latency, part) for latency in LATENCIES for part in ("mean", *(f"p{p}" for p in PERCENTILES))
)
OF_GHG = ("operational_kg_co2e", "embodied_kg_co2e")

IN_EVERY_TABLE = (
    Column("status", "", "`ok`, or `infeasible` where the fleet cannot run", JUDGED),
    Column("reason", "", "why it cannot", JUDGED),
    Column("replications", "", "replications that the row rests on", JUDGED),
    Column("requests", "", "requests that arrived in the window", MEAN),
    Column("completed", "", "of them those that were answered", MEAN),
    Column("rejected", "", "of them those that can never fit and were refused", MEAN),
    Column("unfinished", "", "of them those without a complete answer when the run ended", MEAN),
    Column("offered_rps", "1/s", "requests that arrived per second", MEAN),
    Column("requests_per_s", "1/s", "requests that were answered per second", MEAN),
    Column("output_tokens_per_s", "tokens/s", "output tokens per second", MEAN, "output tokens", "output [tokens/s]"),
    Column("total_tokens_per_s", "tokens/s", "prompt and output tokens per second", MEAN),
    Column("goodput_rps", "1/s",
           "requests per second that keep to all limits of each request in the SLO; with limits on percentiles "
           "alone: that are answered", MEAN),
    Column("slo_attainment", "share",
           "requests within all limits of each request in the SLO: limits on percentiles have no part in it",
           ATTAINED, "within SLO", "within SLO [%]"),
    Column("meets_slo", "",
           "`slo_attainment` reaches `attainment` (where requests have limits), and every percentile with a "
           "limit keeps to it; empty without an SLO", JUDGED),
    Column("overloaded", "",
           "the queue grows through the whole run: the load is more than the fleet can serve", OfAll(cases_overloaded)),
    Column("limited_by", "",
           "what to improve first: a shortage that keeps requests waiting, or what the steps spend their time on",
           Usual()),
    *LATENCY_COLUMNS,
    Column("queue_s_p95", "s",
           "95th percentile of the wait from arrival until the first step that works on the request", MEAN),
    Column("batch_mean", "", "sequences in a step, over busy time", MEAN),
    Column("gpu_busy_fraction", "share", "time in which the GPUs compute", SHARE, "GPU busy"),
    Column("kv_used_peak_fraction", "share",
           "the fullest that any replica's KV cache has been", SHARE, "KV peak", "KV peak [%]"),
    Column("preemptions", "", "sequences that gave up their KV cache to others and were computed again", MEAN),
    Column("gpus", "",
           "GPUs of the fleet, spares included; of rented replicas that are started and stopped the most at a time",
           PLANNED),
    Column("servers", "", "servers that they stand in", PLANNED),
    Column("replicas_mean", "", "serving replicas over the window, all pools together", MEAN,
           "replicas, mean", "replicas, mean"),
    Column("replicas_p95", "", "serving replicas that are not exceeded in 95 % of the time", MEAN,
           "replicas, p95", "p95"),
    Column("replicas_max", "", "most replicas that serve at a time", MEAN, "replicas, highest", "highest"),
    Column("gpu_hours_per_day", "h/day",
           "GPU-hours a day of the GPUs that are held: bought or reserved all the time, else while switched on", MEAN,
           "GPU-hours a day", "GPU-hours a day"),
    Column("gpu_power_w_mean", "W", "mean power of the GPUs", MEAN),
    Column("it_power_w_mean", "W", "mean power at the servers' plugs", MEAN),
    Column("facility_power_w_mean", "W",
           "mean power at the site's meter: that of the servers times PUE", MEAN, "power", "power [kW]"),
    Column("energy_kwh", "kWh", "energy at the site's meter in the window", MEAN),
    Column("capex_usd", "USD", "purchase money up front; 0 for rented hardware", PLANNED),
    Column("cost_usd_per_h", "USD/h",
           "all cost, capital included", MeanRate("cost_usd"), "cost per hour", "cost [USD/h]"),
    Column("cost_usd_per_month", "USD/month", "all cost of 730 hours", MeanRate("cost_usd", HOURS_PER_MONTH)),
    Column("usd_per_million_output_tokens", "USD",
           "all cost over output tokens",
           usd_per_million("output_tokens"), "per million output tokens", "USD per million output tokens"),
    Column("usd_per_million_tokens", "USD", "all cost over prompt and output tokens", usd_per_million("total_tokens")),
    Column("usd_per_million_good_tokens", "USD",
           "all cost over the output tokens of requests within all limits of each request alone",
           usd_per_million("good_output_tokens"), "per million goodput tokens"),
)  # fmt: skip
"""What stands in every summary.csv, in this order; without any cost the columns that need one are left out."""
WHERE_KNOWN = (
    Column("warmup_s", "s", "the automatic warm-up, which is not measured", OfAll(warmup_found_s)),
    Column("warmup_unsteady", "", "replications in which no steady part was found behind it", OfAll(unsteady)),
    Column("timed_out", "", "requests of the window whose clients gave up waiting (`client`)", MEAN),
    Column("lost", "", "requests of the window that were lost with their replicas, and not asked for again", MEAN),
    Column("attempts_per_request", "",
           "how often a request of the window was sent: the load of the fleet over the load offered", MEAN),
    Column("availability", "share",
           "time that replicas are neither broken nor under repair, where they break down (`failures`)", SHARE,
           "available", "available [%]"),
    Column("idle_tax_usd_per_h", "USD/h",
           "the part of the cost that runs while GPUs have nothing to do, unused GPUs and commitments included",
           Ratio(("idle_tax_usd",), "window_h")),
    Column("preemption_waste_usd_per_h", "USD/h",
           "the part that goes into computing again what was preempted", Ratio(("preemption_waste_usd",), "window_h")),
    *(
        Column(f"usd_per_request_p{p}", "USD", f"{p}th percentile of what a request costs (`requests_cost`)", MEAN)
        for p in PERCENTILES
    ),
    Column("prefix_hit_rate", "share", "prompt tokens that the prefix cache of the chosen replica had", SHARE),
    Column("prefix_hit_bound", "share",
           "those that one cache would have had that never forgets, for requests in the order of arrival", SHARE),
    Column("kv_transfer_s_p50", "s",
           "median of the time from a request's first token to the arrival of its KV where the answer is made", MEAN),
    Column("kv_transfer_s_p95", "s",
           "95th percentile of the same", MEAN, "KV transfer p95", "KV transfer p95 [s]"),
    Column("kv_port_busy_fraction", "share",
           "KV that crossed the network, over what the ports of those who send, of those who receive, or the network "
           "between can carry, whichever is least", SHARE, "KV ports busy"),
    Column("unit", "", "noun for a service's unit of work, such as image or sequence", FIRST),
    Column("usd_per_thousand_units", "USD", "all cost over a service's units of work", Ratio(("cost_usd",), "units")),
    Column("currency", "", "the currency of the report, where it is not the US dollar", FIRST),
    Column("usd_per_currency", "USD", "US dollars per unit of it", FIRST),
    Column("api_usd_per_h", "USD/h",
           "what the same tokens cost at the API that the scenario compares with", Ratio(("api_usd",), "window_h")),
    Column("api_usd_per_million_output_tokens", "USD",
           "the same over output tokens",
           Ratio(("api_usd",), "output_tokens"), "the same tokens by API", "API, USD per million"),
    Column("operational_kg_co2e", "kg", "greenhouse gases of the electricity used in the window", MEAN),
    Column("embodied_kg_co2e", "kg", "greenhouse gases of the hardware's making, the window's part", MEAN),
    Column("kg_co2e_per_h", "kg/h", "both per hour", Ratio(OF_GHG, "window_h")),
    Column("kg_co2e_per_million_output_tokens", "kg",
           "both over output tokens",
           Ratio(OF_GHG, "output_tokens"), "CO2e per million output tokens", "CO2e [kg per million]"),
    Column("kg_co2e_per_million_tokens", "kg", "both over prompt and output tokens", Ratio(OF_GHG, "total_tokens")),
)  # fmt: skip
"""What only stands there where it has a value: for a cost, `requests_cost`, `api`, `carbon`, services or an automatic
warm-up.
"""
MARKS = (
    Column(
        "slo_verdict", "",
        "`met`, `missed`, or `inconclusive` where the 95 % interval of what is attained contains the limit or the "
        "queue seems to grow; empty without an SLO", JUDGED,
    ),
    Column("thin_percentiles", "", "percentiles with fewer than 20 requests beyond them", OfAll(thin)),
    Column(
        "horizon_dependent", "", "columns that would be others with another horizon, because the queue grows", JUDGED
    ),
    Column(
        "intervals", "",
        "what the `_ci95` rest on: `replications` (three or more), of one or two `batch means`, or `none` where a run "
        "alone gives none; empty where nothing depends on chance", OfAll(basis),
    ),
)  # fmt: skip
"""What must be known of the other columns."""
COLUMNS = (*IN_EVERY_TABLE, *WHERE_KNOWN, *MARKS)
BY_NAME = {column.name: column for column in COLUMNS}
OF_SCALING = ("replicas_mean", "replicas_p95", "replicas_max", "gpu_hours_per_day")
"""Columns that the tables show where replicas are started and stopped while a fleet runs."""


def is_column(name: str) -> bool:
    """Return whether summary.csv may have a column *name*: half-widths and percentiles of a service level included."""
    plain = re.sub("_ci95(_low|_high)?$", "", name)
    return plain in BY_NAME or re.fullmatch(rf"({'|'.join(LATENCIES)})_p[0-9.]+", plain) is not None


IN_REPORT = (
    *("slo_attainment", "ttft_s_p50", "ttft_s_p95", "ttft_s_p99", "tpot_s_p50", "tpot_s_p95", "e2e_s_p95"),
    "availability",
    *OF_SCALING,
    *("kv_transfer_s_p95", "kv_port_busy_fraction"),
    *("output_tokens_per_s", "kv_used_peak_fraction", "gpu_busy_fraction", "facility_power_w_mean", "cost_usd_per_h"),
    *("usd_per_million_output_tokens", "usd_per_million_good_tokens", "api_usd_per_million_output_tokens"),
    "kg_co2e_per_million_output_tokens",
)
"""Columns of the tables in report.html and, those with a `brief` heading, in the terminal, in this order."""
PAIRED = (
    *("slo_attainment", "ttft_s_mean", "ttft_s_p50", "ttft_s_p95", "ttft_s_p99", "tpot_s_mean", "tpot_s_p95"),
    *("e2e_s_mean", "e2e_s_p95", "goodput_rps", "output_tokens_per_s", "gpu_busy_fraction", "facility_power_w_mean"),
    *("usd_per_million_output_tokens", "usd_per_million_good_tokens"),
)
"""Columns whose paired differences are in paired.csv, in this order."""


ENDS = ("low", "high")
"""Ends of the 95 % interval of a share: `slo_attainment_ci95_low` and `_high`."""


def column(name: str) -> Column:
    """The column *name*; a percentile that only a service level names, too. Raises KeyError for any other name."""
    if name in BY_NAME or not is_percentile(name):
        return BY_NAME[name]
    latency, _, part = name.rpartition("_")
    return latency_column(latency, part)


def named_percentiles(names: Iterable[str]) -> list[str]:
    """Of *names* the percentiles of latencies beside the usual ones, which a service level names."""
    return sorted(name for name in names if is_percentile(name) and name not in BY_NAME)


def is_percentile(name: str) -> bool:
    """Whether *name* is a percentile of a latency: `tpot_s_p99.9`."""
    return re.fullmatch(r"(ttft|tpot|e2e)_s_p[0-9.]+", name) is not None


def summary_columns(axes: Sequence[str], money: bool, where_known: Sequence[str] = ()) -> list[str]:
    """Column names of summary.csv in order; without any cost (*money*) there are no columns that need one."""
    shown = [*(one for one in IN_EVERY_TABLE if money or not one.needs_cost), *map(column, where_known)]
    always = {*IN_EVERY_TABLE}
    known = [one for one in shown if one.average.has_interval and (one in always or is_percentile(one.name))]
    halves = [f"{one.name}_ci95" for one in known]
    ends = [f"{one.name}_ci95_{end}" for one in known if isinstance(one.average, Share) for end in ENDS]
    return ["fleet", *axes, *(one.name for one in shown), *(one.name for one in MARKS), *halves, *ends]
