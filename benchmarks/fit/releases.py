"""Efficiency of an engine's kernels by release, from aiconfigurator's tables of measured kernels.

    python benchmarks/fit/releases.py TABLES

Grouped products over experts: c of t = t0 + c C + w W, by kernel (`fast_experts` in data/engines and the factor of
Marlin on B200). Dense products: read time (`slow_weights`) and compute time (`slow_products`) of fp8 relative to 16
bit in the same table. TABLES and the laws are those of kernels.py.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from kernels import BYTES, CARDS, EXPONENT, PEAKS, SAMPLE, Floats, _both_laws, fitted

from sim.catalogue.catalog import load_catalog
from sim.catalogue.gpu import Gpu

MORE_CARDS = {"b300_sxm": "b300-288gb-sxm", "gb200": "gb200-186gb"}
FEWEST = 150
ROUTING = "power_law_1.01"


def main(tables: Path) -> None:
    """Print a line for each table: grouped products, then fp8 relative to 16 bit."""
    catalog, rng = load_catalog(), np.random.default_rng(0)
    for card, name in (CARDS | MORE_CARDS).items():
        gpu = catalog.gpu(name)
        for table, rows in _tables(tables / card / "moe"):
            grouped(f"{card} {table}", gpu, rows, rng)
        for table, rows in _tables(tables / card / "gemm"):
            dense(f"{card} {table}", gpu, rows, rng)


def _tables(folder: Path) -> Iterator[tuple[str, pd.DataFrame]]:
    for path in sorted(folder.glob("*/*/*_perf.parquet")):
        if path.stem in ("moe_perf", "gemm_perf"):
            yield f"{folder.name}/{path.parts[-3]}/{path.parts[-2]}", pd.read_parquet(path).query("latency > 0")


def grouped(table: str, gpu: Gpu, rows: pd.DataFrame, rng: np.random.Generator) -> None:
    """Print c, w and t0 of each kernel and format, with experts on one rank and uneven routing."""
    rows = rows[(rows.moe_ep_size == 1) & (rows.num_tokens <= 16384) & (rows.distribution == ROUTING)]
    rows = rows[(rows.inter_size / rows.moe_tp_size >= 256) & ~rows.kernel_source.str.contains("nongate")]
    for (kernel, name), some in rows.groupby(["kernel_source", "moe_dtype"]):
        if name in BYTES and len(some) >= FEWEST:
            sample = some.sample(min(SAMPLE // 4, len(some)), random_state=rng)
            c, w, t0, _, _ = _both_laws(sample, gpu, name, ROUTING)
            print(f"{table:28s} {kernel:44s} {name:12s} arithmetic {c:5.2f}, weights {w:4.2f}, {t0:3.0f} us")


def dense(table: str, gpu: Gpu, rows: pd.DataFrame, rng: np.random.Generator) -> None:
    """Print arithmetic, reading and fixed time of fp8 (per tensor and per block) relative to 16 bit."""
    rows = rows.query("1024 <= n <= 32768 and 1024 <= k <= 32768 and 0 < m <= 16384")
    law: dict[str, Floats] = {}
    for name in ("bfloat16", "fp8", "fp8_block"):
        some = rows[rows.gemm_dtype == name]
        if some.empty:
            continue
        some = some.sample(min(SAMPLE, len(some)), random_state=rng)
        m, n, k = (some[one].to_numpy(float) for one in "mnk")
        bandwidth = gpu.memory_bytes_per_s.value
        parts = (
            2e6 * m * n * k / (gpu.fp16_flops.value * PEAKS.get(name, 1.0)),
            1e6 * n * k * BYTES[name] / bandwidth,
            2e6 * m * (n + k) / bandwidth,
        )
        y, start = np.log(some["latency"].to_numpy(float) * 1e3), np.log([1.4, 1.2, 4.0])
        moved = float(np.exp(law["bfloat16"][1])) if law else 0.0
        law[name] = fitted(y, parts, start, [0, 1, 2], moved, EXPONENT)
    for name in [one for one in law if one != "bfloat16"]:
        (c, w, _), extra = np.exp(law[name] - law["bfloat16"]), np.exp(law[name][2]) - np.exp(law["bfloat16"][2])
        print(f"{table:28s} {name} against 16 bit: arithmetic {c:.2f}, weights {w:.2f}, {extra:+.0f} us each")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
