"""Calibration on some loads of a server, judged on others: what it is worth on machines that were really measured.

    PYTHONPATH=. python benchmarks/other_loads.py serving.csv [--groups 12]

A group is what one campaign measured of one model on one machine at four closed loops or more. `calibrate` is fitted to
one of them, and to two; two others are judged. Of each campaign so many groups take part, drawn with a fixed seed.
"""

import argparse
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

from sim.benchdata import BenchRow, read_benchmarks
from sim.catalogue.catalog import Catalog, load_catalog
from sim.steptime import Calibration
from sim.study.fidelity.calibrate.factors import NothingToFit, calibrate
from sim.study.fidelity.calibrate.runs import adjusted
from sim.study.fidelity.validate.predict import prepared, simulate

JUDGED = {"TPOT": ("tpot_mean_ms", "tpot_p50_ms"), "TTFT": ("ttft_mean_ms", "ttft_p50_ms")}
MOST_CLIENTS, LONGEST_PROMPT, LONGEST_ANSWER = 64, 4200, 1100
"""Runs that are simulated in a second."""
WAVES = 3
SEED = 3


def groups(path: Path) -> dict[str, list[list[BenchRow]]]:
    """By campaign: machines with four loads or more, the fewest clients first."""
    found: dict[tuple[object, ...], dict[int, BenchRow]] = defaultdict(dict)
    for row in read_benchmarks(path):
        fits = (row.isl or 0) <= LONGEST_PROMPT and (row.osl or 0) <= LONGEST_ANSWER and row.trust != "C"
        timed = any(name in row.measured for name in JUDGED["TPOT"])
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


def errors(rows: list[BenchRow], catalog: Catalog, fitted: Calibration | None) -> list[float]:
    """Mean |error| of each quantity over *rows*."""
    found = []
    for row in rows:
        with prepared(row, catalog) as ready:
            told = simulate(ready, adjusted(fitted) if fitted else None).metrics
        columns = [next((one for one in names if one in row.measured and one in told), "") for names in JUDGED.values()]
        found.append([abs(told[one] / row.measured[one] - 1) if one else np.nan for one in columns])
    return [float(one) for one in np.nanmean(np.array(found), axis=0)]


def main() -> None:
    """Fits, judges and prints means and medians over groups."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("measured", type=Path)
    parser.add_argument("--groups", type=int, default=12)
    given = parser.parse_args()
    catalog, generator = load_catalog(), np.random.default_rng(SEED)
    told: dict[str, list[list[float]]] = defaultdict(list)
    for campaign, members in sorted(groups(given.measured).items()):
        for place in generator.permutation(len(members))[: given.groups]:
            loads = members[place]
            fitted, judged = [loads[0], loads[2]], [loads[1], loads[3]]
            try:
                gpu = catalog.gpu(loads[0].gpu).id
                made = {"one": calibrate(fitted[1:], gpu, catalog, 1), "two": calibrate(fitted, gpu, catalog, 1)}
            except (NothingToFit, ValueError) as error:
                print(f"left out: {campaign} {loads[0].gpu} {loads[0].model}: {str(error).splitlines()[-1]}")
                continue
            told["none"].append(errors(judged, catalog, None))
            for name, one in made.items():
                told[name].append(errors(judged, catalog, one.calibration))
    for name, found in told.items():
        means, medians = (100 * of(np.array(found), axis=0) for of in (np.nanmean, np.nanmedian))
        figures = ", ".join(f"{what} {means[i]:.1f} % (median {medians[i]:.1f} %)" for i, what in enumerate(JUDGED))
        print(f"calibrated on {name} load(s), {len(found)} groups: {figures}")


if __name__ == "__main__":
    main()
