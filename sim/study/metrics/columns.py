"""Columns of summary.csv, as the metrics of `requests`, `machines` and `bill` are registered.

The table, the JSON answer, the documentation, the paired differences, the terminal and report.html read them from here.
"""

import re
from collections.abc import Iterable, Sequence

from sim.scenario.slo import LATENCIES
from sim.study.metrics import case_metrics as case_metrics  # registers all metrics
from sim.study.metrics.averages import MeanShare
from sim.study.metrics.metric import GROUPS, REGISTERED, SHOWN_GROUPS, MetricColumn
from sim.study.metrics.requests import latency_column

COLUMNS = tuple(sorted(REGISTERED.values(), key=lambda one: list(GROUPS).index(one.group)))
"""All columns in the order of summary.csv."""
BY_NAME = {one.name: one for one in COLUMNS}
MARKS = tuple(one for one in COLUMNS if one.group == "marks")
"""Columns that qualify the others: verdict, low-sample percentiles, columns of a growing queue, source of intervals."""
IN_EVERY_TABLE = tuple(one for one in COLUMNS if GROUPS[one.group])
"""Columns of every summary.csv; without any cost those that need a cost are left out."""
WHERE_KNOWN = tuple(one for one in COLUMNS if not GROUPS[one.group] and one not in MARKS)
"""Columns that are only there where they have a value.

These are columns of request cost, `api`, `carbon`, services, an automatic warm-up and the like.
"""
OF_SCALING = tuple(one.name for one in COLUMNS if one.group == "scaling")
"""Columns that the tables show where replicas are started and stopped while a fleet runs."""
_SHOWN = [one for group in dict.fromkeys((*SHOWN_GROUPS, *GROUPS)) for one in COLUMNS if one.group == group]
IN_REPORT = tuple(one.name for one in _SHOWN if one.head)
"""Columns of the tables in report.html, in this order; those with a `brief` heading are shown in the terminal, too."""
PAIRED = tuple(one.name for one in _SHOWN if one.paired)
"""Columns whose paired differences are in paired.csv, in this order."""
ENDS = ("low", "high")
"""Suffixes of the ends of a share's 95 % interval: `slo_attainment_ci95_low` and `_high`."""


def is_column(name: str) -> bool:
    """Return whether summary.csv may have a column *name*, including half-widths and percentiles of a service level."""
    plain = re.sub("_ci95(_low|_high)?$", "", name)
    return plain in BY_NAME or is_percentile(plain)


def column(name: str) -> MetricColumn:
    """Return the column *name*, which may be a percentile that only a service level names.

    Raises
    ------
    KeyError
        Where there is no such column.

    """
    if name in BY_NAME or not is_percentile(name):
        return BY_NAME[name]
    latency, _, part = name.rpartition("_")
    return latency_column(latency, part)


def named_percentiles(names: Iterable[str]) -> list[str]:
    """Return those of *names* that are percentiles of latencies that a service level adds to the usual ones."""
    return sorted(name for name in names if is_percentile(name) and name not in BY_NAME)


def is_percentile(name: str) -> bool:
    """Return whether *name* is a percentile of a latency: `tpot_s_p99.9`."""
    return re.fullmatch(rf"({'|'.join(LATENCIES)})_p[0-9.]+", name) is not None


def summary_columns(axes: Sequence[str], money: bool, where_known: Sequence[str] = ()) -> list[str]:
    """Return the column names of summary.csv in order.

    Parameters
    ----------
    axes
        Sweep axes, which follow the column `fleet`.
    money
        Whether any fleet has a cost; otherwise the columns that need a cost are left out.
    where_known
        Names of the optional columns that have a value.

    """
    shown = [*(one for one in IN_EVERY_TABLE if money or not one.needs_cost), *map(column, where_known)]
    known = [one for one in shown if one.average.has_interval and GROUPS[one.group]]
    halves = [f"{one.name}_ci95" for one in known]
    ends = [f"{one.name}_ci95_{end}" for one in known if isinstance(one.average, MeanShare) for end in ENDS]
    return ["fleet", *axes, *(one.name for one in shown), *(one.name for one in MARKS), *halves, *ends]
