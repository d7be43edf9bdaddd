"""How often 95 % intervals hold the true value, over many seeds: `python benchmarks/coverage.py --seeds 200`.

The true value is the mean over many more replications of the same length, with seeds of their own. Prints the table of
docs/statistics.md.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sim.case import CaseResult, run_case
from sim.catalogue.catalog import load_catalog
from sim.scenario.reading.load import load
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case
from sim.study.fleets.run.summary import summarize
from sim.study.metrics.case_metrics import measure
from sim.study.metrics.columns import ENDS
from sim.study.metrics.statistics import mean, wilson

SCENARIO = Path(__file__).parent / "coverage.yaml"
TRUTH_SEED = 1_000_000
METRICS = ("slo_attainment", "ttft_s_mean", "ttft_s_p95", "usd_per_million_output_tokens")
Covered = list[tuple[bool, float]]
"""Whether an interval held the truth, and its half-width over the truth."""


def row_of(scenario: Scenario, catalog: Any, seed: int, replications: int) -> dict[str, Any]:
    """summary.csv's row over the replications of one seed."""
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
    """Name, truth and intervals of each metric of `run` with the scenario's replications."""
    truth = row_of(scenario, catalog, TRUTH_SEED, truths)
    rows = [row_of(scenario, catalog, seed, scenario.replications) for seed in range(seeds)]
    for name in METRICS:
        yield name, truth[name], [_held(name, row, truth[name]) for row in rows]


def of_batches(scenario: Scenario, catalog: Any, seeds: int, _truths: int) -> Iterator[tuple[str, float, Covered]]:
    """The same of one run and of two of 600 s, by batch means; the truth is the mean of all these runs."""
    longer = scenario.model_copy(update={"horizon_s": 600.0})
    for runs in (1, 2):
        rows = [row_of(longer, catalog, seed, runs) for seed in range(seeds)]
        for name in METRICS:
            truth = mean([row[name] for row in rows])
            known = [_held(name, row, truth) for row in rows if row[f"{name}_ci95"] is not None]
            yield f"{name}, {runs} x 600 s, {len(known)} of {seeds} have one", truth, known


def _held(name: str, row: dict[str, Any], truth: float) -> tuple[bool, float]:
    """Whether the interval of *row* holds the *truth*, and its half-width over the truth."""
    half = row[f"{name}_ci95"]
    low, high = (row.get(f"{name}_ci95_{end}") for end in ENDS)
    if low is None or high is None:
        low, high = row[name] - half, row[name] + half
    return low <= truth <= high, half / truth


def intervals(truth: float, found: Sequence[tuple[float, float]]) -> Covered:
    """Whether each (value, half-width) holds the *truth*."""
    return [(abs(value - truth) <= half, half / truth) for value, half in found]


def line(name: str, truth: float, covered: Covered) -> str:
    """A row of the table, with the Wilson interval of the share."""
    held, count = sum(one for one, _ in covered), len(covered)
    low, high = wilson(held, count)
    width = mean([half for _, half in covered])
    return f"| {name} | {truth:.4g} | ± {width:.1%} | {held / count:.1%} ({low:.0%} to {high:.0%}) |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--truths", type=int, default=2000, help="Replications that stand for the truth.")
    parser.add_argument("--only", choices=("run", "batches"), default="")
    arguments = parser.parse_args()
    catalog = load_catalog()
    scenario = load(SCENARIO, (), catalog=catalog)
    print("| Figure | true value | mean half-width | intervals that hold it |\n| --- | --- | --- | --- |", flush=True)
    for command, of in (("run", of_run), ("batches", of_batches)):
        if arguments.only in ("", command):
            for name, truth, covered in of(scenario, catalog, arguments.seeds, arguments.truths):
                print(line(f"`{command}`: {name}", truth, covered), flush=True)


if __name__ == "__main__":
    main()
