"""The parameters of the step time: where each stands in the data, its prior, and how to set it in a plan.

A parameter's name is `<what>` where all share it, `<what>:<id>` where it belongs to a GPU, a kernel, an engine or a
rule of all-reduce factors. Its value is prior * exp(theta).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import exp
from pathlib import Path
from typing import Any

from sim.catalogue.value import Value
from sim.scenario.resolving.resolved import CasePlan
from sim.steptime import RooflineInputs
from sim.steptime.coefficients import AllReduceFactor, Coefficients, Efficiency
from sim.yamlio import read

PRIORS = Path(__file__).with_name("priors.yaml")

OVERHEADS = {
    "per_layer": "per_layer_s",
    "per_step_served": "per_step_s",
    "per_step_in_process": "per_step_in_process_s",
    "per_sequence_served": "per_sequence_s",
    "per_sequence_in_process": "per_sequence_in_process_s",
    "per_request": "per_request_s",
    "kv_read": "kv_read_time_factor",
    "moe": "moe_gemm_time_factor",
    "moe_request": "moe_request_factor",
}
"""Parameter of an engine -> its field."""
SHARED_OVERHEADS = {
    "moe_layer": "moe_layer_factor",
    "mla_layer": "mla_layer_factor",
    "blackwell_layer": "blackwell_layer_factor",
    "hopper_layer": "hopper_layer_factor",
    "recent_host": "recent_host_factor",
    "tp_request": "tp_request_factor",
}
"""Parameter that all engines share -> its field."""
KERNELS = {"kernel_compute": "compute_time_factor", "kernel_weight": "weight_time_factor"}
SHARED_KERNELS = {"moe_compute": "moe_compute_time_factor", "moe_blackwell": "moe_weight_time_factor_blackwell"}
COEFFICIENTS = {
    "serving_compute": "serving_compute_time_factor",
    "prefill_attention": "prefill_attention_efficiency",
}
EFFICIENCIES = ("compute", "memory", "prefill_attention")
"""Rates, not times: the factor divides them."""


@dataclass(frozen=True, slots=True)
class Priors:
    """Values before the fit, and how far the fit may move them."""

    values: dict[str, float]
    sd: dict[str, float]

    def width(self, name: str) -> float:
        """Standard deviation of the parameter's logarithm; 0: it is held."""
        return self.sd.get(name, self.sd[name.split(":")[0]])

    def value(self, name: str, theta: Mapping[str, float]) -> float:
        """The parameter's value under *theta*."""
        factor = exp(theta.get(name, 0.0))
        return self.values[name] / factor if name.split(":")[0] in EFFICIENCIES else self.values[name] * factor

    def known(self, name: str) -> bool:
        """Whether the parameter has a prior; the others keep what the data says."""
        return name in self.values


def load_priors(path: Path = PRIORS) -> Priors:
    """Read priors.yaml."""
    data = read(path).data
    return Priors({k: float(v) for k, v in data["values"].items()}, {k: float(v) for k, v in data["sd"].items()})


def with_parameters(plan: CasePlan, priors: Priors, theta: Mapping[str, float]) -> CasePlan:
    """*plan* with the step time and the time per request that *theta* gives."""
    pool = plan.pools[0]
    inputs = _inputs(pool.steptime.inputs, priors, theta)  # type: ignore[attr-defined]
    steptime = pool.steptime.spec.build(inputs)  # type: ignore[attr-defined]
    request_s = 0.0
    if pool.request_overhead_s:
        request_s = steptime.spec.request_overhead_s(inputs.engine, inputs.model, inputs.tensor_parallel_size)
    return replace(plan, pools=(replace(pool, steptime=steptime, request_overhead_s=request_s),))


def _inputs(inputs: RooflineInputs, priors: Priors, theta: Mapping[str, float]) -> RooflineInputs:
    engine, kernel = inputs.engine, inputs.kernel

    def new(old: Any, names: Mapping[str, str]) -> dict[str, Value]:
        return {
            field: _value(getattr(old, field), priors.value(name, theta))
            for name, field in names.items()
            if priors.known(name)
        }

    overheads = new(engine.overheads, {f"{what}:{engine.id}": field for what, field in OVERHEADS.items()})
    if overheads:
        overheads |= new(engine.overheads, SHARED_OVERHEADS)
    kernels = new(kernel, {f"{what}:{kernel.id}": field for what, field in KERNELS.items()} | SHARED_KERNELS)
    return replace(
        inputs,
        engine=engine.model_copy(update={"overheads": engine.overheads.model_copy(update=overheads)}),  # type: ignore[union-attr]
        kernel=kernel.model_copy(update=kernels),
        coefficients=_coefficients(inputs, new(inputs.coefficients, COEFFICIENTS), priors, theta),
    )


def _coefficients(
    inputs: RooflineInputs, shared: dict[str, Value], priors: Priors, theta: Mapping[str, float]
) -> Coefficients:
    old, gpu = inputs.coefficients, inputs.gpu.id
    efficiency = old.efficiency(inputs.gpu)
    if priors.known(f"compute:{gpu}"):
        efficiency = Efficiency(
            compute=_value(efficiency.compute, priors.value(f"compute:{gpu}", theta)),
            memory=_value(efficiency.memory, priors.value(f"memory:{gpu}", theta)),
        )
    rules = tuple(
        AllReduceFactor(
            links=rule.links, gpus=rule.gpus, factor=_value(rule.factor, priors.value(f"allreduce:{i}", theta))
        )
        for i, rule in enumerate(old.allreduce_time_factors)
    )
    return old.model_copy(update={**shared, "gpus": old.gpus | {gpu: efficiency}, "allreduce_time_factors": rules})


def _value(old: Value, number: float) -> Value:
    return Value(value=number, source=old.source, where=old.where, kind="computed")
