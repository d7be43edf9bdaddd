"""`gpufleet diff`."""

from pathlib import Path
from typing import Annotated

import typer

from sim.cli.shared.common import Format, app, bad_input_told, fail, show_all, show_money_of
from sim.language import ENGLISH, speaking


@app.command()
def diff(
    first: Annotated[Path, typer.Argument(metavar="A", help="Folder of a finished run.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Folder of another one.")],
    format: Format = "table",
) -> None:
    """Compare two finished runs: changed inputs, and what they changed; nothing is simulated."""
    with bad_input_told():
        from sim.catalogue.catalog import load_catalog
        from sim.deliver.shared.folder import is_finished
        from sim.report.fleets.diff.answer import diff_document, diff_tables
        from sim.report.page.document import as_json
        from sim.study.fleets.diff.runs import StoredRun, compare

        unfinished = [folder for folder in (first, second) if not is_finished(folder)]
        if unfinished:
            fail("\n".join(f"{folder}: is no finished run: gpufleet run makes one" for folder in unfinished))
        catalog = load_catalog()
        runs = StoredRun.read(first, catalog), StoredRun.read(second, catalog)
        show_money_of(runs[1].scenario)
        found = compare(*runs)
    if format == "json":
        with speaking(ENGLISH):
            typer.echo(as_json(diff_document(*runs, found)))
    else:
        show_all(*diff_tables(*runs, found))
