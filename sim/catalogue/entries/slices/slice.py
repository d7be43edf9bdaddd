"""A MIG slice as a small GPU of its own: its part of the card's rates, memory and power limit."""

from sim.catalogue.entries.gpu import Gpu
from sim.catalogue.value import Value

BY_SMS = ("cuda_cores", "tdp_w")
"""Beside the arithmetic rates, what goes with the streaming multiprocessors."""
BY_MEMORY = ("memory_bytes", "memory_bytes_per_s", "l2_bytes")


def sliced(gpu: Gpu, profile: str) -> Gpu:
    """The part of *gpu* that a slice of *profile* owns, under the card's id.

    Arithmetic goes with its streaming multiprocessors (a card of 7 slices loses the rest), bandwidth, L2 and memory
    with its memory slices; the driver reports a little less memory where that is known. Raises KeyError for a profile
    that *gpu* does not have.
    """
    if gpu.mig is None or profile not in gpu.mig.profiles:
        raise KeyError(profile)
    one, sms = gpu.mig.profiles[profile], gpu.mig.sms(profile)
    own_sms = Value(value=sms, **gpu.mig.model_dump(include={"source", "where", "kind", "as_of"}))
    of_sms = sms_share(gpu, profile)
    of_memory = one.memory_slices / gpu.mig.memory_slices
    rates = [name for name in Gpu.model_fields if name.endswith(("_flops", "_ops_per_s"))]
    update = {name: _part(gpu, name, of_sms, profile) for name in (*rates, *BY_SMS)}
    update |= {name: _part(gpu, name, of_memory, profile) for name in BY_MEMORY}
    if one.memory_bytes is not None:
        update["memory_bytes"] = one.memory_bytes
    nominal = float(profile.partition(".")[2].removesuffix("gb"))
    size = gpu.memory_nominal_gib.model_copy(update={"value": nominal, "range": None, "note": profile})
    own = {"name": f"{gpu.name} {profile}", "sm_count": own_sms, "memory_nominal_gib": size, "mig": None}
    return gpu.model_copy(update=update | own)


def sms_share(gpu: Gpu, profile: str) -> float:
    """Streaming multiprocessors of a slice over those of the whole card. Raises KeyError as `sliced` does."""
    if gpu.mig is None or profile not in gpu.mig.profiles:
        raise KeyError(profile)
    whole = gpu.mig.sms_per_slice * gpu.mig.compute_slices if gpu.sm_count is None else gpu.sm_count.value
    return min(1.0, gpu.mig.sms(profile) / whole)


def _part(gpu: Gpu, name: str, share: float, profile: str) -> Value | None:
    value = getattr(gpu, name)
    if value is None:
        return None
    limits = None if value.range is None else tuple(share * limit for limit in value.range)
    note = f"{profile}: {share:.4g} of the card's {value.value:g}" + (f"; {value.note}" if value.note else "")
    return Value.model_validate(value.model_dump() | {"value": share * value.value, "range": limits, "note": note})
