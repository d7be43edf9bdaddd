"""Plan, breakeven, sensitivity and size for services that share pools: all loads in proportion, or one's."""

from pathlib import Path
from typing import Any

import pytest

from sim.case.run import idle_window
from sim.catalogue.catalog import load_catalog
from sim.scenario.checks.services import service_workload_issues, with_one_service
from sim.scenario.experiment import Service
from sim.scenario.resolving.case import resolve
from sim.scenario.schema import Scenario
from sim.scenario.slo import Slo
from sim.scenario.sweep import at_point, cases
from sim.study import breakeven_costs
from sim.study.breakeven import costs_at, decide
from sim.study.breakeven_costs import CandidateLedgers
from sim.study.capacity import FleetCapacity, ReplicationCapacity, capacities
from sim.study.execution.cores import ProcessPool
from sim.study.load_axis import LoadAxis
from sim.study.metrics.expected_load import mean_tokens, rate_per_load
from sim.study.plan import outlooks, part_loads, why_no_plan
from sim.study.sensitivity import swings
from sim.study.size.bounds import CandidateBounds
from sim.study.size.search import search
from sim.study.size.search_space import units

STEP = {"model": "affine", "base_s": 0.02, "per_token_s": 1e-4, "per_context_token_s": 1e-6}
BATCHING = {
    **{"policy": "vllm", "num_gpu_blocks": 200, "max_num_seqs": 6, "max_num_batched_tokens": 64},
    **{"max_model_len": 1200},
}
POOL = {"services": ["chat", "code"], "gpu": "rtx-4090", "steptime": STEP, "batching": BATCHING}
LOADS = {"chat": (2.0, 40, 20), "code": (1.0, 100, 40)}
"""Service -> requests per second, prompt and output tokens of each."""
CATALOG = load_catalog()


@pytest.fixture(autouse=True)
def few_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs lie on straight lines here: two simulated loads are enough."""
    monkeypatch.setattr(breakeven_costs, "UTILISATIONS", (0.25, 1.0))


def service(name: str) -> dict[str, Any]:
    rate_rps, *tokens = LOADS[name]
    sides = zip(("prompt", "output"), tokens, strict=True)
    lengths = {side: {"distribution": "fixed", "value": value} for side, value in sides}
    arrivals = {"process": "constant", "rate_rps": rate_rps}
    return {"name": name, "workload": {"arrivals": arrivals, "lengths": lengths}, "slo": {"ttft_s": 1.0}}


def scenario(**more: Any) -> Scenario:
    rent = {"acquisition": "rent", "quotes": {"rtx-4090": 0.4}}
    data = {
        "name": "s",
        "services": [service(name) for name in LOADS],
        "horizon_s": 4,
        "fleets": [{"name": "f", "pools": [POOL], "cost": rent}],
    }
    return Scenario.model_validate(data | more)


def found(capacity: float) -> list[FleetCapacity]:
    return [FleetCapacity("f", capacity, None, (ReplicationCapacity("f", 0, capacity, None, 0),))]


@pytest.mark.slow
def test_in_proportion_units_carry_the_tokens_of_all_services_and_cost_their_rent(tmp_path: Path) -> None:
    asked = scenario(plan={"years": 1, "starts": "2027-01", "peak_to_mean": 2, "discount_rate": 0.05})
    assert rate_per_load(asked) == 3.0
    assert mean_tokens(asked) == (60.0, pytest.approx(80 / 3))
    ledgers = CandidateLedgers(asked, CATALOG, tmp_path, ProcessPool(1), found(2.0))
    for load, copies in ((0.5, 1), (2.0, 1), (5.0, 3)):
        cost = ledgers.cost(ledgers.candidates[0], load)
        assert cost.units == copies
        assert cost.output_tokens_per_h == pytest.approx(3600 * load * 80)
        assert cost.usd_per_h == pytest.approx(0.4 * copies)
    measured = part_loads(asked, CATALOG, found(2.0), tmp_path, ProcessPool(1))
    (outlook,) = outlooks(asked, CATALOG, found(2.0), measured)
    assert [row.rented for row in outlook.months] == [1] * 12
    assert outlook.total_usd == pytest.approx(12 * 730 * 0.4)
    assert outlook.output_tokens == pytest.approx(12 * 730 * 3600 * 80)


def test_a_fleet_without_load_answers_no_service() -> None:
    asked = scenario()
    (hours,) = idle_window(resolve(asked, cases(asked)[0], CATALOG)).intervals.values()
    assert sum(one.output_tokens for one in hours) == sum(one.busy_s for one in hours) == 0
    assert sum(one.gpu_energy_j for one in hours) == sum(one.idle_energy_j for one in hours) > 0


@pytest.mark.slow
def test_capacity_of_one_service_beside_the_others(tmp_path: Path) -> None:
    asked = scenario(service="chat", breakeven={"load": 3.0})
    ledgers = CandidateLedgers(asked, CATALOG, tmp_path, ProcessPool(1), found(6.0))
    (own,) = ledgers.candidates
    assert ledgers.cost(own, 3.0).output_tokens_per_h == pytest.approx(3600 * (3 * 20 + 40))
    assert costs_at(ledgers, 6.0) == {"f": pytest.approx(0.4)}
    assert costs_at(ledgers, 6.1) == {}
    answer = decide(asked, CandidateLedgers(asked, CATALOG, tmp_path, ProcessPool(1), found(2.9)), found(2.9))
    assert not answer.usd_per_h
    assert why_no_plan(scenario(service="chat", plan={"years": 1, "starts": "2027-01"})).startswith("service: chat")


@pytest.mark.slow
def test_sensitivity_moves_the_loads_of_all_services_together(tmp_path: Path) -> None:
    inputs = {"load_scale": [0.5, 2.0], "services.code.workload.lengths.output.value": [20, 40]}
    base, moved = swings(scenario(sensitivity={"inputs": inputs}), CATALOG, tmp_path, ProcessPool(1)).swings
    tokens_per_s = 80 * (4 - 0.5) / 4  # the first of each come at once, the last are cut off by the window
    assert base.low["f"].value / base.high["f"].value == pytest.approx(4, rel=0.25)
    assert moved.high["f"].value == pytest.approx(0.4 / 3600 / tokens_per_s * 1e6, rel=0.2)
    assert moved.input.name == "output length of code"


def sized(rate_rps: float, **more: Any) -> Scenario:
    """Two models of which the first one's requests need ten times as many steps as the second one's."""
    services = [service(name) | {"model": model} for name, model in (("chat", "llama3.2-1b"), ("code", "llama3.2-3b"))]
    services[0]["workload"]["arrivals"]["rate_rps"] = rate_rps
    services[0]["workload"]["lengths"]["output"]["value"] = 400
    services[0]["slo"] = {"tpot_s": 0.02}
    rent = {"rented": {"acquisition": "rent", "quotes": {"rtx-4090": 0.4}}}
    size = {"gpus": ["rtx-4090"], "tensor_parallel_sizes": [1], "max_replicas": 3, "costs": rent}
    data = {"name": "s", "services": services, "horizon_s": 4, "size": size} | more
    return Scenario.model_validate(data | {"services": services, "max_model_len": 2048})


@pytest.mark.slow
def test_a_fleet_is_sized_for_all_services_that_share_it(tmp_path: Path) -> None:
    asked = sized(8.0)
    answer = search(asked, CATALOG, tmp_path, ProcessPool(1))
    best = answer.winner
    assert best is not None
    assert best.fleet is not None
    (pool,) = best.fleet.pools
    assert pool.services == ("chat", "code")
    assert pool.sharing is not None
    assert pool.sharing.models == "resident"
    assert all(one.good for one in best.services.values())
    candidate_bounds = CandidateBounds(asked, CATALOG)
    (unit,) = units(asked, asked.size, CATALOG) if asked.size is not None else ()
    assert 1 <= candidate_bounds.bounds_of(unit).least_replicas <= best.replicas
    # twice the work needs at least as many, and one that nobody can do is refused by the service's name
    assert (
        CandidateBounds(sized(300.0), CATALOG).bounds_of(unit).least_replicas
        > candidate_bounds.bounds_of(unit).least_replicas
    )
    hopeless = asked.model_copy(update={"services": (asked.services[0], _within(asked.services[1], 1e-4))})
    assert (
        CandidateBounds(hopeless, CATALOG).bounds_of(unit).reason.startswith("code: served alone, 0% of the requests")
    )
    choices = {"lora": [{"max_loras": 1}, {"max_loras": 3}]}
    assert asked.size is not None
    slots = asked.size.model_validate(asked.size.model_dump(exclude_unset=True) | choices)
    assert [one.pool["lora"]["max_loras"] for one in units(asked, slots, CATALOG)] == [1, 3]
    alone = with_one_service(asked.model_copy(update={"service": "code"}))
    (unit,) = units(alone, alone.size, CATALOG) if alone.size is not None else ()
    assert (alone.services, alone.model, "services" in unit.pool) == ((), "llama3.2-3b", False)


def _within(one: Service, ttft_s: float) -> Service:
    return one.model_copy(update={"slo": Slo(ttft_s=ttft_s)})


def tenants(**more: Any) -> Scenario:
    """Two tenants whose requests are alike, at two and one a second."""
    workload = service("chat")["workload"] | {"tenants": [{"name": "web", "share": 2}, {"name": "batch", "share": 1}]}
    workload["arrivals"] = {"process": "poisson", "rate_rps": 3.0}
    own = {name: value for name, value in POOL.items() if name != "services"}
    rent = {"acquisition": "rent", "quotes": {"rtx-4090": 0.4}}
    fleets = [{"name": "f", "pools": [own], "cost": rent}]
    data = {"name": "t", "workload": workload, "slo": {"ttft_s": 0.5}, "horizon_s": 10, "fleets": fleets}
    return Scenario.model_validate(data | more)


@pytest.mark.slow
def test_a_tenant_grows_while_the_others_hold_theirs(tmp_path: Path) -> None:
    asked = tenants(tenant="batch")
    axis = LoadAxis.of(asked)
    assert (axis.start, axis.raised) == (1.0, "batch")
    for load in (0.5, 1.0, 6.0):
        at = at_point(asked, axis.overrides(load)).workload
        assert at.mean_rate_rps() == pytest.approx(2.0 + load)
        shares = {one.name: one.share for one in at.tenants}
        assert (2.0 + load) * shares["web"] / sum(shares.values()) == pytest.approx(2.0)
    ledgers = CandidateLedgers(asked, CATALOG, tmp_path, ProcessPool(1), found(6.0))
    assert ledgers.cost(ledgers.candidates[0], 4.0).output_tokens_per_h == pytest.approx(3600 * 20 * (2 + 4))
    # their requests are alike, so what both carry together does not depend on whose they are
    everyone, alone = (
        capacities(each, CATALOG, tmp_path / each.name, ProcessPool(1), 0.2)[0].mean
        for each in (tenants(name="e"), asked)
    )
    assert alone == pytest.approx(everyone - 2.0, rel=0.25)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"tenant": "batcj"}, "there is no tenant 'batcj'; did you mean batch?"),
        ({"tenant": "batch", "workload": service("chat")["workload"]}, "'batch': the workload has no tenants"),
    ],
)
def test_a_tenant_that_is_not_there_is_refused(more: dict[str, Any], message: str) -> None:
    assert next(one.message for one in service_workload_issues(tenants(**more))).endswith(message)
