"""Step time of training: laws, and one step worked by hand."""

from dataclasses import replace

import pytest

from sim.catalogue.catalog import load_catalog
from sim.catalogue.model import Matrix, Model, matrices
from sim.training.job import OptimizerStep, Parallel
from sim.training.memory import FrameworkMemory, memory
from sim.training.network import of_dimensions, of_model
from sim.training.steptime import (
    CAST_TRANSFERS,
    OPTIMIZER_BYTES,
    TrainingRates,
    reduce_s,
    step_time,
    step_work,
    tensor_exchange_s,
)

CATALOG = load_catalog()
GPU, LINK = CATALOG.gpu("a100-80gb-sxm"), CATALOG.link("nvlink3-nvswitch")
GPT = of_dimensions("gpt", {"layers": 24, "hidden": 4096, "heads": 32, "vocab": 51200})
RATES = TrainingRates(
    matrix_flop_per_s=200e12,
    plain_flop_per_s=200e12,
    expert_flop_per_s=200e12,
    bytes_per_s=1.6e12,
    exponent=2.5,
    attention_time_factor=1.0,
    eight_bit_attention_time_factor=0.5,
    recompute_share=1.0,
    expert_time_factor=1.0,
    stream_time_factor=1.0,
    keeps_scores=False,
    layer_s=0.0,
    step_s=0.0,
    exposed_share=0.0,
    tensor_exposed_share=1.0,
    expert_exposed_share=1.0,
    link_time_factor=1.0,
    network_efficiency=1.0,
)
JOB = OptimizerStep(GPU, LINK, GPT, Parallel(), micro_batch=4, micro_batches=8, sequence=2048)


def test_a_step_worked_by_hand() -> None:
    step = step_time(JOB, RATES)
    tokens = 4 * 2048 * 8
    layers = 24 * 12 * 4096**2
    head = 51200 * 4096
    matrix_s = 6 * (layers + head) * tokens / 200e12
    assert step.matrix_s == pytest.approx(matrix_s, rel=1e-3)  # reading the weights adds a little
    attention_s = 4 * 24 * 4096 * 1024 * 3.5 * tokens / 200e12
    assert step.attention_s == pytest.approx(attention_s)
    assert step.stream_s == pytest.approx((34 * 4096 * 24 + 2 * 51200) * 3 * tokens / 1.6e12)
    assert step.optimizer_s == pytest.approx(GPT.params * OPTIMIZER_BYTES / 1.6e12)
    assert step.tensor_exchange_s == step.bubble_s == step.data_exchange_s == 0
    assert step.step_s == pytest.approx(step.matrix_s + step.attention_s + step.stream_s + step.optimizer_s)


def test_a_llama_has_the_textbook_flop_of_a_token() -> None:
    llama = of_model(CATALOG.model("llama2-7b"))
    assert llama.forward_flop + llama.head_flop == pytest.approx(2 * (llama.params - 32000 * 4096), rel=1e-3)


def test_tables_of_which_rows_are_looked_up_are_held_but_not_read() -> None:
    network = of_model(CATALOG.model("gemma4-e2b"))
    assert network.lookup_params == 262144 * 35 * 256
    job = replace(JOB, network=network, micro_batch=1, sequence=1)
    bare = replace(network, params=network.params - network.lookup_params, lookup_params=0.0)
    assert step_time(job, RATES).matrix_s == step_time(replace(job, network=bare), RATES).matrix_s
    work, less = (step_work(replace(job, network=one)) for one in (network, bare))
    assert work.gpu_bytes - less.gpu_bytes == pytest.approx(OPTIMIZER_BYTES * network.lookup_params)
    split = memory(replace(job, parallel=Parallel(pipeline=5)), FrameworkMemory())
    assert split.weights_bytes > 2 * (network.lookup_params + 262144 * 1536)


def test_recomputation_is_a_third_more_arithmetic_of_the_layers() -> None:
    plain, again = (step_time(replace(JOB, recompute=how), RATES) for how in ("none", "full"))
    head_s = 3 * GPT.head_flop * JOB.units * JOB.micro_batches / 200e12
    assert (again.matrix_s - head_s) / (plain.matrix_s - head_s) == pytest.approx(4 / 3, rel=1e-3)


def test_recomputation_of_some_layers_lies_between_none_and_all() -> None:
    none, all_s = (step_time(replace(JOB, recompute=how), RATES).step_s for how in ("none", "full"))
    some = step_time(replace(JOB, recompute="full", recomputed_layers=21 / 80), RATES).step_s
    assert some - none == pytest.approx((all_s - none) * 21 / 80, rel=1e-3)
    assert step_time(replace(JOB, recomputed_layers=0.5), RATES).step_s == none


def test_attention_in_eight_bits_takes_its_share_of_the_time() -> None:
    wide, narrow = (step_time(replace(JOB, eight_bit_attention=on), RATES) for on in (False, True))
    assert narrow.attention_s == pytest.approx(wide.attention_s / 2)
    assert narrow.step_s == pytest.approx(wide.step_s - wide.attention_s / 2)


def test_adapters_launch_more_kernels_though_they_compute_less() -> None:
    host = replace(RATES, layer_s=10.0)
    whole, adapters, quantized = (
        step_time(replace(JOB, method=method), host).step_s for method in ("full", "lora", "qlora")
    )
    assert whole == pytest.approx(24 * 10.0 * 8, rel=1e-2)
    assert whole * 1.5 == pytest.approx(adapters, rel=1e-2)
    assert whole * 1.7 == pytest.approx(quantized, rel=1e-2)


def test_lora_leaves_out_the_gradients_of_weights() -> None:
    full, lora = (step_time(replace(JOB, method=method), RATES) for method in ("full", "lora"))
    assert lora.matrix_s / full.matrix_s == pytest.approx(2 / 3, rel=1e-3)


@pytest.mark.parametrize("chunks", [1, 2])
def test_the_bubble_is_stages_less_one_over_micro_batches(chunks: int) -> None:
    step = step_time(replace(JOB, parallel=Parallel(pipeline=4, virtual_stages=chunks), micro_batches=8), RATES)
    busy = step.matrix_s + step.attention_s + step.stream_s + step.stage_exchange_s
    assert step.bubble_s / busy == pytest.approx(3 / 8 / chunks)


def test_an_all_reduce_moves_its_bytes_twice() -> None:
    two = replace(JOB, parallel=Parallel(data=2))
    network = replace(JOB, parallel=Parallel(data=2), gpus_per_node=1, node_bytes_per_s=25e9)
    assert reduce_s(network, RATES, 1e9) == pytest.approx(2 * 1e9 * (2 - 1) / 2 / 25e9)
    assert reduce_s(two, RATES, 1e9) < reduce_s(network, RATES, 1e9)
    assert reduce_s(JOB, RATES, 1e9) == tensor_exchange_s(JOB, RATES, 2) == 0


def test_gradients_hide_behind_the_backward_pass_or_do_not() -> None:
    slow = replace(JOB, parallel=Parallel(data=2), gpus_per_node=1, node_bytes_per_s=1e9, micro_batches=1)
    whole_s = reduce_s(slow, RATES, GPT.params * 2)
    assert step_time(slow, replace(RATES, exposed_share=1.0)).data_exchange_s == pytest.approx(whole_s)
    window_s = (step_time(replace(JOB, micro_batches=1), RATES).step_s - step_time(JOB, RATES).optimizer_s) * 2 / 3
    assert step_time(slow, RATES).data_exchange_s == pytest.approx(whole_s - window_s, rel=1e-6)
    fast = replace(slow, node_bytes_per_s=1e12)
    assert step_time(fast, RATES).data_exchange_s == 0


def test_interleaved_stages_exchange_chunks_while_they_compute_others() -> None:
    """Four stages with four chunks: of 4 x 3 chunks beside those of a group, three pass before all stages start."""
    parallel = Parallel(pipeline=4, virtual_stages=4, data=2, zero=1)
    slow = replace(JOB, parallel=parallel, gpus_per_node=1, node_bytes_per_s=5e7)
    half_s = reduce_s(slow, RATES, GPT.params * 2 / 4) / 2
    one = step_time(slow, RATES)
    micro_s = one.bubble_s * 4 / 3
    beside = (4 * 3 - 3) / 4
    expected_s = 2 * half_s - beside * micro_s  # both halves are longer: two thirds backward, one third forward
    assert half_s > 2 / 3 * beside * micro_s
    assert one.data_exchange_s == pytest.approx(expected_s, rel=1e-6)
    plain = step_time(replace(slow, parallel=replace(parallel, virtual_stages=1)), RATES)
    assert plain.data_exchange_s > one.data_exchange_s


def test_more_of_anything_that_is_slower_never_helps() -> None:
    job = replace(JOB, parallel=Parallel(tensor=2, pipeline=2, data=2), gpus_per_node=4, node_bytes_per_s=50e9)
    base = step_time(job, RATES).step_s
    for name in (
        "attention_time_factor",
        "stream_time_factor",
        "layer_s",
        "step_s",
        "exposed_share",
        "link_time_factor",
    ):
        worse = replace(RATES, **{name: getattr(RATES, name) * 2 + 1e-3})
        assert step_time(job, worse).step_s >= base
    for name in ("matrix_flop_per_s", "plain_flop_per_s", "bytes_per_s", "network_efficiency"):
        assert step_time(job, replace(RATES, **{name: getattr(RATES, name) / 2})).step_s >= base


def test_experts_on_other_nodes_cost_the_network() -> None:
    moe = of_model(CATALOG.model("qwen3-30b-a3b"))
    inside = OptimizerStep(GPU, LINK, moe, Parallel(data=8, expert=8), 1, 8, 4096, node_bytes_per_s=200e9)
    across = replace(inside, parallel=Parallel(data=16, expert=16))
    assert step_time(across, RATES).expert_exchange_s > step_time(inside, RATES).expert_exchange_s > 0


@pytest.mark.parametrize("name", ["deepseek-v3", "qwen3.5-35b-a3b", "gemma4-26b-a4b", "llama3.1-8b"])
def test_all_products_of_a_layer_count_though_they_share_names(name: str) -> None:
    model = CATALOG.model(name)
    roles = ("attention", "mlp", "shared_expert", "expert", "router")
    found = [one for one in matrices(model) if one.role in roles]
    used = sum(_share(model, one) * one.params for one in found)
    assert of_model(model).forward_flop == pytest.approx(2 * used)


def _share(model: Model, matrix: Matrix) -> float:
    return model.moe.experts_per_token / model.moe.experts if model.moe and matrix.role == "expert" else 1.0


def test_casts_to_eight_bits_move_two_thirds_of_the_activations_again() -> None:
    plain, cast = (step_time(replace(JOB, precision=precision), RATES) for precision in ("bf16", "fp8"))
    assert cast.stream_s / plain.stream_s == pytest.approx(1 + CAST_TRANSFERS)


def test_memory_and_relative_positions_triple_the_attention_of_transformer_xl() -> None:
    size = {"layers": 16, "hidden": 512, "heads": 8, "vocab": 1000}
    plain, relative = of_dimensions("a", size), of_dimensions("b", size | {"attention_factor": 3, "score_factor": 4})
    assert relative.attention_width == 3 * plain.attention_width
    assert relative.score_bytes == 4 * plain.score_bytes
    assert relative.forward_flop == plain.forward_flop


def test_tokens_are_copied_to_their_experts_and_back() -> None:
    moe = of_dimensions(
        "moe", {"layers": 24, "hidden": 4096, "heads": 32, "vocab": 0, "experts_per_token": 8, "expert_layers": 20}
    )
    dense = of_dimensions("dense", {"layers": 24, "hidden": 4096, "heads": 32, "vocab": 0})
    assert moe.stream_bytes - dense.stream_bytes == 20 * 8 * 4096 * 2 * 2
    assert moe.activation_bytes - dense.activation_bytes == 20 * 8 * 4096 * 2


def test_latent_experts_exchange_latents() -> None:
    network = of_model(CATALOG.model("nemotron-3-super"))
    assert network.routed_width == 40 * 22 * 1024


@pytest.mark.parametrize(("samples", "counted"), [(None, 32), (30, 30)])
def test_a_step_counts_the_stated_samples(samples: int | None, counted: int) -> None:
    job = replace(JOB, samples=samples)
    assert job.global_batch == counted
    assert step_time(job, RATES) == step_time(JOB, RATES)
