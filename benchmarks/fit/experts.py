"""Efficiency of grouped products over experts by engine, format and GPU generation, and vLLM's tuned tiles.

    python benchmarks/fit/experts.py TABLES

Arithmetic at prompt sizes with uneven routing is compared with what the priors of all other parameters predict: by
engine and format on Hopper (priors of `experts_in`), and by generation relative to Hopper, where the same kernel was
timed on both (priors of `experts`, at half the logarithm). The level is that of `moe_compute`, which is fitted, so
LEVEL is divided out. The script then compares vLLM 0.14 and 0.19 at 16 bit, between which the default tiles changed:
shapes with equal times were tuned in both (`default_tiles` in data/engines). TABLES and formats are those of
kernels.py.
"""

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
from kernels import BYTES, CARDS, PEAKS
from parameters import Priors, load_priors
from releases import ROUTING

from sim.catalogue.catalog import load_catalog
from sim.catalogue.gpu import Gpu

LEVEL = 0.65
FIXED_US = 30.0
"""Launch time on Hopper besides arithmetic and reading [us]."""
PRIOR_OF = {
    "bfloat16": "dense-16bit", "fp8": "fp8-w8a8", "fp8_block": "fp8-w8a8", "int4_wo": "marlin", "w4a16_mxfp4": "mxfp4",
}  # fmt: skip
ENGINES = {"vllm": "vllm-0.14", "sglang": "sglang-0.5", "trtllm": "tensorrt-llm-1.0"}
MOST_READING = 2.0
"""Largest time with 64 tokens relative to full bandwidth; slower tables do not measure the engine's own kernels."""
FEW_EXPERTS, FEW, LEAST_MS = 16, (8, 256), 0.06
"""Experts on a rank and tokens where reading dominates, and the least time that a launch does not hide [ms]."""
TUNED_ALIKE, UNTUNED = 1.15, 1.3
"""Ratios of the times in 0.14 and 0.19 with many tokens: at most for tiles tuned in both, at least for default tiles.
"""


def main(tables: Path) -> None:
    """Print the arithmetic of each engine, format and generation, then vLLM's tiles."""
    catalog, priors = load_catalog(), load_priors()
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for card, name in CARDS.items():
        gpu = catalog.gpu(name)
        for path in sorted((tables / card / "moe").glob("*/*/moe_perf.parquet")):
            rows = _median(path).query(f"distribution == '{ROUTING}'")
            rows = rows[(rows.inter_size / rows.moe_tp_size >= 192) & ~rows.kernel_source.str.contains("nongate")]
            for (kernel, number), every in rows.groupby(["kernel_source", "moe_dtype"]):
                some = every.query("2048 <= num_tokens <= 8192")
                if number in PRIOR_OF and len(some) >= 10 and _reading(every, gpu, number) < MOST_READING:
                    engine, prior = path.parts[-3], PRIOR_OF[number]
                    ratio = _arithmetic(some, gpu, number, f"{ENGINES[engine]}/{prior}", priors)
                    print(f"{card:20s} {engine:7s}{path.parts[-2]:12s}{number:12s}{kernel[:48]:48s} {ratio:5.2f}")
                    found[f"{engine}/{prior}", gpu.architecture, kernel].append(ratio)
    for name in sorted({name for name, *_ in found}):
        by = {key[1:]: float(np.median(ratios)) for key, ratios in found.items() if key[0] == name}
        hopper = [ratio for (architecture, _), ratio in by.items() if architecture == "Hopper"]
        others = {a: r / by["Hopper", k] for (a, k), r in by.items() if a != "Hopper" and ("Hopper", k) in by}
        text = ", ".join(f"{a} {ratio:.2f}" for a, ratio in others.items())
        print(
            f"{name:24s} Hopper / {LEVEL:g}: {np.median(hopper) / LEVEL if hopper else np.nan:.2f}; against it: {text}"
        )
    for card in ("h100_sxm", "h200_sxm", "gb200"):
        tiles(tables / card / "moe" / "vllm", card)


def _median(path: Path) -> pd.DataFrame:
    rows = pd.read_parquet(path).query("latency > 0 and moe_ep_size == 1")
    return rows.groupby([one for one in rows.columns if one != "latency"], as_index=False).latency.median()


def _reading(rows: pd.DataFrame, gpu: Gpu, number: str) -> float:
    """Return the median time of 64 tokens relative to reading all experts at full bandwidth."""
    few = rows.query("num_tokens == 64")
    weights = 3.0 * few.num_experts * few.hidden_size * few.inter_size / few.moe_tp_size
    return float((few.latency * 1e-3 / (weights * BYTES[number] / gpu.memory_bytes_per_s.value)).median())


def _arithmetic(rows: pd.DataFrame, gpu: Gpu, number: str, name: str, priors: Priors) -> float:
    """Return the median arithmetic of a table relative to that of all priors but its own."""
    tokens, hidden, experts = (rows[one].to_numpy(float) for one in ("num_tokens", "hidden_size", "num_experts"))
    each, width = rows["topk"].to_numpy(float), (rows["inter_size"] / rows["moe_tp_size"]).to_numpy(float)
    engine, kernel = name.split("/")
    slower = ("serving_compute", "moe_compute", f"moe:{engine}", f"kernel_compute:{kernel}")
    peak_s = 6 * tokens * each * hidden * width / (gpu.fp16_flops.value * PEAKS.get(number, 1.0))
    usual_s = peak_s * np.prod([priors.values[one] for one in slower]) / priors.values[f"compute:{gpu.id}"]
    rate = gpu.memory_bytes_per_s.value * priors.values[f"memory:{gpu.id}"]
    touched = experts * (1 - (1 - each / experts) ** tokens)
    moved = 3 * touched * hidden * width * BYTES[number] + 2 * tokens * each * (2 * hidden + 3 * width)
    return float(np.median((rows["latency"] * 1e-3 - FIXED_US * 1e-6 - moved / rate) / usual_s))


def tiles(folder: Path, card: str) -> None:
    """Print the shapes (experts, inner width) with tuned 16-bit tiles in vLLM 0.14, and the slowdown of the others."""
    shape = ["num_experts", "inter_size", "moe_tp_size", "num_tokens"]
    old, new = (
        _median(folder / version / "moe_perf.parquet")
        .query("moe_dtype == 'bfloat16' and distribution == 'balanced' and num_tokens >= 4096")
        .groupby(shape)
        .latency.median()
        for version in ("0.14.0", "0.19.0")
    )
    ratio = (old / new).dropna().reset_index()
    width = (ratio.inter_size / ratio.moe_tp_size).astype(int)
    by = ratio.groupby([ratio.num_experts, width]).latency.median()
    tuned = [key for key, value in by.items() if value < TUNED_ALIKE]
    many = ratio[(ratio.latency > UNTUNED) & (ratio.num_tokens == ratio.num_tokens.max())].latency
    print(f"{card}: default tiles read experts {default_reading(folder):.2f} times as long")
    print(
        f"{card}: tuned in 0.14 {tuned}; others {many.median():.2f} times the time at {ratio.num_tokens.max()} tokens"
    )


def default_reading(folder: Path) -> float:
    """Return the time of few tokens with vLLM 0.14's default tiles relative to 0.19, few experts on a rank."""
    shape = ["inter_size", "num_experts", "moe_tp_size", "moe_ep_size", "hidden_size"]
    old, new = (
        pd.read_parquet(folder / version / "moe_perf.parquet")
        .query(f"moe_dtype == 'bfloat16' and distribution == '{ROUTING}'")
        .groupby([*shape, "topk", "num_tokens"])
        .latency.median()
        for version in ("0.14.0", "0.19.0")
    )
    both = pd.DataFrame({"old": old, "ratio": old / new}).dropna().reset_index()
    many = both[both.num_tokens == both.num_tokens.max()].groupby(shape).ratio.median()
    few = both.set_index(shape).loc[many[many > UNTUNED].index].reset_index()
    few = few[(few.num_experts // few.moe_ep_size <= FEW_EXPERTS) & few.num_tokens.between(*FEW) & (few.old > LEAST_MS)]
    return float(few.ratio.median())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
