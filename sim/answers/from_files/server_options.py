"""Options of vLLM's and SGLang's servers, and the scenario keys that they map to.

An option is known by its long name with dashes. `Option.key` is a key of a pool, or of its `batching`, `steptime` or
`lora` with the prefix `batching.`, `steptime.` or `lora.`; options without a key are listed as not simulated, or are
harmless: they change no latency and no cost.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

OptionKind = Literal["count", "number", "text", "flag", "off", "tokens"]
"""Kind of value. flag: the option alone means true; off: it means false; tokens: a count such as 32k."""


@dataclass(frozen=True, slots=True)
class Option:
    """Option of a server."""

    kind: OptionKind
    key: str = ""
    """Key of a scenario; empty if the option has none."""
    why: str = ""
    """Effect of an option that is not simulated, without a key or with an unknown value; empty if it has no effect."""
    secret: bool = False
    """True if the value is a secret."""


def _count(key: str) -> Option:
    return Option("count", key)


def _flag(key: str) -> Option:
    return Option("flag", key)


def _off_switch(key: str) -> Option:
    return Option("off", key)


def _left(kind: OptionKind, why: str) -> Option:
    return Option(kind, why=why)


def _harmless(kind: OptionKind, *names: str) -> dict[str, Option]:
    return {name: Option(kind) for name in names}


SECRET = Option("text", secret=True)
BATCHING = "batching."
LORA = "lora."
STEPTIME = "steptime."
MOE_BACKEND, FP8_BACKEND = STEPTIME + "moe_backend", STEPTIME + "fp8_gemm_backend"
KERNELS = MOE_BACKEND, FP8_BACKEND
"""Keys of kernels, to which releases of the engines add names."""
MODEL, PRECISION = "model", "quantization"
SETTINGS = "a file of options; name its options in the command"
ROLE = "role"
"""Key that stands for the role of a pool: prefill or decode."""
NODES = "nodes"
"""Key that stands for the number of hosts of a replica."""

_PARALLEL = {
    "tensor-parallel-size": _count("tensor_parallel_size"),
    "pipeline-parallel-size": _count("pipeline_parallel_size"),
    "data-parallel-size": _count("data_parallel_size"),
    "kv-cache-dtype": Option("text", "kv_cache_dtype"),
    "cpu-offload-gb": Option("number", "cpu_offload_gb"),
    "quantization": Option("text", PRECISION),
    "dtype": Option("text", "dtype"),
    "api-key": SECRET,
    "hf-token": SECRET,
    "speculative-config": _left(
        "text", "speculative decoding; its acceptance is not in the command (see batching.speculative)"
    ),
}

VLLM: dict[str, Option] = {
    **_PARALLEL,
    "model": Option("text", MODEL),
    "model-id": Option("text", MODEL),
    "is-prefill-worker": _flag(f"{ROLE}.prefill"),
    "is-decode-worker": _flag(f"{ROLE}.decode"),
    "disaggregation-mode": Option("text", ROLE),
    "enable-expert-parallel": _flag("enable_expert_parallel"),
    "no-enable-expert-parallel": _off_switch("enable_expert_parallel"),
    "max-model-len": Option("tokens", "max_model_len"),
    "max-num-seqs": _count(BATCHING + "max_num_seqs"),
    "max-num-batched-tokens": Option("tokens", BATCHING + "max_num_batched_tokens"),
    "gpu-memory-utilization": Option("number", BATCHING + "gpu_memory_utilization"),
    "block-size": _count(BATCHING + "block_size"),
    "num-gpu-blocks-override": _count(BATCHING + "num_gpu_blocks"),
    "enable-prefix-caching": _flag(BATCHING + "enable_prefix_caching"),
    "no-enable-prefix-caching": _off_switch(BATCHING + "enable_prefix_caching"),
    "enable-chunked-prefill": _flag(BATCHING + "enable_chunked_prefill"),
    "no-enable-chunked-prefill": _off_switch(BATCHING + "enable_chunked_prefill"),
    "long-prefill-token-threshold": _count(BATCHING + "long_prefill_token_threshold"),
    "async-scheduling": _flag(BATCHING + "async_scheduling"),
    "no-async-scheduling": _off_switch(BATCHING + "async_scheduling"),
    "scheduling-policy": Option("text", BATCHING + "scheduling"),
    "speculative-model": _left("text", "speculative decoding"),
    "num-speculative-tokens": _left("count", "speculative decoding"),
    "enforce-eager": _off_switch(STEPTIME + "cuda_graphs"),
    "compilation-config": _left("text", "compilation"),
    "optimization-level": _left("text", "compilation"),
    "max-num-partial-prefills": _left("count", "several long prompts at once"),
    "max-long-partial-prefills": _left("count", "several long prompts at once"),
    "disable-sliding-window": _left("flag", "attention over the whole context"),
    "enable-lora": _flag(LORA + "enabled"),
    "max-loras": _count(LORA + "max_loras"),
    "max-lora-rank": _count(LORA + "max_lora_rank"),
    "max-cpu-loras": _count(LORA + "max_cpu_loras"),
    "lora-modules": Option("text", LORA + "modules"),
    "fully-sharded-loras": _left("flag", "adapters split over all GPUs"),
    "lora-dtype": _left("text", "numbers of another width"),
    "kv-transfer-config": Option("text", ROLE),
    "kv-events-config": Option("text"),
    "kv-offloading-size": _left("number", "KV in host memory (see kv_tiers of a pool)"),
    "kv-offloading-backend": _left("text", "KV in host memory (see kv_tiers of a pool)"),
    "swap-space": Option("number"),
    "decode-context-parallel-size": _left("count", "KV split over GPUs along the context"),
    "prefill-context-parallel-size": _left("count", "prompts split over GPUs along the context"),
    "data-parallel-size-local": Option("count"),
    "data-parallel-rank": Option("count"),
    "data-parallel-start-rank": Option("count"),
    "data-parallel-address": Option("text"),
    "data-parallel-rpc-port": Option("count"),
    "data-parallel-backend": Option("text"),
    "api-server-count": _left("count", "several API servers"),
    "enable-dbo": _left("flag", "overlap of two half batches"),
    "enable-eplb": _left("flag", "balancing of experts"),
    "eplb-config": _left("text", "balancing of experts"),
    "all2all-backend": _left("text", "kernels of expert parallelism"),
    "attention-backend": _left("text", "choice of the attention kernel"),
    "hf-overrides": _left("text", "changes of the model's config"),
    "rope-scaling": _left("text", "changes of the model's config"),
    "rope-theta": _left("number", "changes of the model's config"),
    "limit-mm-per-prompt": _left("text", "images and audio"),
    "mm-processor-kwargs": _left("text", "images and audio"),
    "mm-encoder-tp-mode": _left("text", "images and audio"),
    "mm-processor-cache-gb": _left("number", "images and audio"),
    "stream-interval": _count(STEPTIME + "stream_interval"),
    "num-scheduler-steps": _left("count", "several steps per scheduling (vLLM V0)"),
    "disable-hybrid-kv-cache-manager": _left("flag", "KV blocks of one size for all layers"),
    "no-disable-hybrid-kv-cache-manager": Option("flag"),
    "dbo-decode-token-threshold": _left("count", "overlap of two half batches"),
    "moe-backend": Option("text", MOE_BACKEND, "kernels of the experts"),
    "kv-cache-memory-bytes": _left("text", "a KV cache of a stated size"),
    "nnodes": _count(NODES),
    "enable-ep-weight-filter": Option("flag"),
    "language-model-only": Option("flag"),
    "numa-bind": Option("flag"),
    "dyn-enable-structural-tag": Option("flag"),
    "max-cudagraph-capture-size": _count(STEPTIME + "graph_tokens"),
    "cudagraph-capture-sizes": _left("text", "CUDA graphs of a stated size"),
    "cuda-graph-sizes": _left("text", "CUDA graphs of a stated size"),
    "attention-config": _left("text", "choice of the attention kernel"),
    "prefix-cache-retention-interval": _left("count", "cached states at stated intervals"),
    "config": _left("text", SETTINGS),
    "task": Option("text"),
    "runner": Option("text"),
    **_harmless(
        "text",
        *("served-model-name", "host", "port", "uds", "tokenizer", "tokenizer-mode", "tokenizer-revision"),
        *("revision", "code-revision", "download-dir", "load-format", "config-format", "model-impl", "seed"),
        *("chat-template", "chat-template-content-format", "response-role", "tool-call-parser"),
        *("tool-parser-plugin", "reasoning-parser", "guided-decoding-backend", "structured-outputs-config"),
        *("ssl-keyfile", "ssl-certfile", "ssl-ca-certs", "ssl-cert-reqs", "root-path"),
        *("middleware", "uvicorn-log-level", "log-config-file", "allowed-origins", "allowed-methods"),
        *("allowed-headers", "max-log-len", "max-logprobs", "logits-processors"),
        *("hf-config-path", "distributed-executor-backend", "worker-cls", "worker-extension-cls", "device"),
        *("otlp-traces-endpoint", "collect-detailed-traces", "generation-config"),
        *("override-generation-config", "default-chat-template-kwargs", "model-loader-extra-config"),
        *("ignore-patterns", "max-parallel-loading-workers", "allowed-local-media-path"),
        *("allowed-media-domains", "media-io-kwargs", "node-rank", "master-addr", "master-port"),
        *(
            "disable-access-log-for-endpoints",
            "additional-config",
            "prefix-caching-hash-algo",
            "preemption-mode",
            "max-seq-len-to-capture",
        ),
        *("scheduler-cls", "safetensors-load-strategy", "h11-max-incomplete-event-size"),
        *("h11-max-header-count", "exclude-log-deltas", "model-name", "model-dir", "connector", "migration-limit"),
        *("dyn-tool-call-parser", "dyn-reasoning-parser", "endpoint", "custom-jinja-template", "request-plane"),
    ),
    **_harmless(
        "flag",
        *("trust-remote-code", "disable-log-requests", "no-disable-log-requests", "enable-log-requests"),
        *("no-enable-log-requests", "disable-log-stats", "disable-uvicorn-access-log"),
        *("enable-auto-tool-choice", "enable-reasoning", "enable-prompt-tokens-details"),
        *("enable-server-load-tracking", "enable-request-id-headers", "return-tokens-as-token-ids"),
        *("disable-frontend-multiprocessing", "enable-ssl-refresh", "allow-credentials"),
        *("disable-fastapi-docs", "enable-force-include-usage", "enable-log-outputs", "headless"),
        *("ray-workers-use-nsight", "use-tqdm-on-load", "disable-custom-all-reduce", "skip-tokenizer-init"),
        *("skip-mm-profiling", "enable-sleep-mode", "calculate-kv-scales"),
        *("show-hidden-metrics-for-version", "disable-cascade-attn", "log-error-stack"),
        *("disable-async-output-proc", "enable-prompt-embeds", "enable-tokenizer-info-endpoint"),
        *("use-v2-block-manager", "allow-deprecated-quantization", "enable-offline-docs", "data-parallel-hybrid-lb"),
        *("data-parallel-external-lb", "kv-sharing-fast-prefill"),
    ),
}
"""Options of `vllm serve`."""
VLLM_SHORT = {
    "tp": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "dp": "data-parallel-size",
    "ep": "enable-expert-parallel",
    "q": "quantization",
    "cc": "compilation-config",
    "O": "optimization-level",
    "dcp": "decode-context-parallel-size",
    "pcp": "prefill-context-parallel-size",
    "sc": "speculative-config",
    "asc": "api-server-count",
    "dpl": "data-parallel-size-local",
    "dpa": "data-parallel-address",
    "dpp": "data-parallel-rpc-port",
    "dpb": "data-parallel-backend",
    "dpr": "data-parallel-start-rank",
    "n": "nnodes",
    "r": "node-rank",
}
"""Short names of options of `vllm serve`."""

SGLANG: dict[str, Option] = {
    **_PARALLEL,
    "model-path": Option("text", MODEL),
    "expert-parallel-size": _count("expert_parallel"),
    "context-length": Option("tokens", "max_model_len"),
    "max-running-requests": _count(BATCHING + "max_num_seqs"),
    "max-prefill-tokens": Option("tokens", BATCHING + "max_num_batched_tokens"),
    "chunked-prefill-size": Option("tokens", BATCHING + "chunked_prefill_size"),
    "mem-fraction-static": Option("number", BATCHING + "gpu_memory_utilization"),
    "schedule-policy": Option("text", BATCHING + "schedule_policy"),
    "schedule-conservativeness": Option("number", BATCHING + "schedule_conservativeness"),
    "page-size": _count(BATCHING + "block_size"),
    "disable-radix-cache": _off_switch(BATCHING + "enable_prefix_caching"),
    "enable-mixed-chunk": _flag(BATCHING + "enable_mixed_chunk"),
    "disable-overlap-schedule": _off_switch(BATCHING + "overlap_schedule"),
    "max-queued-requests": _count(BATCHING + "max_queued_requests"),
    "scheduler-recv-interval": _count(BATCHING + "scheduler_recv_interval"),
    "mamba-full-memory-ratio": Option("number", BATCHING + "mamba_full_memory_ratio"),
    "max-mamba-cache-size": _count(BATCHING + "max_mamba_cache_size"),
    "mamba-ssm-dtype": Option("text", BATCHING + "mamba_ssm_dtype"),
    "admin-api-key": SECRET,
    "max-total-tokens": _left("count", "a KV cache of a stated size"),
    "enable-dp-attention": _left("flag", "attention split by requests among the GPUs of a replica"),
    "dp-attention": _left("flag", "attention split by requests among the GPUs of a replica"),
    "moe-dense-tp-size": _left("count", "feed-forward blocks split in another way"),
    "enable-dp-lm-head": _left("flag", "attention split by requests among the GPUs of a replica"),
    "disable-cuda-graph": _off_switch(STEPTIME + "cuda_graphs"),
    "cuda-graph-max-bs": _left("count", "CUDA graphs of a stated size"),
    "cuda-graph-max-bs-decode": _left("count", "CUDA graphs of a stated size"),
    "cuda-graph-bs": _left("text", "CUDA graphs of a stated size"),
    "enable-torch-compile": _left("flag", "compilation"),
    "torch-compile-max-bs": _left("count", "compilation"),
    "fp8-gemm-backend": Option("text", FP8_BACKEND, "kernels of dense products"),
    "attention-backend": _left("text", "choice of the attention kernel"),
    "prefill-attention-backend": _left("text", "choice of the attention kernel"),
    "decode-attention-backend": _left("text", "choice of the attention kernel"),
    "moe-runner-backend": Option("text", MOE_BACKEND, "kernels of the experts"),
    "moe-a2a-backend": _left("text", "kernels of expert parallelism"),
    "deepep-mode": _left("text", "kernels of expert parallelism"),
    "enable-two-batch-overlap": _left("flag", "overlap of two half batches"),
    "enable-eplb": _left("flag", "balancing of experts"),
    "ep-num-redundant-experts": _left("count", "balancing of experts"),
    "disaggregation-mode": Option("text", ROLE),
    "disaggregation-transfer-backend": Option("text"),
    "disaggregation-ib-device": Option("text"),
    "enable-hierarchical-cache": _left("flag", "KV in host memory (see kv_tiers of a pool)"),
    "hicache-ratio": _left("number", "KV in host memory (see kv_tiers of a pool)"),
    "hicache-size": _left("number", "KV in host memory (see kv_tiers of a pool)"),
    "enable-lora": _left("flag", "LoRA adapters (see lora of a pool)"),
    "lora-paths": _left("text", "LoRA adapters (see lora of a pool)"),
    "max-loras-per-batch": _left("count", "LoRA adapters (see lora of a pool)"),
    "speculative-algorithm": _left(
        "text", "speculative decoding; its acceptance is not in the command (see batching.speculative)"
    ),
    "speculative-draft-model-path": _left("text", "speculative decoding"),
    "speculative-num-steps": _left("count", "speculative decoding"),
    "speculative-eagle-topk": _left("count", "speculative decoding"),
    "speculative-num-draft-tokens": _left("count", "speculative decoding"),
    "stream-interval": _count(STEPTIME + "stream_interval"),
    "json-model-override-args": _left("text", "changes of the model's config"),
    "nnodes": _count(NODES),
    "config": _left("text", SETTINGS),
    "load-balance-method": Option("text"),
    "enable-priority-scheduling": _left("flag", "priorities (see scheduling of batching)"),
    **_harmless(
        "text",
        *("host", "port", "served-model-name", "tokenizer-path", "tokenizer-mode", "revision"),
        *("download-dir", "load-format", "chat-template", "tool-call-parser", "reasoning-parser"),
        *("grammar-backend", "sampling-backend", "random-seed", "log-level", "log-level-http"),
        *("file-storage-path", "watchdog-timeout", "dist-init-addr", "node-rank", "nccl-port"),
        *("base-gpu-id", "gpu-id-step", "device", "weight-version", "dist-timeout", "crash-dump-folder"),
        *("model-loader-extra-config", "decode-log-interval", "dist-backend", "ssl-keyfile"),
        *("ssl-certfile", "show-time-cost", "bucket-time-to-first-token", "warmups"),
        *("constrained-json-whitespace-pattern", "completion-template", "preferred-sampling-params"),
        *("tokenizer-worker-num", "kv-events-config", "dyn-tool-call-parser", "dyn-reasoning-parser"),
    ),
    **_harmless(
        "flag",
        *("trust-remote-code", "enable-metrics", "log-requests", "skip-server-warmup", "skip-tokenizer-init"),
        *("enable-cache-report", "disable-custom-all-reduce", "enable-p2p-check", "enable-nccl-nvls"),
        *("enable-memory-saver", "enable-metrics-for-all-schedulers", "allow-auto-truncate"),
        *(
            "is-embedding",
            "enable-multimodal",
            "enable-request-time-stats-logging",
            "enable-flashinfer-allreduce-fusion",
        ),
        *("enable-deterministic-inference", "disable-cuda-graph-padding"),
        *("enable-symm-mem", "triton-attention-reduce-in-fp32", "use-ray", "enable-nan-detection"),
        *("sleep-on-idle", "dyn-enable-structural-tag"),
    ),
}
"""Options of `python -m sglang.launch_server`."""
SGLANG_OTHER = {
    "model": "model-path",
    "tp": "tensor-parallel-size",
    "tp-size": "tensor-parallel-size",
    "pp-size": "pipeline-parallel-size",
    "pp": "pipeline-parallel-size",
    "dp-size": "data-parallel-size",
    "dp": "data-parallel-size",
    "ep-size": "expert-parallel-size",
    "ep": "expert-parallel-size",
    "max-model-len": "context-length",
}
"""Other names of options of SGLang."""

FORMATS = {
    "awq_marlin": "awq",
    "gptq_marlin": "gptq",
    "fbgemm_fp8": "fp8",
    "ptpc_fp8": "fp8",
    "modelopt_fp4": "nvfp4",
    "modelopt_fp8": "fp8",
    "w8a8_fp8": "fp8",
    "w8a8_int8": "int8-w8a8",
    "compressed-tensors": "",
    "compressed_tensors": "",
    "modelopt": "",
    "quark": "",
    "auto-round": "",
    "none": "",
    "null": "",
}
"""Engine's name of a weight format -> id in the catalogue; empty: the checkpoint states the format."""
SECRET_VARIABLE = ("token", "key", "secret", "password", "passwd", "credential")
"""Parts of the names of environment variables that hold secrets."""
HARMLESS_VARIABLES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
"""Environment variables that select the GPUs of a server."""


def options_of(engine: str, keys: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the options of a server for *keys*, and the keys that no option expresses.

    Parameters
    ----------
    engine
        Family of the engine: vllm or sglang.
    keys
        Values under the keys of a pool, those of its `batching` with the prefix `batching.`, and so on.

    Examples
    --------
    >>> options_of("vllm", {"tensor_parallel_size": 4, "batching.enable_prefix_caching": False, "server": "dgx-h100"})
    ({'tensor-parallel-size': '4', 'no-enable-prefix-caching': ''}, {'server': 'dgx-h100'})

    """
    table = VLLM if engine == "vllm" else SGLANG
    names: dict[tuple[str, str], str] = {
        (one.key, one.kind): name
        for name, one in table.items()
        if one.key not in ("", MODEL, NODES, PRECISION, "dtype")
    }
    options: dict[str, str] = {}
    left: dict[str, Any] = {}
    for key, value in keys.items():
        kinds = ("flag" if value else "off",) if isinstance(value, bool) else ("count", "number", "text", "tokens")
        name = next((names[key, kind] for kind in kinds if (key, kind) in names), None)
        if name is None or isinstance(value, dict | list | tuple):
            left[key] = value
        else:
            options[name] = "" if isinstance(value, bool) else str(value)
    return options, left


def format_name(engine: str, known: Mapping[str, str]) -> str:
    """Return the engine's name for the first weight format in *known* that the engine supports; empty if there is none.

    *known* maps names of formats that an engine understands to ids of the catalogue, or to empty text.
    """
    own = ("fp8", "awq", "gptq", "bitsandbytes", *FORMATS)
    others = ("w8a8_fp8", "w8a8_int8") if engine == "vllm" else ("fbgemm_fp8", "ptpc_fp8")
    return next((name for name in own if known.get(FORMATS.get(name, name)) and name not in others), "")
