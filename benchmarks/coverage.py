"""Coverage of 95 % intervals over many seeds: `python benchmarks/coverage.py --seeds 200`.

The true value is the mean over many more replications of the same length with other seeds. Prints the tables of
benchmarks/coverage.md; `--only queues` prints batch means of waits in single-server queues, by Lindley's recursion,
whose true values are those of ten million requests.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from horizons import Draw, Floats, exponential, gamma, waits_s

from sim.case.result import CaseResult
from sim.case.run import run_case
from sim.catalogue.catalog import load_catalog
from sim.scenario.reading.load import load
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case
from sim.study.metrics.batch_means import mean_half_width, percentile_half_width
from sim.study.metrics.case_metrics import measure
from sim.study.metrics.columns import ENDS
from sim.study.metrics.statistics import mean, share_interval, wilson
from sim.study.points import summarize

SCENARIO = Path(__file__).parent / "coverage.yaml"
TRUTH_SEED = 1_000_000
METRICS = ("slo_attainment", "ttft_s_mean", "ttft_s_p95", "usd_per_million_output_tokens")
QUEUES: Sequence[tuple[str, Draw, Draw, float]] = (
    ("M/M/1, load 0.5", exponential, exponential, 0.5),
    ("M/M/1, load 0.7", exponential, exponential, 0.7),
    ("M/M/1, load 0.85", exponential, exponential, 0.85),
    ("M/D/1, load 0.7", exponential, lambda _, count: np.ones(count), 0.7),
    ("M/G/1, cv 2, load 0.7", exponential, gamma(2.0), 0.7),
    ("G/G/1 (held out): bursts of cv 2, load 0.8", gamma(2.0), gamma(0.8), 0.8),
    ("M/G/1 (held out): cv 3, load 0.6", exponential, gamma(3.0), 0.6),
)
"""Queues as (name, interarrival times, service times, load); both times have mean 1."""
LENGTHS = (300, 1000, 2400, 6000, 20_000)
"""Numbers of measured requests per run."""
SETTLING = 3000
"""Number of requests before the measured ones."""
TRUE_REQUESTS = 10_000_000
WITHIN = 0.9
"""Fraction of requests within the limit on the wait."""
Covered = list[tuple[bool, float]]
"""Pairs (interval contains the true value, half-width relative to it)."""


def row_of(scenario: Scenario, catalog: Any, seed: int, replications: int) -> dict[str, Any]:
    """Return the row of summary.csv over the replications of one seed."""
    seeded = scenario.model_copy(update={"seed": seed})
    fleet = scenario.fleets[0].name
    cases = []
    for replication in range(replications):
        result = run_case(seeded, Case(fleet, {}, {}, replication), catalog)
        assert isinstance(result, CaseResult)
        cases.append(
            SimpleNamespace(fleet=fleet, axes={}, replication=replication, status="ok", metrics=measure(result))
        )
    return dict(summarize(cases, [], scenario.slo.model_dump(exclude_none=True))[0].row)


def of_run(scenario: Scenario, catalog: Any, seeds: int, truths: int) -> Iterator[tuple[str, float, Covered]]:
    """Yield name, true value and intervals of each metric of `gpufleet run` with the scenario's replications."""
    truth = row_of(scenario, catalog, TRUTH_SEED, truths)
    rows = [row_of(scenario, catalog, seed, scenario.replications) for seed in range(seeds)]
    for name in METRICS:
        yield name, truth[name], [_covers(name, row, truth[name]) for row in rows]


def of_batches(scenario: Scenario, catalog: Any, seeds: int, _truths: int) -> Iterator[tuple[str, float, Covered]]:
    """Yield name, true value and intervals of each metric by batch means, for one run and for two runs of 600 s.

    The true value is the mean of all these runs.
    """
    longer = scenario.model_copy(update={"horizon_s": 600.0})
    for runs in (1, 2):
        rows = [row_of(longer, catalog, seed, runs) for seed in range(seeds)]
        for name in METRICS:
            truth = mean([row[name] for row in rows])
            known = [_covers(name, row, truth) for row in rows if row[f"{name}_ci95"] is not None]
            yield f"{name}, {runs} x 600 s, {len(known)} of {seeds} have one", truth, known


def of_queues(seeds: int) -> Iterator[str]:
    """Yield rows of the table of batch means: fraction of runs with an interval, and coverage of the intervals."""
    for name, gaps, services, per_service in QUEUES:

        def waits(
            seed: int, count: int, gaps: Draw = gaps, serve: Draw = services, rate: float = per_service
        ) -> Floats:
            draw = np.random.default_rng(seed)
            return waits_s(gaps(draw, count) / rate, serve(draw, count))

        endless = waits(TRUTH_SEED, TRUE_REQUESTS)
        limit = float(np.quantile(endless, WITHIN))
        truths = (float(endless.mean()), float(np.percentile(endless, 95)), float((endless <= limit).mean()))
        for count in LENGTHS:
            runs = [waits(seed, SETTLING + count)[SETTLING:] for seed in range(seeds)]
            cells = [_of_waits(runs, kind, limit, truth) for kind, truth in enumerate(truths)]
            yield f"| {name} | {count} | {' | '.join(cells)} |"


def _of_waits(runs: Sequence[Floats], kind: int, limit: float, truth: float) -> str:
    """Return the fraction of *runs* with an interval and its coverage.

    Intervals are those of the mean, the 95th percentile, or the fraction within *limit* of the waits.
    """
    covering = []
    for run in runs:
        within = (run <= limit).astype(float)
        value = (run.mean, lambda run=run: np.percentile(run, 95), within.mean)[kind]()
        half = percentile_half_width(run, 95) if kind == 1 else mean_half_width(within if kind else run)
        if half is None:
            continue
        low, high = (kind == 2 and share_interval(value, half, len(run))) or (value - half, value + half)
        covering.append(low <= truth <= high)
    known = f"{len(covering) / len(runs):.0%}"
    return f"{known}: {mean(covering):.0%}" if covering else known


def _covers(name: str, row: dict[str, Any], truth: float) -> tuple[bool, float]:
    """Return whether the interval of *row* contains *truth*, and its half-width relative to it."""
    half = row[f"{name}_ci95"]
    low, high = (row.get(f"{name}_ci95_{end}") for end in ENDS)
    if low is None or high is None:
        low, high = row[name] - half, row[name] + half
    return low <= truth <= high, half / truth


def intervals(truth: float, found: Sequence[tuple[float, float]]) -> Covered:
    """Return for each (value, half-width) whether it contains *truth*, and its relative half-width."""
    return [(abs(value - truth) <= half, half / truth) for value, half in found]


def line(name: str, truth: float, covered: Covered) -> str:
    """Return a row of the table, with the Wilson interval of the coverage."""
    covering, count = sum(one for one, _ in covered), len(covered)
    low, high = wilson(covering, count)
    width = mean([half for _, half in covered])
    return f"| {name} | {truth:.4g} | ± {width:.1%} | {covering / count:.1%} ({low:.0%} to {high:.0%}) |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--truths", type=int, default=2000, help="Replications that stand for the truth.")
    parser.add_argument("--only", choices=("run", "batches", "queues"), default="")
    arguments = parser.parse_args()
    if arguments.only == "queues":
        head = "| Queue | requests | mean wait | p95 | share within the limit |\n| --- | --- | --- | --- | --- |"
        print(head, flush=True)
        for row in of_queues(arguments.seeds):
            print(row, flush=True)
        return
    catalog = load_catalog()
    scenario = load(SCENARIO, (), catalog=catalog)
    print("| Figure | true value | mean half-width | intervals that hold it |\n| --- | --- | --- | --- |", flush=True)
    for command, of in (("run", of_run), ("batches", of_batches)):
        if arguments.only in ("", command):
            for name, truth, covered in of(scenario, catalog, arguments.seeds, arguments.truths):
                print(line(f"`{command}`: {name}", truth, covered), flush=True)


if __name__ == "__main__":
    main()
