"""Memory of training: worked by hand from the papers' formulas."""

from dataclasses import replace

import pytest

from sim.catalogue.catalog import load_catalog
from sim.training.job import OptimizerStep, Parallel
from sim.training.memory import FrameworkMemory, activation_bytes, memory
from sim.training.network import ForwardCost, of_dimensions, of_model
from sim.training.steptime import trained_params

CATALOG = load_catalog()
GPU, LINK = CATALOG.gpu("a100-80gb-sxm"), CATALOG.link("nvlink3-nvswitch")
GPT = of_dimensions("gpt", {"layers": 12, "hidden": 2048, "heads": 16, "vocab": 0})


def job(network: ForwardCost = GPT, parallel: Parallel | None = None, **more: object) -> OptimizerStep:
    usual = {"micro_batch": 8, "micro_batches": 1, "sequence": 512}
    return OptimizerStep(GPU, LINK, network, parallel or Parallel(), **(usual | more))  # type: ignore[arg-type]


def test_activations_are_34_sbh_a_layer() -> None:
    assert activation_bytes(GPT, 8 * 512, 512, keeps_scores=False) == 512 * 8 * 2048 * 12 * 34 == 3_422_552_064


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_tensor_parallelism_leaves_10_sbh_on_every_rank(ranks: int) -> None:
    per_layer = 512 * 8 * 2048 * (10 + 24 / ranks)
    assert activation_bytes(GPT, 8 * 512, 512, ranks, keeps_scores=False) == pytest.approx(12 * per_layer)


def test_scores_are_5_a_s_squared_b() -> None:
    kept = activation_bytes(GPT, 8 * 512, 512) - activation_bytes(GPT, 8 * 512, 512, keeps_scores=False)
    assert kept == 12 * 5 * 16 * 512**2 * 8


def test_states_are_sixteen_bytes_a_parameter_and_zero_shards_them() -> None:
    whole = memory(job(), FrameworkMemory())
    params = GPT.params
    assert (whole.weights_bytes, whole.gradients_bytes, whole.states_bytes) == (2 * params, 2 * params, 12 * params)
    held = [memory(job(parallel=Parallel(data=8, zero=stage)), FrameworkMemory()) for stage in range(4)]
    totals = [one.weights_bytes + one.gradients_bytes + one.states_bytes for one in held]
    expected = [16.0, 4 + 12 / 8, 2 + 14 / 8, 16 / 8]
    assert totals == pytest.approx([share * params for share in expected])


@pytest.mark.parametrize(("tensor", "expert"), [(1, 1), (1, 8), (2, 8), (8, 8)])
def test_shards_of_all_ranks_are_the_whole_model(tensor: int, expert: int) -> None:
    network = of_model(CATALOG.model("qwen3-30b-a3b"))
    ranks = Parallel(tensor=tensor, data=64 // tensor, expert=expert, zero=3)
    held = memory(job(network, ranks), FrameworkMemory())
    found = held.weights_bytes, held.gradients_bytes, held.states_bytes
    assert found == pytest.approx([number * network.params / 64 for number in (2, 2, 12)])
    first = memory(job(network, replace(ranks, zero=1)), FrameworkMemory())
    assert first.states_bytes == held.states_bytes
    assert first.weights_bytes >= 2 * network.params / 64
    sharded = trained_params(job(network, ranks), whole=True)
    assert sharded == trained_params(job(network, replace(ranks, expert=1))) == network.params


def test_full_recomputation_keeps_the_inputs_of_layers() -> None:
    kept = memory(job(recompute="full"), FrameworkMemory()).activations_bytes
    assert kept == pytest.approx(8 * 512 * 2048 * (12 * 2 + 34))
    whole, half = (
        memory(one, FrameworkMemory()).activations_bytes
        for one in (job(), job(recompute="full", recomputed_layers=0.5))
    )
    assert half == pytest.approx((kept + whole) / 2)


def test_the_first_stage_holds_a_micro_batch_for_each_stage() -> None:
    alone = memory(job(), FrameworkMemory()).activations_bytes
    deep = job(parallel=Parallel(pipeline=4), micro_batches=16)
    assert memory(deep, FrameworkMemory()).activations_bytes == pytest.approx(alone)
    few = replace(deep, micro_batches=2)
    assert memory(few, FrameworkMemory()).activations_bytes == pytest.approx(alone / 2)


def test_lora_needs_hardly_any_states() -> None:
    full, lora = (memory(job(method=method), FrameworkMemory()) for method in ("full", "lora"))
    assert lora.states_bytes < 0.01 * full.states_bytes
    assert lora.weights_bytes == full.weights_bytes
    assert lora.activations_bytes < full.activations_bytes


def test_an_expert_lies_on_one_of_its_ranks() -> None:
    moe = of_dimensions(
        "moe",
        {
            "layers": 4,
            "hidden": 1024,
            "heads": 8,
            "vocab": 0,
            "params": 1e9,
            "expert_params": 8e8,
            "experts_per_token": 2,
        },
    )
    spread = job(moe, Parallel(data=8, expert=8))
    assert spread.held_params == pytest.approx(2e8 + 8e8 / 8)
