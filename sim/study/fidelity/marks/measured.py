"""What has been measured on real servers: data/fidelity/measured.csv, an index without any results.

benchmarks/fit/worth.py writes it. A line is one GPU, model, number format, engine and parallel layout.
"""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LAYOUT = ("tp", "pp", "dp")
RANGES = ("sequences_low", "sequences_high", "prompt_low", "prompt_high")
TEXTS = ("gpu", "architecture", "family", "kind", "kernel", "engine", "link")


@dataclass(frozen=True, slots=True)
class Entry:
    """Measured rows that differ in their load only."""

    gpu: str
    """Id of the GPU in the catalogue."""
    architecture: str
    family: str
    """The model's."""
    kind: str
    """Of model: see `model_kind`."""
    params_billion: float
    """All parameters."""
    kernel: str
    """Id of the kernel that multiplies with weights in their format."""
    engine: str
    """Without version."""
    link: str
    """Class of the link between the GPUs; empty on one GPU."""
    tp: int
    pp: int
    dp: int
    sequences_low: float
    """Least and most sequences in flight; infinite where only rates are known."""
    sequences_high: float
    prompt_low: float
    """Shortest and longest mean prompt [tokens]."""
    prompt_high: float
    rows: int
    campaigns: int

    @property
    def gpus(self) -> int:
        """Of a replica."""
        return self.tp * self.pp * self.dp


COLUMNS: tuple[str, ...] = (*TEXTS, "params_billion", *LAYOUT, *RANGES, "rows", "campaigns")


@cache
def read_index(path: Path) -> tuple[Entry, ...]:
    """All entries of the index in the file *path*."""
    with path.open(newline="", encoding="utf-8") as file:
        return tuple(_entry(line) for line in csv.DictReader(file))


def _entry(line: dict[str, str]) -> Entry:
    return Entry(
        **{name: line[name] for name in TEXTS},  # type: ignore[arg-type]
        **{name: int(line[name]) for name in (*LAYOUT, "rows", "campaigns")},  # type: ignore[arg-type]
        **{name: float(line[name]) for name in (*RANGES, "params_billion")},  # type: ignore[arg-type]
    )
