"""The tables of a finished run as pandas frames, for a notebook."""

import os
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from sim.csvio import unquoted
from sim.infile import opened


@dataclass(frozen=True, slots=True)
class RunFrames:
    """The files of a run's folder; columns as in their headers, units in the column names."""

    summary: pd.DataFrame
    """One row per fleet and sweep point."""
    requests: pd.DataFrame | None
    """One row per request; None where the run kept none."""
    usage: pd.DataFrame
    """One row per replica and meter interval."""
    costs: pd.DataFrame
    """One row per ledger row."""


def read_run(out: str | Path) -> RunFrames:
    """The frames of the run in the folder *out*. Raises FileNotFoundError where there is no finished run.

    Infinite percentiles are `inf`, what never happened is `nan`.
    """
    folder = Path(out)
    packed, plain = folder / "requests.parquet", folder / "requests.csv"
    requests = pd.read_parquet(packed) if packed.exists() else read_table(plain) if plain.exists() else None
    return RunFrames(
        summary=read_table(folder / "summary.csv"),
        requests=requests,
        usage=read_table(folder / "usage.csv"),
        costs=read_table(folder / "costs.csv"),
    )


def read_table(path: Path) -> pd.DataFrame:
    """A table with its text as it was before it was made safe for spreadsheets; without columns where it has none."""
    with opened(path, hidden=True) as file:
        if os.fstat(file.fileno()).st_size <= len("\r\n"):
            return pd.DataFrame()
        frame = pd.read_csv(file, keep_default_na=False, na_values=["", "nan"]).rename(columns=unquoted)
    texts: list[str] = list(frame.select_dtypes("str").columns)
    for name in texts:
        frame[name] = frame[name].map(unquoted, na_action="ignore")
    return frame
