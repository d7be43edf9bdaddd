"""Readers of others' measurements: benchmark tables, and results of vLLM's benchmark client."""

from pathlib import Path

from sim.benchdata.bench_json import read_result
from sim.benchdata.errors import BenchdataError
from sim.benchdata.row import METRICS, BenchRow
from sim.benchdata.table import read_table


def read_benchmarks(path: Path) -> list[BenchRow]:
    """Rows of a CSV table, of a result of `vllm bench serve`, or of a folder of such results.

    Raises BenchdataError with everything that is wrong.
    """
    if not path.is_dir():
        return [read_result(path)] if path.suffix == ".json" else read_table(path)
    files = sorted(path.glob("*.json"))
    if not files:
        raise BenchdataError([(str(path), 0, "holds no *.json results of `vllm bench serve`")])
    rows: list[BenchRow] = []
    problems: list[tuple[str, int, str]] = []
    for file in files:
        try:
            rows.append(read_result(file))
        except BenchdataError as error:
            problems += error.problems
    if problems:
        raise BenchdataError(problems)
    return rows


__all__ = ["METRICS", "BenchRow", "BenchdataError", "read_benchmarks"]
