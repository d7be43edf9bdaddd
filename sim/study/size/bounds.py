"""Bounds of candidates without a simulation: the highest throughput of a replica and the lowest cost of a fleet.

They decide which fleets of a search may meet the service level, with how many replicas at least, and which exceed a
budget of money or power.

A request served alone has the shortest possible prompt time and steps, so the share of requests that meet the service
level when served alone is an upper bound of the share that meets it under load.

A replica's steps form a linear program. A step with D decodes and P prompt tokens takes at least t(D, P), without
attention. A mix of steps must produce o output tokens and p prompt tokens per request and hold the request's KV cache
meanwhile (S token-steps, at most K tokens in each step), so a request takes at least

    max  a o + b p + c S   over a, b, c >= 0 with   a D + b P + c K <= t(D, P) for every D, P

(the dual of the cheapest mix). The time added by attention grows with the contexts: in full where the GPU is the
bottleneck, less where the host's work hides it. Hence a second bound, for long contexts: the time of attention plus the
program in which t(D, P) is the remaining time of a step with attention. The steps are taken from a grid, and
`GRID_MARGIN` covers the steps between.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

import numpy as np
from numpy.typing import NDArray

from sim.batching.policies import MICRO_BATCH_TOKENS, Slots
from sim.catalogue.catalog import Catalog
from sim.cost.buying import Buy
from sim.cost.hardware import PoolFacts, group_hardware
from sim.cost.prices import CostError, Problem
from sim.cost.rental import RentedTime
from sim.engine.schedulers.pipeline import pass_through
from sim.message import Message, first_line, joined, placed
from sim.records import Batch
from sim.rng import stream
from sim.scenario.checks.pools import pool_issues
from sim.scenario.checks.routing import adapter_use_issues, role_issues
from sim.scenario.checks.services import sharing_issues
from sim.scenario.resolving.resolve import FleetPlan, pool_models, resolve_fleet
from sim.scenario.resolving.resolved import PoolPlan
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.sections.size import OWNED, Budget, Size
from sim.scenario.slo import Slo, SloGoal
from sim.study.availability import why_no_availability
from sim.study.load_axis import ONLY_RAISED, why_not_its_mean
from sim.study.size.search_space import OwnedReplicas, Unit
from sim.units import HOURS_PER_MONTH
from sim.workload import Workload

FLOATS = 1e-9
"""Relative rounding error of sums of floats."""
MOST_DIGITS = 12
"""Largest number of digits of a figure in a refusal."""


@dataclass(frozen=True, slots=True)
class FleetNeeds:
    """Money and power that one fleet needs."""

    capex_usd: float
    kw: float | None
    """Nameplate power of the purchased machines at the wall [kW]; None where one is unknown."""
    least_operating_usd_per_h: float
    """Least operating cost: monthly charges that do not depend on load, and electricity when idle [USD/h]."""
    capital_usd_per_h: float
    """Cost that recovers capital and end-of-life costs over the life [USD/h]."""

    @classmethod
    def of(cls, plan: FleetPlan, fleet: Fleet) -> "FleetNeeds":
        """Return the needs of *fleet* at the mean prices of the year.

        Raises
        ------
        CostError
            For a fleet without a `cost` section.

        """
        if plan.costs is None:
            raise CostError(Problem("cost", Message("{name} has no cost section", fleet.name)))
        costs, least_kw = plan.costs.averaged(), least_kw_by_pool(plan)
        least = [(one.paid.monthly, one.least_usd_per_h(least_kw.get(one.pool, 0.0))) for one in costs.charges]
        operating, capital = (sum(usd for monthly, usd in least if monthly is wanted) for wanted in (True, False))
        return cls(costs.capex_usd, _nameplate_kw(plan, fleet), operating, capital)


def least_kw_by_pool(plan: FleetPlan) -> dict[str, float]:
    """Return the idle power at the wall by pool [kW], without pools that are switched on and off."""
    return {
        pool.name: pool.replicas * pool.power.least_w / 1e3
        for pool in plan.pools
        if pool.power is not None and not pool.switched
    }


def _nameplate_kw(plan: FleetPlan, fleet: Fleet) -> float | None:
    """Return the nameplate power of the purchased machines [kW]; None where one is unknown.

    Pools under the same terms fill servers together, as on their bill.
    """
    bought: list[tuple[Buy, list[PoolFacts]]] = []
    for facts, cost in zip(plan.machines.pools, fleet.costs, strict=True):
        if isinstance(cost, Buy):
            members = next((members for known, members in bought if known == cost), None)
            if members is None:
                bought.append((cost, [facts]))
            else:
                members.append(facts)
    peaks = [hardware.peak_w for cost, members in bought for hardware in group_hardware(members, cost.share)]
    known = [peak_w for peak_w in peaks if peak_w is not None]
    return sum(known) / 1e3 if len(known) == len(peaks) else None


def over(
    budget: Budget | None, needs: FleetNeeds, usd_per_h: float | None = None, rounding_usd_per_h: float = 0.0
) -> str:
    """Return the limits of *budget* that a fleet exceeds, in words; empty if none.

    Parameters
    ----------
    budget
        Limits of capital, operating cost and power; None: no limit.
    needs
        Money and power of the fleet.
    usd_per_h
        Cost of the fleet [USD/h], where it was simulated.
    rounding_usd_per_h
        Largest deviation of that cost due to a bill rounded to nano-dollars [USD/h].

    """
    return joined("; ", _exceeded_limits(budget, needs, usd_per_h, rounding_usd_per_h)) if budget is not None else ""


def _exceeded_limits(
    budget: Budget, needs: FleetNeeds, usd_per_h: float | None, rounding_usd_per_h: float
) -> Iterator[str]:
    if budget.capex_usd is not None and _exceeds(needs.capex_usd, budget.capex_usd):
        asked, allowed = _distinct_texts(needs.capex_usd, budget.capex_usd, "{:,.{}f}", 0)
        yield Message("capital of ${needed} exceeds ${allowed}", asked, allowed)
    operating = operating_usd_per_month(needs, usd_per_h)
    rounding = rounding_usd_per_h * HOURS_PER_MONTH
    if budget.usd_per_month is not None and _exceeds(operating, budget.usd_per_month, rounding):
        asked, allowed = _distinct_texts(operating, budget.usd_per_month, "{:,.{}f}", 0)
        least = "at least " if usd_per_h is None else ""
        yield Message("operating cost of {least}${needed} a month exceeds ${allowed}", least, asked, allowed)
    if budget.kw is not None and needs.kw is None:
        yield "its power is not known"
    elif budget.kw is not None and needs.kw is not None and _exceeds(needs.kw, budget.kw):
        asked, allowed = _distinct_texts(needs.kw, budget.kw, "{:.{}g}", 3)
        yield Message("power of {needed} kW exceeds {allowed} kW", asked, allowed)


def _distinct_texts(value: float, limit: float, form: str, digits: int) -> tuple[str, str]:
    """Return the value, with *digits* digits or more to distinguish it from the limit, and the limit, as text."""
    enough = (n for n in range(digits, MOST_DIGITS) if form.format(value, n) != form.format(limit, n))
    return form.format(value, next(enough, MOST_DIGITS)), f"{limit:,.{MOST_DIGITS}g}"


def operating_usd_per_month(needs: FleetNeeds, usd_per_h: float | None) -> float:
    """Return the operating cost within *usd_per_h* [USD/month]; its lower bound where nothing was simulated."""
    per_h = needs.least_operating_usd_per_h if usd_per_h is None else usd_per_h - needs.capital_usd_per_h
    return per_h * HOURS_PER_MONTH


def ceilings(budget: Budget | None, kinds: Sequence[Sequence[FleetNeeds]]) -> list[tuple[list[list[float]], float]]:
    """Return, for each limit of *budget*, the needs of 1, 2, ... replicas of each of *kinds*, and the limit."""
    if budget is None:
        return []
    amounts: list[tuple[float | None, Callable[[FleetNeeds], float]]] = [
        (budget.capex_usd, lambda needs: needs.capex_usd),
        (budget.usd_per_month, lambda needs: operating_usd_per_month(needs, None)),
        (budget.kw, lambda needs: needs.kw or 0.0),
    ]
    return [([[of(one) for one in kind] for kind in kinds], limit) for limit, of in amounts if limit is not None]


def _exceeds(value: float, limit: float, rounding: float = 0.0) -> bool:
    return value > limit * (1 + FLOATS) + FLOATS + rounding


MEAN_MARGIN = 0.9
"""Factor on the mean load of a window: a sample of arrivals may have fewer requests."""
SAMPLED_REQUESTS = 4000
SAMPLING_MARGIN = 0.02
"""Margin by which the share of good requests in a sample may be below that of a simulation."""
GRID_MARGIN = 0.9
"""Factor on the least time per request: between two steps of the grid a step may be slightly cheaper per token."""
GRID_RATIO = 1.4
SIMPLEX_TOLERANCE = 1e-12
"""Cost that a further step of the simplex method must save, as a fraction of the highest cost of a column [1]."""
MOST_STEP_TOKENS = 16384
"""Tokens in a step beyond which the time per token hardly falls."""
FAR_TOKENS = 1_000_000_000
"""Context at which step time grows by attention alone: no host work takes longer."""


@dataclass(frozen=True, slots=True)
class OfferedLoad:
    """Load that the workload offers to a fleet."""

    rate_rps: float | None
    """Requests per second that must be answered to meet the service level; None where nothing bounds the number."""
    prompts: NDArray[np.float64]
    """Prompt tokens of the requests of a sample, or of the whole trace."""
    outputs: NDArray[np.float64]
    may_share: bool
    """True if prompts may share prefixes."""

    @classmethod
    def of(cls, scenario: Scenario) -> "OfferedLoad":
        """Return the load of the scenario's workload, or of all its services together."""
        if scenario.services:
            return cls.combined(list(cls.of_services(scenario).values()))
        return cls.of_workload(scenario.workload, scenario.slo, scenario.seed, scenario.horizon_s)

    @classmethod
    def of_services(cls, scenario: Scenario) -> dict[str, "OfferedLoad"]:
        """Return the load of each service by name."""
        terms = scenario.seed, scenario.horizon_s
        return {one.name: cls.of_workload(one.workload, one.slo, *terms) for one in scenario.services}

    @classmethod
    def of_workload(cls, workload: Workload, slo: Slo, seed: int, horizon_s: float | None) -> "OfferedLoad":
        """Return the load of *workload*, with the rate that must be answered to meet *slo*."""
        if workload.trace is not None:
            table = workload.trace.requests(horizon_s)
            prompts, outputs = table.prompt_tokens, table.output_tokens
            span_s = float(table.arrived_s[-1] - table.arrived_s[0]) if len(prompts) > 1 else 0.0
            may_share = table.block_hashes is not None
            rate = len(prompts) / span_s if span_s else None
        else:
            prompts, outputs = workload.lengths_table(partial(stream, seed, 0), 0, SAMPLED_REQUESTS)
            may_share = bool(workload.shared_prefix or workload.sent_before or workload.sessions)
            span_s = horizon_s or 0.0
            # with sessions, late answers delay the next requests
            at_rate = workload.stationary and workload.sessions is None
            rate = workload.mean_rate_rps() if at_rate and span_s else None
        asked = prompts.astype(float), outputs.astype(float)
        if rate is not None:
            rate *= max(_in_time(goal, asked[1], span_s) for goal in slo.goals)
        return cls(rate, *asked, may_share)

    @classmethod
    def combined(cls, parts: Sequence["OfferedLoad"]) -> "OfferedLoad":
        """Return the sum of *parts*, each with a share of the sample in proportion to its rate.

        Parts without a bounded rate are left out.
        """
        known = [(one, one.rate_rps) for one in parts if one.rate_rps]
        if len(parts) == 1 or not known:
            return parts[0]
        rate = sum(own for _, own in known)
        chosen = [
            (one, np.linspace(0, len(one.prompts) - 1, ceil(SAMPLED_REQUESTS * own / rate)).astype(int))
            for one, own in known
        ]
        prompts = np.concatenate([one.prompts[places] for one, places in chosen])
        outputs = np.concatenate([one.outputs[places] for one, places in chosen])
        return cls(rate, prompts, outputs, any(one.may_share for one, _ in known))

    def prompts_alone(self, at_least: int) -> "OfferedLoad":
        """Return the load of the prompts of at least *at_least* tokens, each with the first token of its output."""
        chosen = self.prompts >= at_least
        rate = None if self.rate_rps is None else self.rate_rps * float(chosen.mean())
        return OfferedLoad(rate, self.prompts[chosen], np.ones(int(chosen.sum())), self.may_share)

    def of_prompts(self, above: float, up_to: float) -> "OfferedLoad":
        """Return the part of the load with prompts of more than *above* and at most *up_to* tokens."""
        chosen = (self.prompts > above) & (self.prompts <= up_to)
        rate = None if self.rate_rps is None else self.rate_rps * float(chosen.mean())
        return OfferedLoad(rate, self.prompts[chosen], self.outputs[chosen], self.may_share)


def _in_time(goal: SloGoal, output_tokens: NDArray[np.float64], span_s: float) -> float:
    """Return the least share of the arrival rate in the span that must be answered during the span."""
    # requests of the span that are answered up to this time after it may still be in time
    late_s = _latest_s(goal.limits, float(np.quantile(output_tokens, 0.95)))
    counted = float((output_tokens > 1).mean()) if _skips_single_tokens(goal) else 1.0
    return goal.share * counted * span_s / (span_s + min(late_s, span_s))


def _latest_s(limits: Mapping[str, float], output_tokens: float) -> float:
    """Return the longest time from arrival to end of a good request [s]."""
    if "e2e_s" in limits:
        return limits["e2e_s"]
    if "ttft_s" in limits and "tpot_s" in limits:
        return limits["ttft_s"] + output_tokens * limits["tpot_s"]
    return float("inf")


def _skips_single_tokens(goal: SloGoal) -> bool:
    """Return whether *goal* ignores outputs of one token."""
    return goal.percentile is not None and goal.percentile.latency == "tpot_s"


class PoolBounds:
    """Bounds of one pool under one offered load."""

    def __init__(self, pool: PoolPlan, demand: OfferedLoad) -> None:
        self.pool = pool
        self._offer(demand)
        self._times_s: dict[str, NDArray[np.float64]] = {}
        """Times of the steps of the grid by program [s]; they do not depend on the load."""
        self._step_s = self._leap(decode_seqs=1, sampled_seqs=1)
        self._context_s = self._slope_s("kv_tokens", decode_seqs=1, sampled_seqs=1)
        self._earlier_s = self._slope_s("prefill_context_tokens", prefill_seqs=1, prefill_tokens=1)
        drafts = getattr(pool.batching, "speculative", None)
        self._pace = 1 + drafts.num_speculative_tokens if drafts is not None else 1
        """Most tokens that a step adds to an output; the cost of drafts is left out."""

    def _offer(self, demand: OfferedLoad) -> None:
        self.demand = demand
        self._served = demand.prompts + demand.outputs <= (self.pool.batching.max_model_len or float("inf"))
        self._shares = demand.may_share and bool(getattr(self.pool.batching, "enable_prefix_caching", False))

    def under(self, demand: OfferedLoad) -> "PoolBounds":
        """Return the bounds of the same pool under *demand*, with the step times known so far."""
        other = copy(self)
        other._offer(demand)
        return other

    def _leap(self, **batch: int) -> float:
        """Return the duration of one step [s]."""
        return self.pool.steptime.leap(Batch(**batch)).first_s

    def _slope_s(self, counted: str, **batch: int) -> float:
        """Return the marginal step time of one more token or pair *counted*, at very large numbers [s]."""
        far_s, farther_s = (self._leap(**batch, **{counted: times * FAR_TOKENS}) for times in (1, 2))
        return (farther_s - far_s) / FAR_TOKENS

    def _beside_attention_s(self, decodes: int, prompt_tokens: int) -> float:
        """Return the time of a step with long contexts without the time of attention [s]."""
        batch = {"decode_seqs": decodes, "sampled_seqs": decodes, "prefill_tokens": prompt_tokens}
        if prompt_tokens:
            far_s = self._leap(**batch, prefill_seqs=1, prefill_context_tokens=FAR_TOKENS)
            return far_s - self._earlier_s * FAR_TOKENS
        return self._leap(**batch, kv_tokens=FAR_TOKENS) - self._context_s * FAR_TOKENS

    def refusal(self, slo: Slo) -> str:
        """Return why no load, however small, meets *slo*; empty if a load may."""
        return next((reason for goal in slo.goals if (reason := self._refusal(goal))), "")

    def _refusal(self, goal: SloGoal) -> str:
        least = goal.share - SAMPLING_MARGIN
        served = self._served_of(goal)
        if served.mean() < least:
            longest = self.pool.batching.max_model_len
            return Message("{share:.0%} of the requests are longer than its {limit} tokens", 1 - served.mean(), longest)
        limits = self._alone_s(goal)
        shares = {name: float((served & (values <= limit)).mean()) for name, (values, limit) in limits.items()}
        name = min(shares, key=lambda key: shares[key], default="")
        if not name or shares[name] >= least:
            return ""
        values, limit = limits[name]
        median = float(np.median(values))
        return Message(
            "served alone, {share:.0%} of the requests take at most {limit} {latency}; the median takes {median}",
            shares[name],
            _seconds(limit),
            name,
            _seconds(median),
        )

    @property
    def served(self) -> bool:
        """True if at least one request fits into the context length."""
        return bool(self._served.any())

    def good_alone(self, goal: SloGoal) -> float:
        """Return the share of the requests that meet *goal* when each is served alone: an upper bound under load."""
        good = self._served_of(goal).copy()
        for values, limit in self._alone_s(goal).values():
            good &= values <= limit
        return float(good.mean())

    def _served_of(self, goal: SloGoal) -> NDArray[np.bool_]:
        """Return the mask of the requests that fit into the context length or that *goal* does not count."""
        return self._served | (self.demand.outputs <= 1) if _skips_single_tokens(goal) else self._served

    def _alone_s(self, goal: SloGoal) -> dict[str, tuple[NDArray[np.float64], float]]:
        """Return, by description, the least times of all requests and the limit [s], for every limit of *goal*."""
        prompts, outputs = self.demand.prompts, self.demand.outputs
        ttft_s = np.full(len(prompts), self._step_s) if self.pool.unit else self._ttft_s()
        step_s = np.maximum(self._step_s, self._beside_attention_s(1, 0) + self._context_s * prompts)
        tpot_s = self.pool.pipeline_parallel_size * step_s / self._pace
        found = {
            "ttft_s": ("to the first token", ttft_s),
            "tpot_s": ("per output token", np.where(outputs > 1, tpot_s, 0.0)),
            "e2e_s": ("in all", ttft_s + (outputs - 1) * tpot_s),
        }
        return {found[name][0]: (found[name][1], limit_s) for name, limit_s in goal.limits.items()}

    def _ttft_s(self) -> NDArray[np.float64]:
        """Return the least TTFT of each request [s]: that of the next shorter prompt of a sample, served alone."""
        overhead_s = self.pool.request_overhead_s + self.pool.tokenising_s * self.demand.prompts
        if self._shares:
            return np.asarray(overhead_s)
        known = np.unique(np.quantile(self.demand.prompts, np.linspace(0, 1, 25), method="lower"))
        alone_s = np.array([self._prompt_s(int(tokens)) for tokens in known])
        places = np.searchsorted(known, self.demand.prompts, side="right") - 1
        return np.asarray(overhead_s + alone_s[places])

    def _prompt_s(self, tokens: int) -> float:
        """Return the time of a prompt served alone, in chunks of the token budget [s].

        A pipeline stage computes a chunk while the next stage computes the one before it.
        """
        batching = self.pool.batching
        budget = batching.step_tokens or tokens
        piece_tokens = MICRO_BATCH_TOKENS if isinstance(batching, Slots) else budget
        free_s, end_s, done = [0.0] * self.pool.pipeline_parallel_size, 0.0, 0
        while done < tokens:
            chunk = min(budget, tokens - done)
            batch = Batch(
                prefill_seqs=1,
                prefill_tokens=chunk,
                prefill_context_tokens=done,
                prefill_attention_pairs=chunk * done + chunk * (chunk + 1) // 2,
                sampled_seqs=int(done + chunk == tokens),
            )
            end_s = pass_through(free_s, 0.0, self.pool.steptime.leap(batch), -(-chunk // piece_tokens))
            done += chunk
        return end_s

    def replica_rps(self) -> float:
        """Return the highest long-run rate of requests per replica [1/s], rejected requests included."""
        if self.pool.unit:
            return self._units_per_s()
        prompts = np.where(self._served & (not self._shares), self.demand.prompts, 0.0)
        outputs = np.where(self._served, np.maximum(self.demand.outputs - 1, 0.0), 0.0)
        contexts = outputs * (self.demand.prompts + (outputs + 1) / 2) / self._pace
        pairs_s = self._slope_s("prefill_attention_pairs", prefill_seqs=1, prefill_tokens=1)
        attention_s = self._context_s * contexts.mean() + pairs_s * (prompts**2 / 2).mean()
        held = 0.0 if self._shares else float(contexts.mean())
        asked = float(outputs.mean()) / self._pace, float(prompts.mean()), held
        least_s = max(self._mix_s(self._short_s, *asked), self._mix_s(self._beside_attention_s, *asked) + attention_s)
        busy_s = GRID_MARGIN * least_s
        return 1 / busy_s if busy_s > 0 else float("inf")

    def _units_per_s(self) -> float:
        """Return the units of work per second in full batches without a gap: larger batches take less time per unit."""
        largest = min(self.pool.batching.max_num_seqs or 1, getattr(self.pool.batching, "max_batch_size", 1))
        return largest / self._leap(decode_seqs=largest, sampled_seqs=largest)

    def _short_s(self, decodes: int, prompt_tokens: int) -> float:
        """Return the time of a step without contexts [s]."""
        prompts = {"prefill_seqs": int(prompt_tokens > 0), "prefill_tokens": prompt_tokens}
        return self._leap(decode_seqs=decodes, sampled_seqs=decodes, **prompts)

    def _mix_s(self, step_s: Callable[[int, int], float], outputs: float, prompts: float, held: float) -> float:
        """Return the optimum of the linear program of this module [s]: the least time per request.

        Parameters
        ----------
        step_s
            Time of a step with a number of decodes and a number of prompt tokens [s].
        outputs, prompts, held
            Output tokens, prompt tokens and KV token-steps per request.

        """
        batching = self.pool.batching
        kv_tokens = (batching.num_gpu_blocks or 0) * getattr(batching, "block_size", 0)
        if getattr(batching, "windows", (None,)) != (None,):
            kv_tokens = 0  # windowed layers free blocks, so that KV blocks bound nothing
        sequence_counts = _grid(batching.max_num_seqs or 1)
        chunks = _grid(min(batching.step_tokens or MOST_STEP_TOKENS, MOST_STEP_TOKENS))
        steps = [(d, p) for d in sequence_counts for p in chunks if d or p]
        if step_s.__name__ not in self._times_s:
            self._times_s[step_s.__name__] = np.maximum([step_s(d, p) for d, p in steps], 0.0)
        needed = np.array([outputs, prompts, held if kv_tokens else 0.0])
        return least_sum([(d, p, kv_tokens) for d, p in steps], self._times_s[step_s.__name__], needed)


def least_sum(columns: Sequence[Sequence[float]], costs: NDArray[np.float64], needed: NDArray[np.float64]) -> float:
    """Return the least cost of multiples of *columns* that add up to the *needed* amount of each row, or more.

    No amount and no cost is negative, and the last column is the largest in every row.

    Notes
    -----
    The simplex method, with Bland's rule after a step that saves nothing, so that it ends. For the three rows and
    hundreds of columns of this module's programs it is several times as fast as the solvers of scipy.

    """
    rows = np.flatnonzero(needed)
    if not len(rows):
        return 0.0
    least = needed[rows]
    table = np.hstack([np.array(columns, dtype=float)[:, rows].T, -np.eye(len(rows))])
    costs = np.append(costs, np.zeros(len(rows)))
    last, tolerance, before = len(columns) - 1, SIMPLEX_TOLERANCE * costs.max(), np.inf
    basis = list(range(len(columns), table.shape[1]))
    basis[int(np.argmax(least / table[:, last]))] = last
    while True:
        square = table[:, basis]
        prices = np.linalg.solve(square.T, costs[basis])
        saved = prices @ table - costs
        saves, total = saved > tolerance, float(prices @ least)
        if not saves.any():
            return total
        entering = int(np.argmax(saved if total < before else saves))
        amounts, change = np.linalg.solve(square, np.stack([least, table[:, entering]], axis=1)).T
        _, _, leaving = min((amounts[k] / change[k], basis[k], k) for k in range(len(rows)) if change[k] > FLOATS)
        basis[leaving], before = entering, total


def _grid(most: int) -> list[int]:
    """Return 0, 1, ... *most* at approximately equal ratios."""
    values, at = {0, most}, 1.0
    while at < most:
        values.add(round(at))
        at *= GRID_RATIO
    return sorted(values)


def _seconds(value: float) -> str:
    return f"{1e3 * value:.3g} ms" if value < 1 else f"{value:.3g} s"


def why_no_size(scenario: Scenario) -> str:
    """Return what the scenario lacks for a search, with its key; empty if nothing."""
    if scenario.size is None:
        return (
            "size: is missing: name what to choose from, such as size: {gpus: [h100-80gb-sxm], rents: {listed: "
            "{h100-80gb-sxm: h100-80gb-sxm/OFFER}}}; gpufleet show prices h100-80gb-sxm lists offers"
        )
    if scenario.tenant is not None:
        return ONLY_RAISED
    if scenario.service is not None:
        return Message(
            "service: {service} shares pools, and a fleet is sized for all services that share it: remove `service`",
            scenario.service,
        )
    levels = [(f"services.{i}.", one.slo) for i, one in enumerate(scenario.services)]
    told = (_why_no_level(*one) for one in levels or [("", scenario.slo)])
    first = next((one for one in told if one), "")
    return (
        first or why_not_its_mean(scenario) or why_no_availability(scenario.slo, scenario.fleets, scenario.operations)
    )


def _why_no_level(place: str, slo: Slo) -> str:
    """Return what a service level lacks for a search; *place* is the prefix of its key."""
    if not slo.goals:
        return Message("{place}slo: a fleet is sized to at least one limit: ttft_s, tpot_s or e2e_s", place)
    if slo.tenants is not None:
        return Message(
            "{place}slo.tenants: a fleet is sized to one service level: remove it, or compare fleets with run and "
            "capacity",
            place,
        )
    if place and slo.availability is not None:
        return Message("{place}slo.availability: is not supported for several services: remove it", place)
    return ""


@dataclass(frozen=True, slots=True)
class ReplicaBounds:
    """Bounds of one kind of replica."""

    reason: str
    """Reason why the replica cannot serve; empty if it may."""
    least_replicas: int
    """Least number of replicas that may carry the load."""


class CandidateBounds:
    """Bounds of all units, computed once per machine."""

    def __init__(self, scenario: Scenario, catalog: Catalog) -> None:
        self.scenario, self.catalog, self.demand = scenario, catalog, OfferedLoad.of(scenario)
        self.demands = OfferedLoad.of_services(scenario)
        """Offered load of each service by name, where the scenario has services."""
        self.levels = [one.slo for one in scenario.services]
        self._machines: dict[str, ReplicaBounds] = {}
        self._starts: dict[str, bool] = {}
        self._replica_rps: dict[str, float] = {}
        """Highest rate of a replica by machine, for autoscaled units and those beside owned ones [1/s]."""
        self._pools: dict[str, PoolBounds] = {}
        """Bounds of one replica under all of the load, by machine."""

    def bounds_of(self, unit: Unit) -> ReplicaBounds:
        """Return why *unit* cannot serve, or the least number of its replicas that may carry the load."""
        if unit.elastic is not None:
            found = self.bounds_of(unit.steady)
            reason = found.reason or self.refusal(unit)
            return ReplicaBounds(reason, max(found.least_replicas, unit.fewest))
        if unit.owned is not None:
            return self._beside_owned(unit, unit.owned)
        machine = unit.machine if unit.beside is None else unit.beside.kinds
        if machine not in self._machines:
            self._machines[machine] = self._machine(unit)
        return self._machines[machine]

    def _beside_owned(self, unit: Unit, owned: OwnedReplicas) -> ReplicaBounds:
        """Return the bounds of *unit* beside *owned* replicas: the least number that carries the rest of the load."""
        alone = replace(unit, owned=None, machine=unit.name)
        reason = self.bounds_of(owned.unit).reason or self.bounds_of(alone).reason or self.refusal(unit)
        if reason or self.demands or self.demand.rate_rps is None:
            return ReplicaBounds(reason, 1)
        rest_rps = self.demand.rate_rps - owned.replicas * self._rps(owned.unit)
        return ReplicaBounds("", max(1, ceil(rest_rps / self._rps(alone))))

    def _rps(self, unit: Unit) -> float:
        """Return the highest long-run rate of requests per replica of *unit* [1/s]."""
        if unit.machine not in self._replica_rps:
            self._replica_rps[unit.machine] = self.pool(unit).replica_rps()
        return self._replica_rps[unit.machine]

    def pool(self, unit: Unit) -> PoolBounds:
        """Return the bounds of one replica of *unit* under all of the load."""
        if unit.machine not in self._pools:
            self._pools[unit.machine] = PoolBounds(self.plan(unit).pools[0], self.demand)
        return self._pools[unit.machine]

    def _machine(self, unit: Unit) -> ReplicaBounds:
        if unit.refusal:
            return ReplicaBounds(unit.refusal, 0)
        if unit.own is not None and any(pool.replicas <= unit.own_spares for pool in unit.own.pools):
            return ReplicaBounds(Message("does not have {own_spares} spare replicas in every pool", unit.own_spares), 0)
        if refusal := self.refusal(unit):
            return ReplicaBounds(refusal, 0)
        try:
            plan = self.plan(unit)
        except (ValueError, ArithmeticError) as error:
            return ReplicaBounds(first_line(str(error)), 0)
        if plan.infeasible or unit.own is not None:
            return ReplicaBounds(plan.infeasible, 1)
        if self.demands:
            return self._serving_all(plan.pools[0])
        demand = self.demand
        if plan.kv_transfer is not None:
            demand = demand.prompts_alone(plan.kv_transfer.min_prompt_tokens)
        floor = self.pool(unit).under(demand)
        reason = floor.refusal(self.scenario.slo) if unit.beside is None else ""
        rate = demand.rate_rps
        return ReplicaBounds(reason, 1 if not rate or reason else max(1, ceil(rate / floor.replica_rps())))

    def _serving_all(self, pool: PoolPlan) -> ReplicaBounds:
        """Return the bounds of a replica that serves all services.

        Services of one model share batches; several models take turns on the GPU.
        """
        for one in self.scenario.services:
            floor = PoolBounds(pool.serving(one.name), self.demands[one.name])
            if reason := floor.refusal(one.slo):
                return ReplicaBounds(placed(one.name, reason), 0)
        busy = 0.0
        for model in pool.models or (pool,):
            demand = OfferedLoad.combined([self.demands[name] for name in model.served])
            busy += (demand.rate_rps or 0.0) / PoolBounds(model, demand).replica_rps()
        return ReplicaBounds("", max(1, ceil(busy)))

    def cannot_start(self, unit: Unit) -> bool:
        """Return whether *unit* cannot hold the model, or its layout or limits are refused."""
        if unit.refusal:
            return True
        if unit.machine not in self._starts:
            self._starts[unit.machine] = not self.refusal(unit) and not self.plan(unit).infeasible
        return not self._starts[unit.machine]

    @staticmethod
    def most_replicas(unit: Unit, size: Size) -> int:
        """Return the largest number of load-carrying replicas of *unit* that the section allows."""
        if unit.own is not None:
            return 1
        if unit.elastic is not None:
            return unit.elastic.most
        if unit.way == OWNED:
            return unit.most or 0
        most = size.max_replicas - (unit.beside.replicas if unit.beside is not None else 0)
        most = most if unit.most is None else min(most, unit.most - size.spare_replicas)
        return most - (unit.standby.count if unit.standby is not None else 0)

    def plan(self, unit: Unit) -> FleetPlan:
        """Return the resolved plan of one replica of *unit*, without prices."""
        fleet = unit.fleet(1)
        if unit.beside is not None or unit.owned is not None:
            free = tuple(pool.model_copy(update={"cost": None}) for pool in fleet.pools)
            fleet = fleet.model_copy(update={"pools": free})
        return resolve_fleet(self.scenario, fleet.model_copy(update={"cost": None}), self.catalog)

    def refusal(self, unit: Unit) -> str:
        """Return what is wrong with the layout or limits of *unit*; empty if nothing is."""
        fleet = unit.fleet(unit.fewest)
        try:
            models = [pool_models(self.scenario, fleet, pool, self.catalog) for pool in fleet.pools]
            wrong = [one for pool in models for own in pool for one in pool_issues(own, (), self.catalog)]
            wrong += [one for pool in models for one in sharing_issues(self.scenario, fleet, pool, ())]
            wrong += adapter_use_issues(self.scenario, fleet, [pool[0] for pool in models], ())
            wrong += role_issues(self.scenario, fleet, [pool[0] for pool in models], ())
        except (ValueError, ArithmeticError) as error:
            return first_line(str(error))
        return joined("; ", [placed(one.place[-1], one.message) for one in wrong])

    def usd_per_h(self, unit: Unit, replicas: int, spare: int) -> float:
        """Return the least cost of the fleet [USD/h], from charges that do not depend on load; raises CostError."""
        return self.floor(unit, replicas, spare)[0]

    def floor(self, unit: Unit, replicas: int, spare: int) -> tuple[float, FleetNeeds]:
        """Return the least cost of the fleet [USD/h] and its needs of a budget; raises CostError."""
        fleet = unit.fleet(replicas, spare)
        plan = resolve_fleet(self.scenario, fleet, self.catalog)
        least = least_usd_per_h(plan, unit.name)
        if unit.elastic is not None:
            busy = self._least_busy_replicas(unit, unit.elastic.most) - unit.elastic.replicas
            least += max(0.0, busy) * _usd_per_replica_h(plan)
        return least, FleetNeeds.of(plan, fleet)

    def _least_busy_replicas(self, unit: Unit, most: int) -> float:
        """Return the least mean number of replicas of *unit*, of at most *most*, that meets the service level.

        Notes
        -----
        The requests of a window of w seconds that must be answered take at least share * rate * w / replica_rps seconds
        of replicas. Of these, as many as *most* replicas have in the time limit of a request may lie after the window.
        `MEAN_MARGIN` covers windows with fewer requests than the mean.

        """
        scenario, span_s = self.scenario, self._window_s
        if span_s is None or self.demands or self.demand.rate_rps is None or scenario.workload.trace is not None:
            return 0.0
        replica_rps = self._rps(unit.steady)
        rate, outputs = scenario.workload.mean_rate_rps() or 0.0, self.demand.outputs
        needed = []
        for goal in scenario.slo.goals:
            late_s = _latest_s(goal.limits, float(np.quantile(outputs, 0.95)))
            counted = float((outputs > 1).mean()) if _skips_single_tokens(goal) else 1.0
            if late_s < span_s:
                needed.append(goal.share * counted * rate / replica_rps - most * late_s / span_s)
        return MEAN_MARGIN * max(0.0, *needed) if needed else 0.0

    @property
    def _window_s(self) -> float | None:
        """Length of the measured window [s]; None where it is not known, or where a year of loads is billed."""
        scenario = self.scenario
        if scenario.horizon_s is None or scenario.load_profile is not None or isinstance(scenario.warmup_s, str):
            return None
        return scenario.horizon_s - (scenario.warmup_s or 0.0)

    def needs(self, fleet: Fleet) -> FleetNeeds:
        """Return the needs of *fleet* of a budget; raises CostError."""
        return FleetNeeds.of(resolve_fleet(self.scenario, fleet, self.catalog), fleet)


def _usd_per_replica_h(plan: FleetPlan) -> float:
    """Return the rent of one replica that runs beyond the base, per hour [USD/h]."""
    if plan.costs is None:
        return 0.0
    (pool,) = plan.machines.pools
    beyond = (one for one in plan.costs.charges if isinstance(one, RentedTime) and one.beyond_base)
    return float(pool.gpus_per_replica) * sum(one.units_per_gpu_h * one.price.usd for one in beyond)


def least_usd_per_h(plan: FleetPlan, name: str) -> float:
    """Return the charges that do not depend on load, and electricity when idle, at the mean prices of the year [USD/h].

    Idle power is the same at all hours, so the mean price of electricity applies.

    Raises
    ------
    CostError
        For a fleet without a `cost` section.

    """
    if plan.costs is None:
        raise CostError(Problem("cost", Message("{name} has no cost section", name)))
    least_kw = least_kw_by_pool(plan)
    charges = plan.costs.averaged().charges
    return sum(charge.least_usd_per_h(least_kw.get(charge.pool, 0.0)) for charge in charges)
