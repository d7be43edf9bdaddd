"""Fixtures of all tests: the repository's root, and the command line as users start it."""

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from contextvars import copy_context
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import typer
from coarse_answers import answer_coarsely
from hypothesis import is_hypothesis_test, settings
from hypothesis.internal.conjecture import providers
from made_up_cases import make_case, two_fleets
from sketches import sketch
from typer import testing
from typer.testing import CliRunner

from sim import registry
from sim.catalogue.data_folder import data_root
from sim.cli import OBJECTS_BETWEEN_SEARCHES, frame, main
from sim.language import ENGLISH, current
from sim.report import progress
from sim.report.charts.chart import Chart
from sim.study.execution import durable
from sim.yamlio import keep_documents

ROOT = Path(__file__).resolve().parent.parent

# The same examples on every run, and no deadline: a slow machine is no failure.
settings.register_profile("gpufleet", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("gpufleet")
SHARE_OF_EXAMPLES = float(os.environ.get("GPUFLEET_EXAMPLES", "0.4"))
"""Share of each law's random examples that run, always the same ones; set it to 1, or 20, after changing a law."""
FEWEST_EXAMPLES = 4
# Hypothesis would draw numbers that stand in modules imported so far: it parses each, and examples depend on the order.
providers._get_local_constants = lambda: providers._local_constants

os.environ["GPUFLEET_LANG"] = "en"

gc.set_threshold(OBJECTS_BETWEEN_SEARCHES)
keep_documents(data_root())

# A command shows money in its scenario's currency until its process ends: here, until it returns.
_invoke = CliRunner.invoke
CliRunner.invoke = lambda self, *args, **more: copy_context().run(_invoke, self, *args, **more)
_get_command = cache(typer.main.get_command)


def get_command(app: typer.Typer) -> Any:
    """Return the commands of *app*, which it takes longer to build than to call; a translation changes them."""
    return (_get_command if current() == ENGLISH else _get_command.__wrapped__)(app)


typer.main.get_command = testing._get_command = get_command


WAITING = tuple(
    f"tests/{name}"
    for name in (
        *("agents/", "cli/test_machine_errors", "report/charts/test_picture", "serve/", "study/execution/"),
        *("test_kill9", "test_layers", "test_packaging", "test_readme", "test_registry"),
    )
)
"""Tests that start processes, and the longest ones: at the end of all tests they would run beside idle cores."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with tests that wait: they share a worker, and what they start once on it, while others use the cores.

    All workers have the same order, whichever modules they have collected first.
    """
    place = cache(lambda path: (not path.relative_to(ROOT).as_posix().startswith(WAITING), path))
    items.sort(key=lambda item: place(item.path))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Limit the examples of laws, and exempt imported objects from garbage collection, a twelfth of the time."""
    for law in {getattr(item, "function", None) for item in session.items}:
        if not is_hypothesis_test(law):
            continue
        stated: settings = law._hypothesis_internal_use_settings
        taken = max(min(FEWEST_EXAMPLES, stated.max_examples), round(SHARE_OF_EXAMPLES * stated.max_examples))
        law._hypothesis_internal_use_settings = settings(stated, max_examples=taken)
    gc.freeze()


__all__ = ["make_case", "two_fleets"]

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session", autouse=True)
def _machine() -> Iterator[None]:
    """Set a machine with one core, without flushing to disk, and without progress on stderr.

    Other tests use the other cores; a test that needs several asks for them. Flushing takes longer than most
    simulations.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "cpu_count", lambda: 1)
        patched.setattr(os, "fsync", lambda _: None)
        patched.setattr(durable, "_flush_meanwhile", lambda _: None)
        patched.setattr(progress, "FIRST_S", 3600.0)
        patched.setattr(frame, "FIRST_REPORT_S", 3600.0)
        yield


@pytest.fixture(autouse=True, scope="module")
def _registered() -> Iterator[None]:
    """Remove the policies that a file of tests registers: messages of other tests list the built-in policies alone."""
    yield
    registry._SPECS.clear()


DRAWING = (
    *("cli/test_jobs.py", "cli/test_questions.py", "fidelity/"),
    *("report/charts/", "report/run/test_report.py", "report/test_monte_carlo.py", "test_docs_python.py"),
)
"""Tests whose pictures are drawn; between them they have a picture of every kind."""


@pytest.fixture(autouse=True, scope="module")
def _sketched(request: pytest.FixtureRequest) -> Iterator[None]:
    """Replace pictures by a sketch: drawing one takes longer than most simulations."""
    with pytest.MonkeyPatch.context() as patched:
        if not request.path.relative_to(Path(__file__).parent).as_posix().startswith(DRAWING):
            patched.setattr(Chart, "_render", sketch)
        yield


@pytest.fixture(scope="module")
def coarsely() -> Iterator[None]:
    """Search capacities and prices with few simulations and bills."""
    with pytest.MonkeyPatch.context() as patched:
        answer_coarsely(patched.setattr)
        yield


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], None]:
    """Return a function that replaces a function of a module: all calls return the result of the first one."""

    def computed_once(module: Any, name: str) -> None:
        function, found = getattr(module, name), []

        def call(*args: Any, **more: Any) -> Any:
            found[:] = found or [function(*args, **more)]
            return found[0]

        monkeypatch.setattr(module, name, call)

    return computed_once


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture
def gpufleet(tmp_path: Path) -> Command:
    """Run the command line as if in a process of its own, in the test's own empty directory."""

    def command(*args: str | Path, cwd: Path = tmp_path) -> subprocess.CompletedProcess[str]:
        words, out, err = ["gpufleet", *map(str, args)], StringIO(), StringIO()
        with pytest.MonkeyPatch.context() as patched, redirect_stdout(out), redirect_stderr(err):
            patched.setattr(sys, "argv", words)
            patched.chdir(cwd)
            with pytest.raises(SystemExit) as ended:
                copy_context().run(main)
        return subprocess.CompletedProcess(words, ended.value.code or 0, out.getvalue(), err.getvalue())

    return command
