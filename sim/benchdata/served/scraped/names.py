"""Names of the metrics that are read, and how they are spelled from where they were collected."""

import re
from functools import cache

ENGINES = {"vllm": "vLLM", "sglang": "SGLang"}
NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "vllm": {
        "prompt": ("request_prompt_tokens",),
        "output": ("request_generation_tokens",),
        "ttft": ("time_to_first_token_seconds",),
        "itl": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
        "e2e": ("e2e_request_latency_seconds",),
        "prompt_sum": ("prompt_tokens_total",),
        "begun_prompts": ("prompt_tokens_total",),
        "output_sum": ("generation_tokens_total",),
        "cached": ("prompt_tokens_cached_total",),  # out of the server's own cache and others'
        "hits": ("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
        "asked": ("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
        "hit_share": ("gpu_prefix_cache_hit_rate",),
        "running": ("num_requests_running",),
        "waiting": ("num_requests_waiting",),
        "drafts": ("spec_decode_num_drafts_total", "spec_decode_num_draft_tokens_total"),
        "settings": ("cache_config_info",),
    },
    "sglang": {
        "prompt": ("prompt_tokens_histogram",),
        "output": ("generation_tokens_histogram",),
        "ttft": ("time_to_first_token_seconds",),
        "itl": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
        "e2e": ("e2e_request_latency_seconds",),
        "prompt_sum": ("prompt_tokens_total",),
        "output_sum": ("generation_tokens_total",),
        "hits": ("cached_tokens_total",),
        "asked": ("prompt_tokens_total",),
        "hit_share": ("cache_hit_rate",),
        "running": ("num_running_reqs",),
        "waiting": ("num_queue_reqs",),
        "drafts": ("spec_verify_calls_total",),
        "accepted": ("spec_accept_length",),
    },
}
"""What is read -> names behind the engine's prefix, the newest first. vLLM counts a prompt with its first token, SGLang
when the answer has ended."""
HISTOGRAMS = ("prompt", "output", "ttft", "itl", "e2e")
CUMULATIVE = ("_bucket", "_count", "_sum", "_total")
"""Ends of names whose values only grow."""
SPELLING = re.compile(r"(?:ray_)?(vllm|sglang)[:_](\w+)")
"""Collectors that allow no colon write an underscore; Ray puts its own name before."""


@cache
def read_name(name: str) -> str | None:
    """The engine's own spelling of a metric that is read; None for any other.

    >>> read_name("ray_vllm_num_requests_running"), read_name("vllm:lora_requests_info")
    ('vllm:num_requests_running', None)
    """
    found = SPELLING.fullmatch(name)
    return f"{found[1]}:{found[2]}" if found and found[2] in _read(found[1]) else None


@cache
def _read(engine: str) -> frozenset[str]:
    whole = {name for what, names in NAMES[engine].items() if what not in HISTOGRAMS for name in names}
    parts = {f"{n}{end}" for what in HISTOGRAMS for n in NAMES[engine][what] for end in ("_bucket", "_count", "_sum")}
    return frozenset(whole | parts)
