"""What the roofline step time of a pool is built from."""

from dataclasses import replace
from functools import cache
from pathlib import Path

from sim.batching import Slots
from sim.catalogue.catalog import Catalog
from sim.catalogue.entries.gpu import Gpu
from sim.catalogue.entries.model import Model, activations_per_token
from sim.catalogue.entries.quantization import Quantization, kv_element_bytes, padded
from sim.catalogue.value import Value
from sim.memory import host_weights
from sim.power import LoadLaw, unpacks
from sim.scenario.resolving.bind import BoundPool, power_coefficients
from sim.scenario.resolving.hardware.wiring import host_stretch, lanes_stretch, link_of, network_of
from sim.scenario.resolving.offload import host_of
from sim.scenario.resolving.scheduler.switches import host_beside
from sim.steptime import Coefficients, Host, RooflineInputs, load_coefficients


def roofline_inputs(pool: BoundPool, catalog: Catalog) -> RooflineInputs:
    """What the roofline step time of *pool* is built from. Raises ValueError where it lacks a GPU or a model."""
    link = link_of(pool)
    if pool.gpu is None or pool.model is None or pool.quantization is None or link is None or pool.kernel is None:
        raise ValueError("a roofline needs a gpu and a model")
    coefficients = _steptime_coefficients(catalog.root)
    return RooflineInputs(
        gpu=pool.gpu,
        model=padded(pool.quantization, pool.model),
        quantization=pool.quantization,
        kernel=pool.kernel,
        engine=pool.engine,
        link=link,
        coefficients=pool.calibration.coefficients(coefficients, pool.gpu) if pool.calibration else coefficients,
        tensor_parallel_size=pool.layout.tensor_parallel_size,
        pipeline_parallel_size=pool.layout.pipeline_parallel_size,
        data_parallel_size=pool.layout.data_parallel_size,
        enable_expert_parallel=pool.layout.enable_expert_parallel,
        serial_stages=isinstance(pool.batching, Slots),
        kv_bytes_per_element=float(kv_element_bytes(pool.kv_cache_dtype)),
        speed=pool.speed.value if pool.speed else 1.0,
        load=_load_law(pool.gpu, pool.model, pool.quantization, pool, catalog),
        host=_host(pool, catalog),
        forms_ahead=_forms_ahead(pool),
        lanes_stretch=lanes_stretch(pool, catalog),
        network=network_of(pool, catalog),
    )


def _forms_ahead(pool: BoundPool) -> bool:
    if pool.layout.pipeline_parallel_size > 1 or pool.offload:
        return False
    return host_beside(pool.batching, pool.engine)


def _host(pool: BoundPool, catalog: Catalog) -> Host | None:
    """The host as the step time sees it; None where all weights lie on the GPUs."""
    if pool.offload is None or pool.model is None or pool.quantization is None:
        return None
    weights = host_weights(pool.offload, pool.model, pool.quantization, pool.layout)
    host = host_of(pool.engine, weights, pool.server, pool.host_link, pool.replicas_per_host)
    if host is None or host.link_bytes_per_s is None or (stretch := host_stretch(pool, catalog)) == 1:
        return host
    return replace(host, link_bytes_per_s=_part(host.link_bytes_per_s, stretch))


def _part(rate: Value, stretch: float) -> Value:
    """*rate* of lanes that are shared."""
    span = (rate.range[0] / stretch, rate.range[1] / stretch) if rate.range else None
    note = f"{rate.value:g} over lanes that GPUs of a server share"
    return rate.model_copy(update={"value": rate.value / stretch, "range": span, "note": note})


@cache
def _steptime_coefficients(root: Path) -> Coefficients:
    return load_coefficients(root / "steptime.yaml")


def _load_law(gpu: Gpu, model: Model, weights: Quantization, pool: BoundPool, catalog: Catalog) -> LoadLaw | None:
    """How hard steps of *pool* work each GPU."""
    ranks = pool.layout.tensor_parallel_size * pool.layout.pipeline_parallel_size
    activations = activations_per_token(model) / ranks
    return LoadLaw.of(gpu, power_coefficients(catalog), pool.power.cap_w, activations, unpacks(gpu, weights))
