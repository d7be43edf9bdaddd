"""Common parts of commands: the app, shared options, messages, exit codes and output.

Below an answer, a terminal shows the next useful command; programs that read the output never get that line.
"""

import os
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer

from sim.language import translate_message
from sim.message import Message, placed
from sim.scenario.reading.shipped import scenario_file as scenario_file
from sim.study.capacity_tolerance import NARROWEST, RELATIVE, WIDEST


def shown_to_people() -> bool:
    """Return whether stdout is a terminal, not a file or a pipe."""
    return sys.stdout.isatty()


def next_command(command: str, path: Path, folder: Path, scenario: Any) -> str:
    """Return the next useful command after *command* on *scenario*, with its answer in *folder*; empty if none."""
    fleets = getattr(scenario, "fleets", ())
    priced, compared = any(fleet.cost is not None for fleet in fleets), len(fleets) > 1
    if command == "check":
        return _next_command(f"run {path}", "simulates it")
    if command == "run" and scenario.slo.goals:
        return _next_command(f"capacity {path}", "finds the highest load of each fleet within the SLO")
    if command in ("run", "capacity") and priced and compared:
        return _next_command(f"sensitivity {path}", "finds which inputs change the result")
    if command == "sensitivity" and priced:
        return _next_command(f"breakeven {path}", "compares ways to pay, over load and over months")
    if command == "size" and (folder / "winner.yaml").exists():
        return _next_command(f"run {folder / 'winner.yaml'}", "shows the winner in detail")
    if command == "breakeven" and scenario.plan is not None:
        return _next_command(f"plan {path}", "plans the orders of each month")
    if command in ("breakeven", "plan", "price"):
        return _next_command(f"export {folder}", "writes the figures as a workbook")
    if command == "capacity" or (command == "watch" and (folder / "winner.yaml").exists()):
        words = Message("export {folder} --format kubernetes", shlex.quote(str(folder)))
        return _next_command(words, "writes a manifest of the fleet")
    return ""


def _next_command(words: str, what: str) -> str:
    return Message("next: gpufleet {command} ({purpose})", words, what)


FIRST_REPORT_S, REPORT_EVERY_S = 5.0, 10.0
"""Time before a command that reads and checks first reports its progress, and the interval of later reports [s]."""
RAISED_AGAIN_S = 1.0
"""Interval in which the end of the time limit is raised again, if code has swallowed it [s]."""
BAD_INPUT = 2
OTHER_FAILURE = 1
INTERRUPTED = 128 + signal.SIGINT
"""Exit code after Ctrl-C, as shells have it."""

OWN_PROCESS: ContextVar[bool] = ContextVar("own_process", default=False)
"""True if this process runs a command and nothing else, so that it may copy itself."""

app = typer.Typer(
    name="gpufleet",
    help="Simulate GPU fleets that serve language models: latency, load and cost per million tokens.",
    epilog="--lang zh anywhere on the line answers in Chinese, as GPUFLEET_LANG=zh does; --no-color prints without "
    "colours, as the environment's NO_COLOR does.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from sim.build import is_compiled, program_version

        typer.echo(
            Message(
                "gpufleet {version} ({build})",
                program_version(),
                "compiled" if is_compiled() else "pure",
            )
        )
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version, and whether it is compiled."
        ),
    ] = False,
) -> None:
    """Take the options before a command."""


ScenarioFile = Annotated[
    Path, typer.Argument(metavar="SCENARIO", help="A scenario file, or the name of a shipped one.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Replace a value: workload.arrivals.rate_rps=2. May be repeated."),
]
Seed = Annotated[int | None, typer.Option(help="Seed in place of the scenario's.")]
Replications = Annotated[int | None, typer.Option(help="Number of replications in place of the scenario's.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes; default: one per CPU core.")]
Catalogs = Annotated[
    list[Path] | None,
    typer.Option(
        "--catalog",
        metavar="DIR",
        help="Folder with entries of your own, laid out like data/; gpufleet.d beside the scenario is read anyway.",
    ),
]
Format = Annotated[
    Literal["table", "json"], typer.Option("--format", help="json: one document on stdout, and nothing else there.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder for the results, also s3://bucket/folder; default: below outputs/, named after the scenario and "
        "its settings."
    ),
]
Relative = Annotated[
    float, typer.Option(min=NARROWEST, max=WIDEST, help="Width of the last bracket in the search for a capacity.")
]
Force = Annotated[
    bool, typer.Option("--force", help="Replace the contents of the folder, even the answer to another question.")
]
Match = Annotated[str, typer.Option(help='Label matchers of the fleet\'s series: \'namespace="chat",model_name="m"\'.')]
PROMETHEUS_TOKEN = "GPUFLEET_PROMETHEUS_TOKEN"
"""Variable with the bearer token of a Prometheus server."""
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress, no table.")]
Details = Annotated[bool, typer.Option("--details", help="Show everything below the answer, not the decision alone.")]
NoReport = Annotated[bool, typer.Option("--no-report", help="Tables only: no pictures and no HTML page.")]
Kind = Annotated[
    str,
    typer.Argument(
        help="gpus, models, quantizations, kernels, engines, servers, links, prices, grids, drafters or failures."
    ),
]


NOT_INPUT = ("FolderBusy", "FolderUnreachable")
"""Errors of a folder that are no mistake of the input: the command ends with OTHER_FAILURE."""
BAD_INPUT_ERRORS = {
    "sim.answers.folder": ("FolderRefused", *NOT_INPUT),
    "sim.answers.from_files.source": ("FileErrors",),
    "sim.benchdata.errors": ("BenchdataError",),
    "sim.catalogue.data_folder": ("CatalogError", "UnknownId"),
    "sim.scenario.reading.errors": ("ScenarioErrors",),
    "sim.yamlio": ("YamlError",),
}
"""Errors that are reported without a traceback: module -> names. A module that is not imported has raised none."""


def process_count(workers: int | None = None) -> int:
    """Return the number of processes to use: that of `--workers`, else one per CPU core."""
    return workers or os.cpu_count() or 1


@contextmanager
def report_bad_input() -> Iterator[None]:
    """Report mistakes in scenarios and data files on stderr, and end the command with exit code 2."""
    try:
        yield
    except Exception as error:
        for module in BAD_INPUT_ERRORS.keys() & sys.modules.keys():
            for name in BAD_INPUT_ERRORS[module]:
                if isinstance(error, getattr(sys.modules[module], name)):
                    fail(str(error), OTHER_FAILURE if name in NOT_INPUT else BAD_INPUT)
        raise
    except KeyboardInterrupt:
        fail("interrupted; nothing is written", INTERRUPTED)


class TimeLimitError(BaseException):
    """Signal that the time limit of a check has passed.

    It is a BaseException so that no `except Exception` on the way catches it.
    """


@contextmanager
def watched(limit_s: float | None, quiet: bool = False) -> Iterator[None]:
    """Report what is being read or checked if that takes long, and end the command after *limit_s* seconds.

    A timer of the operating system interrupts the work, so that only the main thread of a Unix process is watched.
    """
    from sim.infile import STAGE

    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    started_s = time.monotonic()

    def report(*_: object) -> None:
        passed_s = time.monotonic() - started_s
        if limit_s is not None and passed_s >= limit_s:
            signal.setitimer(signal.ITIMER_REAL, RAISED_AGAIN_S)  # code that no exception leaves may run just now
            raise TimeLimitError
        due_s = passed_s + (REPORT_EVERY_S if passed_s >= FIRST_REPORT_S else FIRST_REPORT_S - passed_s)
        if passed_s >= FIRST_REPORT_S and not quiet:
            typer.echo(f"{passed_s:.0f} s: {translate_message(str(STAGE.get()))}", err=True)
        signal.setitimer(signal.ITIMER_REAL, max(0.001, min(due_s, limit_s or due_s) - passed_s))

    handler, (left_s, every_s) = signal.signal(signal.SIGALRM, report), signal.getitimer(signal.ITIMER_REAL)
    signal.setitimer(signal.ITIMER_REAL, min(FIRST_REPORT_S, limit_s or FIRST_REPORT_S))
    try:
        yield
    except TimeLimitError:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        fail(
            Message(
                "not finished after {limit_s:g} s, {stage}: make the scenario smaller, or raise --time-limit",
                limit_s,
                STAGE.get(),
            )
        )
    finally:
        signal.signal(signal.SIGALRM, handler)
        passed_s = time.monotonic() - started_s
        signal.setitimer(signal.ITIMER_REAL, max(0.001, left_s - passed_s) if left_s else 0.0, every_s)


def fail(message: str, code: int = BAD_INPUT) -> NoReturn:
    """End the command with *message* on stderr."""
    print_to_stderr(message)
    raise typer.Exit(code)


def print_to_stderr(message: str) -> None:
    """Print *message* on stderr, folded to the width of a terminal."""
    from sim.report.words.text import spaced

    text = spaced(translate_message(message))
    if sys.stderr.isatty():
        from sim.report.terminal_table import folded

        text = "\n".join(folded(text, shutil.get_terminal_size().columns))
    typer.echo(text, err=True)


def usable(folder: Path) -> Path:
    """Return *folder* if results may be written there; else end the command."""
    from sim.answers.folder import address_of, why_not

    if refusal := why_not(folder):
        fail(placed(f"--out {address_of(folder) or folder}", refusal))
    return folder


def copy_lines(remote: Any) -> list[str]:
    """Return the line on the copy of the results in the folder *remote* on shared storage; [] without."""
    return [] if remote is None else [Message("copied to {address}", remote.address)]


def narrowed(relative: float) -> float | None:
    """Return *relative* for the name of a folder; None for the default."""
    return relative if relative != RELATIVE else None


def command_line() -> list[str]:
    """Return the command as typed, for the manifest."""
    return ["gpufleet", *sys.argv[1:]]


def catalog_for(scenario: Path | None, stated: Sequence[Path] | None) -> Any:
    """Return the catalogue with the user's own entries: of gpufleet.d beside *scenario*, and of the folders *stated*.

    Entries that they replace are named on stderr. Raises CatalogError.
    """
    from sim.catalogue.catalog import load_catalog, own_folders
    from sim.catalogue.data_folder import data_root
    from sim.yamlio import keep_documents

    if OWN_PROCESS.get():
        keep_documents(data_root())
    catalog = load_catalog(own=own_folders(scenario, stated or ()))
    for note in catalog.replaced():
        print_to_stderr(Message("Note: {note}", note))
    return catalog


def catalog_of_run(run: Path, stated: Sequence[Path] | None) -> Any:
    """Return the catalogue that the finished *run* was made with, or that of the folders *stated*; as `catalog_for`."""
    from sim.answers.folder import catalogue_of

    return catalog_for(None, catalogue_of(run, stated or ()))


def command_text() -> str:
    """Return the command as typed on one line, for a comment."""
    return shlex.join(command_line())


def show_money_of(scenario: Any) -> None:
    """Show money in the currency of *scenario* from now on; a process runs a single command."""
    from sim.report.words.money import show_in

    show_in(scenario)


def show_all(*parts: Any) -> None:
    """Print tables and lines on stdout.

    Tables fit COLUMNS, else the terminal, else 80 columns. Sentences fit COLUMNS or the terminal; without either, each
    is one line.
    """
    from rich.console import Console

    from sim.report.terminal_table import folded
    from sim.report.words.text import spaced
    from sim.report.words.units import counted

    console = Console(highlight=False, markup=False, emoji=False)
    for part in parts:
        text = spaced(counted(translate_message(part))) if isinstance(part, str) else part
        if isinstance(text, str) and (shown_to_people() or "COLUMNS" in os.environ):
            text = "\n".join(folded(text, console.width))
        console.print(text, soft_wrap=isinstance(part, str), crop=False)
