"""`gpufleet calibrate`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from sim.cli.shared.common import OTHER_FAILURE, Force, Quiet, Workers, app, bad_input_told, fail, show_all


@app.command()
def calibrate(
    tables: Annotated[
        list[Path],
        typer.Argument(
            metavar="TABLE...",
            help="Your own runs in the columns of `validate`; or what your server told: pages of /metrics, answers to "
            "range queries, spans, a report of GuideLLM.",
        ),
    ],
    gpu: Annotated[str, typer.Option(help="The GPU that they ran on: an id or an alias.")],
    out: Annotated[Path, typer.Option(help="File for the factors; a scenario names it: `calibration: my-gpu.yaml`.")],
    about: Annotated[
        list[str] | None, typer.Option(help="What the server does not tell: tp=2, precision=fp8, engine_version=0.15.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=1e-3, help="From the first page of metrics to the last, or since the start.")
    ] = None,
    workload: Annotated[
        Path | None, typer.Option(help="File for the traffic that was seen; a scenario takes it with `base:`.")
    ] = None,
    workers: Workers = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Fit a host and its GPU to your own benchmarks: efficiencies, overheads, the link between the GPUs."""
    with bad_input_told():
        from concurrent.futures.process import BrokenProcessPool

        from sim.benchdata.served import read_rows, traffic_text, why_not_written
        from sim.catalogue.catalog import load_catalog
        from sim.report.fidelity.calibrate.answer import calibration_report, calibration_text, why_kept
        from sim.study.cases.durable import write_whole
        from sim.study.fidelity.calibrate.factors import NothingToFit, calibrate

        catalog = load_catalog()
        wanted = catalog.gpu(gpu).id
        table = " ".join(str(path) for path in tables)
        rows, seen = read_rows(tables, wanted, about or [], seconds)
        if workload is not None and (reason := why_not_written(workload, seen, out)):
            fail(f"--workload {workload}: {reason}")
        if out.exists() and (reason := why_kept(out, wanted, table, force)):
            fail(f"--out {out}: {reason}")
        try:
            fitted = calibrate(rows, wanted, catalog, workers or os.cpu_count() or 1, table)
        except NothingToFit as error:
            fail(str(error))
        except BrokenProcessPool:
            fail("a worker process was killed, perhaps for lack of memory; nothing is written", OTHER_FAILURE)
        try:
            write_whole(out, calibration_text(fitted.calibration))
            if workload is not None:
                write_whole(workload, traffic_text(seen[-1], table))
        except OSError as error:
            fail(f"--out {out}: cannot be written: {(error.strerror or str(error)).lower()}")
    if not quiet:
        lines = [f"wrote {out}; a scenario uses it with: calibration: {out}"]
        if workload is not None:
            lines.append(f"wrote {workload}; a scenario takes the traffic with: base: {workload}")
        show_all(*calibration_report(fitted), *lines)
