"""`gpufleet breakeven`."""

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
def breakeven(
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
    """Rent, buy or API: cost over utilisation and over months, and what tips the verdict.

    The scenario's section `breakeven` names other ways to pay for its fleets.
    """
    with bad_input_told():
        from sim.catalogue.catalog import load_catalog
        from sim.deliver.breakeven import deliver_breakeven
        from sim.report.breakeven.answer import breakeven_document, left_out, ranking
        from sim.report.breakeven.verdict import sentences, unmoved
        from sim.report.page.document import as_json
        from sim.report.page.exactness import capacity_notes
        from sim.report.page.page import text_table
        from sim.scenario.checks.hostless import hostless_notes
        from sim.scenario.reading.load import load
        from sim.study.capacity.search import why_no_capacity

        path, catalog = scenario_file(scenario), load_catalog()
        numbers = {"seed": seed, "replications": replications}
        loaded = load(path, sets or (), catalog=catalog, **numbers)
        show_money_of(loaded)
        folder = usable(out or default_folder(loaded, "-breakeven", sets, **numbers))
        if refusal := why_no_capacity(loaded):
            fail(f"{path}: {refusal}")
        refusals = []
        for position, fleet in enumerate(loaded.fleets):
            if fleet.has_own_costs:
                refusals.append(f"fleets.{position}.pools: ways to pay are compared for whole fleets, not for pools")
            elif fleet.cost is None:
                refusals.append(f"fleets.{position}.cost: is missing: what {fleet.name} costs is the question")
        if refusals:
            fail("\n".join(f"{path}: {refusal}" for refusal in refusals))
        say_what_is_left_aside(loaded, quiet, ("sweep",))
        with workplace(workers, cluster, folder, loaded, path) as there:
            answer = deliver_breakeven(loaded, catalog, folder, there, quiet, command_line(), force)
    if format == "json":
        typer.echo(as_json(breakeven_document(loaded, answer, str(folder))))
    if quiet or format == "json":
        return
    table = ranking(answer)
    doubts = [*capacity_notes(answer.capacities, loaded.precision), *hostless_notes(loaded, catalog)]
    told = [line for line in (*sentences(answer), unmoved(answer), *left_out(answer), *doubts) if line]
    show_all(text_table(table), *told, f"results in {folder}")
