import pytest

from sim.catalogue.catalog import load_catalog
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.scenario.sweep import at_point
from sim.scenario.year import year_plan
from sim.yamlio import dump

LENGTH = {"distribution": "fixed", "value": 10}
POOL = {
    "steptime": {"model": "affine", "base_s": 0.01, "per_token_s": 0, "per_context_token_s": 0},
    "batching": {"policy": "vllm", "max_num_seqs": 4, "max_num_batched_tokens": 64, "num_gpu_blocks": 100},
}
SCENARIO = {
    "name": "year",
    "workload": {
        "arrivals": {"process": "poisson", "rate_rps": 1},
        "lengths": {"prompt": LENGTH, "output": LENGTH},
    },
    "horizon_s": 10,
    "fleets": [{"name": "f", "pools": [POOL]}],
    "sweep": {"workload.arrivals.rate_rps": [0.5, 8]},
}


@pytest.fixture
def loaded(tmp_path):
    def read(profile, swept=True, **more):
        path = tmp_path / "year.yaml"
        path.write_text(dump(SCENARIO | {"load_profile": profile} | more))
        return load(path, (), catalog=load_catalog(), swept=swept)

    return read


def test_hours_at_rates(loaded):
    scenario = loaded({8: 2920, 0.5: 5840})
    plan = year_plan(scenario)
    assert plan.loads == ((0.5, 5840.0, None), (8.0, 2920.0, None))
    assert (plan.axis, plan.peak) == ("rate_rps", 8.0)
    assert at_point(scenario, {"workload.arrivals.rate_rps": 8}).load_profile == {8.0: 2920.0, 0.5: 5840.0}


def test_a_rate_for_each_hour_of_the_day(loaded):
    plan = year_plan(loaded([0.5] * 20 + [8] * 4))
    assert plan.loads[19:21] == ((0.5, 365.0, 19), (8.0, 365.0, 20))
    assert sum(hours for _, hours, _ in plan.loads) == 8760


def test_one_load_needs_no_sweep(loaded):
    assert year_plan(loaded({1: 8760}, sweep=None)).axis is None


@pytest.mark.parametrize(
    ("profile", "says"),
    [
        ({8: 3000}, "add up to 3000; a year has 8760"),
        ({9: 8760}, r"9 requests/s lie outside what is simulated \(0.5 to 8\)"),
        ([0.1] * 24, "0.1 requests/s lie outside"),
        ([1, 2], "24 loads"),
        ({8: -1, 1: 8761}, "0 or more, not -1"),
        ({0: 8760}, "no hour has any load"),
        ([0] * 24, "no hour has any load"),
        ({"noon": 8760}, "not 'noon'"),
    ],
)
def test_odd_profiles_are_refused(loaded, profile, says):
    with pytest.raises(ScenarioErrors, match=says):
        loaded(profile)


def test_a_command_that_ignores_the_sweep_asks_for_no_load_in_it(loaded):
    assert year_plan(loaded({9: 8760}, swept=False)).peak == 9
    workload = SCENARIO["workload"] | {"arrivals": {"process": "burst", "num_requests": 2}}
    with pytest.raises(ScenarioErrors, match="which these arrivals do not have"):
        loaded({1: 8760}, swept=False, workload=workload, sweep=None)


def test_arrivals_without_a_rate_have_no_year(loaded):
    workload = SCENARIO["workload"] | {"arrivals": {"process": "burst", "num_requests": 2}}
    with pytest.raises(ScenarioErrors, match="which these arrivals do not have"):
        loaded({1: 8760}, workload=workload, sweep=None)
