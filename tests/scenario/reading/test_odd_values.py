"""Whatever stands in a file, it is either a scenario that resolves or a list of mistakes; never a traceback."""

from collections.abc import Iterator
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sim.catalogue.catalog import Catalog, load_catalog
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.layers import with_values
from sim.scenario.reading.load import load
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.describe import describe
from sim.scenario.sweep import cases
from sim.yamlio import dump, read

pytestmark = pytest.mark.slow

Place = tuple[str | int, ...]
ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    1,
    3,
    1.5,
    10**30,
    1e308,
    inf,
    nan,
    "",
    "none",
    "on",
    "é",
    "12:30:00",
    "2024-05-01",
]
ODD += [[], [1], {}, {"x": 1}, [[]], [{}], {1: 2}, {"policy": "vllm"}, {"process": "burst"}, "rtx-4090", "vllm", "a/b"]
NEW_KEYS = ["trace", "engine", "model", "link", "steptime", "power", "batching", "drain_limit_s", "base", "slo", "name"]


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="module")
def main_data(root: Path) -> dict[str, Any]:
    data: dict[str, Any] = read(root / "scenarios" / "4x4090-vs-2xa100.yaml").data
    return data


def places(data: Any, above: Place = ()) -> Iterator[Place]:
    """Every place in *data*, and a few that could be."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield (*above, key)
        yield from places(value, (*above, key))
    if isinstance(data, dict):
        yield from ((*above, key) for key in NEW_KEYS if key not in data)


@settings(max_examples=90)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(ODD)), min_size=1, max_size=2))
@example([(0, nan)])
def test_odd_values(
    tmp_path_factory: pytest.TempPathFactory,
    catalog: Catalog,
    main_data: dict[str, Any],
    changes: list[tuple[int, Any]],
) -> None:
    data = main_data
    for pick, value in changes:
        known = list(places(data))
        data = with_values(data, {known[pick % len(known)]: value}) if known else data
    path = tmp_path_factory.getbasetemp() / "odd.yaml"
    path.write_text(dump(data))
    scenario, lines = None, []
    try:
        scenario = load(path, catalog=catalog)
    except ScenarioErrors as error:
        lines = str(error).splitlines()
    assert (scenario is None) == bool(lines)
    assert all(line.startswith(f"{path}:") for line in lines)
    for case in {case.fleet: case for case in cases(scenario)}.values() if scenario else ():
        describe(resolve(scenario, case, catalog), catalog)
