"""Scrapes: counters, gauges and histograms of vLLM or SGLang at one moment, in the engine's own names.

They come from the text that a server shows at /metrics (text exposition format 0.0.4, OpenMetrics 1.0), from
answers of Prometheus to queries (`resultType: matrix` and `vector`), or from an OpenTelemetry collector that reads
/metrics (OTLP JSON, one object a file or a line). `opentelemetry/proto/metrics/v1/metrics.proto`: bucket counts are
those of each bucket, not cumulative over buckets.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from math import inf
from pathlib import Path
from typing import Any

from sim.benchdata.errors import BenchdataError
from sim.decimals import number
from sim.infile import opened

ENGINES = {"vllm": "vLLM", "sglang": "SGLang"}
NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "vllm": {
        "prompt": ("request_prompt_tokens",),
        "output": ("request_generation_tokens",),
        "ttft": ("time_to_first_token_seconds",),
        "itl": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
        "e2e": ("e2e_request_latency_seconds",),
        "prompt_sum": ("prompt_tokens_total",),
        "begun_prompts": ("prompt_tokens_total",),
        "output_sum": ("generation_tokens_total",),
        "cached": ("prompt_tokens_cached_total",),  # out of the server's own cache and others'
        "hits": ("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
        "asked": ("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
        "hit_share": ("gpu_prefix_cache_hit_rate",),
        "running": ("num_requests_running",),
        "waiting": ("num_requests_waiting",),
        "drafts": ("spec_decode_num_drafts_total", "spec_decode_num_draft_tokens_total"),
        "settings": ("cache_config_info",),
    },
    "sglang": {
        "prompt": ("prompt_tokens_histogram",),
        "output": ("generation_tokens_histogram",),
        "ttft": ("time_to_first_token_seconds",),
        "itl": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
        "e2e": ("e2e_request_latency_seconds",),
        "prompt_sum": ("prompt_tokens_total",),
        "output_sum": ("generation_tokens_total",),
        "hits": ("cached_tokens_total",),
        "asked": ("prompt_tokens_total",),
        "hit_share": ("cache_hit_rate",),
        "running": ("num_running_reqs",),
        "waiting": ("num_queue_reqs",),
        "drafts": ("spec_verify_calls_total",),
        "accepted": ("spec_accept_length",),
    },
}
"""What is read -> names behind the engine's prefix, the newest first. vLLM counts a prompt with its first token, SGLang
when the answer has ended."""
HISTOGRAMS = ("prompt", "output", "ttft", "itl", "e2e")
CUMULATIVE = ("_bucket", "_count", "_sum", "_total")
"""Ends of names whose values only grow."""
SPELLING = re.compile(r"(?:ray_)?(vllm|sglang)[:_](\w+)")
"""Collectors that allow no colon write an underscore; Ray puts its own name before."""


@cache
def read_name(name: str) -> str | None:
    """The engine's own spelling of a metric that is read; None for any other.

    >>> read_name("ray_vllm_num_requests_running"), read_name("vllm:lora_requests_info")
    ('vllm:num_requests_running', None)
    """
    found = SPELLING.fullmatch(name)
    return f"{found[1]}:{found[2]}" if found and found[2] in _read(found[1]) else None


@cache
def _read(engine: str) -> frozenset[str]:
    whole = {name for what, names in NAMES[engine].items() if what not in HISTOGRAMS for name in names}
    parts = {f"{n}{end}" for what in HISTOGRAMS for n in NAMES[engine][what] for end in ("_bucket", "_count", "_sum")}
    return frozenset(whole | parts)


LINE = re.compile(r'([A-Za-z_:][\w:]*)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?\s+(\S+)(?:\s+(-?[\d.]+))?(?:\s+#.*)?\s*$')
"""Name, labels, value, time; an exemplar may follow."""
LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
MS_PER_S = 1000.0
NONE_READ = "has none of the metrics that are read of vLLM or SGLang"
Series = tuple[str, tuple[tuple[str, str], ...]]
"""Name and sorted labels."""
Values = dict[Series, float]


@dataclass(slots=True)
class MetricsScrape:
    """All samples that are read of one moment."""

    place: str
    """File."""
    time_s: float | None = None
    values: Values = field(default_factory=dict)


def text_of(path: Path) -> str:
    """The file's text. Raises BenchdataError."""
    try:
        with opened(path, "r", encoding="utf-8-sig") as file:
            return str(file.read())
    except UnicodeDecodeError:
        raise BenchdataError([(str(path), 0, "cannot be read: it is no text")]) from None
    except OSError as error:
        raise BenchdataError([(str(path), 0, f"cannot be read: {(error.strerror or str(error)).lower()}")]) from None


def is_page(text: str) -> bool:
    """Whether *text* has a line of a metric of vLLM or SGLang."""
    return any(SPELLING.match(line) for line in text.splitlines())


def scrape(path: Path, text: str) -> MetricsScrape:
    """The engine's samples of one /metrics page. Raises BenchdataError."""
    found = MetricsScrape(str(path))
    problems = []
    for place, line in enumerate(text.splitlines(), 1):
        if not SPELLING.match(line):
            continue
        match = LINE.match(line)
        name = read_name(match[1]) if match else None
        value = number(match[3]) if match else None
        if match is None:
            problems.append((str(path), place, "is no sample of the text format: a name, labels, a number"))
        elif name is not None and value is None:
            problems.append((str(path), place, f"{match[1]} must be a finite number, not {match[3]!r}"))
        elif name is not None and value is not None:
            found.values[name, _labels(LABEL.findall(match[2] or ""))] = value
            found.time_s = _time_s(match[4]) if match[4] else found.time_s
    if not problems and not found.values:
        problems.append((str(path), 0, NONE_READ))
    if problems:
        raise BenchdataError(problems)
    return found


def matrices(answers: Sequence[tuple[Path, Any]]) -> list[MetricsScrape]:
    """Scrapes of the moments that all answers to queries have in common, in order. Raises BenchdataError.

    At a moment of one answer the others count with what they said last: their moments need not be the same.
    """
    told = [_moments(path, answer) for path, answer in answers if answer["data"]["resultType"] == "matrix"]
    moments_alone: dict[float, Values] = {}
    for path, answer in answers:
        if answer["data"]["resultType"] == "vector":
            for at_s, values in _moments(path, answer).items():
                moments_alone.setdefault(at_s, {}).update(values)
    told += [moments_alone] if moments_alone else []
    begin_s = max(min(moments) for moments in told)
    end_s = min(max(moments) for moments in told)
    if begin_s > end_s:
        text = "has no time in common with the answers before it; put each stretch into a folder of its own"
        raise BenchdataError([(str(answers[-1][0]), 0, text)])
    now: list[Values] = [{}] * len(told)
    found = []
    for at_s in sorted(set().union(*told)):
        now = [moments.get(at_s, known) for moments, known in zip(told, now, strict=True)]
        if begin_s <= at_s <= end_s:
            values = {series: value for known in now for series, value in known.items()}
            found.append(MetricsScrape(str(answers[-1][0]), at_s, values))
    return found


def _moments(path: Path, answer: Any) -> dict[float, Values]:
    """What one answer said, by its times. Raises BenchdataError."""
    try:
        return _said(path, answer)
    except BenchdataError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BenchdataError([(str(path), 0, "holds a series that is not in the form of Prometheus")]) from None


def _said(path: Path, answer: Any) -> dict[float, Values]:
    found: dict[float, Values] = {}
    for series in answer["data"].get("result", ()):
        said = series.get("values") or [series.get("value") or ()]
        name = read_name(series.get("metric", {}).get("__name__", ""))
        if name is None:
            continue
        key = (name, _labels((k, v) for k, v in series["metric"].items() if k != "__name__"))
        for at_s, text in (one for one in said if len(one) == 2):
            value = number(text)
            if value is None:
                raise BenchdataError([(str(path), 0, f"{name} must be a finite number, not {text!r}")])
            found.setdefault(float(at_s), {})[key] = value
    if not found:
        raise BenchdataError([(str(path), 0, f"{NONE_READ}: query them by name, without rate()")])
    return found


def is_matrix(data: Any) -> bool:
    """Whether *data* is an answer of Prometheus to a query of series."""
    held = data.get("data") if isinstance(data, dict) else None
    return isinstance(held, dict) and held.get("resultType") in ("matrix", "vector")


def _labels(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(dict(pairs).items()))


def _time_s(said: str) -> float:
    """Milliseconds in the text format, seconds with a point in OpenMetrics."""
    return float(said) if "." in said else float(said) / MS_PER_S


def labelled(series: Series) -> Mapping[str, str]:
    """The labels of a series by name."""
    return dict(series[1])


CUMULATIVE_TEMPORALITY = (2, "AGGREGATION_TEMPORALITY_CUMULATIVE")
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


def scrapes_in(path: Path, documents: Sequence[Any]) -> list[MetricsScrape]:
    """A scrape for each moment. Raises BenchdataError."""
    try:
        samples = sorted(_samples(path, documents), key=lambda one: one[0])
    except BenchdataError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BenchdataError([(str(path), 0, "holds a metric that is not in OTLP's form")]) from None
    if not samples:
        raise BenchdataError([(str(path), 0, NONE_READ)])
    found: list[MetricsScrape] = []
    for at_s, series, value in samples:
        if not found or at_s - (found[-1].time_s or 0.0) > SAME_MOMENT_S:
            found.append(MetricsScrape(str(path), at_s))
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
    if kind != "gauge" and metric[kind].get("aggregationTemporality") not in CUMULATIVE_TEMPORALITY:
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
