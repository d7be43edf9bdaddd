"""`gpufleet price`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from sim.cli.common import NoReport, Quiet, app, bad_input_told, show_all, usable


@app.command()
def price(
    run: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Folder of a finished run.")],
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="A price or a term: site.pue=1.2. May be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results; left out: RUN_DIR-repriced.")] = None,
    no_report: NoReport = False,
    quiet: Quiet = False,
) -> None:
    """Bill a finished run at other prices; nothing is simulated again."""
    with bad_input_told():
        from sim.catalog.catalog import load_catalog
        from sim.study.price import load_repriced

        catalog = load_catalog()
        loaded = load_repriced(run, sets or (), catalog)
        folder = usable(out or run.with_name(f"{run.name}-repriced"))

        from sim.report.deliver import futures_told, price_run
        from sim.report.terminal import terminal_table
        from sim.scenario.sweep import axes
        from sim.study.points import limits

        cases = price_run(run, loaded, catalog, folder, not no_report, ["gpufleet", *sys.argv[1:]])
    if not quiet:
        table = terminal_table(cases, axes(loaded), limits(loaded))
        show_all(table, *futures_told(folder), f"results in {folder}")
