"""Command line of gpufleet: arguments in, exit code out.

Each command imports what it needs when it is called, so that --help is instant.
"""

import atexit
import errno
import gc
import os
import sys
from copy import copy
from io import TextIOWrapper

import typer
from typer.exceptions import TyperException
from typer.models import CommandInfo

# importing a module registers its commands
from sim.cli import (  # noqa: F401
    catalogue,
    claims,
    explain,
    fidelity,
    finished_runs,
    mcp,
    prices,
    questions,
    scenario_files,
    serve,
    watch,
)
from sim.cli.frame import BAD_INPUT, INTERRUPTED, OTHER_FAILURE, OWN_PROCESS, app
from sim.cli.kept_methods import keep_generated_methods
from sim.language import ENGLISH, LANGUAGES, _, current, known_language, speak, translate_rendered
from sim.language.catalogue import OWN
from sim.message import Message

ORDER = (
    *("init", "check", "run", "size", "capacity", "breakeven", "plan", "sensitivity", "price", "diff", "explain"),
    *("export", "serve", "list", "show", "prices", "mcp", "validate", "calibrate", "watch", "claims"),
)
"""Commands in the order of the help; all others come last."""
LONGEST_SHOWN = 100
"""Longest name or text that an error message repeats [characters]."""
OBJECTS_BETWEEN_SEARCHES = 400_000
"""Allocations between searches for garbage: more than reading and checking a scenario makes. With Python's default, the
searches take a fifth of a short run."""
LANG = "--lang"
NO_COLOR = "--no-color"
_NO_SPACE_HINT = "; finished points are kept: make room, and the same command continues from them"
ADVICE = {errno.ENOSPC: _NO_SPACE_HINT, errno.EDQUOT: _NO_SPACE_HINT}


def _name(command: CommandInfo) -> str:
    return command.name or str(getattr(command.callback, "__name__", ""))


def _place(command: CommandInfo) -> int:
    """Return the position of *command* in the help."""
    return ORDER.index(_name(command)) if _name(command) in ORDER else len(ORDER)


app.registered_commands.sort(key=_place)


def _app_for(word: str) -> typer.Typer:
    """Return the app with only the command *word*; that with all commands, which are slow to build, for other words."""
    named = [command for command in app.registered_commands if _name(command) == word]
    if not named:
        return app
    single = copy(app)
    single.registered_commands = named
    return single


def main() -> None:
    """Run the command `gpufleet`; its entry point."""
    OWN_PROCESS.set(True)
    gc.set_threshold(OBJECTS_BETWEEN_SEARCHES)
    keep_generated_methods()
    # otherwise the collector frees each object of all modules at exit, which takes up to 0.4 s
    atexit.register(gc.freeze)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy would start a thread per core; our matrices are small
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # it would search all installed packages for some
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # prints any name in any locale
    try:
        # in standalone mode typer would print usage errors on several lines
        words = _in_language(_in_color(sys.argv[1:])) or ["--help"]
        command = typer.main.get_command(_app_for(words[0]))
        if current() != ENGLISH:
            from sim.cli.help import translate_help

            translate_help(command)
        code = command(words, standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except TyperException as error:
        # pydantic prefixes the message of a refused value
        problem = error.format_message().replace("Value error, ", "")
        sentence = _("gpufleet: {problem} (see gpufleet --help)", problem=translate_rendered(problem))
        typer.echo(sentence, err=True)
        sys.exit(BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # the reader has closed stdout (`| head`); flushing it at exit would print an error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(OTHER_FAILURE)
    except OSError as error:
        typer.echo(f"gpufleet: {translate_rendered(_error_text(error))}", err=True)
        sys.exit(BAD_INPUT if error.errno == errno.ENAMETOOLONG else OTHER_FAILURE)
    except UnicodeEncodeError as error:
        text, encoding = error.object[:LONGEST_SHOWN], error.encoding
        typer.echo(
            translate_rendered(
                Message("gpufleet: this locale ({encoding}) cannot write {text!r}; set PYTHONUTF8=1", encoding, text)
            ),
            err=True,
        )
        sys.exit(OTHER_FAILURE)
    except MemoryError:
        typer.echo(
            _("gpufleet: not enough memory; simulate less at once (shorter horizon_s, fewer --workers)"), err=True
        )
        sys.exit(OTHER_FAILURE)


def _in_language(words: list[str]) -> list[str]:
    """Return *words* without --lang and its value, and use that language from now on."""
    rest, name, text = [], os.environ.get(OWN, ""), f"{OWN}="
    given = iter(words)
    for word in given:
        if word == LANG or word.startswith(f"{LANG}="):
            name, text = word.removeprefix(LANG).removeprefix("=") or next(given, "") or "?", f"{LANG} "
        else:
            rest.append(word)
    if name:
        if (code := known_language(name)) is None:
            raise TyperException(
                Message(
                    "{option}{name}: no catalogue of this language; there are {languages}",
                    text,
                    name,
                    ", ".join(LANGUAGES),
                )
            )
        speak(code)
    return rest


def _in_color(words: list[str]) -> list[str]:
    """Return *words* without --no-color, which may be anywhere and acts as the environment's NO_COLOR."""
    if NO_COLOR in words:
        os.environ["NO_COLOR"] = "1"
    return [word for word in words if word != NO_COLOR]


def _error_text(error: OSError) -> str:
    """Describe a system error on one line."""
    files = ", ".join(str(file)[:LONGEST_SHOWN] for file in (error.filename, error.filename2) if file)
    reason = os.strerror(error.errno) if error.errno else " ".join(str(error).split())
    advice = ADVICE.get(error.errno or 0, "")
    return f"{files}: {reason.lower()}{advice}" if files else f"{reason.lower()}{advice}"
