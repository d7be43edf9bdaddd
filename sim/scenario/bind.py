"""Ids of one pool bound to what the catalogue knows about them."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sim.batching import Batching
from sim.catalog.catalog import Catalog
from sim.catalog.engine import Engine, default_limits
from sim.catalog.gpu import Gpu
from sim.catalog.link import Link
from sim.catalog.model import Model
from sim.catalog.quantization import KvCacheDtype, Quantization, kv_element_bytes, native_quantization, padded
from sim.catalog.server import Server
from sim.memory import Layout
from sim.power import Power, PowerCoefficients, load_power_coefficients
from sim.scenario.schema import Fleet, Pool, Scenario, nearest
from sim.steptime import Affine, Coefficients, Roofline, RooflineInputs, load_coefficients

USUAL_ENGINE = "vllm-0.11"
"""What a scenario without `engine` runs on."""
UNQUANTIZED = "none"


@dataclass(frozen=True, slots=True)
class BoundPool:
    """A pool with catalogue entries in place of ids, and with the engine's defaults where the scenario is silent."""

    spec: Pool
    engine: Engine
    steptime: Affine | Roofline
    power: Power
    layout: Layout
    batching: Batching
    """With max_num_seqs and max_num_batched_tokens filled in, and max_model_len where any level gives it."""
    kv_cache_dtype: KvCacheDtype
    gpu: Gpu | None = None
    model: Model | None = None
    quantization: Quantization | None = None
    """The format that the weights really have."""
    server: Server | None = None
    link: Link | None = None


def bind(scenario: Scenario, fleet: Fleet, pool: Pool, catalog: Catalog) -> BoundPool:
    """Look up everything that *pool* names, at its own level or above.

    Raises UnknownId (a ValueError); ValueError for a config.json that cannot be read.
    """
    levels = (pool, fleet, scenario)
    model_id = nearest(*(level.model for level in levels))
    gpu = catalog.gpu(pool.gpu) if pool.gpu is not None else None
    model = catalog.model(model_id) if model_id is not None else None
    quantization = nearest(*(level.quantization for level in levels), UNQUANTIZED)
    engine = catalog.engine(nearest(*(level.engine for level in levels), USUAL_ENGINE) or "")
    server = catalog.server(pool.server) if pool.server is not None else None
    link_id = nearest(pool.link, server.link if server else None, gpu.link if gpu else None)
    max_model_len = nearest(pool.batching.max_model_len, *(level.max_model_len for level in levels))
    return BoundPool(
        spec=pool,
        engine=engine,
        steptime=pool.steptime or Roofline(),
        power=nearest(*(level.power for level in levels)) or Power(),
        layout=Layout(
            pool.tensor_parallel_size,
            pool.pipeline_parallel_size,
            pool.data_parallel_size,
            pool.enable_expert_parallel,
        ),
        batching=_with_defaults(pool.batching, engine, gpu, max_model_len),
        kv_cache_dtype=nearest(*(level.kv_cache_dtype for level in levels)) or "auto",
        gpu=gpu,
        model=model,
        quantization=_format(quantization or "", model, catalog) if model else None,
        server=server,
        link=catalog.link(link_id) if link_id is not None else None,
    )


def _with_defaults(batching: Batching, engine: Engine, gpu: Gpu | None, max_model_len: int | None) -> Batching:
    """*batching* with the engine's own limits on *gpu* where it leaves them open.

    `model_copy` does not validate: whether the token budget holds all seats is checked where the message can say so.
    """
    limits = _limits(engine, gpu)
    filled: dict[str, int | float | None] = {"max_model_len": max_model_len}
    if limits is not None:
        filled["max_num_seqs"] = batching.max_num_seqs or limits[0]
        filled["max_num_batched_tokens"] = batching.max_num_batched_tokens or limits[1]
    if engine.memory is not None and gpu is not None:
        share = batching.gpu_memory_utilization
        filled["gpu_memory_utilization"] = engine.memory.gpu_memory_utilization.value if share is None else share
    return batching.model_copy(update=filled)


def _limits(engine: Engine, gpu: Gpu | None) -> tuple[int, int] | None:
    """The engine's (max_num_seqs, max_num_batched_tokens); without a GPU those of a small one."""
    if gpu is not None or engine.limits is None:
        return default_limits(engine, gpu) if gpu is not None else None
    return int(engine.limits.max_num_seqs.value), int(engine.limits.max_num_batched_tokens.value)


def _format(quantization: str, model: Model, catalog: Catalog) -> Quantization:
    return native_quantization(catalog.quantization(quantization), model, catalog.quantization)


def roofline_inputs(pool: BoundPool, catalog: Catalog) -> RooflineInputs:
    """What the roofline step time of *pool* is built from. Raises ValueError where it lacks a GPU or a model."""
    if pool.gpu is None or pool.model is None or pool.quantization is None or pool.link is None:
        raise ValueError("a roofline needs a gpu and a model")
    return RooflineInputs(
        gpu=pool.gpu,
        model=padded(pool.quantization, pool.model),
        quantization=pool.quantization,
        kernel=catalog.kernel(pool.quantization.kernel),
        engine=pool.engine,
        link=pool.link,
        coefficients=_steptime_coefficients(catalog.root),
        tensor_parallel_size=pool.layout.tensor_parallel_size,
        pipeline_parallel_size=pool.layout.pipeline_parallel_size,
        data_parallel_size=pool.layout.data_parallel_size,
        enable_expert_parallel=pool.layout.enable_expert_parallel,
        kv_bytes_per_element=float(kv_element_bytes(pool.kv_cache_dtype)),
    )


def power_coefficients(catalog: Catalog) -> PowerCoefficients:
    """Shares of the power limit at work: data/power.yaml."""
    return _power_coefficients(catalog.root)


@cache
def _power_coefficients(root: Path) -> PowerCoefficients:
    return load_power_coefficients(root / "power.yaml")


@cache
def _steptime_coefficients(root: Path) -> Coefficients:
    return load_coefficients(root / "steptime.yaml")
