"""Random fleets with conversations, tenants, adapters, KV tiers, cache-aware routing and failures at once."""

from math import isnan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.catalogue.catalog import load_catalog
from sim.fleet.fleet import RunningFleet
from sim.scenario.resolving.case import resolve
from sim.scenario.schema import Scenario
from sim.scenario.sweep import cases

CATALOG = load_catalog()
INDEX = {"index": {"kind": "exact", "delay_s": 0.05}}
ROUTERS = [{"policy": "adapter_affinity"}, {"policy": "session_affinity"}, {"policy": "prefix_score"} | INDEX]
TIER = {"name": "host", "capacity_gb": 1, "read_bytes_per_s": 2e10, "latency_s": 0.001, "write": "through"}
FAILURES = {"replica": {"mtbf_h": 0.002, "repair_h": 0.0005}, "detection_s": 0.5}
TENANTS = [
    {"name": "own", "share": 1, "adapter": "sql"},
    {"name": "few", "rate_limit": {"requests_per_s": 1, "burst": 2}},
]


@pytest.mark.slow
@given(
    data=st.fixed_dictionaries(
        {
            "seed": st.integers(0, 1000),
            "routing": st.sampled_from(ROUTERS),
            "slots": st.integers(1, 4),
            "blocks": st.sampled_from([60, 4000]),
            "tiers": st.sampled_from([{}, {"kv_tiers": [TIER]}]),
            "failures": st.sampled_from([{}, {"failures": FAILURES, "cold_start": {"total_s": 1.0}}]),
            "client": st.sampled_from([{}, {"client": {"timeout_s": 2.0, "attempts": 2, "backoff_s": 0.1}}]),
        }
    )
)
@settings(max_examples=8, deadline=None)
def test_every_request_ends_once_and_every_place_is_free_again(data) -> None:
    lengths = {name: {"distribution": "geometric", "mean": mean} for name, mean in (("prompt", 80), ("output", 20))}
    pool = {
        "gpu": "l40s", "replicas": 2, "lora": {"max_loras": data["slots"], "max_cpu_loras": 5},
        "batching": {"policy": "vllm", "num_gpu_blocks": data["blocks"], "max_model_len": 900},
    }  # fmt: skip
    scenario = Scenario.model_validate(
        {
            "name": "s", "model": "llama3.1-8b", "seed": data["seed"], "horizon_s": 6, "drain_limit_s": 10_000,
            "workload": {
                "arrivals": {"process": "poisson", "rate_rps": 6}, "lengths": lengths, "tenants": TENANTS,
                "sessions": {
                    "turns": {"distribution": "geometric", "mean": 3}, "system_prompt_tokens": 64,
                    "think_s": {"distribution": "fixed", "value": 0.5},
                },
                "adapters": {"count": 6, "base_share": 0.2},
            },
            "fleets": [{"name": "a", "routing": data["routing"], "pools": [pool | data["tiers"] | data["failures"]]}],
        } | data["client"]
    )  # fmt: skip
    fleet = RunningFleet(resolve(scenario, cases(scenario)[0], CATALOG))
    log = fleet.run()
    assert len({one.index for one in log.requests}) == len(log.requests) > 0
    for one in log.requests:
        assert one.status in ("finished", "timed_out", "lost", "rejected")
        assert isnan(one.finished_s) == (one.status != "finished")
        assert one.tenant != "own" or one.adapter == "sql"
        assert 0 <= one.cached_tokens < one.prompt_tokens
    for replica in fleet._replicas:
        if replica.engine.under_way():  # with somebody who has left
            replica.engine.advance()
        assert all(pool.free == pool.usable for pool in replica.engine.caches())
        assert all(slots.running == 0 for slots in replica.engine.adapters())
