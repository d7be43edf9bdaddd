"""What pytest collects here."""

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Iterator[None]:
    """Only files with a doctest are searched for doctests: to search one imports it, and takes seconds for all."""
    found = yield
    if file_path.suffix == ".py" and ">>>" not in file_path.read_text(encoding="utf-8"):
        return [one for one in found if type(one) is pytest.Module]
    return found
