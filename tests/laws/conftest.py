"""Laws are checked on whole simulated cases."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sim.case.result import CaseResult
from sim.case.run import run_case
from sim.catalogue.catalog import load_catalog
from sim.scenario.reading.load import load
from sim.scenario.sweep import cases
from sim.yamlio import dump

Simulate = Callable[..., list[CaseResult]]


@pytest.fixture
def simulate(tmp_path: Path) -> Simulate:
    """Runs all cases of a scenario given as data."""

    def run(data: dict[str, Any]) -> list[CaseResult]:
        path = tmp_path / "law.yaml"
        path.write_text(dump({"name": "law", **data}))
        catalog = load_catalog()
        scenario = load(path, (), catalog=catalog)
        results = [run_case(scenario, case, catalog) for case in cases(scenario)]
        assert all(isinstance(result, CaseResult) for result in results)
        return results

    return run
