"""Reader of tables of training runs: one run or published cell per line.

The table kind is recognised by the columns KIND_COLUMNS. `samples_per_s` and `tokens_per_s` are totals over all GPUs;
`step_s` is an optimizer step, or a micro-batch if no global batch is known.
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from sim.benchdata.table import CsvLine, Problem, amount, count, missing, read_rows
from sim.message import Message

KIND_COLUMNS = ("micro_batch", "global_batch")
"""Columns that no other kind of table has."""
REQUIRED_COLUMNS = ("gpu", "model")
TEXTS = (
    "id",
    "source_key",
    "source",
    "model",
    "arch_note",
    "task",
    "precision",
    "gpu",
    "interconnect_intra",
    "interconnect_inter",
    "zero",
    "sequence_parallel",
    "recompute",
    "trust",
    "note",
    "family",
)
COUNTS = ("n_gpus", "gpus_per_node", "tp", "pp", "dp", "micro_batch", "global_batch", "seq_len")
METRICS = ("tokens_per_s", "samples_per_s", "step_s", "peak_memory_gb")
AMOUNTS = ("params_b", *METRICS)


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """Training run or published cell; empty texts and missing numbers are unknown."""

    line: int
    texts: dict[str, str]
    counts: dict[str, int]
    params_b: float | None = None
    """Number of parameters [1e9]."""
    measured: dict[str, float] = field(default_factory=dict)
    """Measured values, keyed by METRICS: totals over all GPUs, seconds, 1e9 bytes per GPU."""

    @property
    def id(self) -> str:
        """Id in the table, or the row's number from 1."""
        return self.texts["id"] or str(self.line - 1)

    def text(self, name: str) -> str:
        """Return the column *name* of TEXTS; empty if absent."""
        return self.texts[name]

    def count(self, name: str) -> int | None:
        """Return the column *name* of COUNTS; None if absent."""
        return self.counts.get(name)


def read_training(path: Path) -> list[TrainingRow]:
    """Read a CSV table of training runs. Raises BenchdataError with all mistakes."""
    return read_rows(path, partial(missing, REQUIRED_COLUMNS), _row)


def _row(read: CsvLine, problems: list[Problem]) -> TrainingRow:
    line, cells = read.line, read.by_name()
    texts = {name: cells.get(name, "").strip() for name in TEXTS}
    problems += [(line, Message("{name} is missing", name)) for name in REQUIRED_COLUMNS if not texts[name]]
    numbers = {name: amount(name, cells.get(name), line, problems) for name in (*COUNTS, *AMOUNTS)}
    counts = {name: whole for name in COUNTS if (whole := count(name, numbers[name], line, problems)) is not None}
    measured = {name: value for name in METRICS if (value := numbers[name]) is not None}
    return TrainingRow(line, texts, counts, numbers["params_b"], measured)
