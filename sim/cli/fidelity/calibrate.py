"""`gpufleet calibrate`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from sim.cli.shared.common import OTHER_FAILURE, Force, Quiet, Workers, app, bad_input_told, fail, show_all


@app.command()
def calibrate(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="Your own runs, in the columns of `validate`.")],
    gpu: Annotated[str, typer.Option(help="The GPU that they ran on: an id or an alias.")],
    out: Annotated[Path, typer.Option(help="File for the factors; a scenario names it: `calibration: my-gpu.yaml`.")],
    workers: Workers = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Fit a host and its GPU to your own benchmarks: efficiencies, overheads, the link between the GPUs."""
    with bad_input_told():
        from concurrent.futures.process import BrokenProcessPool

        from sim.benchdata import read_benchmarks
        from sim.catalogue.catalog import load_catalog
        from sim.report.fidelity.calibrate.answer import calibration_report, calibration_text, why_kept
        from sim.study.cases.durable import write_whole
        from sim.study.fidelity.calibrate.factors import NothingToFit, calibrate

        catalog = load_catalog()
        wanted = catalog.gpu(gpu).id
        rows = read_benchmarks(table)
        if out.exists() and (reason := why_kept(out, wanted, str(table), force)):
            fail(f"--out {out}: {reason}")
        try:
            fitted = calibrate(rows, wanted, catalog, workers or os.cpu_count() or 1, str(table))
        except NothingToFit as error:
            fail(str(error))
        except BrokenProcessPool:
            fail("a worker process was killed, perhaps for lack of memory; nothing is written", OTHER_FAILURE)
        try:
            write_whole(out, calibration_text(fitted.calibration))
        except OSError as error:
            fail(f"--out {out}: cannot be written: {(error.strerror or str(error)).lower()}")
    if not quiet:
        show_all(*calibration_report(fitted), f"wrote {out}; a scenario uses it with: calibration: {out}")
