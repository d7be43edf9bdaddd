"""`gpufleet capacity`."""

import typer

from sim.cli.shared.common import (
    RELATIVE,
    Force,
    Format,
    NoReport,
    Out,
    Quiet,
    Relative,
    Replications,
    ScenarioFile,
    Seed,
    Sets,
    Workers,
    app,
    bad_input_told,
    command_line,
    fail,
    narrowed,
    say_what_is_left_aside,
    scenario_file,
    show_all,
    show_money_of,
    usable,
)
from sim.cli.shared.naming import default_folder
from sim.cli.shared.workplace import Address, workplace


@app.command()
def capacity(
    scenario: ScenarioFile,
    sets: Sets = None,
    seed: Seed = None,
    replications: Replications = None,
    workers: Workers = None,
    cluster: Address = None,
    out: Out = None,
    relative: Relative = RELATIVE,
    no_report: NoReport = False,
    force: Force = False,
    quiet: Quiet = False,
    format: Format = "table",
) -> None:
    """Find the highest load at which each fleet still meets its service level."""
    with bad_input_told():
        from sim.catalogue.catalog import load_catalog
        from sim.deliver.capacity import deliver_capacity
        from sim.report.capacity.answer import capacity_document, capacity_rows, capacity_table
        from sim.report.capacity.page import findings
        from sim.report.page.document import as_json
        from sim.scenario.checks.hostless import hostless_notes
        from sim.scenario.reading.load import load
        from sim.study.capacity.search import LoadAxis, precision_of, why_no_capacity

        path, catalog = scenario_file(scenario), load_catalog()
        numbers = {"seed": seed, "replications": replications}
        loaded = load(path, sets or (), catalog=catalog, **numbers)
        show_money_of(loaded)
        folder = usable(out or default_folder(loaded, "-capacity", sets, **numbers, relative=narrowed(relative)))
        if refusal := why_no_capacity(loaded):
            fail(f"{path}: {refusal}")
        axis = LoadAxis.of(loaded)
        say_what_is_left_aside(loaded.model_copy(update={"precision": precision_of(loaded)}), quiet, ("sweep",))
        with workplace(workers, cluster, folder, loaded, path) as there:
            found = deliver_capacity(
                scenario=loaded,
                catalog=catalog,
                out=folder,
                workplace=there,
                relative=relative,
                report=not no_report,
                quiet=quiet,
                command=command_line(),
                force=force,
            )
    rows = capacity_rows(found, axis, loaded.slo)
    if format == "json":
        typer.echo(as_json(capacity_document(loaded, found, axis, relative, str(folder))))
    elif not quiet:
        show_all(
            capacity_table(rows, axis, loaded.slo),
            *findings(found, rows, axis, loaded),
            *hostless_notes(loaded, catalog),
            f"results in {folder}",
        )
    if all(one.reason for one in found):
        fail("\n".join(dict.fromkeys(f"{path}: fleets.{one.fleet}: {one.reason}" for one in found)))
