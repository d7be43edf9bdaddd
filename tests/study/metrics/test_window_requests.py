"""Good tokens are a part of the window's tokens, so a million of them costs no less than a million tokens."""

import numpy as np
import pytest

from sim.answers.run import run_scenario
from sim.catalogue.catalog import load_catalog
from sim.scenario.schema import Scenario
from sim.scenario.slo import Slo
from sim.scenario.sweep import axes
from sim.study.execution.cases import limits
from sim.study.execution.cores import ProcessPool
from sim.study.loaded_runs import RunAnswers
from sim.study.metrics import window_requests
from sim.study.metrics.window_requests import WindowRequests, keep
from sim.study.points import summarize

CATALOG = load_catalog()


def cohort(arrived, finished, output_tokens, window_s=(10.0, 20.0), open_end=False):
    arrived_s, finished_s = np.array(arrived, float), np.array(finished, float)
    columns = {
        "arrived_s": arrived_s,
        "started_s": finished_s,
        "first_token_s": finished_s,
        "finished_s": finished_s,
        "prompt_tokens": np.ones(len(arrived), np.int64),
        "output_tokens": np.array(output_tokens, np.int64),
        "rejected": np.zeros(len(arrived), bool),
        "given_up": np.zeros(len(arrived), bool),
    }
    return WindowRequests(columns, window_s, open_end, ())


def test_kept_values_are_those_of_the_mask(monkeypatch):
    monkeypatch.setattr(window_requests, "KEPT_AT_ONCE", 3)
    values = np.arange(8.0)
    for mask in (values % 2 == 0, values > 4, values < 0, values >= 0):
        assert keep(values.copy(), mask).tolist() == values[mask].tolist()


def test_tokens_of_requests_finishing_in_the_window_count():
    # before, across its start, inside (one of them late), across its end, and one without an answer
    requests = cohort([1, 8, 12, 13, 19, 15], [5, 11, 13, 19, 21, np.nan], [100, 20, 30, 50, 1000, 7])
    good = requests.good(Slo.model_validate({"ttft_s": 3.0}))
    assert requests.good_share_of_tokens(good) == pytest.approx((20 + 30) / (20 + 30 + 50))
    assert requests.good_share_of_tokens(requests.finished) == 1.0
    assert cohort([1], [5], [100]).good_share_of_tokens(np.array([True])) == 0.0


def test_without_a_horizon_the_queue_grows_until_the_last_arrival():
    arrived_s = np.arange(200) / 2
    for pace_s, certain in ((1.0, True), (0.25, False)):
        finished_s = arrived_s + pace_s + max(0.0, pace_s - 0.5) * np.arange(200)
        growth = cohort(arrived_s, finished_s, np.ones(200), (0.0, 0.0), open_end=True).queue_growth()
        assert (growth.certain, growth.late) == (certain, 0.0)
    assert cohort(np.zeros(200), np.arange(200), np.ones(200), (0.0, 0.0), open_end=True).queue_growth().requests == 0


FIXED = {"distribution": "geometric", "mean": 40}
SCENARIO = {
    "name": "edges",
    "workload": {"arrivals": {"process": "poisson", "rate_rps": 1}, "lengths": {"prompt": FIXED, "output": FIXED}},
    "horizon_s": 12,
    "replications": 3,
    "slo": {"ttft_s": 5, "tpot_s": 1},
    "requests": "csv",
    "fleets": [
        {
            "name": "own",
            "pools": [
                {
                    "gpu": "rtx-4090",
                    "server": "workstation-1x4090",
                    "steptime": {"model": "affine", "base_s": 0.05, "per_token_s": 1e-5, "per_context_token_s": 1e-8},
                    "batching": {"policy": "vllm", "num_gpu_blocks": 999, "max_num_seqs": 8},
                }
            ],
            "cost": {"acquisition": "buy", "quotes": {"rtx-4090": 1500, "workstation-1x4090": 2000}},
        }
    ],
    "site": {"pue": 1.4, "hosting": "none", "electricity_usd_per_kwh": 0.3},
    "finance": {"method": "annuity", "discount_rate": 0.08, "life_years": 4, "residual_fraction": 0.2},
    "sweep": {"workload.arrivals.rate_rps": [0.5, 1, 2, 4]},
}


@pytest.mark.slow
def test_goodput_token_costs_at_least_as_much_as_a_token(tmp_path):
    scenario = Scenario.model_validate(SCENARIO)
    cases = run_scenario(scenario, CATALOG, tmp_path, ProcessPool(1), report=False, quiet=True, command=["test"])
    points = summarize(cases, axes(scenario), limits(scenario))
    assert 1.0 in [point.row["slo_attainment"] for point in points]
    per_token = [point.row["usd_per_million_output_tokens"] for point in points]
    for point, usd in zip(points, per_token, strict=True):
        good = point.row["usd_per_million_good_tokens"]
        assert good == pytest.approx(usd) if point.row["slo_attainment"] == 1 else good > usd
    # the workspace judges the same requests by other limits
    strict = RunAnswers(tmp_path, CATALOG).under({"slo.tpot_s": 0.052}).points
    for point, usd in zip(strict, per_token, strict=True):
        assert point.row["usd_per_million_good_tokens"] >= usd
