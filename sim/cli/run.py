"""`gpufleet run`."""

import typer

from sim.cli.shared.common import (
    Force,
    Format,
    NoReport,
    Out,
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
    scenario_file,
    show_all,
    show_money_of,
    usable,
)
from sim.cli.shared.naming import default_folder
from sim.cli.shared.workplace import Address, workplace


@app.command()
def run(
    scenario: ScenarioFile,
    sets: Sets = None,
    seed: Seed = None,
    replications: Replications = None,
    workers: Workers = None,
    out: Out = None,
    no_report: NoReport = False,
    force: Force = False,
    quiet: Quiet = False,
    format: Format = "table",
    cluster: Address = None,
) -> None:
    """Simulate a scenario and write tables, curves and a report."""
    with bad_input_told():
        from sim.catalogue.catalog import load_catalog
        from sim.scenario.reading.load import load

        path, catalog = scenario_file(scenario), load_catalog()
        numbers = {"seed": seed, "replications": replications}
        loaded = load(path, sets or (), catalog=catalog, **numbers)
        show_money_of(loaded)
        folder = usable(out or default_folder(loaded, "", sets, **numbers))

        from sim.deliver.run import futures_told, run_scenario
        from sim.report.page.document import as_json, run_document
        from sim.report.page.exactness import precision_notes
        from sim.report.run.terminal import terminal_differences, terminal_table
        from sim.scenario.checks.hostless import hostless_notes
        from sim.scenario.sweep import axes
        from sim.study.cases.points import limits

        with workplace(workers, cluster, folder, loaded, path) as there:
            cases = run_scenario(
                scenario=loaded,
                catalog=catalog,
                out=folder,
                workplace=there,
                report=not no_report,
                quiet=quiet,
                command=command_line(),
                force=force,
            )
    told = (cases, axes(loaded), limits(loaded))
    notes = [*loaded.workload.notes(), *precision_notes(loaded, cases), *hostless_notes(loaded, catalog)]
    notes += futures_told(folder)
    if format == "json":
        typer.echo(as_json(run_document(loaded, *told, notes, str(folder))))
    elif not quiet:
        show_all(terminal_table(*told), *terminal_differences(*told), *notes, f"results in {folder}")
    if all(case.status == "infeasible" for case in cases):
        fail("\n".join(dict.fromkeys(f"{path}: fleets.{case.fleet}: {case.reason}" for case in cases)))
