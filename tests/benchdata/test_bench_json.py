"""Results of `vllm bench serve` as rows."""

import json
from pathlib import Path
from typing import Any

import pytest

from sim.benchdata import BenchdataError, read_benchmarks

RESULT: dict[str, Any] = {
    "date": "20260102-030405",
    "backend": "vllm",
    "model_id": "meta-llama/Llama-3.1-8B-Instruct",
    "num_prompts": 200,
    "gpu": "rtx-4090",
    "tp": "2",
    "precision": "fp8",
    "version": "0.11.0",
    "request_rate": 4.0,
    "burstiness": 1.0,
    "max_concurrency": None,
    "duration": 55.2,
    "completed": 200,
    "total_input_tokens": 102400,
    "total_output_tokens": 25600,
    "request_throughput": 3.6,
    "output_throughput": 463.7,
    "total_token_throughput": 2318.8,
    "mean_ttft_ms": 91.2,
    "median_ttft_ms": 85.0,
    "p99_ttft_ms": 210.0,
    "mean_tpot_ms": 14.1,
    "median_tpot_ms": 14.0,
    "p99_tpot_ms": 19.0,
}
"""Keys as the client writes them; gpu, tp, precision and version are from its --metadata."""


def saved(folder: Path, name: str = "run", **changes: Any) -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(RESULT | changes))
    return path


def test_an_open_loop(tmp_path: Path) -> None:
    (row,) = read_benchmarks(saved(tmp_path))
    assert (row.id, row.gpu, row.model) == ("run", "rtx-4090", "meta-llama/Llama-3.1-8B-Instruct")
    assert (row.load, row.rate_req_s, row.num_requests, row.concurrency) == ("poisson", 4.0, 200, None)
    assert (row.isl, row.osl, row.tp, row.n_gpus, row.precision) == (512, 128, 2, 2, "fp8")
    assert row.engine_version == "0.11.0"
    assert row.measured["ttft_p50_ms"] == 85.0
    assert row.measured["total_tok_s"] == 2318.8
    assert "e2e_mean_ms" not in row.measured


@pytest.mark.parametrize(("limit", "load"), [(16, "closed_loop"), (None, "burst")])
def test_requests_sent_at_once(tmp_path: Path, limit: int | None, load: str) -> None:
    (row,) = read_benchmarks(saved(tmp_path, request_rate="inf", max_concurrency=limit))
    assert (row.load, row.concurrency, row.rate_req_s) == (load, limit, None)


def test_a_folder_of_results(tmp_path: Path) -> None:
    saved(tmp_path, "b")
    saved(tmp_path, "a")
    assert [row.id for row in read_benchmarks(tmp_path)] == ["a", "b"]


def test_mistakes_of_all_files_come_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"completed":\n}')
    (tmp_path / "b.json").write_text("[]")
    saved(tmp_path, "c", gpu=None)
    saved(tmp_path, "d", total_input_tokens="many")
    with pytest.raises(BenchdataError) as caught:
        read_benchmarks(tmp_path)
    assert [(Path(file).name, line, text) for file, line, text in caught.value.problems] == [
        ("a.json", 2, "is not JSON: expecting value"),
        ("b.json", 0, "is not a result of `vllm bench serve`: there is no 'completed' in it"),
        ("c.json", 0, "gpu is missing: set it with --about gpu=..., or with the client's --metadata gpu=..."),
        ("d.json", 0, "isl must be a number, not 'many'"),
    ]


def test_columns_missing_from_a_result_can_be_stated_as_options(tmp_path: Path) -> None:
    (row,) = read_benchmarks(saved(tmp_path, gpu=None, precision=None), {"gpu": "l40s", "precision": "bf16", "tp": "4"})
    assert (row.gpu, row.precision, row.tp, row.n_gpus) == ("l40s", "bf16", 4, 4)


def sglang_run(**changes: Any) -> dict[str, Any]:
    """Keys as sglang.bench_serving 0.5.23 writes them."""
    server = {"model_path": "Qwen/Qwen3-32B", "tp_size": 2, "pp_size": 1, "dp_size": 1, "version": "0.5.23"}
    server |= {"kv_cache_dtype": "fp8_e4m3", "max_running_requests": 128, "quantization": "w8a8_fp8"}
    return {
        "backend": "sglang", "request_rate": float("inf"), "max_concurrency": 16, "server_info": server,
        "duration": 60.0, "completed": 160, "total_input_tokens": 81920, "total_output_tokens": 20480,
        "output_throughput": 341.0, "total_throughput": 1706.0, "mean_e2e_latency_ms": 6000.0, "mean_ttft_ms": 200.0,
        "mean_tpot_ms": 40.0, "cache_report": {"cache_hit_rate_pct": 12.5}, **changes,
    }  # fmt: skip


def test_a_file_to_which_runs_were_appended(tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl").write_text("\n".join(json.dumps(sglang_run(max_concurrency=n)) for n in (4, 16)))
    (tmp_path / "sweep.json").write_text(json.dumps([RESULT, RESULT]))
    alone = read_benchmarks(tmp_path / "runs.jsonl", {"gpu": "l40s"})
    assert [(row.id, row.concurrency) for row in alone] == [("runs-1", 4), ("runs-2", 16)]
    assert [row.id for row in read_benchmarks(tmp_path, {"gpu": "l40s"})] == ["runs-1", "runs-2", "sweep-1", "sweep-2"]


def test_a_broken_run_among_appended_ones_is_named(tmp_path: Path) -> None:
    (tmp_path / "cut.jsonl").write_text(json.dumps(sglang_run()) + '\n{"completed":')
    (tmp_path / "one.jsonl").write_text("\n".join(map(json.dumps, (sglang_run(), sglang_run(completed=0)))))
    with pytest.raises(BenchdataError) as caught:
        read_benchmarks(tmp_path, {"gpu": "l40s"})
    assert [(Path(file).name, line, text) for file, line, text in caught.value.problems] == [
        ("cut.jsonl", 2, "is not JSON: expecting value"),
        ("one.jsonl", 0, "run 2: no request was answered"),
    ]


@pytest.mark.parametrize(("ranks", "tp"), [(1, 2), (2, None)])
def test_server_settings_reported_by_sglang_are_read(tmp_path: Path, ranks: int, tp: int | None) -> None:
    run = sglang_run()
    run["server_info"]["dp_size"] = ranks
    (tmp_path / "run.json").write_text(json.dumps(run))
    if ranks > 1:
        with pytest.raises(BenchdataError, match="2 data-parallel ranks: add --about dp=2 and --about tp="):
            read_benchmarks(tmp_path / "run.json", {"gpu": "l40s"})
    (row,) = read_benchmarks(tmp_path / "run.json", {"gpu": "l40s"} | ({"dp": "2"} if ranks > 1 else {}))
    assert (row.engine, row.engine_version, row.model, row.tp) == ("SGLang", "0.5.23", "Qwen/Qwen3-32B", tp)
    assert (row.kv_dtype, row.max_num_seqs, row.precision) == ("fp8_e4m3", 128 if tp else None, "fp8")
    assert (row.cached_share, row.measured["e2e_mean_ms"], row.measured["total_tok_s"]) == (0.125, 6000.0, 1706.0)


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(BenchdataError, match=r"holds no \*.json results"):
        read_benchmarks(tmp_path)
