"""Bottleneck of a fleet: KV ports, API servers, a scheduler limit that queues requests, or part of the step time."""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import fsum

import numpy as np

from sim.case.result import CaseResult, results_by_service
from sim.fleet.request_columns import RequestColumns, column
from sim.records import Batch, Interval, Meters
from sim.scenario.resolving.resolved import CasePlan
from sim.study.metrics.metric import MeasuredRun
from sim.study.metrics.window_requests import WindowRequests

SHORTAGE_SHARE = 0.05
"""Least share of the busy time in which a shortage must keep requests waiting to count as the bottleneck."""
LIGHT_LOAD = 0.5
"""Busy fraction of the window below which replicas are limited by the load alone."""
SHAREABLE = 0.2
"""Least share of a step spent on weights and overheads for a shortage to count as the bottleneck.

Weights are read and overheads paid once a step, whatever the batch size. Below this share a larger batch would gain
nothing.
"""
CROWDED = 0.7
"""Port utilisation from which KV ports or API servers count as the bottleneck.

At this utilisation a transfer takes more than three times as long as one alone: 1 / (1 - utilisation) for transfers of
equal size that arrive at random.
"""
LABELS = {
    "seats_blocked_s": "seats",
    "kv_blocked_s": "kv",
    "budget_blocked_s": "token budget",
    "adapters_blocked_s": "adapter slots",
}


def limited_by(run: MeasuredRun) -> str:
    """Return the label of what limits the fleet's throughput.

    The first of these that applies: KV ports at CROWDED or above, API servers at CROWDED or above, the largest shortage
    (sequences, KV, token budget, adapter slots), `load` where replicas are mostly idle, the largest component of a
    step.
    """
    totals = run.meters
    busy_s = sum(meters.busy_s for meters in totals)
    if busy_s == 0:
        return "load"
    if kv_port_busy_fraction(run.result) >= CROWDED:
        return "kv transfer"
    if _intake_utilisation(run) >= CROWDED:
        return "api server"
    waited = {label: sum(getattr(m, name) for m in totals) / busy_s for name, label in LABELS.items()}
    worst = max(waited, key=lambda label: waited[label])
    shares = run.once(step_share)
    shareable = sum(shares.get(cause, 0.0) for cause in ("memory", "overhead", "host"))
    short = waited[worst] >= SHORTAGE_SHARE
    if short and shareable >= SHAREABLE:
        return worst
    if not short and busy_s < LIGHT_LOAD * len(totals) * (run.end_s - run.start_s):
        return "load"
    return max(shares, key=lambda cause: shares[cause]) if shares else "load"


def _intake_utilisation(run: MeasuredRun) -> float:
    """Return the utilisation of the API servers by request intake, of the busiest pool [1].

    For one service in shared pools: the intake of its own requests only.
    """
    start_s, end_s = run.start_s, run.end_s
    pools, log = run.plan.pools, run.log
    each_s = [pool.intake_s or pool.turn_s for pool in pools]
    if end_s <= start_s or not any(each_s):
        return 0.0
    pool_of = log.pool_by_number
    replicas, read = Counter(log.pool_of_replica), Counter[int]()
    came = "arrived_s" if isinstance(log.requests, RequestColumns) else "came_s"
    came_s = column(log.requests, came, float)
    inside = run.replicas[(came_s >= start_s) & (came_s < end_s)]
    for replica, count in enumerate(np.bincount(inside[inside >= 0]).tolist()):
        if count:
            read[pool_of[replica]] += count
    for options in run.options:
        read.update(pool_of[visit.replica] for visit in options.left if start_s <= visit.came_s < end_s)
    # decode pools receive KV, not requests through the API server
    prompt_pools = [place for place, pool in enumerate(pools) if pool.role != "decode"]
    return max(each_s[place] * read[place] / replicas[place] for place in prompt_pools) / (end_s - start_s)


def kv_port_busy_fraction(result: CaseResult) -> float:
    """Return the KV bytes transferred in the window over the capacity of the narrowest part of the path [1].

    The parts are the ports of the senders, the ports of the receivers and the network between them. For several
    services: the highest utilisation.
    """
    if result.plan.services and result.plan.kv_transfer is not None:
        return max(map(kv_port_busy_fraction, results_by_service(result).values()))
    plan, pools, moving = result.plan, result.log.pool_of_replica, result.plan.kv_transfer
    start_s, end_s = result.window_s
    if moving is None or end_s <= start_s:
        return 0.0
    ports = dict(zip(moving.ports(pools), pools, strict=True))
    rates = moving.rates(pools)
    sending = sum(rates[port] for port, pool in ports.items() if moving.sends[pool])
    receiving = sum(rates[port] for port, pool in ports.items() if plan.pools[pool].role != "prefill")
    return sum(result.log.kv_sent_bytes.values()) / (min(sending, receiving, moving.between(pools)) * (end_s - start_s))


def step_share(run: MeasuredRun) -> dict[str, float]:
    """Return the share of each cause (memory, compute, overhead, ...) in the mean step; the shares add up to 1.

    The mean step with prompts and the mean step without are averaged over all replicas, weighted by their busy time.
    """
    context = _mean_context(run.cohort)
    seconds: dict[str, float] = {}
    for index, meters in enumerate(run.meters):
        if not meters.steps:
            continue
        pool = run.plan.pools[run.log.pool_of_replica[index]]
        for batch, busy_s in mean_batches(meters, context, pool.steptime.window):
            parts = pool.steptime.breakdown(batch)
            whole = sum(parts.values())
            for cause, part in parts.items():
                seconds[cause] = seconds.get(cause, 0.0) + part / whole * busy_s
    total = sum(seconds.values())
    return {cause: part / total for cause, part in seconds.items()} if total else {}


def mean_batches(meters: Meters, context: float, window: int | None) -> Iterator[tuple[Batch, float]]:
    """Yield (mean batch, busy time [s]) for a replica's steps with prompts and for its steps without.

    The two are kept apart because the host launches some kernels one by one only in steps with prompts.
    """
    if meters.mixed_s > 0:
        chunk = (meters.prompt_tokens + meters.recomputed_tokens) / max(1, meters.mixed_steps)
        decodes = round(meters.mixed_decode_s / meters.mixed_s)
        yield _mean_batch(decodes, max(1, round(chunk)), context, window), meters.mixed_s
    if (plain_s := meters.busy_s - meters.mixed_s) > 0:
        decodes = round((meters.sequence_s - meters.mixed_sequence_s) / plain_s)
        yield _mean_batch(max(1, decodes), 0, context, window), plain_s


def _mean_batch(decodes: int, chunk: int, context: float, window: int | None) -> Batch:
    """Return the batch of *decodes* sequences at *context* tokens each and a prompt chunk of *chunk* tokens."""
    return Batch(
        decode_seqs=decodes,
        kv_tokens=round(decodes * context),
        windowed_kv_tokens=round(decodes * min(context, window or context)),
        windowed_growing_seqs=0 if window and context >= window else decodes,
        prefill_seqs=1 if chunk else 0,
        prefill_tokens=chunk,
        prefill_attention_pairs=chunk * (chunk + 1) // 2,
        sampled_seqs=max(1, decodes),
    )


def availability(plan: CasePlan, intervals: Sequence[Interval]) -> float | None:
    """Return the share of time in which replicas are neither failed nor under repair; None where none can fail."""
    fail = {pool.name for pool in plan.pools if pool.failures is not None}
    length_s = fsum(one.end_s - one.start_s for one in intervals if one.pool in fail)
    out_s = fsum(one.end_s - one.start_s for one in intervals if one.state in ("failed", "repairing"))
    return 1 - out_s / length_s if length_s else None


def _mean_context(cohort: WindowRequests) -> float:
    """Return the mean context of a decode step [tokens]: prompt plus half of the output, weighted by output length."""
    prompts, outputs = cohort.prompt_tokens, cohort.output_tokens
    if not outputs.size:
        return 0.0
    # a single array of floats, which may be most of the memory; half of narrow numbers would be of 32 bits
    weighted = np.divide(outputs, 2, dtype=np.float64)
    weighted += prompts
    weighted *= outputs
    return float(weighted.sum()) / int(outputs.sum(dtype=np.int64))
