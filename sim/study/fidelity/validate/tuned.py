"""Limits that trtllm-bench sets where nobody gives any (tensorrt_llm/bench/build/tuning.py, 04cba88)."""

from math import ceil

from sim.catalogue.entries.model import kv_bytes_per_token, params_total
from sim.catalogue.entries.quantization import kv_element_bytes
from sim.study.fidelity.validate.names import Names
from sim.units import BITS_PER_BYTE

CACHE_SHARE = 0.95
"""Of the memory beside the weights."""
MOST_REQUESTS, MOST_TOKENS, LEAST_REQUESTS, LEAST_TOKENS = 4096, 32768, 64, 2048
BITS_BY_FORMAT = (("nvfp4", 4.0), ("fp8", 8.0), ("mxfp4", 8.5))
"""Of a weight; the tool does not know mxfp4: two bytes for each stored byte, of two weights, and for each scale."""


def trtllm_bench_limits(names: Names, gpus: int, stages: int, prompt: float, answer: float) -> tuple[int, int]:
    """(requests that run in all *stages* together, tokens of a step) for *prompt* and *answer* tokens a request.

    A step never has fewer tokens than requests run, as our limits want it; the tool's hold for each batch in flight.
    """
    running = min(_requests_in_cache(names, gpus, prompt + answer), MOST_REQUESTS) / stages
    tokens = min(running * (1 + prompt / answer), MOST_TOKENS)
    requests = stages * _rounded(running, ((256, 32), (1024, 128)), 256, LEAST_REQUESTS)
    return requests, max(requests, _rounded(tokens, ((4096, 256), (8192, 512)), 1024, LEAST_TOKENS))


def _requests_in_cache(names: Names, gpus: int, tokens: float) -> float:
    """Requests of so many *tokens* that fit beside the weights, as the tool estimates it."""
    native = names.model.native_quantization or names.model.native_dtype
    stored = native if names.quantization == "none" else names.quantization
    bits = next((bits for start, bits in BITS_BY_FORMAT if stored.startswith(start)), 16)
    left = names.gpu.memory_bytes.value * gpus - params_total(names.model) * bits / BITS_PER_BYTE
    return left * CACHE_SHARE / (kv_bytes_per_token(names.model, kv_element_bytes(names.kv_cache_dtype)) * tokens)


def _rounded(value: float, steps: tuple[tuple[int, int], ...], otherwise: int, least: int) -> int:
    """*value* up to a multiple: of the second of the first of *steps* whose first it is below; at least *least*."""
    multiple = next((multiple for below, multiple in steps if value < below), otherwise)
    return max(least, multiple * ceil(value / multiple))
