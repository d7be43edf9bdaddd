"""Binding of one pool to what its ids name: catalogue entries, coefficients and calibration files.

Calibration files are those that `gpufleet calibrate` has written, read with line numbers for error messages. Weights
that a pool leaves in host memory are bound to the host and to the link that reaches it.
"""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from pydantic import ValidationError

from sim.batching import Dynamic, PrefillFirst, Scheduler, Slots, Vllm, scheduler
from sim.batching.limits import KvGroup
from sim.batchtime.coefficients import BatchTimeCoefficients as BatchCoefficients
from sim.batchtime.coefficients import load_coefficients as load_batch_coefficients
from sim.batchtime.one_pass import AffineBatch, OnePass, OnePassStepTime
from sim.batchtime.roofline import device_of, speed_of
from sim.catalogue.catalog import Catalog
from sim.catalogue.data_folder import UnknownId
from sim.catalogue.engine import Engine, HostWeights, Offload, default_limit
from sim.catalogue.gpu import Gpu, sliced
from sim.catalogue.kernel import Kernel
from sim.catalogue.link import Link
from sim.catalogue.model import Model, OtherModel
from sim.catalogue.quantization import KvCacheDtype, Quantization, gguf_format, native_quantization
from sim.catalogue.server import Server
from sim.catalogue.value import Value
from sim.infile import state_of
from sim.memory.kv_cache import KvLayout, StateCache
from sim.memory.weights import ReplicaLayout
from sim.message import Message
from sim.power import Power, PowerCoefficients, load_power_coefficients
from sim.scenario.experiment import Experiment, Fleet, InheritedKeys, Pool, nearest
from sim.scenario.reading.errors import InputError, ScenarioErrors
from sim.scenario.resolving.resolved import Slicing
from sim.scenario.resolving.scheduler import (
    AHEAD_SWITCHES,
    DraftModelPlan,
    bind_drafts,
    slot_tokens,
    state_cache,
    with_defaults,
    with_state_bits,
    with_switches,
)
from sim.steptime.affine import Affine
from sim.steptime.calibration import Calibration
from sim.steptime.inputs import HostOffload, has_rate
from sim.steptime.options import Roofline
from sim.validation import dotted, validation_issues
from sim.yamlio import YamlError, read


def load_calibration(path: str) -> Calibration:
    """Read the calibration file *path*, cached while it is unchanged. Raises ScenarioErrors."""
    file = Path(path)
    try:
        state = state_of(file)
    except OSError:  # reading the file will raise the error with its reason
        state = ()
    return _read_calibration(file, state)


@cache
def _read_calibration(path: Path, state: tuple[int, ...]) -> Calibration:
    shown = path
    if shown.is_relative_to(Path.cwd()):
        shown = shown.relative_to(Path.cwd())
    try:
        document = read(path)
    except YamlError as error:
        raise ScenarioErrors([InputError(str(shown), error.line, "", error.message)]) from None
    try:
        return Calibration.model_validate(document.data)
    except ValidationError as error:
        found = validation_issues(error, Calibration, document.data)
        raise ScenarioErrors(
            InputError(str(shown), document.line(one.place), dotted(one.place), one.message) for one in found
        ) from None


def offload_of(pool: Pool, engine: Engine, model: Model | None) -> Offload | None:
    """Return the offloading that *pool* sets, else the engine's default; None if nothing stays in host memory."""
    requested = Offload(pool.cpu_offload_gb or None, pool.n_gpu_layers, pool.n_cpu_moe)
    if not requested.given and engine.offload is not None and engine.offload.experts_in_host:
        return Offload(n_cpu_moe=model.layers) if model is not None and model.moe is not None else None
    return requested if requested.given else None


def host_link_of(gpu: Gpu | None, catalog: Catalog) -> Link | None:
    """Return the PCIe link of *gpu*; None if its lanes are unknown or the catalogue has no such link."""
    if gpu is None or gpu.pcie_gen is None or gpu.pcie_lanes is None:
        return None
    name = f"pcie{gpu.pcie_gen.value:g}-x{gpu.pcie_lanes.value:g}"
    return catalog.link(name) if name in catalog.ids("links") else None


def host_of(
    engine: Engine, weights: HostWeights, server: Server | None, link: Link | None, replicas: int
) -> HostOffload | None:
    """Return the host that keeps *weights* for *replicas* replicas; None if the engine does not offload."""
    if engine.offload is None:
        return None
    return HostOffload(
        weights,
        engine.offload,
        memory_bytes_per_s=server.host_memory_bytes_per_s if server else None,
        flops=server.host_flops if server else None,
        link_bytes_per_s=link.theoretical_bytes_per_s if link else None,
        replicas=replicas,
    )


USUAL_ENGINE = "vllm-0.14"
"""Engine of a scenario without `engine`."""
UNQUANTIZED = "none"
LOCKSTEP_CONSERVATIVENESS = 0.3
"""Factor on `schedule_conservativeness` with data-parallel attention (SGLang)."""


@dataclass(frozen=True, slots=True)
class BoundPool:
    """Pool with catalogue entries in place of ids, and with the engine's defaults for options left out."""

    spec: Pool
    engine: Engine
    steptime: Affine | Roofline | AffineBatch | OnePass
    power: Power
    layout: ReplicaLayout
    batching: Scheduler
    """Scheduler options with max_num_seqs and max_num_batched_tokens filled in, and max_model_len if it is given."""
    kv_cache_dtype: KvCacheDtype
    gpu: Gpu | None = None
    """GPU of a replica; with `slicing`, a slice of the card."""
    slicing: Slicing | None = None
    model: Model | None = None
    service: OtherModel | None = None
    """Network that answers in one pass; such a pool has no language model."""
    quantization: Quantization | None = None
    """Format in which the weights are really stored."""
    kernel: Kernel | None = None
    speed: Value | None = None
    """Ratio of the work rate under the power cap to that without; None without a cap."""
    calibration: Calibration | None = None
    """Calibration of this GPU; its factors are already applied to engine and link."""
    server: Server | None = None
    link: Link | None = None
    drafter: DraftModelPlan | None = None
    """Separate model that drafts; None if there is none."""
    accepted: Value | None = None
    """Measured number of accepted drafts per step, where the scenario names a measurement."""
    kv_layout: KvLayout | None = None
    """Groups of layers of the KV cache, where blocks are simulated group by group."""
    kv_note: str = ""
    """Reason why groups are not simulated although the engine has them; empty otherwise."""
    state_cache: StateCache | None = None
    """Separate cache of recurrent states; None if there is none."""
    offload: Offload | None = None
    """Offloading to host memory; None if nothing is offloaded."""
    host_link: Link | None = None
    """Link between a GPU and its host, where offloading uses it."""

    @property
    def replicas_per_host(self) -> int:
        """Replicas that share a server's memory and processors."""
        if self.server is None:
            return 1
        return max(1, min(self.spec.most_replicas, int(self.server.gpu_slots.value) // self.layout.gpus))


def bind(scenario: Experiment, fleet: Fleet, pool: Pool, catalog: Catalog, *, beside_others: bool = False) -> BoundPool:
    """Look up everything that *pool* names, at its own level or above.

    *beside_others* states that its GPUs also have other models.

    Raises UnknownId (a ValueError); ValueError for a config.json that cannot be read.
    """
    service_level = scenario.service_of(pool)
    levels: tuple[InheritedKeys, ...] = (pool, *([service_level] if service_level else []), fleet, scenario)
    card = catalog.gpu(pool.gpu) if pool.gpu is not None else None
    slicing = _slicing(card, pool.mig)
    gpu = sliced(slicing.card, slicing.profile) if slicing else card
    model_id = nearest(*(level.model for level in levels))
    found = catalog.any_model(model_id) if model_id is not None else None
    service = found if isinstance(found, OtherModel) else None
    model = None if isinstance(found, OtherModel) else found
    quantization = nearest(*(level.quantization for level in levels), UNQUANTIZED)
    engine = catalog.engine(nearest(*(level.engine for level in levels), USUAL_ENGINE) or "")
    stored = _format(quantization or "", model, engine, catalog) if model else None
    kernel_id = nearest(*(level.kernel for level in levels), _kernel(stored, gpu) if stored else None)
    calibration = _calibration(nearest(*(level.calibration for level in levels)), gpu)
    server = catalog.server(pool.server) if pool.server is not None else None
    link_id = nearest(pool.link, server.link if server else None, gpu.link if gpu else None)
    link = catalog.link(link_id) if link_id is not None else None
    power = nearest(*(level.power for level in levels)) or Power()
    kv_cache_dtype: KvCacheDtype = nearest(*(level.kv_cache_dtype for level in levels)) or "auto"
    max_model_len = nearest(pool.batching.max_model_len, *(level.max_model_len for level in levels))
    batching = scheduler(pool.batching, engine.batching)
    batching, kv_layout, kv_note = _with_groups(pool, batching, model, kv_cache_dtype, engine, beside_others)
    batching, drafter, accepted = bind_drafts(batching, UNQUANTIZED, catalog)
    model = with_state_bits(model, batching, engine)
    computed = isinstance(pool.steptime, Roofline | None)
    batching = _filled(batching, pool, engine, gpu, model, max_model_len)
    offload = offload_of(pool, engine, model)
    return BoundPool(
        spec=pool,
        engine=calibration.engine(engine) if calibration else engine,
        steptime=pool.steptime or (OnePass() if isinstance(batching, Dynamic) else Roofline()),
        power=power,
        layout=_layout(pool),
        batching=batching,
        kv_cache_dtype=kv_cache_dtype,
        gpu=gpu,
        slicing=slicing,
        model=model,
        service=service,
        quantization=catalog.quantization(quantization or "") if service else stored,
        kernel=catalog.kernel(kernel_id) if kernel_id is not None else None,
        server=server,
        link=calibration.link(link) if calibration and link else link,
        speed=_speed(gpu, power, catalog),
        calibration=calibration,
        drafter=drafter,
        accepted=accepted,
        kv_layout=kv_layout,
        kv_note=kv_note,
        state_cache=state_cache(batching, engine, model, pool.batching) if computed else None,
        offload=offload,
        host_link=host_link_of(gpu, catalog) if offload is not None else None,
    )


def _layout(pool: Pool) -> ReplicaLayout:
    degrees = pool.tensor_parallel_size, pool.pipeline_parallel_size, pool.data_parallel_size
    return ReplicaLayout(*degrees, pool.enable_expert_parallel)


def _filled(
    batching: Scheduler, pool: Pool, engine: Engine, gpu: Gpu | None, model: Model | None, max_model_len: int | None
) -> Scheduler:
    """Fill in the engine's defaults and switches; dynamic batching is returned unchanged."""
    if isinstance(batching, Dynamic):
        return batching
    if isinstance(batching, Slots) and max_model_len is None:
        max_model_len = slot_tokens(engine, gpu, model)
    in_process = isinstance(pool.steptime, Roofline) and pool.steptime.in_process
    return with_switches(
        _per_rank(with_defaults(batching, engine, gpu, max_model_len, model, in_process), pool),
        engine if isinstance(pool.steptime, Roofline | None) else None,
        _formed_ahead(pool),
        model.family if model is not None and model.linear_attention is not None else None,
    )


def _kernel(stored: Quantization, gpu: Gpu | None) -> str:
    """Return the id of the kernel with which *gpu* multiplies weights of the format *stored*."""
    if gpu is None or stored.weight_only_kernel is None or has_rate(gpu, stored.compute):
        return stored.kernel
    return stored.weight_only_kernel


def _slicing(card: Gpu | None, profile: str | None) -> Slicing | None:
    """Return the slicing of *card*; None if it is not sliced or has no such *profile*."""
    if card is None or card.mig is None or profile not in card.mig.profiles:
        return None
    return Slicing(card, profile)


def _speed(gpu: Gpu | None, power: Power, catalog: Catalog) -> Value | None:
    """Return the effect of the power cap on the work rate; None without a cap or without measurements."""
    if gpu is None or power.cap_w is None:
        return None
    try:
        return power_coefficients(catalog).speed(gpu, power.cap_w)
    except ValueError:
        return None


def _calibration(path: str | None, gpu: Gpu | None) -> Calibration | None:
    """Return the calibration in the file *path* if it is for *gpu*, else None."""
    found = load_calibration(path) if path is not None and gpu is not None else None
    return found if found is not None and gpu is not None and found.gpu == gpu.id else None


def _per_rank(batching: Scheduler, pool: Pool) -> Scheduler:
    """Return *batching* of one of several ranks that step together.

    SGLang divides `chunked_prefill_size`, which holds for all ranks together, into equal parts and admits requests less
    conservatively (server_args.py, _handle_data_parallelism).
    """
    lockstep = pool.enable_expert_parallel and pool.data_parallel_size > 1
    if not lockstep or not isinstance(batching, PrefillFirst) or batching.schedule_conservativeness is None:
        return batching
    chunk, boldness = batching.chunked_prefill_size, batching.schedule_conservativeness * LOCKSTEP_CONSERVATIVENESS
    part = chunk and max(1, chunk // pool.data_parallel_size)
    return batching.model_copy(update={"chunked_prefill_size": part, "schedule_conservativeness": boldness})


def _formed_ahead(pool: Pool) -> tuple[str, ...]:
    """Return the switches with which *pool* can form a step while one runs."""
    return () if pool.pipeline_parallel_size > 1 or pool.kv_tiers else AHEAD_SWITCHES


def _with_groups(
    pool: Pool, batching: Scheduler, model: Model | None, dtype: KvCacheDtype, engine: Engine, beside_others: bool
) -> tuple[Scheduler, KvLayout | None, str]:
    """Return *batching* with the KV groups of *model*, their layout, and the reason if they are not simulated.

    Blocks are as large as the groups require. The reason is given where *engine* has groups by default and the pool
    cannot simulate them.
    """
    if not isinstance(batching, Vllm) or model is None:
        return batching, None, ""
    if batching.kv_groups is None:
        if not _has_groups(pool, model, engine):
            return batching, None, ""
        if conflict := _groups_conflict(pool, batching, beside_others):
            without = Message("for kv_groups are not simulated with {conflict}", conflict)
            return (
                batching,
                None,
                (
                    Message(
                        "{id}: windows use their mean share of a KV block, states use none, {without}",
                        model.id,
                        without,
                    )
                ),
            )
    elif batching.kv_groups != "model":
        return batching, None, ""
    layout = KvLayout.of(model, batching.block_size, dtype, pool.tensor_parallel_size)
    filled: dict[str, object] = {"block_size": layout.block_size}
    filled["kv_groups"] = tuple(KvGroup(window=window) for window in layout.windows)
    if layout.has_states and batching.enable_prefix_caching is None:
        filled["enable_prefix_caching"] = False
    return batching.model_copy(update=filled), layout, ""


def _has_groups(pool: Pool, model: Model, engine: Engine) -> bool:
    """Return True if *engine* groups the layers of *model* by default, and their memory is computed."""
    hybrid = default_limit(engine, None, "hybrid_kv_cache_manager")
    windows = model.sliding_window_layers > 0 and hybrid is not None and bool(hybrid.value)
    return isinstance(pool.steptime, Roofline | None) and (windows or model.linear_attention is not None)


def _groups_conflict(pool: Pool, batching: Vllm, beside_others: bool) -> str:
    """Return the options of *pool* with which groups are not simulated; empty if there are none."""
    used = {
        "ranks that step together": pool.enable_expert_parallel and pool.data_parallel_size > 1,
        "a role": pool.role != "both",
        "kv_tiers": bool(pool.kv_tiers),
        "lora": pool.lora is not None,
        "speculative": batching.speculative is not None,
        "scheduling: fair": batching.scheduling == "fair",
        "several models on a GPU": beside_others,
    }
    return " and ".join(name for name, has in used.items() if has)


def _format(quantization: str, model: Model, engine: Engine, catalog: Catalog) -> Quantization:
    requested = catalog.quantization(quantization)
    requested = catalog.quantization(gguf_format(requested.id, model, engine.id))
    try:
        return native_quantization(requested, model, catalog.quantization)
    except UnknownId:
        return requested  # the checks of the pool report it


def one_pass_step_time(pool: BoundPool, catalog: Catalog) -> OnePassStepTime:
    """Build the batch-time model of *pool*'s service on its GPU.

    Raises ValueError where the pool lacks either, or where the GPU has no rate in the service's precision.
    """
    if pool.gpu is None or pool.service is None or pool.quantization is None or not isinstance(pool.steptime, OnePass):
        raise ValueError("a batch time needs a gpu and a model")
    precision = pool.quantization.compute
    device = None if precision == "fp4" else device_of(pool.gpu, precision)
    if device is not None and pool.slicing is not None and pool.spec.most_replicas == 1:
        device = replace(device, alone=True)
    if device is None:
        raise ValueError(Message("{id} has no known {precision} rate", pool.gpu.id, precision))
    factors = batch_coefficients(catalog).factors(pool.service, device)
    rate = pool.speed.value if pool.speed else 1.0
    return OnePassStepTime(pool.steptime, pool.service, device, speed_of(device, factors), rate)


def batch_coefficients(catalog: Catalog) -> BatchCoefficients:
    """Return the fitted fractions of the datasheet rates that services reach (data/batchtime.yaml)."""
    return _batch_coefficients(catalog.root)


@cache
def _batch_coefficients(root: Path) -> BatchCoefficients:
    return load_batch_coefficients(root / "batchtime.yaml")


def power_coefficients(catalog: Catalog) -> PowerCoefficients:
    """Return the coefficients of GPU power at work (data/power.yaml)."""
    return _power_coefficients(catalog.root)


@cache
def _power_coefficients(root: Path) -> PowerCoefficients:
    return load_power_coefficients(root / "power.yaml")
