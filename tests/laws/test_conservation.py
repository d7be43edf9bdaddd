"""Conservation of requests, tokens, blocks, time, energy and money."""

from collections import Counter
from math import fsum

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.units import JOULES_PER_KWH, NANO_PER_USD

LENGTHS = {
    "prompt": {"distribution": "lognormal", "mean": 300, "sigma": 0.8, "max": 3000},
    "output": {"distribution": "lognormal", "mean": 100, "sigma": 0.8, "max": 800},
}
POOL = {
    "gpu": "rtx-4090",
    "replicas": 2,
    "server": "workstation-2x4090",
    "batching": {"policy": "vllm", "max_num_seqs": 32, "max_num_batched_tokens": 1024},
}
FLEET = {"name": "boxes", "model": "qwen2.5-7b", "pools": [POOL], "cost": {"acquisition": "buy"}}
BOUGHT = {
    "site": {"electricity_usd_per_kwh": 0.2, "pue": 1.4, "hosting": "none"},
    "finance": {"method": "annuity", "discount_rate": 0.08, "life_years": 4, "residual_fraction": 0.2},
}


def scenario(arrivals: dict, **more) -> dict:
    base = {
        "workload": {"arrivals": arrivals, "lengths": LENGTHS},
        "horizon_s": 120,
        "warmup_s": 20,
        "meter_interval_s": 30,
    }
    return base | BOUGHT | {"fleets": [FLEET]} | more


ARRIVALS = [
    {"process": "poisson", "rate_rps": 4.0},
    {"process": "gamma", "rate_rps": 2.0, "cv": 3.0},
    {"process": "constant", "rate_rps": 3.0},
    {"process": "burst", "num_requests": 150},
    {"process": "closed_loop", "concurrency": 12, "think_s": 0.5},
    {"process": "closed_loop", "concurrency": 70},
]
ROUTING = ["round_robin", "random", "least_outstanding", "power_of_two"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arrivals", "routing"),
    [(arrivals, ROUTING[i % 4]) for i, arrivals in enumerate(ARRIVALS)],
    ids=lambda one: one if isinstance(one, str) else one["process"],
)
def test_every_request_ends_and_every_token_is_metered(simulate, arrivals: dict, routing: str) -> None:
    data = scenario(arrivals, horizon_s=30, drain_limit_s=100_000)
    data["fleets"] = [FLEET | {"routing": {"policy": routing}}]
    (result,) = simulate(data)
    requests = result.log.requests
    assert requests
    for request in requests:
        assert request.rejected or request.arrived_s <= request.started_s < request.first_token_s <= request.finished_s
    done = [r for r in requests if not r.rejected]
    intervals = result.log.intervals
    assert sum(i.output_tokens for i in intervals) == sum(r.output_tokens for r in done)
    assert sum(i.prompt_tokens + i.cached_tokens for i in intervals) == sum(r.prompt_tokens for r in done)


@pytest.mark.slow
@pytest.mark.parametrize("arrivals", ARRIVALS, ids=lambda a: a["process"])
def test_intervals_tile_time_and_energy_is_power_times_time(simulate, arrivals: dict) -> None:
    (result,) = simulate(scenario(arrivals, horizon_s=50))
    for replica in (0, 1):
        rows = [i for i in result.log.intervals if i.replica == replica]
        assert [row.start_s for row in rows] == [0.0, *(row.end_s for row in rows[:-1])]
        assert rows[-1].end_s == result.log.end_s
        power = result.plan.pools[0].power
        for row in rows:
            duration = row.end_s - row.start_s
            assert row.gpu_s == pytest.approx(duration)
            assert -1e-9 <= row.recompute_s + row.prefill_s <= row.busy_s + 1e-9
            assert row.busy_s <= duration + 1e-9
            watts = row.gpu_energy_j / duration
            assert power.gpu.idle_w - 1e-6 <= watts <= power.gpu.limit_w + 1e-6
            assert row.server_energy_j == pytest.approx(
                (row.gpu_energy_j + power.base_w * duration) / power.psu_efficiency
            )
            assert row.server_energy_j <= row.peak_w * duration + 1e-6
            decode_s = row.busy_s - row.prefill_s - row.recompute_s
            decode_j = row.server_energy_j - row.prefill_energy_j - row.recompute_energy_j - row.idle_energy_j
            idle_w = (power.gpu.idle_w + power.base_w) / power.psu_efficiency
            assert row.idle_energy_j == pytest.approx(idle_w * (duration - row.busy_s), abs=1e-6)
            if min(decode_s, row.prefill_s) > 0.1:
                # prompts keep the tensor cores busy, decodes wait for memory
                assert row.prefill_energy_j / row.prefill_s > decode_j / decode_s > idle_w


@pytest.mark.slow
@given(rate=st.floats(0.5, 8), seed=st.integers(0, 1000))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_ledger_rows_sum_exactly_and_energy_is_billed_once(simulate, rate: float, seed: int) -> None:
    (result,) = simulate(scenario({"process": "poisson", "rate_rps": rate}, seed=seed, horizon_s=60))
    ledger = result.ledger
    assert sum(ledger.by_component().values()) == ledger.total_nano_usd == sum(ledger.by_phase().values())
    inside = [i for i in result.log.intervals if 20 <= i.start_s < 60]
    kwh = fsum(i.server_energy_j for i in inside) / JOULES_PER_KWH * 1.4
    assert ledger.by_component()["energy"] / NANO_PER_USD == pytest.approx(kwh * 0.2, rel=1e-6)


@pytest.mark.slow
def test_little_law_running_requests(simulate) -> None:
    """The integral of sequences in the step is the sum of the times from admission to the last token."""
    (result,) = simulate(scenario({"process": "poisson", "rate_rps": 5.0}, warmup_s=0, drain_limit_s=100_000))
    assert sum(r.preemptions for r in result.log.requests) == 0
    [pool] = result.plan.pools
    left_s = {
        r: r.finished_s - pool.request_overhead_s - pool.tokenising_s * r.prompt_tokens for r in result.log.requests
    }
    inside = fsum(end_s - r.started_s for r, end_s in left_s.items() if end_s <= 120)
    # those cut by the horizon count up to it
    cut = fsum(120 - r.started_s for r, end_s in left_s.items() if end_s > 120 > r.started_s)
    assert fsum(m.sequence_s for m in result.log.meters) == pytest.approx(inside + cut, rel=1e-9)
    for meters in result.log.meters:
        assert 0 < meters.prefill_s < meters.mixed_s < meters.busy_s, "prompts are a part of the steps that have any"
        assert 0 < meters.mixed_steps < meters.steps
        assert 0 < meters.mixed_decode_s < meters.mixed_sequence_s < meters.sequence_s


@pytest.mark.slow
def test_little_law_requests_in_the_system(simulate) -> None:
    """Mean number in the system = arrival rate x mean time in it, here over a long steady run."""
    data = scenario({"process": "poisson", "rate_rps": 4.0}, horizon_s=500, warmup_s=100, meter_interval_s=500)
    (result,) = simulate(data)
    start, end = result.window_s
    cohort = [r for r in result.log.requests if start <= r.arrived_s < end]
    inside_s = fsum(max(0.0, min(r.finished_s, end) - max(r.arrived_s, start)) for r in result.log.requests)
    number = inside_s / (end - start)
    law = len(cohort) / (end - start) * fsum(r.finished_s - r.arrived_s for r in cohort) / len(cohort)
    assert number == pytest.approx(law, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(("pauses", "off"), [("random", 0.03), ("constant", 0.01)])
def test_interactive_response_time_law(simulate, pauses: str, off: float) -> None:
    """Clients = throughput x (time to the last token + pause)."""
    arrivals = {"process": "closed_loop", "concurrency": 60, "think_s": 20.0, "pauses": pauses}
    (result,) = simulate(scenario(arrivals, horizon_s=1200, warmup_s=0, meter_interval_s=1200))
    requests = result.log.requests
    done = [r for r in requests if r.finished_s <= 1200]
    answer_s = fsum(r.finished_s - r.arrived_s for r in done) / len(done)
    assert len(done) / 1200 * (answer_s + 20) == pytest.approx(60, rel=off)
    # people come one by one and stay so, a benchmark's clients come together
    each_second = Counter(int(r.arrived_s) for r in requests)
    mean = len(requests) / 1200
    spread = fsum((each_second[second] - mean) ** 2 for second in range(1200)) / 1200 / mean
    assert spread < 1.2 if pauses == "random" else spread > 2


@pytest.mark.slow
def test_more_replicas_are_never_slower_on_the_same_requests(simulate) -> None:
    data = scenario({"process": "poisson", "rate_rps": 6.0}, sweep={"fleets.boxes.pools.0.replicas": [2, 4, 8]})
    means = []
    for result in simulate(data):
        requests = result.log.requests
        means.append(fsum(r.finished_s - r.arrived_s for r in requests) / len(requests))
    assert means == sorted(means, reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("horizon_s", [120, None])
def test_meters_are_read_at_the_full_hours_of_the_clock(simulate, horizon_s: float | None) -> None:
    """Readings at full hours keep every reading within one tariff."""
    arrivals = {"process": "poisson", "rate_rps": 2.0, "num_requests": 240}
    tariff = {"hourly_usd_per_kwh": [0.1] * 9 + [0.4] * 15}
    site = {"electricity": tariff, "pue": 1.0, "hosting": "none"}
    more = {"horizon_s": horizon_s, "warmup_s": 0, "meter_interval_s": 25, "starts_at": "2026-07-01T08:59:20"}
    (result,) = simulate(scenario(arrivals, site=site, **more))
    edges = [i.start_s for i in result.log.intervals if i.replica == 0]
    assert edges[:6] == [0.0, 25.0, 40.0, 50.0, 75.0, 100.0]
    rows = [row for row in result.ledger.rows if row.component == "energy"]
    assert {(row.unit_price_usd, row.start_s < 40) for row in rows} == {(0.1, True), (0.4, False)}
    kwh = fsum(i.server_energy_j for i in result.log.intervals if i.start_s < result.window_s[1]) / JOULES_PER_KWH
    assert fsum(row.quantity for row in rows) == pytest.approx(kwh)


POLICIES = [
    {"policy": "vllm", "max_num_seqs": 32, "max_num_batched_tokens": 1024, "num_gpu_blocks": 300},
    {"policy": "prefill_first", "max_num_seqs": 32, "num_gpu_blocks": 300},
    {"policy": "reserve", "max_num_seqs": 32, "num_gpu_blocks": 600},
    {"policy": "static", "max_num_seqs": 8},
]


@pytest.mark.slow
@pytest.mark.parametrize("batching", POLICIES, ids=lambda b: b["policy"])
def test_phases_and_requests_take_all_energy_and_busy_time_under_any_policy(simulate, batching: dict) -> None:
    fleet = FLEET | {"pools": [POOL | {"batching": batching}]}
    arrivals = {"process": "poisson", "rate_rps": 8.0}
    (result,) = simulate(scenario(arrivals, fleets=[fleet], cost_per_request=True, horizon_s=40, warmup_s=23))
    meters, requests = result.log.meters, result.log.requests
    for phase in ("prefill_s", "recompute_s"):
        shared = fsum(getattr(r.busy, phase) for r in requests)
        assert shared == pytest.approx(fsum(getattr(m, phase) for m in meters), rel=1e-9)
    decode_s = fsum(m.busy_s - m.prefill_s - m.recompute_s for m in meters)
    assert fsum(r.busy.decode_s for r in requests) == pytest.approx(decode_s, rel=1e-9)
    assert min(min(r.busy.prefill_s, r.busy.recompute_s, r.busy.decode_s) for r in requests) > -1e-12
    power = result.plan.pools[0].power
    idle_w = (power.gpu.idle_w + power.base_w) / power.psu_efficiency
    for row in result.log.intervals:
        decode_j = row.server_energy_j - row.prefill_energy_j - row.recompute_energy_j - row.idle_energy_j
        decode_s = row.busy_s - row.prefill_s - row.recompute_s
        assert decode_j >= idle_w * decode_s - 1e-6
        assert row.prefill_energy_j >= idle_w * row.prefill_s - 1e-6
    ledger = result.ledger
    assert sum(ledger.by_component().values()) == ledger.total_nano_usd == sum(ledger.by_phase().values())


@pytest.mark.slow
@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"pipeline_parallel_size": 2, "server": "workstation-4x4090"},
        {"data_parallel_size": 2, "server": "workstation-4x4090"},
    ],
    ids=["plain", "pipeline", "ranks"],
)
@given(rate=st.floats(1, 12), seed=st.integers(0, 1000), blocks=st.integers(300, 900))
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_requests_share_all_busy_time_of_the_window(simulate, layout: dict, rate: float, seed: int, blocks: int):
    """Times of prompts, recomputed tokens and decodes sum to the meters; blocks are scarce, so requests are
    preempted."""
    batching = POOL["batching"] | {"num_gpu_blocks": blocks}
    fleet = FLEET | {"pools": [POOL | {"replicas": 1, "batching": batching} | layout]}
    arrivals = {"process": "poisson", "rate_rps": rate}
    times = {"horizon_s": 40, "warmup_s": 23}
    (result,) = simulate(scenario(arrivals, seed=seed, fleets=[fleet], cost_per_request=True, **times))
    meters, requests = result.log.meters, result.log.requests
    decode_s = fsum(m.busy_s - m.prefill_s - m.recompute_s for m in meters)
    assert fsum(r.busy.prefill_s for r in requests) == pytest.approx(fsum(m.prefill_s for m in meters), rel=1e-9)
    assert fsum(r.busy.recompute_s for r in requests) == pytest.approx(fsum(m.recompute_s for m in meters), rel=1e-9)
    assert fsum(r.busy.decode_s for r in requests) == pytest.approx(decode_s, rel=1e-9)
    assert min(min(r.busy.prefill_s, r.busy.recompute_s, r.busy.decode_s) for r in requests) > -1e-12
