"""Finished answers read back from their folders: tables as pandas frames, plans and scenario.

Tables are in the reporting currency, for workbooks and bills.
"""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from sim.csvio import unquoted
from sim.infile import opened
from sim.yamlio import read


@dataclass(frozen=True, slots=True)
class RunFrames:
    """Tables of a run's folder; columns as in the files' headers, with units in their names."""

    summary: pd.DataFrame
    """Rows of summary.csv, one per fleet and sweep point."""
    requests: pd.DataFrame | None
    """Rows of the table of requests; None where the run kept none."""
    usage: pd.DataFrame
    """Rows of usage.csv, one per replica and meter interval."""
    costs: pd.DataFrame
    """Rows of costs.csv, one per ledger row."""


def read_run(out: str | Path) -> RunFrames:
    """Read the tables of the run in the folder *out*. Raises FileNotFoundError where there is not a finished run.

    Infinite percentiles are `inf`, missing values `nan`.
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
    """Read a table, with text as before it was escaped for spreadsheets; an empty file gives no columns."""
    with opened(path, hidden=True) as file:
        if os.fstat(file.fileno()).st_size <= len("\r\n"):
            return pd.DataFrame()
        frame = pd.read_csv(file, keep_default_na=False, na_values=["", "nan"]).rename(columns=unquoted)
    texts: list[str] = list(frame.select_dtypes("str").columns)
    for name in texts:
        frame[name] = frame[name].map(unquoted, na_action="ignore")
    return frame


RECEIVED = {
    "npv_": "net_present_cost_",
    "net_cash_": "net_cost_",
    "cumulative_cash_": "cumulative_cost_",
    "present_value_": "present_cost_",
}
"""Prefixes of columns of stored plans that count receipts as positive -> prefixes of columns that count payments."""


def _paid_is_positive(frame: pd.DataFrame) -> pd.DataFrame:
    """Convert the table of a stored answer to names and signs that count payments as positive."""
    for name in map(str, frame.columns):
        for old, new in RECEIVED.items():
            if name.startswith(old):
                frame = frame.assign(**{name: -frame[name]}).rename(columns={name: new + name.removeprefix(old)})
    return frame


@dataclass(frozen=True)
class StoredAnswer:
    """Finished answer in a folder."""

    folder: Path
    manifest: dict[str, Any]
    main: str = "summary"
    """Name of the main table, without `.csv`."""
    sheets: Sequence[tuple[str, str]] = ()
    """Further tables with a sheet of their own: (sheet, name of the table)."""

    @property
    def command(self) -> str:
        """Command that wrote the answer: `run`, `plan`."""
        return str(self.manifest["question"]["command"])

    @cached_property
    def summary(self) -> pd.DataFrame:
        """Main table, as in its file."""
        return _paid_is_positive(read_table(self.folder / f"{self.main}.csv"))

    @cached_property
    def currency(self) -> str:
        """Code of the reporting currency, derived from the columns beside those in US dollars."""
        names = set(self.summary.columns)
        for name in names:
            pattern = re.sub(r"(?<![a-z])usd(?![a-z])", "([A-Z]{3})", name)
            for other in names if pattern != name else ():
                if found := re.fullmatch(pattern, other):
                    return str(found[1])
        return "USD"

    def table(self, name: str) -> pd.DataFrame:
        """Read the table in the file *name*.csv, with amounts in the reporting currency only."""
        frame = self._in_shown_currency(_paid_is_positive(read_table(self.folder / f"{name}.csv")))
        return _in_months(frame) if name == "plan" else frame

    def requests(self) -> pd.DataFrame | None:
        """Read the table of requests; None where none were kept."""
        packed = self.folder / "requests.parquet"
        if packed.exists():
            with opened(packed, hidden=True) as file:
                return self._in_shown_currency(pd.read_parquet(file))
        return self.table("requests") if (self.folder / "requests.csv").exists() else None

    def amount(self, name: str) -> str:
        """Return the name of the US dollar column *name* in the reporting currency."""
        return name.replace("usd", self.currency) if self.currency != "USD" else name

    def _in_shown_currency(self, frame: pd.DataFrame) -> pd.DataFrame:
        if self.currency == "USD":
            return frame
        converted = {
            name for name in map(str, frame.columns) if self.amount(name) != name and self.amount(name) in frame
        }
        return frame.drop(columns=list(converted))

    def _stored_data(self, name: str) -> Any:
        path = self.folder / name
        return read(path, patient=True).data if path.exists() else None

    @cached_property
    def plans(self) -> list[dict[str, Any]]:
        """Resolved plans of each fleet, at every point where they differ; empty where the command stores none."""
        return list(self._stored_data("resolved.yaml") or ())

    @property
    def resolved(self) -> list[dict[str, Any]]:
        """First resolved plan of each fleet."""
        first: dict[str, dict[str, Any]] = {}
        for plan in self.plans:
            first.setdefault(str(plan["fleet"]), plan)
        return list(first.values())

    @cached_property
    def scenario(self) -> dict[str, Any]:
        """Scenario of the answer; empty where the command stores none."""
        found: dict[str, Any] = self._stored_data("scenario.yaml") or {}
        return found

    def fleet_of(self, candidate: str) -> dict[str, Any] | None:
        """Return the fleet of the scenario with whose name that of *candidate* begins, the longest; None if none."""
        fleets: list[dict[str, Any]] = self.scenario.get("fleets") or []
        own = [one for one in fleets if f"{candidate} ".startswith(f"{one['name']} ")]
        return max(own, key=lambda one: len(str(one["name"])), default=None)

    @property
    def candidates(self) -> dict[str, str]:
        """Candidates of `breakeven` -> name of their fleet; empty for other commands."""
        if self.command != "breakeven":
            return {}
        names = [str(name) for name in self.summary["candidate"]]
        return {name: str((self.fleet_of(name) or {"name": name})["name"]) for name in names}

    @property
    def axes(self) -> list[str]:
        """Names of the swept axes: columns of the main table between the fleet and the status."""
        names = list(self.summary.columns)
        return names[1 : names.index("status")] if "status" in names else []


def _in_months(frame: pd.DataFrame) -> pd.DataFrame:
    """Convert the months of a plan to numbers and dates; the closing row keeps its text."""
    if frame.empty:
        return frame
    months = [int(one) if str(one).isdigit() else one for one in frame["month"]]
    dates = [datetime.strptime(one, "%Y-%m").date() for one in frame["date"]]
    return frame.assign(month=pd.Series(months, frame.index, object), date=pd.Series(dates, frame.index, object))


def read_answer(folder: Path, **tables: Any) -> StoredAnswer:
    """Read the finished answer in *folder*; *tables* names `main` and `sheets` where it is not that of a run."""
    with opened(folder / "manifest.json", "r", hidden=True, encoding="utf-8") as file:
        return StoredAnswer(folder, json.load(file), **tables)
