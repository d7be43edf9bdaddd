"""Metrics in OTLP JSON, as an OpenTelemetry collector that reads /metrics writes them: one object a file or a line.

`opentelemetry/proto/metrics/v1/metrics.proto`: bucket counts are those of each bucket, not cumulative over buckets.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from math import inf
from pathlib import Path
from typing import Any

from sim.benchdata.errors import BenchdataError
from sim.benchdata.served.scraped.names import read_name
from sim.benchdata.served.scraped.samples import NONE_READ, Scrape, Series

CUMULATIVE = (2, "AGGREGATION_TEMPORALITY_CUMULATIVE")
NS_PER_S = 1e9
SAME_MOMENT_S = 1.0
"""Series of one look at a server may carry times that differ a little."""
WHO = {"service.name": "job", "service.instance.id": "instance", "k8s.pod.name": "pod"}
"""Attributes of a resource -> labels of Prometheus."""
Sample = tuple[float, Series, float]
"""(time [s], series, value)."""


def are_metrics(data: Any) -> bool:
    """Whether *data* is an OTLP object of metrics."""
    return isinstance(data, dict) and "resourceMetrics" in data


def scrapes_in(path: Path, documents: Sequence[Any]) -> list[Scrape]:
    """A scrape for each moment. Raises BenchdataError."""
    try:
        samples = sorted(_samples(path, documents), key=lambda one: one[0])
    except BenchdataError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BenchdataError([(str(path), 0, "holds a metric that is not in OTLP's form")]) from None
    if not samples:
        raise BenchdataError([(str(path), 0, NONE_READ)])
    found: list[Scrape] = []
    for at_s, series, value in samples:
        if not found or at_s - (found[-1].time_s or 0.0) > SAME_MOMENT_S:
            found.append(Scrape(str(path), at_s))
        found[-1].values[series] = value
    return found


def _samples(path: Path, documents: Iterable[Any]) -> Iterator[Sample]:
    for document in documents:
        for resource in document.get("resourceMetrics") or ():
            who = {WHO[k]: v for k, v in _attributes(resource.get("resource") or {}) if k in WHO}
            for scope in resource.get("scopeMetrics") or ():
                for metric in scope.get("metrics") or ():
                    yield from _of_metric(path, metric, who)


def _of_metric(path: Path, metric: dict[str, Any], who: dict[str, str]) -> Iterator[Sample]:
    kind = next((one for one in ("histogram", "sum", "gauge") if one in metric), "")
    name = metric["name"]
    if not kind or not any(read_name(f"{name}{end}") for end in ("", "_total", "_count")):
        return
    if kind != "gauge" and metric[kind].get("aggregationTemporality") not in CUMULATIVE:
        raise BenchdataError([(str(path), 0, f"{name} is no running total: let the collector keep cumulative values")])
    for point in metric[kind].get("dataPoints") or ():
        at_s = float(point["timeUnixNano"]) / NS_PER_S
        labels = who | dict(_attributes(point))
        for end, own, value in _histogram(point) if kind == "histogram" else _number(point, name):
            read = read_name(f"{name}{end}")
            if read is not None:
                yield at_s, (read, tuple(sorted((labels | own).items()))), value


def _histogram(point: dict[str, Any]) -> Iterator[tuple[str, dict[str, str], float]]:
    yield "_count", {}, float(point.get("count", 0))
    yield "_sum", {}, float(point.get("sum", 0.0))
    ends = [*point.get("explicitBounds", ()), inf]
    for end, upto in zip(ends, accumulate(float(one) for one in point.get("bucketCounts", ())), strict=True):
        yield "_bucket", {"le": str(end)}, upto


def _number(point: dict[str, Any], name: str) -> Iterator[tuple[str, dict[str, str], float]]:
    end = "" if read_name(name) else "_total"
    yield end, {}, float(point["asDouble"] if "asDouble" in point else point["asInt"])


def _attributes(held: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for one in held.get("attributes") or ():
        yield one["key"], str(next(iter(one["value"].values())))
