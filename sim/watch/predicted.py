"""Predictions of a watched fleet: simulations of its scenario at the observed loads, and its capacity.

A load is a request rate with mean prompt and answer lengths. The scenario is simulated at the points of a grid in equal
ratios; between the points, logarithms of metrics are linear along each axis, so that few simulations predict all
hours. Simulations are stored like those of `run`, under `points`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, inf, isfinite, log
from pathlib import Path

from sim.catalogue.catalog import Catalog
from sim.message import Message
from sim.scenario.reading.layers import place_of, put, value_at
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.sweep import Case, as_data, is_deterministic
from sim.study.capacity import FleetCapacity, capacities, why_no_capacity
from sim.study.capacity_tolerance import RELATIVE
from sim.study.execution.cases import Progress, Workplace, do_all, jobs_of
from sim.study.execution.durable import POINTS
from sim.study.execution.store import StoredCase, discard_unfinished
from sim.study.load_axis import LoadAxis
from sim.study.sensitivity import LENGTHS
from sim.units import SECONDS_PER_HOUR
from sim.watch.observed import HourObserved

RATE_RATIO, LENGTH_RATIO = 1.25, 1.3
"""Ratios of neighbouring points of the grid."""
NEAR = 0.02
"""Distance in logarithms below which a load is its grid point, so that no neighbour is simulated."""
MOST_REQUESTS, LEAST_S = 5000, 300.0
"""Requests after which a simulation ends, but not before LEAST_S have been measured [s]."""
TOKENS = 1e6
LATENCIES = ("ttft_s_mean", "ttft_s_p95", "tpot_s_mean", "e2e_s_mean")
METRICS = (*LATENCIES, "output_tokens_per_s", "gpu_power_w_mean", "cost_usd_per_h", "energy_usd_per_h")
Load = tuple[float, float, float]
"""Request rate [1/s], mean prompt and mean answer length [tokens]."""
Metrics = Mapping[str, float | None]


def why_not_watched(scenario: Scenario, fleet: Fleet) -> str:
    """Return the reason why *fleet* of *scenario* cannot be compared with a server, with the key; empty if it can."""
    if scenario.services:
        return "services: a watched fleet serves one model: give the scenario a single `workload`"
    if reason := why_no_capacity(scenario):
        return reason
    axis = LoadAxis.of(scenario)
    if axis.label != "rate_rps" or axis.raised:
        return Message("workload: has the load {axis}: give arrivals with `rate_rps`, which is observed", axis.label)
    if len(fleet.pools) > 1 and any(pool.autoscaling is not None for pool in fleet.pools):
        scaled = [place for place, pool in enumerate(fleet.pools) if pool.autoscaling is not None]
        at = scenario.fleets.index(fleet)
        sets = " ".join(Message("--set fleets.{at}.pools.{place}.autoscaling=null", at, place) for place in scaled)
        return Message("fleets: of several pools none may be autoscaled; watch the stated replicas by {sets}", sets)
    return ""


def at_most(fleet: Fleet) -> Fleet:
    """Return *fleet* with the most replicas of an autoscaled pool in place of its autoscaler."""
    return with_replicas(
        fleet, {n: one.autoscaling.max_replicas for n, one in enumerate(fleet.pools) if one.autoscaling}
    )


def with_replicas(fleet: Fleet, replicas: Mapping[int, int]) -> Fleet:
    """Return *fleet* with fixed numbers of *replicas* (index of the pool -> number)."""
    pools = tuple(
        pool.model_copy(update={"autoscaling": None, "replicas": replicas[place]}) if place in replicas else pool
        for place, pool in enumerate(fleet.pools)
    )
    return fleet.model_copy(update={"pools": pools})


def length_paths(scenario: Scenario) -> tuple[tuple[str, float] | None, tuple[str, float] | None]:
    """Return (path, value) of the mean prompt and answer length; None for a length whose mean cannot be set."""
    data = as_data(scenario)

    def found(side: str) -> tuple[str, float] | None:
        for key in ("mean", "value"):
            path = f"workload.lengths.{side}.{key}"
            try:
                value = value_at(data, place_of(data, path))
            except LookupError:
                continue
            if key in LENGTHS and isinstance(value, int | float):
                return path, float(value)
        return None

    return found("prompt"), found("output")


@dataclass(frozen=True, slots=True)
class Twin:
    """Simulated counterpart of a watched fleet."""

    scenario: Scenario
    """Scenario with the watched fleet alone and without a sweep."""
    catalog: Catalog
    out: Path
    workplace: Workplace
    calibrations: tuple[tuple[int, Path], ...] = ()
    """First hour [Unix s] and calibration file, in order."""
    scaled: bool = False
    """True if the number of replicas is that of the hour; `fleet` has the most that the autoscaler starts."""
    _known: dict[tuple[int, int, tuple[int, ...]], Metrics] = field(default_factory=dict)

    @classmethod
    def of(cls, scenario: Scenario, fleet: Fleet, catalog: Catalog, out: Path, workplace: Workplace) -> "Twin":
        """Return the twin of *fleet*."""
        alone = scenario.model_copy(
            update={
                "fleets": (at_most(fleet),),
                "sweep": None,
                "requests": "none",
                "compare": None,
                "size": None,
                "breakeven": None,
            }
        )
        scaled = any(pool.autoscaling is not None for pool in fleet.pools)
        return cls(alone, catalog, out, workplace, scaled=scaled)

    @property
    def fleet(self) -> Fleet:
        """Watched fleet."""
        return self.scenario.fleets[0]

    @property
    def replicas(self) -> int:
        """Number of replicas of the fleet, all pools together."""
        return sum(pool.replicas for pool in self.fleet.pools)

    def calibrated(self, at: int) -> tuple[int, Scenario]:
        """Return the number of the calibration at the hour *at*, 0 for none, and the scenario with it."""
        number = sum(since <= at for since, _ in self.calibrations)
        if not number:
            return 0, self.scenario
        path = str(self.calibrations[number - 1][1])
        pools = tuple(pool.model_copy(update={"calibration": None}) for pool in self.fleet.pools)
        fleet = self.fleet.model_copy(update={"pools": pools, "calibration": path})
        return number, self.scenario.model_copy(update={"fleets": (fleet,)})

    def predictions(self, hours: Sequence[HourObserved], progress: Progress = lambda *_: None) -> list[Metrics]:
        """Return the metrics at the load of each of *hours*; all None where the load is not known.

        A latency is None where the fleet is overloaded at a neighbouring point of the grid.
        """
        loads = [self._load(one) for one in hours]
        states = [(self.calibrated(one.hour)[0], self._serving(one)) for one in hours]
        wanted: dict[tuple[int, int, tuple[int, ...]], None] = {}
        for state, load in zip(states, loads, strict=True):
            if load is not None:
                wanted |= {(*state, corner): None for corner, _ in _corners(load)}
        self._simulate([one for one in wanted if one not in self._known], progress)
        return [
            dict.fromkeys(METRICS) if load is None else self._between(state, load)
            for state, load in zip(states, loads, strict=True)
        ]

    def _serving(self, hour: HourObserved) -> int:
        """Return the number of replicas in *hour*: that of the scenario, or the observed one of a scaled fleet."""
        return min(self.replicas, max(1, round(hour.servers))) if self.scaled else self.replicas

    def _load(self, hour: HourObserved) -> tuple[float, ...] | None:
        """Return the coordinates of the load on the grid: logarithms over the ratios."""
        if not hour.usable or hour.rate_rps <= 0:
            return None
        lengths = zip(length_paths(self.scenario), (hour.prompt_tokens, hour.output_tokens), strict=True)
        return (
            log(hour.rate_rps) / log(RATE_RATIO),
            *(log(seen / own[1]) / log(LENGTH_RATIO) if own and seen else 0.0 for own, seen in lengths),
        )

    def _overrides(self, corner: tuple[int, ...]) -> dict[str, float]:
        axis = LoadAxis.of(self.scenario)
        rate = RATE_RATIO ** corner[0]
        found = axis.overrides(rate)
        own_s, warmup_s = self.scenario.horizon_s, self.scenario.warmup_s
        if own_s is not None and isinstance(warmup_s, int | float):
            found["horizon_s"] = min(own_s, warmup_s + max(LEAST_S, MOST_REQUESTS / rate))
        for own, place in zip(length_paths(self.scenario), corner[1:], strict=True):
            if own and place:
                value = own[1] * LENGTH_RATIO**place
                found[own[0]] = max(1, round(value)) if own[0].endswith(".value") else value
        return found

    def _simulate(self, wanted: Sequence[tuple[int, int, tuple[int, ...]]], progress: Progress) -> None:
        jobs = []
        firsts = [0, *(since for since, _ in self.calibrations)]
        for number, replicas, corner in wanted:
            _, scenario = self.calibrated(firsts[number])
            if replicas != self.replicas:
                fewer = with_replicas(scenario.fleets[0], {0: replicas})
                scenario = scenario.model_copy(update={"fleets": (fewer,)})
            overrides = self._overrides(corner)
            count = 1 if is_deterministic(scenario, self.fleet) else scenario.replications
            cases = [Case(self.fleet.name, dict(overrides), overrides, one) for one in range(count)]
            jobs.append(jobs_of(scenario, cases, self.catalog, self.out))
        try:
            do_all(self.workplace, [job for group in jobs for job in group], progress)
        finally:
            discard_unfinished(self.out / POINTS)
        for key, group in zip(wanted, jobs, strict=True):
            self._known[key] = _metrics([job.stored() for job in group])

    def _between(self, state: tuple[int, int], load: tuple[float, ...]) -> Metrics:
        corners = [(self._known[*state, corner], weight) for corner, weight in _corners(load)]
        found: dict[str, float | None] = {}
        for name in METRICS:
            values = [(one[name], weight) for one, weight in corners]
            if any(value is None or not 0 <= value < inf for value, _ in values):
                found[name] = None
            elif any(value == 0 for value, _ in values):
                found[name] = sum(value * weight for value, weight in values if value)
            else:
                found[name] = exp(sum(log(value) * weight for value, weight in values if value))
        return found

    def capacity(
        self,
        at: int,
        prompt_tokens: float | None,
        output_tokens: float | None,
        progress: Progress = lambda *_: None,
    ) -> FleetCapacity:
        """Return the highest rate within the SLO with the calibration at the hour *at*.

        Mean lengths are rounded to a fifth of the grid's ratio, so that they seldom need a new search.
        """
        _, scenario = self.calibrated(at)
        data = as_data(scenario)
        for own, seen in zip(length_paths(scenario), (prompt_tokens, output_tokens), strict=True):
            if own and seen:
                near = own[1] * LENGTH_RATIO ** (round(5 * log(seen / own[1]) / log(LENGTH_RATIO)) / 5)
                put(data, place_of(data, own[0]), max(1, round(near)) if own[0].endswith(".value") else near)
        changed = Scenario.model_validate(data) if data != as_data(scenario) else scenario
        precision = scenario.precision
        return capacities(changed, self.catalog, self.out, self.workplace, RELATIVE, progress, precision)[0]

    def per_replica(self) -> tuple[float, float, float | None]:
        """Return GPUs, capital cost [USD] and cost per hour [USD/h] of one replica; None without prices."""
        found = ((key[1], metrics) for key, metrics in self._known.items() if metrics.get("gpus") is not None)
        count, one = next(found, (1, {}))
        gpus, usd = one.get("gpus") or 0.0, one.get("cost_usd_per_h")
        return gpus / count, (one.get("capex_usd") or 0.0) / count, None if usd is None else usd / count


def _corners(load: tuple[float, ...]) -> list[tuple[tuple[int, ...], float]]:
    """Return the grid points that determine the metrics at *load*, with their weights.

    They are the nearest point and, along each axis, its neighbour on the side of *load*.

    >>> _corners((2.25, 0.0))
    [((2, 0), 0.75), ((3, 0), 0.25)]
    """
    nearest = tuple(round(place) for place in load)
    found, left = [], 1.0
    for axis, (place, base) in enumerate(zip(load, nearest, strict=True)):
        if (share := abs(place - base)) * log(RATE_RATIO) > NEAR:
            side = base + (1 if place > base else -1)
            found.append(((*nearest[:axis], side, *nearest[axis + 1 :]), share))
            left -= share
    return [(nearest, left), *found]


def _metrics(cases: Sequence[StoredCase]) -> Metrics:
    """Return the means of the metrics over replications; latencies are None where the fleet is overloaded."""
    found: dict[str, float | None] = dict.fromkeys(METRICS)
    if any(case.status != "ok" for case in cases):
        return found
    each = [case.metrics for case in cases]

    def mean(name: str) -> float | None:
        values = [one[name] for one in each]
        return None if any(value is None or not isfinite(value) for value in values) else sum(values) / len(values)

    for name in (*LATENCIES, "output_tokens_per_s", "gpu_power_w_mean", "gpus", "capex_usd"):
        found[name] = mean(name)
    requests, tokens, e2e, ttft = (
        mean(name) for name in ("requests_per_s", "output_tokens_per_s", "e2e_s_mean", "ttft_s_mean")
    )
    if requests and tokens and e2e and ttft is not None and tokens / requests > 1:
        found["tpot_s_mean"] = (e2e - ttft) / (tokens / requests - 1)  # by token, as servers count it
    if any(one["overloaded"] for one in each):
        found |= dict.fromkeys((*LATENCIES, "output_tokens_per_s"))
    hours = sum(one["window_h"] or 0.0 for one in each)
    if hours and all(one["cost_usd"] is not None for one in each):
        found["cost_usd_per_h"] = sum(one["cost_usd"] for one in each) / hours
        found["energy_usd_per_h"] = sum(sum((one["energy_usd"] or {}).values()) for one in each) / hours
    return found


def at_power(predicted: Metrics, hour: HourObserved) -> tuple[float | None, float | None]:
    """Return the cost per hour [USD/h] and per million output tokens [USD] of an observed hour.

    The cost is that of the scenario, with its energy charge in proportion to the measured power of the GPUs where that
    is known; tokens are the observed ones.
    """
    usd, energy, drawn = (predicted[name] for name in ("cost_usd_per_h", "energy_usd_per_h", "gpu_power_w_mean"))
    if usd is None:
        return None, None
    if hour.gpu_power_w_mean and drawn and energy:
        usd += energy * (hour.gpu_power_w_mean / drawn - 1)
    return usd, usd_per_million(usd, hour.output_tokens_per_s)


def usd_per_million(usd_per_h: float | None, tokens_per_s: float | None) -> float | None:
    """Return the cost per million output tokens [USD]; None where a part is not known."""
    return usd_per_h * TOKENS / (tokens_per_s * SECONDS_PER_HOUR) if usd_per_h is not None and tokens_per_s else None
