"""Write data/kernels/measured.csv: median rates of measured matrix products, from aiconfigurator's tables.

    python -m benchmarks.fit.kernel_rates <aiconfigurator>/aic-core/src/aiconfigurator_core/systems/data

A row is a card, an engine with release, a format, a kernel and a number of tokens; of several kernels the most timed is
first. The rate is the median over shapes, of dense products with both sides from 2,048 to 32,768, and of grouped
products over whole experts split over at most four GPUs. The newest release of an engine that timed five such shapes of
the format counts. The last column is the rate F of arithmetic alone, from the two largest batches m of the table:
1/rate = 1/F + c/m.
"""

import re
import sys
from pathlib import Path

import pandas as pd

CARDS = {
    "a100_sxm": "a100-80gb-sxm", "h100_sxm": "h100-80gb-sxm", "h200_sxm": "h200-141gb-sxm", "l40s": "l40s",
    "b200_sxm": "b200-180gb-sxm", "b300_sxm": "b300-288gb-sxm", "gb200": "gb200-186gb",
    "rtx_pro_6000_server": "rtx-pro-6000-server",
}  # fmt: skip
ENGINES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"}
FORMATS = {
    "bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8-block", "nvfp4": "nvfp4", "int4_wo": "int4-wo",
    "w4a16_mxfp4": "mxfp4", "w4a8_mxfp4_mxfp8": "mxfp4-mxfp8",
}  # fmt: skip
TOKENS = (128, 1024, 8192)
LARGEST = (8192, 16384)
LEAST, MOST = 2048, 32768
MOST_RANKS = 4
LEAST_SHAPES = 5


def main(tables: Path, out: Path = Path("data/kernels/measured.csv")) -> None:
    """Write the table to *out*."""
    found = [
        [gpu, ENGINES[engine.name], release, FORMATS[format], kind == "moe", tokens, kernel,
         f"{_flops(rows, kind).median():.4g}", len(rows), _arithmetic(of_kernel, kind)]
        for card, gpu in CARDS.items() for kind in ("gemm", "moe")
        for engine in sorted((tables / card / kind).glob("*")) if engine.name in ENGINES
        for format, (release, rows_of_format) in _newest(engine, kind).items()
        for kernel in rows_of_format["kernel_source"].value_counts().index
        for of_kernel in [rows_of_format[rows_of_format["kernel_source"] == kernel]]
        for tokens in TOKENS
        if len(rows := _large(of_kernel, kind, tokens)) >= LEAST_SHAPES
    ]  # fmt: skip
    names = ["gpu", "engine", "release", "format", "experts", "tokens", "kernel", "flops", "shapes", "arithmetic_flops"]
    pd.DataFrame(found, columns=names).to_csv(out, index=False)


def _newest(engine: Path, kind: str) -> dict[str, tuple[str, pd.DataFrame]]:
    found: dict[str, tuple[str, pd.DataFrame]] = {}
    for release in sorted(engine.iterdir(), key=lambda path: [int(part) for part in re.findall(r"\d+", path.name)]):
        path = release / f"{kind}_perf.parquet"
        if path.exists():
            rows = pd.read_parquet(path).query(
                "latency > 0 and not kernel_source.str.contains('nongated')", engine="python"
            )
            for name, part in rows.groupby(f"{kind}_dtype"):
                if name in FORMATS and any(len(_large(part, kind, tokens)) >= LEAST_SHAPES for tokens in TOKENS):
                    found[str(name)] = release.name, part
    return found


def _large(rows: pd.DataFrame, kind: str, tokens: int) -> pd.DataFrame:
    if kind == "gemm":
        return rows[(rows["m"] == tokens) & rows["n"].between(LEAST, MOST) & rows["k"].between(LEAST, MOST)]
    whole = rows[(rows["moe_ep_size"] == 1) & (rows["moe_tp_size"] <= MOST_RANKS)]
    return whole[whole["num_tokens"] == tokens]


def _arithmetic(rows: pd.DataFrame, kind: str) -> str:
    """Return the limit of the rate at many tokens [FLOP/s]; empty if the table lacks the batches."""
    half, most = (_flops(_large(rows, kind, tokens), kind).median() for tokens in LARGEST)
    if pd.isna(half) or pd.isna(most):
        return ""
    return f"{1 / (2 / most - 1 / half) if most > half else half:.4g}"


def _flops(rows: pd.DataFrame, kind: str) -> pd.Series:
    if kind == "gemm":
        return 2 * rows["m"] * rows["n"] * rows["k"] / (rows["latency"] * 1e-3)
    width = rows["inter_size"] / rows["moe_tp_size"]
    return 2 * 3 * rows["num_tokens"] * rows["topk"] * rows["hidden_size"] * width / (rows["latency"] * 1e-3)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
