"""Shares of services in the pools that they share, by the busy time of their requests."""

from collections.abc import Container, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isnan

from sim.cost.ledger import LedgerRow
from sim.records import FleetLog, Interval, Meters, ReplicaVisit, Request
from sim.scenario.resolving.resolved import CasePlan, PoolPlan

PHASES = ("prefill", "recompute", "decode")
TOKENS = ("prompt_tokens", "cached_tokens", "output_tokens", "recomputed_tokens", "preemptions")
NANO = 1e9


@dataclass(frozen=True, slots=True)
class ServiceWeights:
    """Weights by which services share one pool, in the order of `names`."""

    names: tuple[str, ...]
    phases: dict[str, list[int]]
    """Phase -> busy time of each service's requests in the window [ns]."""
    busy: list[int]
    """Busy time of each service's requests in all phases [ns], which also divides idle time; equal if all are zero."""
    tokens: dict[str, list[float]]
    """Kind of tokens -> tokens of each service's requests in the window."""
    blocks: tuple[float, ...]
    """Number of KV blocks of each service's model over that of the pool's own settings."""

    @classmethod
    def of(cls, plan: CasePlan, log: FleetLog, pool: PoolPlan) -> "ServiceWeights":
        """Compute the weights of *pool* from the requests of *log* that went there."""
        names = [plan.pools[position].name for position in log.pool_of_replica]
        own = [
            [
                hop.busy
                for request in log.requests
                if request.service == name
                for hop in _visits_to(request, names, pool)
            ]
            for name in pool.services
        ]
        phases = {
            phase: [round(NANO * sum(getattr(busy, f"{phase}_s") for busy in each)) for each in own] for phase in PHASES
        }
        busy = [sum(each) for each in zip(*phases.values(), strict=True)]
        window_s = plan.window_s(log.end_s)
        tokens: dict[str, list[float]] = {name: [] for name in TOKENS}
        replicas = {place for place, name in enumerate(names) if name == pool.name}
        for name in pool.services:
            here = [one for one in log.requests if one.service == name and any(_visits_to(one, names, pool))]
            for kind, count in _tokens(here, replicas, *window_s).items():
                tokens[kind].append(count)
        tokens["recomputed_tokens"] = [float(each) for each in phases["recompute"]]
        blocks = [max(1, (pool.serving(name).batching.num_gpu_blocks or 1) - 1) for name in (*pool.services, "")]
        sizes = tuple(one / blocks[-1] for one in blocks[:-1])
        return cls(pool.services, phases, busy if any(busy) else [1] * len(busy), tokens, sizes)

    def whole(self, service: str) -> Fraction:
        """Return the share of the pool that *service* has."""
        return Fraction(self.busy[self.names.index(service)], sum(self.busy))

    def phase(self, name: str, service: str) -> Fraction:
        """Return the share of *service* in phase *name*; its share of busy time where the phase is empty."""
        weights = self.phases.get(name, [])
        if not any(weights):
            return self.whole(service)
        return Fraction(weights[self.names.index(service)], sum(weights))

    def count(self, total: int, weights: Sequence[float], service: str) -> int:
        """Return the share of *service* in *total*, in whole numbers that sum to *total* over all services."""
        scaled = [round(weight * NANO) for weight in weights]
        return self._divide(total, scaled if any(scaled) else self.busy, service)

    def meters(self, whole: Meters, service: str) -> Meters:
        """Return the share of *service* in a replica's totals; batches and peaks are those of all services together."""
        part = copy(whole)
        share = float(self.whole(service))
        for name in (
            "busy_s",
            "load_s",
            "sequence_s",
            "mixed_s",
            "mixed_sequence_s",
            "mixed_decode_s",
            "seats_blocked_s",
            "kv_blocked_s",
            "budget_blocked_s",
            "adapters_blocked_s",
        ):
            setattr(part, name, share * getattr(whole, name))
        for phase in ("prefill", "recompute"):
            for name in (f"{phase}_s", f"{phase}_load_s"):
                setattr(part, name, float(self.phase(phase, service)) * getattr(whole, name))
        for name in TOKENS:
            setattr(part, name, self.count(getattr(whole, name), self.tokens[name], service))
        part.kv_peak_blocks = round(self.blocks[self.names.index(service)] * whole.kv_peak_blocks)
        return part

    def interval(self, whole: Interval, service: str) -> Interval:
        """Return the share of *service* in one interval: each phase by its time in it, idle time by its busy time."""
        share = float(self.whole(service))
        prefill, recompute, decode = (float(self.phase(phase, service)) for phase in PHASES)
        decode_s = whole.busy_s - whole.prefill_s - whole.recompute_s
        decode_j = whole.server_energy_j - whole.prefill_energy_j - whole.recompute_energy_j - whole.idle_energy_j
        part = replace(
            whole,
            service=service,
            gpu_s=share * whole.gpu_s,
            prefill_s=prefill * whole.prefill_s,
            recompute_s=recompute * whole.recompute_s,
            prefill_energy_j=prefill * whole.prefill_energy_j,
            recompute_energy_j=recompute * whole.recompute_energy_j,
            idle_energy_j=share * whole.idle_energy_j,
            peak_w=share * whole.peak_w,
        )
        part.busy_s = part.prefill_s + part.recompute_s + decode * decode_s
        part.server_energy_j = part.prefill_energy_j + part.recompute_energy_j + part.idle_energy_j + decode * decode_j
        spent = part.server_energy_j / whole.server_energy_j if whole.server_energy_j else share
        part.gpu_energy_j = spent * whole.gpu_energy_j
        for name in TOKENS[:-1]:
            setattr(part, name, self.count(getattr(whole, name), self.tokens[name], service))
        return part

    def row(self, whole: LedgerRow, service: str) -> LedgerRow:
        """Return the share of *service* in one row of the pool's ledger; all services' amounts sum to the row's."""
        weights = self.phases.get(whole.phase, [])
        weights = weights if any(weights) else self.busy
        share = float(self.phase(whole.phase, service))
        return replace(
            whole,
            quantity=share * whole.quantity,
            amount_nano_usd=self._divide(whole.amount_nano_usd, weights, service),
            amount_in_currency=share * whole.amount_in_currency,
        )

    def _divide(self, total: int, weights: Sequence[int], service: str) -> int:
        """Return the share of *service* in *total* by *weights*, as whole numbers that sum to *total*."""
        place, whole = self.names.index(service), sum(weights)
        before = sum(weights[:place])
        first, last = ((2 * total * end + whole) // (2 * whole) for end in (before, before + weights[place]))
        return last - first


def service_weights(plan: CasePlan, log: FleetLog) -> dict[str, ServiceWeights]:
    """Return the weights by which services share pools.

    Parameters
    ----------
    plan
        Plan of the case.
    log
        Log of the whole fleet.

    Returns
    -------
    dict of str to ServiceWeights
        Name of a shared pool -> weights of its services.

    Notes
    -----
    A service's share of a phase is its requests' busy time in this phase over that of all services of the pool.

    """
    return {pool.name: ServiceWeights.of(plan, log, pool) for pool in plan.shared_pools}


def _visits_to(request: Request, pools: Sequence[str], pool: PoolPlan) -> list[ReplicaVisit]:
    return [hop for hop in request.hops if pools[hop.replica] == pool.name]


def _tokens(requests: Iterable[Request], here: Container[int], start_s: float, end_s: float) -> dict[str, float]:
    """Return the tokens of *requests* on the replicas *here* in the window [start, end).

    Tokens of requests that straddle an edge count in proportion to time. Where one replica computes the prompt and
    another answers, the first token counts at the former.
    """
    found = dict.fromkeys(TOKENS, 0.0)
    for one in requests:
        moved = one.prefill_replica >= 0
        if not moved or one.prefill_replica in here:
            prompt = _part_inside(one.started_s, one.first_token_s, start_s, end_s)
            found["prompt_tokens"] += prompt * (one.prompt_tokens - one.cached_tokens)
            found["cached_tokens"] += prompt * one.cached_tokens
        if moved and one.prefill_replica in here:
            found["output_tokens"] += _part_inside(one.first_token_s, one.first_token_s, start_s, end_s)
        if not moved or one.replica in here:
            answer = _part_inside(one.first_token_s, one.finished_s, start_s, end_s)
            found["output_tokens"] += (one.output_tokens - moved) * answer
            found["preemptions"] += one.preemptions
    return found


def _part_inside(from_s: float, to_s: float, start_s: float, end_s: float) -> float:
    """Return the fraction of [from, to] inside [start, end); 1 or 0 by its begin where it has not ended."""
    if isnan(from_s) or isnan(to_s) or to_s <= from_s:
        return 1.0 if start_s <= from_s < end_s else 0.0
    return max(0.0, min(to_s, end_s) - max(from_s, start_s)) / (to_s - from_s)
