"""Readers of reports of the load generators GuideLLM, AIPerf, and its predecessor GenAI-Perf.

GuideLLM (`guidellm benchmark --output-path x.json`) writes a benchmark for each strategy that it ran. AIPerf
(`profile_export_aiperf.json`) and GenAI-Perf write one run per file. Until autumn 2025 (43b7890) AIPerf wrote its
metrics below `records`. Until spring 2025 (perf_analyzer 9fd7980) GenAI-Perf wrote its options as one flat list, and
in 2024 no number of requests.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

from sim.benchdata.errors import NO_TRACE, BenchdataError, why_unusable
from sim.benchdata.served.traffic import ServedPeriod
from sim.message import Message

MS = {"ms": 1.0, "us": 1e-3, "ns": 1e-6, "s": 1e3, "sec": 1e3}
AIPERF_LATENCIES = {
    "ttft": "time_to_first_token",
    "tpot": "inter_token_latency",  # the mean of each request, not of each token
    "e2e": "request_latency",
}
AIPERF_RATES = {"output_tok_s": "output_token_throughput", "req_s": "request_throughput"}
CONSTANT = "constant"
CHANGING = ("rate_ramp", "rate_series")
"""Keys of a phase with a varying rate."""
DRAFTS = "spec_decode_acceptance_length"
"""Metric of the tokens per decode step and sequence."""
CACHED_PERCENT = "overall_usage_prompt_cache_read_pct"
WINDOW = "measurement_interval"
"""Option of GenAI-Perf with the measurement time [ms]."""


def is_run(data: Any) -> bool:
    """Return whether *data* is AIPerf's export of a run."""
    return isinstance(data, dict) and {"request_latency", "input_sequence_length"} <= _metrics(data).keys()


def _metrics(data: dict[str, Any]) -> dict[str, Any]:
    records = data.get("records")
    return records if isinstance(records, dict) else data


def seen_in_run(path: Path, data: dict[str, Any]) -> ServedPeriod:
    """Return the traffic of an AIPerf or GenAI-Perf run. Raises BenchdataError."""
    try:
        seen = _traffic_of_run(path.stem, data)
        failed = float(_metrics(data).get("error_request_count", {}).get("avg") or 0)
        why = why_unusable(seen.requests, failed) or _why_not_simulated(data.get("input_config") or {})
    except KeyError as error:
        raise BenchdataError([(str(path), 0, f"has no {error.args[0]!r}")]) from None
    except (TypeError, ValueError, AttributeError, ZeroDivisionError):
        raise BenchdataError([(str(path), 0, "is not in AIPerf's form")]) from None
    if why:
        raise BenchdataError([(str(path), 0, why)])
    return seen


def _traffic_of_run(name: str, data: dict[str, Any]) -> ServedPeriod:
    metrics, config = _metrics(data), data.get("input_config") or {}
    prompt, output = metrics["input_sequence_length"], metrics["output_sequence_length"]
    rate = _figure(metrics["request_throughput"], "avg")
    latency_s = _ms(metrics["request_latency"], "avg") / 1e3
    count = _number_of_requests(metrics, config, rate)
    measured = {ours: _figure(metrics[theirs], "avg") for ours, theirs in AIPERF_RATES.items() if theirs in metrics}
    for ours, theirs in AIPERF_LATENCIES.items():
        if theirs in metrics:
            metric = metrics[theirs]
            measured |= {f"{ours}_mean_ms": _ms(metric, "avg")}
            measured |= {f"{ours}_p50_ms": _ms(metric, "p50")} if ours != "e2e" and "p50" in metric else {}
    return ServedPeriod(
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
        cached_share=_figure(metrics[CACHED_PERCENT], "avg") / 100 if CACHED_PERCENT in metrics else 0.0,
        settings={"spec_decode": "drafts"} if DRAFTS in metrics and _figure(metrics[DRAFTS], "avg") > 1 else {},
        load=_load_of_run(config, round(count), rate * latency_s),
        measured=measured,
    )


def _number_of_requests(metrics: dict[str, Any], config: dict[str, Any], rate: float) -> float:
    """Return the number of measured requests."""
    number = metrics.get("request_count", {}).get("avg") or metrics["request_latency"].get("count")
    number = number or config.get("request_count")
    return float(number) if number else rate * float(config[WINDOW]) / MS["s"]


def _load_of_run(config: dict[str, Any], count: int, in_flight: float) -> dict[str, Any]:
    """Return the load that the client was configured with: phases, load generator, stimulus or options, by version."""
    phases = _measured_phases(config)
    by_aiperf = (phases[-1] if phases else None) or config.get("loadgen")
    options = by_aiperf or (config.get("perf_analyzer") or {}).get("stimulus") or config
    rate = options.get("request_rate") or options.get("rate")
    clients = options.get("concurrency")
    if rate and not clients:
        kind = str(options.get("request_rate_mode") or options.get("type") or "") if by_aiperf else CONSTANT
        load = "constant" if CONSTANT in kind else "poisson"
        shape = options.get("smoothness") or options.get("arrival_smoothness")
        gamma = {"burstiness": float(shape)} if shape and load == "poisson" else {}
        return {"load": load, "rate_req_s": float(rate), "num_requests": count} | gamma
    kept = {"load": "closed_loop", "concurrency": int(clients or max(1, round(in_flight))), "num_requests": count}
    return kept | ({"rate_req_s": float(rate)} if rate else {})


def _measured_phases(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the phases whose requests are in the results."""
    phases = config.get("phases") or ()
    return [one for one in phases if not one.get("exclude_from_results") and one.get("kind") != "warmup"]


def _why_not_simulated(config: dict[str, Any]) -> str:
    """Return the reason why the requests had no single load; empty if they had."""
    phases = _measured_phases(config)
    if any(one.get("type") == "fixed_schedule" for one in phases) or (config.get("input") or {}).get("fixed_schedule"):
        return NO_TRACE
    if any(one.get(name) for one in phases for name in CHANGING):
        return "the rate changed during the run, which is not simulated"
    loads = [_load_of_run({"phases": [one]}, 0, 0.0) for one in phases]
    if any(one != loads[0] for one in loads):
        return Message("combines {count} phases of different loads; run each phase separately", len(phases))
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


GUIDELLM_METRICS = {
    "ttft_mean_ms": ("time_to_first_token_ms", "mean", 1.0),
    "ttft_p50_ms": ("time_to_first_token_ms", "median", 1.0),
    "tpot_mean_ms": ("inter_token_latency_ms", "mean", 1.0),
    "tpot_p50_ms": ("inter_token_latency_ms", "median", 1.0),
    "e2e_mean_ms": ("request_latency", "mean", 1000.0),
    "output_tok_s": ("output_tokens_per_second", "mean", 1.0),
    "req_s": ("requests_per_second", "mean", 1.0),
}
"""Source of our columns: GuideLLM's metric, statistic of its successful requests, and unit."""
OPEN_LOADS = {"constant": "constant", "poisson": "poisson", "async": "constant"}
TRACE = "trace"
RATE, STREAMS = ("rate", "rate_"), ("streams", "max_concurrency")


def is_report(data: Any) -> bool:
    """Return whether *data* is a report of GuideLLM."""
    return isinstance(data, dict) and isinstance(data.get("benchmarks"), list)


def seen_in_report(path: Path, name: str, report: dict[str, Any]) -> list[ServedPeriod]:
    """Return the traffic of each benchmark that answered requests, called *name* and its number.

    Raises BenchdataError.
    """
    found, problems = [], list[tuple[str, int, str]]()
    left_out: list[tuple[int, str]] = []
    for number, benchmark in enumerate(report["benchmarks"], 1):
        try:
            totals = benchmark["metrics"]["request_totals"]
            traced = _strategy(benchmark).get("type_") == TRACE
            why = why_unusable(totals["successful"], totals.get("errored") or 0)
            if why := why or (NO_TRACE if traced else ""):
                left_out.append((number, why))
            else:
                found.append(_traffic_of_benchmark(f"{name}-{number}", report, benchmark))
        except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
            problem = f"has no {error.args[0]!r}" if isinstance(error, KeyError) else "is not in GuideLLM's form"
            problem = str(error) if type(error) is ValueError else problem
            problems.append((str(path), 0, Message("benchmark {number}: {problem}", number, problem)))
    if not found and not problems:
        reasons: list[str] = [Message("benchmark {number}: {why}", number, why) for number, why in left_out]
        problems = [(str(path), 0, reason) for reason in reasons or ["holds no benchmarks"]]
    if problems:
        raise BenchdataError(problems)
    remarks = tuple(
        Message("{path}: benchmark {number} is ignored: {why}", path, number, why) for number, why in left_out
    )
    return [replace(found[0], remarks=remarks), *found[1:]]


def _traffic_of_benchmark(name: str, report: dict[str, Any], benchmark: dict[str, Any]) -> ServedPeriod:
    metrics, strategy = benchmark["metrics"], _strategy(benchmark)
    prompt, output = metrics["prompt_token_count"]["successful"], metrics["output_token_count"]["successful"]
    total = metrics["request_totals"]["successful"]
    measured = {
        ours: unit * value
        for ours, (metric, statistic, unit) in GUIDELLM_METRICS.items()
        if (value := _finite(metric, metrics.get(metric, {}).get("successful", {}).get(statistic)))
    }
    concurrency = _finite("request_concurrency", metrics["request_concurrency"]["successful"]["mean"]) or 1.0
    seconds = _finite("duration", benchmark.get("duration")) or None
    if seconds:
        measured["req_s"] = total / seconds  # GuideLLM's own mean rate counts one request too few
    rate = measured.get("req_s")
    return ServedPeriod(
        id=name,
        model=_model(report, benchmark),
        engine="vLLM",
        requests=float(total),
        seconds=seconds or (total / rate if rate else None),
        prompt_tokens=float(prompt["mean"]),
        output_tokens=float(output["mean"]),
        prompt_cv=float(prompt.get("std_dev") or 0.0) / float(prompt["mean"]),
        output_cv=float(output.get("std_dev") or 0.0) / float(output["mean"]),
        in_flight=concurrency,
        load=_load_of_benchmark(str(strategy.get("type_", "")), strategy, int(total), concurrency),
        measured=measured,
    )


def _strategy(benchmark: dict[str, Any]) -> dict[str, Any]:
    config = benchmark.get("config") or benchmark.get("args") or {}
    return config.get("strategy") or {}


def _load_of_benchmark(kind: str, strategy: dict[str, Any], total: int, concurrency: float) -> dict[str, Any]:
    """Return the columns of the load; a rate with a limit on requests in flight is a closed loop."""
    rate = next((strategy[name] for name in RATE if strategy.get(name)), None)
    if kind in OPEN_LOADS and rate:
        limit = strategy.get("max_concurrency")
        kept = {"load": "closed_loop", "concurrency": int(limit)} if limit else {"load": OPEN_LOADS[kind]}
        return {**kept, "rate_req_s": float(rate), "num_requests": total}
    if kind == "synchronous":
        return {"load": "single", "num_requests": total}
    streams = next((strategy[name] for name in STREAMS if strategy.get(name)), None) if kind == "concurrent" else None
    return {"load": "closed_loop", "concurrency": int(streams or max(1, round(concurrency))), "num_requests": total}


def _model(report: dict[str, Any], benchmark: dict[str, Any]) -> str:
    """Return the model, which GuideLLM writes with its backend in the report's or the benchmark's arguments."""
    spec = (report.get("config") or {}).get("spec") or {}
    places = [benchmark.get("config") or {}, benchmark.get("worker") or {}, report.get("args") or {}, spec]
    for place in places:
        backend = place.get("backend") or {}
        parameters = backend if isinstance(backend, dict) else {}
        for name in (
            parameters.get("model"),
            parameters.get("target_model"),
            place.get("model"),
            place.get("backend_model"),
        ):
            if isinstance(name, str) and name:
                return name
    return ""


def _finite(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or not isfinite(value):
        raise ValueError(Message("{name} must be a finite number, not {value!r}", name, value))
    return float(value)
