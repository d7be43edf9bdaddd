"""What would fit where something did not."""

from collections.abc import Iterable, Iterator
from typing import Any

from sim.catalogue.engine import Engine
from sim.catalogue.gpu import Gpu, sliced
from sim.catalogue.model import Model
from sim.catalogue.quantization import Quantization
from sim.memory.fit import fit
from sim.message import Message, joined

MOST_GPUS = 64
"""Largest replica that is suggested."""


def what_fits(
    gpu: Gpu,
    model: Model,
    quantization: Quantization,
    engine: Engine,
    candidates: Iterable[Quantization],
    **settings: Any,
) -> str:
    """The second half of a refusal: `fits at int8-w8a8, gptq-int4, or on 8 GPUs`; empty if nothing helps.

    *candidates* are tried in the layout of *settings* (the keywords of `fit`); named is the widest that fits of each
    kernel. Then more GPUs at the same quantisation: tensor-parallel sizes, and pipelines of the given tensor-parallel
    size.
    """
    ways = list(_formats(gpu, model, quantization, engine, candidates, settings))
    size = _smallest_tensor_parallel(gpu, model, quantization, engine, settings)
    if size is not None:
        ways.append(Message("on {size}x {name} (tensor_parallel_size {size})", size, gpu.name))
    depth = _smallest_pipeline(gpu, model, quantization, engine, settings)
    if depth is not None:
        tp = settings.get("tensor_parallel_size", 1)
        ways.append(
            Message(
                "on {tp}x {name} (tensor_parallel_size {tp_2}, pipeline_parallel_size {depth})",
                tp * depth,
                gpu.name,
                tp,
                depth,
            )
        )
    return "fits " + joined(", or ", ways) if ways else ""


def which_slices(
    card: Gpu,
    model: Model,
    quantization: Quantization,
    engine: Engine,
    candidates: Iterable[Quantization],
    profile: str,
    **settings: Any,
) -> str:
    """The second half of a refusal on a MIG slice *profile* of *card*; empty if nothing helps.

    *candidates* and *settings* as in `what_fits`; formats on the same slice come first, then larger slices.
    """
    ways = list(_formats(sliced(card, profile), model, quantization, engine, candidates, settings))
    profiles = card.mig.profiles if card.mig else {}
    slices = [
        Message("{name} ({instances} on a GPU)", name, one.instances)
        for name, one in profiles.items()
        if fit(sliced(card, name), model, quantization, engine, **settings).fits
    ]
    ways += [Message("on a slice {slices}", ", ".join(slices))] if slices else []
    return "fits " + joined(", or ", ways) if ways else ""


def _formats(
    gpu: Gpu,
    model: Model,
    quantization: Quantization,
    engine: Engine,
    candidates: Iterable[Quantization],
    settings: dict[str, Any],
) -> Iterator[str]:
    """`at fp8, gptq-int4`: of each kernel the widest narrower format that fits, the widest first."""
    widest: dict[str, str] = {}
    for other in sorted(candidates, key=lambda other: -other.bits_per_weight.value):
        narrower = other.bits_per_weight.value < quantization.bits_per_weight.value
        if narrower and other.kernel not in widest and fit(gpu, model, other, engine, **settings).fits:
            widest[other.kernel] = other.id
    if widest:
        yield f"at {', '.join(widest.values())}"


def _smallest_tensor_parallel(
    gpu: Gpu, model: Model, quantization: Quantization, engine: Engine, settings: dict[str, Any]
) -> int | None:
    for size in range(settings.get("tensor_parallel_size", 1) + 1, MOST_GPUS + 1):
        if fit(gpu, model, quantization, engine, **{**settings, "tensor_parallel_size": size}).fits:
            return size
    return None


def _smallest_pipeline(
    gpu: Gpu, model: Model, quantization: Quantization, engine: Engine, settings: dict[str, Any]
) -> int | None:
    tp = settings.get("tensor_parallel_size", 1)
    for depth in range(settings.get("pipeline_parallel_size", 1) + 1, MOST_GPUS // tp + 1):
        if fit(gpu, model, quantization, engine, **{**settings, "pipeline_parallel_size": depth}).fits:
            return depth
    return None
