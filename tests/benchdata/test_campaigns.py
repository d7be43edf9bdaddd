"""Facts about published campaigns: which rows they reach, and what wins."""

from dataclasses import replace

import pytest

from sim.benchdata.campaigns import CampaignFact, Campaigns, load_campaigns
from sim.benchdata.row import BenchRow
from sim.catalogue.catalog import load_catalog

CATALOG = load_catalog()
SHIPPED = load_campaigns(CATALOG.root / "benchmarks.yaml")
ROW = BenchRow(1, "a", "h100", "llama3.1-8b", isl=1000, osl=1000, concurrency=8, source_key="campaign")
SOURCE = {"source": "gpufleet-study", "kind": "quoted"}


def campaigns(*facts: dict[str, object]) -> Campaigns:
    read = [CampaignFact.model_validate({"match": {"source_key": "campaign"}} | SOURCE | fact) for fact in facts]
    return Campaigns(facts=tuple(read), version_by_year={}, nvlink_bridges={})


def test_a_row_of_ones_own_is_taken_as_it_is() -> None:
    setup = SHIPPED.setup(replace(ROW, source_key=""))
    assert (setup.num_requests, setup.max_num_seqs, setup.in_process, setup.measured_at) == (None, None, None, "client")
    assert (setup.isl, setup.osl, setup.n_gpus, setup.dp, setup.ep) == (1000, 1000, 1, 1, 1)


def test_later_facts_win_and_the_rows_own_columns_win_over_all() -> None:
    known = campaigns({"num_requests": 10}, {"num_requests": 20, "measured_at": "engine"})
    assert known.setup(ROW).num_requests == 20
    assert known.setup(replace(ROW, num_requests=5, measured_at="client")).num_requests == 5
    assert known.setup(ROW).measured_at == "engine"
    assert known.setup(replace(ROW, measured_at="client")).measured_at == "client"


@pytest.mark.parametrize(
    ("match", "row", "holds"),
    [
        ({"loads": ["burst"]}, ROW, False),
        ({"loads": ["closed_loop"]}, ROW, True),
        ({"isl_from": 1000}, ROW, True),
        ({"isl_from": 1001}, ROW, False),
        ({"versions": ["0.1"]}, replace(ROW, engine_version="0.19.0"), True),
        ({"versions": ["0.1"]}, replace(ROW, engine_version="0.20.0"), False),
        ({"workloads": ["chat"]}, replace(ROW, workload="closed loop (llm chat)"), True),
        ({"workloads": ["chat"]}, ROW, False),
        ({"gpus": ["h100"]}, ROW, True),
        ({"gpus": ["b200"]}, ROW, False),
        ({"precisions": ["fp8"]}, replace(ROW, precision="fp8_block"), True),
        ({"precisions": ["fp8"]}, ROW, False),
        ({"clients_from": 8}, ROW, True),
        ({"clients_from": 9}, ROW, False),
        ({"tp": 4}, replace(ROW, tp=4), True),
        ({"tp": 4}, ROW, False),
        ({"tp_to": 4}, replace(ROW, tp=8), False),
        ({"ep_from": 2}, replace(ROW, ep=8), True),
        ({"ep_from": 2}, ROW, False),
    ],
)
def test_which_rows_a_fact_speaks_of(match: dict[str, object], row: BenchRow, holds: bool) -> None:
    known = campaigns({"match": {"source_key": "campaign"} | match, "max_num_seqs": 3})
    assert (known.setup(row).max_num_seqs == 3) is holds


def test_settings_of_a_campaign_fill_empty_cells_of_a_row() -> None:
    told = {"kv_dtype": "fp8", "engine_version": "0.11", "max_num_batched_tokens": 2048, "scheduler_recv_interval": 10}
    told |= {"stream_interval": 20, "enable_mixed_chunk": True, "cold_start": True, "fp8_gemm_backend": "triton"}
    told |= {"moe_backend": "TRTLLM"}
    told |= {"warmup_per_client": 2}
    setup = campaigns(told).setup(ROW)
    assert {name: getattr(setup, name) for name in told} == told
    own = campaigns(told).setup(replace(ROW, kv_dtype="bf16", engine_version="0.19", max_num_batched_tokens=512))
    assert (own.kv_dtype, own.engine_version, own.max_num_batched_tokens) == ("bf16", "0.19", 512)


def test_prompts_that_the_server_reads_as_more_tokens_than_the_client() -> None:
    assert campaigns({"prompt_factor": 5}).setup(ROW).isl == 5000
    assert campaigns({"prompt_factor": 5, "isl": 80}).setup(replace(ROW, isl=None)).isl == 400
    assert campaigns({"prompt_factor": 5}).setup(replace(ROW, isl=None)).isl is None


def test_drafts_that_rows_do_not_state() -> None:
    run = campaigns({"spec_decode": "mtp"}).as_run(ROW)
    assert (run.spec_decode, campaigns({"spec_decode": "mtp"}).as_run(run)) == ("mtp", run)
    assert campaigns({"spec_decode": "mtp"}).as_run(replace(ROW, spec_decode="eagle")).spec_decode == "eagle"


B200_SGLANG = replace(
    ROW, source_key="inferencex", gpu="B200-SXM", engine="SGLang", precision="fp8", tp=8, ep=1, engine_version="0.5.9"
)


@pytest.mark.parametrize(
    ("row", "drafts", "cold", "isl"),
    [
        (replace(B200_SGLANG, model="DeepSeek-R1"), "mtp", False, 1000),
        (replace(B200_SGLANG, model="DeepSeek-R1", tp=4), "", False, 1000),
        (replace(B200_SGLANG, model="Qwen3.5-397B", tp=4, id="agg_c32_tp4_0_ep1_0_596"), "mtp", False, 1000),
        (replace(B200_SGLANG, model="Qwen3.5-397B", tp=4, ep=4, id="agg_c32_tp4_0_ep4_0_5"), "", False, 1000),
        (replace(B200_SGLANG, model="DeepSeek-V3", engine_version="", note="measured=2025-11-10"), "", True, 1000),
        (replace(B200_SGLANG, model="DeepSeek-V3", note="measured=2026-01-21"), "", False, 1000),
        (replace(B200_SGLANG, model="DeepSeek-V3", gpu="B300-SXM", engine_version="0.5.10.post1"), "", False, 5000),
    ],
)
def test_what_inferencex_ran_beside_what_its_rows_state(row: BenchRow, drafts: str, cold: bool, isl: float) -> None:
    setup = SHIPPED.setup(row)
    assert (SHIPPED.as_run(row).spec_decode, setup.cold_start, setup.isl) == (drafts, cold, isl)


def test_figures_in_the_note() -> None:
    known = campaigns({"note_patterns": {"num_requests": "prompts=(\\d+)", "output_cap": "capped at (\\d+)"}})
    setup = known.setup(replace(ROW, note="prompts=80; capped at 512"))
    assert (setup.num_requests, setup.output_cap) == (80, 512)


@pytest.mark.parametrize(
    ("gpus", "tp", "dp", "ep", "box"),
    [
        (16, 4, 4, 16, (4, 1, 4)),
        (4, 2, 2, 4, (2, 1, 2)),
        (16, 1, 16, 4, (4, 4, 4)),
        (64, 1, 64, 8, (8, 8, 8)),
        (8, 8, 1, 8, (8, 1, 8)),
    ],
)
def test_boxes_counted_twice(gpus: int, tp: int, dp: int, ep: int, box: tuple[int, int, int]) -> None:
    known = campaigns({"gpus_squared": True})
    run = known.as_run(replace(ROW, n_gpus=gpus, tp=tp, dp=dp, ep=ep))
    assert (run.n_gpus, run.dp, run.ep) == box
    assert known.as_run(run) == run
    assert known.setup(run).n_gpus == box[0]


def test_whole_experts_and_attention_in_data_parallel_as_the_scripts_have_them() -> None:
    row = replace(ROW, n_gpus=8, tp=8)
    layouts = [campaigns({name: True}).setup(row) for name in ("expert_parallel", "attention_dp")]
    assert [(setup.dp, setup.ep) for setup in layouts] == [(1, 8), (8, 8)]
    assert campaigns({"expert_parallel": False}).setup(replace(row, ep=8)).ep == 1
    assert campaigns({"max_num_seqs": 4}).setup(row).ep == 1


def test_the_card_that_rows_ran_on() -> None:
    assert campaigns({"gpu": "RTX-PRO-6000-Server"}).as_run(ROW).gpu == "RTX-PRO-6000-Server"
    assert campaigns({"precision": "fp8-block"}).as_run(replace(ROW, precision="fp8")).precision == "fp8-block"
    assert campaigns({"max_num_seqs": 4}).as_run(ROW).gpu == ROW.gpu


def test_stages_that_rows_ran_with_leave_the_other_gpus_to_tensor_parallelism() -> None:
    run = campaigns({"pp": 2}).as_run(replace(ROW, n_gpus=8, tp=1, pp=4, dp=2))
    assert (run.tp, run.pp, run.dp) == (2, 2, 2)


def test_every_shipped_fact_has_a_source_and_every_name_is_known() -> None:
    for fact in SHIPPED.facts:
        CATALOG.source(fact.source)
        assert fact.where
        assert not fact.gpu or CATALOG.gpu(fact.gpu)
    for gpu, link in SHIPPED.nvlink_bridges.items():
        assert CATALOG.gpu(gpu).id == gpu
        assert CATALOG.link(link).id == link


def test_a_client_that_a_rate_alone_holds_back_keeps_no_number_in_flight() -> None:
    known = campaigns({"rate_req_s": 2, "rate_alone": True})
    run = known.as_run(ROW)
    assert (run.load, run.concurrency, known.setup(run).rate_req_s) == ("constant", None, 2)


def test_one_sequence_is_read_as_such() -> None:
    known = campaigns({"one_sequence": True})
    row = replace(ROW, measured={"output_tok_s": 800.0, "total_tok_s": 200.0})
    run = known.as_run(row)
    assert (run.concurrency, run.max_num_batched_tokens, run.measured) == (1, 8, {"total_tok_s": 200.0})
    assert known.as_run(replace(row, source_key="other")) == replace(row, source_key="other")
