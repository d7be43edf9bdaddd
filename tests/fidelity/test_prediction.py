"""Prediction of one row: known outcomes under a known step time, laws under the real one, defaults of trtllm-bench.

Limits that trtllm-bench sets where nobody gives any.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sim.benchdata.row import METRICS, BenchRow
from sim.catalogue.catalog import load_catalog
from sim.fidelity.bench_scenario import MOST_REQUESTS, case_of, layout, trtllm_bench_limits
from sim.fidelity.names import match
from sim.fidelity.prediction import campaigns_of, predict, prepared, simulate
from sim.scenario.resolving.resolved import CasePlan
from sim.steptime.affine import Affine
from sim.steptime.roofline import RooflineStepTime
from sim.workload.lengths import Lengths

CATALOG = load_catalog()
CAMPAIGNS = campaigns_of(CATALOG)
ROW = BenchRow(2, "a", "h100-80gb-sxm", "llama3.1-8b", isl=100, osl=11, concurrency=1, precision="bf16")
STEP_S, OVERHEAD_S = 0.010, 0.005


def with_known_steps(plan: CasePlan) -> CasePlan:
    """Every step takes 10 ms, every request spends 5 ms in the API server."""
    pool = plan.pools[0]
    steps = Affine(model="affine", base_s=STEP_S, per_token_s=0.0, per_context_token_s=0.0).build()
    overhead_s = OVERHEAD_S if pool.request_overhead_s else 0.0
    return replace(plan, pools=(replace(pool, steptime=steps, request_overhead_s=overhead_s, tokenising_s=0.0),))


def known(row: BenchRow) -> dict[str, float]:
    prediction = predict(row, CATALOG, with_known_steps)
    assert prediction.status == "covered", prediction.reason
    return prediction.metrics


def test_one_request_at_a_time() -> None:
    found = known(ROW)
    assert found["ttft_mean_ms"] == pytest.approx(15)
    assert found["ttft_p99_ms"] == pytest.approx(15)
    assert found["tpot_mean_ms"] == pytest.approx(10)
    assert found["e2e_mean_ms"] == pytest.approx(115)
    # the client's next request starts when its answer has come, API server included
    assert found["req_s"] == pytest.approx(1 / 0.115)
    assert found["output_tok_s"] == pytest.approx(11 / 0.115)
    assert found["total_tok_s"] == pytest.approx(111 / 0.115)
    assert found.keys() <= set(METRICS)


def test_a_prompt_is_tokenised_before_its_first_token() -> None:
    def tokenising(plan: CasePlan) -> CasePlan:
        plan = with_known_steps(plan)
        return replace(plan, pools=(replace(plan.pools[0], tokenising_s=1e-5),))

    found = predict(ROW, CATALOG, tokenising).metrics
    assert found["ttft_mean_ms"] == pytest.approx(15 + 100 * 1e-2)
    assert found["tpot_mean_ms"] == pytest.approx(10)
    assert found["req_s"] == pytest.approx(1 / 0.116)


def test_a_plan_has_the_tokenising_time_of_its_engine_where_the_client_measures() -> None:
    for place, share in (("client", 1), ("engine", 0)):
        row = replace(ROW, measured_at=place)
        with prepared(row, CATALOG) as one:
            [pool] = one.plan.pools
        overheads = CATALOG.engine("vllm").overheads
        assert overheads is not None
        assert overheads.tokenising_s is not None
        assert pool.tokenising_s == share * overheads.tokenising_s.value


def test_measured_at_the_engine_no_request_waits_for_the_api_server() -> None:
    found = known(replace(ROW, measured_at="engine"))
    assert found["ttft_mean_ms"] == pytest.approx(10)
    assert found["req_s"] == pytest.approx(1 / 0.110)


def test_a_client_that_is_not_sent_the_first_token_waits_for_the_second() -> None:
    found = known(replace(ROW, source_key="ree2raz/inference-bench"))
    assert found["ttft_mean_ms"] == pytest.approx(25)
    assert found["tpot_mean_ms"] == pytest.approx(10)


def test_replicas_behind_a_router_are_no_data_parallel_ranks() -> None:
    fleet = case_of(replace(ROW, source_key="anyscale", n_gpus=4, tp=2, dp=2), CATALOG, CAMPAIGNS).data["fleets"][0]
    assert fleet["routing"] == {"policy": "power_of_two"}
    assert (fleet["pools"][0]["replicas"], fleet["pools"][0]["data_parallel_size"]) == (2, 1)


@pytest.mark.slow
def test_the_kernels_of_experts_that_a_campaign_states_reach_the_step_time() -> None:
    row = BenchRow(
        2, "a", "B200-SXM", "DeepSeek-V3", engine="TensorRT-LLM", source_key="inferencex", precision="nvfp4",
        n_gpus=8, tp=8, isl=100, osl=11, concurrency=1,
    )  # fmt: skip
    with prepared(row, CATALOG) as one:
        steptime = one.plan.pools[0].steptime
    assert isinstance(steptime, RooflineStepTime)
    assert steptime.inputs.moe_backend == "TRTLLM"


def test_drafts_are_simulated_where_it_is_known_how_many_hold() -> None:
    row = replace(ROW, gpu="rtx-3090", model="mistral-7b-v0.3", source_key="rig3090", spec_decode="ngram")
    told = case_of(replace(row, id="r39_tli-synth-ext/mistral7b--ngram-k4/code/c8"), CATALOG, CAMPAIGNS)
    drafts = {"num_speculative_tokens": 4, "method": "ngram", "acceptance": "mistral-7b-ngram/code"}
    assert told.data["fleets"][0]["pools"][0]["batching"]["speculative"] == drafts
    assert not told.notes
    (note,) = case_of(replace(row, id="x", spec_decode="dflash"), CATALOG, CAMPAIGNS).notes
    assert note == "speculative decoding (dflash) is not simulated: its acceptance rate is not known"


@pytest.mark.parametrize("load", ["closed_loop", "static_batch", "burst"])
def test_a_batch_shares_its_steps(load: str) -> None:
    row = replace(ROW, load=load, isl=10, concurrency=8, num_requests=8, measured_at="engine")
    found = known(row)
    assert found["e2e_mean_ms"] == pytest.approx(110)
    assert found["output_tok_s"] == pytest.approx(8 * 11 / 0.110)


@pytest.mark.slow
def test_with_a_rate_and_a_limit_on_requests_in_flight_the_one_that_binds_counts() -> None:
    row = replace(ROW, concurrency=8, num_requests=400)
    assert known(replace(row, rate_req_s=2))["req_s"] == pytest.approx(2, rel=0.1)
    assert known(replace(row, rate_req_s=1e9)) == known(row)
    assert known(replace(row, rate_req_s=1000)) == known(row)


def test_nobody_joins_a_static_batch() -> None:
    prediction = predict(replace(ROW, load="static_batch", concurrency=None, avg_batch=16), CATALOG)
    assert prediction.requests == 16


def test_an_open_loop_far_from_its_limit_serves_what_is_offered() -> None:
    found = known(replace(ROW, load="constant", concurrency=None, rate_req_s=2, num_requests=400))
    assert found["req_s"] == pytest.approx(2, rel=0.01)
    assert found["ttft_mean_ms"] == pytest.approx(15)


def test_a_cut_burst_has_three_requests_per_place_as_far_as_its_tokens_allow() -> None:
    row = replace(ROW, load="burst", concurrency=None, num_requests=30_000, max_num_seqs=2000, isl=100, osl=100)
    assert case_of(row, CATALOG, CAMPAIGNS).simulated_requests == 6000
    assert case_of(replace(row, isl=4000, osl=4000), CATALOG, CAMPAIGNS).simulated_requests == 2500


@pytest.mark.slow
def test_a_run_that_was_cut_continues_at_its_steady_rate() -> None:
    row = replace(ROW, load="burst", isl=2000, osl=100, num_requests=20_000, max_num_seqs=64, concurrency=None)
    prediction = predict(row, CATALOG)
    assert prediction.requests == MOST_REQUESTS
    assert "ttft_mean_ms" not in prediction.metrics
    whole = predict(replace(row, num_requests=prediction.requests), CATALOG)
    assert prediction.metrics["req_s"] == pytest.approx(whole.metrics["req_s"], rel=0.05)


def test_steady_rates_of_requests_that_finish_together() -> None:
    # 10 waves of 8 requests: the rate between waves, whatever share of them is looked at
    row = replace(ROW, source_key="accelmark", isl=100, osl=512, concurrency=8, measured_at="engine", max_num_seqs=8)
    assert known(row)["req_s"] == pytest.approx(8 / (512 * STEP_S), rel=0.003)


@pytest.mark.slow
def test_requests_that_wait_for_admission_are_marked() -> None:
    row = replace(ROW, isl=500, osl=500, concurrency=64, max_num_seqs=4)
    assert predict(row, CATALOG).saturated
    assert not predict(replace(row, max_num_seqs=64), CATALOG).saturated


@pytest.mark.slow
def test_rows_that_do_not_fit_are_infeasible_with_a_reason() -> None:
    prediction = predict(replace(ROW, model="llama3.1-70b", gpu="rtx-4090"), CATALOG)
    assert prediction.status == "infeasible"
    assert "GB" in prediction.reason
    assert prediction.metrics == {}


@pytest.mark.slow
def test_a_row_that_ran_may_have_had_more_memory_than_the_default() -> None:
    # 14 B parameters at 16 bit on 2 x 16 GB: more than 0.9 leaves, less than 0.95
    row = replace(ROW, gpu="rtx-4090", model="qwen2.5-32b", precision="gptq-int4", isl=4000, osl=4000)
    prediction = predict(row, CATALOG)
    assert prediction.status == "covered"
    assert prediction.reason == "fits at gpu_memory_utilization 0.95 only"
    assert predict(replace(row, gpu_memory_utilization=0.9), CATALOG).status == "infeasible"


@pytest.mark.parametrize(
    ("gpus", "tp", "pp", "dp", "ep", "sizes"),
    [
        (1, 1, 1, 1, None, (1, 1, 1, False)),
        (4, 4, 1, 1, None, (4, 1, 1, False)),
        (4, None, 1, 1, None, (4, 1, 1, False)),
        (4, None, 2, 1, None, (2, 2, 1, False)),
        (8, 1, 1, 1, 8, (8, 1, 1, True)),
        (8, 8, 1, 1, 8, (8, 1, 1, True)),
        (4, 2, 1, 2, 4, (2, 1, 2, True)),
        (4, 2, 1, 1, None, (4, 1, 1, False)),
        (4, 3, 1, 3, None, (3, 1, 3, False)),
    ],
)
def test_how_the_gpus_are_used(
    gpus: int, tp: int | None, pp: int, dp: int, ep: int | None, sizes: tuple[int, int, int, bool]
) -> None:
    row = replace(ROW, n_gpus=gpus, tp=tp, pp=pp, dp=dp, ep=ep)
    assert layout(row, CAMPAIGNS.setup(row)) == sizes


def test_cards_that_hold_the_layers_in_turn_are_stages_whatever_the_table_calls_them() -> None:
    row = replace(ROW, n_gpus=4, tp=4)
    assert layout(row, replace(CAMPAIGNS.setup(row), layers_in_turn=True)) == (1, 4, 1, False)


def test_experts_are_spread_only_where_there_are_any() -> None:
    row = replace(ROW, n_gpus=2, tp=2, ep=2)
    assert not case_of(row, CATALOG, CAMPAIGNS).data["fleets"][0]["pools"][0]["enable_expert_parallel"]
    moe = replace(row, model="qwen3-30b-a3b")
    assert case_of(moe, CATALOG, CAMPAIGNS).data["fleets"][0]["pools"][0]["enable_expert_parallel"]


def test_a_batch_without_latencies_ran_inside_the_process() -> None:
    def inside(row: BenchRow) -> bool:
        return bool(case_of(row, CATALOG, CAMPAIGNS).data["fleets"][0]["pools"][0]["steptime"]["in_process"])

    assert inside(replace(ROW, load="static_batch"))
    assert inside(replace(ROW, load="burst", measured={"output_tok_s": 1}))
    assert not inside(replace(ROW, load="burst", measured={"ttft_mean_ms": 1}))
    assert not inside(ROW)


@pytest.mark.slow
def test_capped_answers_keep_the_rows_mean() -> None:
    row = replace(ROW, source_key="accelmark", load="poisson", rate_req_s=1, concurrency=None, osl=350)
    found = predict(row, CATALOG).metrics
    assert found["output_tok_s"] / found["req_s"] == pytest.approx(350, rel=0.1)


def test_lengths_of_a_published_data_set_keep_the_mean_of_the_row() -> None:
    row = replace(ROW, source_key="simon-mo/vLLM-Benchmark", isl=250.0, osl=200.0, prompt_cv=1.13, output_cv=1.0)
    lengths = Lengths.model_validate(case_of(row, CATALOG, CAMPAIGNS).data["workload"]["lengths"])
    middle = (np.arange(10_000) + 0.5) / 10_000
    assert lengths.prompt.quantile(middle).mean() == pytest.approx(250, rel=0.01)
    assert lengths.output.quantile(middle).mean() == pytest.approx(200, rel=0.01)
    assert lengths.prompt.quantile(np.array([0.5, 1.0])) == pytest.approx([83 * 250 / 215.2, 997 * 250 / 215.2], abs=1)


def test_lengths_of_a_random_data_set_end_at_twice_their_mean() -> None:
    row = replace(ROW, isl=500, osl=505, prompt_cv=0.58, output_cv=0.58, id="a-c100-500-505")
    limits = {"distribution": "uniform", "min": 1, "max": 1009}
    known_source = case_of(replace(row, source_key="sgl-project/sgl-cookbook"), CATALOG, CAMPAIGNS)
    assert known_source.data["workload"]["lengths"]["output"] == limits
    assert case_of(row, CATALOG, CAMPAIGNS).data["workload"]["lengths"]["output"]["distribution"] == "lognormal"


def test_a_client_with_a_connection_for_every_request_sends_at_its_rate() -> None:
    row = replace(ROW, load="closed_loop", concurrency=20, num_requests=20, rate_req_s=10.0)
    assert known(row)["req_s"] < 13
    assert known(replace(row, rate_req_s=None))["req_s"] > 20


@pytest.mark.slow
def test_recorded_requests_are_replayed(tmp_path: Path) -> None:
    replay = tmp_path / "replay.csv"
    replay.write_text("# settings\nid,arrival_s,prompt_tokens,output_tokens,ttft_ms\na,0,100,11,9\nb,5.0,100,11,9\n")
    row = replace(ROW, load="trace", concurrency=None, rate_req_s=0.2, measured_at="engine")
    found = known(replace(row, replay=str(replay)))
    assert found["req_s"] == pytest.approx(2 / 5.110)
    assert found["ttft_mean_ms"] == pytest.approx(10)
    assert "no request file" in predict(row, CATALOG).reason


def test_a_prepared_row_can_be_simulated_again() -> None:
    with prepared(ROW, CATALOG) as ready:
        assert simulate(ready) == simulate(ready) == predict(ROW, CATALOG)


@pytest.mark.slow
def test_more_gpus_on_nvlink_are_faster_and_more_clients_slower_each() -> None:
    def tok_s(tp: int, clients: int) -> dict[str, float]:
        return predict(replace(ROW, n_gpus=tp, tp=tp, concurrency=clients, isl=500, osl=200), CATALOG).metrics

    assert tok_s(1, 8)["output_tok_s"] < tok_s(2, 8)["output_tok_s"] < tok_s(4, 8)["output_tok_s"]
    assert tok_s(1, 1)["tpot_mean_ms"] < tok_s(1, 64)["tpot_mean_ms"]
    assert tok_s(1, 1)["power_w"] < tok_s(2, 1)["power_w"]


@pytest.mark.slow
def test_a_power_cap_is_simulated_where_its_effect_was_measured() -> None:
    row = replace(ROW, gpu="RTX-3090", model="Mistral-7B", concurrency=4, osl=100, precision="bf16")
    free, capped = predict(row, CATALOG), predict(replace(row, power_cap_w=220.0), CATALOG)
    assert capped.reason == ""
    # 0.698 of the card's speed; host time stays as it is
    assert 1.25 < capped.metrics["tpot_mean_ms"] / free.metrics["tpot_mean_ms"] < 1 / 0.698
    assert "power cap is not simulated" in predict(replace(ROW, power_cap_w=350.0), CATALOG).reason


def test_a_rate_of_decoding_does_not_count_the_prompt() -> None:
    row = replace(ROW, source_key="rig3090", note="objective=x; kind=single_stream_wall", isl=1000, concurrency=4)
    found = known(row)
    assert found["output_tok_s"] == pytest.approx(1 / STEP_S)
    assert found["req_s"] == pytest.approx(1 / 0.115, rel=0.2)


KV_BYTES_PER_TOKEN = 36 * 2 * 8 * 64
"""gpt-oss-120b in fp8: keys and values of 36 layers with 8 heads of 64."""


@pytest.mark.parametrize("precision", ["", "mxfp4"])
@pytest.mark.parametrize(("prompt", "answer", "requests"), [(1024, 1024, 1024), (1024, 8192, 224), (32768, 1024, 64)])
def test_mxfp4_counts_two_bytes_for_each_stored_one(precision: str, prompt: int, answer: int, requests: int) -> None:
    row = BenchRow(2, "a", "GB200", "gpt-oss-120b", precision=precision, kv_dtype="fp8", isl=prompt, osl=answer)
    names = match(row, CATALOG, campaigns_of(CATALOG))
    stored_bytes = 116.8e9 * 17 / 32  # half a byte a weight, a byte for 32 of them
    fit = (names.gpu.memory_bytes.value - 2 * stored_bytes) * 0.95 / KV_BYTES_PER_TOKEN / (prompt + answer)
    found, tokens = trtllm_bench_limits(names, 1, 1, prompt, answer)
    assert found == requests
    assert fit <= found < fit * 1.1 + 10
    assert tokens == max(requests, 2048)
