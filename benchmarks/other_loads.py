"""Accuracy of a calibration at loads that it was not fitted to, on measured servers.

    PYTHONPATH=. python benchmarks/other_loads.py serving.csv [--groups 12] [--write outputs/fit/other_loads.csv]

A group contains the measurements of one model on one server by one campaign at four closed loops or more. `calibrate`
is fitted to one of them, and to two; two others are predicted. The groups of each campaign are drawn with a fixed
seed. benchmarks/fit/intervals.py derives the intervals of calibrated servers from the written file.
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sim.benchdata import BenchRow, read_benchmarks
from sim.catalogue.catalog import Catalog, load_catalog
from sim.fidelity.calibration import NothingToFit, calibrate
from sim.fidelity.fit import adjusted
from sim.fidelity.prediction import Prediction, prepared, simulate
from sim.steptime.calibration import Calibration

JUDGED = {
    "throughput": ("output_tok_s", "total_tok_s", "req_s"),
    "tpot": ("tpot_mean_ms", "tpot_p50_ms"),
    "ttft": ("ttft_mean_ms", "ttft_p50_ms"),
}
MOST_CLIENTS, LONGEST_PROMPT, LONGEST_ANSWER = 64, 4200, 1100
"""Limits of runs that are simulated within a second: clients, prompt and answer [tokens]."""
WAVES = 3
SEED = 3


def groups(path: Path) -> dict[str, list[list[BenchRow]]]:
    """Return the servers with four loads or more, keyed by campaign; loads with fewer clients first."""
    found: dict[tuple[object, ...], dict[int, BenchRow]] = defaultdict(dict)
    for row in read_benchmarks(path):
        fits = (row.isl or 0) <= LONGEST_PROMPT and (row.osl or 0) <= LONGEST_ANSWER and row.trust != "C"
        timed = any(name in row.measured for name in (*JUDGED["throughput"], *JUDGED["tpot"]))
        if not (row.load == "closed_loop" and fits and timed) or row.use == "own_class" or row.spec_decode:
            continue
        clients = row.concurrency or 1
        if clients <= MOST_CLIENTS:
            machine = (row.gpu, row.n_gpus, row.tp, row.model, row.precision, row.engine, row.engine_version)
            few = min(row.num_requests or WAVES * clients + 8, WAVES * clients + 8)
            found[row.source_key, *machine, row.isl, row.osl][clients] = replace(row, num_requests=few)
    campaigns: dict[str, list[list[BenchRow]]] = defaultdict(list)
    for key, loads in found.items():
        if len(loads) > 3:
            campaigns[str(key[0])].append([loads[clients] for clients in sorted(loads)])
    return campaigns


@dataclass(frozen=True, slots=True)
class Judged:
    """Predicted quantity of a load that the calibration was not fitted to."""

    calibrated_on: int
    """Number of loads of the calibration; 0: not calibrated."""
    metric: str
    gpu: str
    family: str
    campaign: str
    measured_over_predicted: float

    @property
    def error(self) -> float:
        """Absolute relative error of the prediction."""
        return abs(1 / self.measured_over_predicted - 1)


def judged(rows: list[BenchRow], catalog: Catalog, fitted: Calibration | None, loads: int) -> Iterator[Judged]:
    """Yield each quantity of *rows*, predicted with the calibration *fitted* to *loads* loads."""
    for row in rows:
        with prepared(row, catalog) as ready:
            told = simulate(ready, adjusted(fitted) if fitted else None)
        ratios = {metric: _ratio(names, row, told) for metric, names in JUDGED.items()}
        if ratios["throughput"] is None and (served := _served_ratio(row, told)):
            ratios["throughput"] = 1 / served
        for metric, ratio in ratios.items():
            if ratio is not None and not (metric == "ttft" and (told.saturated or told.cold_start)):
                yield Judged(loads, metric, told.gpu, told.family, row.source_key, ratio)


def _ratio(names: tuple[str, ...], row: BenchRow, told: Prediction) -> float | None:
    """Return measured / predicted of the first of *names* that both have."""
    column = next((one for one in names if row.measured.get(one) and told.metrics.get(one)), None)
    return row.measured[column] / told.metrics[column] if column else None


def _served_ratio(row: BenchRow, told: Prediction) -> float | None:
    """Return measured / predicted time of a request; a closed loop's throughput is its inverse."""
    means = "ttft_mean_ms", "tpot_mean_ms"
    if row.osl is None or not all(row.measured.get(one) and told.metrics.get(one) for one in means):
        return None
    measured_ms, predicted_ms = (of[means[0]] + (row.osl - 1) * of[means[1]] for of in (row.measured, told.metrics))
    return measured_ms / predicted_ms


def main() -> None:
    """Calibrate, predict, print means and medians over groups, and write each quantity."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("measured", type=Path)
    parser.add_argument("--groups", type=int, default=12)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    catalog, generator = load_catalog(), np.random.default_rng(SEED)
    by_group: list[list[Judged]] = []
    for campaign, members in sorted(groups(given.measured).items()):
        for place in generator.permutation(len(members))[: given.groups]:
            loads = members[place]
            fitted, others = [loads[0], loads[2]], [loads[1], loads[3]]
            try:
                gpu = catalog.gpu(loads[0].gpu).id
                made = [calibrate(some, gpu, catalog, 1).calibration for some in (fitted[1:], fitted)]
            except (NothingToFit, ValueError) as error:
                print(f"left out: {campaign} {loads[0].gpu} {loads[0].model}: {str(error).splitlines()[-1]}")
                continue
            found = [one for count, fit in enumerate([None, *made]) for one in judged(others, catalog, fit, count)]
            by_group.append(found)
    show(by_group)
    if given.write:
        write(given.write, by_group)


def show(by_group: list[list[Judged]]) -> None:
    """Print mean and median over groups of each group's mean error."""
    for count in range(3):
        figures = []
        for metric in JUDGED:
            chosen = (
                [one.error for one in found if (one.calibrated_on, one.metric) == (count, metric)] for found in by_group
            )
            means = [float(np.mean(found)) for found in chosen if found]
            figures.append(f"{metric} {np.mean(means):.1%} (median {np.median(means):.1%}, {len(means)} groups)")
        print(f"calibrated on {count} load(s): {', '.join(figures)}")


def write(path: Path, by_group: list[list[Judged]]) -> None:
    """Write a line per quantity."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(fields := Judged.__match_args__)
        writer.writerows([getattr(one, name) for name in fields] for found in by_group for one in found)


if __name__ == "__main__":
    main()
