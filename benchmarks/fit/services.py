"""Fit of the batch time of services to MLPerf results, with cross-validation, and update of data/.

    python benchmarks/fit/services.py MEASURED                 fit and cross-validation, nothing written
    python benchmarks/fit/services.py MEASURED --write data    the same, and the figures into data/
    python benchmarks/fit/services.py MEASURED --picture PNG   and predicted against measured, pairs left out

An observation is the median of the rows of one accelerator, benchmark, scenario and power setting. Parameters are
logarithms with a prior; the fit is Gauss-Newton on the posterior with residuals above 16 % limited (Huber). The
cross-validation leaves out all rows of a pair of accelerator and model together, bert-99 with bert-99.9.
"""

import argparse
import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import log
from pathlib import Path

import numpy as np
from services_out import draw, write_data

from sim.batchtime.roofline import ServiceFactors, batch_time_s, speed_of, work_of
from sim.benchdata.mlperf import read_mlperf
from sim.catalogue.catalog import load_catalog
from sim.fidelity.services import ServiceCase, ServiceNotCovered, case_of, load_benchmarks, metrics_of

Theta = dict[str, float]

PRIORS: dict[str, tuple[float, float]] = {
    "compute": (log(0.4), 0.5),
    "traffic": (0.0, 0.5),
    "kernels": (0.0, 0.7),
    "arch": (0.0, 0.25),
    "gpu": (0.0, 0.10),
    "server": (log(0.92), 0.10),
    "launch": (log(3e-6), 1.0),
    "wave": (0.0, 1.0),
    "power": (log(0.3), 0.5),
    "slice": (log(1.1), 0.1),
    "memory": (log(0.85), 0.05),
    "capped": (log(0.8), 0.3),
}
"""Mean and standard deviation of log parameters, keyed by the part of the name before the colon."""
NOISE, CUT, ITERATIONS, STEP, FOLDS = 0.08, 0.16, 8, 1e-3, 10


@dataclass(frozen=True)
class Observation:
    """Measured value with the parameters on which its prediction depends."""

    case: ServiceCase
    metric: str
    log_seconds: float
    rows: int
    names: tuple[str, ...]

    @property
    def pair(self) -> tuple[str, str]:
        """Accelerator and model."""
        return f"{self.case.accelerator.gpu.id}/{self.case.accelerator.profile or ''}", self.case.model.id


def observations(measured: Path) -> list[Observation]:
    """Return the medians of the rows of MEASURED/mlperf.csv that name services."""
    catalog, benchmarks = load_catalog(), load_benchmarks(Path("data/mlperf.yaml"))
    groups: dict[tuple[str, ...], list[tuple[ServiceCase, str, float]]] = defaultdict(list)
    for row in read_mlperf(measured / "mlperf.csv"):
        try:
            case = case_of(row, catalog, benchmarks)
        except ServiceNotCovered:
            continue
        metric = "samples_s" if row.scenario in ("offline", "server") else "mean_latency_ms"
        if metric in row.measured:
            value = row.measured[metric]
            seconds = case.units / value if metric == "samples_s" else 1e-3 * value
            gpu = f"{case.accelerator.gpu.id}/{case.accelerator.profile or ''}"
            groups[gpu, row.benchmark, row.scenario, str(row.power_limited)].append((case, metric, seconds))
    found = []
    for _, members in sorted(groups.items()):
        case, metric, _ = members[0]
        seconds = float(np.median([one[2] for one in members]))
        found.append(Observation(case, metric, log(seconds), len(members), names_of(case)))
    return found


def names_of(case: ServiceCase) -> tuple[str, ...]:
    """Return the parameters on which the prediction of *case* depends."""
    service = [f"{what}:{case.model.id}" for what in ("compute", "traffic", "kernels")]
    card = [f"arch:{case.device.architecture}", f"gpu:{case.device.gpu}"]
    rest = ["launch", "wave", "power", "memory"]
    rest += [f"server:{case.row.benchmark}"] if case.row.scenario == "server" else []
    rest += ["slice"] if case.device.alone else []
    rest += ["capped"] if case.row.power_limited else []
    return (*service, *card, *rest)


def value(theta: Theta, name: str) -> float:
    """Return a parameter, or its prior mean if it was not fitted."""
    return float(np.exp(theta.get(name, PRIORS[name.partition(":")[0]][0])))


def predicted(one: Observation, theta: Theta) -> float:
    """Return the logarithm of the predicted time: per sample and device, or of a query [s]."""
    case = one.case
    factors = ServiceFactors(
        compute=value(theta, one.names[0]) * value(theta, one.names[3]) * value(theta, one.names[4]),
        memory=value(theta, "memory"),
        traffic=value(theta, one.names[1]),
        kernels=value(theta, one.names[2]),
        launch_s=value(theta, "launch"),
        wave=value(theta, "wave"),
        power_exponent=value(theta, "power"),
        slice_speed=value(theta, "slice"),
    )
    speed = speed_of(case.device, factors)
    slow = 1 / value(theta, "capped") if case.row.power_limited else 1.0
    one_unit = replace(case, row=replace(case.row, n_accelerators=1), accelerator=replace(case.accelerator, slices=0))

    def time_s(samples: float) -> float:
        return slow * batch_time_s(work_of(case.model, case.device.precision, samples * case.benchmark.samples), speed)

    share = value(theta, f"server:{case.row.benchmark}") if case.row.scenario == "server" else 1.0
    metrics = metrics_of(one_unit, time_s, share)
    return log(1 / metrics["samples_s"] if one.metric == "samples_s" else 1e-3 * metrics["mean_latency_ms"])


def fit(found: list[Observation]) -> tuple[Theta, dict[str, float]]:
    """Return theta and the posterior standard deviations."""
    names = sorted({name for one in found for name in one.names})
    place = {name: index for index, name in enumerate(names)}
    means = np.array([PRIORS[name.partition(":")[0]][0] for name in names])
    widths = np.array([PRIORS[name.partition(":")[0]][1] for name in names])
    theta = means.copy()
    precision = np.diag(widths**-2.0)
    for _ in range(ITERATIONS):
        now = dict(zip(names, theta, strict=True))
        residuals = np.zeros(len(found))
        slopes = np.zeros((len(found), len(names)))
        for index, one in enumerate(found):
            at = predicted(one, now)
            residuals[index] = one.log_seconds - at
            for name in one.names:
                slopes[index, place[name]] = (predicted(one, now | {name: now[name] + STEP}) - at) / STEP
        weights = np.minimum(1.0, CUT / np.maximum(np.abs(residuals), 1e-9)) / NOISE**2
        precision = slopes.T @ (slopes * weights[:, None]) + np.diag(widths**-2.0)
        step = np.linalg.solve(precision, slopes.T @ (weights * residuals) + (means - theta) / widths**2)
        theta = theta + np.clip(step, -0.7, 0.7)
    spread = np.sqrt(np.diag(np.linalg.inv(precision)))
    return dict(zip(names, map(float, theta), strict=True)), dict(zip(names, map(float, spread), strict=True))


def left_out(found: list[Observation], seed: int = 0) -> dict[int, float]:
    """Return predicted / measured - 1 of each observation's rate or latency, without its pair in the fit.

    The errors are keyed by the index of the observation.
    """
    pairs = sorted({one.pair for one in found})
    random.Random(seed).shuffle(pairs)
    errors = {}
    for fold in range(FOLDS):
        out = set(pairs[fold::FOLDS])
        theta, _ = fit([one for one in found if one.pair not in out])
        for index, one in enumerate(found):
            if one.pair in out:
                errors[index] = error(one, theta)
    return errors


def error(one: Observation, theta: Theta) -> float:
    """Return predicted / measured - 1."""
    ratio = float(np.exp(predicted(one, theta) - one.log_seconds))
    return (1 / ratio if one.metric == "samples_s" else ratio) - 1


def report(found: list[Observation], errors: dict[int, float], title: str) -> None:
    """Print medians over pairs of accelerator and benchmark: all, by scenario, and by benchmark."""
    pairs: dict[tuple[str, str], list[float]] = defaultdict(list)
    for index, size in errors.items():
        pairs[found[index].pair[0], found[index].case.row.benchmark].append(abs(size))
    print(f"{title}: {_medians([float(np.median(sizes)) for sizes in pairs.values()])}")
    for what in ("scenario", "benchmark"):
        groups: dict[str, list[float]] = defaultdict(list)
        for index, size in errors.items():
            groups[getattr(found[index].case.row, what)].append(abs(size))
        for name, sizes in sorted(groups.items()):
            print(f"  {name:22} {_medians(sizes)}")


def _medians(sizes: Iterable[float]) -> str:
    listed = list(sizes)
    return f"{len(listed):4} median {np.median(listed):.1%}  90 % {np.quantile(listed, 0.9):.0%}"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--list", action="store_true", help="every left-out observation")
    arguments = parser.parse_args()
    found = observations(arguments.measured)
    theta, spread = fit(found)
    report(found, {index: error(one, theta) for index, one in enumerate(found)}, "in the fit")
    if arguments.write:
        write_data(arguments.write, theta, spread)
    errors = left_out(found)
    report(found, errors, "pair left out")
    if arguments.list:
        for index in sorted(errors, key=lambda index: (found[index].case.row.benchmark, found[index].pair)):
            one = found[index]
            what = (one.pair[0], one.case.row.benchmark, one.case.row.scenario, one.case.row.power_limited, one.rows)
            print(*what, f"{errors[index]:+.2f}")
    if arguments.picture:
        draw(arguments.picture, [(found[i].case, found[i].metric, found[i].log_seconds, errors[i]) for i in errors])


if __name__ == "__main__":
    main()
