"""Reader of OpenTelemetry spans of requests in OTLP JSON.

The collector's file exporter writes one object per file or line. Attributes are those of the GenAI conventions and of
vLLM (`vllm/tracing.py`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, NoReturn

from sim.benchdata.errors import BenchdataError
from sim.benchdata.served.traffic import ServedPeriod, rate_seen
from sim.decimals import number
from sim.message import Message
from sim.otel import CACHED_TOKENS, OUTPUT_TOKENS, PROMPT_TOKENS, first_of, unknown_token_keys

TTFT = ("gen_ai.latency.time_to_first_token", "gen_ai.server.time_to_first_token")
MODEL = ("gen_ai.response.model", "gen_ai.request.model")
QUEUE, E2E = ("gen_ai.latency.time_in_queue",), ("gen_ai.latency.e2e",)
NS_PER_S, MS_PER_S = 1e9, 1e3
MOMENTS = 64
"""Number of sampling times of the requests in flight."""


def are_spans(data: Any) -> bool:
    """Return whether *data* is an OTLP object of traces."""
    return isinstance(data, dict) and "resourceSpans" in data


def seen_in_spans(path: Path, documents: Sequence[Any]) -> ServedPeriod:
    """Return the traffic from the first to the last request. Raises BenchdataError."""
    unknown: dict[str, str] = {}
    try:
        found = [one for span in _spans(documents) if (one := _request(span, unknown))]
        engine = _engine(documents)
    except (KeyError, TypeError, ValueError, AttributeError):
        _refuse(path, "has a span without times, or with attributes that are not in OTLP's form")
    if unknown:
        problems = [
            (str(path), 0, Message("unknown token key {key!r} in a span; did you mean {unknown!r}?", key, unknown[key]))
            for key in unknown
        ]
        raise BenchdataError(problems)
    if len(found) < 2:
        _refuse(
            path,
            Message(
                "has {count} spans with {prompt_tokens} and {output_tokens}; two are needed at least",
                len(found),
                PROMPT_TOKENS[0],
                OUTPUT_TOKENS[0],
            ),
        )
    models = sorted({one.model for one in found if one.model})
    if len(models) > 1:
        _refuse(path, Message("holds spans of several models, {models}; keep those of one", " and ".join(models)))
    begins = [one.begin_s for one in found]
    seconds = max(begins) - min(begins)
    if seconds <= 0 or any(one.e2e_s <= 0 for one in found):
        _refuse(path, "has spans that end before they begin, or that all begin at once")
    timed = [one for one in found if one.ttft_s is not None]
    tpots = [(one.e2e_s - (one.ttft_s or 0.0)) / (one.output - 1) for one in timed if one.output > 1]
    running, waiting = _moments(found, min(begins), seconds)
    load = rate_seen(len(found) - 1, seconds, fmean(running), running, waiting)
    measured = {"tpot_mean_ms": MS_PER_S * fmean(tpots)} if tpots else {}
    measured["e2e_mean_ms"] = MS_PER_S * fmean(one.e2e_s for one in found)
    if load and timed:
        measured["ttft_mean_ms"] = MS_PER_S * fmean(one.ttft_s or 0.0 for one in timed)
    prompts, outputs = [one.prompt for one in found], [one.output for one in found]
    return ServedPeriod(
        id=path.stem,
        model=models[0] if models else "",
        engine=engine,
        requests=len(found) - 1,
        seconds=seconds,
        prompt_tokens=fmean(prompts),
        output_tokens=fmean(outputs),
        prompt_cv=pstdev(prompts) / fmean(prompts),
        output_cv=pstdev(outputs) / fmean(outputs),
        cached_share=min(1.0, sum(one.cached for one in found) / sum(prompts)),
        in_flight=sum(one * one for one in running) / (sum(running) or 1.0),
        load=load,
        measured=measured,
    )


def _moments(found: Sequence["_Request"], begin_s: float, seconds: float) -> tuple[list[float], list[float]]:
    """Return the numbers of running and of waiting requests at times between the first and the last arrival."""
    running, waiting = [], []
    for moment in range(1, MOMENTS):
        at_s = begin_s + seconds * moment / MOMENTS
        there = [one for one in found if one.begin_s <= at_s < one.begin_s + one.e2e_s]
        queued = sum(1 for one in there if at_s < one.begin_s + one.queue_s)
        running.append(float(len(there) - queued))
        waiting.append(float(queued))
    return running, waiting


def _engine(documents: Sequence[Any]) -> str:
    """Return the engine: SGLang if the service name contains it (its default), else vLLM."""
    resources = [one for document in documents for one in document.get("resourceSpans") or ()]
    attributes = [one for resource in resources for one in (resource.get("resource") or {}).get("attributes") or ()]
    names = [str(one["value"]).lower() for one in attributes if one["key"] == "service.name"]
    return "SGLang" if any("sglang" in name for name in names) else "vLLM"


def _spans(documents: Sequence[Any]) -> Iterator[dict[str, Any]]:
    for document in documents:
        for resource in document.get("resourceSpans") or ():
            for scope in resource.get("scopeSpans") or ():
                yield from scope.get("spans") or ()


@dataclass(frozen=True, slots=True)
class _Request:
    prompt: float
    output: float
    cached: float
    ttft_s: float | None
    queue_s: float
    begin_s: float
    e2e_s: float
    model: str


def _request(span: dict[str, Any], unknown: dict[str, str]) -> _Request | None:
    """Return the values of a request; None for other spans, whose unknown token keys are added to *unknown*."""
    attributes = {one["key"]: next(iter(one["value"].values()), None) for one in span.get("attributes") or ()}
    prompt, output = _number(attributes, PROMPT_TOKENS), _number(attributes, OUTPUT_TOKENS)
    if not prompt or not output:
        unknown |= unknown_token_keys(attributes)
        return None
    begin, end = (_time_s(span, name) for name in ("startTimeUnixNano", "endTimeUnixNano"))
    return _Request(
        prompt=prompt,
        output=output,
        cached=_number(attributes, CACHED_TOKENS) or 0.0,
        ttft_s=_number(attributes, TTFT),
        queue_s=_number(attributes, QUEUE) or 0.0,
        begin_s=begin,
        e2e_s=_number(attributes, E2E) or end - begin,
        model=next((str(attributes[name]) for name in MODEL if attributes.get(name)), ""),
    )


def _time_s(span: dict[str, Any], name: str) -> float:
    """Return a time of *span* [s]. Raises KeyError, ValueError."""
    value = number(span[name])
    if value is None:
        raise ValueError(Message("{name} must be a number, not {span!r}", name, span[name]))
    return value / NS_PER_S


def _number(attributes: dict[str, Any], names: Sequence[str]) -> float | None:
    """Return the number of the first of *names*; None if all are absent. Raises ValueError if it is not a number."""
    value_text = first_of(attributes, names)
    value = number(value_text)
    if value is None and value_text is not None:
        raise ValueError(Message("{name} must be a number, not {value!r}", names[0], value_text))
    return value


def _refuse(path: Path, text: str) -> NoReturn:
    raise BenchdataError([(str(path), 0, text)])
