"""Coverage of the interval of `capacity` for the long-run capacity, by horizon.

`python benchmarks/horizons.py` searches as `capacity` does, but simulates single-server queues by a recursion, so that
five hundred searches take a minute; `--engine` searches the fleets of horizons.yaml with the engine itself. Both print
a table of benchmarks/coverage.md.

Source: D. V. Lindley, "The theory of queues with a single server", Mathematical Proceedings of the Cambridge
Philosophical Society 48(2), 1952 (the wait of a request from that of the request before it).
"""

import argparse
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.catalogue.catalog import load_catalog
from sim.scenario.reading.load import load
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.sections.precision import FIRST_REPLICATIONS, MOST_OF_CAPACITY, Precision
from sim.scenario.sweep import Case
from sim.study import capacity
from sim.study.capacity import FleetCapacity, capacities
from sim.study.execution.cores import ProcessPool
from sim.study.metrics.case_metrics import CaseMetrics
from sim.study.metrics.overload import overloaded, queue_growth
from sim.study.metrics.statistics import mean, wilson

FLEETS = Path(__file__).parent / "horizons.yaml"
HORIZONS_S = (60.0, 300.0, 1800.0)
TRUTH_SEED = 1_000_000
BRACKET = 0.05
"""Relative width of the last bracket of a search."""
LONG_RUN_S, LONG_RUNS = 20_000.0, 6
"""Horizon and number of the engine's runs whose mean capacity approximates the long-run capacity."""
LONG_QUEUE = 4_000_000
"""Number of requests whose fraction within the limit approximates the long run."""

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats]


class Queue(NamedTuple):
    """Single-server queue with a mean service time of one second."""

    name: str
    gaps: Draw
    """Interarrival times with mean 1."""
    services: Draw
    limit_s: float
    """Limit on the wait [s]."""
    attainment: float = 0.95


def exponential(draw: np.random.Generator, count: int) -> Floats:
    """Return *count* exponential times of mean 1."""
    return draw.exponential(1.0, count)


def gamma(cv: float) -> Draw:
    """Return a function that draws gamma times of mean 1 and this coefficient of variation."""
    return lambda draw, count: draw.gamma(cv**-2, cv**2, count)


QUEUES = (
    Queue("M/M/1, wait of 3 services", exponential, exponential, 3.0),
    Queue("M/D/1, wait of 6 services", exponential, lambda _, count: np.ones(count), 6.0),
    Queue("M/G/1, cv 2, wait of 20 services", exponential, gamma(2.0), 20.0),
    Queue("G/G/1 (held out): bursts of cv 2, wait of 10 services, p90", gamma(2.0), gamma(0.8), 10.0, 0.9),
)


def waits_s(gaps_s: Floats, services_s: Floats) -> Floats:
    """Return the wait of every request, by Lindley's recursion: W' = max(0, W + S - T)."""
    sums = np.concatenate([[0.0], np.cumsum(services_s[:-1] - gaps_s[1:])])
    return np.asarray(sums - np.minimum.accumulate(sums))


def long_run_rps(queue: Queue) -> float:
    """Return the highest rate at which a very long run meets the limit [1/s]."""
    draw = np.random.default_rng(TRUTH_SEED)
    gaps, services = queue.gaps(draw, LONG_QUEUE), queue.services(draw, LONG_QUEUE)
    low, high = 0.0, 1.0
    while high - low > 1e-4:
        rate = (low + high) / 2
        good = float((waits_s(gaps / rate, services) <= queue.limit_s).mean()) >= queue.attainment
        low, high = (rate, high) if good else (low, rate)
    return low


def simulate(queue: Queue, scenario: Scenario, case: Case) -> Any:
    """Return the parts of a stored case that a search reads: arrivals until the horizon, then the queue drains."""
    rate, end_s = float(case.axes["rate_rps"]), float(scenario.horizon_s or 0.0)
    draw = np.random.default_rng([scenario.seed, case.replication])
    most = int(4 * rate * end_s + 1000)
    of_gaps, of_services = draw.spawn(2)
    arrived_s = np.cumsum(queue.gaps(of_gaps, most)) / rate
    arrived_s = arrived_s[arrived_s < end_s]
    count = len(arrived_s)
    services_s = queue.services(of_services, count)
    waited_s = waits_s(np.diff(arrived_s, prepend=0.0), services_s) if count else arrived_s
    start_s = float(scenario.warmup_s) if scenario.warmup_s != "auto" else 0.0
    measured = arrived_s >= start_s
    growth = queue_growth(arrived_s, arrived_s + waited_s, arrived_s + waited_s + services_s, start_s, end_s)
    good = (waited_s <= queue.limit_s)[measured]
    over = overloaded([growth.requests], [growth.waiting], [len(good)], [growth.certain])
    figures = {
        "requests": len(good),
        "slo_attainment": float(good.mean()) if len(good) else None,
        "overloaded": over,
        "queue_growth": growth.requests,
        "waiting_growth": growth.waiting,
        "late_growth": growth.late,
        "late_growth_error": growth.late_error,
    }
    return SimpleNamespace(
        axes=case.axes, status="ok", reason="", metrics=CaseMetrics(figures), replication=case.replication
    )


def searched(queue: Queue, scenario: Scenario) -> FleetCapacity:
    """Search as `capacity` does, with the queue as the simulation."""

    def side_by_side(searches: Iterable[Any], at: Scenario, *_: Any) -> Iterator[Any]:
        for steps in searches:
            case = next(steps)
            while True:
                try:
                    case = steps.send(simulate(queue, at, case))
                except StopIteration as end:
                    yield end.value
                    break

    with_engine = capacity._side_by_side
    capacity._side_by_side = side_by_side  # type: ignore[assignment]
    try:
        with tempfile.TemporaryDirectory() as folder, ProcessPool(1) as workplace:
            precision = Precision(max_replications=MOST_OF_CAPACITY)
            (one,) = capacities(scenario, load_catalog(), Path(folder), workplace, BRACKET, precision=precision)
    finally:
        capacity._side_by_side = with_engine
    return one


def scenario_of(queue: Queue, seed: int, horizon_s: float) -> Scenario:
    """Return a scenario with the service level of *queue*; its fleet is never simulated."""
    update = {"seed": seed, "horizon_s": horizon_s, "warmup_s": horizon_s / 10}
    plain = load(FLEETS, (f"slo={{ttft_s: {queue.limit_s}, attainment: {queue.attainment}}}",), catalog=load_catalog())
    return plain.model_copy(update=update | {"fleets": plain.fleets[:1], "replications": FIRST_REPLICATIONS})


def of_queues(seeds: int) -> Iterator[tuple[str, float, Sequence[FleetCapacity]]]:
    """Yield name, long-run capacity and capacities of all seeds for each queue and horizon."""
    for queue in QUEUES:
        truth = long_run_rps(queue)
        for horizon_s in HORIZONS_S:
            yield (
                f"{queue.name} | {horizon_s:g}",
                truth,
                [searched(queue, scenario_of(queue, s, horizon_s)) for s in range(seeds)],
            )


def of_engine(seeds: int) -> Iterator[tuple[str, float, Sequence[FleetCapacity]]]:
    """Yield name, long-run capacity and capacities of all seeds for each fleet of horizons.yaml and horizon."""
    catalog = load_catalog()
    scenario = load(FLEETS, (), catalog=catalog)

    def found(
        seed: int, horizon_s: float, fleet: Fleet, precision: Precision, runs: int = FIRST_REPLICATIONS
    ) -> FleetCapacity:
        update = {"seed": seed, "horizon_s": horizon_s, "warmup_s": horizon_s / 10, "replications": runs}
        alone = scenario.model_copy(update=update | {"fleets": (fleet,)})
        with tempfile.TemporaryDirectory() as folder, ProcessPool(1) as workplace:
            (one,) = capacities(alone, catalog, Path(folder), workplace, BRACKET, precision=precision)
        return one

    for fleet in scenario.fleets:
        endless = Precision(relative=0.5, max_horizon_s=LONG_RUN_S)
        truth = found(TRUTH_SEED, LONG_RUN_S, fleet, endless, LONG_RUNS).mean
        for horizon_s in HORIZONS_S:
            usual = Precision(max_replications=MOST_OF_CAPACITY)
            yield f"{fleet.name} | {horizon_s:g}", truth, [found(s, horizon_s, fleet, usual) for s in range(seeds)]


def covering(truth: float, every: Sequence[FleetCapacity]) -> int:
    """Return the number of intervals that contain *truth*."""
    return sum(abs(one.mean - truth) <= (one.half_width or 0.0) for one in every)


def line(name: str, truth: float, every: Sequence[FleetCapacity]) -> str:
    """Return a row of the table."""
    count = covering(truth, every)
    low, high = wilson(count, len(every))
    width = mean([(one.half_width or 0.0) / truth for one in every])
    longer_s = mean([one.horizon_s or 0.0 for one in every])
    average = mean([one.mean for one in every])
    cells = f"{truth:.3f} | {average:.3f} | ± {width:.1%} | {longer_s:.0f}"
    return f"| {name} | {cells} | {count} of {len(every)} ({low:.0%} to {high:.0%}) |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--engine", action="store_true", help="Simulate the fleets of horizons.yaml.")
    arguments = parser.parse_args()
    print("| What | `horizon_s` | long-run capacity | mean | half-width | lengthened to [s] | held |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for row in (of_engine if arguments.engine else of_queues)(arguments.seeds):
        print(line(*row), flush=True)


if __name__ == "__main__":
    main()
