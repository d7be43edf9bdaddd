"""Commands about the catalogue: `list` and `show`."""

from typing import Annotated

import typer

from sim.cli.frame import Format, Kind, app, report_bad_input, show_all


@app.command("list")
def list_(kind: Kind = "", format: Format = "table") -> None:
    """List the entries of a kind in the catalogue, or the kinds."""
    with report_bad_input():
        from sim.catalogue.catalog import load_catalog
        from sim.report.catalogue import listing
        from sim.report.json_document import as_json, listing_document

        if format == "json":
            typer.echo(as_json(listing_document(load_catalog(), kind)))
        else:
            show_all(listing(load_catalog(), kind))


@app.command()
def show(kind: Kind, name: Annotated[str, typer.Argument(help="An id or an alias.")], format: Format = "table") -> None:
    """Show an entry of the catalogue, each value with its source."""
    with report_bad_input():
        from sim.catalogue.catalog import load_catalog
        from sim.report.catalogue import details, entry
        from sim.report.json_document import as_json, entry_document

        if format == "json":
            typer.echo(as_json(entry_document(load_catalog(), kind, name)))
        else:
            show_all(details(entry(load_catalog(), kind, name)))
