"""Command `gpufleet serve`."""

from pathlib import Path
from typing import Annotated

import typer

from sim.cli.frame import app, fail, report_bad_input
from sim.cli.workplace import Address, Wait, check_cluster

MISSING_SERVER = "gpufleet serve needs starlette and uvicorn: pip install 'gpufleet[serve]'"


@app.command()
def serve(
    target: Annotated[Path | None, typer.Argument(metavar="[SCENARIO | RUN]", help="Scenario or run to open.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free port.")] = 8765,
    host: Annotated[
        str, typer.Option(help="Address to listen on; beyond this machine the connection is not encrypted.")
    ] = "127.0.0.1",
    workspace: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Folder of the workspace; files outside it are neither read nor written; default: the current folder."
            )
        ),
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Open no browser.")] = False,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Require no token: anyone who reaches the address can read.")
    ] = False,
    run_hours: Annotated[float, typer.Option(min=0.01, help="Stop a run of the queue after this time [h].")] = 24.0,
    run_gb: Annotated[
        float | None,
        typer.Option(
            min=0.0, help=("Stop a run that needs more memory [GB]; default: 3/4 of the machine's; 0: never.")
        ),
    ] = None,
    cluster: Address = None,
    wait: Wait = None,
) -> None:
    """Open a workspace in the browser.

    Compare fleets, change prices and limits, edit and run scenarios.
    """
    with report_bad_input():
        try:
            from sim.serve.http_server import CannotServe, opened
            from sim.serve.http_server import serve as serve_folder
            from sim.serve.jobs import JobLimits
        except ModuleNotFoundError:
            fail(MISSING_SERVER)
        try:
            folder, shown = opened(target, workspace)
            limits = JobLimits(run_hours) if run_gb is None else JobLimits(run_hours, run_gb)
            place: list[str] = []
            if cluster is not None:
                check_cluster(cluster)
                place = ["--cluster", cluster, *(["--wait", f"{wait:g}"] if wait is not None else [])]
            serve_folder(folder, shown, host, port, not no_open, typer.echo, no_token, limits, place)
        except CannotServe as error:
            fail(str(error))
