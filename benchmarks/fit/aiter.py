"""Efficiency of matrix products on Instinct GPUs, from AITER's tables of tuned kernels.

    python benchmarks/fit/aiter.py TABLES

TABLES is the folder aiter/configs of github.com/ROCm/aiter: for each shape the fastest kernel that its authors found.

    dense     t = t0 + ((C / c)^p + ((W + A) / m)^p)^(1/p)      C arithmetic at the peak, W weights, A activations
    grouped   t = t0 + C / c + W / m + A / a                    both products of an expert in one call

MI300X has no 16-bit tables of dense products. The largest rate of any shape is public (accelerator README of
ml-engineering: 668 TFLOP/s, 785 on MI325X, 1,565 on MI355X); serving sizes reach 0.89 of that on A100, H100 and B200.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from sim.catalogue.catalog import load_catalog

Floats = NDArray[np.float64]

CARDS = {("gfx942", 304): "mi300x", ("gfx950", 256): "mi355x"}
"""GPUs by chip and compute units. MI325X and MI350X have the same; the tables do not name the GPU."""
CHIPS = {304: "gfx942", 256: "gfx950"}
"""Chips by compute units, for tables that do not name the chip."""
BYTES = {"bf16": 2.0, "fp8": 1.0, "fp8-block": 1.0, "fp4": 0.53125, "int4": 0.53}
PEAKS = {"bf16": 1.0, "fp8": 2.0, "fp8-block": 2.0, "fp4": 4.0}
"""Dense peak of the format relative to 16 bit."""
EXPONENT = 2.5
LARGE = 4
"""Smallest ratio of arithmetic to other time, at datasheet rates, of products whose efficiency is shown."""
FEWEST = 15
"""Smallest number of shapes of a table that is fitted."""


@dataclass(frozen=True, slots=True)
class Table:
    """Shapes of one GPU and format: times at datasheet rates and measured times [us]."""

    name: str
    arithmetic: Floats
    weights: Floats
    activations: Floats
    measured: Floats


Law = Callable[[Floats, Table], Floats]


def main(tables: Path) -> None:
    """Print a line for each GPU and format, dense products first."""
    for table in dense(tables):
        (c, m, t0), miss = fitted(table, (0.5, 0.8, 6.0), dense_us)
        large = table.arithmetic > LARGE * (table.weights + table.activations)
        reached = np.median((table.arithmetic / table.measured)[large])
        print(
            f"dense   {table.name:24s} {len(table.measured):6d} shapes: compute {c:.2f}, memory {m:.2f}, {t0:.1f} us, "
            f"median miss {miss:.0%}; of large ones the median reaches {reached:.2f} of the peak"
        )
    for table in grouped(tables):
        (c, m, a, t0), miss = fitted(table, (0.4, 0.8, 0.5, 20.0), grouped_us)
        print(
            f"grouped {table.name:24s} {len(table.measured):6d} shapes: compute {c:.2f}, weights {m:.2f}, "
            f"activations {a:.2f}, {t0:.0f} us, median miss {miss:.0%}"
        )


def dense_us(x: Floats, table: Table) -> Floats:
    """Return the time of a dense product [us]; *x* holds c, m and t0."""
    c, m, t0 = x
    memory = (table.weights + table.activations) / m
    return np.asarray(t0 + ((table.arithmetic / c) ** EXPONENT + memory**EXPONENT) ** (1 / EXPONENT))


def grouped_us(x: Floats, table: Table) -> Floats:
    """Return the time of the products over experts [us]; *x* holds c, m, a and t0."""
    c, m, a, t0 = x
    return np.asarray(t0 + table.arithmetic / c + table.weights / m + table.activations / a)


def fitted(table: Table, start: tuple[float, ...], law: Law) -> tuple[Floats, float]:
    """Return the fitted parameters and the median relative error."""
    measured = np.log(table.measured)

    def off(x: Floats) -> Floats:
        return np.asarray(np.log(law(np.exp(x), table)) - measured)

    found = least_squares(off, np.log(start), loss="soft_l1", f_scale=0.1).x
    return np.exp(found), float(np.median(np.abs(np.expm1(off(found)))))


def read(tables: Path, pattern: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield (file name, rows of known GPUs) of each table of tuned kernels."""
    for path in sorted(tables.rglob(pattern)):
        if "untuned" in path.name or "batched" in path.name:
            continue
        rows = pd.read_csv(path).query("us > 0")
        if "gfx" not in rows:
            rows["gfx"] = rows["cu_num"].map(CHIPS)
        card = [CARDS.get(one) for one in zip(rows["gfx"], rows["cu_num"], strict=True)]
        yield path.name, rows.assign(card=card).dropna(subset="card")


def dense(tables: Path) -> Iterator[Table]:
    """Yield the tables of dense products at least 1,024 wide."""
    found = [rows.assign(format=dense_format(name, rows)) for name, rows in read(tables, "*tuned_gemm*.csv")]
    wide = pd.concat(found).query("N >= 1024 and K >= 1024").dropna(subset="format")
    shapes = wide.drop_duplicates(["card", "format", "M", "N", "K"], keep="last")
    for (card, name), rows in shapes.groupby(["card", "format"]):
        m, n, k = (rows[one].to_numpy(float) for one in "MNK")
        if len(rows) >= FEWEST:
            yield timed(f"{card} {name}", (card, name, name), (m * n * k, n * k, m * (n + k)), rows)


def dense_format(name: str, rows: pd.DataFrame) -> "pd.Series[str] | str":
    """Return the format of a file of that name, or of each of its rows; none for formats that are not shown."""
    if "a4w4" in name:
        return "fp4"
    if "blockscale" in name:
        return "fp8-block"
    if "a8w8" in name:
        kinds = rows.get("q_dtype_w", pd.Series("float8", rows.index)).astype(str)
        return kinds.str.contains("float8").map({True: "fp8"})
    return rows["dtype"].astype(str).str.contains("bfloat16").map({True: "bf16"})


def grouped(tables: Path) -> Iterator[Table]:
    """Yield the tables of products over experts with even routing."""
    rows = pd.concat([rows for _, rows in read(tables, "*tuned_fmoe*.csv")])
    names = {"bfloat16": "bf16", "float8": "fp8", "float4": "fp4", "int4": "int4"}
    for what in "aw":
        kind = rows[f"q_dtype_{what}"].astype(str).str.extract(r"(bfloat16|float8|float4|int4)")[0]
        rows[what] = kind.map(names)
    rows["scales"] = rows["q_type"].str.replace("QuantType.", "")
    for (card, a, w, scales), some in rows.query("a in @PEAKS").groupby(["card", "a", "w", "scales"]):
        if len(some) < FEWEST:
            continue
        tokens, experts, topk = (some[one].to_numpy(float) for one in ("token", "expert", "topk"))
        hidden, inner = (some[one].to_numpy(float) for one in ("model_dim", "inter_dim"))
        weights = np.where(some["use_g1u1"] == 1, 3, 2) * hidden * inner
        touched = experts * (1 - (1 - topk / experts) ** tokens)
        work = tokens * topk * weights, touched * weights, tokens * topk * (2 * hidden + 3 * inner)
        yield timed(f"{card} {a} x {w} {scales}", (card, a, w), work, some)


def timed(name: str, kind: tuple[str, str, str], work: tuple[Floats, Floats, Floats], rows: pd.DataFrame) -> Table:
    """Return the table of rows of one kind.

    *kind* is GPU, arithmetic format and weight format; *work* holds multiplications, weights and activations.
    """
    card, arithmetic, stored = kind
    gpu, (products, weights, moved) = load_catalog().gpu(card), work
    memory = gpu.memory_bytes_per_s.value
    return Table(
        name,
        2e6 * products / (gpu.fp16_flops.value * PEAKS[arithmetic]),
        1e6 * weights * BYTES[stored] / memory,
        2e6 * moved / memory,
        rows["us"].to_numpy(float),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
