"""Efficiency of prompt attention with small heads and with sliding windows, from aiconfigurator's tables.

    python benchmarks/fit/prompts.py TABLES

Small heads: time of a query-key pair with heads of 64 numbers, relative to half of that with 128 (`small_heads` in
data/attention.yaml). Windows: number of tokens beyond its window that a query costs, at the kernel's rate without a
window (`window_margin_tokens`). TABLES is the folder of kernels.py; takes 10 s.
"""

import sys
from pathlib import Path

import pandas as pd

SHAPE = ["batch_size", "isl", "num_heads", "num_key_value_heads", "kernel_source"]
LONG, LONGEST = 4096, 32768
"""Range of prompt lengths: shorter prompts are dominated by launches, longer ones are rare."""
LEAST_WINDOWS = 4
"""Smallest prompt length in windows; in shorter prompts many queries see less than a window."""
LEAST_HEADS = 32
"""Smallest number of heads times prompts; fewer leave multiprocessors idle."""


def main(tables: Path) -> None:
    """Print a line for each table with heads of 64 numbers or windows."""
    for path in sorted(tables.glob("*/attention/*/*/context_attention_perf.parquet")):
        rows = pd.read_parquet(path)
        if "window_size" in rows and not rows.empty:
            lines = [*_small(_plain(rows)), *_windowed(_plain(rows))]
            print(f"{path.parts[-5]:22s} {path.parts[-3]}/{path.parts[-2]:12s}", "; ".join(lines))


def _plain(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of whole prompts in 16 bit."""
    rows = rows.query("latency > 0 and attn_dtype == 'bfloat16' and kv_cache_dtype == 'bfloat16'")
    rows = rows[(rows.isl >= LONG) & (rows.isl <= LONGEST) & (rows.batch_size * rows.num_heads >= LEAST_HEADS)]
    for earlier in ("step", "prefix"):
        rows = rows[rows[earlier] == 0] if earlier in rows else rows
    return rows


def _small(rows: pd.DataFrame) -> list[str]:
    whole = rows[rows.window_size <= 0].pivot_table(index=SHAPE, columns="head_dim", values="latency")
    if not {64, 128} <= set(whole):
        return []
    ratio = (2 * whole[64] / whole[128]).dropna()
    return [f"heads of 64: {ratio.median():.2f} of {len(ratio)}"] if len(ratio) else []


def _windowed(rows: pd.DataFrame) -> list[str]:
    lines = []
    shape = [*SHAPE, "head_dim"]
    whole = rows[rows.window_size <= 0].groupby(shape).latency.median()
    for (size, head), some in rows[rows.window_size > 0].groupby(["window_size", "head_dim"]):
        some = some[some.isl >= LEAST_WINDOWS * size]
        both = some.groupby(shape).latency.median().to_frame("windowed").join(whole.rename("whole"), how="inner")
        if len(both):
            seen = both.windowed / both.whole * both.index.get_level_values("isl") / 2
            lines.append(f"window {size}, heads of {head}: {seen.median() - size:+.0f} tokens of {len(both)}")
    return lines


if __name__ == "__main__":
    main(Path(sys.argv[1]))
