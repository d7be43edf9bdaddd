"""Command `gpufleet watch`."""

import os
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sim.cli.frame import (
    PROMETHEUS_TOKEN,
    Catalogs,
    Match,
    Out,
    Quiet,
    ScenarioFile,
    Sets,
    Workers,
    app,
    catalog_for,
    command_line,
    fail,
    next_command,
    print_to_stderr,
    process_count,
    report_bad_input,
    show_all,
    show_money_of,
    shown_to_people,
    usable,
)
from sim.cli.questions import default_folder
from sim.cli.workplace import workplace
from sim.message import Message, os_reason, placed
from sim.scenario.reading.shipped import scenario_file

RETRY_S, POLL_S = 60.0, 300.0
"""Wait after a failed round, and longest wait between two looks at the server's clock [s]."""


@app.command()
def watch(
    scenario: ScenarioFile,
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="Prometheus server: http://localhost:9090.")
    ] = None,
    otlp: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Metrics of an OpenTelemetry collector's file exporter; may be repeated."),
    ] = None,
    fleet: Annotated[str | None, typer.Option(help="Fleet that runs; needed where the scenario has several.")] = None,
    match: Match = "",
    once: Annotated[bool, typer.Option("--once", help="Read what is there, answer once and end.")] = False,
    format: Annotated[
        Literal["auto", "table", "json"],
        typer.Option(help="auto: a table with --once on a terminal, else one line of JSON an hour."),
    ] = "auto",
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve the page and /metrics there: 127.0.0.1:9400.")
    ] = None,
    lead_time_days: Annotated[
        float | None,
        typer.Option(min=0.0, help="Days from order to delivery; default: the scenario's lead_time_months."),
    ] = None,
    cover_days: Annotated[
        float, typer.Option(min=1.0, max=365.0, help="Days after the capacity is reached that an order covers.")
    ] = 30.0,
    ahead_days: Annotated[float, typer.Option(min=7.0, max=365.0, help="Days of the forecast.")] = 120.0,
    history_days: Annotated[
        float, typer.Option(min=0.1, max=365.0, help="Days before the first round that are read.")
    ] = 28.0,
    no_recalibration: Annotated[
        bool,
        typer.Option("--no-recalibration", help="Fit no factors after a drift; compare with the scenario as it is."),
    ] = False,
    timeout: Annotated[float, typer.Option(min=0.1, help="Longest wait for an answer of Prometheus [s].")] = 30.0,
    sets: Sets = None,
    catalogs: Catalogs = None,
    workers: Workers = None,
    out: Out = None,
    quiet: Quiet = False,
) -> None:
    """Compare a running fleet with its scenario each hour.

    Also report drift, forecast and order date.
    """
    with report_bad_input(), ExitStack() as stack:
        from sim.answers.folder import own_catalogue, write_manifest
        from sim.report.progress import CaseProgress
        from sim.report.words.money import showing
        from sim.scenario.reading.load import load
        from sim.watch.predicted import why_not_watched
        from sim.watch.rounds import Watch, WatchOptions
        from sim.watch.storage import FILE, Storage, StorageError

        path = scenario_file(scenario)
        catalog = catalog_for(path, catalogs)
        read = load(path, sets or (), catalog=catalog, swept=False)
        show_money_of(read)
        chosen = _fleet(path, read, fleet)
        if refusal := why_not_watched(read, chosen):
            fail(placed(path, refusal))
        source = _source(prometheus, otlp, match, timeout, history_days)
        address = _address(listen)
        folder = usable(out or default_folder(read, "-watch", sets))
        if refusal := _why_not_ours(folder):
            fail(placed(f"--out {folder}", refusal))
        options = WatchOptions(
            history_days, ahead_days, cover_days, lead_time_days, not no_recalibration, process_count(workers)
        )
        _refuse_without_metrics(source, history_days, (folder / FILE).exists())
        stack.enter_context(showing(read))
        cores = stack.enter_context(workplace(workers, None, None, folder, read, path))
        write_manifest(folder, _manifest(read, own_catalogue(catalog)))
        try:
            storage = Storage(folder / FILE, match)
        except StorageError as error:
            fail(str(error))
        watched = Watch(read, chosen, catalog, folder, cores, source, storage, options)
        if shown_to_people() and not quiet:
            print_to_stderr("reading hours, simulating their loads, searching the capacity: minutes at first")
            watched.progress = partial(CaseProgress, False, later_stage=True)
        texts: dict[str, tuple[str, str]] = {}
        if address is not None:
            from sim.watch.http import published

            try:
                port, texts = stack.enter_context(published(*address))
            except OSError as error:
                fail(Message("--listen {listen}: {reason}", listen, os_reason(error)))
            print_to_stderr(f"http://{address[0]}:{port}/")
        _rounds(watched, texts if address is not None else None, once, format, quiet)


def _source(prometheus: str | None, otlp: list[Path] | None, match: str, timeout: float, history_days: float) -> Any:
    """Return the server or the files to read, as the options state them; else end the command."""
    if (prometheus is None) == (not otlp):
        fail("--prometheus, --otlp: give one of them: the address of a server, or files")
    if prometheus is not None:
        from sim.watch.prometheus import Prometheus, why_not_address

        if refusal := why_not_address(prometheus):
            fail(placed("--prometheus", refusal))
        return Prometheus(prometheus.rstrip("/"), match, os.environ.get(PROMETHEUS_TOKEN, ""), timeout)
    from sim.watch.otlp import OtlpFiles

    try:
        return OtlpFiles(otlp or (), match, history_days)
    except ValueError as error:
        fail(
            placed("--match", Message('is no list of label matchers such as namespace="chat" at {rest!r}', str(error)))
        )


def _fleet(path: Path, scenario: Any, name: str | None) -> Any:
    """Return the fleet called *name*, or the only one; else end the command."""
    names = [one.name for one in scenario.fleets]
    if name is None and len(names) == 1:
        return scenario.fleets[0]
    if name not in names:
        text = Message("--fleet: choose the fleet that runs: {names}", ", ".join(names))
        fail(placed(path, text))
    return scenario.fleets[names.index(name)]


def _address(listen: str | None) -> tuple[str, int] | None:
    """Return host and port of --listen, None without the option; else end the command."""
    if listen is None:
        return None
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        fail(Message("--listen: must be HOST:PORT, not {listen!r}", listen))
    return host.strip("[]") or "127.0.0.1", int(port)


def _why_not_ours(folder: Path) -> str:
    """Return why *folder* cannot hold the answers of a watch; empty if it is new or has those of an earlier watch."""
    from sim.answers.folder import manifest_of

    known = manifest_of(folder)
    command = (known or {}).get("question", {}).get("command")
    if known is None or command == "watch":
        return ""
    return Message("holds an answer of gpufleet {command}; name another folder", command)


def _manifest(scenario: Any, catalogue: dict[str, Any]) -> dict[str, Any]:
    from sim.build import program_version

    return {
        "program": "gpufleet",
        "version": program_version(),
        "scenario": scenario.name,
        "command": command_line(),
        "question": {"command": "watch"},
        **catalogue,
        "status": "finished",
    }


def _refuse_without_metrics(source: Any, history_days: float, continued: bool) -> None:
    """End the command, before anything is written, where a first round has nothing to read."""
    from sim.watch.rounds import first_hour
    from sim.watch.source import SourceError

    if continued:
        return
    try:
        first_hour(source, history_days)
    except SourceError as error:
        fail(str(error), error.code)


def _rounds(watched: Any, texts: dict[str, tuple[str, str]] | None, once: bool, format: str, quiet: bool) -> None:
    """Answer once, or each hour until the command is stopped; with None for *texts* nothing is served."""
    from sim.watch.answer import json_lines, lines, moment
    from sim.watch.source import SourceError

    reported, answered = "", False
    since = 0 if once else watched.storage.end
    if texts is not None and since:
        print_to_stderr(Message("shown until the first round: the answer with hours until {end} UTC", moment(since)))
        _serve_stored(watched.out, texts)
        unread = replace(watched, options=replace(watched.options, recalibrate=False))  # needs no source
        answer = unread.evaluate()
        _keep(watched, answer, json_lines(answer)[-1], texts, shown=True)
    while True:
        try:
            count = watched.read()
            if count or once or not answered:
                answer = watched.evaluate()
                each = json_lines(answer, since)
                _keep(watched, answer, each[-1], texts, shown=texts is not None or once)
                answered, reported, since = True, "", answer.end
                if not quiet and (format == "table" or (format == "auto" and once and shown_to_people())):
                    show_all(
                        *lines(answer),
                        Message("results in {folder}", watched.out),
                        next_command("watch", watched.out, watched.out, watched.scenario) if shown_to_people() else "",
                    )
                elif not quiet:
                    typer.echo("\n".join(each))
            wait_s = POLL_S
        except SourceError as error:
            if error.skipped and str(error) != reported and watched.storage.end:
                print_to_stderr(str(error))
                reported = str(error)
                continue
            if once:
                fail(str(error), error.code)
            if str(error) != reported:
                print_to_stderr(Message("{error}; trying again every {seconds:g} s", error, RETRY_S))
            reported, wait_s = str(error), RETRY_S
        if once:
            return
        time.sleep(wait_s)


def _serve_stored(folder: Path, texts: dict[str, tuple[str, str]]) -> None:
    """Serve the page and the answer of the last round, as far as they are stored."""
    from sim.watch.http import HTML_TYPE, JSON_TYPE

    for path, name, kind in (("/", "watch.html", HTML_TYPE), ("/answer.json", "watch.json", JSON_TYPE)):
        with suppress(OSError):
            texts[path] = (kind, (folder / name).read_text(encoding="utf-8"))


def _keep(watched: Any, answer: Any, line: str, texts: dict[str, tuple[str, str]] | None, shown: bool) -> None:
    """Write an answer, and the scenario with the ordered replicas at the load that they are ordered for.

    The page is written only if it is *shown*; else an older one is removed, which would show another answer.
    """
    from sim.answers.deployments.answer import WINNER
    from sim.report.size import write_winner
    from sim.study.execution.durable import write_atomically
    from sim.study.load_axis import LoadAxis
    from sim.watch.answer import metrics_text, page
    from sim.watch.http import HTML_TYPE, JSON_TYPE, METRICS_TYPE
    from sim.watch.orders import with_order

    folder, outlook = watched.out, answer.outlook
    if outlook is not None and outlook.replicas:
        axis = LoadAxis.of(watched.scenario)
        ordered = with_order(watched.fleet, outlook.replicas)
        write_winner(folder / WINNER, ordered, watched.scenario, "ordered", axis.overrides(outlook.needed_rps))
    else:
        (folder / WINNER).unlink(missing_ok=True)
    write_atomically(folder / "watch.json", line + "\n")
    if not shown:
        (folder / "watch.html").unlink(missing_ok=True)
        return
    html = page(answer)
    write_atomically(folder / "watch.html", html)
    if texts is not None:
        texts |= {"/": (HTML_TYPE, html), "/answer.json": (JSON_TYPE, line + "\n")}
        texts["/metrics"] = (METRICS_TYPE, metrics_text(answer))
