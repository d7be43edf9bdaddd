"""`sim.run` of a scenario with a `job`, and `sim.check` of one."""

from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pandas as pd

from sim.api.errors import Infeasible, in_python
from sim.api.prepared import Given, Prepared, Values
from sim.api.result import Result
from sim.deliver.folder import owned
from sim.deliver.job import run_job
from sim.report.job.answer import job_document, job_figure, job_tables
from sim.report.job.picture import panels
from sim.report.job.tables import layout_table, memory_table
from sim.report.job.verdict import verdict
from sim.report.page.notebook import notebook_html
from sim.report.page.page import text_table
from sim.report.words.money import showing
from sim.scenario.job.describe import describe_job
from sim.scenario.job.load import load_job
from sim.study.job.columns import summary
from sim.study.job.outcome import job_outcomes


class JobRun(Result):
    """A finished job: its tables as frames, its charts as figures. `sim.run` makes it."""

    _main = "summary.csv"

    def __init__(self, prepared: Prepared, rows: Any) -> None:
        scenario: Any = prepared.scenario
        with showing(scenario):
            document = job_document(scenario, rows, str(prepared.out))
            tables, kinds = job_tables(rows), [panel.kind for panel in panels(rows)]
        super().__init__(prepared, document, tables, kinds, partial(job_figure, scenario, rows))
        if not any(row.ok for row in rows):
            reasons = dict.fromkeys(f"fleets.{row.fleet}: {row.outcome.plan.infeasible}" for row in rows)
            raise Infeasible(map(str, prepared.errors(reasons)), self)

    @cached_property
    def summary(self) -> pd.DataFrame:
        """One row per fleet and sweep point (docs/training.md)."""
        return self.table

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
        rows = run_job(
            scenario=read,
            catalog=prepared.catalog,
            out=prepared.out,
            report=out is not None,
            command=["python", "sim.run"],
            force=force,
        )
    return JobRun(prepared, rows)


class JobCheck:
    """A scenario with a `job` and every id resolved. In a notebook it shows layout and memory.

    `scenario` is the checked scenario, `cases` the number of fleets times points, `plans` everything that each fleet
    rests on at each point, as in resolved.yaml.
    """

    def __init__(self, prepared: Prepared) -> None:
        read: Any = prepared.scenario
        self.scenario = read
        found = job_outcomes(read, prepared.catalog)
        self._rows = summary(found)
        self.cases = len(found)
        self.plans = [{"axes": one.plan.axes, **describe_job(one.plan, prepared.catalog)} for one in found]
        told = verdict(self._rows)
        self.verdict, self.findings = told.headline, told.findings
        if not any(row.ok for row in self._rows):
            raise Infeasible(told.findings, self)

    @property
    def table(self) -> pd.DataFrame:
        """One row per fleet and point: layout, and the memory of the fullest GPU [GB]."""
        rows = [
            {"fleet": plan["fleet"], **plan["axes"], "gpus": plan["pool"]["gpus"], **plan["parallel"]}
            | {f"memory_{part}_gb": size for part, size in plan["memory_gb_per_gpu"].items()}
            | {"infeasible": plan["infeasible"]}
            for plan in self.plans
        ]
        return pd.DataFrame(rows)

    @property
    def values(self) -> pd.DataFrame:
        """One row per value that a fleet rests on: path, value, unit, source, kind, date and place."""
        rows = [{"fleet": plan["fleet"], **value} for plan in self.plans for value in plan["values"]]
        return pd.DataFrame(rows).drop_duplicates(["fleet", "path"], ignore_index=True)

    def _repr_html_(self) -> str:
        with showing(self.scenario):
            tables = [text_table(table(self._rows)) for table in (layout_table, memory_table)]
            return notebook_html(self.scenario.name, self.verdict, self.findings, tables)

    def __repr__(self) -> str:
        return f"<sim.JobCheck {self.scenario.name}: {self.verdict}>"
