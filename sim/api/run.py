"""`sim.run`: simulation of a scenario, and its bill at other prices."""

from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pandas as pd

from sim.answers.jobs import run_work
from sim.answers.run import monte_carlo_notes, price_run, run_scenario
from sim.api.errors import Infeasible, in_python
from sim.api.prepared import Catalogs, Folder, Given, Prepared, Values, as_read
from sim.api.result import Result
from sim.jobs.kinds import kind_of
from sim.jobs.load import load_job
from sim.message import Message
from sim.report.charts.chart import Chart
from sim.report.charts.panels import Panel
from sim.report.charts.sweep_panels import curves, panels_of
from sim.report.export.stored_answer import read_run
from sim.report.run.json_document import run_document
from sim.report.run.terminal import brief_table
from sim.report.words.money import showing
from sim.report.words.precision import precision_notes
from sim.report.words.service_level import apart_on_charts
from sim.report.words.text import question_of
from sim.scenario.checks.hardware import gpus_without_server_notes
from sim.scenario.reading.layers import options
from sim.scenario.reading.load import has_job
from sim.scenario.sections.comparison import models_of
from sim.scenario.sweep import axes
from sim.study.execution.cases import limits
from sim.study.execution.store import StoredCase
from sim.study.points import Sweep, summarize, sweep_of
from sim.study.reprice import SCENARIO_FILE, load_repriced, load_repriced_work


class Run(Result):
    """Finished run, as `sim.run` and `Run.price` return it: its tables as frames, its curves as figures."""

    _main = "summary.csv"

    def __init__(self, prepared: Prepared, cases: Sequence[StoredCase]) -> None:
        scenario = prepared.scenario
        arguments = (axes(scenario), limits(scenario))
        with showing(scenario):
            points = summarize(cases, *arguments)
            panels, sweep = panels_of(points, *arguments), sweep_of(points, axes(scenario))
            notes = [*scenario.workload.notes(), *precision_notes(scenario, cases)]
            notes += [*gpus_without_server_notes(scenario, prepared.catalog), *monte_carlo_notes(prepared.out)]
            document = run_document(scenario, prepared.catalog, cases, notes, str(prepared.out))
            table = brief_table(points, *arguments)
        note = apart_on_charts(models_of(scenario, scenario.compare))
        draw = partial(_draw_curves, panels, sweep, question_of(scenario), document["verdict"]["headline"], note)
        super().__init__(prepared, document, [table], [panel.kind for panel in panels], draw)
        unable = dict.fromkeys(Message("fleets.{fleet}: {reason}", case.fleet, case.reason) for case in cases)
        if all(case.status == "infeasible" for case in cases):
            raise Infeasible(map(str, prepared.errors(unable)), self)

    @cached_property
    def summary(self) -> pd.DataFrame:
        """Fleets and sweep points as rows: means over replications with `_ci95` half-widths (docs/outputs.md)."""
        return self.table

    @cached_property
    def services(self) -> pd.DataFrame:
        """Services of each fleet and sweep point as rows; empty where the scenario has a single service."""
        return self._frame("services.csv")

    @cached_property
    def tenants(self) -> pd.DataFrame:
        """Tenants of each fleet and sweep point as rows; empty where requests have no tenants."""
        return self._frame("tenants.csv")

    @cached_property
    def showback(self) -> pd.DataFrame:
        """Cost of each tenant's month by line and its unit costs as rows; empty without `chargeback`."""
        return self._frame("showback.csv")

    @cached_property
    def chargeback(self) -> pd.DataFrame:
        """Rows of the ledger by pool, component and phase, split among tenants; empty without `chargeback`."""
        return self._frame("chargeback.csv")

    @cached_property
    def paired(self) -> pd.DataFrame:
        """Differences between fleets at equal points, paired by seed; empty for a single fleet."""
        return self._frame("paired.csv")

    @cached_property
    def requests(self) -> pd.DataFrame:
        """Requests as rows, times in seconds from the start; empty where the scenario keeps none."""
        found = read_run(self._answered()).requests
        return pd.DataFrame() if found is None else found

    @cached_property
    def usage(self) -> pd.DataFrame:
        """Replicas and meter intervals as rows: seconds, joules and tokens."""
        return self._frame("usage.csv")

    @cached_property
    def costs(self) -> pd.DataFrame:
        """Rows of the ledger: quantity, unit price, amount, source."""
        return self._frame("costs.csv")

    @cached_property
    def year(self) -> pd.DataFrame:
        """Annual totals by fleet, where the scenario has a `load_profile`; else empty."""
        return self._frame("year.csv")

    def price(self, set: Values | None = None, *, out: str | Path | None = None, force: bool = False) -> "Run":
        """Bill the run at other prices; nothing is simulated again.

        Parameters
        ----------
        set
            Prices and terms by dotted path, such as {"site.electricity_usd_per_kwh": 0.3}.
        out
            Folder for the files. None: a temporary one.
        force
            Whether to replace the answer to another question in *out*.

        Returns
        -------
        Run
            Run with the new bill.

        Raises
        ------
        ScenarioErrors
            For a value that is not a cost input.
        FolderRefused
            If *out* holds other files or the answer to another question.
        FolderBusy
            If another process writes to *out*.

        Examples
        --------
        >>> import sim
        >>> short = {"horizon_s": 30, "warmup_s": 0, "sweep": None}
        >>> run = sim.run("4x4090-vs-2xa100", short, 1, workers=1, quiet=True)
        >>> dear = run.price({"site.electricity_usd_per_kwh": 0.36})
        >>> bool((dear.summary.cost_usd_per_h > run.summary.cost_usd_per_h).all())
        True

        """
        own = self._prepared.folder
        with in_python(own.path if own.temporary else None):
            scenario = load_repriced(self._answered(), options(set or {}), self._prepared.catalog)
        again = self._prepared.again(scenario, Folder(out))
        with in_python(), again.folder.owned():
            cases = price_run(
                self.folder, scenario, again.catalog, again.out, out is not None, ["sim.Run.price"], force
            )
        return Run(again, cases)


class JobRun(Run):
    """Finished job, or queue of jobs, of a scenario with `job` or `jobs` (docs/training.md, docs/jobs.md).

    Its tables have one row per fleet and point; it has no requests.
    """

    def __init__(self, prepared: Prepared, rows: Any) -> None:
        scenario: Any = prepared.scenario
        kind = kind_of(scenario)
        with showing(scenario):
            document, tables = kind.document(scenario, rows, str(prepared.out)), kind.tables(rows)
            charts = [panel.kind for panel in kind.panels(rows)]
        Result.__init__(self, prepared, document, tables, charts, partial(kind.figure, scenario, rows))
        if not any(row.ok for row in rows):
            reasons = dict.fromkeys(
                Message("fleets.{fleet}: {reason}", row.fleet, row.outcome.plan.infeasible) for row in rows
            )
            raise Infeasible(map(str, prepared.errors(reasons)), self)

    @cached_property
    def jobs(self) -> pd.DataFrame:
        """Jobs of a queue as rows; empty for a single training job."""
        return self._frame("jobs.csv")

    @cached_property
    def requests(self) -> pd.DataFrame:
        """Empty table: a job serves no requests."""
        return pd.DataFrame()

    def price(self, set: Values | None = None, *, out: str | Path | None = None, force: bool = False) -> "JobRun":
        """Compute the job or queue at other prices; arguments and errors are those of `Run.price`."""
        own = self._prepared.folder
        with in_python(own.path if own.temporary else None):
            folder = self._answered()
            load_repriced_work(folder, options(set or {}), self._prepared.catalog, load_job)
        return _job_run(folder / SCENARIO_FILE, set, None, out, None, force, self._prepared.catalog.own)


def _draw_curves(panels: Sequence[Panel], sweep: Sweep, question: str, headline: str, note: str, name: str) -> Chart:
    return curves([panel for panel in panels if name in ("", panel.kind)], sweep, question, headline, note)


def run(
    scenario: Given,
    set: Values | None = None,
    replications: int | None = None,
    out: str | Path | None = None,
    *,
    seed: int | None = None,
    workers: int | None = None,
    force: bool = False,
    quiet: bool = False,
    catalog: Catalogs = (),
) -> Run:
    """Simulate a scenario: every fleet at every point of its sweep, as `gpufleet run` does.

    With *out*, the same run continues from the points that are finished there. Relative paths inside a dict start at
    the current directory.

    Parameters
    ----------
    scenario
        Path of a scenario file, name of a shipped scenario, dict with the keys of such a file, or Scenario.
    set
        Values that replace those of the scenario, by dotted path: {"workload.arrivals.rate_rps": 0.5}.
    replications
        Number of replications in place of the scenario's.
    out
        Folder for the files of the answer. None: nothing is kept.
    seed
        Seed in place of the scenario's.
    workers
        Number of processes. None: one per CPU core.
    force
        Whether to replace the answer to another question in *out*.
    quiet
        Whether to hide the progress.
    catalog
        Folder, or folders, with catalogue entries of your own; gpufleet.d beside the scenario is read anyway.

    Returns
    -------
    Run
        Finished run; a JobRun for a scenario with `job` or `jobs`.

    Raises
    ------
    ScenarioErrors
        With all mistakes of the scenario at once.
    Infeasible
        If no fleet can run.
    FolderRefused
        If *out* holds other files or the answer to another question.
    FolderBusy
        If another process writes to *out*.
    WorkerLost
        If memory runs out.

    Examples
    --------
    >>> import sim
    >>> run = sim.run("4x4090-vs-2xa100", {"horizon_s": 30, "warmup_s": 0, "sweep": None}, 1, workers=1, quiet=True)
    >>> list(run.summary.fleet)
    ['4x RTX 4090', '2x A100 80GB']
    >>> run.plots
    ('cost_vs_latency', 'latency_distribution')

    """
    if has_job(as_read(scenario)):
        return _job_run(scenario, set, replications, out, seed, force, catalog)
    prepared = Prepared(scenario, set, seed=seed, replications=replications, out=out, catalog=catalog)
    return Run(prepared, prepared.answered("run", run_scenario, workers, quiet, force, report=out is not None))


def _job_run(
    scenario: Given,
    values: Values | None,
    replications: int | None,
    out: str | Path | None,
    seed: int | None,
    force: bool,
    catalog: Catalogs,
) -> JobRun:
    """Answer `sim.run` for a scenario with `job` or `jobs`."""
    prepared = Prepared(scenario, values, seed=seed, replications=replications, out=out, read=load_job, catalog=catalog)
    read: Any = prepared.scenario
    with in_python(), prepared.folder.owned():
        rows = run_work(
            scenario=read,
            catalog=prepared.catalog,
            out=prepared.out,
            report=out is not None,
            command=["python", "sim.run"],
            force=force,
        )
    return JobRun(prepared, rows)
