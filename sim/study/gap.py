"""Why one fleet's tokens cost more than another's: the difference shared among groups of properties.

The game: v(S) is what a million output tokens cost with the groups S of the first fleet and the others of the second
(sim/study/hybrid.py), with the same requests throughout. v(all) - v(none) is the gap, and the Shapley values of the
groups sum to it exactly.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum, isfinite
from pathlib import Path

from sim.catalog.catalog import Catalog
from sim.fleet.warmup import with_warmup
from sim.scenario.plan import CasePlan, PoolPlan
from sim.scenario.resolve import resolve
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case, is_deterministic
from sim.study.execute import Workplace
from sim.study.hybrid import GROUPS, PHYSICAL, PRICE, alike, cost_of, hybrid, why_not
from sim.study.shapley import coalitions, shapley
from sim.study.store import digest
from sim.workload import ClosedLoop

HYBRIDS = "hybrids"
FULL_HORIZON_S = 1800.0
"""How long full load lasts, if the scenario does not end before."""
FULL_WARMUP = 0.2
"""Share of it that is not measured: the clients all begin at once."""
OWN, FULL = "own", "full"
Costs = dict[frozenset[str], float]


@dataclass(frozen=True, slots=True)
class Gap:
    """The difference between two fleets at one load."""

    load: str
    """own: the scenario's; full: as many clients as there are seats, who never pause."""
    clients: int
    """At full load; 0 at the scenario's own."""
    first: str
    second: str
    first_usd: float
    """Per million output tokens, mean over replications."""
    second_usd: float
    parts: dict[str, float]
    """Group -> what the first fleet's adds to the price [USD per million output tokens]; sums to the gap."""

    @property
    def usd(self) -> float:
        """First less second."""
        return self.first_usd - self.second_usd


@dataclass(frozen=True, slots=True)
class Explained:
    """The gaps of two fleets."""

    gaps: tuple[Gap, ...]
    reason: str = ""
    """Why there is none."""


def explain(
    scenario: Scenario, catalog: Catalog, out: Path, workplace: Workplace, first: str, second: str
) -> Explained:
    """The gap at the scenario's own load and, where requests are drawn, at full load.

    Hybrids are kept under `out/hybrids`, so that a second call simulates nothing.
    """
    for name in (first, second):
        if reason := why_not(resolve(scenario, Case(name, {}, {}, 0), catalog)):
            return Explained((), f"The gap between {first} and {second} is not taken apart: {name}: {reason}.")
    loads = [OWN] if scenario.workload.lengths is None else [OWN, FULL]
    found = [_gap(scenario, catalog, out / HYBRIDS, workplace, (first, second), load) for load in loads]
    missing = "" if all(found) else "At some load a hybrid answers nothing, and the gap cannot be shared."
    return Explained(tuple(gap for gap in found if gap is not None), missing)


def _gap(
    scenario: Scenario, catalog: Catalog, folder: Path, workplace: Workplace, names: tuple[str, str], load: str
) -> Gap | None:
    at = scenario.fleets
    fixed = all(is_deterministic(scenario, fleet) for fleet in at if fleet.name in names)
    costs: list[Costs] = []
    clients = 0
    for replication in range(1 if fixed else scenario.replications):
        cases = [Case(name, {}, {}, replication) for name in names]
        plans = [resolve(scenario, case, catalog) for case in cases]
        if load == FULL:
            clients = max(_seats(plan.pools[0]) for plan in plans)
        key = "".join(digest(scenario, case, catalog) for case in cases) + load
        first, second = (_at_load(plan, clients) for plan in plans)
        costs.append(_worth(first, second, folder, key, workplace))
    if not all(isfinite(value) for one in costs for value in one.values()):
        return None
    everything, nothing = frozenset(GROUPS), frozenset[str]()
    mean = {chosen: fsum(one[chosen] for one in costs) / len(costs) for chosen in costs[0]}
    parts = {group: float(part) for group, part in shapley(GROUPS, lambda chosen: mean[chosen]).items()}
    return Gap(load, clients, *names, mean[everything], mean[nothing], parts)


def _seats(pool: PoolPlan) -> int:
    return (pool.batching.max_num_seqs or 1) * pool.replicas * pool.data_parallel_size


def _at_load(plan: CasePlan, clients: int) -> CasePlan:
    """*plan* under so many clients who never pause; 0: as it is. What comes after the horizon is not billed."""
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


def _worth(first: CasePlan, second: CasePlan, folder: Path, key: str, workplace: Workplace) -> Costs:
    """v(S) for every S."""
    folder.mkdir(parents=True, exist_ok=True)
    same = alike(first, second)  # exchanging what is the same changes nothing
    chosen = [one for one in coalitions(PHYSICAL) if not one & same]
    paths = [folder / f"{_name(key, one)}.json" for one in chosen]
    work = [(one, path) for one, path in zip(chosen, paths, strict=True) if not path.is_file()]
    for place, found_usd in workplace.map(_costs, [(first, second, one) for one, _ in work]):
        _keep(work[place][1], found_usd)
    costs = {one: json.loads(path.read_text(encoding="utf-8")) for one, path in zip(chosen, paths, strict=True)}
    found: Costs = {}
    for one in coalitions(PHYSICAL):
        found[one | {PRICE}], found[one] = costs[one - same]
    return found


def _name(key: str, chosen: frozenset[str]) -> str:
    return hashlib.sha256(f"{key} {sorted(chosen)}".encode()).hexdigest()[:16]


def _costs(first: CasePlan, second: CasePlan, chosen: frozenset[str]) -> Sequence[float]:
    """Simulates one hybrid, and bills it at either price."""
    plan = hybrid(first, second, chosen)
    return cost_of(with_warmup(plan) if plan.warmup_auto else plan, (first, second))


def _keep(path: Path, costs: Sequence[float]) -> None:
    """In a file that appears complete or not at all."""
    aside = path.with_suffix(".part")
    aside.write_text(json.dumps(costs), encoding="utf-8")
    aside.replace(path)
