"""`gpufleet validate`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from sim.cli.shared.common import (
    Force,
    Quiet,
    Workers,
    app,
    bad_input_told,
    command_line,
    show_all,
    usable,
)
from sim.cli.shared.workplace import whole_or_nothing


@app.command()
def validate(
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE", help="Measurements: a CSV table, results of a benchmark client, or a folder of these."
        ),
    ],
    about: Annotated[
        list[str] | None, typer.Option(help="What results of a client do not tell: gpu=l40s, tp=2, precision=fp8.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results; left out: outputs/validate-<name>.")] = None,
    workers: Workers = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Predict measured benchmarks and show how far the predictions are off."""
    with bad_input_told():
        from sim.benchdata import read_benchmarks
        from sim.benchdata.served import parsed
        from sim.catalogue.catalog import load_catalog
        from sim.deliver.shared.tables import table_kind

        kind = table_kind(table)
        rows = read_benchmarks(table, parsed(about)) if about else kind.read(table)
        folder = usable(out or Path("outputs") / f"validate-{table.resolve().stem}")

        from sim.deliver.validate import run_validation

        with whole_or_nothing(folder):
            outcomes = run_validation(
                kind=kind,
                rows=rows,
                catalog=load_catalog(),
                out=folder,
                workers=workers or os.cpu_count() or 1,
                table=str(table),
                quiet=quiet,
                command=command_line(),
                force=force,
            )
    if not quiet:
        show_all(*kind.show(outcomes), f"results in {folder}")
