"""Checks of a scenario against its `limits`: the size of a run is estimated without building it."""

from collections.abc import Iterator, Sequence
from math import ceil, inf, prod
from typing import Any

import numpy as np
from pydantic import ValidationError

from sim.catalogue.catalog import Catalog
from sim.message import Message
from sim.records import Batch
from sim.scenario.resolving.resolve import resolve_fleet
from sim.scenario.resolving.resolved import PoolPlan
from sim.scenario.schema import SECTIONS, Pool, Scenario
from sim.scenario.sections.precision import ScenarioLimits
from sim.units import SECONDS_PER_HOUR
from sim.validation import Place, ValidationIssue
from sim.workload import ClosedLoop, Workload

USUAL_INTERVAL_S = 300.0
LEAST_S = 60.0
"""Shortest duration of a case that only the fleet ends [s]."""
QUANTILES = (np.arange(20) + 0.5) / 20
"""Probabilities at which lengths are evaluated to estimate their means."""


def volume_issues(data: dict[str, Any]) -> Iterator[ValidationIssue]:
    """Yield an issue for more sweep points or cases than the limits of raw scenario *data* allow."""
    limits = _limits(data)
    points, fleets = _points(data.get("sweep")), data.get("fleets")
    if points > limits.points:
        yield _limit_issue(("sweep",), Message("{count} sweep points", _count(points)), "points", limits)
        return
    replications: dict[Place, Any] = {("replications",): data.get("replications")}
    if isinstance(precision := data.get("precision"), dict):
        replications["precision", "max_replications"] = precision.get("max_replications")
    place, most = max(((place, _number(value)) for place, value in replications.items()), key=lambda one: one[1])
    number = len(fleets) if isinstance(fleets, list) else 1
    cases = number * points * most
    if cases > limits.cases:
        text = Message(
            "{fleets} fleets x {points} sweep points x {replications} replications are {cases} cases",
            number,
            _count(points),
            _count(most),
            _count(cases),
        )
        yield _limit_issue(place if most > points else ("sweep",), text, "cases", limits)


def _limits(data: dict[str, Any]) -> ScenarioLimits:
    """Return the limits of raw *data*; the defaults if they are invalid, which the schema reports."""
    try:
        return ScenarioLimits.model_validate(data.get("limits") or {})
    except ValidationError:
        return ScenarioLimits()


def _points(sweep: Any) -> int:
    if isinstance(sweep, dict):
        return prod(len(values) for values in sweep.values() if isinstance(values, list))
    return len(sweep) if isinstance(sweep, list) else 1


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) and 1 <= value < inf else 1


def _count(number: float) -> str:
    """Return *number* with all digits, or in scientific notation from 10^12 on."""
    return f"{number:,.0f}" if number < 1e12 else f"{number:.2g}"


def _rounded(number: float) -> str:
    """Return *number* with two significant digits: 240, 100,000,000,000 or 1e+15."""
    return _count(float(f"{number:.2g}"))


def _limit_issue(place: Place, text: str, limit: str, limits: ScenarioLimits) -> ValidationIssue:
    return ValidationIssue(
        place, Message("{text}; at most {most:,} (limits.{limit} raises it)", text, getattr(limits, limit), limit)
    )


def load_issues(scenario: Scenario) -> Iterator[ValidationIssue]:
    """Yield an issue for more requests, replicas, rows of usage or months than one case may have."""
    yield from _request_issues(scenario)
    yield from _replica_issues(scenario)
    yield from _usage_row_issues(scenario)
    yield from _outage_issues(scenario)
    yield from _reading_issues(scenario)
    yield from _month_issues(scenario)


def _request_issues(scenario: Scenario) -> Iterator[ValidationIssue]:
    """Yield issues of too many requests that arrive regardless of the fleet, and of too many closed-loop clients."""
    if scenario.services:
        for i, service in enumerate(scenario.services):
            for one in _request_issues_of(service.workload, scenario):
                yield ValidationIssue(("services", i, *one.place), one.message)
        return
    yield from _request_issues_of(scenario.workload, scenario)


def _request_issues_of(workload: Workload, scenario: Scenario) -> Iterator[ValidationIssue]:
    most = scenario.limits.requests
    if workload.arrivals is None:
        return
    clients, limit = workload.closed_loop(), workload.arrivals.num_requests
    if clients is not None and clients.concurrency > most:
        yield _limit_issue(
            ("workload", "arrivals"),
            Message("{count} clients", _count(clients.concurrency)),
            "requests",
            scenario.limits,
        )
        return
    rate_rps, horizon_s = workload.mean_rate_rps(), scenario.horizon_s
    ends = [] if rate_rps is None or horizon_s is None else [rate_rps * horizon_s]
    expected = min([*ends, *([] if limit is None else [limit])], default=0)
    if expected > most:
        yield _limit_issue(
            ("workload", "arrivals"),
            Message("about {count} requests in one case", _rounded(expected)),
            "requests",
            scenario.limits,
        )


def _replica_issues(scenario: Scenario) -> Iterator[ValidationIssue]:
    for i, fleet in enumerate(scenario.fleets):
        counts = [_most_replicas(pool) * pool.data_parallel_size for pool in fleet.pools]
        if sum(counts) > scenario.limits.replicas:
            largest = counts.index(max(counts))
            text = Message("{count} replicas (with their data-parallel ranks) in one fleet", _count(sum(counts)))
            yield _limit_issue(("fleets", i, "pools", largest), text, "replicas", scenario.limits)


def _most_replicas(pool: Pool) -> int:
    return max(pool.most_replicas, pool.schedule.most if pool.schedule else 0)


def _usage_row_issues(scenario: Scenario) -> Iterator[ValidationIssue]:
    """Yield an issue for too many rows of usage.csv: at least one per replica and meter interval."""
    span_s = _span_s(scenario)
    for fleet in scenario.fleets:
        replicas = sum(_most_replicas(pool) for pool in fleet.pools)
        rows = replicas * (span_s / scenario.meter_interval_s)
        if replicas <= scenario.limits.replicas and rows > scenario.limits.usage_rows:
            text = Message(
                "about {rows} rows of usage in one case ({count} replicas, {span_s:g} s)",
                _rounded(rows),
                _count(replicas),
                span_s,
            )
            place = "horizon_s" if scenario.meter_interval_s >= USUAL_INTERVAL_S else "meter_interval_s"
            yield _limit_issue((place,), text, "usage_rows", scenario.limits)
            return


def _outage_issues(scenario: Scenario) -> Iterator[ValidationIssue]:
    """Yield an issue for too many rows of usage.csv from failures and interruptions: two per outage of a replica."""
    span_s = _span_s(scenario)
    for i, fleet in enumerate(scenario.fleets):
        for j, pool in enumerate(fleet.pools):
            per_s = {
                ("failures", kind): 1 / (SECONDS_PER_HOUR * (one.mtbf_h + one.repair_h))
                for kind, one in (pool.failures.components.items() if pool.failures else ())
                if one.mtbf_h is not None
            }
            if pool.spot is not None:
                per_s["spot", "interruptions_per_h"] = 1 / pool.spot.interval_s
            for place, rate_per_s in per_s.items():
                rows = 2 * _most_replicas(pool) * span_s * rate_per_s
                if rows > scenario.limits.usage_rows:
                    text = Message(
                        "about {rows} rows of usage in one case, two for each outage of a replica", _rounded(rows)
                    )
                    yield _limit_issue(("fleets", i, "pools", j, *place), text, "usage_rows", scenario.limits)


def _reading_issues(scenario: Scenario) -> Iterator[ValidationIssue]:
    """Yield an issue for too many scrapes and decisions of autoscalers over the simulated time."""
    span_s = _span_s(scenario)
    for i, fleet in enumerate(scenario.fleets):
        for j, pool in enumerate(fleet.pools):
            scaler = pool.autoscaling
            if scaler is None:
                continue
            readings = span_s * (scaler.max_replicas / scaler.scrape_interval_s + 1 / scaler.period_s)
            if readings > scenario.limits.readings:
                text = Message("about {count} readings and decisions of the autoscaler in one case", _rounded(readings))
                yield _limit_issue(("fleets", i, "pools", j, "autoscaling"), text, "readings", scenario.limits)


def _span_s(scenario: Scenario) -> float:
    """Return the simulated time of arrivals [s]; LEAST_S where it depends on the fleet."""
    if scenario.horizon_s is not None:
        return scenario.horizon_s
    if scenario.workload.trace is not None:
        return float(scenario.workload.trace.requests(None).arrived_s[-1])
    rate_rps, arrivals = scenario.workload.mean_rate_rps(), scenario.workload.arrivals
    return arrivals.num_requests / rate_rps if arrivals and arrivals.num_requests and rate_rps else LEAST_S


def _month_issues(scenario: Scenario) -> Iterator[ValidationIssue]:
    for name, section in SECTIONS.items():
        if section.months is None or (keys := getattr(scenario, name)) is None:
            continue
        key, months_of = section.months
        if (months := months_of(keys)) > scenario.limits.months:
            yield _limit_issue((name, key), Message("{count} months", _count(months)), "months", scenario.limits)


def transfer_issues(scenario: Scenario, catalog: Catalog) -> Iterator[ValidationIssue]:
    """Yield an issue for more rows of usage than allowed, where a case ends only with its last KV transfer."""
    if scenario.horizon_s is not None or scenario.client is not None:
        return  # the horizon, or clients that give up, end the readings
    for i, fleet in enumerate(scenario.fleets):
        if fleet.kv_transfer is None:
            continue
        try:
            built = resolve_fleet(scenario, fleet, catalog)
        except (ValueError, ArithmeticError):
            continue  # other checks report it
        transfer, pools = built.kv_transfer, built.pools
        if built.infeasible or transfer is None or any(pool.role == "both" for pool in pools):
            continue
        senders = [p for p, pool in enumerate(pools) if transfer.sends[p] for _ in range(pool.replicas)]
        least_bytes = min(pools[p].sequence_cache.token_bytes for p in senders)
        transfer_s = least_bytes * _moved_tokens(scenario, transfer.min_prompt_tokens) / sum(transfer.rates(senders))
        replicas = sum(pool.replicas * pool.data_parallel_size for pool in pools)
        rows = replicas * (transfer_s / scenario.meter_interval_s)
        if rows > scenario.limits.usage_rows:
            text = Message(
                "about {rows} rows of usage in one case until the last KV is transferred, after {transfer_s:.2g} s",
                _rounded(rows),
                transfer_s,
            )
            yield _limit_issue(("fleets", i, "kv_transfer"), text, "usage_rows", scenario.limits)


def _moved_tokens(scenario: Scenario, least: int) -> float:
    """Return the prompt tokens whose KV is transferred.

    These are prompts of at least *least* tokens, with an answer of more than one token.
    """
    if scenario.workload.trace is not None:
        rows = scenario.workload.trace.requests(None)
        return float(rows.prompt_tokens[(rows.prompt_tokens >= least) & (rows.output_tokens > 1)].sum())
    lengths, arrivals = scenario.workload.lengths, scenario.workload.arrivals
    if lengths is None or arrivals is None or not arrivals.num_requests:
        return 0.0
    prompts, answers = (np.asarray(side.quantile(QUANTILES)) for side in (lengths.prompt, lengths.output))
    return float(arrivals.num_requests * np.where(prompts >= least, prompts, 0).mean() * (answers > 1).mean())


def closed_loop_issues(scenario: Scenario, catalog: Catalog) -> Iterator[ValidationIssue]:
    """Yield an issue for more requests than allowed, in a closed loop that only the horizon ends."""
    clients = scenario.workload.closed_loop()
    if clients is None or clients.num_requests is not None or scenario.horizon_s is None:
        return
    for fleet in scenario.fleets:
        try:
            built = resolve_fleet(scenario, fleet, catalog)
        except (ValueError, ArithmeticError):
            continue  # other checks report it
        requests = 0.0 if built.infeasible else _answered(scenario, clients, built.pools, scenario.horizon_s)
        if requests > scenario.limits.requests:
            text = Message("about {count} requests in one case", _rounded(requests))
            yield _limit_issue(("workload", "arrivals"), text, "requests", scenario.limits)
            return


def _answered(scenario: Scenario, clients: ClosedLoop, pools: Sequence[PoolPlan], horizon_s: float) -> float:
    """Return the requests of a closed loop by the interactive response-time law.

    The estimate uses mean lengths, and all clients at work at once, in a batch for each pipeline stage.
    """
    lengths = scenario.workload.lengths
    prompt, output = 0.0, 1.0  # a unit of work
    if lengths is not None:
        prompt, output = (float(np.mean(side.quantile(QUANTILES))) for side in (lengths.prompt, lengths.output))
    sessions = scenario.workload.sessions
    pause_s = clients.think_s if sessions is None else float(np.mean(sessions.think_s.quantile(QUANTILES)))
    replicas = sum(pool.replicas * pool.data_parallel_size for pool in pools)
    per_replica = ceil(clients.concurrency / replicas)
    requests = 0.0
    for pool in pools:
        share = min(clients.concurrency, pool.replicas * pool.data_parallel_size)
        stages = pool.pipeline_parallel_size
        least_s = min(
            (pause_s + stages * _answer_s(pool, ceil(at_once / stages), prompt, output)) / at_once
            for at_once in {1, min(per_replica, pool.batching.max_num_seqs or 1)}
        )
        requests += share * horizon_s / least_s
    return requests


def _answer_s(pool: PoolPlan, at_once: int, prompt: float, output: float) -> float:
    """Return the time to serve *at_once* requests of mean length together: full prompt steps, then decode steps [s]."""
    if not prompt:
        return pool.steptime.leap(Batch(decode_seqs=at_once, sampled_seqs=at_once)).first_s
    prompts = ceil(at_once * prompt)
    tokens = min(prompts, pool.batching.max_num_batched_tokens or prompts)
    full = Batch(
        prefill_seqs=ceil(tokens / prompt),
        prefill_tokens=tokens,
        prefill_attention_pairs=ceil(tokens * (min(prompt, tokens) + 1) / 2),
    )
    context = at_once * ceil(prompt + output / 2)
    decode = Batch(
        decode_seqs=at_once,
        kv_tokens=context,
        windowed_kv_tokens=context,
        windowed_growing_seqs=at_once,
        sampled_seqs=at_once,
    )
    steptime = pool.steptime
    return prompts / tokens * steptime.leap(full).first_s + output * steptime.leap(decode).first_s
