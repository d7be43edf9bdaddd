"""Parameters of the step time: their places in the data, their priors, and their use in a plan.

A parameter is called `<what>` if it is global, `<what>:<id>` if it belongs to a GPU, a kernel, an engine or a rule of
all-reduce factors. Its value is prior * exp(theta); pooled eras of an engine have a common theta plus small ones of
their own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import exp
from pathlib import Path
from typing import Any

from sim.catalogue.engine import family_of
from sim.catalogue.value import Value
from sim.scenario.resolving.resolved import CasePlan
from sim.steptime.coefficients import AllReduceFactor, Efficiency, StepTimeCoefficients
from sim.steptime.inputs import RooflineInputs
from sim.steptime.roofline import roofline_step_time
from sim.yamlio import read

PRIORS = Path(__file__).with_name("priors.yaml")

OVERHEADS = {
    "per_layer": "per_layer_s",
    "per_step": "per_step_s",
    "per_sequence_served": "per_sequence_s",
    "per_sequence_in_process": "per_sequence_in_process_s",
    "per_request": "per_request_s",
    "kv_read": "kv_read_time_factor",
    "moe": "moe_gemm_time_factor",
    "moe_request": "moe_request_factor",
    "mla_layer": "mla_layer_factor",
}
"""Fields of engine parameters."""
SHARED_OVERHEADS = {
    "moe_layer": "moe_layer_factor",
    "blackwell_layer": "blackwell_layer_factor",
    "hopper_layer": "hopper_layer_factor",
    "ada_layer": "ada_layer_factor",
    "cdna_layer": "cdna_layer_factor",
    "recent_host": "recent_host_factor",
    "tp_request": "tp_request_factor",
    "hopper_request": "hopper_request_factor",
    "prompt_token": "per_prompt_token_s",
}
"""Fields of parameters that all engines share."""
LAUNCHES = {"launch_layer": "launch_layer_s", "standing": "standing_share"}
"""Fields of parameters of engines that launch the kernels of prompts one by one, and of one of these alone."""
SHARED_LAUNCHES = {
    "launch_linear": "launch_linear_factor",
    "launch_latent": "launch_latent_factor",
    "launch_indexer": "launch_indexer_factor",
}
"""Fields of parameters that all engines with such launches share."""
FAMILIES = {"kv_8bit": "kv_8bit_read_time_factor"}
"""Fields of parameters that all eras of an engine share."""
KERNELS = {
    "kernel_compute": "compute_time_factor",
    "kernel_graphics": "graphics_compute_time_factor",
    "kernel_weight": "weight_time_factor",
}
SHARED_KERNELS = {
    "moe_compute": "moe_compute_time_factor",
    "moe_weight": "moe_weight_time_factor",
}
COEFFICIENTS = {
    "serving_compute": "serving_compute_time_factor",
    "prefill_attention": "prefill_attention_efficiency",
    "expert_parallel": "expert_parallel_time_factor_per_doubling",
    "one_process": "one_process_host_time_factor",
    "indexer_layer": "indexer_layer_factor",
}
EXPERTS = {
    "experts": "experts_time_factors",
    "experts_of": "models_experts_time_factors",
    "diversity": "models_routing_diversity",
}
"""Tables of parameters of a GPU generation or a model family."""
EXPERTS_IN = "experts_in"
"""Parameter `<engine>/<kernel>` of an engine's kernels for a format; an entry of its `experts_by_kernel`."""
EFFICIENCIES = ("compute", "memory", "prefill_attention")
"""Parameters that are rates: the factor divides times."""
AT_MOST_ONE = ("diversity", "standing")
"""Parameters that are fractions, limited to 1."""
HOSTS = ("host", "host_request")
"""Random effects of a campaign's host on its time per step and sequence, and on its time per request.

They keep a slow or fast host from affecting the parameters that all hosts share; predictions use 0 for them.
"""


@dataclass(frozen=True, slots=True)
class Priors:
    """Prior values of the parameters and their standard deviations."""

    values: dict[str, float]
    sd: dict[str, float]
    pooled: dict[str, str] = field(default_factory=dict)
    """Common parameters of pooled eras, keyed by the parameter of the era."""
    own_share: float = 1.0
    """Standard deviation of a pooled era's own parameter relative to that of the common one."""

    def width(self, name: str) -> float:
        """Return the standard deviation of the parameter's logarithm; 0 if it is fixed."""
        if name in self.sd:
            return self.sd[name]
        return self.sd[name.split(":")[0]] * (self.own_share if self.common(name) else 1.0)

    def common(self, name: str) -> str:
        """Return the parameter that *name* shares with other eras; empty if none."""
        what, _, owner = name.partition(":")
        return f"{what}:{self.pooled[owner]}" if what in (*OVERHEADS, *LAUNCHES) and owner in self.pooled else ""

    def with_common(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return *names* with the parameters that they share with other eras."""
        return tuple(one for name in names for one in (name, self.common(name)) if one)

    def total(self, name: str, theta: Mapping[str, float]) -> float:
        """Return the logarithm of the parameter's factor on its prior value."""
        return sum(theta.get(one, 0.0) for one in self.with_common([name]))

    def value(self, name: str, theta: Mapping[str, float]) -> float:
        """Return the parameter's value under *theta*."""
        factor, what = exp(self.total(name, theta)), name.split(":")[0]
        value = self.values[name] / factor if what in EFFICIENCIES else self.values[name] * factor
        return min(value, 1.0) if what in AT_MOST_ONE else value

    def known(self, name: str) -> bool:
        """Return whether the parameter is fitted; the others keep the values of the data."""
        what, _, owner = name.partition(":")
        return (
            name in self.values or what in HOSTS or (what in (*OVERHEADS, *LAUNCHES) and owner in self.pooled.values())
        )


def load_priors(path: Path = PRIORS) -> Priors:
    """Return the priors in priors.yaml."""
    data = read(path).data
    values, sd = ({k: float(v) for k, v in data[name].items()} for name in ("values", "sd"))
    return Priors(values, sd, dict(data["pooled"]), float(data["own_share"]))


def with_parameters(plan: CasePlan, priors: Priors, theta: Mapping[str, float]) -> CasePlan:
    """Return *plan* with the step time and the time per request under *theta*."""
    pool = plan.pools[0]
    inputs = _inputs(pool.steptime.inputs, priors, theta)  # type: ignore[attr-defined]
    steptime = roofline_step_time(pool.steptime.spec, inputs)  # type: ignore[attr-defined]
    request_s = 0.0
    if pool.request_overhead_s:
        request_s = steptime.spec.request_overhead_s(
            inputs.engine, inputs.model, inputs.tensor_parallel_size, inputs.gpu
        )
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
    if launches := new(engine.overheads, {f"{what}:{engine.id}": field for what, field in LAUNCHES.items()}):
        overheads |= launches | new(engine.overheads, SHARED_LAUNCHES)
    if overheads:
        overheads |= new(
            engine.overheads, {f"{what}:{family_of(engine.id)}": field for what, field in FAMILIES.items()}
        )
    if by_kernel := experts_by_kernel(engine.id, priors, theta):
        overheads["experts_by_kernel"] = by_kernel
    kernels = new(kernel, {f"{what}:{kernel.id}": field for what, field in KERNELS.items()} | SHARED_KERNELS)
    return replace(
        inputs,
        engine=engine.model_copy(update={"overheads": engine.overheads.model_copy(update=overheads)}),  # type: ignore[union-attr]
        kernel=kernel.model_copy(update=kernels),
        coefficients=_coefficients(inputs, new(inputs.coefficients, COEFFICIENTS), priors, theta),
    )


def experts_by_kernel(engine: str, priors: Priors, theta: Mapping[str, float]) -> dict[str, Value]:
    """Return the table of *engine*, keyed by kernel."""
    start = f"{EXPERTS_IN}:{engine}/"
    names = [name for name in priors.values if name.startswith(start)]
    return {name.removeprefix(start): _value(None, priors.value(name, theta)) for name in names}


def _coefficients(
    inputs: RooflineInputs, shared: dict[str, Value], priors: Priors, theta: Mapping[str, float]
) -> StepTimeCoefficients:
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
    tables = {
        field: {
            name.partition(":")[2]: _value(None, priors.value(name, theta))
            for name in priors.values
            if name.startswith(f"{what}:")
        }
        for what, field in EXPERTS.items()
    }
    own = {"gpus": old.gpus | {gpu: efficiency}, "allreduce_time_factors": rules}
    return old.model_copy(update=shared | tables | own)


def _value(old: Value | None, number: float) -> Value:
    source, where = (old.source, old.where) if old else ("gpufleet-study", "")
    return Value(value=number, source=source, where=where, kind="computed")
