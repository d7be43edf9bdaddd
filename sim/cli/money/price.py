"""`gpufleet price`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from sim.cli.shared.common import (
    Force,
    Format,
    NoReport,
    Quiet,
    app,
    bad_input_told,
    command_line,
    fail,
    show_all,
    show_money_of,
    usable,
)
from sim.cli.shared.hint import next_command, shown_to_people
from sim.cli.shared.naming import repriced_folder


@app.command()
def price(
    run: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Folder of a finished run.")],
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="A price or a term: site.pue=1.2. May be repeated."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; left out: beside RUN_DIR, named after what is set.")
    ] = None,
    no_report: NoReport = False,
    force: Force = False,
    quiet: Quiet = False,
    format: Format = "table",
) -> None:
    """Bill a finished run at other prices; nothing is simulated again."""
    with bad_input_told():
        from sim.catalogue.catalog import load_catalog
        from sim.deliver.shared.folder import is_finished, owned
        from sim.scenario.job.load import has_job
        from sim.study.money.price.reprice import SCENARIO_FILE, load_repriced

        catalog = load_catalog()
        if not is_finished(run):
            fail(f"{run}: is no finished run: gpufleet run makes one, and goes on with one that was interrupted")
        if (run / SCENARIO_FILE).is_file() and has_job(run / SCENARIO_FILE):
            _price_work(run, sets, catalog, out, not no_report, force, quiet, format)
            return
        loaded = load_repriced(run, sets or (), catalog)
        show_money_of(loaded)
        folder = usable(out or repriced_folder(run, loaded, sets))

        from sim.deliver.run import futures_told, price_run
        from sim.report.fleets.run.terminal import headed, terminal_differences, terminal_table
        from sim.report.fleets.run.verdict import verdict_of
        from sim.report.page.document import as_json, run_document
        from sim.scenario.checks.hostless import hostless_notes
        from sim.scenario.sections.compare import models_of
        from sim.scenario.sweep import axes
        from sim.study.cases.points import limits
        from sim.study.fleets.futures.settings import stored_disputes
        from sim.study.fleets.run.summary import summarize

        with owned(folder):
            cases = price_run(run, loaded, catalog, folder, not no_report, command_line(), force)
    told = (cases, axes(loaded), limits(loaded))
    bare = hostless_notes(loaded, catalog)
    notes = [*loaded.workload.notes(), *bare, *futures_told(folder)]
    if format == "json":
        typer.echo(as_json(run_document(loaded, catalog, cases, notes, str(folder))))
    elif not quiet:
        show_all(
            *headed(verdict_of(loaded, catalog, summarize(*told), disputes=stored_disputes(folder)), loaded),
            terminal_table(*told),
            *terminal_differences(*told, models_of(loaded, loaded.compare)),
            *bare,
            *futures_told(folder),
            f"results in {folder}",
            *([next_command("price", run, folder, loaded)] if shown_to_people() else []),
        )


def _price_work(
    run: Path,
    sets: list[str] | None,
    catalog: Any,
    out: Path | None,
    report: bool,
    force: bool,
    quiet: bool,
    format: str,
) -> None:
    """A job, or a queue of jobs, in place of a service: its answer takes a moment, so it is computed anew."""
    from sim.deliver.shared.folder import owned
    from sim.deliver.work import run_work
    from sim.report.page.document import as_json
    from sim.report.work.kinds import kind_of
    from sim.study.money.price.reprice import load_repriced_work

    loaded = load_repriced_work(run, sets or (), catalog)
    show_money_of(loaded)
    folder = usable(out or repriced_folder(run, loaded, sets))
    with owned(folder):
        rows = run_work(loaded, catalog, folder, report, command_line(), force)
    kind = kind_of(loaded)
    told = kind.verdict(rows)
    if format == "json":
        typer.echo(as_json(kind.document(loaded, rows, str(folder))))
    elif not quiet:
        show_all(told.headline, "", *kind.tables(rows), *told.findings, f"results in {folder}")
