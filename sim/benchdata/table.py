"""Benchmark tables: one measured operating point a line, in the columns that `row` lists."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from sim.benchdata.csv_rows import LARGEST, CsvLine, Problem, amount, count, missing, read_rows
from sim.benchdata.row import AMOUNTS, CONDITIONS, COUNTS, LOADS, METRICS, TEXTS, BenchRow

KNOWN = (*TEXTS, *COUNTS, *AMOUNTS, *METRICS)
REQUIRED = ("gpu", "model")
NEEDS: dict[str, tuple[str, ...]] = {
    "closed_loop": ("concurrency",),
    "poisson": ("rate_req_s",),
    "constant": ("rate_req_s",),
    "static_batch": ("concurrency", "avg_batch"),
}
"""By load: one of these columns is needed."""
MOST = {"isl": 1e8, "osl": 1e8, "prompt_cv": 100.0, "output_cv": 100.0}
"""Largest mean lengths [tokens], ten times the longest context of any model, and coefficients of variation."""
KEPT = (*COUNTS, *CONDITIONS)
SIMILAR = 0.8


def read_table(path: Path) -> list[BenchRow]:
    """The rows of a CSV file in the columns of `row`; other columns are passed over.

    Raises BenchdataError with everything that is wrong: columns that are missing or nearly named like a known one,
    cells that are no numbers, loads without their rate or concurrency, ids that stand twice.
    """
    return read_rows(path, _header_problems, partial(_row, path.parent))


def row_of(cells: dict[str, Any], line: int, folder: Path, problems: list[Problem]) -> BenchRow | None:
    """A row from its cells, texts or numbers; what is wrong goes to *problems*. *folder* may hold its replay."""
    found = len(problems)
    texts = {name: str(cells.get(name) or "").strip() for name in TEXTS}
    numbers = {
        name: amount(name, cells.get(name), line, problems, name in METRICS, MOST.get(name, LARGEST))
        for name in (*COUNTS, *AMOUNTS, *METRICS)
    }
    counts = {name: count(name, numbers[name], line, problems) for name in COUNTS}
    texts["load"] = texts["load"] or _usual_load(numbers)
    there = [name for name, cell in cells.items() if cell is not None and str(cell).strip()]
    problems += [(line, text) for text in _contradictions(texts, numbers, there)]
    if len(problems) > found:
        return None
    kept: dict[str, Any] = {name: numbers[name] for name in KEPT} | counts
    kept |= {name: kept[name] or 1 for name in ("pp", "dp")}
    kept["n_gpus"] = kept["n_gpus"] or max(_ranks(kept), kept["ep"] or 1)
    kept |= texts | {"id": texts["id"] or f"line {line}"}
    return BenchRow(
        line=line,
        **kept,
        replay=_replay(folder, texts) if texts["load"] == "trace" else "",
        measured={name: value for name in METRICS if (value := numbers[name]) is not None},
    )


def _ranks(sizes: Mapping[str, Any]) -> int:
    """GPUs that the parallel sizes need; those that are left out count one."""
    return prod(int(sizes[name] or 1) for name in ("tp", "pp", "dp"))


def _row(folder: Path, read: CsvLine, problems: list[Problem]) -> BenchRow | None:
    if len(read.cells) != len(read.header):
        problems.append((read.line, f"{len(read.cells)} fields where the first line names {len(read.header)}"))
        return None
    return row_of(dict(read.by_name()), read.line, folder, problems)


def _header_problems(header: Sequence[str]) -> list[str]:
    if not header:
        return [f"is empty; its first line must name the columns, {', '.join(REQUIRED)} at least"]
    problems = [f"the column {name!r} stands twice" for name in sorted(set(header)) if header.count(name) > 1]
    problems += missing(REQUIRED, header)
    for name in header:
        near = get_close_matches(name, KNOWN, n=1, cutoff=SIMILAR)
        if name not in KNOWN and near and near[0] not in header:
            problems.append(f"unknown column {name!r}; did you mean {near[0]}?")
    return problems


def _usual_load(numbers: dict[str, float | None]) -> str:
    return "poisson" if numbers["rate_req_s"] is not None and numbers["concurrency"] is None else "closed_loop"


def _contradictions(texts: dict[str, str], numbers: dict[str, float | None], there: Sequence[str]) -> list[str]:
    """What is wrong with a row beside its numbers; *there*: columns with a cell, be it a wrong one."""
    load = texts["load"]
    problems = [f"{name} is missing" for name in REQUIRED if not texts[name]]
    if load not in LOADS:
        problems.append(f"unknown load {load!r}; one of {', '.join(LOADS)}")
    needed = NEEDS.get(load, ())
    if needed and not any(name in there for name in needed):
        problems.append(f"load {load} needs {' or '.join(needed)}")
    if texts["measured_at"] not in ("", "client", "engine"):
        problems.append(f"measured_at must be client or engine, not {texts['measured_at']!r}")
    if (gpus := numbers["n_gpus"]) is not None and gpus < _ranks(numbers):
        problems.append(f"n_gpus is {gpus:g}, but tp, pp and dp need {_ranks(numbers)}")
    for name in ("gpu_memory_utilization", "cached_share"):
        share = numbers[name]
        if share is not None and share > 1:
            problems.append(f"{name} must be at most 1, not {share:g}")
    return problems


def _replay(folder: Path, texts: dict[str, str]) -> str:
    """The recorded requests of a trace: replay_<gpu>_<model>.csv beside the table."""
    file = folder / f"replay_{texts['gpu']}_{texts['model']}.csv"
    return str(file) if file.is_file() else ""
