"""Why one fleet's tokens cost more than another's: the difference shared among groups of properties.

The game: v(S) is what a million output tokens cost with the groups S of the first fleet and the others of the second
(`hybrid.py`), with the same requests throughout. v(all) - v(none) is the gap, and the Shapley values of the
groups sum to it exactly. v is a ratio of sums over replications; a Shapley value is linear in v, so its interval comes
from the replications' residuals as that of one ratio does (sim/study/metrics/statistics.py).
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sim.catalogue.catalog import Catalog
from sim.fleet.warmup import with_warmup
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.resolved import CasePlan, PoolPlan
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case, is_deterministic
from sim.study.cases.durable import Damaged, read_sealed, warn_of, write_sealed
from sim.study.cases.execute import Call, Progress, Workplace
from sim.study.cases.inputs import digest
from sim.study.fleets.sensitivity.hybrid import GROUPS, PHYSICAL, PRICE, alike, cost_of, hybrid, why_not
from sim.study.fleets.sensitivity.shapley import coalitions, shapley
from sim.study.metrics.statistics import half_width
from sim.workload import ClosedLoop

HYBRIDS = "hybrids"
FULL_HORIZON_S = 1800.0
"""How long full load lasts, whatever the scenario's horizon: hundreds of clients settle slowly."""
FULL_WARMUP = 0.2
"""Share of it that is not measured: the clients all begin at once."""
OWN, FULL = "own", "full"
Chosen = frozenset[str]
"""The groups that come from the first fleet."""
Costs = dict[Chosen, tuple[float, float]]
"""USD and millions of output tokens."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The difference between two fleets at one load."""

    load: str
    """own: the scenario's; full: as many clients as concurrent sequences fit, without think time."""
    clients: int
    """At full load; 0 at the scenario's own."""
    first: str
    second: str
    first_usd: float
    """Per million output tokens: USD over tokens of all replications."""
    second_usd: float
    parts: dict[str, float]
    """Group -> what the first fleet's adds to the price [USD per million output tokens]; sums to the gap."""
    half_widths: dict[str, float | None]
    """Of the 95 % intervals of the parts; None below two replications."""
    half_width: float | None
    """Of the gap's."""

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


@dataclass(frozen=True, slots=True)
class Game:
    """Two fleets at one load in one replication, and where the costs of their hybrids are kept."""

    key: str
    """Of all that the two fleets rest on."""
    names: tuple[str, str]
    replication: int
    clients: int
    """Clients without think time; 0: the scenario's own load."""
    same: Chosen
    """Groups in which they are alike: exchanging them changes nothing."""
    paths: dict[Chosen, Path]


def explain(
    scenario: Scenario,
    catalog: Catalog,
    out: Path,
    workplace: Workplace,
    first: str,
    second: str,
    progress: Progress = lambda *_: None,
) -> Explained:
    """The gap at the scenario's own load and, where requests are drawn, at full load.

    Hybrids are kept under `out/hybrids`, so that a second call simulates nothing; *progress* counts them.
    """
    for name in (first, second):
        if reason := why_not(resolve(scenario, Case(name, {}, {}, 0), catalog)):
            return Explained(
                (), f"The gap between {first} and {second} is not divided among causes, because of {name}: {reason}."
            )
    loads = [OWN] if scenario.workload.lengths is None else [OWN, FULL]
    games = {load: list(_games(scenario, catalog, out / HYBRIDS, (first, second), load)) for load in loads}
    call = Call(_costs, scenario, catalog)
    _simulate([game for played in games.values() for game in played], call, workplace, progress)
    found = [_gap(load, played) for load, played in games.items()]
    missing = (
        ""
        if all(found)
        else "At some load a hybrid fleet answers no request, so the gap cannot be divided among causes."
    )
    return Explained(tuple(gap for gap in found if gap is not None), missing)


def _games(scenario: Scenario, catalog: Catalog, folder: Path, names: tuple[str, str], load: str) -> Iterator[Game]:
    """One for each replication."""
    fixed = all(is_deterministic(scenario, fleet) for fleet in scenario.fleets if fleet.name in names)
    for replication in range(1 if fixed else scenario.replications):
        plans = _plans(scenario, catalog, names, replication, 0)
        clients = max(_seats(one.pools[0]) for one in plans) if load == FULL else 0
        same = alike(*(_at_load(one, clients) for one in plans))
        key = "".join(digest(scenario, case, catalog) for case in _cases(names, replication)) + load + "usd, tokens"
        paths = {one: folder / f"{_name(key, one)}.json" for one in coalitions(PHYSICAL) if not one & same}
        yield Game(key, names, replication, clients, same, paths)


def _cases(names: tuple[str, str], replication: int) -> list[Case]:
    return [Case(name, {}, {}, replication) for name in names]


def _plans(
    scenario: Scenario, catalog: Catalog, names: tuple[str, str], replication: int, clients: int
) -> tuple[CasePlan, CasePlan]:
    """Of the two, under this number of clients without think time; 0: at the scenario's own load."""
    first, second = (resolve(scenario, case, catalog) for case in _cases(names, replication))
    return _at_load(first, clients), _at_load(second, clients)


def _simulate(games: Sequence[Game], call: Call, workplace: Workplace, progress: Progress) -> None:
    """The hybrids whose costs are not on disk yet."""
    known = {
        path: (game.key, game.names, game.replication, game.clients, chosen)
        for game in games
        for chosen, path in game.paths.items()
    }
    missing = [path for path in known if not _kept(path)]
    found = len(known) - len(missing)
    progress(found, len(known), found)
    for done, (place, costs) in enumerate(workplace.map(call, [known[path] for path in missing]), start=found + 1):
        write_sealed(missing[place], costs)
        progress(done, len(known), found)


def _gap(load: str, games: Sequence[Game]) -> Gap | None:
    """Shared among the groups; None where a hybrid answers nothing."""
    costs = [_worth(game) for game in games]
    tokens = {chosen: sum(one[chosen][1] for one in costs) for chosen in costs[0]}
    if not all(tokens.values()):
        return None
    everything, nothing = frozenset(GROUPS), frozenset[str]()
    value = {chosen: sum(one[chosen][0] for one in costs) / tokens[chosen] for chosen in tokens}
    residuals = [
        {chosen: (usd - value[chosen] * made) * len(costs) / tokens[chosen] for chosen, (usd, made) in one.items()}
        for one in costs
    ]
    astray = [_shares(one) for one in residuals]
    halves = {group: half_width([one[group] for one in astray]) for group in GROUPS}
    half = half_width([one[everything] - one[nothing] for one in residuals])
    usd_of = (value[everything], value[nothing])
    return Gap(load, games[-1].clients, *games[-1].names, *usd_of, _shares(value), halves, half)


def _shares(value: Mapping[Chosen, float]) -> dict[str, float]:
    """Shapley values of the groups in the game *value*."""
    return {group: float(part) for group, part in shapley(GROUPS, lambda chosen: value[chosen]).items()}


def _seats(pool: PoolPlan) -> int:
    return (pool.batching.max_num_seqs or 1) * pool.replicas * pool.data_parallel_size


def _at_load(plan: CasePlan, clients: int) -> CasePlan:
    """*plan* under *clients* clients without think time; 0: as it is. What comes after the horizon is not billed."""
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


def _worth(game: Game) -> Costs:
    """v(S) for every S."""
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
    chosen: Chosen,
) -> Sequence[float]:
    """Simulates one hybrid, and bills it at either price."""
    if (key, clients) not in _PLANS:
        _PLANS.clear()
        _PLANS[key, clients] = _plans(scenario, catalog, names, replication, clients)
    plans = _PLANS[key, clients]
    plan = hybrid(*plans, chosen)
    return cost_of(with_warmup(plan) if plan.warmup_auto else plan, plans)


_PLANS: dict[tuple[str, int], tuple[CasePlan, CasePlan]] = {}
"""The two fleets of the last hybrid, which those of the next one often are, too, by the game's key and load."""


def _kept(path: Path) -> bool:
    """Whether the costs of a hybrid are there and whole."""
    if not path.exists():
        return False
    try:
        read_sealed(path)
    except Damaged as error:
        warn_of(path, error)
        return False
    return True
