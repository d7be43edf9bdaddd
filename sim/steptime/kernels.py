"""Rates of matrix kernels: those that a step time assumes, and those measured by kernel benchmarks outside a server.

The measured rates are in data/kernels/measured.csv.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from sim.catalogue.catalog import Catalog
from sim.catalogue.engine import version_distance, version_of
from sim.catalogue.kernel import KernelChoice
from sim.catalogue.model import Matrix, matrices
from sim.catalogue.quantization import ComputeType, arithmetic, bits, covers
from sim.catalogue.value import Value
from sim.steptime.inputs import FLOP_PER_WEIGHT, GpuRates, RooflineInputs, known_overheads, peak_flops
from sim.units import BITS_PER_BYTE

Part = Literal["layers", "experts", "unquantised"]
"""Matrices that one kernel multiplies: of the layers, of the routed experts, or not covered by the quantization."""
PARTS: tuple[Part, ...] = ("layers", "experts", "unquantised")
MEASURED_FORMATS = {
    "dense-16bit": "bf16", "fp8-w8a8": "fp8", "nvfp4": "nvfp4", "mxfp4": "mxfp4", "marlin": "int4-wo",
}  # fmt: skip
"""Kernel id -> format in data/kernels/measured.csv."""
BLOCKS = "fp8-block"
REACHED = (BLOCKS, "nvfp4", "mxfp4", "mxfp4-mxfp8")
"""Formats whose kernels on Blackwell are slower than the card's share of 16-bit products."""


@dataclass(frozen=True, slots=True)
class MeasuredKernel:
    """Median rate of a kernel over shapes, measured outside of a server."""

    gpu: str
    architecture: str
    engine: str
    release: str
    format: str
    experts: bool
    tokens: int
    kernel: str
    flops: float
    shapes: int
    arithmetic_flops: float = 0.0
    """Rate in the limit of many tokens, of which the weights are read once [FLOP/s]; 0: not known."""


@dataclass(frozen=True, slots=True)
class KernelRate:
    """Rates that a step time assumes for one kernel inside the server."""

    part: Part
    format: str
    kernel: str
    arithmetic: ComputeType
    prefill_flops: float
    """Rate of arithmetic in large batches [FLOP/s]."""
    peak_flops: float
    """Dense peak of the card in this arithmetic [FLOP/s]."""
    decode_bytes_per_s: float
    """Rate at which weights are read in small batches [B/s]."""
    memory_bytes_per_s: float
    basis: Value
    """Factor of the kernel on the rate of 16-bit products, with its source."""
    measured: tuple[MeasuredKernel, ...]
    """Measured rates of this kernel, a row per number of tokens; on a card of the same architecture where this card was
    not measured."""


def kernel_rates(inputs: RooflineInputs, measured: Sequence[MeasuredKernel]) -> Iterator[KernelRate]:
    """Yield the rates of each kernel that multiplies weights of the layers, the quantised ones first."""
    rates = GpuRates.of(inputs)
    for part, matrix in _first_matrices(inputs):
        compute, own = arithmetic(inputs.quantization, matrix), covers(inputs.quantization, matrix)
        chosen, peak = _chosen(inputs, part), rates.peak_flops(matrix)
        yield KernelRate(
            part,
            inputs.quantization.name if own else compute,
            inputs.kernel.name if own else "",
            chosen.compute if chosen else "int8" if own and "int8_share" in inputs.prompt_kernels else compute,
            peak * rates.compute_efficiency / rates.compute_time_factor(matrix),
            peak_flops(inputs.gpu, chosen.compute) if chosen else peak,
            rates.bytes_per_s / rates.weight_time_factor(matrix),
            inputs.gpu.memory_bytes_per_s.value,
            _basis(inputs, matrix, own, rates),
            _measured_alone(inputs, part, own, compute, measured),
        )


def reached_shares(
    inputs: RooflineInputs, measured: Sequence[MeasuredKernel], catalog: Catalog, backend: str | None = None
) -> dict[str, Value]:
    """Return the fractions of the format's dense peak that the engine's kernels reach at most, by part.

    On Blackwell the rate measured alone limits the formats of `REACHED`, in the engine's entry whose releases contain
    the measured one; another card of the architecture reaches the same fraction of its peak in the kernel's
    arithmetic. Experts whose arithmetic the engine chooses are limited by its peak, and where each token reads their
    weights anew, by the memory. On B200 and related cards *backend* chooses the kernel of dense products in blocks.
    """
    found: dict[str, Value] = {}
    rates, parts = GpuRates.of(inputs), dict(_first_matrices(inputs))
    for rate in kernel_rates(inputs, measured):
        if rate.part == "unquantised":
            continue
        known = [one for one in rate.measured if one.format in REACHED and _in_era(inputs, one)]
        peak = rates.peak_flops(parts[rate.part])
        chosen = _chosen(inputs, rate.part)
        overlaps = chosen is not None and chosen.overlaps
        if inputs.gpu.blackwell and known and known[-1].arithmetic_flops and not overlaps:
            one = known[-1]
            share = one.arithmetic_flops / peak_flops(catalog.gpu(one.gpu), rate.arithmetic)
            where = f"data/kernels/measured.csv: {one.kernel} of {one.engine} {one.release} on {one.gpu}"
            found[rate.part] = Value(value=share * rate.peak_flops / peak, source="aic", where=where, kind="measured")
        elif chosen is not None and (chosen.rereads or rate.peak_flops < peak):
            flops = rate.peak_flops
            if chosen.rereads:
                stored_bits = bits(inputs.quantization, parts[rate.part], tied=False)
                flops = min(flops, FLOP_PER_WEIGHT * BITS_PER_BYTE / stored_bits * rate.decode_bytes_per_s)
            share = flops / peak
            found[rate.part] = Value(value=share, source=chosen.source, where=chosen.where, kind="computed")
    if inputs.server_blackwell and inputs.quantization.group_size is not None:
        for kernel in known_overheads(inputs.engine).dense_kernels:
            if (kernel.backend, kernel.kernel) == (backend, inputs.kernel.id):
                found["layers"] = kernel.reached
    return found


def _first_matrices(inputs: RooflineInputs) -> list[tuple[Part, Matrix]]:
    """Return a matrix of each part of the layers, the quantised ones first."""
    first: dict[Part, Matrix] = {}
    for one in matrices(inputs.model):
        if one.role not in ("embedding", "lm_head", "router", "vector"):
            first.setdefault(_part(inputs, one), one)
    return sorted(first.items(), key=lambda found: PARTS.index(found[0]))


def _chosen(inputs: RooflineInputs, part: Part) -> KernelChoice | None:
    return inputs.chosen_kernel if part == "experts" else None


def _in_era(inputs: RooflineInputs, one: MeasuredKernel) -> bool:
    return not any(version_distance(inputs.engine.versions, version_of(one.release)))


def _part(inputs: RooflineInputs, matrix: Matrix) -> Part:
    if matrix.role == "expert":
        return "experts"
    return "layers" if covers(inputs.quantization, matrix) else "unquantised"


def _basis(inputs: RooflineInputs, matrix: Matrix, own: bool, rates: GpuRates) -> Value:
    part = _part(inputs, matrix)
    if part in inputs.reached and rates.compute_time_factor(matrix) == rates.least_factor(part):
        return inputs.reached[part]
    if not own:
        return inputs.coefficients.efficiency(inputs.gpu).compute
    if matrix.role == "expert":
        return inputs.fast_experts or inputs.experts_kernel or inputs.kernel.moe_compute_time_factor
    return inputs.slow_products or inputs.kernel_compute


def _measured_alone(
    inputs: RooflineInputs, part: Part, own: bool, compute: ComputeType, measured: Sequence[MeasuredKernel]
) -> tuple[MeasuredKernel, ...]:
    """Return the rows for this kernel and engine: on this card, else on the first card of the same architecture.

    Of several kernels of the engine the table lists the one with most shapes first.
    """
    format = MEASURED_FORMATS.get(inputs.kernel.id) if own else {"fp16": "bf16", "fp8": "fp8"}.get(compute)
    if (chosen := _chosen(inputs, part)) is not None:
        format = chosen.measured_as
    if own and format == "fp8" and inputs.quantization.group_size is not None:
        format = BLOCKS
    wanted = format, part == "experts", inputs.engine_family
    known = [one for one in measured if (one.format, one.experts, one.engine) == wanted]
    if part == "experts" and inputs.fast_kernel is not None and inputs.fast_kernel.measured_as:
        known = [one for one in known if one.kernel == inputs.fast_kernel.measured_as]
    card = next((one.gpu for one in known if one.gpu == inputs.gpu.id), None)
    card = card or next((one.gpu for one in known if one.architecture == inputs.gpu.architecture), None)
    on_card = [one for one in known if one.gpu == card]
    return tuple(one for one in on_card if one.kernel == on_card[0].kernel)


@lru_cache(maxsize=4)
def measured_kernels(catalog: Catalog) -> tuple[MeasuredKernel, ...]:
    """Return the rows of kernels/measured.csv in the catalogue's folder; none if it has no such file."""
    path = catalog.root / "kernels" / "measured.csv"
    if not path.is_file():
        return ()
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(
            MeasuredKernel(
                row["gpu"],
                catalog.gpu(row["gpu"]).architecture,
                row["engine"],
                row["release"],
                row["format"],
                row["experts"] == "True",
                int(row["tokens"]),
                row["kernel"],
                float(row["flops"]),
                int(row["shapes"]),
                float(row["arithmetic_flops"] or 0),
            )
            for row in csv.DictReader(file)
        )
