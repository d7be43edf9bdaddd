"""Efficiency of quantised and grouped matrix products, from aiconfigurator's tables of measured kernels.

    python benchmarks/fit/kernels.py TABLES

TABLES is the folder aic-core/src/aiconfigurator_core/systems/data of github.com/ai-dynamo/aiconfigurator:
<card>/{gemm,moe}/<engine>/<version>/*.parquet. For each engine the newest version that timed a format is used.

    t = t0 + ((c C)^p + (w W + a A)^p)^(1/p)       C arithmetic at the peak, W weights, A activations at full bandwidth

Dense products: c, w and t0 of a format relative to 16 bit in the same table, by GPU generation. Grouped products: the
error of p = 2.5 and p = 1 for each table.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from sim.catalogue.catalog import load_catalog
from sim.catalogue.gpu import Gpu

Floats = NDArray[np.float64]
Parts = tuple[Floats, Floats, Floats]
"""Times of arithmetic, weights and activations at datasheet rates [us]."""
CARDS = {
    "a100_sxm": "a100-80gb-sxm", "l40s": "l40s", "h100_sxm": "h100-80gb-sxm", "h200_sxm": "h200-141gb-sxm",
    "b200_sxm": "b200-180gb-sxm", "rtx_pro_6000_server": "rtx-pro-6000-server",
}  # fmt: skip
BYTES = {
    "bfloat16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "sq": 1.0, "int8_wo": 1.0, "int4_wo": 0.52, "nvfp4": 0.5625,
    "w4a16_mxfp4": 0.53, "w4a16_mxfp4_cutlass": 0.53,
}  # fmt: skip
"""Bytes per stored weight; sq: int8 weights and activations."""
PEAKS = {"fp8": 2.0, "fp8_block": 2.0, "sq": 2.0, "nvfp4": 4.0}
"""Dense peak of the format relative to 16 bit."""
KERNEL = {"fp8_block": "fp8"}
"""Formats that share an entry of data/kernels."""
EXPONENT, SUM = 2.5, 1.0
SAMPLE = 3000
MOST_US = 50.0
"""Largest extra time per product [us]; slower tables do not measure the engine's own kernels."""


def main(tables: Path) -> None:
    """Print dense factors by format and generation, then the errors of both laws for grouped products."""
    catalog = load_catalog()
    gpus = {card: catalog.gpu(gpu) for card, gpu in CARDS.items()}
    rng = np.random.default_rng(0)
    dense(tables, gpus, rng)
    grouped(tables, gpus, rng)


def newest(tables: Path, kind: str) -> Iterator[tuple[str, dict[str, pd.DataFrame], list[str]]]:
    """Yield (GPU, format -> rows, formats that no newer version of this engine timed) of each table."""
    for card in CARDS:
        for engine in sorted((tables / card / kind).iterdir()):
            seen: set[str] = set()
            for version in sorted(engine.iterdir(), key=lambda path: _number(path.name), reverse=True):
                path = version / f"{kind}_perf.parquet"
                if path.exists():
                    by_format = dict(iter(pd.read_parquet(path).query("latency > 0").groupby(f"{kind}_dtype")))
                    yield card, by_format, [name for name in by_format if name in BYTES and name not in seen]
                    seen |= set(by_format)


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def fitted(y: Floats, parts: Parts, start: Floats, free: list[int], a: float, p: float) -> Floats:
    """Return the logarithms of c, w and t0 [us], of which those in *free* are fitted.

    With *a* 0, activations are read as fast as weights.
    """

    def full(moved: Floats) -> Floats:
        x = start.copy()
        x[free] = moved
        return x

    found = least_squares(lambda moved: law(full(moved), parts, a, p) - y, start[free], loss="soft_l1", f_scale=0.1)
    return full(found.x)


def law(x: Floats, parts: Parts, a: float, p: float) -> Floats:
    """Return the logarithm of the time [us]."""
    (compute, weights, moved), (c, w, t0) = parts, np.exp(x)
    memory = weights * w + moved * (a or w)
    return np.asarray(np.log(t0 + ((compute * c) ** p + memory**p) ** (1 / p)))


def miss(x: Floats, y: Floats, parts: Parts, a: float, p: float) -> float:
    """Return the median relative error of the law [%]."""
    return float(np.median(np.abs(np.expm1(law(x, parts, a, p) - y)))) * 100


def dense(tables: Path, gpus: dict[str, Gpu], rng: np.random.Generator) -> None:
    """Compare dense formats with 16 bit, by generation."""
    found: dict[tuple[str, str], list[tuple[float, ...]]] = defaultdict(list)
    for card, formats, fresh in newest(tables, "gemm"):
        gpu, reference = gpus[card], np.zeros(3)
        for name in ["bfloat16", *(one for one in fresh if one != "bfloat16")]:
            rows = formats[name].query("1024 <= n <= 32768 and 1024 <= k <= 32768 and 0 < m <= 16384")
            if rows.empty:
                continue
            rows = rows.sample(min(SAMPLE, len(rows)), random_state=rng)
            m, n, k = (rows[one].to_numpy(float) for one in "mnk")
            parts = (
                2e6 * m * n * k / (gpu.fp16_flops.value * PEAKS.get(name, 1.0)),
                1e6 * n * k * BYTES[name] / gpu.memory_bytes_per_s.value,
                2e6 * m * (n + k) / gpu.memory_bytes_per_s.value,
            )
            y = np.log(rows["latency"].to_numpy(float) * 1e3)
            if name == "bfloat16":
                reference = fitted(y, parts, np.log([1.4, 1.2, 4.0]), [0, 1, 2], 0.0, EXPONENT)
                continue
            a = float(np.exp(reference[1]))
            two = fitted(y, parts, reference, [0, 1], a, EXPONENT)
            own = fitted(y, parts, np.log(np.exp(reference) + np.array([0.0, 0.0, 2.0])), [0, 1, 2], a, EXPONENT)
            extra_us = float(np.exp(own[2]) - np.exp(reference[2]))
            if extra_us <= MOST_US:
                misses = (miss(one, y, parts, a, EXPONENT) for one in (reference, two, own))
                ratios = np.exp(own - reference)
                found[gpu.architecture, KERNEL.get(name, name)].append((ratios[0], ratios[1], extra_us, *misses))
    for (generation, name), tuples in sorted(found.items()):
        c, w, us, alike, two_free, three_free = np.median(np.array(tuples), axis=0)
        low, high = min(one[0] for one in tuples), max(one[0] for one in tuples)
        print(
            f"{generation:18s} {name:8s} {len(tuples):2d} tables: arithmetic {c:.2f} ({low:.2f} to {high:.2f}), "
            f"weights {w:.2f}, {us:+.1f} us each; misses by {alike:.0f} % as 16 bit, {two_free:.0f} % with both "
            f"factors, {three_free:.0f} % with the time of each as well"
        )


def grouped(tables: Path, gpus: dict[str, Gpu], rng: np.random.Generator) -> None:
    """Compare both laws for products over experts, by format and generation."""
    found: dict[tuple[str, str], list[tuple[float, ...]]] = defaultdict(list)
    for card, formats, fresh in newest(tables, "moe"):
        for name in fresh:
            rows = formats[name].query("moe_ep_size == 1 and num_tokens <= 16384")
            rows = rows[(rows.inter_size / rows.moe_tp_size >= 256) & ~rows.kernel_source.str.contains("nongate")]
            for (_, routing), of_kernel in rows.groupby(["kernel_source", "distribution"]):
                if routing in ("balanced", "power_law_1.01") and len(of_kernel) >= 150:
                    sample = of_kernel.sample(min(SAMPLE // 4, len(of_kernel)), random_state=rng)
                    found[gpus[card].architecture, name].append(_both_laws(sample, gpus[card], name, routing))
    for (generation, name), tuples in sorted(found.items()):
        c, w, t0, joint, added = np.median(np.array(tuples), axis=0)
        print(
            f"{generation:18s} {name:19s} {len(tuples):2d} tables: arithmetic {c:.2f}, weights {w:.2f}, {t0:.0f} us; "
            f"misses by {joint:.1f} % with p = {EXPONENT:g}, {added:.1f} % with p = {SUM:g}"
        )
    every = np.array([one for tuples in found.values() for one in tuples])
    print(f"all {len(every)} tables: {np.median(every[:, 3]):.1f} % and {np.median(every[:, 4]):.1f} %")


def _both_laws(rows: pd.DataFrame, gpu: Gpu, name: str, routing: str) -> tuple[float, ...]:
    tokens, hidden, experts = (rows[one].to_numpy(float) for one in ("num_tokens", "hidden_size", "num_experts"))
    each, width = rows["topk"].to_numpy(float), (rows["inter_size"] / rows["moe_tp_size"]).to_numpy(float)
    even, chance = np.minimum(experts, tokens * each), experts * (1 - (1 - each / experts) ** tokens)
    touched = even if routing == "balanced" else chance
    parts = (
        6e6 * tokens * each * hidden * width / (gpu.fp16_flops.value * PEAKS.get(name, 1.0)),
        3e6 * touched * hidden * width * BYTES[name] / gpu.memory_bytes_per_s.value,
        2e6 * tokens * each * (2 * hidden + 3 * width) / gpu.memory_bytes_per_s.value,
    )
    y, start = np.log(rows["latency"].to_numpy(float) * 1e3), np.log([3.0, 1.3, 30.0])
    joint, added = (fitted(y, parts, start, [0, 1, 2], 0.0, p) for p in (EXPONENT, SUM))
    return (*np.exp(added), miss(joint, y, parts, 0.0, EXPONENT), miss(added, y, parts, 0.0, SUM))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
