"""Command `gpufleet claims`."""

from pathlib import Path
from typing import Annotated

import typer

from sim.cli.frame import (
    Force,
    Format,
    Quiet,
    Workers,
    app,
    command_line,
    process_count,
    report_bad_input,
    show_all,
    usable,
)
from sim.cli.workplace import whole_or_nothing
from sim.message import Message


@app.command()
def claims(
    ids: Annotated[list[str] | None, typer.Argument(metavar="IDS", help="C08 C36; default: all.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results; default: outputs/claims.")] = None,
    workers: Workers = None,
    force: Force = False,
    quiet: Quiet = False,
    format: Format = "table",
) -> None:
    """Check claims of articles.

    Each verdict is computed from a scenario by stated rules.
    """
    with report_bad_input():
        from sim.catalogue.catalog import load_catalog
        from sim.claims.files import chosen, claim_files
        from sim.claims.report import check_and_write_claims, claim_rows, terminal_table
        from sim.report.json_document import as_json

        files = chosen(ids or (), claim_files())
        name = "claims" if not ids else f"claims-{'-'.join(files)}"
        folder = usable(out or Path("outputs") / name)
        with whole_or_nothing(folder):
            answers = check_and_write_claims(
                files, load_catalog(), folder, process_count(workers), quiet, command_line(), force
            )
    if format == "json":
        typer.echo(as_json({"out": str(folder), "claims": claim_rows(answers)}))
    elif not quiet:
        show_all(*terminal_table(answers), Message("results in {folder}", folder))
