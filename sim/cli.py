"""The command line: arguments in, exit code out. Each command imports what it needs, so that --help is instant."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.exceptions import TyperException

BAD_INPUT = 2
OTHER_FAILURE = 1
UNLIMITED = 100_000
"""Width of what is printed into a pipe: no value is cut."""

app = typer.Typer(
    name="gpufleet",
    help="Simulate GPU fleets that serve language models: latency, load and cost per million tokens.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

ScenarioFile = Annotated[
    Path, typer.Argument(metavar="SCENARIO", help="A scenario file, or the name of a shipped one.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Replace a value: workload.arrivals.rate_rps=2. May be repeated."),
]
Seed = Annotated[int | None, typer.Option(help="In place of the scenario's seed.")]
Replications = Annotated[int | None, typer.Option(help="In place of the scenario's replications.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes; left out: one per CPU core.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress, no table.")]
NoReport = Annotated[bool, typer.Option("--no-report", help="Tables only: no pictures, no report.html.")]
Kind = Annotated[str, typer.Argument(help="gpus, models, quantizations, kernels, engines, servers, links or prices.")]


@app.command()
def run(
    scenario: ScenarioFile,
    sets: Sets = None,
    seed: Seed = None,
    replications: Replications = None,
    workers: Workers = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results; left out: outputs/<scenario name>.")] = None,
    no_report: NoReport = False,
    quiet: Quiet = False,
) -> None:
    """Simulate a scenario and write tables, curves and a report."""
    with _bad_input_told():
        from sim.catalog.catalog import load_catalog
        from sim.scenario.load import load

        path, catalog = _found(scenario), load_catalog()
        loaded = load(path, sets or (), catalog=catalog, seed=seed, replications=replications)
        folder = _usable(out or Path("outputs") / loaded.name)

        from sim.report.deliver import run_scenario
        from sim.report.terminal import terminal_table
        from sim.scenario.sweep import axes
        from sim.study.points import limits

        try:
            cases = run_scenario(
                scenario=loaded,
                catalog=catalog,
                out=folder,
                workers=workers or os.cpu_count() or 1,
                report=not no_report,
                quiet=quiet,
                command=["gpufleet", *sys.argv[1:]],
            )
        except KeyboardInterrupt:
            kept = "interrupted; finished points are kept, and the same command goes on from them"
            _fail(f"{folder}: {kept}", OTHER_FAILURE)
    if not quiet:
        _print(terminal_table(cases, axes(loaded), limits(loaded)), *loaded.workload.notes(), f"results in {folder}")
    if all(case.status == "infeasible" for case in cases):
        _fail("\n".join(dict.fromkeys(f"{path}: fleets.{case.fleet}: {case.reason}" for case in cases)))


@app.command()
def price(
    run: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Folder of a finished run.")],
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="A price or a term: site.pue=1.2. May be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results; left out: RUN_DIR-repriced.")] = None,
    no_report: NoReport = False,
    quiet: Quiet = False,
) -> None:
    """Bill a finished run at other prices; nothing is simulated again."""
    with _bad_input_told():
        from sim.catalog.catalog import load_catalog
        from sim.study.price import load_repriced

        catalog = load_catalog()
        loaded = load_repriced(run, sets or (), catalog)
        folder = _usable(out or run.with_name(f"{run.name}-repriced"))

        from sim.report.deliver import price_run
        from sim.report.terminal import terminal_table
        from sim.scenario.sweep import axes
        from sim.study.points import limits

        cases = price_run(run, loaded, catalog, folder, not no_report, ["gpufleet", *sys.argv[1:]])
    if not quiet:
        _print(terminal_table(cases, axes(loaded), limits(loaded)), f"results in {folder}")


@app.command()
def capacity(
    scenario: ScenarioFile,
    sets: Sets = None,
    seed: Seed = None,
    replications: Replications = None,
    workers: Workers = None,
    out: Annotated[Path | None, typer.Option(help="Left out: outputs/<scenario name>-capacity.")] = None,
    relative: Annotated[float, typer.Option(min=0.001, max=0.5, help="Width of the last bracket.")] = 0.02,
) -> None:
    """Find the highest load at which each fleet still meets its service level."""
    with _bad_input_told():
        from sim.catalog.catalog import load_catalog
        from sim.report.capacity import capacity_rows, capacity_table, deliver_capacity
        from sim.scenario.load import load
        from sim.study.capacity import LoadAxis

        path, catalog = _found(scenario), load_catalog()
        loaded = load(path, sets or (), catalog=catalog, seed=seed, replications=replications)
        folder = _usable(out or Path("outputs") / f"{loaded.name}-capacity")
        try:
            axis = LoadAxis.of(loaded)
        except ValueError as error:
            _fail(f"{path}: workload.arrivals: {error}")
        if not any((loaded.slo.ttft_s, loaded.slo.tpot_s, loaded.slo.e2e_s)):
            _fail(f"{path}: slo: a capacity needs at least one limit: ttft_s, tpot_s or e2e_s")
        try:
            found = deliver_capacity(loaded, catalog, folder, workers or os.cpu_count() or 1, relative)
        except KeyboardInterrupt:
            _fail(f"{folder}: interrupted; finished points are kept, and the same command uses them", OTHER_FAILURE)
    _print(capacity_table(capacity_rows(found, axis), axis), f"results in {folder}")


@app.command()
def check(scenario: ScenarioFile, sets: Sets = None, seed: Seed = None, replications: Replications = None) -> None:
    """Resolve and validate a scenario, print its plan and where each value comes from; simulate nothing."""
    with _bad_input_told():
        from sim.catalog.catalog import load_catalog
        from sim.report.plan import overview
        from sim.scenario.describe import describe
        from sim.scenario.load import load
        from sim.scenario.resolve import resolve
        from sim.scenario.sweep import cases

        catalog = load_catalog()
        loaded = load(_found(scenario), sets or (), catalog=catalog, seed=seed, replications=replications)
        found = cases(loaded)
        first = [case for case in found if case.replication == 0]
        plans = [(case.axes, describe(resolve(loaded, case, catalog), catalog)) for case in first]
    if loaded.question:
        _print(loaded.question)
    _print(*overview(plans, len(found)))
    if all(plan["infeasible"] for _, plan in plans):
        _fail("\n".join(dict.fromkeys(f"{plan['fleet']}: {plan['infeasible']}" for _, plan in plans)))


@app.command()
def validate(
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE", help="Measurements: a CSV table, a result of `vllm bench serve`, or a folder of these."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Folder for the results; left out: outputs/validate-<name>.")] = None,
    workers: Workers = None,
    quiet: Quiet = False,
) -> None:
    """Predict measured benchmarks and show how far the predictions are off."""
    with _bad_input_told():
        from sim.benchdata import read_benchmarks
        from sim.catalog.catalog import load_catalog

        rows = read_benchmarks(table)
        folder = _usable(out or Path("outputs") / f"validate-{table.resolve().stem}")

        from sim.report.validation import run_validation, terminal_tables

        try:
            outcomes = run_validation(
                rows=rows,
                catalog=load_catalog(),
                out=folder,
                workers=workers or os.cpu_count() or 1,
                table=str(table),
                quiet=quiet,
                command=["gpufleet", *sys.argv[1:]],
            )
        except KeyboardInterrupt:
            _fail("interrupted; nothing is kept", OTHER_FAILURE)
    if not quiet:
        _print(*terminal_tables(outcomes), f"results in {folder}")


@app.command()
def calibrate(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="Your own runs, in the columns of `validate`.")],
    gpu: Annotated[str, typer.Option(help="The GPU that they ran on: an id or an alias.")],
    out: Annotated[Path, typer.Option(help="File for the factors; a scenario names it: `calibration: my-gpu.yaml`.")],
    workers: Workers = None,
    quiet: Quiet = False,
) -> None:
    """Fit a host and its GPU to your own benchmarks: efficiencies, overheads, the link between the GPUs."""
    with _bad_input_told():
        from sim.benchdata import read_benchmarks
        from sim.catalog.catalog import load_catalog
        from sim.report.calibration import calibration_report, calibration_text, is_calibration
        from sim.study.calibrate import NothingToFit, calibrate

        catalog = load_catalog()
        wanted = catalog.gpu(gpu).id
        rows = read_benchmarks(table)
        if out.exists() and not is_calibration(out):
            _fail(f"--out {out}: exists and is no calibration; name another file")
        try:
            fitted = calibrate(rows, wanted, catalog, workers or os.cpu_count() or 1, str(table))
        except NothingToFit as error:
            _fail(str(error))
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(calibration_text(fitted.calibration), encoding="utf-8")
        except OSError as error:
            _fail(f"--out {out}: cannot be written: {(error.strerror or str(error)).lower()}")
    if not quiet:
        _print(*calibration_report(fitted), f"wrote {out}; a scenario uses it with: calibration: {out}")


@app.command("list")
def list_(kind: Kind) -> None:
    """List what the catalogue holds."""
    with _bad_input_told():
        from sim.catalog.catalog import load_catalog
        from sim.report.catalogue import listing

        table = listing(load_catalog(), kind)
    _print(table)


@app.command()
def show(kind: Kind, name: Annotated[str, typer.Argument(help="An id or an alias.")]) -> None:
    """Show one thing of the catalogue, every value with its source."""
    with _bad_input_told():
        from sim.catalog.catalog import load_catalog
        from sim.report.catalogue import details, entry

        table = details(entry(load_catalog(), kind, name))
    _print(table)


@app.command()
def init(
    name: Annotated[str, typer.Argument(help="Name of the new scenario.")] = "scenario",
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Write a commented scenario NAME.yaml, and a JSON schema with which editors complete and check it."""
    with _bad_input_told():
        from sim.scenario.template import SCHEMA_FILE, schema_text, template

        target = Path(name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
        schema = target.with_name(SCHEMA_FILE)
        if target.exists() and not force:
            _fail(f"{target}: exists; --force overwrites it")
        try:
            target.write_text(template(target.stem), encoding="utf-8")
            schema.write_text(schema_text(), encoding="utf-8")
        except OSError as error:
            _fail(f"{error.filename}: cannot be written: {(error.strerror or str(error)).lower()}")
    _print(f"wrote {target} and {schema}; look at it with: gpufleet check {target}")


def main() -> None:
    """Entry point of the command `gpufleet`."""
    try:
        # on its own typer would print a usage error on several lines
        code = app(sys.argv[1:] or ["--help"], standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except TyperException as error:
        typer.echo(f"gpufleet: {error.format_message()} (see gpufleet --help)", err=True)
        sys.exit(BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(OTHER_FAILURE)
    except BrokenPipeError:
        # Whoever read our output has closed it (`| head`); Python must not complain while it flushes on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(OTHER_FAILURE)


@contextmanager
def _bad_input_told() -> Iterator[None]:
    """Mistakes in scenarios and data files become lines on stderr and exit code 2."""
    from sim.benchdata.errors import BenchdataError
    from sim.catalog.catalog import CatalogError, UnknownId
    from sim.scenario.errors import ScenarioErrors
    from sim.yamlio import YamlError

    try:
        yield
    except (ScenarioErrors, UnknownId, CatalogError, YamlError, BenchdataError) as error:
        _fail(str(error))


def _fail(message: str, code: int = BAD_INPUT) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(code)


def _found(path: Path) -> Path:
    """*path*, or the scenario of that name that came with the program."""
    if path.exists():
        return path
    package = Path(__file__).resolve().parent
    inside = Path(*path.parts[1:]) if path.parts[:1] == ("scenarios",) else path
    for folder in (package / "scenarios", package.parent / "scenarios"):
        for shipped in (folder / inside, folder / f"{inside}.yaml"):
            if not path.is_absolute() and shipped.is_file():
                return shipped
    return path


def _usable(folder: Path) -> Path:
    """*folder*, if results may go there."""
    from sim.report.folder import why_not

    if refusal := why_not(folder):
        _fail(f"--out {folder}: {refusal}")
    return folder


def _print(*parts: Any) -> None:
    """Tables and lines on stdout: to the terminal's width, or as wide as they are into a pipe."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else UNLIMITED, highlight=False, markup=False, emoji=False)
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str))
