"""What every test may ask for: the repository's root and the command line as a user meets it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples on every run, and no deadline: a slow machine is no failure.
settings.register_profile("gpufleet", deadline=None, derandomize=True)
settings.load_profile("gpufleet")

# Tests start the program many times; what is compiled once is kept for the next start, wherever this is run.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session", autouse=True)
def _one_core() -> Iterator[None]:
    """Other tests run on the other cores, and another process costs its start: who wants several asks for them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "cpu_count", lambda: 1)
        yield


@pytest.fixture(scope="session")
def root() -> Path:
    return Path(__file__).resolve().parent.parent


@pytest.fixture
def gpufleet(root: Path, tmp_path: Path) -> Command:
    """Run the command line in a process of its own, in the test's own empty directory."""

    def command(*args: str | Path, cwd: Path = tmp_path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "sim", *map(str, args)],
            cwd=cwd,
            env=os.environ | {"PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=False,
        )

    return command
