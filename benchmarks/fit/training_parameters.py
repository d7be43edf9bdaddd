"""Parameters of the training fit: prior values, widths of their logarithms, and their effect on a row's rates."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from math import exp
from typing import Any

from sim.catalogue.gpu import Gpu
from sim.catalogue.value import Value
from sim.fidelity.training_rows import TrainingCase
from sim.training.figures import (
    GpuFigures,
    LinkRule,
    NetworkFigures,
    StackFigures,
    TrainingData,
    TrainingFigures,
    needs_new_kernels,
    speeds_up_experts,
)

PRIORS: dict[str, tuple[float, float]] = {
    "attention": (1.6, 0.3),
    "older_attention": (1.8, 0.25),
    "fp8_attention": (0.7, 0.2),
    "recompute": (1.0, 0.25),
    "expert": (1.8, 0.4),
    "expert_exposed": (0.6, 0.4),
    "fp8": (1.25, 0.2),
    "fp4": (1.5, 0.3),
    "fp32": (1.1, 0.2),
    "network_efficiency": (0.6, 0.3),
    "link": (1.3, 0.2),
    "gpu_compute": (1.0, 0.25),
    "gpu_conv": (1.0, 0.2),
    "arch_conv": (1.0, 0.2),
    "gpu_memory": (1.0, 0.08),
    "arch_compute": (1.0, 0.3),
    "arch_memory": (1.0, 0.12),
}
STACK_PRIORS = {"compute": 1.15, "stream": 3.0, "layer": 500e-6, "step": 15e-3, "exposed": 0.2, "tensor": 0.6}
ALL_WIDTHS = {"compute": 0.2, "stream": 0.4, "layer": 0.5, "step": 0.5, "exposed": 0.4, "tensor": 0.4}
"""Widths of the parameters that all stacks share."""
STACK_WIDTHS = {"compute": 0.25, "stream": 0.4, "layer": 0.5, "step": 0.6, "exposed": 0.4, "tensor": 0.6}
"""Widths of a stack's deviation from the shared parameters."""
OWN_PRIORS = {"tensor:nemo": 0.35, "arch_compute:CDNA 3": 0.53}
"""Priors of single stacks and architectures. Transformer Engine hides tensor-parallel exchange (its user buffers).
Large products of CDNA 3 reach 0.54 (MI300X) and 0.64 (MI325X) of the peak (ROCm blog "Measuring Max-Achievable FLOPs",
part 2), and 0.29 and 0.34 in data/steptime.yaml, which is fitted to serving.
"""
NETWORK_PRIORS = {"net_stream": 1.0, "net_compute": 1.0}
NETWORK_WIDTHS = {"net_stream": 0.7, "net_compute": 0.7}
LINKS = ("nvlink5*", "nvlink*bridge*", "nvlink*", "pcie*-no-p2p", "pcie*", "*")
STACKS = (
    "megatron-2021",
    "nemo",
    "mlperf-2022",
    "mlperf-2023",
    "mlperf-2024",
    "fsdp",
    "fsdp-qlora",
    "huggingface",
    "litgpt",
    "llmq",
    "ngc-2020",
    "ngc-2022",
    "ngc-2024",
    "pytorch",
)
EXPONENT = 2.5


def parameters_of(case: TrainingCase, data: TrainingData) -> dict[str, tuple[tuple[str, int], ...]]:
    """Return the parameters to which each field of Rates is proportional (1) or inversely proportional (-1)."""
    job, stack, gpu, network = case.job, case.stack, case.job.gpu.id, case.job.network
    own = network.id in OWN_NETWORKS
    precision = {"fp8": "fp8", "nvfp4": "fp4", "fp32": "fp32", "tf32": "fp32"}.get(job.precision)
    arch = architecture_of(job.gpu)
    kind = "conv" if network.convolutional else "compute"
    compute = ((f"gpu_{kind}:{gpu}", -1), (f"arch_{kind}:{arch}", -1), (f"compute:{stack}", -1), ("compute:", -1))
    matrix = compute + (((f"net_compute:{network.id}", -1),) if own else ()) + (((precision, -1),) if precision else ())
    found: dict[str, tuple[tuple[str, int], ...]] = {
        "matrix_flop_per_s": matrix,
        "plain_flop_per_s": compute,
        "expert_flop_per_s": matrix if speeds_up_experts(job.gpu, job.precision) else compute,
        "bytes_per_s": ((f"gpu_memory:{gpu}", -1), (f"arch_memory:{arch}", -1)),
        "stream_time_factor": ((f"stream:{stack}", 1), ("stream:", 1))
        + (((f"net_stream:{network.id}", 1),) if own else ()),
        "layer_s": ((f"layer:{stack}", 1), ("layer:", 1)),
        "step_s": ((f"step:{stack}", 1), ("step:", 1)),
    }
    if network.is_transformer:
        older = data.stacks[stack].older_attention and needs_new_kernels(job.gpu)
        found["attention_time_factor"] = (("attention", 1), ("older_attention", 1)) if older else (("attention", 1),)
    if job.eight_bit_attention:
        found["eight_bit_attention_time_factor"] = (("fp8_attention", 1),)
    if job.recompute != "none":
        found["recompute_share"] = (("recompute", 1),)
    if network.expert_flop:
        found["expert_time_factor"] = (("expert", 1),)
        found["expert_exposed_share"] = (("expert_exposed", 1),)
    if job.parallel.gpus > 1:
        link = next(pattern for pattern in LINKS if fnmatch(job.link.id, pattern))
        found["link_time_factor"] = ((f"link:{link}", 1),)
        found["tensor_exposed_share"] = ((f"tensor:{stack}", 1), ("tensor:", 1))
        found["exposed_share"] = ((f"exposed:{stack}", 1), ("exposed:", 1))
    if job.nodes > 1:
        found["network_efficiency"] = (("network_efficiency", 1),)
    return found


OWN_NETWORKS = (
    "transformer-xl-base",
    "transformer-xl-large",
    "resnet-50",
    "resnet18",
    "resnet101",
    "resnet152",
    "vgg16",
    "densenet121",
    "mobilenetv3-large-100",
    "efficientnet-b0",
    "regnety-032",
    "convnext-base",
    "ssd300-resnet50",
    "mask-rcnn-r50",
    "retinanet-resnext50",
    "unet3d",
    "rnn-t",
    "gnmt",
    "sd-2",
    "flux1-schnell",
    "nemotron-3-nano",
    "nemotron-3-super",
    "nemotron-3-ultra",
)
"""Networks with figures of their own."""


def architecture_of(gpu: Gpu) -> str:
    """Return the group of a GPU without rows; GeForce cards reach more of their halved rate."""
    return f"{gpu.architecture} GeForce" if gpu.geforce else gpu.architecture


def value_of(name: str, theta: Mapping[str, float]) -> float:
    """Return a parameter: its prior times its factor and that of its parent."""
    kind = name.split(":")[0]
    prior = OWN_PRIORS.get(name) or STACK_PRIORS.get(kind) or NETWORK_PRIORS.get(kind) or PRIORS[kind][0]
    common = theta.get(f"{kind}:", 0.0) if kind in STACK_PRIORS and name != f"{kind}:" else 0.0
    value = prior * exp(theta.get(name, 0.0) + common)
    return min(value, 0.95) if kind in ("exposed", "network_efficiency", "expert_exposed") else value


def figures_of(theta: Mapping[str, float], architecture: Mapping[str, str]) -> TrainingFigures:
    """Return all figures at *theta*; *architecture* is by GPU."""

    def plain(value: float) -> Value:
        return Value(
            value=float(f"{value:.4g}"), source="gpufleet-study", where="benchmarks/fit/training.py", kind="fitted"
        )

    def entry(name: str) -> Value:
        return plain(value_of(name, theta))

    def card(gpu: str) -> GpuFigures:
        arch = architecture.get(gpu, "")
        return GpuFigures(
            compute_time_factor=plain(value_of(f"gpu_compute:{gpu}", theta) * value_of(f"arch_compute:{arch}", theta)),
            convolution_time_factor=plain(value_of(f"gpu_conv:{gpu}", theta) * value_of(f"arch_conv:{arch}", theta)),
            memory_time_factor=plain(value_of(f"gpu_memory:{gpu}", theta) * value_of(f"arch_memory:{arch}", theta)),
        )

    gpus = sorted({name.split(":")[1] for name in theta if name.startswith("gpu_")})
    kinds = sorted({name.split(":")[1] for name in theta if name.startswith("arch_")})
    return TrainingFigures(
        gemm_exponent=plain(EXPONENT),
        attention_time_factor=entry("attention"),
        eight_bit_attention_time_factor=entry("fp8_attention"),
        older_attention_time_factor=entry("older_attention"),
        recompute_share=entry("recompute"),
        expert_time_factor=entry("expert"),
        expert_exposed_share=entry("expert_exposed"),
        fp8_time_factor=entry("fp8"),
        fp4_time_factor=entry("fp4"),
        fp32_time_factor=entry("fp32"),
        network_efficiency=entry("network_efficiency"),
        links=tuple(LinkRule(links=pattern, factor=entry(f"link:{pattern}")) for pattern in LINKS),
        gpus={gpu: card(gpu) for gpu in gpus},
        architectures={
            arch: GpuFigures(
                compute_time_factor=entry(f"arch_compute:{arch}"),
                convolution_time_factor=entry(f"arch_conv:{arch}"),
                memory_time_factor=entry(f"arch_memory:{arch}"),
            )
            for arch in kinds
        },
        other_gpu=GpuFigures(
            compute_time_factor=entry("gpu_compute"),
            convolution_time_factor=entry("gpu_conv"),
            memory_time_factor=entry("gpu_memory"),
        ),
        stacks={
            stack: StackFigures(
                compute_time_factor=entry(f"compute:{stack}"),
                stream_time_factor=entry(f"stream:{stack}"),
                layer_s=entry(f"layer:{stack}"),
                step_s=entry(f"step:{stack}"),
                exposed_share=entry(f"exposed:{stack}"),
                tensor_exposed_share=entry(f"tensor:{stack}"),
            )
            for stack in STACKS
        },
        networks={
            one: NetworkFigures(
                stream_time_factor=entry(f"net_stream:{one}"), compute_time_factor=entry(f"net_compute:{one}")
            )
            for one in OWN_NETWORKS
        },
    )


def written(figures: TrainingFigures) -> str:
    """Return the text of data/training/figures.yaml."""
    head = (
        "# How far a training step is from datasheet and kernels: fitted to public training runs by\n"
        "# benchmarks/fit/training.py. gpus: against the card's own kernels in data/steptime.yaml.\n"
        "# stacks: data/training/stacks.yaml.\n"
    )
    return head + "".join(_lines(figures.model_dump(mode="json", exclude_defaults=True), 0))


def _lines(data: Mapping[str, Any], depth: int) -> Iterator[str]:
    for name, value in data.items():
        key = f"'{name}'" if "*" in name or " " in name else name
        pad = "  " * depth
        if isinstance(value, dict) and "kind" in value:
            yield f"{pad}{key}: {_flow(value)}\n"
        elif isinstance(value, dict):
            yield f"{pad}{key}:\n"
            yield from _lines(value, depth + 1)
        else:
            yield f"{pad}{key}:\n"
            yield from (f"{pad}  - {{links: '{one['links']}', factor: {_flow(one['factor'])}}}\n" for one in value)


def _flow(value: Mapping[str, Any]) -> str:
    origin = ", ".join(f"{name}: {value[name]}" for name in ("source", "where", "kind"))
    return f"{{value: {value['value']:g}, {origin}}}"
