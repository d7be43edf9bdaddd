"""Words of shell commands, and the options of servers in them."""

import pytest

from sim.answers.from_files.server_command import server_of
from sim.answers.from_files.shell import commands_in
from sim.answers.from_files.source import ServerDraft, SourceFile


def words(text: str) -> list[list[str]]:
    return [[word.text for word in command.words] for command in commands_in(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b \\\n  c", [["a", "b", "c"]]),
        ("a # b\nc", [["a"], ["c"]]),
        ("a 'b c' \"d e\"f", [["a", "b c", "d ef"]]),
        ("X=1; a $X ${X}2 ${Y:-3} '$X' $Z", [["a", "1", "12", "3", "$X", "$Z"]]),
        ("a --json '{\"k\":\n 1}' b", [["a", "--json", '{"k":\n 1}', "b"]]),
        ("a > log 2>&1 & b | tee c", [["a"], ["b"], ["tee", "c"]]),
        ("a && b || c", [["a"], ["b"], ["c"]]),
        ("a\\\r\n b\r\n", [["a", "b"]]),
    ],
)
def test_a_script_is_commands_of_words(text: str, expected: list[list[str]]) -> None:
    assert words(text) == expected


def server(text: str) -> tuple[ServerDraft | None, SourceFile, list[tuple[str, int, str]]]:
    source, problems = SourceFile("a", "server command"), []  # type: ignore[var-annotated]
    [command] = commands_in(text)
    return server_of(command, "a", source, problems), source, problems


@pytest.mark.parametrize(
    "start",
    [
        "vllm serve M",
        "exec nohup /opt/venv/bin/vllm serve M",
        "uv run vllm serve M",
        "python -m vllm.entrypoints.openai.api_server --model M",
        "sh -c 'vllm serve M --tensor_parallel_size 2'",
        "docker run -v /a:/b --rm vllm/vllm-openai:latest --model M",
        "podman run --gpus all lmsysorg/sglang:v0.5.4 python3 -m sglang.launch_server --model-path M",
        "sglang serve --model-path M",
    ],
)
def test_a_server_is_found_however_it_is_started(start: str) -> None:
    found, _, problems = server(f"{start} --tensor-parallel-size 2" if " -c " not in start else start)
    assert found is not None
    assert (found.model, found.keys, problems) == ("M", {"tensor_parallel_size": 2}, [])


def test_values_are_read_as_the_engine_reads_them() -> None:
    found, source, problems = server(
        "vllm serve M --max-model-len 32k --max-num-batched-tokens 8K --enable-chunked-prefill=False -O3 "
        "--kv-cache-dtype fp8_e4m3 --gpu_memory_utilization .9 "
        "--long-prefill-token-threshold auto --lora-modules a=b c=d"
    )
    assert found is not None
    assert found.keys == {"max_model_len": 32000, "kv_cache_dtype": "fp8_e4m3", "lora": {}}
    assert found.adapters == ["a", "c"]
    assert found.batching == {
        "max_num_batched_tokens": 8192,
        "enable_chunked_prefill": False,
        "gpu_memory_utilization": 0.9,
    }
    assert problems == []
    assert [one.split(" ")[0] for one in source.not_simulated] == ["--optimization-level"]


def test_slots_for_adapters_are_read_with_their_names() -> None:
    modules = """--lora-modules sql=/a '{"name": "chat", "path": "/b"}'"""
    found, _, problems = server(f"vllm serve M --enable-lora --max-loras 4 --max-lora-rank 32 {modules}")
    assert found is not None
    assert (found.keys["lora"], found.adapters, problems) == (
        {"max_loras": 4, "max_lora_rank": 32}, ["sql", "chat"], []
    )  # fmt: skip
    found, source, _ = server("vllm serve M --max-loras 4")
    assert found is not None
    assert "lora" not in found.keys
    assert source.not_simulated == ["max_loras (without --enable-lora)"]


def test_the_sizes_of_cuda_graphs_are_listed_as_not_simulated() -> None:
    for name in ("cudagraph-capture-sizes", "cuda-graph-sizes"):
        _, source, problems = server(f"vllm serve M --{name} 1 2 4 --max-cudagraph-capture-size 4")
        assert (source.not_simulated, problems) == ([f"--{name} (CUDA graphs of a stated size)"], [])


def test_an_unknown_option_is_listed_and_a_misspelt_one_is_refused() -> None:
    _, source, problems = server("vllm serve M --quantum-mode 3 --max-num-sequ 3 --max-num-seq 4 --my-secret-key x")
    assert source.not_simulated == ["--quantum-mode (unknown)"]
    assert source.secrets == ["--my-secret-key"]
    assert problems == [("a", 1, "unknown option --max-num-sequ; did you mean --max-num-seqs?")]


@pytest.mark.parametrize(
    ("start", "kernels", "read"),
    [
        ("vllm serve M --moe-backend", "FlashInfer-TRTLLM", "flashinfer_trtllm"),
        ("vllm serve M --moe-backend", "emulation", "emulation"),
        ("sglang serve --model-path M --moe-runner-backend", "humming", "humming"),
        ("vllm serve M --moe-backend", "of_a_later_release", None),
        ("vllm serve M --moe-backend", "megamoe", None),
        ("sglang serve --model-path M --fp8-gemm-backend", "of_a_later_release", None),
    ],
)
def test_kernels_of_experts_are_read_or_listed_as_not_simulated(start: str, kernels: str, read: str | None) -> None:
    found, source, problems = server(f"{start} {kernels}")
    assert found is not None
    assert (found.steptime.get("moe_backend"), bool(source.not_simulated), problems) == (read, read is None, [])
