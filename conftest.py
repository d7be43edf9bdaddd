"""What pytest collects here."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

# Tests run the sources, also those that start the program; GPUFLEET_PURE=0 runs compiled modules (`make fast`) instead.
os.environ.setdefault("GPUFLEET_PURE", "1")
# As the command does: threads of small matrix products only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Each worker, each process that a test starts and the next run import what is compiled once, wherever this is run.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

import pytest  # noqa: E402
from _pytest.runner import runtestprotocol  # noqa: E402
from coarse_answers import answer_coarsely  # noqa: E402


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Iterator[None]:
    """Only files with a doctest are searched for doctests: to search one imports it, and takes seconds for all."""
    found = yield
    if file_path.suffix == ".py" and ">>>" not in file_path.read_text(encoding="utf-8"):
        return [one for one in found if type(one) is pytest.Module]
    return found


WORKER, WORKERS = (os.environ.get(f"PYTEST_XDIST_WORKER{which}", "") for which in ("", "_COUNT"))
TESTS = Path(__file__).parent / "tests"


class TestsFromElsewhere(pytest.Dir):
    """Folder of tests, which each worker collects from another entry on.

    pytest compiles the modules of a fresh clone in each worker that does not find them compiled, a tenth of a second
    each: from one entry on, all workers would compile all of them at once.
    """

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        """Return the entries from this worker's share on, then those before it."""
        found = list(super().collect())
        first = len(found) * int(WORKER.removeprefix("gw")) // int(WORKERS)
        return found[first:] + found[:first]


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect tests/ as `TestsFromElsewhere` in workers; tests/conftest.py sorts what they collect."""
    return TestsFromElsewhere.from_parent(parent, path=path) if WORKER and path == TESTS else None


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Report of passed tests their calls alone: to send and show six messages takes longer than most tests.

    `--durations` and `--junitxml` get all of them.
    """
    if not WORKER or item.config.option.durations is not None or item.config.option.xmlpath:
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


def pytest_configure() -> None:
    """Fold no sentences: workers of pytest-xdist inherit a terminal's width, and tests read sentences whole."""
    os.environ.pop("COLUMNS", None)


@pytest.fixture(scope="session", autouse=True)
def _coarse_answers() -> None:
    """Answer coarsely; tests of the precision of answers take parts of this back."""
    answer_coarsely()


def pytest_xdist_auto_num_workers() -> int:
    """Return one more than cores: tests wait for processes and a browser, but each worker collects all tests."""
    return (os.cpu_count() or 1) + 1
