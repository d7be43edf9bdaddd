"""`gpufleet list` and `gpufleet show`."""

from typing import Annotated

import typer

from sim.cli.common import Kind, app, bad_input_told, show_all


@app.command("list")
def list_(kind: Kind) -> None:
    """List what the catalogue holds."""
    with bad_input_told():
        from sim.catalog.catalog import load_catalog
        from sim.report.catalogue import listing

        table = listing(load_catalog(), kind)
    show_all(table)


@app.command()
def show(kind: Kind, name: Annotated[str, typer.Argument(help="An id or an alias.")]) -> None:
    """Show one thing of the catalogue, every value with its source."""
    with bad_input_told():
        from sim.catalog.catalog import load_catalog
        from sim.report.catalogue import details, entry

        table = details(entry(load_catalog(), kind, name))
    show_all(table)
