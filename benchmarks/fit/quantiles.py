"""Prediction intervals from errors of rows that were not fitted: quantiles, and their coverage of measurements."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from operator import attrgetter

import numpy as np

from sim.study.confidence import MARKS

METRICS = {"tput": "throughput", "tpot": "tpot", "ttft": "ttft", "power": "power"}
KEPT = 4
"""Rows kept per pair, engine, metric and mark, evenly spaced in the order of errors; pairs have the same weight."""
QUANTILES = (0.1, 0.9)
STRETCHES = tuple(1 + step / 20 for step in range(41))
"""Candidate widths relative to the quantiles."""
LEAST_PAIRS = 6
"""Smallest number of pairs for an interval over all servers."""
LEAST_OF_CLASS = 10
"""Smallest number of pairs for an interval of a class: the 10th percentile of fewer is their smallest value."""
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
    engine: str = ""
    """Family of the engine."""
    gpu_class: str = ""
    """Class of the GPU, such as `PCIe cards` (`sim.study.confidence.GPU_CLASSES`)."""

    @property
    def pair(self) -> tuple[str, str]:
        """GPU and model family; pairs have the same weight regardless of their number of rows."""
        return self.gpu, self.family


BY_PUBLISHER: Callable[[Error], str] = attrgetter("campaign")
GROUPS: tuple[Callable[[Error], str], ...] = (attrgetter("gpu"), BY_PUBLISHER)
"""Groups (GPUs, publishers) that are left out in turn to test an interval."""


def thinned(errors: Sequence[Error]) -> list[Error]:
    """Return at most KEPT rows of each pair, engine, metric and mark."""
    groups: dict[tuple[object, ...], list[Error]] = defaultdict(list)
    for one in errors:
        groups[one.metric, one.mark, *one.pair, one.engine].append(one)
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


Coverage = Callable[[Sequence[Error], Callable[[Error], str], float, Sequence[Error]], float]
"""Function from errors, groups, stretch and tested errors to the fraction of the latter that is covered."""


def stretch_of(errors: Sequence[Error], strangers: Sequence[Error] = (), covered: Coverage | None = None) -> float:
    """Return the factor by which quantiles must be widened to cover their share of left-out GPUs and publishers.

    *strangers*, some of the errors, must be covered on their own as well, if there are enough. *covered*: None:
    `covered_share`; for intervals by class, `covered_by_classes`.
    """
    share, covered = QUANTILES[1] - QUANTILES[0], covered or covered_share
    tested = [(group, errors) for group in GROUPS] + ([(BY_PUBLISHER, strangers)] if enough(strangers) else [])
    if not errors:
        return 1.0

    def coverage(stretch: float) -> float:
        return min(covered(errors, group, stretch, some) for group, some in tested)

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


def enough(errors: Sequence[Error], least: int = LEAST_PAIRS) -> bool:
    """Return whether *errors* are of at least *least* pairs."""
    return len({one.pair for one in errors}) >= least


@dataclass(frozen=True, slots=True)
class Interval:
    """Interval of measured / predicted, and the errors from which it was computed."""

    low: float
    high: float
    errors: Sequence[Error]

    def __str__(self) -> str:
        counts = f"rows: {len(self.errors)}, pairs: {len({one.pair for one in self.errors})}"
        return f"{{low: {self.low:.3f}, high: {self.high:.3f}, common_sd: {common_sd(self.errors):.3f}, {counts}}}"


ByMark = dict[str, dict[str, Interval]]
"""Metric -> mark -> interval."""


def by_mark(
    errors: Sequence[Error],
    stretch: Callable[[Sequence[Error]], float],
    elsewhere: ByMark,
    least_pairs: int = LEAST_PAIRS,
) -> ByMark:
    """Return the intervals of all metrics and marks with enough pairs, whose quantiles are widened by *stretch*.

    Where there are too few, the interval of *elsewhere* applies. Farther away nothing is known better: an interval is
    at least as wide as those of nearer marks, for which that of *elsewhere* is repeated and widened.
    """
    found: ByMark = defaultdict(dict)
    for metric in METRICS.values():
        least, most = 1.0, 1.0
        for mark in MARKS:
            some, other = chosen(errors, metric, mark), elsewhere.get(metric, {}).get(mark)
            own = enough(some, least_pairs)
            if own:
                low, high = quantiles(some, stretch(some))
            elif other:
                low, high, some = other.low, other.high, other.errors
            else:
                continue
            least, most = min(least, low), max(most, high)
            if own or (least, most) != (low, high):
                found[metric][mark] = Interval(least, most, some)
    return found


def by_class(errors: Sequence[Error], strangers: Sequence[Error], pooled: ByMark) -> dict[tuple[str, str], ByMark]:
    """Return (class of GPUs, engine) -> intervals; the engine "" is all engines of the class.

    *strangers*, some of the errors, are in no fit. All classes are widened by the same factor, as one class has few
    GPUs, publishers and strangers. Power was measured on too few GPUs for classes.
    """
    errors = [one for one in errors if one.metric != "power"]
    factors = {
        (metric, mark): stretch_of(chosen(errors, metric, mark), chosen(strangers, metric, mark), covered_by_classes)
        for metric in METRICS.values()
        for mark in MARKS
    }
    found: dict[tuple[str, str], ByMark] = {}
    for gpu_class, engine in classes_of(errors):
        wider = found.get((gpu_class, ""), {})
        elsewhere = {metric: marks | wider.get(metric, {}) for metric, marks in pooled.items()}
        own = in_class(errors, gpu_class, engine)
        found[gpu_class, engine] = by_mark(
            own, lambda some: factors[some[0].metric, some[0].mark], elsewhere, LEAST_OF_CLASS
        )
    return {name: marks for name, marks in found.items() if marks}


def widest_ends(
    errors: Sequence[Error], pooled: ByMark, classes: Mapping[tuple[str, str], ByMark]
) -> dict[str, ByMark]:
    """Return class of GPUs -> intervals of the metrics of which *classes* has none for it.

    An end is the widest of the intervals of all servers and of every class, and of the few errors of the class itself.
    Metrics without any class (power) are absent.
    """
    found: dict[str, ByMark] = defaultdict(lambda: defaultdict(dict))
    for gpu_class in sorted({one.gpu_class for one in errors if one.gpu_class}):
        for metric, marks in pooled.items():
            known = [some[metric] for some in classes.values() if metric in some]
            if not known or metric in classes.get((gpu_class, ""), {}):
                continue
            ends = [1.0]
            for mark, interval in marks.items():
                ends += [end for one in (marks, *known) if mark in one for end in (one[mark].low, one[mark].high)]
                ends += [one.ratio for one in chosen(in_class(errors, gpu_class, ""), metric, mark)]
                found[gpu_class][metric][mark] = Interval(min(ends), max(ends), interval.errors)
    return found


def covered_by_classes(
    errors: Sequence[Error], group: Callable[[Error], str], stretch: float, tested: Sequence[Error]
) -> float:
    """Return the fraction of *tested* within the interval of their nearest class, derived without their *group*."""
    shares: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for gpu_class, engine in sorted({(one.gpu_class, one.engine) for one in tested}):
        own = [one for one in tested if (one.gpu_class, one.engine) == (gpu_class, engine)]
        for one, held in _held(nearest_class(errors, own[0]), group, stretch, own):
            shares[one.pair].append(held)
    return float(np.mean([np.mean(held) for held in shares.values()]))


def nearest_class(errors: Sequence[Error], one: Error) -> list[Error]:
    """Return the errors of the narrowest class of *one* with enough pairs."""
    places = ((one.gpu_class, one.engine), (one.gpu_class, ""), ("", ""))
    found = (in_class(errors, *place) for place in places)
    return next((some for some in found if enough(some, LEAST_OF_CLASS)), [*errors])


def classes_of(errors: Sequence[Error]) -> list[tuple[str, str]]:
    """Return each class of GPUs with the engine "" for all, then with each engine."""
    found = {(one.gpu_class, engine) for one in errors if one.gpu_class for engine in ("", one.engine)}
    return sorted(found)


def in_class(errors: Sequence[Error], gpu_class: str, engine: str) -> list[Error]:
    """Return the errors on GPUs of *gpu_class* with *engine*; empty names stand for all."""
    return [one for one in errors if gpu_class in ("", one.gpu_class) and engine in ("", one.engine)]


def intervals(errors: Sequence[Error], strangers: Sequence[Error], calibrated: Sequence[Error]) -> str:
    """Return the text of data/fidelity/intervals.yaml."""
    everything = [*errors, *strangers]
    apart = {(metric, mark): chosen(strangers, metric, mark) for metric in METRICS.values() for mark in MARKS}
    pooled = by_mark(everything, lambda some: stretch_of(some, apart[some[0].metric, some[0].mark]), {})
    lines = [
        "# How far measurements are from predictions: 10th and 90th percentile of measured over predicted.",
        "# benchmarks/fit/intervals.py writes this file.",
        ORIGIN.format(rows=len(errors) + len(strangers)).rstrip(),
        "metrics:",
        *_lines(pooled, "  "),
        "classes:",
    ]
    classes = by_class(everything, strangers, pooled)
    for (gpu_class, engine), marks in classes.items():
        lines += [f"  - gpu_class: {gpu_class}", *([f"    engine: {engine}"] if engine else []), "    metrics:"]
        lines += _lines(marks, "      ")
    for gpu_class, marks in widest_ends(everything, pooled, classes).items():
        lines += [f"  - gpu_class: {gpu_class}", "    widest: true", "    metrics:", *_lines(marks, "      ")]
    known = {metric: some for metric in pooled if enough(some := [one for one in calibrated if one.metric == metric])}
    own = {metric: Interval(*quantiles(some, stretch_of(some)), some) for metric, some in known.items()}
    nearest = {metric: marks[min(marks, key=MARKS.index)] for metric, marks in pooled.items()}  # type: ignore[arg-type]
    narrower = [f"  {m}: {one}" for m, one in own.items() if one.high / one.low < nearest[m].high / nearest[m].low]
    return "\n".join([*lines, "calibrated:" if narrower else "calibrated: {}", *narrower]) + "\n"


def _lines(found: ByMark, margin: str) -> list[str]:
    lines = []
    for metric, marks in found.items():
        lines += [f"{margin}{metric}:", *(f"{margin}  {mark}: {one}" for mark, one in marks.items())]
    return lines


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
    for one, held in _held(errors, group, stretch, errors if tested is None else tested):
        shares[one.pair].append(held)
    return float(np.mean([np.mean(found) for found in shares.values()]))


def _held(
    errors: Sequence[Error], group: Callable[[Error], str], stretch: float, tested: Sequence[Error]
) -> Iterator[tuple[Error, bool]]:
    """Yield each of *tested*, and whether it is within the interval derived from *errors* without its *group*."""
    for out in {group(one) for one in tested}:
        low, high = quantiles([one for one in errors if group(one) != out] or errors, stretch)
        yield from ((one, low <= one.ratio <= high) for one in tested if group(one) == out)
