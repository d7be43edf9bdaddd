"""`gpufleet capacity`."""

from pathlib import Path
from typing import Annotated

import typer

from sim.cli.common import (
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
    command_line,
    fail,
    say_what_is_left_aside,
    scenario_file,
    show_all,
    usable,
)
from sim.cli.workplace import Address, workplace


@app.command()
def capacity(
    scenario: ScenarioFile,
    sets: Sets = None,
    seed: Seed = None,
    replications: Replications = None,
    workers: Workers = None,
    cluster: Address = None,
    out: Annotated[Path | None, typer.Option(help="Left out: outputs/<scenario name>-capacity.")] = None,
    relative: Annotated[float, typer.Option(min=0.001, max=0.5, help="Width of the last bracket.")] = 0.02,
    no_report: NoReport = False,
    quiet: Quiet = False,
    format: Format = "table",
) -> None:
    """Find the highest load at which each fleet still meets its service level."""
    with bad_input_told():
        from sim.catalog.catalog import load_catalog
        from sim.report.capacity import capacity_document, capacity_rows, capacity_table, deliver_capacity
        from sim.report.capacity_page import findings
        from sim.report.document import as_json
        from sim.scenario.load import load
        from sim.study.capacity import LoadAxis, why_no_capacity

        path, catalog = scenario_file(scenario), load_catalog()
        loaded = load(path, sets or (), catalog=catalog, seed=seed, replications=replications)
        folder = usable(out or Path("outputs") / f"{loaded.name}-capacity")
        if refusal := why_no_capacity(loaded):
            fail(f"{path}: {refusal}")
        axis = LoadAxis.of(loaded)
        say_what_is_left_aside(loaded, quiet)
        with workplace(workers, cluster, folder) as there:
            found = deliver_capacity(
                scenario=loaded,
                catalog=catalog,
                out=folder,
                workplace=there,
                relative=relative,
                report=not no_report,
                quiet=quiet,
                command=command_line(),
            )
    rows = capacity_rows(found, axis, loaded.slo)
    if format == "json":
        typer.echo(as_json(capacity_document(loaded, found, axis, relative, str(folder))))
    elif not quiet:
        show_all(capacity_table(rows, axis, loaded.slo), *findings(found, rows, axis), f"results in {folder}")
    if all(one.reason for one in found):
        fail("\n".join(dict.fromkeys(f"{path}: fleets.{one.fleet}: {one.reason}" for one in found)))
