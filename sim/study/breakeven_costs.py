"""Cost of the same tokens under rent, purchase or API, over utilisation and over months.

Utilisation is the offered load over the fleet's capacity under its service level. Every candidate (a fleet and a
purchase option) is simulated at fractions of its own capacity; purchase options of a fleet share the simulations, as
prices change no quantity. Beyond one unit's capacity whole units are added, each with an even share of the load. Where
the load is that of one service beside others that keep theirs, a fleet is one unit: another would share the others'
load.

Prices are those of the whole calendar, not of the simulated hours. With a `load_profile` the load is its mean, each of
its hours is billed at its own load and price, and the units carry its peak. Hours without load are those of the idle
fleet, which is simulated, too.

Cash is computed month by month, with its net present cost and the payback month of a purchase. docs/money.md has the
convention: purchases are paid at delivery, all other costs at the end of every month.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise
from math import ceil, fsum, inf, isfinite, nan
from pathlib import Path
from typing import Any, NamedTuple

from sim.catalogue.catalog import Catalog
from sim.cost import token_api
from sim.cost.cash_flow import CashFlows
from sim.cost.cost_plan import CostPlan
from sim.cost.finance import Annuity, StraightLine
from sim.cost.financing import CARBON_PRICE
from sim.cost.revenue import sold_usd
from sim.cost.time_value import Horizon, discount_factor, price_in
from sim.scenario.schema import Scenario
from sim.scenario.sections.comparison import Breakeven, candidate_names
from sim.scenario.sweep import Case, at_point
from sim.scenario.year import (
    ALL_HOURS,
    Calendar,
    Hours,
    hours_of,
    loads_within,
    peak_to_mean,
    usual_load,
)
from sim.study.capacity import FleetCapacity
from sim.study.discounting import horizon_of, levelised
from sim.study.execution.cases import CaseJob, NotStored, Progress, Workplace, do_all, jobs_of
from sim.study.execution.store import StoredCase
from sim.study.load_axis import LoadAxis
from sim.study.metrics.expected_load import constant_tokens_per_s, mean_tokens, rate_per_load
from sim.study.metrics.service_level import UNANSWERED
from sim.study.rebill import Bill, Rebilling, Weighted, flows_of_year
from sim.units import HOURS_PER_MONTH, SECONDS_PER_HOUR

UTILISATIONS = (0.03, 0.07, 0.15, 0.3, 0.5, 0.7, 0.85, 1.0)
"""Utilisations at which a fleet's cost is simulated; the cost between two of them is interpolated linearly."""
API = "api"
"""Component of the API in a bill."""
SAME_LOAD = 1e-4
"""Relative distance within which two loads share a simulation."""
HALVINGS = 40
"""Number of steps of a bisection: enough for the last digit of a float."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Fleet with a purchase option."""

    name: str
    fleet: str
    overrides: dict[str, Any]
    """Dotted path -> value that makes the scenario's own bill this candidate's; empty: the fleet's own `cost`."""
    capacity: float


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a candidate at one load, means over replications."""

    load: float
    units: int
    flows: CashFlows
    """Flows of all units."""
    finance: Annuity | StraightLine | None
    horizon: Horizon
    output_tokens_per_h: float
    api_usd_per_h: float | None
    revenue_usd_per_h: float | None = None
    """Revenue of the tokens [USD/h]; None where the scenario states no price of output tokens."""
    prompt_tokens_per_h: float = 0.0
    """Prompt tokens per hour, those found in the prefix cache included."""
    api_prompts_usd_per_h: float = 0.0
    """Part of `api_usd_per_h` for prompt tokens [USD/h]."""
    unanswered: Mapping[str, float] = field(default_factory=dict)
    """Shares of the requests that were rejected, timed out and lost [1]; empty where all were answered."""

    @property
    def usd_per_h(self) -> float:
        """Levelised cost: purchases spread over their life, inflation levelled out [USD/h]."""
        return self.flows.levelised_usd_per_h(self.finance, self.horizon)

    @property
    def capital_usd_per_h(self) -> float:
        """Purchases and removals at the equal payment over their life [USD/h]."""
        return self.flows.usd_per_h - self.flows.opex_usd_per_h

    @property
    def lines_usd_per_h(self) -> Mapping[str, float]:
        """Levelised cost of each component [USD/h]; `usd_per_h` is their sum."""
        return self.flows.levelised_lines(self.finance, self.horizon)

    @property
    def rent_usd_per_h(self) -> float:
        """Part of the levelised cost that is proportional to the rent [USD/h]."""
        return self.flows.levelised_rent_usd_per_h(self.finance, self.horizon)

    @property
    def hardware_usd_per_h(self) -> float:
        """Part of the levelised cost that is proportional to the price of hardware [USD/h]."""
        return self.flows.levelised_hardware_usd_per_h(self.finance, self.horizon)

    @property
    def usd_per_million_output_tokens(self) -> float:
        """Levelised cost per million output tokens [USD]; infinite without output tokens."""
        return 1e6 * self.usd_per_h / self.output_tokens_per_h if self.output_tokens_per_h else float("inf")

    @property
    def usd_per_million_by_kind(self) -> tuple[float, float] | None:
        """Levelised cost per million prompt tokens and per million output tokens [USD].

        The two costs times their tokens sum to `usd_per_h`. None where there are no tokens of a kind, or where prefill
        and decode were not metered.
        """
        prompts_usd_per_h = self.flows.levelised_prompts_usd_per_h(self.finance, self.horizon)
        if prompts_usd_per_h is None or not self.prompt_tokens_per_h or not self.output_tokens_per_h:
            return None
        answers_usd_per_h = self.usd_per_h - prompts_usd_per_h
        return 1e6 * prompts_usd_per_h / self.prompt_tokens_per_h, 1e6 * answers_usd_per_h / self.output_tokens_per_h


class Tokens(NamedTuple):
    """Tokens per hour, of all units together."""

    prompt: float
    """Computed prompt tokens."""
    cached: float
    output: float


Overrides = Mapping[str, Any]


class CandidateLedgers:
    """Costs of all candidates at any load, under any prices, from one set of simulations."""

    def __init__(
        self,
        scenario: Scenario,
        catalog: Catalog,
        out: Path,
        workplace: Workplace,
        found: Sequence[FleetCapacity],
        progress: Progress = lambda *_: None,
    ) -> None:
        self._found, self.axis = found, LoadAxis.of(scenario)
        self._simulate = partial(_simulated_cases, scenario, self.axis, catalog, out, workplace, progress)
        self._rebilling = partial(Rebilling, scenario, catalog, terms=levelised)
        self._billing: dict[tuple[str, float], Rebilling] = {}
        self._tokens_per_h, self._held_per_h = _tokens_per_h(scenario), _held_per_h(scenario)
        self._follow(scenario)

    def under(self, scenario: Scenario) -> "CandidateLedgers":
        """Return the ledgers of *scenario*, which differs from the simulated one in prices and terms alone."""
        if scenario is self.scenario:
            return self
        found = copy(self)
        found._follow(scenario)
        return found

    def _follow(self, scenario: Scenario) -> None:
        """Use the prices, terms and load of *scenario*, and simulate the loads that it needs."""
        self.scenario, self.hours = scenario, hours_of(scenario)
        self.horizon = horizon_of(scenario, (scenario.breakeven or Breakeven()).months)
        self.load = (scenario.breakeven or Breakeven()).load or usual_load(scenario, self.axis.start)
        self.beside_others, self.all_simulated = bool(self.axis.raised), True
        self.candidates = [one for one in _candidates(scenario, self._found) if self.carries(one, self.load)]
        capacity_of = {one.fleet: one.capacity for one in self.candidates}
        loads = {
            name: sorted({*(u * most for u in UTILISATIONS), *loads_within(self.hours, self.share(most))})
            for name, most in capacity_of.items()
        }
        self._loads = loads
        known = dict(self._billing)
        new = {name: [each for each in values if (name, each) not in known] for name, values in loads.items()}
        if any(new.values()):
            known |= {place: self._rebilling(cases) for place, cases in self._simulate(new).items()}
        if not self.beside_others:  # beside services that keep their load, the fleet is busy even at a load of 0
            self._loads = {name: [0.0, *values] for name, values in loads.items()}
            idle = {(name, 0.0): Case(name, {}, {}, 0) for name in loads if (name, 0.0) not in known}
            known |= {place: self._rebilling([(case, None)]) for place, case in idle.items()}
        self._billing = {place: one.under(scenario) for place, one in known.items()}
        self._priced: dict[tuple[str, int, Calendar, str], CostPlan] = {}

    def carries(self, candidate: Candidate, load: float) -> bool:
        """Return whether *candidate* serves a mean *load*: any load in whole units.

        Beside services with a load of their own, a single unit serves loads up to its capacity.
        """
        return not self.beside_others or load <= candidate.capacity * (1 + 1e-9)

    def simulate_at(self, load: float) -> bool:
        """Simulate each fleet at the share of *load* of one unit, and return whether that is a new load for any fleet.

        Where the load changes by the hour, or by whole clients, nothing is simulated: the interpolation is kept.
        Likewise where nothing may be simulated; `all_simulated` is then False.
        """
        if len(self.hours) > 1 or self.axis.whole:
            return False
        able = [one for one in self.candidates if self.carries(one, load)]
        shares = {one.fleet: load / self.units(load, one.capacity) for one in able}
        new = {
            name: [each]
            for name, each in shares.items()
            if all(abs(known / each - 1) > SAME_LOAD for known in self._loads[name])
        }
        try:
            found = self._simulate(new)
        except NotStored:
            self.all_simulated = False
            return False
        self._billing |= {place: self._rebilling(cases).under(self.scenario) for place, cases in found.items()}
        self._loads |= {name: sorted([*self._loads[name], *values]) for name, values in new.items()}
        return bool(new)

    def share(self, capacity: float) -> float:
        """Return the mean load of one unit where whole units share the scenario's load evenly."""
        return self.load / self.units(self.load, capacity)

    def units(self, load: float, capacity: float) -> int:
        """Return the number of units that serve the busiest hours of a mean *load*."""
        return max(1, ceil(load * peak_to_mean(self.hours) / capacity - 1e-9))

    def cost(self, candidate: Candidate, load: float, overrides: Overrides | None = None) -> Cost:
        """Return the cost over the hours of a year with the mean *load*, shared by as many units as it needs."""
        units = self.units(load, candidate.capacity)
        return self._cost(candidate, load, units, self.hours, {**candidate.overrides, **(overrides or {})})

    def steady(self, candidate: Candidate, load: float) -> Cost:
        """Return the cost of one unit at the same *load* in all hours of the year."""
        return self._cost(candidate, load, 1, ALL_HOURS, candidate.overrides)

    def _cost(
        self, candidate: Candidate, load: float, units: int, hours: Sequence[Hours], overrides: Overrides
    ) -> Cost:
        """Return the cost over *hours* of a year with the mean *load*, which *units* share."""

        def billed(part: tuple[float, Calendar]) -> list[Bill]:
            billing = self._billing[candidate.fleet, part[0]]
            key = (candidate.fleet, units, part[1], repr(overrides))
            if key not in self._priced:
                self._priced[key] = billing.costs(overrides, units, part[1])
            return billing.at(self._priced[key], units)

        flows, bills = flows_of_year(hours, self._loads[candidate.fleet], load, billed, units)
        costs, unanswered = bills[0][0].costs, _unanswered(bills)
        tokens = self._tokens(bills, load, all_answered=not unanswered)
        return Cost(
            load=load,
            units=units,
            flows=flows,
            finance=costs.finance,
            horizon=self._horizon(overrides),
            output_tokens_per_h=tokens.output,
            api_usd_per_h=None if costs.api is None else costs.api.usd(*tokens),
            revenue_usd_per_h=sold_usd(costs.revenue, tokens.prompt + tokens.cached, tokens.output),
            prompt_tokens_per_h=tokens.prompt + tokens.cached,
            api_prompts_usd_per_h=0.0 if costs.api is None else costs.api.usd(tokens.prompt, tokens.cached, 0.0),
            unanswered=unanswered,
        )

    def _tokens(self, bills: Weighted, load: float, all_answered: bool) -> Tokens:
        """Return the tokens per hour at *load*: those of the workload, if *all_answered* holds for simulated requests.

        At a few hundredths of a capacity a window has too few requests to estimate their mean lengths.
        """
        simulated = Tokens(
            *(
                fsum(weight * getattr(bill, f"{kind}_tokens") / bill.window_h for bill, weight in bills)
                for kind in Tokens._fields
            )
        )
        if self._tokens_per_h is None or self._held_per_h is None or not all_answered:
            return simulated
        known = zip(self._tokens_per_h, self._held_per_h, strict=True)
        prompt, output = (load * each + held for each, held in known)
        read = simulated.prompt + simulated.cached
        cached = prompt * simulated.cached / read if read else 0.0
        return Tokens(prompt - cached, cached, output)

    def _horizon(self, overrides: Overrides) -> Horizon:
        if not any(path.split(".")[0] == "finance" or ".finance." in path for path in overrides):
            return self.horizon
        return horizon_of(at_point(self.scenario, dict(overrides)), self.horizon.months)

    def cheaper(self, candidate: Candidate) -> dict[str, list[tuple[float, float]]]:
        """Return the utilisations at which one unit costs less than each alternative source of its tokens.

        The alternatives are the other purchase options of the same fleet, and the API. An alternative without tokens at
        some load is left out.
        """
        others = [one for one in self.candidates if one.fleet == candidate.fleet and one.name != candidate.name]
        gaps = {other.name: partial(self._gap_usd_per_h, candidate, other) for other in others}
        if self.api([self.steady(candidate, candidate.capacity)]) is not None:
            gaps[token_api.NAME] = partial(self._gap_usd_per_h, candidate, None)
        return {
            name: below(UTILISATIONS, gap) for name, gap in gaps.items() if all(isfinite(gap(u)) for u in UTILISATIONS)
        }

    def _gap_usd_per_h(self, candidate: Candidate, other: Candidate | None, utilisation: float) -> float:
        """Return the cost of one unit minus that of *other*, or of the API, for the same tokens [USD/h]."""
        load = utilisation * candidate.capacity
        mine = self.steady(candidate, load)
        theirs = self.api([mine]) if other is None else self.steady(other, load)
        return mine.usd_per_h - theirs.usd_per_h if theirs is not None and mine.output_tokens_per_h else nan

    def curve(self, candidate: Candidate) -> list[tuple[float, Cost]]:
        """Return (utilisation, cost) of one unit at a steady load."""
        return [(u, self.steady(candidate, u * candidate.capacity)) for u in UTILISATIONS]

    def api(self, costs: Sequence[Cost]) -> Cost | None:
        """Return the API's cost for the tokens of the first of *costs*, all at one load; None without an API."""
        for cost in costs:
            if cost.api_usd_per_h is not None and cost.output_tokens_per_h:
                of_first = cost.api_usd_per_h / cost.output_tokens_per_h * costs[0].output_tokens_per_h
                line = {API: of_first}
                prompts = cost.api_prompts_usd_per_h / cost.api_usd_per_h * of_first if of_first else 0.0
                flows = CashFlows(
                    booked_usd_per_h=line,
                    monthly_usd_per_h=line,
                    prompts_usd_per_h={API: prompts},
                    answers_usd_per_h={API: of_first - prompts},
                )
                output = costs[0].output_tokens_per_h
                read = cost.prompt_tokens_per_h / cost.output_tokens_per_h * output
                sold = costs[0].revenue_usd_per_h
                return Cost(cost.load, 1, flows, cost.finance, cost.horizon, output, None, sold, read)
        return None


def _unanswered(bills: Weighted) -> dict[str, float]:
    """Return the shares of the requests of *bills* without an answer [1], by ending; empty where all were answered."""
    requests = fsum(weight * bill.requests / bill.window_h for bill, weight in bills)
    ended = {
        name: fsum(weight * bill.unanswered.get(name, 0) / bill.window_h for bill, weight in bills)
        for name in UNANSWERED
    }
    return {name: per_h / requests for name, per_h in ended.items() if per_h}


def _tokens_per_h(scenario: Scenario) -> tuple[float, float] | None:
    """Return prompt and output tokens that arrive in an hour at a load of 1; None for a closed loop."""
    rate_rps = rate_per_load(scenario)
    if rate_rps is None:
        return None
    prompt, output = mean_tokens(scenario)
    return SECONDS_PER_HOUR * rate_rps * prompt, SECONDS_PER_HOUR * rate_rps * output


def _held_per_h(scenario: Scenario) -> tuple[float, float] | None:
    """Return prompt and output tokens per hour of services that keep their load; None for a closed loop."""
    held = constant_tokens_per_s(scenario)
    return None if held is None else (SECONDS_PER_HOUR * held[0], SECONDS_PER_HOUR * held[1])


def _candidates(scenario: Scenario, found: Sequence[FleetCapacity]) -> Iterator[Candidate]:
    also = (scenario.breakeven or Breakeven()).also
    for position, fleet in enumerate(scenario.fleets):
        capacity = next(one.at_least for one in found if one.fleet == fleet.name)
        if not capacity:
            continue
        ways = also.get(fleet.name, {})
        assert fleet.cost is not None  # the checks of the scenario refuse a fleet without costs
        own, *others = candidate_names(fleet, ways)
        yield Candidate(own, fleet.name, {}, capacity)
        for name, cost in zip(others, ways.values(), strict=True):
            data = cost.model_dump(mode="json", exclude_unset=True)
            yield Candidate(name, fleet.name, {f"fleets.{position}.cost": data}, capacity)


def _simulated_cases(
    scenario: Scenario,
    axis: LoadAxis,
    catalog: Catalog,
    out: Path,
    workplace: Workplace,
    progress: Progress,
    loads: Mapping[str, Sequence[float]],
) -> dict[tuple[str, float], list[tuple[Case, StoredCase]]]:
    """Return the cases of every fleet at its loads, taken from *out* where they are finished."""
    plain = scenario.model_copy(update={"sweep": None})
    found: dict[tuple[str, float], list[CaseJob]] = {}
    for fleet, values in loads.items():
        for load in values:
            value = axis.value(load)
            point = {axis.label: value}, axis.overrides(value)
            cases = [Case(fleet, *point, one) for one in range(scenario.replications)]
            found[fleet, load] = jobs_of(plain, cases, catalog, out)
    do_all(workplace, [job for jobs in found.values() for job in jobs], progress)
    return {key: [(job.case, job.stored()) for job in jobs] for key, jobs in found.items()}


def below(xs: Sequence[float], gap: Callable[[float], float]) -> list[tuple[float, float]]:
    """Return the ranges within *xs* in which *gap* is negative; between neighbours it changes its sign at most once.

    >>> [(low, high)] = below([1.0, 2.0, 4.0], lambda x: 6 - 2 * x)
    >>> (round(low, 9), high)
    (3.0, 4.0)
    """
    found: list[tuple[float, float]] = []
    start = xs[0] if gap(xs[0]) < 0 else None
    for left, right in pairwise(xs):
        if (gap(left) < 0) == (gap(right) < 0):
            continue
        at = _sign_change(gap, left, right)
        if start is None:
            start = at
        else:
            found.append((start, at))
            start = None
    return found if start is None else [*found, (start, xs[-1])]


def _sign_change(gap: Callable[[float], float], left: float, right: float) -> float:
    negative = gap(left) < 0
    for _ in range(HALVINGS):
        middle = (left + right) / 2
        left, right = (middle, right) if (gap(middle) < 0) == negative else (left, middle)
    return right


Finance = Annuity | StraightLine | None
LONGEST_MONTHS = 1200


@dataclass(frozen=True, slots=True)
class CumulativeCost:
    """Cash and net present cost of a candidate after a number of months."""

    months: int
    cash_usd: float
    """Cash paid so far, without the sale of the hardware in use [USD]."""
    net_present_usd: float
    """Present value of all payments minus that of the hardware's value now: its resale minus its removal [USD]."""
    purchase_usd: float = 0.0
    """Payment at delivery, in month 0 [USD]."""
    operating_usd: float = 0.0
    """Payment at the end of this month [USD]."""
    brings_usd: float = 0.0
    """Resale minus removal of the hardware at the end of this month [USD]."""
    renewal_usd: float = 0.0
    """Payment after the month where hardware is replaced: new hardware minus the proceeds of the old [USD]."""
    working_usd: float = 0.0
    """Working capital at the end of this month: VAT to be recovered and deposits, less debts to suppliers [USD]."""


def opex_usd(flows: CashFlows, finance: Finance, month: int) -> float:
    """Return the operating cost of *month*, counted from 1 [USD]."""
    total = 0.0
    for name in flows.monthly_usd_per_h:
        total += _line_usd(name, flows, finance, month)
    return total


def carbon_usd(flows: CashFlows, finance: Finance, count: int) -> list[float]:
    """Return the internal price of the emissions of months 1 to *count* [USD]; empty where they have none."""
    if CARBON_PRICE not in flows.monthly_usd_per_h:
        return []
    return [_line_usd(CARBON_PRICE, flows, finance, month) for month in range(1, count + 1)]


def _line_usd(name: str, flows: CashFlows, finance: Finance, month: int) -> float:
    growth = finance.growth_of(name) if finance is not None else 0.0
    at_first = flows.of_month(name, month) * flows.monthly_usd_per_h[name] * HOURS_PER_MONTH
    return at_first * price_in(month, growth, flows.agreed_months.get(name, 0.0))


def months(flows: CashFlows, finance: Finance, discount_rate: float, count: int) -> list[CumulativeCost]:
    """Return the cumulative cost of a candidate over *count* months; hardware is replaced at the end of its life.

    Parameters
    ----------
    flows
        Payments of the candidate.
    finance
        Life, growth of prices and resale values; None: nothing is replaced.
    discount_rate
        Rate per year [1].
    count
        Number of months.

    """
    life = max(1, round(finance.life_months)) if finance is not None else count
    working = list(accumulate(moved_by_month(flows, life, count)))
    cash, present = flows.capex_usd + working[0], flows.capex_usd + working[0]
    brings = _brings(flows, finance, 0)
    settled = present - brings - working[0]
    found = [CumulativeCost(0, cash, settled, purchase_usd=flows.capex_usd, brings_usd=brings, working_usd=working[0])]
    for month in range(1, count + 1):
        discount = discount_factor(discount_rate, month)
        age = (month - 1) % life + 1
        paid = opex_usd(flows, finance, month)
        moved = working[month] - working[month - 1]
        cash, present = cash + (paid + moved), present + (paid + moved) * discount
        brings = _brings(flows, finance, age)
        renewed = flows.capex_usd - brings if age == life else 0.0
        found.append(
            CumulativeCost(
                month,
                cash,
                present - (brings + working[month]) * discount,
                0.0,
                paid,
                brings,
                renewed if month < count else 0.0,
                working[month],
            )
        )
        cash, present = cash + renewed, present + renewed * discount
    return found


def moved_by_month(flows: CashFlows, life: int, count: int) -> list[float]:
    """Return the payments of months 0 to *count* beside purchases and rent [USD]; hardware lives *life* months."""
    found = [0.0] * (count + 1)
    for month, usd in moved_usd(flows, life, 0, count):
        found[month] += usd
    return found


def moved_usd(flows: CashFlows, life: int, first: int, last: int, contracts: bool = True) -> list[tuple[int, float]]:
    """Return the payments (month, amount [USD]) beside the purchases and *contracts* from month *first* to *last*.

    Payments before the first delivery count at it; open payments are settled when the hardware is sold, the contract
    ends or the comparison ends.
    """
    found = []
    for (term, month), usd in flows.moved_usd.items():
        if contracts or not term:
            starts = range(first, max(last, first + 1), term or life)
            found += [(min(max(0, start + month), start + (term or life), last), usd) for start in starts]
    return found


def _brings(flows: CashFlows, finance: Finance, age_months: int) -> float:
    """Return the resale value minus the cost of removal at an age of *age_months* [USD]."""
    value = finance.value_fraction(age_months / 12) if finance is not None else 0.0
    return flows.resold_usd * value - flows.removal_usd


def payback_months(bought: Cost, other: Cost) -> float:
    """Return the months until a purchase has paid for itself by its savings against *other*, without discounting.

    Infinite if that is never within the life of the machines.

    Notes
    -----
    Simple payback = price / saving per month, accumulated month by month where prices grow.

    References
    ----------
    Short, Packey and Holt, "A Manual for the Economic Evaluation of Energy Efficiency and Renewable Energy
    Technologies",
    NREL/TP-462-5173, 1995.

    """
    life = bought.finance.life_months if bought.finance is not None else inf
    left = bought.flows.capex_usd
    for month in range(1, LONGEST_MONTHS + 1):
        saved = opex_usd(other.flows, other.finance, month) - opex_usd(bought.flows, bought.finance, month)
        if 0 < left <= saved:
            paid = month - 1 + left / saved
            return paid if paid <= life else inf
        left -= saved
    return inf
