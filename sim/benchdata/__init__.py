"""Readers of others' measurements: benchmark tables, and results of vLLM's benchmark client."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from sim.benchdata.bench_json import read_results
from sim.benchdata.errors import BenchdataError
from sim.benchdata.row import METRICS, BenchRow
from sim.benchdata.table import read_table

RESULTS = (".json", ".jsonl")
"""Ends of the files that clients write."""


def read_benchmarks(path: Path, known: Mapping[str, str] = MappingProxyType({})) -> list[BenchRow]:
    """Rows of a CSV table, of a file of `vllm bench serve` or `sglang.bench_serving`, or of a folder of such files.

    *known*: columns that a result does not tell, its GPU above all; a table tells all itself. Raises BenchdataError
    with everything that is wrong.
    """
    if not path.is_dir() and path.suffix in RESULTS:
        return read_results(path, known)
    if not path.is_dir():
        if known:
            raise BenchdataError([(str(path), 0, "says itself what ran; --about is for results of a client")])
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
