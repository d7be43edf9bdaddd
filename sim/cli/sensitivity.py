"""`gpufleet sensitivity`."""

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
def sensitivity(
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
    """Which inputs move the cost of each fleet and their difference, and what the difference is made of.

    The scenario's section `sensitivity` names inputs and ranges; left out: prices, rates, load and lengths, 30 % each.
    """
    with bad_input_told():
        from sim.catalogue.catalog import load_catalog
        from sim.deliver.sensitivity import deliver_sensitivity
        from sim.report.page.document import as_json
        from sim.report.page.page import text_table
        from sim.report.sensitivity.answer import sensitivity_document, tables
        from sim.report.sensitivity.verdict import gap_sentences, sentences
        from sim.scenario.checks.hostless import hostless_notes
        from sim.scenario.reading.load import load
        from sim.study.sensitivity.one_at_a_time import why_no_sensitivity

        path, catalog = scenario_file(scenario), load_catalog()
        numbers = {"seed": seed, "replications": replications}
        loaded = load(path, sets or (), catalog=catalog, **numbers)
        show_money_of(loaded)
        folder = usable(out or default_folder(loaded, "-sensitivity", sets, **numbers))
        if refusals := why_no_sensitivity(loaded):
            fail("\n".join(f"{path}: {refusal}" for refusal in refusals))
        say_what_is_left_aside(loaded, quiet)
        with workplace(workers, cluster, folder, loaded, path) as there:
            answer = deliver_sensitivity(loaded, catalog, folder, there, quiet, command_line(), force)
    if format == "json":
        typer.echo(as_json(sensitivity_document(loaded, answer, str(folder))))
    if quiet or format == "json":
        return
    for table in tables(answer):
        show_all(text_table(table), "")
    told = [
        *sentences(answer),
        *gap_sentences(answer),
        *answer.found.reasons,
        answer.explained.reason,
        *hostless_notes(loaded, catalog),
    ]
    show_all(*filter(None, told), f"results in {folder}")
