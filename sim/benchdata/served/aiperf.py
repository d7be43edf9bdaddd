"""Results of AIPerf (`profile_export_aiperf.json`) and of GenAI-Perf before it: one run a file.

Until autumn 2025 (43b7890) AIPerf wrote its metrics below `records`. Until spring 2025 (perf_analyzer 9fd7980)
GenAI-Perf wrote what it was told as one flat list of its options, and in 2024 no number of requests.
"""

from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any

from sim.benchdata.errors import BenchdataError
from sim.benchdata.failed import NO_TRACE, why_unusable
from sim.benchdata.served.seen import Seen

MS = {"ms": 1.0, "us": 1e-3, "ns": 1e-6, "s": 1e3, "sec": 1e3}
LATENCIES = {
    "ttft": "time_to_first_token",
    "tpot": "inter_token_latency",  # the mean of each request, not of each token
    "e2e": "request_latency",
}
RATES = {"output_tok_s": "output_token_throughput", "req_s": "request_throughput"}
CONSTANT = "constant"
CHANGING = ("rate_ramp", "rate_series")
"""Of a phase whose rate is not one."""
DRAFTS = "spec_decode_acceptance_length"
"""Tokens that a step makes of a sequence."""
CACHED = "overall_usage_prompt_cache_read_pct"
WINDOW = "measurement_interval"
"""Of GenAI-Perf [ms]: the time in which its requests are counted."""


def is_run(data: Any) -> bool:
    """Whether *data* is what AIPerf exports of a run."""
    return isinstance(data, dict) and {"request_latency", "input_sequence_length"} <= _metrics(data).keys()


def _metrics(data: dict[str, Any]) -> dict[str, Any]:
    records = data.get("records")
    return records if isinstance(records, dict) else data


def seen_in_run(path: Path, data: dict[str, Any]) -> Seen:
    """The run's traffic. Raises BenchdataError."""
    try:
        seen = _seen(path.stem, data)
        failed = float(_metrics(data).get("error_request_count", {}).get("avg") or 0)
        why = why_unusable(seen.requests, failed) or _why_not_simulated(data.get("input_config") or {})
    except KeyError as error:
        raise BenchdataError([(str(path), 0, f"has no {error.args[0]!r}")]) from None
    except (TypeError, ValueError, AttributeError, ZeroDivisionError):
        raise BenchdataError([(str(path), 0, "is not in AIPerf's form")]) from None
    if why:
        raise BenchdataError([(str(path), 0, why)])
    return seen


def _seen(name: str, data: dict[str, Any]) -> Seen:
    metrics, config = _metrics(data), data.get("input_config") or {}
    prompt, output = metrics["input_sequence_length"], metrics["output_sequence_length"]
    rate = _figure(metrics["request_throughput"], "avg")
    latency_s = _ms(metrics["request_latency"], "avg") / 1e3
    count = _count(metrics, config, rate)
    measured = {ours: _figure(metrics[theirs], "avg") for ours, theirs in RATES.items() if theirs in metrics}
    for ours, theirs in LATENCIES.items():
        if theirs in metrics:
            told = metrics[theirs]
            measured |= {f"{ours}_mean_ms": _ms(told, "avg")}
            measured |= {f"{ours}_p50_ms": _ms(told, "p50")} if ours != "e2e" and "p50" in told else {}
    return Seen(
        id=name,
        model=next(_models(config), ""),
        engine="vLLM",
        requests=count,
        seconds=count / rate,
        prompt_tokens=_figure(prompt, "avg"),
        output_tokens=_figure(output, "avg"),
        prompt_cv=_figure(prompt, "std") / _figure(prompt, "avg") if "std" in prompt else 0.0,
        output_cv=_figure(output, "std") / _figure(output, "avg") if "std" in output else 0.0,
        in_flight=rate * latency_s,
        cached_share=_figure(metrics[CACHED], "avg") / 100 if CACHED in metrics else 0.0,
        settings={"spec_decode": "drafts"} if DRAFTS in metrics and _figure(metrics[DRAFTS], "avg") > 1 else {},
        load=_load(config, round(count), rate * latency_s),
        measured=measured,
    )


def _count(metrics: dict[str, Any], config: dict[str, Any], rate: float) -> float:
    """Requests that were measured."""
    told = metrics.get("request_count", {}).get("avg") or metrics["request_latency"].get("count")
    told = told or config.get("request_count")
    return float(told) if told else rate * float(config[WINDOW]) / MS["s"]


def _load(config: dict[str, Any], count: int, in_flight: float) -> dict[str, Any]:
    """What the client was told, by its version: phases, a load generator, a stimulus, or options."""
    phases = _counted(config)
    by_aiperf = (phases[-1] if phases else None) or config.get("loadgen")
    told = by_aiperf or (config.get("perf_analyzer") or {}).get("stimulus") or config
    asked = told.get("request_rate") or told.get("rate")
    clients = told.get("concurrency")
    if asked and not clients:
        kind = str(told.get("request_rate_mode") or told.get("type") or "") if by_aiperf else CONSTANT
        load = "constant" if CONSTANT in kind else "poisson"
        shape = told.get("smoothness") or told.get("arrival_smoothness")
        gamma = {"burstiness": float(shape)} if shape and load == "poisson" else {}
        return {"load": load, "rate_req_s": float(asked), "num_requests": count} | gamma
    kept = {"load": "closed_loop", "concurrency": int(clients or max(1, round(in_flight))), "num_requests": count}
    return kept | ({"rate_req_s": float(asked)} if asked else {})


def _counted(config: dict[str, Any]) -> list[dict[str, Any]]:
    """The phases whose requests are in the results."""
    phases = config.get("phases") or ()
    return [one for one in phases if not one.get("exclude_from_results") and one.get("kind") != "warmup"]


def _why_not_simulated(config: dict[str, Any]) -> str:
    """Why the requests did not come at one load; empty if they did."""
    phases = _counted(config)
    if any(one.get("type") == "fixed_schedule" for one in phases) or (config.get("input") or {}).get("fixed_schedule"):
        return NO_TRACE
    if any(one.get(name) for one in phases for name in CHANGING):
        return "the rate changed during the run, which is not simulated"
    loads = [_load({"phases": [one]}, 0, 0.0) for one in phases]
    if any(one != loads[0] for one in loads):
        return f"throws {len(phases)} phases of different loads together; let each have a run of its own"
    return ""


def _models(config: dict[str, Any]) -> Iterator[str]:
    yield from (one["name"] for one in (config.get("models") or {}).get("items") or ())
    yield from (config.get("endpoint") or {}).get("model_names") or ()
    named = config.get("model") or config.get("model_names") or ()
    yield from [named] if isinstance(named, str) else named


def _ms(metric: dict[str, Any], statistic: str) -> float:
    return _figure(metric, statistic) * MS[metric.get("unit", "ms")]


def _figure(metric: dict[str, Any], statistic: str) -> float:
    value = float(metric[statistic])
    if not isfinite(value):
        raise ValueError(value)
    return value
