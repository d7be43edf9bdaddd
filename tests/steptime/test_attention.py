"""States and indexers, against bytes and FLOP worked out by hand from the models' configs."""

from dataclasses import replace

import pytest

from sim.catalogue.catalog import load_catalog
from sim.catalogue.model import (
    Matrix,
    entries_per_token,
    index_key_bytes,
    index_keys_per_token,
    kv_bytes_per_token,
    matrices,
    params_total,
    state_bytes,
)
from sim.memory.kv_cache import KvLayout
from sim.records import Batch
from sim.steptime.roofline import RooflineStepTime

CATALOG = load_catalog()
H200 = ("h200-141gb-sxm", "nvlink4-nvswitch")
BYTES_PER_S, FLOP_PER_S = 4.8e12, 989.5e12


def decode(sequences, context, drafts=0):
    seen = min(context, 2048)
    return Batch(
        decode_seqs=sequences,
        kv_tokens=sequences * context,
        windowed_kv_tokens=sequences * seen,
        windowed_growing_seqs=sequences if context < 2048 else 0,
        sampled_seqs=sequences,
        draft_tokens=drafts,
    )


def prompt(tokens, chunks=1):
    pairs = chunks * tokens * (tokens + 1) // 2
    return Batch(
        prefill_seqs=chunks, prefill_tokens=chunks * tokens, prefill_attention_pairs=pairs, sampled_seqs=chunks
    )


def attention_s(steptime, batch):
    return steptime.breakdown(batch)["attention"]


def weight(model, name) -> Matrix:
    return next(one for one in matrices(CATALOG.model(model)) if one.name == name)


def test_what_a_sequence_leaves_in_memory():
    gated, chosen, shared, blocks = (
        CATALOG.model(name) for name in ("qwen3.5-35b-a3b", "deepseek-v3.2", "glm-5.2", "minimax-m3")
    )
    assert state_bytes(gated) == 32 * 128 * 128 * 4 + (2 * 16 * 128 + 32 * 128) * 3 * 2
    assert kv_bytes_per_token(gated) == 10 * 2 * 2 * 256 * 2
    assert index_key_bytes(chosen) == 128 + 4  # fp8, and a scale
    assert kv_bytes_per_token(chosen) == 61 * (576 * 2 + 132)
    assert kv_bytes_per_token(shared) == 78 * 576 * 2 + 21 * 132
    assert kv_bytes_per_token(blocks) == 60 * 2 * 4 * 128 * 2 + 57 * 128 * 2
    # fp8_ds_mla of vLLM: 512 in 8 bit with 4 scales, 64 in 16 bit; of V4 448, 8 and 64
    assert kv_bytes_per_token(chosen, 1) == 61 * (512 + 4 * 4 + 64 * 2 + 132)
    entries = 21 / 4 + 20 / 128
    assert kv_bytes_per_token(CATALOG.model("deepseek-v4-flash"), 1) == entries * (448 + 8 + 64 * 2) + 21 * 132 / 4


def test_layers_that_see_all_tokens_may_have_heads_of_their_own():
    model = CATALOG.model("gemma4-31b")  # 16 KV heads of 256 in layers with a window, 4 of 512 in the others
    assert kv_bytes_per_token(model) == (50 * 2 * 16 * 256 + 10 * 2 * 4 * 512) * 2
    keys = [one for one in matrices(model) if one.name in ("kv_proj", "k_proj")]
    assert [(one.count, one.outputs, one.kv_heads) for one in keys] == [(50, 2 * 16 * 256, 16), (10, 4 * 512, 4)]


def test_kimi_delta_attention_keeps_a_state_a_head_and_gates_every_channel():
    model = CATALOG.model("kimi-k3")
    assert state_bytes(model) == 96 * 128 * 128 * 4 + 3 * 96 * 128 * 3 * 2
    assert kv_bytes_per_token(model) == (93 - 69) * 576 * 2
    assert weight("kimi-k3", "linear_qkvz_proj").params == 69 * 7168 * 4 * 96 * 128
    decay = [weight("kimi-k3", f"linear_decay_{half}_proj").params for half in "ab"]
    assert decay == [69 * 7168 * 128, 69 * 128 * 96 * 128]
    experts = [weight("kimi-k3", "latent_down_proj"), weight("kimi-k3", "latent_up_proj")]
    assert [(one.inputs, one.outputs, one.count) for one in experts] == [(7168, 3584, 92), (3584, 7168, 92)]
    assert KvLayout.of(model, 16).block_size == 16 * 354  # 6,512,640 bytes in blocks of 18,432
    assert KvLayout.of(model, 16, tensor_parallel_size=8).block_size == 16 * 45  # latents are whole on every rank


def test_compressed_entries_and_their_indexer_are_counted_once_for_several_tokens():
    model = CATALOG.model("deepseek-v4-flash")
    assert kv_bytes_per_token(model) == 512 * 2 * (21 / 4 + 20 / 128) + 21 * (128 + 4) / 4
    assert params_total(model) == pytest.approx(284e9, rel=0.002)
    assert weight("deepseek-v4-flash", "fine_compressor").params == 21 * 4096 * 2 * 2 * 512
    assert weight("deepseek-v4-flash", "o_a_proj").params == 43 * 64 * 512 * 1024


def test_entries_that_layers_share_are_stored_once():
    name = "deepseek-v4.1-flash"
    model, stored = CATALOG.model(name), 3 / 2 + 1  # caches of layers 2, 8 and 14 for two tokens, of 20 for one
    assert entries_per_token(model) == stored
    assert kv_bytes_per_token(model) == stored * (512 * 2 + 128 + 4)
    assert index_keys_per_token(model) == (stored, 3 / 2 + 5)  # eight layers score: three of two tokens, five of one
    assert weight(name, "fine_compressor").params == 3 * 5120 * 2 * 512
    assert weight(name, "ngram_proj").params == 2 * 6144 * 25600
    experts = sum(one.params for one in matrices(model) if one.role == "expert")
    assert experts * 4.25 / 8 == pytest.approx(289e9, rel=0.005)  # published: 289 and 203 GB
    assert weight(name, "embed_ngrams").params * 8.25 / 8 == pytest.approx(203e9, rel=0.005)
    alone = model.compressed.model_copy(update={"fine_sources": 18, "whole_sources": 20})
    assert entries_per_token(model.model_copy(update={"compressed": alone})) == 18 / 2 + 20


@pytest.mark.slow
def test_a_compressed_context_is_read_by_entries(build):
    steptime = build("deepseek-v4-flash", *H200, tp=8)
    values, rate = steptime.values, BYTES_PER_S * steptime.values["memory_efficiency"].value
    assert steptime.window == 4 * 512
    key_s = 21 * (132 + 2 * 4) / 4 / rate * values["index_read_time_factor"].value
    entry_s = 512 * 2 / min(rate / 0.55, BYTES_PER_S)  # one for 128 tokens in 20 layers
    long_s = attention_s(steptime, decode(1, 400_000)) - attention_s(steptime, decode(1, 300_000))
    assert long_s == pytest.approx(100_000 * (key_s + 20 / 128 * entry_s), rel=0.02)
    near_s = attention_s(steptime, decode(1, 0))
    streams_s = 43 * values["hyper_connection_s"].value
    passes_s = 43 * values["hyper_connection_passes"].value * 4 * 4096 * 2 / BYTES_PER_S
    assert near_s == pytest.approx(43 * 128 * entry_s + streams_s + passes_s, rel=0.02)
    chosen_s = attention_s(steptime, decode(1, 2048)) - near_s - 2048 * (key_s + 20 / 128 * entry_s)
    assert chosen_s == pytest.approx(21 * 512 * entry_s, rel=0.02)


def test_indexers_have_weights():
    v32, m3 = (weight("deepseek-v3.2", "index_q_proj"), weight("minimax-m3", "index_q_proj"))
    assert (v32.inputs, v32.outputs, v32.split, v32.count) == (1536, 64 * 128, "none", 61)
    assert (m3.inputs, m3.outputs, m3.split, m3.count) == (6144, 4 * 128, "kv_heads", 57)
    assert weight("glm-5.2", "index_k_proj").params == 21 * 6144 * 128


def test_a_decoding_step_reads_and_writes_the_states(build):
    steptime = build("qwen3.5-35b-a3b", *H200)
    rate = BYTES_PER_S * steptime.values["memory_efficiency"].value
    once_s = 30 * (2**21 + 49152) / rate * steptime.values["state_time_factor"].value
    assert attention_s(steptime, decode(1, 0)) == pytest.approx(2 * once_s)
    assert attention_s(steptime, decode(64, 0)) == pytest.approx(64 * 2 * once_s)
    assert attention_s(steptime, decode(64, 0, drafts=3 * 64)) == pytest.approx(64 * (1 + 4) * once_s)
    halves = build("qwen3.5-35b-a3b", *H200, tp=2)
    assert attention_s(halves, decode(64, 0)) == pytest.approx(64 * once_s)


def test_mamba_keeps_a_state_a_head_and_the_inputs_of_its_convolution():
    nano, ultra = (CATALOG.model(f"nemotron-3-{size}") for size in ("nano", "ultra"))
    assert state_bytes(nano) == 64 * 64 * 128 * 4 + (64 * 64 + 2 * 8 * 128) * 3 * 2
    assert kv_bytes_per_token(nano) == 6 * 2 * 2 * 128 * 2
    ins, scalars = (weight("nemotron-3-nano", f"linear_{part}_proj") for part in ("qkvz", "scalars"))
    assert (ins.outputs, scalars.outputs, ins.count) == (2 * 64 * 64 + 2 * 8 * 128, 64, 23)
    assert weight("nemotron-3-nano", "up_proj").count == 23 * 128
    assert weight("nemotron-3-nano", "q_proj").count == 6
    assert weight("nemotron-h-56b", "down_proj").count == 54
    assert weight("nemotron-3-ultra", "latent_down_proj").params == 48 * 8192 * 2048
    assert [round(params_total(one) / 1e9, 1) for one in (nano, ultra)] == [31.6, 549.3]


def test_a_mamba_step_costs_by_the_state_and_not_by_the_context(build):
    steptime = build("nemotron-3-nano", *H200)
    rate = BYTES_PER_S * steptime.values["memory_efficiency"].value
    once_s = 23 * (64 * 64 * 128 * 4 + 6144 * 6) / rate * steptime.values["state_time_factor"].value
    assert attention_s(steptime, decode(1, 0)) == pytest.approx(2 * once_s)
    assert attention_s(steptime, decode(64, 0)) == pytest.approx(64 * 2 * once_s)
    cached_s = attention_s(steptime, decode(1, 2000)) - attention_s(steptime, decode(1, 1000))
    assert cached_s == pytest.approx(1000 * steptime._decode_s)  # of the six layers with heads alone
    heads = build("qwen3.5-35b-a3b", *H200)  # ten layers of the same heads' bytes
    assert steptime._read_s / heads._read_s == pytest.approx(6 * 2 * 128 / (10 * 2 * 256))
    flop = 2 * (64 * (2 * 128 * 64 + 128 * 64) + 8 * 128 * 128)
    scan_s = 23 * 2048 * flop / (FLOP_PER_S * steptime.values["scan_efficiency"].value)
    pairs_s = steptime._pair_s * 2048 * 2049 / 2
    assert attention_s(steptime, prompt(2048)) == pytest.approx(2 * once_s + scan_s + pairs_s)


def test_separate_blocks_are_each_summed_over_the_ranks_once(build):
    alone, two = (build("nemotron-3-nano", *H200, tp=ranks) for ranks in (1, 2))
    assert alone.breakdown(decode(8, 0))["link"] == 0
    one = two._allreduce.time_s(8 * 2688 * 2)
    assert two.breakdown(decode(8, 0))["link"] == pytest.approx(52 * one)


def test_a_prompt_is_scanned_through_the_states(build):
    steptime = build("qwen3.5-35b-a3b", *H200)
    flop = 30 * 32 * 2 * (3 * 128 * 128 + 64 * 5 * 128)  # a token, 30 layers of 32 value heads
    scan_s = flop / FLOP_PER_S / steptime.values["scan_efficiency"].value
    moved_s = attention_s(steptime, decode(1, 0))
    two, four = (attention_s(steptime, prompt(tokens)) for tokens in (2000, 4000))
    pairs_s = (two - 2000 * scan_s - moved_s) / (2000 * 2001)
    assert four == pytest.approx(4000 * scan_s + moved_s + 4000 * 4001 * pairs_s)
    assert attention_s(steptime, prompt(2000, 2)) == pytest.approx(2 * two)


def test_sparse_attention_reads_the_keys_of_all_tokens_and_the_latents_of_the_best(build):
    sparse, dense = build("deepseek-v3.2", *H200, "fp8", tp=8), build("deepseek-v3", *H200, "fp8", tp=8)
    assert sparse.window == 2048
    rate = BYTES_PER_S * sparse.values["memory_efficiency"].value
    key_s = 61 * (132 + 2 * 4) / rate * sparse.values["index_read_time_factor"].value
    long_s = attention_s(sparse, decode(1, 40_000))
    assert attention_s(sparse, decode(1, 50_000)) - long_s == pytest.approx(10_000 * key_s)
    assert sparse.leap(decode(8, 40_000)).growth_s == pytest.approx(8 * key_s)
    latents_s = attention_s(dense, decode(1, 2048))
    assert long_s == pytest.approx(40_000 * key_s + latents_s)
    assert long_s < 0.3 * attention_s(dense, decode(1, 40_000))


def test_kernel_that_processes_all_slots_is_as_slow_for_short_prompts(build, coefficients):
    def working_through_all(model):
        whole = coefficients.attention.sparse_arithmetic_efficiency.model_copy(update={"value": 1.0})
        attention = coefficients.attention.model_copy(update={"sparse_least_places": {model.inputs.engine.id: whole}})
        changed = coefficients.model_copy(update={"attention": attention})
        return RooflineStepTime(model.spec, replace(model.inputs, coefficients=changed))

    by_length = build("deepseek-v3.2", *H200, "fp8", tp=8)
    full, short, long = working_through_all(by_length), prompt(128), prompt(32_768)
    pair_s = 61 * 2 * 64 * (576 + 512) / FLOP_PER_S / full.values["sparse_arithmetic_efficiency"].value
    added_s = full.leap(short).first_s - by_length.leap(short).first_s
    assert added_s == pytest.approx(pair_s * (128 * 2048 - 128 * 129 // 2))
    assert full.leap(long).first_s == by_length.leap(long).first_s
    dense = build("deepseek-v3", *H200, "fp8", tp=8)
    assert working_through_all(dense).leap(short).first_s == dense.leap(short).first_s


def test_a_long_prompt_scores_every_pair_and_attends_to_the_best(build):
    sparse, tokens = build("deepseek-v3.2", *H200, "fp8", tp=8), 32_768
    pairs = tokens * (tokens + 1) // 2
    values = sparse.values
    scored_s = 2 * 64 * 128 / (2 * FLOP_PER_S) / values["index_arithmetic_efficiency"].value
    chosen_s = values["choice_bytes_per_pair"].value / BYTES_PER_S
    assert values["sparse_kernel_heads"].value == 64  # of the 16 that a rank has
    latents_s = 2 * 64 * (576 + 512) / FLOP_PER_S / values["sparse_arithmetic_efficiency"].value
    expected_s = 61 * (pairs * (scored_s + chosen_s) + tokens * 2048 * latents_s)
    assert attention_s(sparse, prompt(tokens)) == pytest.approx(expected_s, rel=1e-3)
