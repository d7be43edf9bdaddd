"""`gpufleet check` of a scenario with a `size` section: how many candidates there are, and which cannot serve."""

import re
from pathlib import Path

import pytest

from sim.catalogue.catalog import load_catalog
from sim.report.check import FEW, candidates
from sim.scenario.reading.load import load_for_size
from sim.study.size.bounds import CandidateBounds
from sim.study.size.search_space import units

SIZE = Path(__file__).parents[2] / "scenarios" / "size-72b-chat.yaml"


@pytest.mark.slow
@pytest.mark.parametrize("sets", [("size.tensor_parallel_sizes=[1, 8]",), ("size.quantizations=[fp16]",)])
def test_candidates_are_counted_and_the_first_are_named(sets: tuple[str, ...]) -> None:
    catalog = load_catalog()
    scenario = load_for_size(SIZE, sets, catalog=catalog)
    lines = [getattr(line, "text", "") for line in candidates(scenario, catalog)]
    candidate_bounds = CandidateBounds(scenario, catalog)
    kinds = list(units(scenario, scenario.size, catalog))
    reasons = [reason for unit in kinds if (reason := candidate_bounds.bounds_of(unit).reason)]
    count, most, able = (int(number) for number in re.findall(r"\d+", lines[0]))
    assert (count, most, able) == (len(kinds), 8, len(kinds) - len(reasons))
    assert len(lines) <= 2 * FEW + 4
    cannot = lines.index(f"{len(reasons)} cannot:")
    named = [line.strip() for line in lines[1:cannot] if not line.strip().startswith("and ")]
    assert named == [unit.name for unit in kinds if not candidate_bounds.bounds_of(unit).reason][:FEW]
    told = [line for line in lines[cannot + 1 :] if not line.strip().startswith("and ")]
    assert all(any(line.endswith(reason) for reason in reasons) for line in told)
    assert len(told) == min(FEW, len(set(reasons)))


def test_what_size_cannot_answer_names_its_candidates_all_the_same() -> None:
    catalog = load_catalog()
    scenario = load_for_size(SIZE, ("slo=null",), catalog=catalog)
    assert "may serve" in str(next(candidates(scenario, catalog)))
