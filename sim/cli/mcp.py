"""Command `gpufleet mcp`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from sim.cli.frame import app, fail, report_bad_input
from sim.language import _
from sim.message import Message

MISSING_SDK = "gpufleet mcp needs the MCP SDK: pip install 'gpufleet[mcp]'"
TOKEN = "GPUFLEET_MCP_TOKEN"
"""Variable with the token of the HTTP server; without it a token is drawn and printed."""


@app.command()
def mcp(
    root: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of scenarios and answers; tools use no file outside it.")
    ] = Path(),
    http: Annotated[bool, typer.Option("--http", help="Streamable HTTP with a token, in place of stdio.")] = False,
    host: Annotated[str, typer.Option(help="With --http: address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="With --http: port to listen on.")] = 8766,
    limit_s: Annotated[float, typer.Option(min=1.0, help="Longest time of a tool call [s].")] = 600.0,
    most_simulations: Annotated[
        int, typer.Option(min=1, help="Most simulations of a call: fleets x points x replications.")
    ] = 500,
) -> None:
    """Serve tools for agents by the Model Context Protocol."""
    with report_bad_input():
        if not root.is_dir():
            fail(Message("--root {folder}: is not a folder", root))
        try:
            from sim.agents.server import server_of
            from sim.agents.workspace import ToolWorkspace
        except ModuleNotFoundError:
            fail(MISSING_SDK)
        server = server_of(ToolWorkspace(root.resolve(), most_simulations, limit_s))
        if not http:
            server.run("stdio")
            return
        try:
            from sim.agents.http import PATH, new_token, serve_http
        except ModuleNotFoundError:
            fail(MISSING_SDK)
        given = os.environ.get(TOKEN, "")
        token = given or new_token()
        typer.echo(_("http://{host}:{port}{path}", host=host, port=port, path=PATH))
        typer.echo(_("Authorization: Bearer {token}", token=f"${TOKEN}" if given else token))
        serve_http(server, token, host, port)
