"""Scrapes: counters, gauges and histograms of vLLM or SGLang at one moment, under the engine's own names.

Sources are the text of a server's /metrics page (text exposition format 0.0.4, OpenMetrics 1.0), Prometheus' answers
to queries (`resultType: matrix` and `vector`); `otlp` has those of an OpenTelemetry collector that reads /metrics.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from sim.benchdata.errors import BenchdataError
from sim.decimals import number
from sim.infile import opened
from sim.message import Message, os_reason

ENGINES = {"vllm": "vLLM", "sglang": "SGLang"}
NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "vllm": {
        "prompt": ("request_prompt_tokens",),
        "output": ("request_generation_tokens",),
        "ttft": ("time_to_first_token_seconds",),
        "itl": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
        "e2e": ("e2e_request_latency_seconds",),
        "ended": ("request_success_total",),
        "prompt_sum": ("prompt_tokens_total",),
        "begun_prompts": ("prompt_tokens_total",),
        "output_sum": ("generation_tokens_total",),
        "cached": ("prompt_tokens_cached_total",),  # from the server's own cache and from those of others
        "hits": ("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
        "asked": ("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
        "hit_share": ("gpu_prefix_cache_hit_rate",),
        "running": ("num_requests_running",),
        "waiting": ("num_requests_waiting",),
        "kv_used": ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
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
        "kv_used": ("token_usage",),
        "drafts": ("spec_verify_calls_total",),
        "accepted": ("spec_accept_length",),
    },
}
"""Names of the metrics after the engine's prefix, the newest first.

vLLM counts a prompt with its first token, SGLang when the answer has ended.
"""
HISTOGRAMS = ("prompt", "output", "ttft", "itl", "e2e")
CUMULATIVE = ("_bucket", "_count", "_sum", "_total")
"""Suffixes of metrics whose values never decrease."""
SPELLING = re.compile(r"(?:ray_)?(vllm|sglang)[:_](\w+)")
"""Pattern of metric names; some collectors replace the colon by an underscore, and Ray adds a prefix."""


@cache
def read_name(name: str) -> str | None:
    """Return the engine's own spelling of a metric that is read; None for other metrics.

    >>> read_name("ray_vllm_num_requests_running"), read_name("vllm:lora_requests_info")
    ('vllm:num_requests_running', None)
    """
    found = SPELLING.fullmatch(name)
    return f"{found[1]}:{found[2]}" if found and found[2] in _names_read(found[1]) else None


@cache
def _names_read(engine: str, every_bucket: bool = True) -> frozenset[str]:
    whole = {name for what, names in NAMES[engine].items() if what not in HISTOGRAMS for name in names}
    parts = {
        f"{name}{end}"
        for what in HISTOGRAMS
        for name in NAMES[engine][what]
        for end in ("_count", "_sum", *(("_bucket",) if every_bucket or what == "ttft" else ()))
    }
    return frozenset(whole | parts)


def names_read(every_bucket: bool = True) -> dict[str, frozenset[str]]:
    """Return the names of the series that are read of each engine; without *every_bucket* only TTFT has buckets."""
    return {engine: _names_read(engine, every_bucket) for engine in NAMES}


LINE = re.compile(r'([A-Za-z_:][\w:]*)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?\s+(\S+)(?:\s+(-?[\d.]+))?(?:\s+#.*)?\s*$')
"""Pattern of a sample: name, labels, value, time and optional exemplar."""
LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
MS_PER_S = 1000.0
LATEST_S = 2.0**33
"""Latest time that is believed of a clock or a sample: the year 2242 [Unix s]."""
NONE_READ = "has none of the metrics that are read from vLLM or SGLang"
Series = tuple[str, tuple[tuple[str, str], ...]]
"""Name and sorted labels."""
Values = dict[Series, float]


@dataclass(slots=True)
class MetricsScrape:
    """Samples that are read at one moment."""

    place: str
    """Path of the file."""
    time_s: float | None = None
    values: Values = field(default_factory=dict)


def text_of(path: Path) -> str:
    """Return the text of the file *path*. Raises BenchdataError."""
    try:
        with opened(path, "r", encoding="utf-8-sig") as file:
            return str(file.read())
    except UnicodeDecodeError:
        raise BenchdataError([(str(path), 0, "cannot be read: it is not text")]) from None
    except OSError as error:
        raise BenchdataError([(str(path), 0, Message("cannot be read: {reason}", os_reason(error)))]) from None


def is_page(text: str) -> bool:
    """Return whether *text* has a line with a metric of vLLM or SGLang."""
    return any(SPELLING.match(line) for line in text.splitlines())


START_TIME = re.compile(r"process_start_time_seconds(?:\{[^}]*\})?\s+(\S+)")
CREATION_TIME = re.compile(r"(?:ray_)?(?:vllm|sglang)[:_]\w+_created(?:\{[^}]*\})?\s+(\S+)")


def start_time_s(text: str) -> float | None:
    """Return the Unix time at which the server of a /metrics page started [s]; None if the page lacks it."""
    for pattern in (START_TIME, CREATION_TIME):
        found = [number(match[1]) for line in text.splitlines() if (match := pattern.match(line))]
        if times := [one for one in found if one]:
            return min(times)
    return None


def scrape(path: Path, text: str) -> MetricsScrape:
    """Parse the engine's samples of a /metrics page. Raises BenchdataError."""
    found = MetricsScrape(str(path))
    problems = []
    for place, line in enumerate(text.splitlines(), 1):
        if not SPELLING.match(line):
            continue
        match = LINE.match(line)
        name = read_name(match[1]) if match else None
        value = number(match[3]) if match else None
        if match is None:
            problems.append((str(path), place, "is not a sample of the text format: a name, labels, a number"))
        elif name is not None and value is None:
            problems.append(
                (str(path), place, Message("{name} must be a finite number, not {value!r}", match[1], match[3]))
            )
        elif name is not None and value is not None:
            found.values[name, _labels(LABEL.findall(match[2] or ""))] = value
            found.time_s = _time_s(match[4]) if match[4] else found.time_s
    if not problems and not found.values:
        problems.append((str(path), 0, NONE_READ))
    if problems:
        raise BenchdataError(problems)
    return found


def matrices(answers: Sequence[tuple[Path, Any]]) -> list[MetricsScrape]:
    """Return the scrapes of the period that all query answers share, in order.

    At a time of one answer the latest values of the others are used, so their times may differ. Raises BenchdataError.
    """
    by_answer = [_checked_values(path, answer) for path, answer in answers if answer["data"]["resultType"] == "matrix"]
    moments_alone: dict[float, Values] = {}
    for path, answer in answers:
        if answer["data"]["resultType"] == "vector":
            for at_s, values in _checked_values(path, answer).items():
                moments_alone.setdefault(at_s, {}).update(values)
    by_answer += [moments_alone] if moments_alone else []
    begin_s = max(min(moments) for moments in by_answer)
    end_s = min(max(moments) for moments in by_answer)
    if begin_s > end_s:
        text = "does not overlap in time with the answers before it; put each recording into a folder of its own"
        raise BenchdataError([(str(answers[-1][0]), 0, text)])
    now: list[Values] = [{}] * len(by_answer)
    found = []
    for at_s in sorted(set().union(*by_answer)):
        now = [moments.get(at_s, known) for moments, known in zip(by_answer, now, strict=True)]
        if begin_s <= at_s <= end_s:
            values = {series: value for known in now for series, value in known.items()}
            found.append(MetricsScrape(str(answers[-1][0]), at_s, values))
    return found


def _checked_values(path: Path, answer: Any) -> dict[float, Values]:
    """Return the values of one query answer, keyed by time. Raises BenchdataError."""
    try:
        return _values_by_time(path, answer)
    except BenchdataError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BenchdataError([(str(path), 0, "holds a series that is not in the form of Prometheus")]) from None


def _values_by_time(path: Path, answer: Any) -> dict[float, Values]:
    found: dict[float, Values] = {}
    for series in answer["data"].get("result", ()):
        points = series.get("values") or [series.get("value") or ()]
        name = read_name(series.get("metric", {}).get("__name__", ""))
        if name is None:
            continue
        key = (name, _labels((k, v) for k, v in series["metric"].items() if k != "__name__"))
        for at_s, text in (one for one in points if len(one) == 2):
            value = number(text)
            if value is None:
                raise BenchdataError(
                    [(str(path), 0, Message("{name} must be a finite number, not {value!r}", name, text))]
                )
            found.setdefault(float(at_s), {})[key] = value
    if not found:
        raise BenchdataError([(str(path), 0, Message("{none_read}: query them by name, without rate()", NONE_READ))])
    return found


def is_matrix(data: Any) -> bool:
    """Return whether *data* is Prometheus' answer to a query of series."""
    content = data.get("data") if isinstance(data, dict) else None
    return isinstance(content, dict) and content.get("resultType") in ("matrix", "vector")


def _labels(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(dict(pairs).items()))


def _time_s(text: str) -> float:
    """Convert a time to seconds: milliseconds in the text format, seconds with a decimal point in OpenMetrics."""
    return float(text) if "." in text else float(text) / MS_PER_S


def labelled(series: Series) -> Mapping[str, str]:
    """Return the labels of *series*, keyed by name."""
    return dict(series[1])
