"""Power of whole simulated runs compared with measurements: table of docs/fidelity-power.md, "Power of GPUs".

    PYTHONPATH=. python -m benchmarks.fit.power_served MEASURED

For each source, model and number of GPUs, two rows of power.py are used: at a quarter and at three quarters of the
batches. Each is predicted as in `gpufleet validate`, so the power includes errors of the step time.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.fit.power_runs import read_runs
from benchmarks.fit.rows import read_rows
from sim.benchdata import BenchRow
from sim.catalogue.catalog import Catalog, load_catalog
from sim.fidelity.prediction import predict

QUARTERS = (0.25, 0.75)


def chosen(measured: Path, catalog: Catalog) -> Iterator[BenchRow]:
    """Yield two rows of each source, model and number of GPUs, by batch."""
    usable = {run.id for run in read_runs(measured, catalog)}
    groups: dict[tuple[str, str, str, int], list[BenchRow]] = defaultdict(list)
    for row in read_rows(measured):
        if row.id in usable:
            groups[row.source_key, row.gpu, row.model, row.n_gpus].append(row)
    for rows in groups.values():
        rows.sort(key=lambda row: (row.avg_batch or 0.0, row.id))
        places = dict.fromkeys(int(quarter * (len(rows) - 1) + 0.5) for quarter in QUARTERS)
        yield from (rows[place] for place in places)


def error_summary(name: str, errors: Sequence[float]) -> str:
    """Return median, mean and 90th percentile of the absolute errors, and the mean error."""
    sizes = np.abs(errors)
    parts = [np.median(sizes), np.mean(sizes), np.percentile(sizes, 90)]
    shown = ", ".join(f"{100 * part:.1f} %" for part in parts)
    return f"{name:32s} {len(errors):3d} rows {shown}, bias {100 * np.mean(errors):+.0f} %"


def main() -> None:
    """Print the error of every row, then by source and GPU, then of all."""
    catalog = load_catalog()
    errors: dict[str, list[float]] = defaultdict(list)
    for row in chosen(Path(sys.argv[1]), catalog):
        watts = predict(row, catalog).metrics.get("power_w")
        if watts is None:
            continue
        error = watts / row.measured["power_w"] - 1
        errors[f"{row.source_key} {row.gpu}"].append(error)
        print(f"{row.id} {row.gpu} x{row.n_gpus} {row.model} batch {row.avg_batch:g}: {100 * error:+.0f} %")
    for name, found in sorted(errors.items()):
        print(error_summary(name, found))
    print(error_summary("all", [error for found in errors.values() for error in found]))


if __name__ == "__main__":
    main()
