"""Services that share pools: together in the same batches, several models on the same cards, and who pays for what."""

from collections import Counter
from functools import lru_cache
from math import isnan
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.case.result import CaseResult, price_case, results_by_service
from sim.case.run import run_case
from sim.catalogue.catalog import load_catalog
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case, cases
from sim.study.capacity import capacities
from sim.study.execution.cores import ProcessPool
from sim.study.execution.store import read_case, save_case
from sim.study.metrics.case_metrics import CaseMetrics, is_billed, measure, with_bill
from sim.study.metrics.metric import MeasuredRun
from sim.study.reprice import measured
from sim.yamlio import dump

STEP = {"model": "affine", "base_s": 0.02, "per_token_s": 1e-4, "per_context_token_s": 1e-6}
LENGTHS = {name: {"distribution": "geometric", "mean": 40, "max": 120} for name in ("prompt", "output")}
BATCHING = {
    **{"policy": "vllm", "num_gpu_blocks": 60, "max_num_seqs": 6, "max_num_batched_tokens": 64},
    **{"max_model_len": 1200, "enable_prefix_caching": True},
}
SESSIONS = {"turns": {"distribution": "fixed", "value": 3}, "think_s": {"distribution": "fixed", "value": 0.4}}
TIERS = [{"name": "host", "capacity_gb": 0.01, "read_bytes_per_s": 1e9}]
RENT = {"acquisition": "rent", "quotes": {"rtx-4090": 0.4, "h100-80gb-sxm": 2.5}}
SUMS = ("requests", "completed", "rejected", "output_tokens", "total_tokens", "preemptions")


def service(name: str, rate_rps: float = 4.0, **more: Any) -> dict[str, Any]:
    sessions = {"sessions": SESSIONS} if more.pop("talks", False) else {}
    tenants = {"tenants": [{"name": "x", "share": 1}, {"name": "y", "share": 2}]} if more.pop("shared", False) else {}
    arrivals = {"process": "poisson", "rate_rps": rate_rps}
    return {"name": name, "workload": {"arrivals": arrivals, "lengths": LENGTHS} | sessions | tenants} | more


def scenario(services: list[dict[str, Any]], pools: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "name": "s",
        "services": services,
        "horizon_s": 12,
        "warmup_s": 2,
        "fleets": [{"name": "f", "pools": pools, "cost": RENT}],
    } | more


def pool(*names: str, **more: Any) -> dict[str, Any]:
    served = {"service": names[0]} if len(names) == 1 else {"services": list(names)}
    batching = BATCHING | more.pop("batching", {})
    return {**served, "gpu": "rtx-4090", "steptime": STEP, "batching": batching} | more


@lru_cache(maxsize=1)
def catalog() -> Any:
    return load_catalog()


def run(data: dict[str, Any]) -> CaseResult:
    loaded = Scenario.model_validate(data)
    found = run_case(loaded, next(iter(cases(loaded))), catalog())
    assert isinstance(found, CaseResult)
    return found


@st.composite
def fleets(draw: st.DrawFn) -> dict[str, Any]:
    """Two or three services, some with sessions, tenants, limits and weights; shared pools, tiers, own pools beside;
    clients that ask again, or replicas that break down.
    """
    names = ["chat", "batch", "code"][: draw(st.integers(2, 3))]
    services = [
        service(
            name,
            draw(st.sampled_from([1.0, 6.0])),
            talks=draw(st.booleans()),
            shared=draw(st.booleans()),
            weight=draw(st.sampled_from([1.0, 3.0])),
            priority=draw(st.sampled_from([None, 1])),
            rate_limit=draw(st.sampled_from([None, {"requests_per_s": 2.0, "burst": 2}])),
        )
        for name in names
    ]
    shared = names if draw(st.booleans()) else names[:2]
    scheduling = {"scheduling": draw(st.sampled_from(["fcfs", "fair", "priority"]))}
    tiers = {"kv_tiers": TIERS, "kv_bytes_per_token": 1e5} if len(names) == 3 and draw(st.booleans()) else {}
    pools = [pool(*shared, replicas=draw(st.integers(1, 2)), batching=scheduling)]
    pools += [pool(names[-1], **tiers)] if shared != names or draw(st.booleans()) else []
    routing = {"policy": draw(st.sampled_from(["least_outstanding", "round_robin", "prefix_score"]))}
    data = scenario(services, pools, seed=draw(st.integers(0, 99)))
    data["fleets"][0]["routing"] = routing
    if draw(st.booleans()):
        data["client"] = {"timeout_s": 2.0, "attempts": 2}
    elif draw(st.booleans()):
        pools[0]["failures"] = {"replica": {"mtbf_h": 0.002, "repair_h": 0.0005}}
    return data


@pytest.mark.slow
@given(data=fleets())
@settings(max_examples=6, deadline=None)
def test_the_services_sum_to_the_fleet_and_every_request_ends_once(data: dict[str, Any]) -> None:
    services_sum_to_the_fleet(run(data))


def services_sum_to_the_fleet(result: CaseResult) -> None:
    whole, parts = measure(result), results_by_service(result)
    assert result.ledger is not None
    figures = [measure(part) for part in parts.values()]
    for name in SUMS:
        assert sum(one[name] for one in figures) == whole[name], name
    bills = [part.ledger for part in parts.values()]
    assert sum(bill.total_nano_usd for bill in bills if bill is not None) == result.ledger.total_nano_usd
    for name in ("gpus", "it_power_w_mean", "energy_kwh", "gpu_power_w_mean"):
        assert sum(one[name] for one in figures) == pytest.approx(whole[name], rel=1e-9), name
    phases: Counter[str] = Counter()
    for one in bills:
        phases.update(one.by_phase() if one is not None else {})
    assert phases == Counter(result.ledger.by_phase())
    requests = result.log.requests
    assert len({request.index for request in requests}) == len(requests)
    for request in requests:
        ends = (request.rejected, not isnan(request.finished_s), request.given_up, request.status == "unfinished")
        assert sum(ends) == 1
        if request.replica >= 0:
            assert request.service in result.plan.pools[result.log.pool_of_replica[request.replica]].served


def split(*pools: dict[str, Any], services: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A fleet whose prompts of 16 tokens and more are computed on replicas of their own."""
    data = scenario(services, [one | {"kv_bytes_per_token": 1e5} for one in pools], **more)
    data["fleets"][0]["kv_transfer"] = {"bytes_per_s": 2e8, "min_prompt_tokens": 16}
    return data


@pytest.mark.slow
def test_services_share_prompts_answers_and_their_bill_where_pools_have_roles() -> None:
    chat, batch = service("chat", 3.0, talks=True), service("batch", 2.0)
    pools = [pool("chat", "batch", role="prefill"), pool("chat", role="decode"), pool("batch", "chat", role="decode")]
    result = run(split(*pools, services=[chat, batch], warmup_s=0))
    services_sum_to_the_fleet(result)
    requests, pool_of = result.log.requests, result.log.pool_of_replica
    moved = [one for one in requests if one.prefill_replica >= 0]
    assert {pool_of[one.prefill_replica] for one in moved} == {0}
    assert {(one.service, pool_of[one.replica]) for one in moved} == {("chat", 1), ("chat", 2), ("batch", 2)}
    assert all(one.kv_transfer_s >= one.prompt_tokens * 1e5 / 2e8 - 1e-9 for one in moved)
    whole = [one for one in requests if one.prefill_replica < 0 and pool_of[one.replica] > 0]
    assert {one.prompt_tokens < 16 for one in whole} == {True}
    for name, own in results_by_service(result).items():
        mine = [one for one in requests if one.service == name]
        done = sum(one.output_tokens for one in mine if one.finished_s <= 12)
        assert sum(meters.output_tokens for meters in own.log.meters) == pytest.approx(done, rel=0.05)


@pytest.mark.slow
def test_a_service_with_roles_of_its_own_is_as_it_would_be_alone() -> None:
    chat, code = service("chat", 3.0), service("code", 2.0)
    own = [pool("chat", role="prefill"), pool("chat", role="decode")]
    both = run(split(pool("code"), *own, services=[code, chat]))
    alone = run(split(*own, services=[chat]))
    times = [
        [(one.kv_transfer_s, one.finished_s) for one in each.log.requests if one.service == "chat"]
        for each in (both, alone)
    ]
    assert repr(times[0]) == repr(times[1])
    assert both.log.kv_sent_bytes == {1: pytest.approx(alone.log.kv_sent_bytes[0])}
    whole, by_itself = measure(both), measure(alone)
    for name in ("kv_port_busy_fraction", "kv_transfer_s_p50", "kv_transfer_s_p95"):
        assert whole.services["chat"][name] == whole[name] == pytest.approx(by_itself.services["chat"][name])
        assert whole.services["code"][name] is None
    assert {one.prefill_replica for one in both.log.requests if one.service == "chat"} == {-1, 1}
    assert {one.prefill_replica for one in both.log.requests if one.service == "code"} == {-1}


@pytest.mark.slow
def test_requests_of_a_service_do_not_depend_on_the_sharing_services() -> None:
    chat = service("chat", talks=True)
    together = run(scenario([chat, service("batch", 1.0, talks=True)], [pool("chat", "batch")]))
    alone = run(scenario([chat], [pool("chat")]))
    first = {str(number) for number in range(9)}
    said = [
        sorted((r.session, r.turn, r.prompt_tokens, r.output_tokens) for r in one.log.requests if r.session in first)
        for one in (results_by_service(together)["chat"], alone)
    ]
    assert len(said[0]) == 27
    assert said[0] == said[1]
    assert not [r for r in together.log.requests if r.turn == 1 and r.cached_tokens], "what another service was told"


@pytest.mark.slow
def test_a_noisy_neighbour_waits_where_shares_are_fair_and_is_refused_where_it_has_a_limit() -> None:
    chat, noisy = service("chat", 1.0), service("batch", 30.0)

    def p95_s(*services: dict[str, Any], scheduling: str = "fcfs") -> dict[str, CaseMetrics]:
        both = pool("chat", "batch", batching={"scheduling": scheduling})
        return dict(measure(run(scenario(list(services), [both]))).services)

    fcfs, fair = p95_s(chat, noisy), p95_s(chat, noisy, scheduling="fair")
    limited = p95_s(chat, noisy | {"rate_limit": {"requests_per_s": 1.0}})
    first = p95_s(chat, noisy | {"priority": 1}, scheduling="priority")
    waits = [found["chat"]["ttft_s_p95"] for found in (fcfs, fair, limited, first)]
    assert max(waits[1:]) < 0.5 * waits[0]
    assert limited["batch"]["rejected"] > 200
    assert fcfs["batch"]["rejected"] == 0


@pytest.mark.slow
def test_a_service_that_shares_a_pool_has_the_capacity_that_the_others_leave(tmp_path: Path) -> None:
    slo = {"slo": {"ttft_s": 1.0}}
    data = scenario([service("chat", 2.0, **slo), service("batch", 1.0, **slo)], [pool("chat", "batch")], horizon_s=8)
    file = tmp_path / "s.yaml"
    file.write_text(dump(data | {"warmup_s": 1}))

    def capacity(*sets: str) -> float:
        loaded = load(file, sets, catalog=catalog())
        (found,) = capacities(loaded, catalog(), tmp_path / "-".join(sets), ProcessPool(1), 0.2)
        return found.mean

    chat, both = capacity("service=chat"), capacity()
    assert 2.0 * both <= chat < 3.0 * both  # what batch does not take, and less than both together


CARD = {"gpu": "h100-80gb-sxm", "batching": {"policy": "vllm"}}
MODELS = [
    service("chat", 2.0, model="llama3.2-1b"),
    service("mail", 2.0, model="llama3.2-1b"),
    service("code", 2.0, model="llama3.2-3b"),
]
RESIDENT = CARD | {"services": ["chat", "mail", "code"], "sharing": {"models": "resident"}}
SWAPPED = RESIDENT | {"sharing": {"models": "swapped", "max_awake_s": 1}, "cold_start": {"sleep_level": 1}}


@pytest.fixture(scope="module", params=[RESIDENT, SWAPPED | {"replicas": 2}], ids=["resident", "swapped"])
def shared_card(request: pytest.FixtureRequest) -> CaseResult:
    return run(scenario(MODELS, [request.param]))


@pytest.mark.slow
def test_models_share_a_card_and_its_bill(shared_card: CaseResult) -> None:
    whole, parts = measure(shared_card), results_by_service(shared_card)
    assert whole["rejected"] == 0
    assert whole["completed"] == whole["requests"] > 50
    figures = {name: measure(part) for name, part in parts.items()}
    assert sum(one["output_tokens"] for one in figures.values()) == whole["output_tokens"]
    assert sum(one["gpus"] for one in figures.values()) == pytest.approx(whole["gpus"], rel=1e-12)
    bills = [part.ledger.total_nano_usd for part in parts.values() if part.ledger is not None]
    assert shared_card.ledger is not None
    assert sum(bills) == shared_card.ledger.total_nano_usd
    for meters in shared_card.log.meters:
        assert meters.busy_s <= 10.0 + 1e-9
    assert all(one["kv_used_peak_fraction"] <= 1 for one in (whole, *figures.values()))


def test_memory_is_divided_where_models_are_resident_and_not_where_they_sleep(shared_card: CaseResult) -> None:
    (own,) = shared_card.plan.pools
    assert [one.served for one in own.models] == [("chat", "mail"), ("code",)]
    used = [one.memory.usable_bytes for one in own.models if one.memory is not None]
    card = own.models[0].memory.total_bytes if own.models[0].memory is not None else 0.0
    share = sum(used) if own.sharing is not None and own.sharing.models == "resident" else max(used)
    assert 0.8 * card < share < 0.95 * card
    assert all(one.batching.num_gpu_blocks for one in own.models)


def test_a_finished_run_is_billed_anew_alike(shared_card: CaseResult, tmp_path: Path) -> None:
    metrics = measure(shared_card)
    save_case(tmp_path / "case", Case("f", {}, {}, 0), MeasuredRun(shared_card), metrics, True, {})
    stored = read_case(tmp_path / "case")
    again = with_bill(stored.metrics, price_case(*measured(shared_card.plan, stored)))
    sides = [
        {name: {key: one.figures[key] for key in one.figures if is_billed(key)} for name, one in side.services.items()}
        for side in (again, metrics)
    ]
    assert sides[0] == sides[1]


@pytest.mark.slow
def test_services_share_slots_for_adapters_and_each_asks_for_its_own() -> None:
    adapted = [
        one | {"workload": one["workload"] | {"adapters": {"weights": {name: 1, "sql": 2}, "base_share": 0.2}}}
        for one, name in zip(MODELS[:2], ("web", "post"), strict=True)
    ]
    fair = CARD | {"batching": {"policy": "vllm", "scheduling": "fair"}, "lora": {"max_loras": 1, "max_cpu_loras": 3}}
    shared = run(scenario(adapted, [fair | {"services": ["chat", "mail"]}]))
    services_sum_to_the_fleet(shared)
    slots = sorted((one.started_s, one.finished_s, one.adapter) for one in shared.log.requests if one.adapter)
    assert {name for *_, name in slots} == {"web", "post", "sql"}
    # one slot: an adapter comes when the last request of the one before it has ended
    for place, (start, _, name) in enumerate(slots):
        assert all(end <= start + 0.1 for _, end, other in slots[:place] if other != name)
    own = [fair | {"service": "mail"}, CARD | {"services": ["chat", "code"], "sharing": {"models": "resident"}}]
    apart, alone = run(scenario([MODELS[0], adapted[1], MODELS[2]], own)), run(scenario([adapted[1]], own[:1]))
    asked = [
        [(one.adapter, one.finished_s) for one in each.log.requests if one.service == "mail"] for each in (apart, alone)
    ]
    assert asked[0] == asked[1]
    together = [one.adapter for one in shared.log.requests if one.service == "mail"]
    assert together == [name for name, _ in asked[0]]


BROKEN = {"replica": {"mtbf_h": 1, "repair_h": 1}}
MISNAMED = {"models": "resident", "gpu_memory_utilization": {"chat": 0.7, "coed": 0.4}}


@pytest.mark.parametrize(
    ("own", "more", "message"),
    [
        (CARD | {"services": ["chat", "chta", "code"]}, {}, "there is no service 'chta'; did you mean chat?"),
        (CARD | {"services": ["chat", "code"], "service": "mail"}, {}, "conflicts with services: remove one"),
        (CARD | {"services": ["chat", "mail", "code"]}, {}, "sharing: is missing: its services run several models"),
        (RESIDENT | {"services": ["chat", "mail"]}, {}, "all of its services run one model: remove it"),
        (SWAPPED | {"cold_start": {}}, {}, "swapped models sleep: set sleep_level: 1 or 2"),
        (
            RESIDENT | {"pipeline_parallel_size": 2},
            {},
            "stages cannot share a GPU in turns with another model: must be 1",
        ),
        (RESIDENT | {"sharing": MISNAMED}, {}, "there is no service 'coed' in this pool; did you mean code?"),
        (RESIDENT, {"service": "caht"}, "service: there is no service 'caht'; did you mean chat?"),
        (
            RESIDENT | {"batching": {"policy": "prefill_first", "overlap_schedule": True}},
            {},
            "must be off together with another",
        ),
        (RESIDENT | {"failures": BROKEN}, {}, "failures: cannot be combined with services that share the pool"),
        (RESIDENT | {"lora": {"max_loras": 2}}, {}, "lora: cannot be combined with services that share the pool"),
        (RESIDENT | {"role": "prefill"}, {}, "role: cannot be combined with several models: they take turns on a GPU"),
        (
            CARD | {"services": ["chat", "mail"], "role": "prefill"},
            {},
            "chat: prefill needs another pool with role: decode or both",
        ),
        (
            CARD | {"service": "chat"},
            {},
            "weight: applies among services that share a pool, and this service shares none",
        ),
    ],
)
def test_issues_of_shared_pools(own: dict[str, Any], more: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    served = own.get("services", ["chat"])
    chosen = [one for one in MODELS if one["name"] in served]
    weight = {"weight": 2} if "services" not in own else {}
    file.write_text(dump(scenario([chosen[0] | weight, *chosen[1:]], [own], **more)))
    with pytest.raises(ScenarioErrors) as caught:
        load(file, catalog=catalog())
    assert any(message in str(error) for error in caught.value.errors), [str(one) for one in caught.value.errors]


@pytest.mark.parametrize("engine", ["sglang-0.5", "llama.cpp"])
def test_other_engines_take_turns_too(engine: str) -> None:
    own = RESIDENT | {"engine": engine, "batching": {"max_num_seqs": 8, "max_model_len": 2048}}
    result = run(scenario(MODELS[1:], [own | {"services": ["mail", "code"]}], horizon_s=4))
    assert {request.status for request in result.log.requests} == {"finished"}
