"""Commands about scenario files: `init` writes a commented one, `migrate` renews its keys, `check` validates one."""

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from sim.cli.frame import (
    PROMETHEUS_TOKEN,
    Catalogs,
    Details,
    Format,
    Match,
    Replications,
    ScenarioFile,
    Seed,
    Sets,
    app,
    catalog_for,
    command_text,
    fail,
    next_command,
    process_count,
    report_bad_input,
    show_all,
    shown_to_people,
    watched,
)
from sim.message import Message, joined, os_reason, placed
from sim.scenario.reading.shipped import scenario_file


@app.command()
def init(
    name: Annotated[str, typer.Argument(help="Name of the new scenario.")] = "scenario",
    sources: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="A log of requests, pages of /metrics, a vllm serve or sglang.launch_server command, a manifest "
            "(Kubernetes, KServe, llm-d, Dynamo, Ray Serve, docker compose), a config.json. May be repeated.",
        ),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Prometheus server of the running fleet: load of its busiest hour this week."),
    ] = None,
    match: Match = "",
    gpu: Annotated[
        str | None, typer.Option(help="GPU of the servers in --from files, in place of the GPU that they name.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1e-3, max=1e9, help="Time between the pages of /metrics in --from; for one page, since its start."
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=HEADER,...",
            help="Headers of the log in --from that are not recognised: arrival_s=When,prompt_tokens=In.",
        ),
    ] = None,
    catalogs: Catalogs = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Write a commented scenario NAME.yaml to start from.

    Editors complete and check it with the JSON schema beside it.
    """
    with report_bad_input():
        from sim.answers.from_files.draft import draft_of
        from sim.answers.from_files.summary import summary
        from sim.answers.from_files.text import scenario_text
        from sim.scenario.template import SCHEMA_FILE, schema_text, template

        target = Path(name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
        schema = target.with_name(SCHEMA_FILE)
        if target.exists() and not force:
            fail(Message("{target}: exists; --force overwrites it", target))
        lines: list[str] = []
        if match and prometheus is None:
            fail("--match: applies to the server of --prometheus; add --prometheus URL")
        if sources or prometheus is not None:
            headers = _columns_of(columns or ())
            load = _watched(prometheus, match) if prometheus is not None else None
            draft = draft_of(sources or (), target, catalog_for(target, catalogs), gpu, seconds, headers, load)
            text, lines = scenario_text(draft, command_text()), list(summary(draft))
        elif gpu is not None or seconds is not None or columns:
            option = "--gpu" if gpu is not None else "--seconds" if seconds is not None else "--columns"
            fail(Message("{option}: applies to the files of --from; add --from FILE", option))
        else:
            text = template(target.stem)
        _write(schema, schema_text())
        _write(target, text)
    show_all(*lines, Message("wrote {target} and {schema}; look at it with: gpufleet check {target}", target, schema))
    if prometheus is not None:
        also = f" --match {shlex.quote(match)}" if match else ""
        show_all(
            Message(
                "then: gpufleet watch {target} --prometheus {url}{also} --once (forecast, and what to order by when)",
                target,
                prometheus,
                also,
            )
        )


def _write(file: Path, text: str) -> None:
    """Write *text* to *file*, whole or not at all; end the command if it cannot be written."""
    from sim.study.execution.durable import write_atomically

    try:
        file.parent.stat()  # no folder is created
        write_atomically(file.resolve(), text)
    except OSError as error:
        fail(Message("{file}: cannot be written: {reason}", file, os_reason(error)))


def _watched(url: str, match: str) -> Any:
    """Return the traffic of the fleet that the Prometheus server *url* scrapes; else end the command."""
    from sim.watch.prometheus import Prometheus, why_not_address
    from sim.watch.source import SourceError
    from sim.watch.traffic import watched_traffic

    if refusal := why_not_address(url):
        fail(placed("--prometheus", refusal))
    try:
        return watched_traffic(Prometheus(url.rstrip("/"), match, os.environ.get(PROMETHEUS_TOKEN, "")))
    except SourceError as error:
        fail(str(error), error.code)


@app.command()
def migrate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Scenario files, which are rewritten.")],
) -> None:
    """Rewrite scenario files in the newest keys.

    Comments and layout stay. A schema for editors beside a file is written anew.
    """
    with report_bad_input():
        from sim.scenario.reading.errors import ScenarioErrors
        from sim.scenario.reading.migration import migrate as migrated
        from sim.scenario.template import SCHEMA_FILE, schema_text

        found, errors = {}, []
        for file in files:
            try:
                found[file] = migrated(file)
            except ScenarioErrors as error:
                errors += error.errors
        if errors:
            raise ScenarioErrors(errors)
        for file, migration in found.items():
            if migration.changes:
                _write(file, migration.text)
                show_all(*map(str, migration.changes))
            else:
                show_all(Message("{file}: up to date", file))
        for schema in {file.with_name(SCHEMA_FILE) for file in found}:
            if schema.exists():
                _write(schema, schema_text())


def _columns_of(texts: Sequence[str]) -> dict[str, str]:
    """Return column of a trace -> header, from *texts* like `arrival_s=When,prompt_tokens=In`; else end the command."""
    found: dict[str, str] = {}
    for text in (part for whole in texts for part in re.split(r",(?=\s*\w+=)", whole)):
        name, _, header = text.strip().partition("=")
        if not name or not header:
            fail(Message("--columns {text}: NAME=HEADER is needed, such as arrival_s=When", text))
        if name in found:
            fail(Message("--columns: {name} is given twice", name))
        found[name] = header
    return found


TimeLimit = Annotated[
    float, typer.Option(min=1.0, metavar="SECONDS", help="End with an error after this time; progress is on stderr.")
]


@app.command()
def check(
    scenario: ScenarioFile,
    sets: Sets = None,
    seed: Seed = None,
    replications: Replications = None,
    format: Format = "table",
    details: Details = False,
    time_limit: TimeLimit = 120.0,
    catalogs: Catalogs = None,
) -> None:
    """Check whether a scenario fits and what a run takes.

    Nothing is simulated.
    """
    with watched(time_limit), report_bad_input():
        from sim.infile import STAGE
        from sim.scenario.reading.load import load_for_size, sections
        from sim.scenario.resolving.case import resolve
        from sim.scenario.resolving.describe import describe, kernels
        from sim.scenario.sweep import cases

        options = {"seed": seed, "replications": replications}
        path = scenario_file(scenario)
        catalog = catalog_for(path, catalogs)
        names = sections(path)
        if "claim" in names:
            from sim.claims.verdict import check as check_claim

            claim = check_claim(path, catalog)
            if names == {"claim"}:
                _show_claim(path, claim, format)
                return
        if names & {"job", "jobs"}:
            _check_work(path, sets or (), catalog, options, format)
            return
        loaded = load_for_size(path, sets or (), catalog=catalog, seed=seed, replications=replications)
        found = cases(loaded)
        first = [case for case in found if case.replication == 0]
        brief = bool(first) and format == "table" and not details and loaded.size is None
        plans = []
        for number, case in enumerate(first, 1):
            STAGE.set(Message("planning fleet and point {number:,} of {count:,}", number, len(first)))
            plan = resolve(loaded, case, catalog)
            shown = describe(plan, catalog)
            plans.append((case.axes, shown if brief else shown | {"kernels": kernels(plan, catalog)}))
        hint = [next_command("check", path, path.parent, loaded)] if shown_to_people() else []
        if brief:
            _show_brief(loaded, catalog, plans, hint)
        else:
            _show_details(loaded, catalog, plans, len(found), hint, format)
    if plans and all(plan["infeasible"] for _, plan in plans):
        fail(joined("\n", dict.fromkeys(placed(plan["fleet"], plan["infeasible"]) for _, plan in plans)))


def _show_brief(loaded: Any, catalog: Any, plans: Any, hint: list[str]) -> None:
    """Show what fits, the length of a run and the assumptions."""
    from sim.infile import STAGE
    from sim.report.check_summary import DETAILS, check_summary
    from sim.report.price_age import price_age_note
    from sim.report.words.text import question_and_context

    STAGE.set("searching for a layout that fits")
    brief = check_summary(loaded, catalog, plans, process_count())
    question = [" ".join(question_and_context(loaded.question, loaded.name)).strip()] if loaded.question else []
    show_all(*question, *brief, *price_age_note(loaded, catalog), DETAILS, *hint)


def _show_details(loaded: Any, catalog: Any, plans: Any, count: int, hint: list[str], format: str) -> None:
    """Show the plan of *count* cases: memory by part, each value with its source, confidence and candidates."""
    from sim.report.check import candidates, overview, workload_text
    from sim.report.monte_carlo import input_lines
    from sim.report.prediction_accuracy import confidence_table, fleet_confidences
    from sim.report.price_age import price_age_note

    confidences = fleet_confidences(loaded, catalog)
    if format == "json":
        from sim.report.json_document import as_json, check_document

        typer.echo(as_json(check_document(loaded, plans, count, confidences)))
        return
    show_all(
        *([loaded.question] if loaded.question else []),
        *(overview(plans, count, loaded.precision) if plans else [workload_text(loaded)]),
        *([confidence_table(confidences)] if confidences else []),
        *(candidates(loaded, catalog) if loaded.size is not None else []),
        *input_lines(loaded),
        *price_age_note(loaded, catalog),
        *hint,
    )


def _show_claim(path: Path, claim: Any, format: str) -> None:
    """Show a claim that the catalogue and arithmetic decide, without a fleet."""
    from sim.report.json_document import as_json

    if format == "json":
        typer.echo(as_json({"scenario": path.stem, "statement": claim.statement, "figures": list(claim.figures)}))
    else:
        show_all(
            claim.statement,
            Message("{figures} figures and {parts} parts; nothing is simulated", len(claim.figures), len(claim.parts)),
        )


def _check_work(path: Path, sets: Sequence[str], catalog: Any, options: dict[str, int | None], format: str) -> None:
    """Check a job, or a queue of jobs, in place of a service."""
    from sim.jobs.kinds import kind_of
    from sim.jobs.load import load_job
    from sim.report.json_document import as_json

    loaded = load_job(path, sets, catalog=catalog, **options)
    kind = kind_of(loaded)
    rows = kind.rows(loaded, catalog)
    plans = kind.described(rows, catalog)
    if format == "json":
        entries = {"scenario": loaded.name, "question": loaded.question, "cases": len(rows), "plans": plans}
        typer.echo(as_json(entries))
    else:
        show_all(*([loaded.question] if loaded.question else []), *kind.overview(rows, plans))
    if all(plan["infeasible"] for plan in plans):
        fail(joined("\n", dict.fromkeys(placed(plan["fleet"], plan["infeasible"]) for plan in plans)))
