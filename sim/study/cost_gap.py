"""Attribution of the cost gap between two fleets to groups of properties, by Shapley values.

The game: v(S) is the cost of a million output tokens with the groups S of the first fleet and the others of the second
(a counterfactual fleet, simulated and billed), with the same requests throughout. v(all) - v(none) is the gap, and the
Shapley values of the groups sum to it exactly. v is a ratio of sums over replications; a Shapley value is linear in v,
so its interval comes from the replications' residuals as that of one ratio does (sim/study/metrics/statistics.py).

Groups, and their properties:

    price per GPU     charges by the clock per GPU-hour (capital, rent, hosting, ...), tariffs of energy and traffic
    GPUs and layout   number of GPUs, replicas, ranks, and what runs on them: engine, scheduler, kernels, formats, host
    memory bandwidth  bandwidth of one GPU, and the share of it that kernels reach
    compute           rates of one GPU, and the share of them that kernels reach
    memory size       tokens that the whole fleet's KV caches hold, and the longest request
    link              link between the GPUs, and the share of it that all-reduces reach
    power             power of one GPU and its part of the server: idle, limit, energy of the work; a power cap

With all groups from one fleet the counterfactual is that fleet.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from math import factorial, fsum
from pathlib import Path
from typing import Any

from sim.batching import Slots, Vllm
from sim.case.run import with_warmup
from sim.catalogue.catalog import Catalog
from sim.catalogue.gpu import Gpu
from sim.cost.charge import amount_usd
from sim.cost.cost_plan import CostPlan
from sim.cost.metering import MeteredWindow
from sim.fleet.fleet import RunningFleet
from sim.fleet.saturation import SaturatedSteps, is_saturated
from sim.message import Message
from sim.power import PoolPower
from sim.records import FleetLog, LoadLaw
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.resolve import roofline_of
from sim.scenario.resolving.resolved import CasePlan, PoolPlan
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case, is_deterministic
from sim.steptime.coefficients import AllReduceFactor, CacheReading, Efficiency, StepTimeCoefficients
from sim.steptime.inputs import RooflineInputs
from sim.steptime.roofline import RooflineStepTime
from sim.study.execution.cases import Call, Progress, Workplace
from sim.study.execution.digest import digest
from sim.study.execution.durable import DamagedFile, read_sealed, warn_of, write_sealed
from sim.study.metrics.statistics import half_width
from sim.workload import ClosedLoop

Value = Callable[[frozenset[str]], float]


def coalitions(players: Sequence[str]) -> Iterator[frozenset[str]]:
    """Yield all 2^n subsets of *players*, small ones first."""
    for size in range(len(players) + 1):
        yield from (frozenset(chosen) for chosen in combinations(players, size))


def shapley(players: Sequence[str], value: Value) -> dict[str, Fraction]:
    """Return each player's mean contribution over all orders in which the players may join.

    Parameters
    ----------
    players
        Names of the players.
    value
        Function of a coalition; must be finite for every coalition.

    Returns
    -------
    dict
        Player -> Shapley value, as fractions, so that they sum to v(all) - v(none) exactly.

    Notes
    -----
    phi_i = sum over S without i of |S|! (n - |S| - 1)! / n! * (v(S + i) - v(S))

    References
    ----------
    L. S. Shapley, "A Value for n-Person Games", Contributions to the Theory of Games II, Princeton University Press,
    1953.

    """
    count = len(players)
    values = {chosen: Fraction(value(chosen)) for chosen in coalitions(players)}
    found = dict.fromkeys(players, Fraction(0))
    for chosen, before in values.items():
        for player in players:
            if player not in chosen:
                orders = factorial(len(chosen)) * factorial(count - len(chosen) - 1)
                found[player] += Fraction(orders, factorial(count)) * (values[chosen | {player}] - before)
    return found


PRICE, LAYOUT, BANDWIDTH, COMPUTE = "price per GPU", "GPUs and layout", "memory bandwidth", "compute"
MEMORY, LINK, POWER = "memory size", "link", "power"
PHYSICAL = (LAYOUT, BANDWIDTH, COMPUTE, MEMORY, LINK, POWER)
GROUPS = (LAYOUT, PRICE, *PHYSICAL[1:])
RATES = tuple(name for name in Gpu.model_fields if name.endswith(("_flops", "_ops_per_s")))


def why_not(plan: CasePlan) -> str:
    """Return why the fleet of *plan* cannot be divided into groups; empty if it can."""
    if plan.infeasible:
        return plan.infeasible
    if len(plan.pools) != 1:
        return "it has several pools"
    pool = plan.pools[0]
    if not isinstance(pool.steptime, RooflineStepTime):
        return "its step time is not a roofline"
    if isinstance(pool.batching, Slots):
        return "its memory is cut into slots"
    if pool.slices is not None:
        return "its GPUs are cut into MIG slices"
    if plan.switched:
        return "its replicas are switched on and off"
    return "" if plan.costs is not None else "it has no cost"


def counterfactual(first: CasePlan, second: CasePlan, of_first: Set[str], both_powers: bool = False) -> CasePlan:
    """Return the plan with the groups *of_first* from *first* and all others from *second*, except the price.

    *both_powers*: the same fleet with the power of the other plan is metered as well (`metered_together`).
    """
    plans = {group: first if group in of_first else second for group in PHYSICAL}
    pools = {group: plan.pools[0] for group, plan in plans.items()}
    base = pools[LAYOUT]
    batching = base.batching
    per_rank = batching.block_size * base.replicas * base.data_parallel_size
    blocks = max(2, _kv_tokens(pools[MEMORY]) // per_rank)
    longest = min(pools[MEMORY].batching.max_model_len or 0, (blocks - 1) * batching.block_size)
    inputs, second_power = _inputs(pools), None
    if both_powers:
        other = (second if POWER in of_first else first).pools[0]
        inputs = replace(inputs, second_load=_inputs(pools | {POWER: other}).load)
        second_power = _power(other, base)
    pool = replace(
        base,
        batching=batching.model_copy(update={"num_gpu_blocks": blocks, "max_model_len": longest}),
        steptime=roofline_of(_roofline(base).spec, inputs),
        power=_power(pools[POWER], base),
        second_power=second_power,
    )
    return replace(plans[LAYOUT], pools=(pool,))


def metered_together(first: CasePlan, second: CasePlan) -> bool:
    """Return whether counterfactuals that differ in power alone have the same steps, so that one run meters both.

    A power cap that slows a card changes its steps. Engines of ranks in lockstep and of several models meter one power
    law only.
    """
    pools = first.pools[0], second.pools[0]
    inputs = [_roofline(pool).inputs for pool in pools]
    return inputs[0].speed == inputs[1].speed and all(
        one.load is not None and pool.power is not None and not (pool.lockstep or pool.models)
        for one, pool in zip(inputs, pools, strict=True)
    )


def equal_groups(first: CasePlan, second: CasePlan) -> frozenset[str]:
    """Return the physical groups in which the two fleets are equal."""
    every = frozenset(PHYSICAL)

    def same(of_first: Set[str], others: Set[str]) -> bool:
        return _simulation_inputs(counterfactual(first, second, of_first)) == _simulation_inputs(
            counterfactual(first, second, others)
        )

    return frozenset(
        group for group in PHYSICAL if same({group}, frozenset()) and same(every, every.difference({group}))
    )


def _simulation_inputs(plan: CasePlan) -> tuple[Any, ...]:
    """Return all inputs that determine the simulation of a counterfactual fleet."""
    pool = plan.pools[0]
    roofline = _roofline(pool)
    ranks = (pool.replicas, pool.gpus_per_replica, pool.pipeline_parallel_size, pool.data_parallel_size, pool.lockstep)
    gpu = roofline.inputs.gpu.model_copy(update={"name": "", "aliases": ()})
    return replace(roofline.inputs, gpu=gpu), roofline.spec, ranks, pool.batching, pool.power, plan.routing


def _kv_tokens(pool: PoolPlan) -> int:
    """Return the KV tokens of all replicas and ranks together."""
    return (pool.batching.num_gpu_blocks or 0) * pool.batching.block_size * pool.replicas * pool.data_parallel_size


def _roofline(pool: PoolPlan) -> RooflineStepTime:
    assert isinstance(pool.steptime, RooflineStepTime)  # `why_not` refuses other models
    return pool.steptime


def _inputs(pools: dict[str, PoolPlan]) -> RooflineInputs:
    of = {group: _roofline(pool).inputs for group, pool in pools.items()}
    base = of[LAYOUT]
    rates = {name: getattr(of[COMPUTE].gpu, name) for name in RATES}
    rates |= {"memory_bytes_per_s": of[BANDWIDTH].gpu.memory_bytes_per_s}
    return replace(
        base,
        gpu=base.gpu.model_copy(update=rates),
        link=of[LINK].link,
        lanes_stretch=of[LINK].lanes_stretch,
        network=of[LINK].network,
        coefficients=_coefficients(of),
        speed=of[POWER].speed,
        load=_load(of),
    )


def _coefficients(of: dict[str, RooflineInputs]) -> StepTimeCoefficients:
    """Return the coefficients in which each reached share is that of the hardware it was measured on."""
    compute = of[COMPUTE].coefficients.efficiency(of[COMPUTE].gpu).compute
    memory = of[BANDWIDTH].coefficients.efficiency(of[BANDWIDTH].gpu).memory
    factor = of[LINK].coefficients.allreduce_factor(of[LINK].gpu, of[LINK].link)
    base, attention = of[LAYOUT], of[BANDWIDTH].coefficients.attention
    reading = attention.cache_reading_factor(base.engine.id, of[BANDWIDTH].gpu)
    rules = (CacheReading(factor=reading),) if reading is not None else ()
    update = {
        "gpus": {base.gpu.id: Efficiency(compute=compute, memory=memory)},
        "allreduce_time_factors": (AllReduceFactor(factor=factor),),
        "attention": base.coefficients.attention.model_copy(update={"cache_reading": rules}),
    }
    return base.coefficients.model_copy(update=update)


def _load(of: dict[str, RooflineInputs]) -> LoadLaw | None:
    """Return the load law of the power's card, scaled to the rates of the other cards.

    Operations, bytes and tokens have the energy that they have on the power's card; a faster card does more of them.
    """
    law, own = of[POWER].load, of[POWER].gpu
    if law is None:
        return None
    compute = of[COMPUTE].gpu.fp16_flops.value / own.fp16_flops.value
    memory = of[BANDWIDTH].gpu.memory_bytes_per_s.value / own.memory_bytes_per_s.value
    return replace(law, compute=law.compute * compute, memory=law.memory * memory)


def _power(of: PoolPlan, base: PoolPlan) -> PoolPower | None:
    """Return the power of *of*, for the GPUs of *base*."""
    if of.power is None:
        return None
    part = float(base.gpus_per_replica / of.gpus_per_replica)
    nameplate_w = None if of.power.nameplate_w is None else of.power.nameplate_w * part
    return replace(
        of.power,
        gpus_per_replica=base.gpus_per_replica,
        base_w=of.power.base_w * part,
        nameplate_w=nameplate_w,
    )


def cost_of(plan: CasePlan, log: FleetLog, payers: tuple[CasePlan, CasePlan]) -> tuple[float, float, float]:
    """Return the cost of the counterfactual *plan* at the prices of each of *payers*, and its output tokens.

    Returns
    -------
    tuple of float
        Cost at the first and the second prices [USD], output tokens [millions].

    """
    window = MeteredWindow.of(log.intervals, *plan.window_s(log.end_s))
    tokens = sum(interval.output_tokens for rows in window.intervals.values() for interval in rows)
    prices = (_prices(payer, plan.pools[0]) for payer in payers)
    first_usd, second_usd = (fsum(amount_usd(charge, window) for charge in costs.charges) for costs in prices)
    return first_usd, second_usd, tokens / 1e6


def would_run_alike(larger: CasePlan, plan: CasePlan, log: FleetLog) -> bool:
    """Return whether *larger*, the fleet of *plan* with more memory, runs exactly as *plan* did in *log*.

    Notes
    -----
    vLLM's scheduler reads the number of free blocks only to compare it with the blocks that a step needs: those of an
    admitted request, and at most one for each running sequence. If the highest number of blocks in use leaves room for
    all of these, every comparison of the run has the same result with more blocks.

    """
    pool, batching, workload = plan.pools[0], plan.pools[0].batching, plan.workload
    if not isinstance(batching, Vllm) or batching.speculative or batching.kv_groups or pool.kv_tiers or pool.adapters:
        return False
    if workload.lengths is None or workload.sessions or workload.shared_prefix or workload.sent_before:
        return False  # more blocks keep more prompts in the prefix cache
    alone = pool.replicas * pool.data_parallel_size == 1 or plan.has_independent_replicas
    if not alone or plan.admission is not None or _roofline(pool).window is not None:
        return False
    blocks, other = batching.num_gpu_blocks or 0, larger.pools[0].batching
    if other.num_gpu_blocks is None or other.num_gpu_blocks < blocks:
        return False
    if batching.model_copy(update={"num_gpu_blocks": other.num_gpu_blocks}) != other:
        return False
    longest = max((one.prompt_tokens + one.output_tokens for one in log.requests), default=0)
    needed = longest // batching.block_size + 2 + (batching.max_num_seqs or blocks) + int(batching.watermark * blocks)
    return max((one.kv_peak_blocks for one in log.meters), default=blocks) + needed < blocks


def _prices(payer: CasePlan, pool: PoolPlan) -> CostPlan:
    """Return the charges of *payer* for the GPUs of *pool*; charges by the clock in proportion to GPUs."""
    assert payer.costs is not None  # `why_not` refuses fleets without costs
    part = float(pool.gpus / payer.pools[0].gpus)
    return replace(payer.costs, charges=tuple(charge.scaled(part, pool.name) for charge in payer.costs.charges))


COUNTERFACTUALS = "hybrids"
FULL_HORIZON_S = 1800.0
"""Length of full load [s], whatever the scenario's horizon: hundreds of clients settle slowly."""
FULL_WARMUP = 0.2
"""Share of the full load that is warm-up [1], because the clients all start at once."""
OWN, FULL = "own", "full"
Chosen = frozenset[str]
"""Groups that come from the first fleet."""
Costs = dict[Chosen, tuple[float, float]]
"""Groups of the first fleet -> (cost [USD], output tokens [millions])."""


@dataclass(frozen=True, slots=True)
class CostGap:
    """Cost gap between two fleets at one load, with its parts."""

    load: str
    """`own`: the scenario's load; `full`: as many clients as concurrent sequences fit, without think time."""
    clients: int
    """Number of clients at full load; 0 at the scenario's own load."""
    first: str
    second: str
    first_usd: float
    """Cost of the first fleet per million output tokens, over the tokens of all replications [USD]."""
    second_usd: float
    parts: dict[str, float]
    """Group -> contribution to the cost of the first fleet [USD per million output tokens]; the sum is the gap."""
    half_widths: dict[str, float | None]
    """Half-widths of the 95 % intervals of the parts; None below two replications."""
    half_width: float | None
    """Half-width of the 95 % interval of the gap."""

    @property
    def usd(self) -> float:
        """Cost of the first fleet minus that of the second [USD per million output tokens]."""
        return self.first_usd - self.second_usd


@dataclass(frozen=True, slots=True)
class ExplainedGaps:
    """Cost gaps of two fleets, one per load."""

    gaps: tuple[CostGap, ...]
    reason: str = ""
    """Reason why a gap is missing."""


@dataclass(frozen=True, slots=True)
class AttributionGame:
    """Two fleets at one load in one replication, with the files of their counterfactuals' costs."""

    key: str
    """Digest of all inputs of the two fleets."""
    names: tuple[str, str]
    replication: int
    clients: int
    """Number of clients without think time; 0: the scenario's own load."""
    same: Chosen
    """Groups in which the fleets are equal: exchanging them changes nothing."""
    paths: dict[Chosen, Path]
    first_is_smaller: bool
    """True if the first fleet has the smaller KV caches."""
    both_powers: bool
    """True if fleets that differ in power alone are metered in one simulation."""

    @property
    def larger(self) -> dict[Path, Path]:
        """File of a counterfactual with the smaller KV caches -> file of the same with the larger ones."""
        pairs = ((path, one) for one, path in self.paths.items() if (MEMORY in one) == self.first_is_smaller)
        return {path: self.paths[other] for path, one in pairs if (other := one ^ {MEMORY}) in self.paths}

    @property
    def with_other_power(self) -> dict[Path, Path]:
        """File of a counterfactual -> file of the same with the other power, where one simulation meters both."""
        pairs = self.paths.items() if self.both_powers else ()
        return {path: self.paths[other] for one, path in pairs if (other := one ^ {POWER}) in self.paths}


def explain(
    scenario: Scenario,
    catalog: Catalog,
    out: Path,
    workplace: Workplace,
    first: str,
    second: str,
    progress: Progress = lambda *_: None,
) -> ExplainedGaps:
    """Return the cost gap at the scenario's own load and, where requests are drawn, at full load.

    Counterfactuals are stored under `out/hybrids`, so that a second call simulates nothing; *progress* counts them.
    """
    for name in (first, second):
        if reason := why_not(resolve(scenario, Case(name, {}, {}, 0), catalog)):
            return ExplainedGaps(
                (),
                Message(
                    "The gap between {first} and {second} is not divided among causes, because of {name}: {reason}.",
                    first,
                    second,
                    name,
                    reason,
                ),
            )
    loads = [OWN] if scenario.workload.lengths is None else [OWN, FULL]
    games = {load: list(_games(scenario, catalog, out / COUNTERFACTUALS, (first, second), load)) for load in loads}
    call = Call(_costs, scenario, catalog)
    _simulate([game for played in games.values() for game in played], call, workplace, progress)
    found = [_gap(load, played) for load, played in games.items()]
    missing = (
        ""
        if all(found)
        else "At some load a counterfactual fleet answers no request, so the gap cannot be divided among causes."
    )
    return ExplainedGaps(tuple(gap for gap in found if gap is not None), missing)


def _games(
    scenario: Scenario, catalog: Catalog, folder: Path, names: tuple[str, str], load: str
) -> Iterator[AttributionGame]:
    """Yield the game of each replication."""
    fixed = all(is_deterministic(scenario, fleet) for fleet in scenario.fleets if fleet.name in names)
    for replication in range(1 if fixed else scenario.replications):
        plans = _plans(scenario, catalog, names, replication, 0)
        clients = max(_concurrent_sequences(one.pools[0]) for one in plans) if load == FULL else 0
        same = equal_groups(*(_at_load(one, clients) for one in plans))
        key = "".join(digest(scenario, case, catalog) for case in _cases(names, replication)) + load + "usd, tokens"
        paths = {one: folder / f"{_name(key, one)}.json" for one in coalitions(PHYSICAL) if not one & same}
        first, second = (_kv_tokens(one.pools[0]) for one in plans)
        both_powers = POWER not in same and metered_together(*plans)
        yield AttributionGame(key, names, replication, clients, same, paths, first < second, both_powers)


def _cases(names: tuple[str, str], replication: int) -> list[Case]:
    return [Case(name, {}, {}, replication) for name in names]


def _plans(
    scenario: Scenario, catalog: Catalog, names: tuple[str, str], replication: int, clients: int
) -> tuple[CasePlan, CasePlan]:
    """Return the plans of the two fleets under *clients* clients without think time; 0: at the scenario's own load."""
    first, second = (resolve(scenario, case, catalog) for case in _cases(names, replication))
    return _at_load(first, clients), _at_load(second, clients)


def _simulate(games: Sequence[AttributionGame], call: Call, workplace: Workplace, progress: Progress) -> None:
    """Simulate the counterfactuals whose costs are not on disk yet; one simulation for two that differ in power alone.

    Those with the larger KV caches come last: the costs of the same fleets with the smaller ones are theirs where these
    were large enough.
    """
    known = {
        path: (game.key, game.names, game.replication, game.clients, game.both_powers, chosen)
        for game in games
        for chosen, path in game.paths.items()
    }
    larger = {path: other for game in games for path, other in game.larger.items()}
    other_power = {path: other for game in games for path, other in game.with_other_power.items()}
    missing = {path: None for path in known if not _is_stored(path)}
    later = {other for path, other in larger.items() if path in missing}
    found = len(known) - len(missing)
    progress(found, len(known), found)
    for turn in (missing.keys() - later, later):
        # one after the other with equal step times, whose model keeps its costs by number of tokens
        wanted: dict[Path, None] = {}
        for path in sorted(missing, key=lambda path: sorted(known[path][-1] - {MEMORY, POWER})):
            if path in turn and other_power.get(path) not in wanted:
                wanted[path] = None
        simulated = list(wanted)
        for place, (metered, alike) in workplace.map(call, [known[path] for path in simulated]):
            first = simulated[place]
            for costs, one in zip(metered, (first, other_power.get(first)), strict=False):
                for stored in (one, larger.get(one) if one and alike else None):
                    if stored in missing:
                        write_sealed(stored, costs)
                        del missing[stored]
            progress(len(known) - len(missing), len(known), found)


def _gap(load: str, games: Sequence[AttributionGame]) -> CostGap | None:
    """Return the gap with its parts; None where a counterfactual answers no request."""
    costs = [_coalition_costs(game) for game in games]
    tokens = {chosen: sum(one[chosen][1] for one in costs) for chosen in costs[0]}
    if not all(tokens.values()):
        return None
    everything, nothing = frozenset(GROUPS), frozenset[str]()
    value = {chosen: sum(one[chosen][0] for one in costs) / tokens[chosen] for chosen in tokens}
    residuals = [
        {chosen: (usd - value[chosen] * made) * len(costs) / tokens[chosen] for chosen, (usd, made) in one.items()}
        for one in costs
    ]
    residual_shares = [_shares(one) for one in residuals]
    halves = {group: half_width([one[group] for one in residual_shares]) for group in GROUPS}
    half = half_width([one[everything] - one[nothing] for one in residuals])
    usd_of = (value[everything], value[nothing])
    return CostGap(load, games[-1].clients, *games[-1].names, *usd_of, _shares(value), halves, half)


def _shares(value: Mapping[Chosen, float]) -> dict[str, float]:
    """Return the Shapley values of the groups in the game *value*."""
    return {group: float(part) for group, part in shapley(GROUPS, lambda chosen: value[chosen]).items()}


def _concurrent_sequences(pool: PoolPlan) -> int:
    return (pool.batching.max_num_seqs or 1) * pool.replicas * pool.data_parallel_size


def _at_load(plan: CasePlan, clients: int) -> CasePlan:
    """Return *plan* under *clients* clients without think time (0: its own load), billed up to the horizon."""
    if not clients:
        return plan if plan.horizon_s is None else replace(plan, drain_limit_s=0.0)
    horizon_s = FULL_HORIZON_S
    loop = ClosedLoop(process="closed_loop", concurrency=clients)
    return replace(
        plan,
        workload=plan.workload.model_copy(update={"arrivals": loop}),
        horizon_s=horizon_s,
        warmup_s=FULL_WARMUP * horizon_s,
        warmup_auto=False,
        drain_limit_s=0.0,
    )


def _coalition_costs(game: AttributionGame) -> Costs:
    """Return v(S) for every S, as cost and tokens."""
    costs = {one: read_sealed(path) for one, path in game.paths.items()}
    found: Costs = {}
    for one in coalitions(PHYSICAL):
        first_usd, second_usd, millions = costs[one - game.same]
        found[one | {PRICE}], found[one] = (first_usd, millions), (second_usd, millions)
    return found


def _name(key: str, chosen: frozenset[str]) -> str:
    return hashlib.sha256(f"{key} {sorted(chosen)}".encode()).hexdigest()[:16]


def _costs(
    scenario: Scenario,
    catalog: Catalog,
    key: str,
    names: tuple[str, str],
    replication: int,
    clients: int,
    both_powers: bool,
    chosen: Chosen,
) -> tuple[list[tuple[float, float, float]], bool]:
    """Simulate one counterfactual, or repeat the steps of another one, and bill it at both prices.

    Return its costs (with *both_powers* also those with the power of the other fleet), and whether the same
    counterfactual with the memory of the other fleet runs exactly alike.
    """
    if (key, clients) not in _PLANS:
        if len(_PLANS) >= MOST_PLANS:
            _PLANS.clear()
            _STEPS.clear()
        _PLANS[key, clients] = _plans(scenario, catalog, names, replication, clients)
    plans = _PLANS[key, clients]
    plan = counterfactual(*plans, chosen, both_powers)
    plan = with_warmup(plan) if plan.warmup_auto else plan
    log, alike = _retimed((key, clients), plan), False
    if log is None:
        log = RunningFleet(plan).run()
        alike = would_run_alike(counterfactual(*plans, chosen ^ {MEMORY}, both_powers), plan, log)
    logs = [log, replace(log, intervals=log.second_intervals)] if both_powers else [log]
    return [cost_of(plan, one, plans) for one in logs], alike


def _retimed(game: tuple[str, int], plan: CasePlan) -> FleetLog | None:
    """Return the log of *plan* from recorded steps of counterfactuals with equal KV caches; None if steps differ."""
    if not is_saturated(plan):
        return None
    pool = plan.pools[0]
    kind = (*game, f"{pool.batching!r} {pool.steptime.window} {pool.turn_s > 0}")
    if kind not in _STEPS:
        _STEPS[kind] = SaturatedSteps(plan)
    return _STEPS[kind].retimed(plan)


_STEPS: dict[tuple[str, int, str], SaturatedSteps] = {}
"""Steps of counterfactuals at full load, by the game's key and load and by what determines them."""
_PLANS: dict[tuple[str, int], tuple[CasePlan, CasePlan]] = {}
"""Plans of the two fleets of the last counterfactuals, by the game's key and load; the next often needs them."""
MOST_PLANS = 32
"""Number of pairs of plans above which all are dropped; each holds step times."""


def _is_stored(path: Path) -> bool:
    """Return whether the costs of a counterfactual are on disk and undamaged."""
    if not path.exists():
        return False
    try:
        read_sealed(path)
    except DamagedFile as error:
        warn_of(path, error)
        return False
    return True
