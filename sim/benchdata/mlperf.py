"""Reader of tables of MLPerf Inference results: one run of one benchmark per line."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from sim.benchdata.table import CsvLine, Problem, amount, count, missing, read_rows
from sim.message import Message

REQUIRED_COLUMNS = ("accelerator", "benchmark", "scenario")
SERVICE_METRICS = ("samples_s", "mean_latency_ms")
"""Columns compared with predictions: samples per second of the system, and milliseconds per query."""
COUNTS, AMOUNTS = ("n_accelerators",), ("samples_s", "scheduled_samples_s", "mean_latency_ms")


@dataclass(frozen=True, slots=True)
class MlperfRow:
    """Run of an MLPerf benchmark; empty texts are unknown."""

    line: int
    id: str
    """Id in the table, or the row's number from 1."""
    accelerator: str
    benchmark: str
    scenario: str
    """Scenario in lower case: offline, server, singlestream, multistream, ..."""
    n_accelerators: int = 1
    system: str = ""
    round: str = ""
    submitter: str = ""
    source: str = ""
    measured: dict[str, float] = field(default_factory=dict)
    """Measured values, keyed by SERVICE_METRICS; values that were not measured are absent."""

    @property
    def power_limited(self) -> bool:
        """True if the submission is tuned for performance per watt, with capped GPU power."""
        return "maxq" in self.system.lower()


def read_mlperf(path: Path) -> list[MlperfRow]:
    """Read a CSV file with the columns REQUIRED and any of COUNTS and AMOUNTS; other columns are ignored.

    A Server run without `samples_s` uses the rate at which its queries were scheduled. Raises BenchdataError with all
    mistakes.
    """
    return read_rows(path, partial(missing, REQUIRED_COLUMNS), _row)


def _row(read: CsvLine, problems: list[Problem]) -> MlperfRow:
    line, cells = read.line, read.by_name()
    texts = {
        name: cells.get(name, "").strip()
        for name in (*REQUIRED_COLUMNS, "id", "system", "round", "submitter", "source")
    }
    problems += [(line, Message("{name} is missing", name)) for name in REQUIRED_COLUMNS if not texts[name]]
    if len(read.cells) > len(read.header):
        problems.append((line, "more fields than the first line names"))
    amounts = {name: amount(name, cells.get(name), line, problems, or_zero=True) for name in (*COUNTS, *AMOUNTS)}
    scenario = texts.pop("scenario").lower()
    rate = amounts["samples_s"] or (amounts["scheduled_samples_s"] if scenario == "server" else None)
    measured = {"samples_s": rate, "mean_latency_ms": amounts["mean_latency_ms"]}
    return MlperfRow(
        line=line,
        scenario=scenario,
        n_accelerators=count("n_accelerators", amounts["n_accelerators"], line, problems) or 1,
        measured={name: value for name, value in measured.items() if value is not None},
        **texts | {"id": texts["id"] or str(read.number)},
    )
