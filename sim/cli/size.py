"""`gpufleet size`."""

import typer

from sim.cli.shared.common import (
    Force,
    Format,
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
    say_what_is_left_aside,
    scenario_file,
    show_all,
    show_money_of,
    usable,
)
from sim.cli.shared.naming import default_folder
from sim.cli.shared.workplace import Address, workplace


@app.command()
def size(
    scenario: ScenarioFile,
    sets: Sets = None,
    seed: Seed = None,
    replications: Replications = None,
    workers: Workers = None,
    cluster: Address = None,
    out: Out = None,
    force: Force = False,
    quiet: Quiet = False,
    format: Format = "table",
) -> None:
    """The cheapest fleet that meets the service level at the scenario's load, and why the others lose.

    The scenario's section `size` says what there is to choose from.
    """
    with bad_input_told():
        from sim.catalogue.catalog import load_catalog
        from sim.deliver.size import deliver_size
        from sim.report.page.document import as_json
        from sim.report.page.page import text_table
        from sim.report.size.answer import MOST_ROWS, impossible, ranking, sentences, size_document
        from sim.scenario.checks.hostless import hostless_notes
        from sim.scenario.reading.load import load_for_size
        from sim.study.size.search import why_no_size

        path, catalog = scenario_file(scenario), load_catalog()
        numbers = {"seed": seed, "replications": replications}
        loaded = load_for_size(path, sets or (), catalog=catalog, **numbers)
        show_money_of(loaded)
        folder = usable(out or default_folder(loaded, "-size", sets, **numbers))
        if refusal := why_no_size(loaded):
            fail(f"{path}: {refusal}")
        say_what_is_left_aside(loaded, quiet)
        with workplace(workers, cluster, folder, loaded, path) as there:
            found = deliver_size(loaded, catalog, folder, there, quiet, command_line(), force)
    if format == "json":
        typer.echo(as_json(size_document(found, loaded, str(folder))))
    if quiet or format == "json":
        return
    if all(one.status == "impossible" for one in found.tried):
        show_all(text_table(impossible(found)), "")
    table = ranking(found, loaded, MOST_ROWS)
    show_all(
        text_table(table),
        *sentences(found, loaded),
        *hostless_notes(loaded, catalog),
        f"all {len(found.tried)} candidates in {folder}/size.csv",
    )
    if found.winner is not None:
        year = ", which adds the bill of its year" if loaded.load_profile is not None else ""
        show_all(f"the winner alone in {folder}/winner.yaml, for gpufleet run{year}")
    if found.nearest is not None:
        show_all(f"the best fleet within the budget alone in {folder}/within_budget.yaml, for gpufleet run")
