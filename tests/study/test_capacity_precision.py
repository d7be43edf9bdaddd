"""`capacity` adds replications until its interval is of use, or says that it is not and what to set."""

from pathlib import Path
from typing import Any

import pytest
from small_scenario import ANY_LENGTH, loaded, variant

from sim.catalogue.catalog import load_catalog
from sim.report.words.precision import capacity_notes
from sim.scenario.sections.precision import FIRST_REPLICATIONS, Precision
from sim.study.at_capacity import at_capacity
from sim.study.capacity import FleetCapacity, ReplicationCapacity, capacities, precision_of
from sim.study.execution.cores import ProcessPool
from sim.study.execution.precision import next_cases
from sim.study.load_axis import LoadAxis
from sim.study.metrics.statistics import half_width, mean

CATALOG = load_catalog()
SCENARIO = variant(
    ANY_LENGTH,
    {
        "workload.arrivals.rate_rps": 4.0,
        "workload.lengths.output": {"distribution": "geometric", "mean": 20},
        "horizon_s": 30,
        "slo": {"ttft_s": 0.5, "attainment": 0.9},
    },
)
TRACE = "workload={trace: {path: t.csv, format: csv}}"


def scenario(folder: Path, *sets: str) -> Any:
    return loaded(folder, SCENARIO, *sets)


def found(asked: Any, out: Path, precision: Precision | None) -> FleetCapacity:
    with ProcessPool(1) as workplace:
        (one,) = capacities(asked, CATALOG, out, workplace, 0.1, precision=precision)
    return one


@pytest.mark.slow
def test_replications_are_added_until_the_interval_is_of_use(tmp_path: Path) -> None:
    asked = scenario(tmp_path)
    assert [precision_of(asked, relative).relative for relative in (0.02, 0.3)] == [0.1, 0.3]
    one = found(asked, tmp_path / "out", Precision(relative=0.2))
    values = [search.capacity for search in one.found]
    assert len(values) >= FIRST_REPLICATIONS
    assert one.half_width is not None
    assert one.half_width <= 0.2 * one.mean
    # the interval is that of its replications, in order, and a further search would have stopped there as well
    assert (one.mean, one.half_width) == (mean(values), half_width(values))
    assert [search.replication for search in one.found] == list(range(len(values)))
    assert capacity_notes([one], Precision(relative=0.2)) == []


@pytest.mark.slow
def test_the_search_ends_and_the_answer_names_the_key_to_set(tmp_path: Path) -> None:
    asked = scenario(tmp_path, "precision={relative: 0.01, max_replications: 6}")
    one = found(asked, tmp_path / "out", precision_of(asked, 0.1))
    assert len(one.found) == 6
    (note,) = capacity_notes([one], asked.precision)
    assert "only, after 6 replications" in note
    assert "% asked for)" in note
    assert "set precision.max_replications to about" in note
    (note,) = capacity_notes([one], asked.precision, stated=False)
    assert "asked for" not in note


@pytest.mark.slow
def test_no_capacity_has_a_reason(tmp_path: Path) -> None:
    asked = scenario(tmp_path, "slo={ttft_s: 0.001}", "replications=1")
    row = at_capacity(found(asked, tmp_path / "out", None), asked.slo).row(LoadAxis.of(asked))
    assert row["rate_rps"] == 0
    assert row["reason"].startswith("no request is within the limits even at rate_rps 0.0")
    assert row["reason"].endswith(", below which no request arrives in the window")


@pytest.mark.slow
def test_without_a_precision_no_runs_are_added_and_the_answer_reports_it(tmp_path: Path) -> None:
    one = found(scenario(tmp_path), tmp_path / "out", None)
    assert len(one.found) == 1
    (note,) = capacity_notes([one], None)
    assert note.startswith("Capacities from one replication have no interval (")
    assert "precision={relative: 0.1}" in note


@pytest.mark.slow
def test_what_no_chance_is_in_is_searched_once(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{i},1,20\n" for i in range(30))
    )
    one = found(scenario(tmp_path, TRACE, "replications=3"), tmp_path / "out", Precision())
    assert len(one.found) == 1
    assert one.half_width is None
    assert capacity_notes([one], Precision()) == []


def test_capacity_beyond_the_search_adds_no_replications() -> None:
    every = (ReplicationCapacity("a", 0, float("inf"), None, 3), ReplicationCapacity("a", 1, float("inf"), None, 3))
    assert FleetCapacity("a", float("inf"), None, every).relative is None
    assert FleetCapacity("a", 0.0, 0.0, ()).relative == 0.0
    assert FleetCapacity("a", 2.0, 0.5, ()).relative == 0.25


def test_precision_without_a_metric_adds_no_replications(tmp_path: Path) -> None:
    assert next_cases(scenario(tmp_path, "precision={relative: 0.05}"), []) == []


@pytest.mark.parametrize("key", ["relative=2", "max_replications=1"])
def test_its_limits_are_checked(tmp_path: Path, key: str) -> None:
    with pytest.raises(ValueError, match="precision"):
        scenario(tmp_path, "precision={metric: ttft_s_mean}", f"precision.{key}")
