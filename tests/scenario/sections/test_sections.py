"""Effects of the registration of a section."""

import pytest

from sim.cost.component import OwnerComponent, UserComponent
from sim.cost.operations import Operations, left_out
from sim.report.size import NOT_THE_WINNERS
from sim.scenario.schema import SECTIONS, Scenario
from sim.scenario.template import template
from sim.study.execution.digest import NOT_IN_DIGEST

LENGTH = {"distribution": "fixed", "value": 10}
POOL = {
    "steptime": {"model": "affine", "base_s": 0.01, "per_token_s": 0, "per_context_token_s": 0},
    "batching": {"policy": "vllm", "max_num_seqs": 4, "max_num_batched_tokens": 64, "num_gpu_blocks": 100},
}
SCENARIO = {
    "name": "plain",
    "workload": {"arrivals": {"process": "burst", "num_requests": 1}, "lengths": {"prompt": LENGTH, "output": LENGTH}},
    "fleets": [{"name": "f", "pools": [POOL]}],
}


@pytest.mark.parametrize(
    ("path", "section"),
    [("size.max_replicas", {"size": {"gpus": ["l40s"], "costs": {"b": {"acquisition": "buy"}}, "max_replicas": 3}}),
     ("precision.relative", {"precision": {"relative": 0.1}}),
     ("limits.points", {"limits": {"points": 9}}),
     ("breakeven.months", {"breakeven": {"months": 9}})],
)  # fmt: skip
def test_no_section_is_an_input_of_a_sensitivity(path, section):
    scenario = Scenario.model_validate(SCENARIO | section | {"sensitivity": {"inputs": {path: [1, 2]}}})
    found = SECTIONS["sensitivity"].check(scenario.sensitivity, scenario, lambda _: [])
    assert [one.message for one in found] == [f"{path} is not an input"]


def test_a_fleet_that_size_finds_keeps_nothing_about_other_fleets():
    assert set(NOT_THE_WINNERS) >= {"size", "plan", "breakeven", "sensitivity", "futures"}
    assert "load_profile" not in NOT_THE_WINNERS


def test_a_case_rests_on_no_section():
    assert set(NOT_IN_DIGEST) >= SECTIONS.keys()


def test_the_template_shows_every_section_but_limits_and_claims():
    text = template("new")
    assert {name for name in SECTIONS if f"{name}: " not in text} == {"limits", "claim"}


def test_whoever_rents_pays_the_users_components():
    kinds = {name: field.annotation.__args__[0] for name, field in Operations.model_fields.items()}
    users = [name for name, kind in kinds.items() if issubclass(kind, UserComponent)]
    assert all(issubclass(kind, OwnerComponent | UserComponent) for kind in kinds.values())
    [told] = left_out(None, rented=True)
    assert told == f"Left out of the bill: {', '.join(users)}."
