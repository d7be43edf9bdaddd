"""The command line: arguments in, exit code out. Each command imports what it needs, so that --help is instant."""

import errno
import os
import sys
from io import TextIOWrapper

import typer
from typer.exceptions import TyperException

# each registers its command
from sim.cli import catalogue, check, claims, export, init, serve  # noqa: F401
from sim.cli.fidelity import calibrate, validate  # noqa: F401
from sim.cli.fleets import capacity, diff, explain, run, sensitivity, size  # noqa: F401
from sim.cli.money import breakeven, plan, price  # noqa: F401
from sim.cli.shared.common import BAD_INPUT, OTHER_FAILURE, app

LONGEST_SHOWN = 100
NO_COLOR = "--no-color"
_FULL = "; finished points are kept: make room, and the same command goes on from them"
ADVICE = {errno.ENOSPC: _FULL, errno.EDQUOT: _FULL}


def main() -> None:
    """Entry point of the command `gpufleet`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names from any script, in any locale
    try:
        # on its own typer would print a usage error on several lines
        code = app(_in_color(sys.argv[1:]) or ["--help"], standalone_mode=False)
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
    except OSError as error:
        typer.echo(f"gpufleet: {_told(error)}", err=True)
        sys.exit(BAD_INPUT if error.errno == errno.ENAMETOOLONG else OTHER_FAILURE)
    except UnicodeEncodeError as error:
        text, encoding = error.object[:LONGEST_SHOWN], error.encoding
        typer.echo(f"gpufleet: this locale ({encoding}) cannot write {text!r}; set PYTHONUTF8=1", err=True)
        sys.exit(OTHER_FAILURE)
    except MemoryError:
        typer.echo("gpufleet: not enough memory; simulate less at once (shorter horizon_s, fewer --workers)", err=True)
        sys.exit(OTHER_FAILURE)


def _in_color(words: list[str]) -> list[str]:
    """The command's words without --no-color, which may stand anywhere, as NO_COLOR may be set (no-color.org)."""
    if NO_COLOR in words:
        os.environ["NO_COLOR"] = "1"
    return [word for word in words if word != NO_COLOR]


def _told(error: OSError) -> str:
    """What the machine refuses, on one line."""
    files = ", ".join(str(file)[:LONGEST_SHOWN] for file in (error.filename, error.filename2) if file)
    reason = os.strerror(error.errno) if error.errno else " ".join(str(error).split())
    advice = ADVICE.get(error.errno or 0, "")
    return f"{files}: {reason.lower()}{advice}" if files else f"{reason.lower()}{advice}"
