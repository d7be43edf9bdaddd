"""Scenario keys of the roofline step-time model: server options that make steps or requests longer."""

from collections.abc import Mapping
from typing import Any, Literal

from sim.catalogue.engine import Engine
from sim.catalogue.gpu import Gpu
from sim.catalogue.model import Model
from sim.catalogue.value import Value
from sim.spec import Count, Positive, Spec, WholeNumber
from sim.steptime.coefficients import StepTimeCoefficients
from sim.steptime.inputs import known_overheads

Fp8GemmBackend = Literal[
    "auto",
    "deep_gemm",
    "flashinfer_trtllm",
    "flashinfer_cutlass",
    "flashinfer_deepgemm",
    "flashinfer_cutedsl",
    "cutlass",
    "triton",
    "aiter",
]
"""Values of SGLang's --fp8-gemm-backend, 0.5.5 to 0.5.23 (srt/server_args.py)."""
VllmMoeBackend = Literal[
    "auto",
    "triton",
    "triton_unfused",
    "batched_triton",
    "deep_gemm",
    "deep_gemm_mega_moe",
    "cutlass",
    "flashinfer_trtllm",
    "flashinfer_cutlass",
    "flashinfer_cutedsl",
    "flashinfer_b12x",
    "b12x",
    "marlin",
    "humming",
    "aiter",
    "flydsl",
    "hpc",
    "emulation",
]
"""Values of vLLM's --moe-backend (config/kernel.py)."""
SglangMoeBackend = Literal[
    "auto",
    "deep_gemm",
    "megamoe",
    "triton",
    "triton_kernel",
    "flashinfer_trtllm",
    "flashinfer_trtllm_routed",
    "experimental_sgl_trtllm",
    "flashinfer_cutlass",
    "flashinfer_mxfp4",
    "flashinfer_cutedsl",
    "cutlass",
    "marlin",
    "experimental_sgl_marlin",
    "humming",
    "aiter",
    "hpc_ops",
    "intel_xpu",
]
"""Values of SGLang's --moe-runner-backend (srt/server_args.py, 0.5.5 and later)."""
TensorRtMoeBackend = Literal[
    "AUTO",
    "CUTLASS",
    "CUTEDSL",
    "WIDEEP",
    "TRTLLM",
    "DEEPGEMM",
    "DENSEGEMM",
    "MEGAMOE_DEEPGEMM",
    "MARLIN",
    "VANILLA",
    "TRITON",
]
"""Values of TensorRT-LLM's moe_config.backend (llmapi/llm_args.py, 1.2 and later)."""
MoeBackend = Literal[VllmMoeBackend, SglangMoeBackend, TensorRtMoeBackend]
BACKENDS: Mapping[str, Mapping[str, Any]] = {
    "moe_backend": {"vllm": VllmMoeBackend, "sglang": SglangMoeBackend, "tensorrt-llm": TensorRtMoeBackend},
    "fp8_gemm_backend": {"sglang": Fp8GemmBackend},
}
"""Key of `Roofline` -> family of an engine -> type of the kernels that its servers can state."""


class Roofline(Spec):
    """Roofline step-time model: computed from the model, the GPU, the engine and the link between the GPUs."""

    model: Literal["roofline"] = "roofline"
    host_factor: Positive = 1.0
    """Host time per step, sequence, prompt token and request relative to the usual server's; servers differ by up to a
    factor of 3."""
    in_process: bool = False
    """True if the engine is called as a library, without an API server that streams the tokens."""
    one_process: bool = False
    """True if the API server shares the engine's process: vLLM's V0 engine with --disable-frontend-multiprocessing."""
    sorts_logits: bool = False
    """True if requests use top-p, for which the engine sorts all logits: vLLM's sampler before 0.16."""
    penalizes_logits: bool = False
    """True if requests have repetition, presence or frequency penalties, for which the engine counts the tokens of each
    sequence over the vocabulary in every step: vLLM's first model runner."""
    chat_template: bool = False
    """True if requests are chats, for which the API server applies the model's chat template."""
    cuda_graphs: bool = True
    """True if steps run from CUDA graphs; if false, the host launches every kernel of a step, as with vLLM's
    --enforce-eager."""
    graph_tokens: WholeNumber | None = None
    """Maximum tokens of a step with prompts that runs from CUDA graphs, in vLLM also of one without
    (--max-cudagraph-capture-size); 0: no step with prompts does; None: the engine's default."""
    stream_interval: Count = 1
    """Tokens of a sequence that the engine passes to its API server at once, after the first: SGLang's and vLLM's
    --stream-interval, TensorRT-LLM's stream_interval."""
    fp8_gemm_backend: Fp8GemmBackend | None = None
    """Kernel of dense products in fp8 by blocks (SGLang's --fp8-gemm-backend); kernels that the engine's
    `dense_kernels` lack are computed as its default one; None: the default one."""
    moe_backend: MoeBackend | None = None
    """Kernels of products over experts: SGLang's --moe-runner-backend, vLLM's --moe-backend, TensorRT-LLM's
    moe_config.backend. Kernels that the engine's `fast_experts` lack are computed as its usual ones; None: the engine
    chooses."""

    def values(self, coefficients: StepTimeCoefficients) -> dict[str, Value]:
        """Return the coefficients that the selected options use, by name in data/steptime.yaml."""
        chosen = {
            "one_process_host_time_factor": self.one_process and not self.in_process,
            "sorting_bytes_per_logit": self.sorts_logits,
            "penalty_bytes_per_logit": self.penalizes_logits,
            "launch_layer_s": not self.cuda_graphs,
        }
        known = {name: getattr(coefficients, name) for name, is_chosen in chosen.items() if is_chosen}
        return {name: value for name, value in known.items() if value is not None}

    def request_overhead_s(self, engine: Engine, model: Model, tensor_parallel_size: int, gpu: Gpu) -> float:
        """Return the API-server time before a request's first token, which does not block the engine [s].

        Notes
        -----
        per_request_s * host_factor, times tp_request_factor with tensor parallelism, moe_request_factor for mixtures of
        experts and hopper_request_factor on Hopper servers; 0 in process.

        """
        if self.in_process:
            return 0.0
        overheads = known_overheads(engine)
        factor = overheads.tp_request_factor.value if tensor_parallel_size > 1 else 1.0
        if model.moe is not None:
            factor *= overheads.moe_request_factor.value
        if gpu.hopper and overheads.hopper_request_factor is not None:
            factor *= overheads.hopper_request_factor.value
        return overheads.per_request_s.value * factor * self.host_factor

    def tokenising_s(self, engine: Engine) -> float:
        """Return the API-server time before a request's first token per token of its prompt [s]; 0 in process."""
        tokenising = known_overheads(engine).tokenising_s
        return 0.0 if self.in_process or tokenising is None else tokenising.value * self.host_factor

    def intake_s(self, engine: Engine) -> float:
        """Return the API-server time per request before the engine gets it, while other requests wait [s]."""
        reading = known_overheads(engine).chat_template_s
        if self.in_process or not self.chat_template or reading is None:
            return 0.0
        return reading.value * self.host_factor

    def turn_s(self, engine: Engine) -> float:
        """Return the API-server time between the arrivals at the engine of requests that arrive together [s]."""
        turn = known_overheads(engine).request_turn_s
        return 0.0 if self.in_process or turn is None else turn.value * self.host_factor
