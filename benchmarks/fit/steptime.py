"""Fit of the step time to measured servers, with cross-validation, and update of data/.

    python benchmarks/fit/steptime.py MEASURED                 fit, cross-validation, nothing written
    python benchmarks/fit/steptime.py MEASURED --write data    the same, and the figures into data/
    python benchmarks/fit/steptime.py MEASURED --again data    starts from the figures in data/: half the simulations
    python benchmarks/fit/steptime.py MEASURED --recorded F    keeps the recorded steps in F, or reads them from there
    python benchmarks/fit/steptime.py MEASURED --quick         left-out groups by Gauss-Newton steps (leave_out.py)

benchmarks/fit/README.md describes the method.
"""

import argparse
import csv
import pickle
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
from cores import each
from leave_out import LeaveOut
from observe import Ready, Simulated, compared, fittable, observations, prepare, simulate_row
from parameters import HOSTS, Priors, load_priors
from posterior import Observation, errors, fit
from rows import judged, pair, publisher_of, read_rows, released, stranger, thinned
from rows import simulated as wanted
from stored import stored
from write import write_data

from sim.benchdata import BenchRow
from sim.catalogue.catalog import load_catalog

Theta = dict[str, float]

ROUNDS = 2
"""Number of rounds of simulating and fitting."""
BOOTSTRAPS = 16
FREE_HOST, ROWS_OF_A_HOST = 1.0, 8
"""Prior width of a host's factor for the estimate of the hosts' spread, and observations that a host needs for it."""
GROUPS: dict[str, Callable[[BenchRow], str]] = {
    "pairs": pair,
    "gpus": lambda row: row.gpu,
    "campaigns": publisher_of,
    "strangers": lambda row: "all" if stranger(row) else "",
}
"""Groups that are left out in turn, by kind; rows of the group "" always stay."""
COLUMNS = (
    "scheme", "table", "id", "source_key", "gpu", "family", "engine", "engine_version", "load", "n_gpus",
    "interconnect", "tp", "metric", "measured", "predicted",
)  # fmt: skip


def widths(found: Iterable[Observation], priors: Priors) -> dict[str, float]:
    """Return the prior width of every parameter with a prior that affects the observations."""
    names: set[str] = set()
    for one in found:
        names.update(one.request_names)
        for plain, _ in one.stages.plain:
            names.update(plain)
        for read in one.stages.reads:
            names.update((*read.by, read.diverse))
        for compute, _, weights, _, moved, _ in one.stages.products:
            names.update(compute, weights, moved)
    return {name: priors.width(name) for name in sorted(names) if priors.known(name)}


def fittable_observations(rows: list[Simulated]) -> list[Observation]:
    """Return the observations that are fitted."""
    return [one for one in observations(rows) if fittable(one, rows)]


def fitted(ready: list[Ready], priors: Priors, start: Theta, rounds: int) -> tuple[Theta, Theta, list[Simulated]]:
    """Return theta, the theta of the last simulation, and the rows, after *rounds* of simulating and fitting."""
    at, theta = start, start
    for _ in range(rounds):
        at = theta
        rows = simulated(ready, priors, at)
        theta = refit(rows, priors, at)
    return theta, at, rows


def simulated(ready: list[Ready], priors: Priors, theta: Theta) -> list[Simulated]:
    """Simulate all rows under *theta*."""
    found = each(lambda row: simulate_row(row, priors, theta), ready, chunk=8)
    return [one for one in found if one is not None]


def refit(
    rows: list[Simulated],
    priors: Priors,
    at: Theta,
    keep: Callable[[Observation], bool] = lambda one: True,
    start: Theta | None = None,
) -> Theta:
    """Return theta from rows simulated at *at*; stages are relative to it, so the prior's centre moves to -at."""
    return _moved([one for one in fittable_observations(rows) if keep(one)], priors, at, start)


def _moved(found: list[Observation], priors: Priors, at: Theta, start: Theta | None = None) -> Theta:
    sd = widths(found, priors)
    begin = {name: value - at.get(name, 0.0) for name, value in (start or {}).items()}
    return _shared(fit(found, sd, _centre(sd, at), begin), at)


def _centre(names: Iterable[str], at: Theta) -> Theta:
    """Return the prior's centre relative to *at*, where the rows were simulated."""
    return {name: -at.get(name, 0.0) for name in names}


def _shared(step: Mapping[str, float], at: Theta) -> Theta:
    """Return theta at a *step* from *at*, without hosts' factors, which predictions do not use."""
    return {name: at.get(name, 0.0) + moved for name, moved in step.items() if name.split(":")[0] not in HOSTS}


def host_spread(rows: list[Simulated], priors: Priors, at: Theta) -> float:
    """Return the standard deviation of hosts' factors with a wide prior."""
    found = fittable_observations(rows)
    sd = widths(found, priors)
    counts = Counter(name for one in found for name in hosts_of(one))
    free = sd | {name: FREE_HOST for name in sd if name.split(":")[0] in HOSTS}
    step = fit(found, free, centre=_centre(sd, at))
    return float(np.std([step[name] for name, count in counts.items() if count >= ROWS_OF_A_HOST]))


def hosts_of(one: Observation) -> set[str]:
    """Return the host parameters of the observation."""
    named = {name for names, _ in one.stages.plain for name in names} | set(one.request_names)
    return {name for name in named if name.split(":")[0] == "host"}


def left_out_errors(
    rows: list[Simulated], priors: Priors, at: Theta, theta: Theta, scheme: str, group: Callable[[BenchRow], str]
) -> list[dict[str, object]]:
    """Return every judged row with its steps timed by parameters fitted without the row's group.

    *theta* is the fit to all rows, which is used for groups that are not in the fit.
    """
    groups = sorted({group(rows[one.row].row) for one in observations(rows) if judged(rows[one.row].row)} - {""})
    learnt = {group(rows[one.row].row) for one in fittable_observations(rows)}

    def without(out: str) -> list[dict[str, object]]:
        own = refit(rows, priors, at, lambda one: group(rows[one.row].row) != out, theta) if out in learnt else theta
        return timed_rows(scheme, [one for one in rows if group(one.row) == out], at, own)

    return [line for lines in each(without, groups) for line in lines]


def left_out_quickly(
    rows: list[Simulated], priors: Priors, at: Theta, theta: Theta, scheme: str, group: Callable[[BenchRow], str]
) -> list[dict[str, object]]:
    """Return `left_out_errors` without a fit for each group: in seconds, for trials."""
    found = fittable_observations(rows)
    sd = widths(found, priors)
    start = {name: value - at.get(name, 0.0) for name, value in theta.items()}
    whole = LeaveOut(found, sd, _centre(sd, at), start)
    lines = []
    for out in sorted({group(one.row) for one in rows if judged(one.row)} - {""}):
        own = _shared(whole.theta(np.array([group(rows[one.row].row) == out for one in found])), at)
        lines += timed_rows(scheme, [one for one in rows if judged(one.row) and group(one.row) == out], at, own)
    return lines


def timed_rows(scheme: str, rows: list[Simulated], at: Theta, theta: Theta) -> list[dict[str, object]]:
    """Return a line for each metric of *rows*, whose steps were recorded at *at*, timed with *theta*.

    Parameters that *theta* lacks have their prior value.
    """
    found = [one for one in observations(rows) if judged(rows[one.row].row)]
    if not found:
        return []
    off = errors(found, {name: theta.get(name, 0.0) - at.get(name, 0.0) for name in {**at, **theta}})
    return [_line(scheme, rows[one.row], one.metric, 1 + float(error)) for one, error in zip(found, off, strict=True)]


def compared_rows(scheme: str, one: Simulated) -> list[dict[str, object]]:
    """Return a line for each metric of a row as simulated."""
    return [
        _line(scheme, one, kind, one.metrics[column] / one.row.measured[column])
        for kind, column in compared(one.row, one.saturated)
        if one.metrics.get(column, 0.0) > 0
    ]


def _line(scheme: str, one: Simulated, kind: str, ratio: float) -> dict[str, object]:
    row = one.row
    measured = row.measured[dict(compared(row, one.saturated))[kind]]
    table = "released" if released(row) else "public" if stranger(row) else "measured"
    return dict(zip(COLUMNS, (
        scheme, table, row.id, row.source_key, row.gpu, row.model_family,
        row.engine, row.engine_version, row.load, row.n_gpus, row.interconnect, row.tp, kind,
        measured, measured * ratio,
    ), strict=True))  # fmt: skip


def bootstrap(rows: list[Simulated], priors: Priors, at: Theta) -> dict[str, tuple[float, float]]:
    """Return the 5th and 95th percentile of every theta over refits to pairs drawn with replacement."""
    found = fittable_observations(rows)
    by_pair: dict[str, list[Observation]] = defaultdict(list)
    for one in found:
        by_pair[one.pair].append(one)
    pairs, draw, samples = sorted(by_pair), random.Random(1), defaultdict(list)
    for _ in range(BOOTSTRAPS):
        sample = [one for name in draw.choices(pairs, k=len(pairs)) for one in by_pair[name]]
        moved = _moved(sample, priors, at)
        for name in priors.values:
            if any(one in moved for one in priors.with_common([name])):
                samples[name].append(priors.total(name, moved))
    return {name: (float(np.percentile(v, 5)), float(np.percentile(v, 95))) for name, v in samples.items()}


def summary(results: list[dict[str, object]]) -> str:
    """Return median and 90th percentile of the absolute error over pairs, by metric."""
    errors: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in results:
        error = abs(float(one["predicted"]) / float(one["measured"]) - 1)  # type: ignore[arg-type]
        errors[str(one["metric"])][f"{one['gpu']} {one['family']}"].append(error)
    lines = []
    for metric, pairs in sorted(errors.items()):
        medians = [float(np.median(v)) for v in pairs.values()]
        lines.append(f"{metric} {np.median(medians):6.1%}, p90 {np.percentile(medians, 90):6.1%}, {len(medians)} pairs")
    return "; ".join(lines)


def fitted_rows(arguments: argparse.Namespace, priors: Priors) -> tuple[Theta, Theta, list[Simulated]]:
    """Return `fitted` for all rows, or for previously recorded steps."""
    recorded: Path | None = arguments.recorded
    if recorded and recorded.exists():
        at, rows = pickle.loads(recorded.read_bytes())
        return refit(rows, priors, at), at, rows
    ready, refused = prepare(thinned(read_rows(arguments.measured), wanted), load_catalog())
    print(f"{len(ready)} rows to judge, {sum(refused.values())} not covered", flush=True)
    start, rounds = (stored(priors, arguments.again), 1) if arguments.again else ({}, ROUNDS)
    theta, at, found = fitted(ready, priors, start, rounds)
    if recorded:
        recorded.write_bytes(pickle.dumps((at, found)))
    return theta, at, found


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("measured", type=Path)
    parser.add_argument("--write", type=Path, help="the data/ folder to write the figures into")
    parser.add_argument("--again", type=Path, help="the data/ folder with the figures to go on from")
    parser.add_argument("--errors", type=Path, default=Path("outputs/fit/left_out.csv"))
    parser.add_argument("--no-cv", action="store_true")
    parser.add_argument("--quick", action="store_true", help="left-out groups without a fit for each")
    parser.add_argument("--recorded", type=Path, help="file of recorded steps: written, or read if it is there")
    arguments = parser.parse_args()
    priors = load_priors()
    theta, at, rows = fitted_rows(arguments, priors)
    results = timed_rows("in-sample", rows, at, theta)
    print("in-sample:", summary(results), flush=True)
    ranges = bootstrap(rows, priors, at)
    spread = host_spread(rows, priors, at)
    print(f"hosts: standard deviation of the logarithm {spread:.2f}", flush=True)
    for name in sorted(ranges):
        low, high = (priors.value(name, {name: t}) for t in ranges[name])
        value = priors.value(name, theta)
        print(f"  {name:36s} prior {priors.values[name]:.4g}  fitted {value:.4g}  {low:.4g} {high:.4g}")
    if arguments.write:
        write_data(arguments.write, priors, theta, ranges, spread)
    if not arguments.no_cv:
        for scheme, group in GROUPS.items():
            errors_of = left_out_quickly if arguments.quick else left_out_errors
            found = errors_of(rows, priors, at, theta, scheme, group)
            print(f"left out {scheme}:", summary(found), flush=True)
            results += found
    arguments.errors.parent.mkdir(parents=True, exist_ok=True)
    with arguments.errors.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(results)


if __name__ == "__main__":
    main()
