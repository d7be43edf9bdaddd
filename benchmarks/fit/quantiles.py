"""Prediction intervals from errors of rows that were not fitted: quantiles, and their coverage of measurements."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log
from operator import attrgetter

import numpy as np

from sim.study.confidence import MARKS

METRICS = {"tput": "throughput", "tpot": "tpot", "ttft": "ttft", "power": "power"}
KEPT = 4
"""Rows kept per pair, metric and mark, evenly spaced in the order of their errors; pairs have the same weight."""
QUANTILES = (0.1, 0.9)
STRETCHES = tuple(1 + step / 20 for step in range(41))
"""Candidate widths relative to the quantiles."""
LEAST_PAIRS = 6
"""Smallest number of pairs for an interval."""
ORIGIN = """source: gpufleet-study
where: "benchmarks/fit/intervals.py: {rows} errors of rows that were left out of the fit, data/fidelity/left_out.csv"
kind: fitted
"""


@dataclass(frozen=True, slots=True)
class Error:
    """Error of a left-out measurement."""

    metric: str
    mark: str
    gpu: str
    family: str
    campaign: str
    """Publisher of the measurement."""
    ratio: float
    """Measured / predicted."""

    @property
    def pair(self) -> tuple[str, str]:
        """GPU and model family; pairs have the same weight regardless of their number of rows."""
        return self.gpu, self.family


BY_PUBLISHER: Callable[[Error], str] = attrgetter("campaign")
GROUPS: tuple[Callable[[Error], str], ...] = (attrgetter("gpu"), BY_PUBLISHER)
"""Groups (GPUs, publishers) that are left out in turn to test an interval."""


def thinned(errors: Sequence[Error]) -> list[Error]:
    """Return at most KEPT rows of each pair, metric and mark."""
    groups: dict[tuple[object, ...], list[Error]] = defaultdict(list)
    for one in errors:
        groups[one.metric, one.mark, *one.pair].append(one)
    kept = []
    for _, members in sorted(groups.items()):
        members.sort(key=lambda one: one.ratio)
        count = min(KEPT, len(members))
        kept += [members[(2 * i + 1) * len(members) // (2 * count)] for i in range(count)]
    return kept


def quantiles(errors: Sequence[Error], stretch: float = 1.0) -> tuple[float, float]:
    """Return the 10th and 90th percentile of measured / predicted, with equal weight per pair.

    The distance from the median is multiplied by *stretch* in logarithms.
    """
    rows_of: dict[tuple[str, str], int] = defaultdict(int)
    for one in errors:
        rows_of[one.pair] += 1
    ordered = sorted(errors, key=lambda one: one.ratio)
    weights = np.array([1.0 / rows_of[one.pair] for one in ordered])
    places = (np.cumsum(weights) - weights / 2) / weights.sum()
    low, middle, high = np.interp((QUANTILES[0], 0.5, QUANTILES[1]), places, [log(one.ratio) for one in ordered])
    return exp(float(middle - stretch * (middle - low))), exp(float(middle + stretch * (high - middle)))


def stretch_of(errors: Sequence[Error], strangers: Sequence[Error] = ()) -> float:
    """Return the factor by which quantiles must be widened to cover their share of left-out GPUs and publishers.

    *strangers*, some of the errors, must be covered on their own as well, if there are enough.
    """
    share = QUANTILES[1] - QUANTILES[0]
    own = [strangers] if len({one.pair for one in strangers}) >= LEAST_PAIRS else []

    def coverage(stretch: float) -> float:
        apart = [covered_share(errors, BY_PUBLISHER, stretch, some) for some in own]
        return min(*(covered_share(errors, group, stretch) for group in GROUPS), *apart)

    return next((one for one in STRETCHES if coverage(one) >= share), STRETCHES[-1])


def common_sd(errors: Sequence[Error]) -> float:
    """Return the standard deviation of the part of log(ratio) that the pairs of a campaign share.

    It is the square root of the mean product of two pairs' deviations in the same campaign, with campaigns weighted by
    their pairs.
    """
    by_pair: dict[str, dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in errors:
        by_pair[one.campaign][one.pair].append(log(one.ratio))
    medians = {name: [float(np.median(found)) for found in pairs.values()] for name, pairs in by_pair.items()}
    centre = float(np.median([value for found in medians.values() for value in found]))
    products = weight = 0.0
    for found in medians.values():
        off = np.clip(np.array(found) - centre, -1.0, 1.0)
        if len(off) > 1:
            products += (float(off.sum()) ** 2 - float((off**2).sum())) / (len(off) - 1)
            weight += len(off)
    return max(0.0, products / weight) ** 0.5 if weight else 0.0


def chosen(errors: Sequence[Error], metric: str, mark: str) -> list[Error]:
    """Return the errors from which an interval is derived."""
    return [one for one in errors if one.metric == metric and one.mark == mark]


def intervals(errors: Sequence[Error], strangers: Sequence[Error], calibrated: Sequence[Error]) -> str:
    """Return the text of data/fidelity/intervals.yaml."""
    lines = ["# How far measurements are from predictions: 10th and 90th percentile of measured over predicted."]
    lines += [
        "# benchmarks/fit/intervals.py writes this file.",
        ORIGIN.format(rows=len(errors) + len(strangers)).rstrip(),
    ]
    lines.append("metrics:")
    nearest = {}
    for metric in METRICS.values():
        found = {mark: chosen([*errors, *strangers], metric, mark) for mark in MARKS}
        kept = {mark: some for mark, some in found.items() if len({one.pair for one in some}) >= LEAST_PAIRS}
        if not kept:
            continue
        lines.append(f"  {metric}:")
        least, most = 1.0, 1.0
        for mark, some in kept.items():
            low, high = quantiles(some, stretch_of(some, chosen(strangers, metric, mark)))
            least, most = min(least, low), max(most, high)  # farther away nothing is known better
            nearest.setdefault(metric, (least, most))
            lines.append(f"    {mark}: {_interval(least, most, some)}")
    by_metric = {metric: [one for one in calibrated if one.metric == metric] for metric in METRICS.values()}
    known = {metric: some for metric, some in by_metric.items() if len({one.pair for one in some}) >= LEAST_PAIRS}
    own = {metric: quantiles(some, stretch_of(some)) for metric, some in known.items()}
    narrower = [metric for metric, (low, high) in own.items() if high / low < nearest[metric][1] / nearest[metric][0]]
    lines.append("calibrated:" if narrower else "calibrated: {}")
    lines += [f"  {metric}: {_interval(*own[metric], known[metric])}" for metric in narrower]
    return "\n".join(lines) + "\n"


def _interval(low: float, high: float, errors: Sequence[Error]) -> str:
    counts = f"rows: {len(errors)}, pairs: {len({one.pair for one in errors})}"
    return f"{{low: {low:.3f}, high: {high:.3f}, common_sd: {common_sd(errors):.3f}, {counts}}}"


def covered_share(
    errors: Sequence[Error],
    group: Callable[[Error], str],
    stretch: float = 1.0,
    tested: Sequence[Error] | None = None,
) -> float:
    """Return the fraction of the measurements *tested*, or of all, within an interval derived without their *group*.

    Pairs have the same weight.
    """
    shares: dict[tuple[str, str], list[bool]] = defaultdict(list)
    tested = errors if tested is None else tested
    for out in {group(one) for one in tested}:
        low, high = quantiles([one for one in errors if group(one) != out] or errors, stretch)
        for one in tested:
            if group(one) == out:
                shares[one.pair].append(low <= one.ratio <= high)
    return float(np.mean([np.mean(found) for found in shares.values()]))
