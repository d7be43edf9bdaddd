"""OTLP metrics in JSON: data points of an OpenTelemetry collector that reads /metrics, as Prometheus' series.

The collector's Prometheus receiver keeps the names and labels of /metrics; `job`, `instance` and the names of pod,
namespace and cluster become attributes of the resource. In JSON, 64-bit integers are strings and fields with the value
zero may be absent. Bucket counts of OTLP are not cumulative over buckets.

References
----------
opentelemetry/proto/metrics/v1/metrics.proto; OTLP specification, "JSON Protobuf Encoding"; OpenTelemetry, "Metrics Data
Model", sections "Temporality" and "Resets and Gaps".

"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate, pairwise
from math import inf, isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sim.benchdata.errors import BenchdataError
from sim.benchdata.served.scrapes import LATEST_S, NONE_READ, MetricsScrape, Series, read_name
from sim.message import Message

MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""Errors of reading an object that is not in OTLP's form."""
NOT_OTLP = "holds a metric that is not in OTLP's form"
KINDS = ("histogram", "sum", "gauge", "exponentialHistogram")
CUMULATIVE_TEMPORALITY = (2, "AGGREGATION_TEMPORALITY_CUMULATIVE")
DELTA_TEMPORALITY = (1, "AGGREGATION_TEMPORALITY_DELTA")
NO_VALUE = 1
"""Bit of a point's flags: the series has ended, or its target was not reached."""
NS_PER_S = 1e9
SAME_MOMENT_S = 1.0
"""Largest time difference between series of one scrape [s]."""
RESOURCE_LABELS = {
    "service.name": "job",
    "service.instance.id": "instance",
    "k8s.pod.name": "pod",
    "k8s.namespace.name": "namespace",
    "k8s.cluster.name": "cluster",
}
"""Prometheus labels of OTLP resource attributes."""
BOUNDS = [2.0 ** (place / 4) for place in range(-40, 73)]
"""Buckets of exponential histograms: bounds from 0.001 to 262,144, four to a factor of two."""
LARGEST_POWER = 1000
"""Exponent of the largest finite bound, a power of two; larger bounds count as this one."""


class OtlpPoint(NamedTuple):
    """Data point of a metric."""

    name: str
    """Prometheus name, without the suffix of counters and of parts of histograms."""
    kind: str
    """Kind of data, an element of KINDS."""
    temporality: str
    """Temporality, cumulative or delta; empty for a gauge, or where it is not stated."""
    labels: tuple[tuple[str, str], ...]
    start_s: float
    """Time from which the point counts [Unix s]; 0 where it is not stated."""
    time_s: float
    data: Mapping[str, Any]

    @property
    def ended(self) -> bool:
        """True if the point marks the end of its series."""
        return bool(int(self.data.get("flags") or 0) & NO_VALUE)


def are_metrics(data: Any) -> bool:
    """Return whether *data* is an OTLP object of metrics."""
    return isinstance(data, dict) and "resourceMetrics" in data


@cache
def is_engine_metric(name: str) -> bool:
    """Return whether a metric of vLLM or SGLang is read, under its name with or without the suffix of its kind."""
    return any(read_name(f"{name}{end}") for end in ("", "_total", "_count"))


def points_in(document: Any, wanted: Callable[[str], bool] = is_engine_metric) -> Iterator[OtlpPoint]:
    """Yield the points of the *wanted* metrics of an OTLP object.

    Raises an error of MALFORMED where the object is not in OTLP's form.
    """
    for resource in document.get("resourceMetrics") or ():
        of_resource = {
            RESOURCE_LABELS[k]: v for k, v in _attributes(resource.get("resource") or {}) if k in RESOURCE_LABELS
        }
        for scope in resource.get("scopeMetrics") or ():
            for metric in scope.get("metrics") or ():
                kind = next((one for one in KINDS if one in metric), "")
                if kind and wanted(metric["name"]):
                    yield from _points_of(metric, kind, of_resource)


def _points_of(metric: Mapping[str, Any], kind: str, of_resource: dict[str, str]) -> Iterator[OtlpPoint]:
    stated = metric[kind].get("aggregationTemporality")
    temporality = "cumulative" if stated in CUMULATIVE_TEMPORALITY else "delta" if stated in DELTA_TEMPORALITY else ""
    for point in metric[kind].get("dataPoints") or ():
        labels = tuple(sorted((of_resource | dict(_attributes(point))).items()))
        start_s, time_s = (float(point.get(name) or 0) / NS_PER_S for name in ("startTimeUnixNano", "timeUnixNano"))
        if not 0 < time_s < LATEST_S:
            raise ValueError("time")
        yield OtlpPoint(metric["name"], kind, temporality, labels, start_s, time_s, point)


Part = tuple[str, tuple[tuple[str, str], ...], float]
"""Suffix of the name, labels of the part, and value."""


def parts_of(point: OtlpPoint) -> Iterator[Part]:
    """Yield the parts of a point; histograms have `_count`, `_sum` and `_bucket`, as in Prometheus' text format.

    Values that are not finite are left out. Raises ValueError where a counter is negative, or bounds do not increase.
    """
    parts = {"histogram": _histogram, "exponentialHistogram": _exponential}.get(point.kind)
    for part in parts(point.data) if parts else _number(point):
        if part[2] < 0 and point.kind != "gauge" and part[0] != "_sum":
            raise ValueError("negative")
        if isfinite(part[2]):
            yield part


def series_of(point: OtlpPoint, suffix: str, own: tuple[tuple[str, str], ...]) -> Series | None:
    """Return the Prometheus series of a part of *point*; None for parts that are not read."""
    name = read_name(f"{point.name}{suffix}")
    if name is None and suffix:
        return None
    return name or point.name, tuple(sorted((*point.labels, *own)))


def _number(point: OtlpPoint) -> Iterator[Part]:
    end = "_total" if point.kind == "sum" and read_name(f"{point.name}_total") else ""
    yield end, (), float(point.data["asDouble"] if "asDouble" in point.data else point.data["asInt"])


def _histogram(point: Mapping[str, Any]) -> Iterator[Part]:
    yield from _totals(point)
    counts = [float(one) for one in point.get("bucketCounts") or ()]
    ends = [*(float(one) for one in point.get("explicitBounds") or ()), inf]
    if counts:
        if any(one >= after for one, after in pairwise(ends)):
            raise ValueError("bounds")
        for end, upto in zip(ends, accumulate(counts), strict=True):
            yield "_bucket", (("le", str(end)),), upto


def _exponential(point: Mapping[str, Any]) -> Iterator[Part]:
    """Yield the parts of an exponential histogram, with its counts below each of BOUNDS.

    Counts are exact where the scale is at least 2, and interpolated within coarser buckets.
    """
    yield from _totals(point)
    positive = point.get("positive") or {}
    counts = np.array([float(one) for one in positive.get("bucketCounts") or ()])
    width = 2.0 ** -int(point.get("scale") or 0)  # of a bucket, in powers of two
    powers = (int(positive.get("offset") or 0) + np.arange(len(counts) + 1)) * width
    ends = np.exp2(np.clip(powers, -LARGEST_POWER, LARGEST_POWER))
    total = float(point.get("count") or 0)
    lowest = total - float(counts.sum())  # zeros, and values below them
    upto = np.interp(BOUNDS, ends, lowest + np.concatenate([[0.0], np.cumsum(counts)])) if len(counts) else None
    for place, end in enumerate(BOUNDS):
        yield "_bucket", (("le", str(end)),), lowest if upto is None else float(upto[place])
    yield "_bucket", (("le", str(inf)),), total


def _totals(point: Mapping[str, Any]) -> Iterator[Part]:
    yield "_count", (), float(point.get("count") or 0)
    if "sum" in point:
        yield "_sum", (), float(point["sum"])


def _attributes(holder: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for one in holder.get("attributes") or ():
        value = next(iter(one["value"].values()), "")
        yield one["key"], str(value).lower() if isinstance(value, bool) else str(value)


def scrapes_in(path: Path, documents: Sequence[Any]) -> list[MetricsScrape]:
    """Return a scrape for each moment of OTLP *documents*. Raises BenchdataError."""
    try:
        points = sorted(
            (one for document in documents for one in points_in(document) if not one.ended), key=lambda one: one.time_s
        )
        for one in points:
            if one.kind != "gauge" and one.temporality != "cumulative":
                text = Message("{name} is not a running total: let the collector keep cumulative values", one.name)
                raise BenchdataError([(str(path), 0, text)])
        samples = [
            (one.time_s, series, value)
            for one in points
            for suffix, own, value in parts_of(one)
            if (series := series_of(one, suffix, own)) is not None
        ]
    except BenchdataError:
        raise
    except MALFORMED:
        raise BenchdataError([(str(path), 0, NOT_OTLP)]) from None
    if not samples:
        raise BenchdataError([(str(path), 0, NONE_READ)])
    found: list[MetricsScrape] = []
    for at_s, series, value in samples:
        if not found or at_s - (found[-1].time_s or 0.0) > SAME_MOMENT_S:
            found.append(MetricsScrape(str(path), at_s))
        found[-1].values[series] = value
    return found
