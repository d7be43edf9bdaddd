"""`gpufleet run`."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from sim.cli.common import (
    OTHER_FAILURE,
    Format,
    NoReport,
    Quiet,
    Replications,
    ScenarioFile,
    Seed,
    Sets,
    Workers,
    app,
    bad_input_told,
    fail,
    scenario_file,
    show_all,
    usable,
)


class ClusterFailed(Exception):
    """The cluster cannot be used; the message says why."""


def _executor(address: str) -> Any:
    """What runs cases on the cluster at *address*, as long as gpufleet[cluster] is installed."""
    try:
        from sim.study.cluster import ClusterError, execute_on
    except ModuleNotFoundError:
        fail("--cluster needs dask.distributed: pip install 'gpufleet[cluster]'")

    def execute(*work: Any) -> Iterator[Path]:
        try:
            yield from execute_on(address, *work)
        except ClusterError as error:
            raise ClusterFailed(error) from None

    return execute


@app.command()
def run(
    scenario: ScenarioFile,
    sets: Sets = None,
    seed: Seed = None,
    replications: Replications = None,
    workers: Workers = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results; left out: outputs/<scenario name>.")] = None,
    no_report: NoReport = False,
    quiet: Quiet = False,
    format: Format = "table",
    cluster: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="A dask scheduler that runs the points: tcp://host:8786."),
    ] = None,
) -> None:
    """Simulate a scenario and write tables, curves and a report."""
    with bad_input_told():
        from sim.catalog.catalog import load_catalog
        from sim.scenario.load import load

        path, catalog = scenario_file(scenario), load_catalog()
        loaded = load(path, sets or (), catalog=catalog, seed=seed, replications=replications)
        folder = usable(out or Path("outputs") / loaded.name)

        from sim.report.deliver import futures_told, run_scenario
        from sim.report.document import as_json, run_document
        from sim.report.exactness import precision_notes
        from sim.report.terminal import terminal_differences, terminal_table
        from sim.scenario.sweep import axes
        from sim.study.points import limits

        try:
            cases = run_scenario(
                scenario=loaded,
                catalog=catalog,
                out=folder,
                workers=workers or os.cpu_count() or 1,
                report=not no_report,
                quiet=quiet,
                command=["gpufleet", *sys.argv[1:]],
                executor=_executor(cluster) if cluster else None,
            )
        except ClusterFailed as error:
            fail(f"--cluster: {error}")
        except KeyboardInterrupt:
            kept = "interrupted; finished points are kept, and the same command goes on from them"
            fail(f"{folder}: {kept}", OTHER_FAILURE)
    told = (cases, axes(loaded), limits(loaded))
    notes = [*loaded.workload.notes(), *precision_notes(loaded, cases), *futures_told(folder)]
    if format == "json":
        typer.echo(as_json(run_document(loaded, *told, notes, str(folder))))
    elif not quiet:
        show_all(terminal_table(*told), *terminal_differences(*told), *notes, f"results in {folder}")
    if all(case.status == "infeasible" for case in cases):
        fail("\n".join(dict.fromkeys(f"{path}: fleets.{case.fleet}: {case.reason}" for case in cases)))
