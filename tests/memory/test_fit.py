"""Laws of the memory fit, and what it refuses."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.catalogue.catalog import Catalog, load_catalog
from sim.catalogue.engine import default_share
from sim.catalogue.model import Model
from sim.memory.fit import DraftMemory, MemoryFit, fit, suggest_changes
from sim.memory.weights import ReplicaLayout, check_parallel

Fit = Callable[..., MemoryFit]

CATALOG = load_catalog()
A100, VLLM = CATALOG.gpu("a100-80gb-sxm"), CATALOG.engine("vllm-0.11")
DENSE = CATALOG.model("llama3.1-70b")
FORMATS = [CATALOG.quantization(name) for name in ("bf16", "gptq-int8", "int8-w8a8", "fp8", "gptq-int4", "int4-wo")]


@pytest.mark.slow
@given(tp=st.sampled_from([1, 2, 4, 8]), pp=st.integers(1, 8))
def test_fewer_bits_weigh_less(tp: int, pp: int) -> None:
    sizes = [
        fit(A100, DENSE, form, VLLM, tensor_parallel_size=tp, pipeline_parallel_size=pp).weights_bytes
        for form in sorted(FORMATS, key=lambda form: form.bits_per_weight.value)
    ]
    assert sizes == sorted(sizes)


@pytest.mark.slow
@given(
    form=st.sampled_from(FORMATS),
    sizes=st.sampled_from([(1, 2), (2, 4), (4, 8), (8, 16)]),
    seats=st.integers(1, 1024),
    tokens=st.integers(16, 16384),
)
def test_fewer_ranks_never_have_more_blocks(form: object, sizes: tuple[int, int], seats: int, tokens: int) -> None:
    few, many = (
        fit(A100, DENSE, form, VLLM, tensor_parallel_size=n, max_num_seqs=seats, max_num_batched_tokens=tokens)  # type: ignore[arg-type]
        for n in sizes
    )
    assert few.num_gpu_blocks <= many.num_gpu_blocks


@pytest.mark.slow
@given(seats=st.integers(1, 2048), tokens=st.integers(16, 32768), share=st.floats(0.5, 0.98))
def test_parts_add_up_to_the_usable_memory(seats: int, tokens: int, share: float) -> None:
    limits = {"max_num_seqs": seats, "max_num_batched_tokens": tokens}
    result = fit(A100, DENSE, FORMATS[0], VLLM, tensor_parallel_size=4, gpu_memory_utilization=share, **limits)
    library = VLLM.memory.library_bytes.value if VLLM.memory else 0.0
    parts = result.weights_bytes + result.activations_bytes + result.comms_bytes + library + result.kv_bytes
    assert parts == pytest.approx(result.usable_bytes)
    assert result.usable_bytes <= share * result.total_bytes


def test_fullest_stage_limits_the_cache(fit_ids: Fit) -> None:
    """Of DeepSeek-V3's 61 layers the third of four stages has 16, all with experts; the weights are in 8 bits."""
    result = fit_ids("b300-288gb-sxm", "deepseek-v3", "none", pipeline_parallel_size=4)
    attention = 7168 * (1536 + 576) + 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168
    layer = 257 * 3 * 7168 * 2048 + attention
    assert result.weights_bytes == pytest.approx(16 * layer, rel=0.01)
    assert result.block_bytes == 16 * 2 * 576 * 16


def test_first_stage_has_all_embeddings_of_the_layers(fit_ids: Fit) -> None:
    """Gemma 4 E2B's 35 layers look up 256 numbers each; its last 20 layers have no cache of their own."""
    result = fit_ids("rtx-3070", "gemma4-e2b", "none", pipeline_parallel_size=4)
    tables = 2 * 262144 * (35 * 256 + 1536)
    heads, others = 2 * 1536 * (2048 + 512 + 2048), 2 * (3 * 1536 * 6144 + 2 * 1536 * 256)
    rotary = 2 * 131072 * 256  # one of nine layers attends to all tokens, with heads twice as wide
    assert result.weights_bytes == pytest.approx(tables + 10 * heads + 9 * others + rotary, rel=1e-4)


def test_refusal_names_the_fullest_stage_where_all_together_have_room(fit_ids: Fit) -> None:
    reason = fit_ids("b300-288gb-sxm", "deepseek-v4.1-flash", "mxfp4-fp8", pipeline_parallel_size=3).reason
    assert reason.endswith(
        "for mxfp4 experts, fp8 beside them weights per GPU of the fullest pipeline stage, 257.7 are left"
    )


def test_kv_heads_are_replicated_beyond_their_number(fit_ids: Fit) -> None:
    blocks = [
        fit_ids(
            "h200-141gb-sxm", "qwen3-30b-a3b", "none", tensor_parallel_size=n, enable_expert_parallel=True
        ).block_bytes
        for n in (1, 2, 4, 8)
    ]
    assert blocks == [blocks[0], blocks[0] / 2, blocks[0] / 4, blocks[0] / 4]


def test_latent_kv_is_whole_on_every_rank(fit_ids: Fit) -> None:
    eight, sixteen = (fit_ids("h200-141gb-sxm", "deepseek-v3", "none", tensor_parallel_size=n) for n in (8, 16))
    assert eight.block_bytes == sixteen.block_bytes == 16 * 2 * 576 * 61


def test_experts_spread_over_data_parallel_ranks_only_with_expert_parallelism(fit_ids: Fit) -> None:
    copies = fit_ids("b200-180gb-sxm", "qwen3-30b-a3b", "none", data_parallel_size=4)
    spread = fit_ids("b200-180gb-sxm", "qwen3-30b-a3b", "none", data_parallel_size=4, enable_expert_parallel=True)
    assert copies.weights_bytes - spread.weights_bytes == pytest.approx(28_991_029_248 * 2 * 3 / 4)


def test_window_layers_cost_less_in_long_contexts(fit_ids: Fit) -> None:
    short, long = (fit_ids("h100-80gb-sxm", "gpt-oss-20b", "none", context_tokens=n) for n in (128, 12_800))
    assert short.block_bytes == 16 * 49_152
    assert long.block_bytes == pytest.approx(16 * 49_152 * (0.5 + 0.5 * 0.01))


def test_smaller_cache_numbers_give_more_tokens(fit_ids: Fit) -> None:
    full, half = (fit_ids("rtx-4090", "llama3.1-8b", "none", kv_cache_dtype=kind) for kind in ("auto", "fp8"))
    assert half.kv_tokens == pytest.approx(2 * full.kv_tokens, abs=32)


def test_request_longer_than_the_cache_is_refused_before_the_start(fit_ids: Fit) -> None:
    result = fit_ids("rtx-4090", "llama3.1-8b", "none", max_model_len=131_072)
    assert not result.fits
    assert result.num_gpu_blocks == 0
    assert "one request of 131072 tokens" in result.reason
    assert fit_ids("rtx-4090", "llama3.1-8b", "none").max_model_len < 131_072


@pytest.mark.parametrize(
    ("model", "quantization", "layout", "message"),
    [
        ("qwen2-72b-instruct", "none", ReplicaLayout(6), "tensor_parallel_size 6 does not divide 64 attention heads"),
        ("qwen2.5-7b", "none", ReplicaLayout(14), "neither divides nor is a multiple of 4 KV heads"),
        (
            "qwen3-30b-a3b",
            "fp8-block",
            ReplicaLayout(4),
            "cuts the expert intermediate size 768 of qwen3-30b-a3b into 192",
        ),
        ("llama2-7b", "gptq-int4", ReplicaLayout(4), "not a multiple of the group of 128 in gptq-int4"),
        ("llama3.1-8b", "none", ReplicaLayout(1, 33), "pipeline_parallel_size 33 exceeds the 32 layers"),
        ("llama3.1-8b", "none", ReplicaLayout(1, 1, 2, enable_expert_parallel=True), "has no experts"),
    ],
)
def test_impossible_layout_is_named(
    catalog: Catalog, model: str, quantization: str, layout: ReplicaLayout, message: str
) -> None:
    problems = check_parallel(catalog.model(model), catalog.quantization(quantization), layout)
    assert any(message in problem for problem in problems)


def test_possible_layouts_pass(catalog: Catalog) -> None:
    qwen = catalog.model("qwen2-72b-instruct")
    for tp in (1, 2, 4, 8):
        assert check_parallel(qwen, catalog.quantization("gptq-int4"), ReplicaLayout(tp)) == []
    moe = catalog.model("qwen3-30b-a3b")
    assert check_parallel(moe, catalog.quantization("fp8-block"), ReplicaLayout(4, enable_expert_parallel=True)) == []


def test_refusal_names_the_shortfall_and_alternatives(catalog: Catalog) -> None:
    gpu, model, none = catalog.gpu("rtx-4090"), catalog.model("qwen2-72b-instruct"), catalog.quantization("none")
    result = fit(gpu, model, none, VLLM, tensor_parallel_size=4)
    assert result.reason.startswith("needs 145.5 GB for")
    assert "4x 24 GB leave 8" in result.reason
    candidates = [catalog.quantization(name) for name in ("gptq-int4", "awq-int4", "int8-w8a8", "bf16")]
    advice = suggest_changes(gpu, model, none, VLLM, candidates, tensor_parallel_size=4)
    assert advice.startswith("fits at int8-w8a8, gptq-int4, or on 8x")


def test_engine_of_unknown_memory_is_refused(catalog: Catalog) -> None:
    gpu, model, none = catalog.gpu("rtx-4090"), catalog.model("llama3.1-8b"), catalog.quantization("none")
    unknown = VLLM.model_copy(update={"name": "LM Studio", "memory": None})
    assert "LM Studio uses GPU memory is not known" in fit(gpu, model, none, unknown).reason


@pytest.mark.parametrize(
    ("release", "gpu", "share"),
    [("0.5.9", "h100-80gb-sxm", 0.835), ("0.5.9", "a100-40gb-sxm", 0.833), ("0.5.2", "h100-80gb-sxm", 0.874)],
)
def test_sglang_keeps_memory_for_chunks_and_graphs_free(release, gpu, share):
    catalog = load_catalog()
    engine = catalog.engine(f"sglang-{release}")
    assert engine.memory is not None
    assert default_share(engine, engine.memory, catalog.gpu(gpu)) == pytest.approx(share, abs=0.003)


def test_experts_take_the_tokens_of_a_long_step_in_turn() -> None:
    engine, mixture = CATALOG.engine("vllm-0.6"), CATALOG.model("deepseek-v3")

    def activations(tokens: int, model: Model = mixture) -> float:
        return fit(
            A100, model, FORMATS[0], engine, tensor_parallel_size=8, max_num_seqs=1, max_num_batched_tokens=tokens
        ).activations_bytes

    def per_token(low: int, high: int, model: Model = mixture) -> float:
        return (activations(high, model) - activations(low, model)) / (high - low)

    assert per_token(65536, 131072) < 0.4 * per_token(16384, 32768)
    assert per_token(65536, 131072, DENSE) == pytest.approx(per_token(16384, 32768, DENSE))


def test_ranks_that_exchange_nothing_keep_no_memory_for_it() -> None:
    engine, mixture = CATALOG.engine("vllm-0.11"), CATALOG.model("mixtral-8x7b")
    apart = fit(A100, mixture, FORMATS[0], engine, tensor_parallel_size=1, data_parallel_size=2)
    together = fit(A100, mixture, FORMATS[0], engine, data_parallel_size=2, enable_expert_parallel=True)
    assert apart.comms_bytes == 0.0 < together.comms_bytes


def test_draft_heads_are_one_more_layer_and_a_draft_model_is_whole() -> None:
    # q, k, v, o and the three of the feed-forward block at 16 bit, with a table of 131,072 positions in all layers;
    # keys and values of 8 heads of 128 numbers
    form, model = CATALOG.quantization("bf16"), CATALOG.model("llama3.1-8b")
    layer = 2 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14_336)
    one, two = (ReplicaLayout(tensor_parallel_size=tp) for tp in (1, 2))
    heads = DraftMemory.of_heads(model, form, one, "auto")
    positions = 2 * 131_072 * 128
    assert heads.weights_bytes == pytest.approx(layer + positions / 32, rel=1e-4)
    assert heads.kv_bytes_per_token == 2 * 2 * 8 * 128
    whole = DraftMemory.of_model(model, form, one, "auto")
    assert whole.weights_bytes == pytest.approx(32 * layer + positions + 2 * 2 * 128_256 * 4096, rel=1e-4)
    assert whole.kv_bytes_per_token == 32 * heads.kv_bytes_per_token
    half = DraftMemory.of_model(model, form, two, "auto")
    assert half.weights_bytes == pytest.approx((whole.weights_bytes + positions) / 2, rel=1e-4)
    assert half.kv_bytes_per_token == whole.kv_bytes_per_token / 2


def test_pipeline_stages_of_one_rank_split_no_heads() -> None:
    # 6 attention heads do not divide by 4, but a rank has them all
    odd = DENSE.model_copy(update={"heads": 6, "kv_heads": 3})
    form = CATALOG.quantization("bf16")
    assert check_parallel(odd, form, ReplicaLayout(pipeline_parallel_size=4)) == []
    for heads, ranks in ((6, 4), (5, 2)):
        model = odd.model_copy(update={"heads": heads})
        [problem] = check_parallel(model, form, ReplicaLayout(tensor_parallel_size=ranks))[:1]
        assert f"tensor_parallel_size {ranks} does not divide {heads} attention heads" in problem


@pytest.mark.parametrize(("stages", "possible"), [(80, True), (81, False)])
def test_every_stage_has_a_layer(stages: int, possible: bool) -> None:
    found = check_parallel(DENSE, CATALOG.quantization("bf16"), ReplicaLayout(pipeline_parallel_size=stages))
    assert (found == []) is possible
