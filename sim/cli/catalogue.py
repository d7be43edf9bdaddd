"""Commands about the catalogue: `list` and `show`."""

from pathlib import Path
from typing import Annotated

import typer

from sim.cli.frame import Catalogs, Format, Kind, app, catalog_for, report_bad_input, show_all

HERE = Path("scenario.yaml")
"""Place of a scenario in the working directory, beside which gpufleet.d is looked for."""


@app.command("list")
def list_(kind: Kind = "", format: Format = "table", catalogs: Catalogs = None) -> None:
    """List the entries of a kind in the catalogue, or the kinds."""
    with report_bad_input():
        from sim.report.catalogue import listing
        from sim.report.json_document import as_json, listing_document

        catalog = catalog_for(HERE, catalogs)
        if format == "json":
            typer.echo(as_json(listing_document(catalog, kind)))
        else:
            show_all(listing(catalog, kind))


@app.command()
def show(
    kind: Kind,
    name: Annotated[str, typer.Argument(help="An id or an alias.")],
    format: Format = "table",
    catalogs: Catalogs = None,
) -> None:
    """Show an entry of the catalogue, each value with its source."""
    with report_bad_input():
        from sim.report.catalogue import details, entry
        from sim.report.json_document import as_json, entry_document

        catalog = catalog_for(HERE, catalogs)
        if format == "json":
            typer.echo(as_json(entry_document(catalog, kind, name)))
        else:
            show_all(details(entry(catalog, kind, name)))
