"""The command line: arguments in, exit code out. Each command imports what it needs, so that --help is instant."""

import os
import sys

import typer
from typer.exceptions import TyperException

from sim.cli import (
    breakeven,
    calibrate,
    capacity,
    catalogue,
    check,
    init,
    plan,
    price,
    run,
    sensitivity,
    size,
    validate,
)
from sim.cli.common import BAD_INPUT, OTHER_FAILURE, app

__all__ = [
    "app",
    "breakeven",
    "calibrate",
    "capacity",
    "catalogue",
    "check",
    "init",
    "main",
    "plan",
    "price",
    "run",
    "sensitivity",
    "size",
    "validate",
]


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
