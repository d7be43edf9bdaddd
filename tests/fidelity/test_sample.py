"""A fixed sample of measurements: the error of no class grows by more than a fifth over the stored one.

`sample.csv` holds rows typed from public sources (column `source`: repository@commit:file), drawn at random from strata
of engine and load, with all of one harness's tensor-parallel runs over PCIe and NVLink. `medians.csv` holds the stored
median |error| of each class. After an intended change of predictions, update it: python tests/fidelity/test_sample.py
"""

import csv
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from sim.benchdata import read_benchmarks
from sim.catalogue.catalog import load_catalog
from sim.fidelity.scores import NOT_COVERED_ERROR, PredictedRow, validate

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parent
WORSE = 1.2
LEAST = 0.01
"""Changes below one per cent are no change."""


@cache
def outcomes() -> tuple[PredictedRow, ...]:
    return tuple(validate(read_benchmarks(HERE / "sample.csv"), load_catalog(), 1, lambda *_: None))


def classes_of(outcome: PredictedRow) -> list[tuple[str, str]]:
    """(class, column) of a row: what was measured, and for throughput on what kind of link."""
    found = []
    for quantity, metric in outcome.quantities().items():
        if quantity.endswith("saturated") or " p99" in quantity:
            continue
        if quantity == "throughput":
            link = outcome.prediction.link
            quantity += " on one GPU" if not link else " over PCIe" if link.startswith("pcie") else " over NVLink"
        found.append((quantity, metric))
    return found


def medians() -> dict[str, float]:
    errors: dict[str, list[float]] = defaultdict(list)
    for outcome in outcomes():
        for name, metric in classes_of(outcome):
            error = outcome.error(metric)
            errors[name].append(NOT_COVERED_ERROR if error is None else abs(error))
    return {name: float(np.median(found)) for name, found in sorted(errors.items())}


def stored() -> dict[str, float]:
    if not (HERE / "medians.csv").exists():
        return {}
    with (HERE / "medians.csv").open() as file:
        return {row["class"]: float(row["median_error"]) for row in csv.DictReader(file)}


def store() -> None:
    with (HERE / "medians.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["class", "median_error"])
        writer.writerows([name, f"{error:.4f}"] for name, error in medians().items())


def test_every_row_of_the_sample_is_predicted() -> None:
    assert [(one.row.id, one.prediction.reason) for one in outcomes() if not one.covered] == []


def test_the_classes_are_those_that_are_stored() -> None:
    assert medians().keys() == stored().keys()


@pytest.mark.parametrize("name", stored())
def test_no_class_gets_worse_by_more_than_a_fifth(name: str) -> None:
    assert medians()[name] <= max(WORSE * stored()[name], stored()[name] + LEAST)


@pytest.mark.parametrize("gpu", ["RTX-A6000", "A100-SXM-40GB"])
def test_tensor_parallel_sizes_rank_as_measured(gpu: str) -> None:
    runs = [one for one in outcomes() if one.row.gpu == gpu and "suite_E" in one.row.id]
    assert sorted(one.row.tp or 0 for one in runs) == [1, 2, 4, 8]
    measured = sorted(runs, key=lambda one: one.row.measured["output_tok_s"])
    predicted = sorted(runs, key=lambda one: one.prediction.metrics["output_tok_s"])
    assert [one.row.tp for one in predicted] == [one.row.tp for one in measured]


if __name__ == "__main__":
    store()
