"""`gpufleet export`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from sim.cli.shared.common import Quiet, app, bad_input_told, fail
from sim.language import _, retold


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run, plan or other answer.")],
    format: Annotated[
        Literal["xlsx", "focus"],
        typer.Option("--format", help="xlsx: a workbook with live formulas; focus: billing rows by FOCUS 1.2, as CSV."),
    ] = "xlsx",
    out: Annotated[
        Path | None, typer.Option(help="The file; left out: RUN.xlsx or RUN-focus.csv, beside the folder.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Write a finished answer as a workbook or as billing rows; nothing is simulated."""
    with bad_input_told():
        from sim.deliver.export import default_file, exported, why_no_export

        folder = Path(run)
        file = out or default_file(folder, format)
        if refusal := why_no_export(folder, format, file):
            fail(refusal)
        told = exported(folder, format, file)
    for line in told:
        typer.echo(retold(line), err=True)
    if not quiet:
        typer.echo(_("written: {file}", file=file))
