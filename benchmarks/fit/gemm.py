"""Efficiency of matrix products on each GPU, from which the priors of `compute` and `memory` follow.

    python benchmarks/fit/gemm.py MEASURED

For each GPU and format of kernels_summary.csv the script prints the fraction of the dense peak at many tokens, the
fraction of the bandwidth at few, and the error of (C^p + M^p)^(1/p) with these two in between. "all linear layers"
rows show the same for a block of a real model, where a fixed time per product appears, which an engine's `per_layer_s`
covers.
"""

import csv
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

MANY, FEW = 2048, 8
"""Numbers of tokens above which arithmetic dominates, and up to which reading does."""
EXPONENTS = (1.0, 2.0, 2.5, 3.0, 6.0)
PERCENT = 100


def main(measured: Path) -> None:
    """Print a line for each GPU, kind and format."""
    groups: dict[tuple[str, str, str], list[tuple[float, float, float]]] = defaultdict(list)
    with (measured / "kernels_summary.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["m_tokens"] and row["frac_peak_flops"] and row["frac_peak_bw"] and "attention" not in row["kind"]:
                point = float(row["m_tokens"]), float(row["frac_peak_flops"]), float(row["frac_peak_bw"])
                groups[row["gpu"], row["kind"], row["dtype"]].append(point)
    for (gpu, kind, dtype), points in sorted(groups.items()):
        many = [flops for m, flops, _ in points if m >= MANY]
        few = [read for m, _, read in points if m <= FEW]
        if not many or not few:
            continue
        compute, memory = float(np.median(many)), float(np.median(few))
        misses = ", ".join(f"p={p:g}: {PERCENT * miss(points, compute, memory, p):.0f} %" for p in EXPONENTS)
        print(f"{gpu:20s} {kind[:58]:58s} {dtype:5s} compute {compute:.2f} memory {memory:.2f}; median miss {misses}")


def miss(points: list[tuple[float, float, float]], compute: float, memory: float, exponent: float) -> float:
    """Return the median relative error of the time over all points."""
    # in units of the measured time: arithmetic at the peak takes `flops`, the bytes at full bandwidth `read`
    times = [
        ((flops / compute) ** exponent + (read / memory) ** exponent) ** (1 / exponent) for _, flops, read in points
    ]
    return float(np.median([abs(time - 1) for time in times]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
