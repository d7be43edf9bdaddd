"""Commands about the catalogue: `list` and `show`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from sim.cli.frame import (
    BAD_INPUT,
    Catalogs,
    Format,
    Kind,
    app,
    catalog_for,
    fail,
    print_to_stderr,
    report_bad_input,
    show_all,
)
from sim.message import Message, joined

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
        from sim.catalogue.data_folder import UnknownId
        from sim.report.catalogue import details, entry
        from sim.report.json_document import as_json, entry_document

        catalog = catalog_for(HERE, catalogs)
        try:
            found = entry(catalog, kind, name)
        except UnknownId as unknown:
            found = _stored_model(kind, name, unknown)
        if format == "json":
            typer.echo(as_json(entry_document(kind, found)))
        else:
            show_all(details(found))


def _stored_model(kind: str, name: str, unknown: Any) -> Any:
    """Return the model *name* of the local Hugging Face cache, and say so on stderr; end the command without one."""
    from sim.catalogue.hf_config.load import hub_copy, model_from_config
    from sim.report.catalogue import kind_of

    if kind_of(kind) != "models":
        raise unknown
    if (path := hub_copy(name)) is None:
        hint = Message(
            "any model: save config.json from its page on huggingface.co, then gpufleet init NAME --from config.json"
        )
        fail(joined("\n", [str(unknown), hint]), BAD_INPUT)
    read = Message("not in the catalogue: read from {path}; in a scenario: model: {path}", path)
    print_to_stderr(read)
    model = model_from_config(path)
    dimensions = model.dimensions.model_copy(update={"where": str(path)})
    return model.model_copy(update={"id": name, "name": name, "dimensions": dimensions})
