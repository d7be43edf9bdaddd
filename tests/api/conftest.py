"""Runs of two small fleets, shared by the tests."""

from typing import Any

import pytest
from small_scenario import two_fleets

import sim


@pytest.fixture
def scenario() -> dict[str, Any]:
    return two_fleets()


@pytest.fixture(scope="session")
def small_run() -> sim.Run:
    return sim.run(two_fleets(), workers=1, quiet=True)
