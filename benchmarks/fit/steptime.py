"""Fits the step time to measured servers, judges it on left-out groups, and writes the figures into data/.

    python benchmarks/fit/steptime.py MEASURED                 fit, cross-validation, nothing written
    python benchmarks/fit/steptime.py MEASURED --write data    the same, and the figures into data/

The method is in benchmarks/fit/README.md.
"""

import argparse
import csv
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from observe import Ready, Simulated, compared, fittable, observations, prepare, simulate_row
from parameters import Priors, load_priors
from posterior import Observation, fit
from rows import judged, pair, read_rows, thinned
from write import write_data

from sim.catalogue.catalog import load_catalog

Theta = dict[str, float]

ROUNDS = 2
"""Simulate, fit, simulate with the result, fit again."""
PAIR_FOLDS = 8
BOOTSTRAPS = 16
COLUMNS = (
    "scheme", "id", "source_key", "gpu", "family", "engine", "engine_version", "load", "n_gpus", "interconnect",
    "tp", "metric", "measured", "predicted",
)  # fmt: skip


def widths(found: Iterable[Observation], priors: Priors) -> dict[str, float]:
    """Prior width of every parameter that the observations touch and that has a prior."""
    names: set[str] = set()
    for one in found:
        names.update(one.request_names)
        for plain, _ in one.stages.plain:
            names.update(plain)
        for compute, _, weights, _, moved, _ in one.stages.products:
            names.update(compute, weights, moved)
    return {name: priors.width(name) for name in sorted(names) if priors.known(name)}


def fitted(ready: list[Ready], priors: Priors) -> tuple[Theta, list[Simulated]]:
    """(theta, the rows simulated with it), after ROUNDS of simulating and fitting."""
    theta: Theta = {}
    for _ in range(ROUNDS):
        rows = simulated(ready, priors, theta)
        theta = refit(rows, priors, theta)
    return theta, simulated(ready, priors, theta)


def simulated(ready: list[Ready], priors: Priors, theta: Theta) -> list[Simulated]:
    """All rows under *theta*."""
    return [one for one in (simulate_row(row, priors, theta) for row in ready) if one is not None]


def refit(
    rows: list[Simulated], priors: Priors, at: Theta, keep: Callable[[Observation], bool] = lambda one: True
) -> Theta:
    """Theta from rows simulated at *at*; the stages are shifted, so the prior's centre moves to -at."""
    found = [one for one in observations(rows) if fittable(one, rows) and keep(one)]
    return _moved(found, priors, at)


def _moved(found: list[Observation], priors: Priors, at: Theta) -> Theta:
    sd = widths(found, priors)
    step = fit(found, sd, centre={name: -at.get(name, 0.0) for name in sd})
    return {name: at.get(name, 0.0) + step[name] for name in sd}


def left_out_errors(
    ready: list[Ready], rows: list[Simulated], priors: Priors, theta: Theta, scheme: str, group: Callable[[Ready], str]
) -> list[dict[str, object]]:
    """Every judged row simulated by gpufleet with parameters that were fitted without the row's group."""
    groups = sorted({group(one) for one in ready})
    random.Random(0).shuffle(groups)
    folds = len(groups) if scheme == "gpus" else PAIR_FOLDS
    results = []
    for fold in range(folds):
        out = set(groups[fold::folds])
        by_pair = {pair(one.row) for one in ready if group(one) in out}
        inside = by_pair if scheme == "pairs" else {pair(o.row) for o in ready if o.row.gpu in out}
        theta_without = refit(rows, priors, theta, lambda one, inside=inside: one.pair not in inside)  # type: ignore[misc]
        for one in ready:
            if group(one) in out:
                results += compared_rows(scheme, simulate_row(one, priors, theta_without))
    return results


def compared_rows(scheme: str, one: Simulated | None) -> list[dict[str, object]]:
    """One line for each metric of a row."""
    if one is None:
        return []
    row = one.row
    return [
        dict(zip(COLUMNS, (
            scheme, row.id, row.source_key, row.gpu, row.model_family, row.engine, row.engine_version, row.load,
            row.n_gpus, row.interconnect, row.tp, kind, row.measured[column], one.metrics[column],
        ), strict=True))
        for kind, column in compared(row, one.saturated)
        if one.metrics.get(column, 0.0) > 0
    ]  # fmt: skip


def bootstrap(rows: list[Simulated], priors: Priors, theta: Theta) -> dict[str, tuple[float, float]]:
    """5th and 95th percentile of every theta over refits to pairs drawn with replacement."""
    found = [one for one in observations(rows) if fittable(one, rows)]
    by_pair: dict[str, list[Observation]] = defaultdict(list)
    for one in found:
        by_pair[one.pair].append(one)
    pairs, draw, samples = sorted(by_pair), random.Random(1), defaultdict(list)
    for _ in range(BOOTSTRAPS):
        sample = [one for name in draw.choices(pairs, k=len(pairs)) for one in by_pair[name]]
        for name, value in _moved(sample, priors, theta).items():
            samples[name].append(value)
    return {name: (float(np.percentile(v, 5)), float(np.percentile(v, 95))) for name, v in samples.items()}


def summary(results: list[dict[str, object]]) -> str:
    """Median and 90th percentile of |error| over pairs, by metric."""
    errors: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in results:
        error = abs(float(one["predicted"]) / float(one["measured"]) - 1)  # type: ignore[arg-type]
        errors[str(one["metric"])][f"{one['gpu']} {one['family']}"].append(error)
    lines = []
    for metric, pairs in sorted(errors.items()):
        medians = [float(np.median(v)) for v in pairs.values()]
        lines.append(f"{metric} {np.median(medians):6.1%}, p90 {np.percentile(medians, 90):6.1%}, {len(medians)} pairs")
    return "; ".join(lines)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("measured", type=Path)
    parser.add_argument("--write", type=Path, help="the data/ folder to write the figures into")
    parser.add_argument("--errors", type=Path, default=Path("outputs/fit/left_out.csv"))
    parser.add_argument("--no-cv", action="store_true")
    arguments = parser.parse_args()
    catalog, priors = load_catalog(), load_priors()
    ready, refused = prepare(thinned(read_rows(arguments.measured), judged), catalog)
    print(f"{len(ready)} rows to judge, {sum(refused.values())} not covered", flush=True)
    theta, rows = fitted(ready, priors)
    results = [line for one in rows for line in compared_rows("in-sample", one)]
    print("in-sample:", summary(results), flush=True)
    ranges = bootstrap(rows, priors, theta)
    for name in sorted(theta):
        low, high = (priors.value(name, {name: t}) for t in ranges.get(name, (theta[name], theta[name])))
        value = priors.value(name, theta)
        print(f"  {name:36s} prior {priors.values[name]:.4g}  fitted {value:.4g}  {low:.4g} {high:.4g}")
    if arguments.write:
        write_data(arguments.write, priors, theta, ranges)
    if not arguments.no_cv:
        for scheme, group in (("pairs", lambda one: pair(one.row)), ("gpus", lambda one: one.row.gpu)):
            found = left_out_errors(ready, rows, priors, theta, scheme, group)
            print(f"left out {scheme}:", summary(found), flush=True)
            results += found
    arguments.errors.parent.mkdir(parents=True, exist_ok=True)
    with arguments.errors.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(results)


if __name__ == "__main__":
    main()
