"""`gpufleet plan`."""

import typer

from sim.cli.shared.common import (
    RELATIVE,
    Force,
    Format,
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
def plan(
    scenario: ScenarioFile,
    sets: Sets = None,
    seed: Seed = None,
    replications: Replications = None,
    workers: Workers = None,
    cluster: Address = None,
    out: Out = None,
    relative: Relative = RELATIVE,
    force: Force = False,
    quiet: Quiet = False,
    format: Format = "table",
) -> None:
    """Plan several years month by month: what to buy, replace or rent when, and the cash.

    The scenario's section `plan` tells demand, orders and terms.
    """
    with bad_input_told():
        from sim.catalogue.catalog import load_catalog
        from sim.deliver.plan import deliver_plan
        from sim.report.page.document import as_json
        from sim.report.plan.answer import plan_document
        from sim.report.plan.tables import plan_table
        from sim.report.plan.verdict import verdict
        from sim.scenario.checks.hostless import hostless_notes
        from sim.scenario.reading.load import load
        from sim.study.capacity.search import why_no_capacity

        path, catalog = scenario_file(scenario), load_catalog()
        numbers = {"seed": seed, "replications": replications}
        loaded = load(path, sets or (), catalog=catalog, **numbers)
        show_money_of(loaded)
        folder = usable(out or default_folder(loaded, "-plan", sets, **numbers, relative=narrowed(relative)))
        if loaded.plan is None:
            fail(f"{path}: plan: is missing: years, starts and what else is known of the years to come")
        if refusal := why_no_capacity(loaded):
            fail(f"{path}: {refusal}")
        say_what_is_left_aside(loaded, quiet, ("sweep",))
        with workplace(workers, cluster, folder, loaded, path) as there:
            found = deliver_plan(loaded, catalog, folder, there, relative, quiet, command_line(), force)
    if format == "json":
        typer.echo(as_json(plan_document(loaded, found, str(folder))))
    if quiet or format == "json":
        return
    answer = verdict(found, loaded.plan, loaded.precision)
    show_all(
        plan_table(found),
        "",
        answer.headline,
        *answer.findings,
        *hostless_notes(loaded, catalog),
        f"results in {folder}",
    )
