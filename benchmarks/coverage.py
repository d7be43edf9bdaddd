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
        yield name, truth[name], intervals(truth[name], [(row[name], row[f"{name}_ci95"]) for row in rows])


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
    arguments = parser.parse_args()
    catalog = load_catalog()
    scenario = load(SCENARIO, (), catalog=catalog)
    print("| Figure | true value | mean half-width | intervals that hold it |\n| --- | --- | --- | --- |", flush=True)
    for name, truth, covered in of_run(scenario, catalog, arguments.seeds, arguments.truths):
        print(line(f"`run`: {name}", truth, covered), flush=True)


if __name__ == "__main__":
    main()
