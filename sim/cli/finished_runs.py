"""Commands about finished runs, without simulation: `price` bills again, `diff` compares, `export` converts."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sim.cli.frame import (
    Catalogs,
    Details,
    Force,
    Format,
    NoReport,
    Quiet,
    app,
    catalog_of_run,
    command_line,
    copy_lines,
    fail,
    next_command,
    print_to_stderr,
    report_bad_input,
    show_all,
    show_money_of,
    shown_to_people,
    usable,
)
from sim.cli.questions import repriced_folder
from sim.language import ENGLISH, _, speaking
from sim.message import Message, joined


@app.command()
def price(
    run: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Folder of a finished run.")] = Path("outputs"),
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="A price or a term: site.pue=1.2. May be repeated."),
    ] = None,
    all_runs: Annotated[
        bool,
        typer.Option(
            "--all-runs",
            help="Bill every run below RUN_DIR (default: outputs) at the newest offers of the catalogue on its terms.",
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; default: beside RUN_DIR, named after the settings.")
    ] = None,
    catalogs: Catalogs = None,
    no_report: NoReport = False,
    force: Force = False,
    quiet: Quiet = False,
    details: Details = False,
    format: Format = "table",
) -> None:
    """Bill a finished run at other prices.

    Nothing is simulated again.
    """
    with report_bad_input():
        from sim.answers.folder import address_of, is_finished, owned
        from sim.answers.remote import copied, fetched, located
        from sim.scenario.reading.load import has_job
        from sim.study.reprice import SCENARIO_FILE, load_repriced

        if all_runs:
            if address_of(run):
                fail(Message("{run}: is an address; --all-runs reads a folder on this machine", address_of(run)))
            _price_all(run, sets or [], catalogs or [], not no_report, format, quiet)
            return
        run = fetched(run)
        catalog = catalog_of_run(run, catalogs)
        if not is_finished(run):
            fail(
                Message(
                    "{run}: is not a finished run: gpufleet run creates a run, and continues an interrupted one", run
                )
            )
        if (run / SCENARIO_FILE).is_file() and has_job(run / SCENARIO_FILE):
            _price_work(run, sets, catalog, out, not no_report, force, quiet, format)
            return
        loaded = load_repriced(run, sets or (), catalog)
        show_money_of(loaded)
        folder, remote = located(out or repriced_folder(run, loaded, sets))
        usable(folder)

        from sim.answers.run import monte_carlo_notes, price_run
        from sim.report.json_document import as_json
        from sim.report.run.json_document import run_document
        from sim.report.run.terminal import DETAILS, decision, headed, terminal_differences, terminal_table
        from sim.report.run.verdict import verdict_of
        from sim.scenario.checks.hardware import gpus_without_server_notes
        from sim.scenario.sections.comparison import models_of
        from sim.scenario.sweep import axes
        from sim.study.execution.cases import limits
        from sim.study.monte_carlo import stored_disputes
        from sim.study.points import summarize

        with owned(folder), copied(remote):
            cases = price_run(run, loaded, catalog, folder, not no_report, command_line(), force)
    arguments = (cases, axes(loaded), limits(loaded))
    bare = gpus_without_server_notes(loaded, catalog)
    notes = [*loaded.workload.notes(), *bare, *monte_carlo_notes(folder)]
    if format == "json":
        typer.echo(as_json(run_document(loaded, catalog, cases, notes, str(folder))))
    elif not quiet:
        models = models_of(loaded, loaded.compare)
        if details:
            tables = [terminal_table(*arguments), *terminal_differences(*arguments, models)]
        else:
            tables = decision(*arguments, models, loaded.load_profile is not None)
        show_all(
            *headed(verdict_of(loaded, catalog, summarize(*arguments), disputes=stored_disputes(folder)), loaded),
            *tables,
            *bare,
            *monte_carlo_notes(folder),
            *(() if details else [DETAILS]),
            Message("results in {folder}", folder),
            *copy_lines(remote),
            *([next_command("price", run, folder, loaded)] if shown_to_people() else []),
        )


def _price_all(folder: Path, sets: list[str], catalogs: list[Path], report: bool, format: str, quiet: bool) -> None:
    """Bill all runs in *folder* again, each into a folder beside it, and show their costs before and after."""
    from sim.answers.price_lists.repricing import rebill, runs_in
    from sim.report.json_document import as_json
    from sim.report.terminal_table import FittedTable

    found = runs_in(folder)
    if not found:
        fail(Message("{folder}: has no finished run with a bill", folder))
    bills = [one for run in found for one in rebill(run, sets, catalogs, report, command_line())]
    if format == "json":
        typer.echo(as_json({"bills": [one.document() for one in bills]}))
        return
    if quiet:
        return
    rows = [(one.run.name, one.fleet, one.shown(one.before), one.shown(one.after), one.change) for one in bills]
    heads = ("run", "fleet", "before [USD/h]", "now [USD/h]", "change")
    newer = [
        Message("{run}: {before} becomes {after}", name, before, after)
        for name, before, after in dict.fromkeys(price for bill in bills for price in bill.newer)
    ]
    reasons = dict.fromkeys((one.run.name, one.reason) for one in bills if one.reason)
    left = [Message("{run}: left out: {reason}", name, reason) for name, reason in reasons]
    show_all(FittedTable(heads, rows, worded=frozenset({0, 1})), *newer, *left)


def _price_work(
    run: Path,
    sets: list[str] | None,
    catalog: Any,
    out: Path | None,
    report: bool,
    force: bool,
    quiet: bool,
    format: str,
) -> None:
    """Bill a job, or a queue of jobs, again; its answer takes a moment to compute, so it is computed anew."""
    from sim.answers.folder import owned
    from sim.answers.jobs import run_work
    from sim.answers.remote import copied, located
    from sim.jobs.kinds import kind_of
    from sim.jobs.load import load_job
    from sim.report.json_document import as_json
    from sim.study.reprice import load_repriced_work

    loaded = load_repriced_work(run, sets or (), catalog, load_job)
    show_money_of(loaded)
    folder, remote = located(out or repriced_folder(run, loaded, sets))
    usable(folder)
    with owned(folder), copied(remote):
        rows = run_work(loaded, catalog, folder, report, command_line(), force)
    kind = kind_of(loaded)
    verdict = kind.verdict(rows)
    if format == "json":
        typer.echo(as_json(kind.document(loaded, rows, str(folder))))
    elif not quiet:
        lines = [*verdict.findings, Message("results in {folder}", folder), *copy_lines(remote)]
        show_all(verdict.headline, "", *kind.tables(rows), *lines)


@app.command()
def diff(
    first: Annotated[Path, typer.Argument(metavar="A", help="Folder of a finished run.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Folder of another finished run.")],
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help="Exit 1 if it holds at a point of B: 'ttft_s_p99 > 2', or from A to B: "
            "'usd_per_million_output_tokens > +5 %'. May be repeated.",
        ),
    ] = None,
    format: Annotated[
        Literal["table", "json", "markdown"],
        typer.Option("--format", help="json: one document on stdout; markdown: a table for a pull request."),
    ] = "table",
    catalogs: Catalogs = None,
) -> None:
    """Compare two finished runs: inputs and results.

    Nothing is simulated.
    """
    with report_bad_input():
        from sim.answers.folder import is_finished
        from sim.answers.remote import fetched
        from sim.report.diff import diff_document, diff_markdown, diff_tables, outcome_rows, outcome_table
        from sim.report.json_document import as_json
        from sim.study.diff import StoredRun, compare
        from sim.study.gate import Condition, judged

        first, second = fetched(first), fetched(second)
        wrong = [
            Message("{folder}: is not a finished run: create one with gpufleet run", folder)
            for folder in (first, second)
            if not is_finished(folder)
        ]
        conditions = []
        for text in fail_if or ():
            try:
                conditions.append(Condition.parse(text))
            except ValueError as error:
                wrong.append(Message("--fail-if {error}", error))
        if wrong:
            fail(joined("\n", wrong))
        used = [catalog_of_run(run, catalogs) for run in (first, second)]
        runs = StoredRun.read(first, used[0]), StoredRun.read(second, used[1])
        show_money_of(runs[1].scenario)
        found = compare(*runs)
        try:
            outcomes = judged(*runs, conditions)
        except ValueError as error:
            fail(joined("\n", [Message("--fail-if {error}", message) for message in error.args]))
    failed = [one for one in outcomes if one.fails]
    if format == "json":
        with speaking(ENGLISH):
            document = diff_document(*runs, found)
            if conditions:
                document |= {"failed": bool(failed), "conditions": outcome_rows(outcomes)}
            typer.echo(as_json(document))
    elif format == "markdown":
        typer.echo(diff_markdown(*runs, found, outcomes))
    else:
        show_all(*diff_tables(*runs, found), *outcome_table(outcomes))
    if failed:
        raise typer.Exit(1)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run, plan or other answer.")],
    format: Annotated[
        Literal["xlsx", "focus", "board", "vllm", "kubernetes", "kserve", "llm-d", "dynamo", "keda"],
        typer.Option(
            "--format",
            help="xlsx: a workbook with live formulas; focus: billing rows by FOCUS 1.2, as CSV; board: one page of "
            "breakeven or plan for the board; vllm, kubernetes, kserve, llm-d, dynamo, keda: the recommended fleet as "
            "files for this tool.",
        ),
    ] = "xlsx",
    out: Annotated[
        Path | None, typer.Option(help="The file; default: RUN.xlsx, RUN-focus.csv or RUN-kubernetes.yaml, beside RUN.")
    ] = None,
    fleet: Annotated[
        str | None, typer.Option(help="Fleet to deploy, in place of the one that the answer recommends.")
    ] = None,
    catalogs: Catalogs = None,
    quiet: Quiet = False,
) -> None:
    """Write an answer as a workbook, bill, page or deployment.

    Nothing is simulated.
    """
    with report_bad_input():
        from sim.answers.deployments.servers import NoDeployment
        from sim.answers.export import DEPLOYED, default_file, exported, why_no_export
        from sim.answers.remote import fetched

        folder = fetched(run)
        file = out or default_file(folder, format)
        if refusal := why_no_export(folder, format, file):
            fail(refusal)
        if fleet is not None and format not in DEPLOYED:
            fail(Message("--fleet: is for a deployment ({formats})", ", ".join(DEPLOYED)))
        try:
            notes = exported(folder, format, file, fleet, catalogs or ())
        except NoDeployment as error:
            fail(str(error))
    for line in notes:
        print_to_stderr(line)
    if not quiet:
        typer.echo(_("written: {file}", file=file))
