"""`gpufleet plan`."""

from pathlib import Path
from typing import Annotated

import typer

from sim.cli.common import (
    Format,
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
def plan(
    scenario: ScenarioFile,
    sets: Sets = None,
    seed: Seed = None,
    replications: Replications = None,
    workers: Workers = None,
    cluster: Address = None,
    out: Annotated[Path | None, typer.Option(help="Left out: outputs/<scenario name>-plan.")] = None,
    relative: Annotated[
        float, typer.Option(min=0.001, max=0.5, help="Width of the last bracket in the search for a unit's capacity.")
    ] = 0.02,
    quiet: Quiet = False,
    format: Format = "table",
) -> None:
    """Plan several years month by month: what to buy, replace or rent when, and the cash.

    The scenario's section `plan` tells demand, orders and terms.
    """
    with bad_input_told():
        from sim.catalog.catalog import load_catalog
        from sim.report.document import as_json
        from sim.report.plan_deliver import deliver_plan, plan_document
        from sim.report.plan_tables import plan_table
        from sim.report.plan_verdict import verdict
        from sim.scenario.load import load
        from sim.study.capacity import why_no_capacity

        path, catalog = scenario_file(scenario), load_catalog()
        loaded = load(path, sets or (), catalog=catalog, seed=seed, replications=replications)
        folder = usable(out or Path("outputs") / f"{loaded.name}-plan")
        if loaded.plan is None:
            fail(f"{path}: plan: is missing: years, starts and what else is known of the years to come")
        if refusal := why_no_capacity(loaded):
            fail(f"{path}: {refusal}")
        say_what_is_left_aside(loaded, quiet)
        with workplace(workers, cluster, folder) as there:
            found = deliver_plan(loaded, catalog, folder, there, relative, quiet, command_line())
    if format == "json":
        typer.echo(as_json(plan_document(loaded, found, str(folder))))
    if quiet or format == "json":
        return
    answer = verdict(found, loaded.plan)
    show_all(plan_table(found), "", answer.headline, *answer.findings, f"results in {folder}")
