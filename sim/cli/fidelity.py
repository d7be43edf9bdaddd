"""Commands about measurements: `validate` predicts measured benchmarks, `calibrate` fits factors to a server."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from sim.cli.frame import (
    OTHER_FAILURE,
    Force,
    Quiet,
    Workers,
    app,
    catalog_for,
    command_line,
    fail,
    process_count,
    report_bad_input,
    show_all,
    usable,
)
from sim.cli.workplace import whole_or_nothing
from sim.language import translate_message
from sim.message import Message, os_reason
from sim.scenario.reading.shipped import scenario_file


@app.command()
def validate(
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE", help="Measurements: a CSV table, results of a benchmark client, or a folder of these."
        ),
    ],
    about: Annotated[
        list[str] | None,
        typer.Option(help="Properties missing from a client's results: gpu=l40s, tp=2, precision=fp8."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help=("Folder for the results; default: outputs/validate-<name>."))
    ] = None,
    workers: Workers = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Predict measured benchmarks and show the errors."""
    with report_bad_input():
        from sim.benchdata import read_benchmarks
        from sim.benchdata.served import parsed
        from sim.catalogue.catalog import load_catalog
        from sim.fidelity.validation import remarks, table_kind

        kind = table_kind(table)
        rows = read_benchmarks(table, parsed(about)) if about else kind.read(table)
        folder = usable(out or Path("outputs") / f"validate-{table.resolve().stem}")

        from sim.fidelity.validation import run_validation

        with whole_or_nothing(folder):
            outcomes = run_validation(
                kind=kind,
                rows=rows,
                catalog=load_catalog(),
                out=folder,
                workers=process_count(workers),
                table=str(table),
                quiet=quiet,
                command=command_line(),
                force=force,
            )
    if not quiet:
        show_all(*kind.show(outcomes), *remarks(kind, table), Message("results in {folder}", folder))


@app.command()
def calibrate(
    tables: Annotated[
        list[Path],
        typer.Argument(
            metavar="TABLE...",
            help="Your own runs in the columns of `validate`; or the output of your server or load generator: pages of "
            "/metrics, answers to queries, spans, reports of GuideLLM or AIPerf, results of `vllm bench serve`, output "
            "of `all_reduce_perf`. A folder of pages is a recording of its own. With --plan: a scenario.",
        ),
    ],
    gpu: Annotated[str | None, typer.Option(help="GPU of the measurements: an id or an alias.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="File for the fitted factors, for the key `calibration` of scenarios.")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print the commands that measure the servers of a scenario, and stop.")
    ] = False,
    about: Annotated[
        list[str] | None,
        typer.Option(help="Properties that the server does not report: tp=2, precision=fp8, engine_version=0.15."),
    ] = None,
    seconds: Annotated[
        list[float] | None,
        typer.Option(
            min=1e-3,
            max=1e9,
            help=("Seconds from the first page of metrics to the last; one value for all recordings, or one for each."),
        ),
    ] = None,
    workload: Annotated[
        Path | None,
        typer.Option(
            help=("Write the observed traffic to this file, one file per recording; scenarios read it with `base:`.")
        ),
    ] = None,
    workers: Workers = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Fit the factors of a host and its GPU to your own benchmarks.

    Efficiencies, overheads and the link between the GPUs are fitted.
    """
    if plan:
        _show_plan(tables)
        return
    with report_bad_input():
        from concurrent.futures.process import BrokenProcessPool

        from sim.benchdata.nccl_tests import all_reduces_in
        from sim.benchdata.served import parsed, read_rows, traffic_files, traffic_text, why_not_written
        from sim.catalogue.catalog import load_catalog
        from sim.fidelity.calibration import (
            NothingToFit,
            calibrate,
            calibrate_link,
            calibration_report,
            calibration_text,
            why_not_replaced,
        )

        if gpu is None or out is None:
            fail(Message("{option} is needed; --plan prints what to measure", "--gpu" if gpu is None else "--out"))
        catalog = load_catalog()
        wanted = catalog.gpu(gpu).id
        table = " ".join(str(path) for path in tables)
        all_reduces, results = all_reduces_in(tables, wanted, catalog)
        rows, seen = read_rows(results, wanted, about or [], seconds or []) if results else ([], [])
        if workload is not None and (reason := why_not_written(workload, seen, out)):
            fail(Message("--workload {workload}: {reason}", workload, reason))
        if out.exists() and (reason := why_not_replaced(out, wanted, table, force)):
            fail(f"--out {out}: {reason}")
        try:
            if results:
                fitted = calibrate(rows, wanted, catalog, process_count(workers), table, all_reduces)
            else:
                interconnect = _interconnect(parsed(about or []), seconds or [])
                fitted = calibrate_link(all_reduces, wanted, interconnect, catalog, table)
        except NothingToFit as error:
            fail(str(error))
        except BrokenProcessPool:
            fail("a worker process was killed, perhaps for lack of memory; nothing is written", OTHER_FAILURE)
        files = traffic_files(workload, seen) if workload is not None else {}
        texts = {file: traffic_text(traffic, table) for file, traffic in files.items()}
        _write(out, {out: calibration_text(fitted.calibration)} | texts)
    if not quiet:
        lines = [remark for one in seen for remark in one.remarks]
        lines.append(Message("wrote {out}; a scenario uses it with: calibration: {out}", out))
        lines += [Message("wrote {file}; a scenario takes the traffic with: base: {file}", file) for file in files]
        show_all(*calibration_report(fitted), *lines)


def _interconnect(about: Mapping[str, str], seconds: Sequence[float]) -> str:
    """Return the link of `--about interconnect=ID`, the only option of all-reduces alone; empty: the GPU's own."""
    unused = [f"--about {name}" for name in about if name != "interconnect"] + ["--seconds"] * bool(seconds)
    if unused:
        fail(Message("{options}: not used by all-reduces alone; only --about interconnect=ID is", ", ".join(unused)))
    return about.get("interconnect", "")


def _show_plan(scenarios: Sequence[Path]) -> None:
    """Print the commands that measure the servers of a scenario."""
    with report_bad_input():
        from sim.fidelity.measuring_plan import measuring_plan
        from sim.scenario.reading.load import load

        if len(scenarios) != 1:
            fail(Message("--plan takes one scenario, not {count}", len(scenarios)))
        path = scenario_file(scenarios[0])
        catalog = catalog_for(path, None)
        lines = measuring_plan(load(path, catalog=catalog), catalog)
        if not lines:
            fail(Message("{path}: no server whose step time is predicted fits; check shows why", path))
    for line in lines:  # commands are copied: they are not folded
        typer.echo(translate_message(line))


def _write(out: Path, texts: Mapping[Path, str]) -> None:
    """Write *texts* to their files; *out* is the file named in messages."""
    from sim.study.execution.durable import write_atomically

    try:
        for file, text in texts.items():
            write_atomically(file, text)
    except OSError as error:
        fail(Message("--out {out}: cannot be written: {reason}", out, os_reason(error)))
