"""Reports of GuideLLM (`guidellm benchmark --output-path x.json`): a benchmark for each strategy that it ran."""

from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

from sim.benchdata.errors import BenchdataError
from sim.benchdata.failed import NO_TRACE, why_unusable
from sim.benchdata.served.seen import Seen

LATENCIES = {
    "ttft_mean_ms": ("time_to_first_token_ms", "mean", 1.0),
    "ttft_p50_ms": ("time_to_first_token_ms", "median", 1.0),
    "tpot_mean_ms": ("inter_token_latency_ms", "mean", 1.0),
    "tpot_p50_ms": ("inter_token_latency_ms", "median", 1.0),
    "e2e_mean_ms": ("request_latency", "mean", 1000.0),
    "output_tok_s": ("output_tokens_per_second", "mean", 1.0),
    "req_s": ("requests_per_second", "mean", 1.0),
}
"""Ours -> metric, statistic of its successful requests, unit."""
OPEN = {"constant": "constant", "poisson": "poisson", "async": "constant"}
TRACE = "trace"
RATE, STREAMS = ("rate", "rate_"), ("streams", "max_concurrency")


def is_report(data: Any) -> bool:
    """Whether *data* is a report of GuideLLM."""
    return isinstance(data, dict) and isinstance(data.get("benchmarks"), list)


def seen_in_report(path: Path, name: str, report: dict[str, Any]) -> list[Seen]:
    """An entry for each benchmark that answered requests, called *name* and its number. Raises BenchdataError."""
    found, problems = [], []
    left_out: list[tuple[int, str]] = []
    for number, benchmark in enumerate(report["benchmarks"], 1):
        try:
            totals = benchmark["metrics"]["request_totals"]
            traced = _strategy(benchmark).get("type_") == TRACE
            why = why_unusable(totals["successful"], totals.get("errored") or 0)
            if why := why or (NO_TRACE if traced else ""):
                left_out.append((number, why))
            else:
                found.append(_seen(f"{name}-{number}", report, benchmark))
        except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
            told = f"has no {error.args[0]!r}" if isinstance(error, KeyError) else "is not in GuideLLM's form"
            told = str(error) if type(error) is ValueError else told
            problems.append((str(path), 0, f"benchmark {number}: {told}"))
    if not found and not problems:
        problems = [(str(path), 0, f"benchmark {number}: {why}") for number, why in left_out]
        problems = problems or [(str(path), 0, "holds no benchmarks")]
    if problems:
        raise BenchdataError(problems)
    remarks = tuple(f"{path}: benchmark {number} is left out: {why}" for number, why in left_out)
    return [replace(found[0], remarks=remarks), *found[1:]]


def _seen(name: str, report: dict[str, Any], benchmark: dict[str, Any]) -> Seen:
    metrics, strategy = benchmark["metrics"], _strategy(benchmark)
    prompt, output = metrics["prompt_token_count"]["successful"], metrics["output_token_count"]["successful"]
    total = metrics["request_totals"]["successful"]
    measured = {
        ours: unit * value
        for ours, (metric, statistic, unit) in LATENCIES.items()
        if (value := _finite(metric, metrics.get(metric, {}).get("successful", {}).get(statistic)))
    }
    concurrency = _finite("request_concurrency", metrics["request_concurrency"]["successful"]["mean"]) or 1.0
    seconds = _finite("duration", benchmark.get("duration")) or None
    if seconds:
        measured["req_s"] = total / seconds  # the mean of GuideLLM's own rates leaves out a request
    rate = measured.get("req_s")
    return Seen(
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
        load=_load(str(strategy.get("type_", "")), strategy, int(total), concurrency),
        measured=measured,
    )


def _strategy(benchmark: dict[str, Any]) -> dict[str, Any]:
    config = benchmark.get("config") or benchmark.get("args") or {}
    return config.get("strategy") or {}


def _load(kind: str, strategy: dict[str, Any], total: int, concurrency: float) -> dict[str, Any]:
    """A rate with a limit on requests in flight is a closed loop under the one that binds."""
    asked = next((strategy[name] for name in RATE if strategy.get(name)), None)
    if kind in OPEN and asked:
        limit = strategy.get("max_concurrency")
        kept = {"load": "closed_loop", "concurrency": int(limit)} if limit else {"load": OPEN[kind]}
        return {**kept, "rate_req_s": float(asked), "num_requests": total}
    if kind == "synchronous":
        return {"load": "single", "num_requests": total}
    streams = next((strategy[name] for name in STREAMS if strategy.get(name)), None) if kind == "concurrent" else None
    return {"load": "closed_loop", "concurrency": int(streams or max(1, round(concurrency))), "num_requests": total}


def _model(report: dict[str, Any], benchmark: dict[str, Any]) -> str:
    """GuideLLM writes the model with its backend, in the report's arguments or the benchmark's."""
    spec = (report.get("config") or {}).get("spec") or {}
    places = [benchmark.get("config") or {}, benchmark.get("worker") or {}, report.get("args") or {}, spec]
    for place in places:
        backend = place.get("backend") or {}
        held = backend if isinstance(backend, dict) else {}
        for name in (held.get("model"), held.get("target_model"), place.get("model"), place.get("backend_model")):
            if isinstance(name, str) and name:
                return name
    return ""


def _finite(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or not isfinite(value):
        raise ValueError(f"{name} must be a finite number, not {value!r}")
    return float(value)
