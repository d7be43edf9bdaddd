"""What a roofline's step time rests on, for reports of sources and sensitivity."""

from sim.catalogue.value import Value
from sim.steptime.attention.stack import attention_values
from sim.steptime.inputs import Rates, RooflineInputs


def used_values(inputs: RooflineInputs) -> dict[str, Value]:
    """The coefficients that this step time rests on, by their name in data/steptime.yaml."""
    coefficients = inputs.coefficients
    efficiency = coefficients.efficiency(inputs.gpu)
    values = {
        "compute_efficiency": efficiency.compute,
        "memory_efficiency": efficiency.memory,
        "gemm_exponent": coefficients.gemm_exponent,
        "serving_compute_time_factor": coefficients.serving_compute_time_factor,
        "prefill_attention_efficiency": coefficients.prefill_attention_efficiency,
    }
    if inputs.forms_ahead:
        values["exposed_share"] = coefficients.exposed_share
    if max(inputs.tensor_parallel_size, inputs.expert_ranks) > 1:
        values["allreduce_time_factor"] = coefficients.allreduce_factor(inputs.gpu, inputs.link)
    if inputs.model.moe is not None:
        values |= coefficients.experts_values(inputs.gpu, inputs.model, inputs.spreads_experts)
    values |= inputs.kernel_values
    if inputs.pipeline_parallel_size > 1:
        values["pipeline_time_factor_per_doubling"] = coefficients.pipeline_time_factor_per_doubling
    values |= attention_values(Rates.of(inputs))
    return values | (dict(inputs.host.values()) if inputs.host else {})
