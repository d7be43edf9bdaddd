"""Read time of experts relative to dense weights, and the load of the fullest rank, from measured kernels.

    python benchmarks/fit/reading.py TABLES

TABLES is the folder of aiconfigurator that kernels.py reads. Time at few tokens consists of a fixed part and one
proportional to the bytes read; the latter relative to dense 16-bit products of the same GPU is the prior of
`moe_weight` in priors.yaml. Tables of several ranks time the rank with most tokens: its time under power-law routing
relative to even routing, per doubling of the ranks, is the prior of `expert_parallel`.
"""

import sys
from collections import defaultdict
from math import log2
from pathlib import Path

import numpy as np
import pandas as pd
from kernels import BYTES, CARDS, Floats, newest
from scipy.optimize import least_squares

from sim.catalogue.catalog import load_catalog
from sim.catalogue.gpu import Gpu

FEW, MANY = 64, 2048
"""Numbers of tokens up to which reading dominates, and above which arithmetic does."""
DENSE_FEW, LEAST = 16, 20
LEAST_US = 40.0
"""Smallest time that a launch does not hide [us]."""
AROUND = 2.0
"""Largest read time factor; slower tables do not measure the engine's own kernels."""
LAWS = ("power_law_1.01", "power_law_1.2")
RANKS = (2, 4, 8)
SHAPE = ["moe_dtype", "kernel_source", "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size"]


def main(tables: Path) -> None:
    """Print read times by GPU and format, then the fullest rank by routing and ranks."""
    catalog = load_catalog()
    gpus = {card: catalog.gpu(gpu) for card, gpu in CARDS.items()}
    dense = dense_rates(tables, gpus)
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    fullest: dict[tuple[str, int], list[float]] = defaultdict(list)
    for card, formats, fresh in newest(tables, "moe"):
        for name in fresh:
            rows = formats[name][~formats[name].kernel_source.str.contains("nongate")]
            for key, ratio in rank_ratios(rows):
                fullest[key].append(ratio)
            for _, of_kernel in rows.query("distribution == 'balanced'").groupby("kernel_source"):
                line = reading(of_kernel, gpus[card], name)
                if line is not None and line[1] < AROUND * dense[card]:
                    found[card, name].append((line[0], line[1] / dense[card]))
    for (card, name), lines in sorted(found.items()):
        fixed_us, ratio = np.median(np.array(lines), axis=0)
        print(f"{card:20s} {name:20s} {len(lines)} kernels: {ratio:.2f} of dense 16 bit, {fixed_us:.0f} us beside it")
    for (law, ranks), ratios in sorted(fullest.items()):
        print(f"{law} {ranks} ranks: {np.median(ratios) ** (1 / log2(ranks)):.2f} a doubling ({len(ratios)} tables)")


def dense_rates(tables: Path, gpus: dict[str, Gpu]) -> dict[str, float]:
    """Return the time of dense 16-bit weights relative to full bandwidth by GPU: the median of its engines."""
    found = defaultdict(list)
    for card, formats, _ in newest(tables, "gemm"):
        if "bfloat16" in formats:
            rows = formats["bfloat16"].query(f"m <= {DENSE_FEW} and n >= 1024 and k >= 1024")
            read_us = (2e6 * rows.n * rows.k / gpus[card].memory_bytes_per_s.value).to_numpy(float)
            kept = read_us > LEAST_US / 2
            if kept.sum() >= LEAST:
                found[card].append(slope(read_us[kept], rows.latency.to_numpy(float)[kept] * 1e3)[1])
    return {card: float(np.median(rates)) for card, rates in found.items()}


def reading(rows: pd.DataFrame, gpu: Gpu, name: str) -> tuple[float, float] | None:
    """Return (fixed time [us], time relative to full bandwidth) with even routing and few tokens; None if too few."""
    rows = rows.query(f"moe_ep_size == 1 and num_tokens <= {FEW} and inter_size / moe_tp_size >= 256")
    touched = np.minimum(rows.num_experts, rows.num_tokens * rows.topk)
    weights = 3.0 * touched * rows.hidden_size * rows.inter_size / rows.moe_tp_size
    read_us = (1e6 * weights * BYTES[name] / gpu.memory_bytes_per_s.value).to_numpy(float)
    kept = read_us > LEAST_US
    return slope(read_us[kept], rows.latency.to_numpy(float)[kept] * 1e3) if kept.sum() >= LEAST else None


def slope(read_us: Floats, time_us: Floats) -> tuple[float, float]:
    """Return (fixed time [us], factor on *read_us*) of the best fit to *time_us*."""

    def off(x: Floats, /) -> Floats:
        return np.asarray(np.log(np.exp(x[0]) + np.exp(x[1]) * read_us) - np.log(time_us))

    fixed, factor = np.exp(least_squares(off, np.log([10.0, 1.2]), loss="soft_l1", f_scale=0.1).x)
    return float(fixed), float(factor)


def rank_ratios(rows: pd.DataFrame) -> list[tuple[tuple[str, int], float]]:
    """Return ((routing, ranks), time of the fullest rank relative to even routing), medians over shapes."""
    many = rows.query(f"num_tokens >= {MANY}")
    even = many.query("distribution == 'balanced'").groupby([*SHAPE, "moe_ep_size"]).latency.median()
    found = []
    for law in LAWS:
        uneven = many[many.distribution == law].groupby([*SHAPE, "moe_ep_size"]).latency.median()
        ratio = (uneven / even).dropna().rename("ratio").reset_index()
        for ranks in RANKS:
            some = ratio[ratio.moe_ep_size == ranks].ratio
            if len(some) >= LEAST:
                found.append(((law, ranks), float(some.median())))
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
