"""Tables of data/links: times of NCCL, for engines without kernels of their own.

python benchmarks/fit/collectives.py MEASURED prints, by link, `nccl_tables` for all-reduces and `exchange_tables` for
an all-gather followed by a reduce-scatter, by the bytes of all ranks together, as data-parallel ranks gather their
tokens before the experts and scatter the sums. Each time is the smallest of all measured versions.
"""

import csv
import sys
from collections import defaultdict
from pathlib import Path

LINKS = {
    "nvlink3-nvswitch": "A100-SXM-80GB",
    "nvlink4-nvswitch": "H100-SXM",
    "nvlink5-nvswitch": "B200-SXM",
    "pcie4-x16": "L40S",
    "pcie5-x16": "RTX-PRO-6000-Server",
}
"""GPUs with which each link was measured."""
TABLES = {"nccl_tables": ("all_reduce",), "exchange_tables": ("all_gather", "reduce_scatter")}
SLOW_HOST = {"L40S": 2}
"""Largest number of GPUs between which NCCL was measured on a typical host."""
SIZES = tuple(2**power for power in (*range(10, 25, 2), 26, 28, 29))
"""Message sizes [bytes]."""
US = 1e-6
WIDTH = 126


def main() -> None:
    """Print the tables."""
    measured = Path(sys.argv[1])
    with (measured / "collectives.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["library"].startswith("NCCL 2")]
    for link, gpu in LINKS.items():
        print(f"{link}:")
        for name, operations in TABLES.items():
            print(f"{name}:")
            most = SLOW_HOST.get(gpu, 8)
            for ranks in (ranks for ranks in (2, 4, 8) if ranks <= most):
                here = [row for row in rows if row["gpu"] == gpu and int(row["n_gpus"]) == ranks]
                print(_table([row for row in here if row["op"] in operations], ranks, operations))


def _table(rows: list[dict[str, str]], ranks: int, operations: tuple[str, ...]) -> str:
    least: dict[tuple[str, int], float] = defaultdict(lambda: float("inf"))
    for row in rows:
        key = row["op"], int(float(row["bytes"]))
        least[key] = min(least[key], float(row["time_us"]) * US)
    times = [sum(least[operation, size] for operation in operations) for size in SIZES]
    versions = sorted({row["library"].removeprefix("NCCL ") for row in rows})
    return "\n".join(
        (
            f"  - gpus: {ranks}",
            "    source: aic_comm",
            f'    where: "NCCL {versions[0]}{" to " + versions[-1] if len(versions) > 1 else ""}, {rows[0]["gpu"]}"',
            "    kind: measured",
            _wrapped("bytes", [str(size) for size in SIZES]),
            _wrapped("time_s", [_seconds(time_s) for time_s in times]),
        )
    )


def _seconds(time_s: float) -> str:
    return f"{time_s:.4g}" if time_s >= 1e-3 else f"{float(f'{time_s / US:.4g}')}e-6"


def _wrapped(name: str, values: list[str]) -> str:
    lines, line = [], f"    {name}: ["
    for value in values:
        if len(line) + len(value) > WIDTH:
            lines.append(line.rstrip())
            line = "      "
        line += f"{value}, "
    return "\n".join([*lines, line.removesuffix(", ") + "]"])


if __name__ == "__main__":
    main()
