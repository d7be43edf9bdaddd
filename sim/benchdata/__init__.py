"""Readers of published measurements: benchmark tables, and result files of benchmark clients."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from sim.benchdata.bench_json import read_results
from sim.benchdata.errors import BenchdataError
from sim.benchdata.row import METRICS, BenchRow
from sim.benchdata.table import read_table

RESULTS = (".json", ".jsonl")
"""File suffixes of the clients' results."""


def read_benchmarks(path: Path, known: Mapping[str, str] = MappingProxyType({})) -> list[BenchRow]:
    """Read measured operating points from a file or folder.

    Parameters
    ----------
    path
        CSV table, result file of `vllm bench serve` or `sglang.bench_serving`, or folder of such result files.
    known
        Columns that a result file lacks, in particular its GPU; not allowed for tables.

    Raises
    ------
    BenchdataError
        The files have mistakes; the error lists all of them.

    """
    if not path.is_dir() and path.suffix in RESULTS:
        return read_results(path, known)
    if not path.is_dir():
        if known:
            raise BenchdataError([(str(path), 0, "states what it measured; --about is only for results of a client")])
        return read_table(path)
    files = sorted(one for one in path.iterdir() if one.suffix in RESULTS)
    if not files:
        raise BenchdataError([(str(path), 0, "holds no *.json results of `vllm bench serve`")])
    rows: list[BenchRow] = []
    problems: list[tuple[str, int, str]] = []
    for file in files:
        try:
            rows += read_results(file, known)
        except BenchdataError as error:
            problems += error.problems
    if problems:
        raise BenchdataError(problems)
    return rows


__all__ = ["METRICS", "BenchRow", "BenchdataError", "read_benchmarks"]
