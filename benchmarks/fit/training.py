"""Fit of the training figures.

    python benchmarks/fit/training.py MEASURED [--write data] [--cross-validate OUT.csv]

Maximum a posteriori of log factors by Gauss-Newton with Huber weights, as in posterior.py; a row's gradient by each of
its rates is a finite difference, and a rate is a product of parameters. Pairs of GPU and model family are left out in
turn, eight at a time, for the errors in docs/fidelity-training.md.
"""

import argparse
import csv
import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from training_parameters import (
    ALL_WIDTHS,
    NETWORK_WIDTHS,
    PRIORS,
    STACK_WIDTHS,
    architecture_of,
    figures_of,
    parameters_of,
    written,
)

from sim.benchdata.training import TrainingRow, read_training
from sim.catalogue.catalog import load_catalog
from sim.fidelity.training import PredictionBasis, speed
from sim.fidelity.training_rows import TrainingCase, TrainingNotCovered, case_of
from sim.training.figures import rates
from sim.training.steptime import TrainingRates

HUBER, NOISE, STEP, ITERATIONS = 0.2, 0.2, 0.02, 5
MOST_ROWS = 3
"""Largest number of fitted rows per pair, source, model and number of GPUs."""
FULL_ROWS = 10
FOLDS = 12
REFITS = 3
METRICS = ("tokens_per_s", "samples_per_s", "step_s")


@dataclass(frozen=True)
class Fitted:
    """Fitted row with the parameters of its rates."""

    row: TrainingRow
    case: TrainingCase
    metric: str
    measured: float
    names: dict[str, tuple[tuple[str, int], ...]]
    """Parameters to which each field of Rates is proportional (1) or inversely proportional (-1)."""

    @property
    def pair(self) -> str:
        """GPU and model family."""
        return f"{self.case.job.gpu.id}|{self.row.text('family')}"


def observations(rows: list[TrainingRow], figured: PredictionBasis) -> list[Fitted]:
    """Return the rows with a speed that the model covers."""
    found = []
    for row in rows:
        metric = next((name for name in METRICS if name in row.measured), None)
        if metric is None:
            continue
        try:
            case = case_of(row, figured.catalog, figured.data)
        except TrainingNotCovered as error:
            print(row.id, error, file=sys.stderr)
            continue
        found.append(Fitted(row, case, metric, row.measured[metric], parameters_of(case, figured.data)))
    return found


def chosen(found: list[Fitted]) -> list[Fitted]:
    """Return the fitted rows: trusted ones, a few of each kind.

    Excluded are rows of 3D U-Net whose rate includes evaluations, and networks with fewer samples than GPUs: some of
    these GPUs share a sample or only evaluate, which the model does not contain.
    """
    kinds: dict[tuple[str, ...], int] = defaultdict(int)
    kept = []
    for one in found:
        row = one.row
        if row.text("trust") == "C" or one.case.counted_samples > 1 or splits_samples(one):
            continue
        kind = (one.pair, row.text("source_key"), row.text("model"), str(row.count("n_gpus")), row.text("precision"))
        kinds[kind] += 1
        if kinds[kind] <= MOST_ROWS:
            kept.append(one)
    return kept


def splits_samples(one: Fitted) -> bool:
    """Return whether the row is of a network other than a transformer on more GPUs than samples of a step."""
    samples = one.row.count("global_batch")
    return samples is not None and not one.case.job.network.is_transformer and (one.row.count("n_gpus") or 1) > samples


def logarithm(one: Fitted, reached: TrainingRates) -> float:
    """Return the logarithm of the predicted throughput."""
    value = np.log(speed(one.case, reached)[one.metric])
    return -value if one.metric == "step_s" else value


def error(one: Fitted, reached: TrainingRates) -> float:
    """Return predicted / measured - 1 of throughput."""
    sign = -1 if one.metric == "step_s" else 1
    return float(np.exp(logarithm(one, reached) - sign * np.log(one.measured)) - 1)


def rates_of(one: Fitted, figured: PredictionBasis) -> TrainingRates:
    """Return the rates of the row's job."""
    job = one.case.job
    return rates(figured.data, figured.kernels, job.gpu, job.link, job.network, job.precision, one.case.stack)


def with_theta(figured: PredictionBasis, theta: dict[str, float]) -> PredictionBasis:
    """Return the prediction basis at *theta*."""
    architecture = {
        id: architecture_of(figured.catalog.gpu(id))
        for name in theta
        if name.startswith("gpu_")
        for id in [name.split(":")[1]]
    }
    return replace(
        figured, data=figured.data.model_copy(update={"figures": figures_of(theta, architecture=architecture)})
    )


def fit(
    found: list[Fitted],
    figured: PredictionBasis,
    names: list[str],
    widths: dict[str, float],
    start: dict[str, float] | None = None,
) -> dict[str, float]:
    """Return log factors on the priors; from *start*, the fit to all pairs, a few steps suffice."""
    index = {name: i for i, name in enumerate(names)}
    theta = np.array([(start or {}).get(name, 0.0) for name in names])
    prior = np.array([1 / widths[name] ** 2 for name in names])
    counts: dict[str, int] = defaultdict(int)
    for one in found:
        counts[one.pair] += 1
    for _ in range(REFITS if start else ITERATIONS):
        now = with_theta(figured, dict(zip(names, theta, strict=True)))
        normal, right = np.diag(prior), -prior * theta
        for one in found:
            reached = rates_of(one, now)
            base = logarithm(one, reached)
            sign = -1 if one.metric == "step_s" else 1
            residual = sign * np.log(one.measured) - base
            weight = min(1.0, FULL_ROWS / counts[one.pair]) / NOISE**2 * min(1.0, HUBER / max(abs(residual), 1e-9))
            gradient: dict[int, float] = defaultdict(float)
            for name, parameters in one.names.items():
                slope = (
                    logarithm(one, replace(reached, **{name: getattr(reached, name) * (1 + STEP)})) - base
                ) / np.log1p(STEP)
                for parameter, power in parameters:
                    gradient[index[parameter]] += power * slope
            where = np.array(list(gradient))
            slopes = np.array(list(gradient.values()))
            normal[np.ix_(where, where)] += weight * np.outer(slopes, slopes)
            right[where] += weight * residual * slopes
        step = np.clip(np.linalg.solve(normal, right), -0.7, 0.7)
        theta = theta + step
        if np.abs(step).max() < 5e-3:
            break
    return dict(zip(names, map(float, theta), strict=True))


def folds(found: list[Fitted], seed: int) -> list[set[str]]:
    """Return the pairs distributed over FOLDS parts, those of one family over as many parts as possible.

    A family with few pairs would otherwise be left out as a whole by chance.
    """
    pairs = sorted({(one.row.text("family"), one.pair) for one in found})
    order = np.random.default_rng(seed).permutation(len(pairs))
    dealt = [pairs[i][1] for i in sorted(order, key=lambda i: pairs[i][0])]
    return [set(dealt[i::FOLDS]) for i in range(FOLDS)]


def group(family: str) -> str:
    """Return the class in which a family is scored."""
    llm = ("llama", "gpt-large", "mpt", "qwen", "moe", "nemotron", "gpt2")
    return "LLM" if family in llm else family


def print_medians(errors: dict[str, list[tuple[Fitted, float]]], title: str) -> None:
    """Print medians by class."""
    print(title)
    errors = errors | {"others": [one for name, found in errors.items() if name != "LLM" for one in found]}
    for name in sorted(errors):
        by_pair: dict[str, list[float]] = defaultdict(list)
        for one, value in errors[name]:
            by_pair[one.pair].append(value)
        medians = [np.median(np.abs(values)) for values in by_pair.values()]
        bias = np.median([np.median(values) for values in by_pair.values()])
        print(
            f"  {name:16s} {len(errors[name]):4d} rows {len(medians):3d} pairs  median {np.median(medians):.3f}  "
            f"mean {np.mean(np.minimum(medians, 1)):.3f}  p90 {np.percentile(medians, 90):.3f}  bias {bias:+.3f}"
        )


def by_group(found: list[Fitted], figured: PredictionBasis) -> dict[str, list[tuple[Fitted, float]]]:
    """Return the errors of trusted rows by class."""
    errors: dict[str, list[tuple[Fitted, float]]] = defaultdict(list)
    for one in found:
        if one.row.text("trust") != "C":
            errors[group(one.row.text("family"))].append((one, error(one, rates_of(one, figured))))
    return errors


def main() -> None:
    """Fit, print, and write as the options request."""
    parser = argparse.ArgumentParser()
    parser.add_argument("measured", type=Path)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--cross-validate", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--detail", action="store_true")
    options = parser.parse_args()
    figured = PredictionBasis.of(load_catalog())
    figured = with_theta(figured, {})
    found = observations(read_training(options.measured / "training.csv"), figured)
    fitted = chosen(found)
    names = sorted({name for one in found for parts in one.names.values() for name, _ in parts})
    widths = {name: width_of(name) for name in names}
    theta = fit(fitted, figured, names, widths)
    final = with_theta(figured, theta)
    print_medians(by_group(found, final), "in the fit")
    if options.detail:
        for name in names:
            print(f"    {name:34s} {theta[name]:+.2f}")
        detail(found, final)
    if options.cross_validate:
        left: dict[str, list[tuple[Fitted, float]]] = defaultdict(list)
        for out in folds(found, options.seed):
            part = fit([one for one in fitted if one.pair not in out], figured, names, widths, theta)
            rest = with_theta(figured, part)
            for name, values in by_group([one for one in found if one.pair in out], rest).items():
                left[name] += values
        print_medians(left, "left out")
        with options.cross_validate.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["id", "class", "gpu", "family", "source_key", "measured", "predicted", "error"])
            for name, values in sorted(left.items()):
                for one, value in values:
                    rate = 1 / one.measured if one.metric == "step_s" else one.measured
                    writer.writerow(
                        [
                            one.row.id,
                            name,
                            one.case.job.gpu.id,
                            one.row.text("family"),
                            one.row.text("source_key"),
                            f"{rate:.6g}",
                            f"{rate * (1 + value):.6g}",
                            f"{value:.4f}",
                        ]
                    )
    if options.write:
        (options.write / "training" / "figures.yaml").write_text(written(final.data.figures))


def width_of(name: str) -> float:
    """Return the prior standard deviation of a parameter's logarithm."""
    kind, _, of = name.partition(":")
    if not of and kind in ALL_WIDTHS:
        return ALL_WIDTHS[kind]
    return {**STACK_WIDTHS, **NETWORK_WIDTHS}.get(kind) or PRIORS[kind][1]


def detail(found: list[Fitted], figured: PredictionBasis) -> None:
    """Print errors by campaign, GPU and precision."""
    table: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for one in found:
        table[
            group(one.row.text("family")),
            one.row.text("source_key"),
            one.row.text("family"),
            one.case.job.gpu.id,
            one.row.text("precision"),
        ].append(error(one, rates_of(one, figured)))
    for key, values in sorted(table.items()):
        print(
            f"  {' '.join(key):80s} {len(values):3d} median {np.median(values):+.2f}  "
            f"spread {np.percentile(values, 10):+.2f} {np.percentile(values, 90):+.2f}"
        )


if __name__ == "__main__":
    main()
