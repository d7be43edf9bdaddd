"""Facts of a plan: every value that its step times depend on, and no other."""

from dataclasses import replace

import pytest

from sim.catalogue.catalog import load_catalog
from sim.catalogue.value import Value
from sim.records import Batch
from sim.scenario.reading.layers import as_document
from sim.scenario.reading.load import load
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.resolved import CasePlan
from sim.scenario.sweep import cases
from sim.steptime.inputs import RooflineInputs
from sim.steptime.roofline import RooflineStepTime

CATALOG = load_catalog()
BATCHES = [
    Batch(decode_seqs=8, sampled_seqs=8, kv_tokens=80_000, standing_seqs=3),
    Batch(
        decode_seqs=100, sampled_seqs=101, kv_tokens=300_000, prefill_seqs=1, prefill_tokens=700,
        prefill_context_tokens=500, prefill_attention_pairs=500_000,
    ),
    Batch(prefill_seqs=1, prefill_tokens=20, prefill_attention_pairs=210, sampled_seqs=1),
]  # fmt: skip


def plan_of(model: str, gpu: str, engine: str, pool: dict[str, object]) -> CasePlan:
    lengths = {side: {"distribution": "fixed", "value": 128} for side in ("prompt", "output")}
    workload = {"arrivals": {"process": "burst", "num_requests": 1}, "lengths": lengths}
    pools = [{"gpu": gpu, "engine": engine, **pool}]
    data = {"name": "f", "model": model, "workload": workload, "fleets": [{"name": "one", "pools": pools}]}
    loaded = load(as_document(data), catalog=CATALOG)
    return resolve(loaded, cases(loaded)[0], CATALOG)


def times(steptime: RooflineStepTime, inputs: RooflineInputs) -> list[object]:
    spec, changed = steptime.spec, RooflineStepTime(steptime.spec, inputs)
    request_s = spec.request_overhead_s(inputs.engine, inputs.model, inputs.tensor_parallel_size, inputs.gpu)
    return [
        request_s,
        spec.tokenising_s(inputs.engine),
        spec.turn_s(inputs.engine),
        *(changed.leap(batch) for batch in BATCHES),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "gpu", "engine", "pool"), [
    ("llama3.1-8b", "rtx-4090", "vllm-0.14", {"kv_cache_dtype": "fp8"}),
    ("llama3.1-8b", "h100-80gb-sxm", "vllm-0.8", {}),
    ("llama3.1-8b", "mi300x", "vllm-0.14", {}),
    ("qwen3-30b-a3b", "a100-80gb-sxm", "sglang-0.5", {"tensor_parallel_size": 2}),
    ("llama3.1-8b", "h100-80gb-sxm", "vllm-0.14", {"steptime": {"model": "roofline", "in_process": True}}),
])  # fmt: skip
def test_facts_list_only_overheads_that_matter(model: str, gpu: str, engine: str, pool: dict[str, object]) -> None:
    plan = plan_of(model, gpu, engine, pool)
    steptime = plan.pools[0].steptime
    assert isinstance(steptime, RooflineStepTime)
    inputs, overheads = replace(steptime.inputs, graph_tokens=0), steptime.inputs.engine.overheads
    moving = set()
    for name in type(overheads).model_fields:
        value = getattr(overheads, name)
        if isinstance(value, Value):
            other = overheads.model_copy(update={name: value.model_copy(update={"value": 3 * value.value})})
            changed = replace(inputs, engine=inputs.engine.model_copy(update={"overheads": other}))
            moving |= {name} if times(steptime, changed) != times(steptime, inputs) else set()
    assert {fact.path.rsplit(".")[-1] for fact in plan.facts if ".overheads." in fact.path} == moving


@pytest.mark.parametrize(("gpu", "engine", "told"), [
    ("rtx-4090", "vllm-0.14", {"gpu.sm_count", "gpu.l2_bytes", "steptime.one_call_tile_rows"}),
    ("h100-80gb-sxm", "vllm-0.8", {"steptime.hopper_tile_tokens"}),
    ("h100-80gb-sxm", "vllm-0.11", set()),
])  # fmt: skip
def test_facts_list_kernels_only_where_they_run(gpu: str, engine: str, told: set[str]) -> None:
    named = {"gpu.sm_count", "gpu.l2_bytes", "steptime.one_call_tile_rows", "steptime.hopper_tile_tokens"}
    facts = plan_of("llama3.1-8b", gpu, engine, {}).facts
    assert {path for fact in facts if (path := ".".join(fact.path.split(".")[-2:])) in named} == told


@pytest.mark.parametrize(("model", "gpu", "engine", "rates"), [
    ("gpt-oss-20b", "b200-180gb-sxm", "sglang-0.5", {"fp16_flops", "fp4_flops", "fp8_flops"}),
    ("gpt-oss-20b", "b200-180gb-sxm", "vllm-0.14", {"fp16_flops", "fp4_flops"}),
    ("deepseek-v4-flash", "h200-141gb-sxm", "vllm-0.14", {"fp16_flops", "fp8_flops"}),
    ("gpt-oss-20b", "rtx-4090", "llama.cpp", {"fp16_flops", "int8_ops_per_s"}),
])  # fmt: skip
def test_facts_list_the_rates_of_all_kernels(model: str, gpu: str, engine: str, rates: set[str]) -> None:
    facts = plan_of(model, gpu, engine, {"tensor_parallel_size": 1 if model == "gpt-oss-20b" else 4}).facts
    assert {name for fact in facts if ".gpu." in fact.path and "_w" not in (name := fact.path.split(".")[-1])} - {
        "memory_bytes", "memory_bytes_per_s", "sm_count", "l2_bytes"
    } == rates  # fmt: skip
