"""Several services in one fleet: each as if alone, and the whole the exact sum of its parts."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import sim
from sim.catalogue.catalog import Catalog, load_catalog
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.study.capacity import capacities
from sim.study.execution.cores import ProcessPool
from sim.yamlio import dump

A100 = "a100-80gb-sxm"
DYNAMIC = {"policy": "dynamic", "max_batch_size": 8}
AFFINE = {"model": "affine_batch", "base_s": 0.004, "per_item_s": 0.001}
STEPS = {"model": "affine", "base_s": 0.01, "per_token_s": 0, "per_context_token_s": 0}
TOKENS = {"policy": "vllm", "num_gpu_blocks": 99, "max_num_seqs": 4, "max_num_batched_tokens": 64, "max_model_len": 64}
FIXED = {"distribution": "fixed", "value": 5}
FAST = {"name": "fast", "workload": {"arrivals": {"process": "poisson", "rate_rps": 200}}, "slo": {"e2e_s": 0.02}}
SLOW = {"name": "slow", "workload": {"arrivals": {"process": "poisson", "rate_rps": 90}}, "slo": {"e2e_s": 1e-6}}
TALK = {
    "name": "talk",
    "workload": {"arrivals": {"process": "poisson", "rate_rps": 9}, "lengths": {"prompt": FIXED, "output": FIXED}},
}
ONE = {"service": "fast", "name": "a", "gpu": A100, "mig": "1g.10gb", "batching": DYNAMIC, "steptime": AFFINE}
POOLS = [
    ONE | {"replicas": 3},
    ONE | {"service": "slow", "name": "b", "replicas": 2},
    {"service": "talk", "name": "c", "gpu": A100, "mig": "2g.20gb", "batching": TOKENS, "steptime": STEPS},
]
SUMS = ("requests", "completed", "gpus", "capex_usd", "cost_usd_per_h", "energy_kwh", "goodput_rps", "it_power_w_mean")


def scenario(**more: Any) -> dict[str, Any]:
    cost = {"acquisition": "buy", "quotes": {A100: 7000}}
    return {
        "name": "s",
        "services": [FAST, SLOW, TALK],
        "horizon_s": 3.6,
        "warmup_s": 0.4,
        "cost_per_request": True,
        "fleets": [{"name": "f", "pools": POOLS, "cost": cost}],
        "site": {"electricity_usd_per_kwh": 0.2, "pue": 1.5, "hosting": "none"},
        "finance": {"method": "straight_line", "life_years": 4},
    } | more


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="module")
def run() -> Any:
    return sim.run(scenario(), quiet=True)


def services_of(run: Any) -> Any:
    return run.services.set_index("service")


@pytest.mark.slow
def test_the_parts_sum_to_the_whole(run: Any) -> None:
    total, parts = run.summary.iloc[0], services_of(run)
    assert parts.index.tolist() == ["fast", "slow", "talk"]
    assert {name: parts[name].sum() for name in SUMS} == pytest.approx({name: total[name] for name in SUMS})
    assert parts["gpus"].tolist() == pytest.approx([3 / 7, 2 / 7, 2 / 7])
    billed = run.costs.groupby("pool")["amount_usd"].sum()
    assert round(1e9 * billed.sum()) == round(1e9 * total["cost_usd_per_h"] * 3.2 / 3600)


@pytest.mark.slow
def test_each_service_is_judged_by_its_own_limits(run: Any) -> None:
    parts = services_of(run)
    assert parts["meets_slo"].tolist()[:2] == [True, False]
    assert not run.summary.iloc[0]["meets_slo"]
    met = run.requests[run.requests["measured"] == 1].groupby("service")["slo_met"].mean()
    assert met.to_dict() == pytest.approx({"fast": parts.loc["fast", "slo_attainment"], "slow": 0.0, "talk": 1.0})


@pytest.mark.slow
def test_each_service_has_a_chart_with_its_own_target(tmp_path: Path) -> None:
    services = [FAST | {"slo": {"e2e_s": 0.02, "attainment": 0.75}}, SLOW, TALK]
    sweep = {"services.fast.workload.arrivals.rate_rps": [100, 200]}
    swept = sim.run(scenario(services=services, sweep=sweep, horizon_s=1.2), quiet=True, workers=1)
    swept.plot("attainment_vs_load").save(tmp_path / "charts.svg")
    texts = [one.text for one in ElementTree.parse(tmp_path / "charts.svg").iter("{http://www.w3.org/2000/svg}text")]
    wanted = ["fast: requests within the SLO", "target 75\u00a0%", "slow: requests within the SLO", "target 95\u00a0%"]
    assert sorted(text for text in texts if text in wanted) == sorted(wanted)
    first, target, second, other_target = map(texts.index, wanted)
    assert max(first, target) < min(second, other_target), "each chart has its own"


def test_requests_and_meters_name_their_service(run: Any) -> None:
    of_pool = run.requests.groupby("service")["pool"].unique()
    assert {name: list(pools) for name, pools in of_pool.items()} == {"fast": ["a"], "slow": ["b"], "talk": ["c"]}
    assert run.requests["arrived_s"].is_monotonic_increasing
    assert run.usage.groupby("service")["replica"].unique().map(list).tolist() == [[0, 1, 2], [3, 4], [5]]


@pytest.mark.slow
def test_the_requests_of_a_service_do_not_depend_on_the_other_services(run: Any) -> None:
    alone = sim.run(scenario(services=[TALK, FAST], fleets=[{"name": "f", "pools": [POOLS[2], POOLS[0]]}]), quiet=True)
    times = [one.requests[one.requests["service"] == "fast"]["finished_s"].tolist() for one in (run, alone)]
    assert times[0] == times[1]


@pytest.mark.slow
def test_a_finished_run_is_billed_anew_by_service(run: Any) -> None:
    dearer = run.price({"finance.life_years": 2})
    parts, total = services_of(dearer), dearer.summary.iloc[0]
    assert parts["cost_usd_per_h"].sum() == pytest.approx(total["cost_usd_per_h"])
    assert (parts["cost_usd_per_h"] > services_of(run)["cost_usd_per_h"]).all()


def test_one_service_is_a_scenario_of_its_own(tmp_path: Path, catalog: Catalog) -> None:
    path = tmp_path / "s.yaml"
    sweep = {"services.fast.workload.arrivals.rate_rps": [10, 20]}
    path.write_text(dump(scenario(sweep=sweep)))
    chosen = load(path, ["service=fast"], catalog=catalog)
    assert (chosen.services, [pool.name for pool in chosen.fleets[0].pools]) == ((), ["a"])
    assert chosen.slo.e2e_s == 0.02
    assert chosen.sweep == {"workload.arrivals.rate_rps": (10, 20)}


def test_breakeven_needs_a_limit_of_every_service() -> None:
    with pytest.raises(ScenarioErrors, match=r"^services\.2\.slo: a capacity needs at least one limit"):
        sim.breakeven(scenario(), quiet=True)


@pytest.mark.slow
def test_proportional_capacity_is_limited_by_the_first_service_to_fail(tmp_path: Path, catalog: Catalog) -> None:
    services = [FAST | {"slo": {"e2e_s": 0.03}}, SLOW | {"slo": {"e2e_s": 0.03}}]
    path = tmp_path / "s.yaml"
    fleets = [{"name": "f", "pools": POOLS[:2]}]
    path.write_text(dump(scenario(services=services, horizon_s=0.9, cost_per_request=False, fleets=fleets)))

    def capacity(*sets: str) -> float:
        (found,) = capacities(
            load(path, sets, catalog=catalog), catalog, tmp_path / "-".join(sets), ProcessPool(1), 0.2
        )
        return found.mean

    # fast has 67 requests/s for each of its replicas, slow 45
    assert capacity() == pytest.approx(capacity("service=fast") / 200, rel=0.25)


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"workload": FAST["workload"]}, "each of the services has its own workload: remove workload"),
        ({"slo": {"e2e_s": 1}}, "slo: belongs in each of the services"),
        ({"services": [FAST, SLOW, TALK, FAST]}, "services.3.name: the name 'fast' is given twice"),
        ({"services": [FAST, SLOW]}, "fleets.0.pools.2.service: there is no service 'talk'"),
        ({"services": [FAST, SLOW, TALK, FAST | {"name": "more"}]}, "fleets.0.pools: none serves more"),
        ({"service": "fats"}, "service: there is no service 'fats'; did you mean fast"),
        ({"services": [FAST, SLOW, TALK | {"workload": FAST["workload"]}]}, "services.2.workload: needs arrivals and"),
        ({"load_profile": {1: 8760}}, "load_profile: applies to one workload: choose a"),
        ({"services": [FAST, SLOW, TALK | {"model": "llama9"}]}, "services.2.model: unknown model 'llama9'"),
        ({"warmup_s": "auto"}, "warmup_s: auto works with a single service"),
    ],
)
def test_issues_of_several_services(tmp_path: Path, catalog: Catalog, more: dict[str, Any], complaint: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(dump(scenario(**more)))
    with pytest.raises(ScenarioErrors) as told:
        load(path, catalog=catalog)
    assert any(complaint in line for line in str(told.value).splitlines()), str(told.value)
