"""Decodes in one call with prompts: against measured kernels, and laws."""

from dataclasses import replace

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from sim.catalogue.catalog import load_catalog
from sim.records import Batch
from sim.scenario.reading.layers import as_document
from sim.scenario.reading.load import load
from sim.scenario.resolving.case import resolve
from sim.scenario.sweep import cases
from sim.steptime.attention import longest_chunk, one_call
from sim.steptime.coefficients import load_coefficients
from sim.steptime.roofline import RooflineStepTime

CATALOG = load_catalog()
PACKED = [  # where decodes keep a call of their own
    ("llama3.1-8b", "h100-80gb-sxm", "vllm-0.14", {}),
    ("llama3.1-8b", "b200-180gb-sxm", "vllm-0.14", {}),
    ("llama3.1-8b", "rtx-4090", "sglang-0.5", {}),
    ("llama3.1-8b", "rtx-4090", "vllm-0.6", {}),
    ("llama3.1-8b", "rtx-4090", "vllm-0.14", {"kv_cache_dtype": "fp8"}),
    ("gpt-oss-20b", "rtx-4090", "vllm-0.14", {}),
]
MEASURED = [  # LLMServingSim, vLLM 0.19: decodes of so many tokens with a chunk, microseconds a layer for all of it
    ("qwen3-30b-a3b", "rtx-pro-6000", 128, 1024, 16, 645),
    ("qwen3-30b-a3b", "rtx-pro-6000", 32, 4096, 16, 542),
    ("qwen3-30b-a3b", "rtx-pro-6000", 128, 4096, 16, 4092),
    ("qwen3-30b-a3b", "rtx-pro-6000", 1, 1024, 16, 28),
    ("llama3.1-8b", "rtx-pro-6000", 128, 1024, 256, 699),
    ("llama3.1-8b", "rtx-4090", 32, 1024, 16, 304),
    ("llama3.1-8b", "rtx-4090", 128, 4096, 16, 9043),
    ("llama3.1-8b", "rtx-4090", 128, 1024, 2048, 1975),
]


def steptime(model: str, gpu: str, engine: str, **pool: str | int) -> RooflineStepTime:
    """Return the step time of one replica on one card."""
    lengths = {side: {"distribution": "fixed", "value": 128} for side in ("prompt", "output")}
    scenario = {
        "name": "one call",
        "model": model,
        "workload": {"arrivals": {"process": "burst", "num_requests": 1}, "lengths": lengths},
        "fleets": [{"name": "one", "pools": [{"gpu": gpu, "engine": engine, "batching": {"policy": "vllm"}, **pool}]}],
    }
    loaded = load(as_document(scenario), catalog=CATALOG)
    plan = resolve(loaded, cases(loaded)[0], CATALOG)
    assert not plan.infeasible
    return plan.pools[0].steptime


def attention_s(steptime: RooflineStepTime, sequences: int, context: int, chunk: int) -> float:
    batch = Batch(
        decode_seqs=sequences,
        kv_tokens=sequences * context,
        prefill_seqs=int(chunk > 0),
        prefill_tokens=chunk,
        prefill_attention_pairs=chunk * (chunk + 1) // 2,
    )
    return steptime.breakdown(batch)["attention"]


@pytest.mark.parametrize(("model", "gpu", "sequences", "context", "chunk", "measured_us"), MEASURED)
def test_within_a_quarter_of_measured_kernels(model, gpu, sequences, context, chunk, measured_us) -> None:
    """The law has no parameter of its own that these were fitted to but the time of idle blocks."""
    layers = CATALOG.model(model).layers
    found_s = attention_s(STEPTIMES[model, gpu], sequences, context, chunk) / layers
    assert found_s * 1e6 == pytest.approx(measured_us, rel=0.25)


STEPTIMES = {key: steptime(*key, "vllm-0.14") for key in {(model, gpu) for model, gpu, *_ in MEASURED}}


@pytest.mark.parametrize(("model", "gpu", "engine", "pool"), PACKED)
def test_elsewhere_prompts_and_decodes_add(model, gpu, engine, pool) -> None:
    running = steptime(model, gpu, engine, **pool)
    apart_s = attention_s(running, 64, 2000, 0) + attention_s(running, 0, 0, 512)
    assert attention_s(running, 64, 2000, 512) == pytest.approx(apart_s)


def test_where_kv_heads_are_repeated_a_rank_has_fewer_query_heads_for_each() -> None:
    """Qwen3-30B-A3B has 32 query heads for 4 KV heads, on each of eight ranks 4 for one."""
    groups = [steptime("qwen3-30b-a3b", "rtx-4090", "vllm-0.14", tensor_parallel_size=n)._one_call for n in (4, 8)]
    assert [(one.group, one.blocks) for one in groups] == [(8, 8), (4, 4)]


def test_chosen_tokens_are_read_by_another_kernel() -> None:
    dense = STEPTIMES["llama3.1-8b", "rtx-4090"].inputs
    assert one_call(dense) is not None
    assert one_call(replace(dense, model=CATALOG.model("minimax-m3"))) is None


@pytest.mark.slow
@drawn(st.integers(1, 512), st.integers(1, 20_000), st.integers(1, 4096))
def test_one_call_is_never_faster_than_two(sequences, context, chunk) -> None:
    for running in STEPTIMES.values():
        apart_s = attention_s(running, sequences, context, 0) + attention_s(running, 0, 0, chunk)
        assert attention_s(running, sequences, context, chunk) >= apart_s * (1 - 1e-9)


@drawn(st.integers(1, 256), st.integers(1, 20_000), st.integers(1, 4096))
def test_more_of_any_quantity_is_slower(sequences, context, chunk) -> None:
    for running in STEPTIMES.values():
        alone_s = attention_s(running, sequences, context, chunk)
        for more in (
            (sequences + 1, context, chunk),
            (sequences, context + 16, chunk),
            (sequences, context, chunk + 16),
        ):
            assert attention_s(running, *more) >= alone_s * (1 - 1e-9)


def prompts(chunks, **decodes) -> Batch:
    """Return a batch of prompts, given as (new tokens, earlier ones), beside *decodes*."""
    return Batch(
        prefill_seqs=len(chunks),
        prefill_tokens=sum(new for new, _ in chunks),
        prefill_context_tokens=sum(earlier for _, earlier in chunks),
        prefill_attention_pairs=sum(new * earlier + new * (new + 1) // 2 for new, earlier in chunks),
        **decodes,
    )


CHUNK = st.tuples(st.integers(1, 4096), st.integers(0, 20_000))


@pytest.mark.slow
@drawn(CHUNK, st.integers(1, 8), st.lists(CHUNK, max_size=8))
def test_the_longest_chunk_by_sums_is_no_longer_than_the_longest(chunk, times, others) -> None:
    """The two are equal where all chunks are alike."""
    assert longest_chunk(prompts([chunk] * times)) == pytest.approx(chunk[0])
    every = [chunk, *others]
    mean, longest = sum(new for new, _ in every) / len(every), max(new for new, _ in every)
    assert mean * (1 - 1e-9) <= longest_chunk(prompts(every)) <= longest * (1 + 1e-9)


@pytest.mark.slow
@drawn(st.integers(1, 256), st.integers(1, 20_000), st.integers(512, 4096), st.integers(1, 64))
def test_a_short_prompt_beside_a_long_one_makes_a_step_no_shorter(sequences, context, long, short) -> None:
    for running in STEPTIMES.values():
        one, both = (
            running.breakdown(prompts(chunks, decode_seqs=sequences, kv_tokens=sequences * context))["attention"]
            for chunks in ([(long, 0)], [(long, 0), (short, 0)])
        )
        assert both >= one * 0.99


def test_decodes_read_a_cache_as_fast_as_was_measured_of_card_and_engine():
    """A decode's byte takes that much longer than a prompt's."""
    stated = load_coefficients(CATALOG.root / "steptime.yaml").attention.cache_reading_factor(
        "sglang-0.5", CATALOG.gpu("a100-80gb-sxm")
    )
    a100, ada = (steptime("llama3.1-8b", gpu, "sglang-0.5") for gpu in ("a100-80gb-sxm", "l40s"))
    assert a100._decode_s / a100._read_s == pytest.approx(stated.value, rel=0.01)
    assert ada._decode_s / ada._read_s == pytest.approx(1, rel=0.05)
