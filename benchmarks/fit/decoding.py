"""Rate at which decodes read the KV cache, from aiconfigurator's tables of measured kernels.

    python benchmarks/fit/decoding.py TABLES

TABLES is its folder `aic-core/src/aiconfigurator_core/systems/data`. For each GPU, release and 16-bit or 8-bit cache,
the script fits factor and t0 of t = t0 + factor * bytes / rate, where rate is that of reading weights as measured
(priors.yaml); t0 is part of the time per layer (per_layer_s). TensorRT-LLM's tables before 1.3.0rc20 exceed the memory
rate because their caches were in L2; so do small caches on GPUs with a large L2 (GB20x: the median of large caches
relative to the rate is printed as well).
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from kernels import CARDS
from numpy.typing import NDArray
from parameters import load_priors
from releases import MORE_CARDS
from scipy.optimize import least_squares

from sim.catalogue.catalog import load_catalog

LARGE_BYTES = 1.5e8
"""Cache size larger than every GPU's L2 [bytes]."""
CACHES = {"bfloat16": 2, "fp8": 1}
HEAD_DIM, MOST_KV_HEADS, FEWEST = 128, 8, 30
SEQUENCES, CONTEXTS = (8, 512), (255, 8191)


def main(tables: Path) -> None:
    """Print a line for each GPU, release and width of the cache."""
    catalog, measured = load_catalog(), load_priors().values
    for folder, name in (CARDS | MORE_CARDS).items():
        gpu = catalog.gpu(name)
        rate = gpu.memory_bytes_per_s.value * measured[f"memory:{name}"]
        for path in sorted((tables / folder / "attention").glob("*/*/generation_attention_perf.parquet")):
            for cache, width in CACHES.items():
                rows = _many_tokens(pd.read_parquet(path).query("kv_cache_dtype == @cache"), width)
                if len(rows) >= FEWEST:
                    ideal_s, taken_s = rows.bytes.to_numpy() / rate, rows.latency.to_numpy() * 1e-3
                    factor, t0 = _fitted(ideal_s, taken_s)
                    large = float(np.median((taken_s / ideal_s)[rows.bytes > LARGE_BYTES]))
                    release = "/".join(path.parts[-3:-1])
                    line = f"{folder:20} {release:22} {cache:9} {len(rows):4} lines: {factor:.2f}, {1e6 * t0:4.1f} us"
                    print(f"{line}; {large:.2f}")


def _many_tokens(table: pd.DataFrame, width: int) -> pd.DataFrame:
    """Return the rows of grouped heads over a whole cache, with its bytes."""
    if "window_size" in table:
        table = table.query("window_size == 0")
    table = table.query("head_dim == @HEAD_DIM and attn_dtype == 'bfloat16' and latency > 0")
    table = table[(table.num_key_value_heads <= MOST_KV_HEADS) & (table.num_heads >= 4 * table.num_key_value_heads)]
    table = table[table.batch_size.between(*SEQUENCES) & table.step.between(*CONTEXTS)]
    moved = 2 * width * HEAD_DIM * table.num_key_value_heads * (table.step + 1) * table.batch_size
    return table.assign(bytes=moved)


def _fitted(ideal_s: NDArray[np.float64], taken_s: NDArray[np.float64]) -> tuple[float, float]:
    """Return factor and t0 by least squares of relative errors, limited to a tenth."""

    def off(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        return (np.exp(logs[1]) + np.exp(logs[0]) * ideal_s) / taken_s - 1

    factor, t0 = np.exp(least_squares(off, np.log([1.0, 1e-5]), loss="soft_l1", f_scale=0.1).x)
    return float(factor), float(t0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
