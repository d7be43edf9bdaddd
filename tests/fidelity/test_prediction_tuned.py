"""Limits that trtllm-bench sets where nobody gives any."""

import pytest

from sim.benchdata.row import BenchRow
from sim.catalogue.catalog import load_catalog
from sim.fidelity.bench_scenario import trtllm_bench_limits
from sim.fidelity.names import match
from sim.fidelity.prediction import campaigns_of

CATALOG = load_catalog()
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
