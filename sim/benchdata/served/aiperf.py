"""Results of AIPerf (`profile_export_aiperf.json`) and of GenAI-Perf before it: one run a file."""

from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any

from sim.benchdata.errors import BenchdataError
from sim.benchdata.served.seen import Seen

MS = {"ms": 1.0, "us": 1e-3, "ns": 1e-6, "s": 1e3, "sec": 1e3}
LATENCIES = {
    "ttft": "time_to_first_token",
    "tpot": "inter_token_latency",  # the mean of each request, not of each token
    "e2e": "request_latency",
}
RATES = {"output_tok_s": "output_token_throughput", "req_s": "request_throughput"}
CONSTANT = "constant"


def is_run(data: Any) -> bool:
    """Whether *data* is what AIPerf exports of a run."""
    return isinstance(data, dict) and "request_latency" in data and "input_sequence_length" in data


def seen_in_run(path: Path, data: dict[str, Any]) -> Seen:
    """The run's traffic. Raises BenchdataError."""
    try:
        return _seen(path.stem, data)
    except KeyError as error:
        raise BenchdataError([(str(path), 0, f"has no {error.args[0]!r}")]) from None
    except (TypeError, ValueError, AttributeError, ZeroDivisionError):
        raise BenchdataError([(str(path), 0, "is not in AIPerf's form")]) from None


def _seen(name: str, data: dict[str, Any]) -> Seen:
    prompt, output = data["input_sequence_length"], data["output_sequence_length"]
    rate = _figure(data["request_throughput"], "avg")
    latency_s = _ms(data["request_latency"], "avg") / 1e3
    count = data.get("request_count", {}).get("avg") or data["request_latency"]["count"]
    measured = {ours: _figure(data[theirs], "avg") for ours, theirs in RATES.items() if theirs in data}
    for ours, theirs in LATENCIES.items():
        if theirs in data:
            measured |= {f"{ours}_mean_ms": _ms(data[theirs], "avg")}
            measured |= {f"{ours}_p50_ms": _ms(data[theirs], "p50")} if ours != "e2e" and "p50" in data[theirs] else {}
    return Seen(
        id=name,
        model=next(_models(data.get("input_config") or {}), ""),
        engine="vLLM",
        requests=float(count),
        seconds=float(count) / rate,
        prompt_tokens=_figure(prompt, "avg"),
        output_tokens=_figure(output, "avg"),
        prompt_cv=_figure(prompt, "std") / _figure(prompt, "avg") if "std" in prompt else 0.0,
        output_cv=_figure(output, "std") / _figure(output, "avg") if "std" in output else 0.0,
        in_flight=rate * latency_s,
        load=_load(data.get("input_config") or {}, round(float(count)), rate * latency_s),
        measured=measured,
    )


def _load(config: dict[str, Any], count: int, in_flight: float) -> dict[str, Any]:
    """What the client was told, by its version: phases, a load generator, or a stimulus."""
    phases = [one for one in config.get("phases") or () if not one.get("exclude_from_results")]
    stimulus = (config.get("perf_analyzer") or {}).get("stimulus") or {}
    told = (phases[-1] if phases else None) or config.get("loadgen") or stimulus
    asked = told.get("request_rate") or told.get("rate")
    clients = told.get("concurrency")
    if asked and not clients:
        kind = str(told.get("request_rate_mode") or told.get("type") or "")
        load = "constant" if CONSTANT in kind else "poisson"
        return {"load": load, "rate_req_s": float(asked), "num_requests": count}
    kept = {"load": "closed_loop", "concurrency": int(clients or max(1, round(in_flight))), "num_requests": count}
    return kept | ({"rate_req_s": float(asked)} if asked else {})


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
