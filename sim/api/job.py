"""`sim.run` of a scenario with a `job`, and `sim.check` of one."""

from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pandas as pd

from sim.api.errors import Infeasible, in_python
from sim.api.prepared import Given, Prepared, Values
from sim.api.result import Result
from sim.deliver.folder import owned
from sim.deliver.work import run_work
from sim.report.page.notebook import notebook_html
from sim.report.words.money import showing
from sim.report.work.kinds import kind_of
from sim.scenario.job.load import load_job


class JobRun(Result):
    """A finished job or queue of jobs: its tables as frames, its charts as figures. `sim.run` makes it."""

    _main = "summary.csv"

    def __init__(self, prepared: Prepared, rows: Any) -> None:
        scenario: Any = prepared.scenario
        kind = kind_of(scenario)
        with showing(scenario):
            document, tables = kind.document(scenario, rows, str(prepared.out)), kind.tables(rows)
            charts = [panel.kind for panel in kind.panels(rows)]
        super().__init__(prepared, document, tables, charts, partial(kind.figure, scenario, rows))
        if not any(row.ok for row in rows):
            reasons = dict.fromkeys(f"fleets.{row.fleet}: {row.outcome.plan.infeasible}" for row in rows)
            raise Infeasible(map(str, prepared.errors(reasons)), self)

    @cached_property
    def summary(self) -> pd.DataFrame:
        """One row per fleet and sweep point (docs/training.md)."""
        return self.table

    @cached_property
    def jobs(self) -> pd.DataFrame:
        """One row per job of a queue; without rows for a single training job."""
        return self._frame("jobs.csv")

    @cached_property
    def usage(self) -> pd.DataFrame:
        """One row per meter reading: seconds and joules."""
        return self._frame("usage.csv")

    @cached_property
    def costs(self) -> pd.DataFrame:
        """One row per row of the ledger: quantity, unit price, amount, source."""
        return self._frame("costs.csv")


def job_run(
    scenario: Given,
    values: Values | None,
    replications: int | None,
    out: str | Path | None,
    seed: int | None,
    force: bool,
) -> JobRun:
    """The answer of `sim.run` to a scenario with a `job`."""
    prepared = Prepared(scenario, values, seed=seed, replications=replications, out=out, read=load_job)
    read: Any = prepared.scenario
    with in_python(), owned(prepared.out):
        rows = run_work(
            scenario=read,
            catalog=prepared.catalog,
            out=prepared.out,
            report=out is not None,
            command=["python", "sim.run"],
            force=force,
        )
    return JobRun(prepared, rows)


class JobCheck:
    """A scenario with a job or jobs and every id resolved. In a notebook it shows what would come out.

    `scenario` is the checked scenario, `cases` the number of fleets times points, `plans` everything that each fleet
    rests on at each point, as in resolved.yaml.
    """

    def __init__(self, prepared: Prepared) -> None:
        read: Any = prepared.scenario
        self.scenario = read
        kind = kind_of(read)
        rows = kind.rows(read, prepared.catalog)
        self._tables, self.cases = kind.tables(rows), len(rows)
        self.plans = kind.described(rows, prepared.catalog)
        told = kind.verdict(rows)
        self.verdict, self.findings = told.headline, told.findings
        if not any(row.ok for row in rows):
            raise Infeasible(told.findings, self)

    @property
    def table(self) -> pd.DataFrame:
        """One row per fleet and point: what stands in `plans`, sources aside; columns of parts have dotted names."""
        plain = [{key: plan[key] for key in plan if key not in ("values", "sources", "charges")} for plan in self.plans]
        return pd.json_normalize(plain)

    @property
    def values(self) -> pd.DataFrame:
        """One row per value that a fleet rests on: path, value, unit, source, kind, date and place."""
        rows = [{"fleet": plan["fleet"], **value} for plan in self.plans for value in plan["values"]]
        return pd.DataFrame(rows).drop_duplicates(["fleet", "path"], ignore_index=True)

    def _repr_html_(self) -> str:
        with showing(self.scenario):
            return notebook_html(self.scenario.name, self.verdict, self.findings, self._tables)

    def __repr__(self) -> str:
        return f"<sim.JobCheck {self.scenario.name}: {self.verdict}>"
