"""LoRA adapters: who asks for which, what their slots take, what a swap costs, where the router sends them."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from small_scenario import planned as planned_of

from sim.catalogue.catalog import load_catalog
from sim.engine.lora import AdapterSlots
from sim.fleet.fleet import RunningFleet
from sim.records import Batch
from sim.rng import stream
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.resolving.resolved import CasePlan

CATALOG = load_catalog()
LLAMA = CATALOG.model("llama3.1-8b")
SCENARIO = """\
name: adapters
model: llama3.1-8b
workload: {trace: {path: t.csv, format: csv}, %s}
fleets:
  - name: a
    pools: [{gpu: l40s, batching: {policy: vllm, async_scheduling: false}%s}]
"""
TENANTS = "tenants: [{name: one, adapter: sql}, {name: two, adapter: mail}]"
TALK = ("0,64,1,one", "10,64,1,two", "20,64,1,one", "30,64,1,")
STREAMS = partial(stream, 1, 0)


def planned(folder: Path, workload: str = TENANTS, pool: str = ", lora: {max_loras: 1}", talk=TALK) -> CasePlan:
    (folder / "t.csv").write_text("\n".join(["arrival_s,prompt_tokens,output_tokens,tenant", *talk]) + "\n")
    return planned_of(folder, SCENARIO % (workload, pool))


def complaints(folder: Path, workload: str, pool: str) -> str:
    with pytest.raises(ScenarioErrors) as caught:
        planned(folder, workload, pool)
    return str(caught.value)


def test_slots_take_memory_from_the_kv_cache(tmp_path: Path) -> None:
    few, many = (planned(tmp_path, pool=f", lora: {{max_loras: {n}}}").pools[0].memory for n in (1, 9))
    assert few is not None
    assert many is not None
    assert many.weights_bytes - few.weights_bytes == pytest.approx(8 * 2 * 41_943_040)
    assert many.kv_bytes - few.kv_bytes == pytest.approx(-8 * 2 * 41_943_040)


def test_a_swap_costs_the_bytes_of_the_adapter_over_the_lanes_and_from_the_drive(tmp_path: Path) -> None:
    plan = planned(tmp_path, pool=", lora: {max_loras: 1, max_cpu_loras: 2, read_bytes_per_s: 1e9}")
    log = RunningFleet(plan).run()
    adapters = plan.pools[0].adapters
    assert adapters is not None
    stored = 2 * 41_943_040
    assert adapters.fetch_s == pytest.approx(stored / 1e9)
    assert adapters.swap_s == pytest.approx(stored / CATALOG.link("pcie4-x16").bulk_bytes_per_s.value)
    first, second, again, base = (one.first_token_s - one.arrived_s for one in log.requests)
    steps = plan.pools[0].steptime
    prompt = {"prefill_seqs": 1, "prefill_tokens": 64, "prefill_attention_pairs": 64 * 65 // 2, "sampled_seqs": 1}
    beside_s = steps.leap(Batch(adapters=1, adapted_tokens=64, **prompt)).first_s - steps.leap(Batch(**prompt)).first_s
    assert beside_s > 7 * 32 * 8e-6
    assert first - base == pytest.approx(adapters.fetch_s + adapters.swap_s + beside_s)
    assert second == pytest.approx(first)
    assert again - base == pytest.approx(adapters.swap_s + beside_s)  # host memory still has it
    assert [one.adapter for one in log.requests] == ["sql", "mail", "sql", ""]


def test_a_batch_has_at_most_as_many_adapters_as_slots_and_other_requests_go_first(tmp_path: Path) -> None:
    together = ("0,64,20,one", "0,64,20,two", "0,64,20,one", "0,64,20,")
    first, second, third, base = RunningFleet(planned(tmp_path, talk=together)).run().requests
    [pool] = planned(tmp_path).pools
    overhead_s = pool.request_overhead_s + 64 * pool.tokenising_s
    # the engine begins with the first while the API server reads the others
    assert first.started_s == 0
    assert third.started_s == base.started_s == pytest.approx(first.first_token_s - overhead_s)
    assert second.started_s == max(first.finished_s, third.finished_s) - overhead_s


def test_the_least_recently_used_slot_is_evicted_and_host_memory_keeps_more() -> None:
    slots = AdapterSlots(2, 3, swap_s=1.0, fetch_s=10.0)

    def visit(name: str) -> float:
        took_s = slots.load(name)
        slots.enter(name)
        slots.leave(name)
        return took_s

    assert [visit(name) for name in "abacbd"] == [11, 11, 0, 11, 1, 11]
    # the host has c, b and d; the GPU b and d
    assert [visit(name) for name in "cba"] == [1, 1, 11]
    assert (slots.swaps, slots.fetches, slots.running) == (8, 5, 0)
    slots.clear()
    assert visit("a") == 11


def test_a_running_request_keeps_its_adapter_slot() -> None:
    slots = AdapterSlots(1, 1, 1.0, 10.0)
    slots.load("a")
    slots.enter("a")
    assert slots.has_room("a")
    assert slots.has_room("")
    assert not slots.has_room("b")


@pytest.mark.parametrize(
    ("workload", "pool", "told"),
    [
        (TENANTS, "", "requests of the workload use adapters"),
        ("tenants: [{name: one}, {name: two}]", ", lora: {}", "has slots that no request uses"),
        (TENANTS, ", lora: {target_modules: [q_porj]}", "did you mean q_proj?"),
        (TENANTS, ", lora: {}, pipeline_parallel_size: 2", "no pipeline stages"),
        (TENANTS, ", lora: {max_loras: 3, max_cpu_loras: 2}", "must not be below max_loras"),
    ],
)
def test_conflicting_settings_are_refused(tmp_path: Path, workload: str, pool: str, told: str) -> None:
    assert told in complaints(tmp_path, workload, pool)


def test_only_tokens_with_an_adapter_are_multiplied_by_one(tmp_path: Path) -> None:
    steps = planned(tmp_path).pools[0].steptime
    alone, beside = (Batch(prefill_seqs=n, prefill_tokens=64 * n, sampled_seqs=n) for n in (1, 9))
    asked = {"adapters": 1, "adapted_tokens": 64}
    added = [steps.leap(replace(one, **asked)).first_s - steps.leap(one).first_s for one in (alone, beside)]
    assert added[0] == pytest.approx(added[1])
