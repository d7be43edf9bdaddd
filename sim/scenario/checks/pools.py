"""Checks of one pool: settings that contradict each other, the hardware or the engine.

Included are pools whose replicas are switched on and off, or fail, during the run.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import get_args

from sim.batching import Dynamic, PrefillFirst, Reserve, Slots, Vllm, foreign
from sim.batching.sharing import Swapped
from sim.catalogue.catalog import Catalog
from sim.catalogue.data_folder import UnknownId
from sim.catalogue.engine import family_of
from sim.coldstart import PEER, StartUnknown, start_of
from sim.failures import COMPONENTS, SERVER_COMPONENTS
from sim.memory.weights import check_parallel
from sim.message import Message
from sim.scenario.checks.hardware import adapter_issues, offload_issues, slice_issues, tier_issues
from sim.scenario.checks.services import service_issues
from sim.scenario.experiment import Experiment
from sim.scenario.reading.layers import unknown_ids, value_at
from sim.scenario.resolving.bind import BoundPool, load_calibration, power_coefficients
from sim.scenario.resolving.hardware import (
    communicating_gpus,
    described_start,
    joined_gpus,
    start_figures,
    starting_replica,
)
from sim.scenario.resolving.scheduler import STATE_OPTIONS
from sim.scenario.schema import Fleet, Pool, nearest
from sim.steptime.affine import Affine
from sim.steptime.options import BACKENDS, Roofline
from sim.validation import Place, ValidationIssue, did_you_mean, not_among


def switching_issues(bound: BoundPool, place: Place, catalog: Catalog) -> Iterator[ValidationIssue]:
    """Yield issues of schedules, autoscalers, start times and failures of a pool."""
    pool = bound.spec
    yield from _failure_issues(pool, place, catalog)
    yield from _start_issues(bound, (*place, "cold_start"), catalog)
    if pool.schedule is not None and pool.autoscaling is not None:
        yield ValidationIssue((*place, "autoscaling"), "conflicts with schedule: remove one of them")
    elif pool.schedule is not None:
        yield from _schedule_issues(pool, place)
    elif pool.autoscaling is not None:
        yield from _autoscaling_issues(pool, place)


def _start_issues(bound: BoundPool, place: Place, catalog: Catalog) -> Iterator[ValidationIssue]:
    """Yield an issue for a start stage without a known duration."""
    spec, figures = described_start(bound.spec), start_figures(catalog)
    if spec is None:
        return
    known = [*figures.weights, PEER]
    if spec.weights_from not in known:
        text = Message(
            "unknown source of weights {weights_from!r}{hint}",
            spec.weights_from,
            did_you_mean(spec.weights_from, known),
        )
        yield ValidationIssue((*place, "weights_from"), text)
        return
    try:
        start_of(spec, starting_replica(bound, 1.0 if bound.model is not None else 0.0, catalog), figures)
    except StartUnknown as error:
        yield ValidationIssue((*place, error.key) if bound.spec.cold_start else place, str(error))
    except UnknownId:
        return  # `id_issues` reports the id


def _schedule_issues(pool: Pool, place: Place) -> Iterator[ValidationIssue]:
    schedule = pool.schedule
    if schedule is None:
        return
    if schedule.most != pool.replicas:
        text: str = Message(
            "must be {most}, the highest number in the schedule, not {replicas}", schedule.most, pool.replicas
        )
        yield ValidationIssue((*place, "replicas"), text)
    if schedule.starting_s is None and pool.cold_start is None:
        yield ValidationIssue(
            (*place, "schedule", "starting_s"), "is missing: give the duration of a start, or cold_start"
        )
    if schedule.starting_s is not None and pool.cold_start is not None:
        text = "conflicts with cold_start, which gives the duration of a start: remove one of them"
        yield ValidationIssue((*place, "schedule", "starting_s"), text)


def _autoscaling_issues(pool: Pool, place: Place) -> Iterator[ValidationIssue]:
    scaler = pool.autoscaling
    if scaler is None:
        return
    if not scaler.min_replicas <= pool.first_replicas <= scaler.max_replicas:
        bounds = f"{scaler.min_replicas} to {scaler.max_replicas}"
        text = Message(
            "{replicas} at the start must be within the autoscaler's bounds, {bounds}; or remove the key",
            pool.replicas,
            bounds,
        )
        yield ValidationIssue((*place, "replicas"), text)


def _failure_issues(pool: Pool, place: Place, catalog: Catalog) -> Iterator[ValidationIssue]:
    """Yield issues of failing components that the pool lacks, of their rates, and of impossible spares."""
    failures, place = pool.failures, (*place, "failures")
    if failures is None:
        return
    if not failures.components and failures.maintenance is None:
        text: str = Message("states no component that fails: give {components} or maintenance", ", ".join(COMPONENTS))
        yield ValidationIssue(place, text, (*COMPONENTS, "maintenance"))
    for kind, one in failures.components.items():
        if kind in SERVER_COMPONENTS and pool.server is None and pool.gpu is not None:
            yield ValidationIssue((*place, kind), "needs a server: the pool names none")
        if one.rate is not None and (counted := _failing_component(one.rate, catalog)) not in (kind, None):
            yield ValidationIssue(
                (*place, kind, "rate"),
                Message("{rate} is the rate of a {counted}, not of a {kind}", one.rate, counted, kind),
            )
    spares = failures.spares
    if spares is None:
        return
    if pool.server is None and pool.gpu is not None:
        yield ValidationIssue((*place, "spares"), "need a server to run in: the pool names none")
    if spares.count >= pool.replicas:
        text = Message(
            "{count} of {replicas} replicas cannot all be spares: at most {most}",
            spares.count,
            pool.replicas,
            pool.replicas - 1,
        )
        yield ValidationIssue((*place, "spares", "count"), text)
    if pool.schedule is not None or pool.autoscaling is not None:
        text = "conflict with a schedule or an autoscaler, whose idle replicas are spares: remove one of them"
        yield ValidationIssue((*place, "spares"), text)


def fleet_switching_issues(fleet: Fleet, place: Place) -> Iterator[ValidationIssue]:
    """Yield issues of spot pools, fallbacks and cold starts of a fleet's pools.

    The reasons are interruptions more frequent than their notice, unknown fallbacks, and cold starts that never occur.
    """
    names = [pool.name for pool in fleet.pools]
    for j, pool in enumerate(fleet.pools):
        spot, here = pool.spot, (*place, "pools", j, "spot")
        if spot is None:
            continue
        if spot.notice_s >= spot.interval_s:
            text: str = Message(
                "{notice_s:g} s of notice exceed the mean time between interruptions, {interval_s:g} s",
                spot.notice_s,
                spot.interval_s,
            )
            yield ValidationIssue((*here, "notice_s"), text)
        if spot.fallback is not None and (spot.fallback not in names or spot.fallback == pool.name):
            known = [name for name in names if name not in (None, pool.name)]
            text = Message(
                "{fallback!r} names no other pool of this fleet{hint}",
                spot.fallback,
                did_you_mean(spot.fallback, known),
            )
            yield ValidationIssue((*here, "fallback"), text)
        if pool.schedule is not None or pool.autoscaling is not None:
            yield ValidationIssue(
                here, "conflicts with a schedule or an autoscaler: put spot replicas into a pool of their own"
            )
        cost = fleet.costs[j]
        if cost is not None and cost.acquisition == "buy":
            yield ValidationIssue(here, "needs rented GPUs, and this pool is bought: give it a rented cost of its own")
        elif cost is not None and cost.spot is not None and cost.spot.availability < 1:
            text = "must be 1 together with spot: interruptions are simulated, and only running replicas are paid for"
            yield ValidationIssue((*place, "pools", j, "cost", "spot", "availability"), text)
    fallbacks = {pool.spot.fallback for pool in fleet.pools if pool.spot is not None}
    for j, pool in enumerate(fleet.pools):
        switched = pool.schedule is not None or pool.autoscaling is not None or pool.spot is not None
        on_call = pool.name is not None and pool.name in fallbacks
        sleeps = isinstance(pool.sharing, Swapped)
        serves_on = switched or on_call or pool.failures is not None or sleeps
        if pool.cold_start is not None and not serves_on:
            text = "nothing switches these replicas: add schedule, autoscaling or failures, or remove it"
            yield ValidationIssue(
                (*place, "pools", j, "cold_start"), text, ("schedule", "autoscaling", "failures", "spot")
            )
        if on_call and switched:
            text = Message(
                "{name} is a fallback, which runs on demand: it cannot have a schedule, autoscaling or spot", pool.name
            )
            yield ValidationIssue((*place, "pools", j), text)


def ejection_issues(scenario: Experiment, fleet: Fleet, place: Place) -> Iterator[ValidationIssue]:
    """Yield an issue for ejection of replicas where clients never time out."""
    client, rules = scenario.client, fleet.admission
    waits = client is None or (client.timeout_s is None and client.patience_s is None)
    if rules is not None and rules.ejection is not None and waits:
        text = "counts timeouts, but clients have no timeout: give client.timeout_s"
        yield ValidationIssue((*place, "admission", "ejection"), text)


def _failing_component(rate: str, catalog: Catalog) -> str | None:
    try:
        return catalog.failure_rate(rate).component
    except UnknownId:
        return None  # `id_issues` reports the id


def unknown_rates(pool: object, place: Place, catalog: Catalog) -> Iterator[ValidationIssue]:
    """Yield issues of failure rates of a raw *pool* at *place* that are not in the catalogue."""
    for kind in COMPONENTS:
        keys = ("failures", kind)
        yield from unknown_ids(value_at(pool, keys), (*place, *keys), {"rate": catalog.failure_rate})


WHAT_JOINS = "name the server and the link between servers, e.g. network: {link: infiniband-ndr}"


def pool_issues(pool: BoundPool, place: Place, catalog: Catalog) -> Iterator[ValidationIssue]:
    """Yield all issues of one pool by itself."""
    yield from slice_issues(pool, place, catalog)
    misplaced = list(service_issues(pool, place, catalog))
    yield from misplaced
    if not misplaced and not isinstance(pool.batching, Dynamic):
        yield from _missing_input_issues(pool, place)
    yield from _backend_issues(pool, place)
    yield from _layout_issues(pool, place)
    yield from _limit_issues(pool, place)
    yield from offload_issues(pool, place)
    yield from tier_issues(pool, place)
    yield from adapter_issues(pool, place)
    yield from unused_calibration(pool.spec.calibration, [pool], place)
    yield from switching_issues(pool, place, catalog)


def cap_issues(pool: BoundPool, fleet: Fleet, place: Place, catalog: Catalog) -> Iterator[ValidationIssue]:
    """Yield an issue for a power cap at which the GPU was never measured."""
    if pool.gpu is None or pool.power.cap_w is None or pool.speed is not None:
        return
    if pool.spec.power is not None:
        place = (*place, "pools", fleet.pools.index(pool.spec))
    try:
        power_coefficients(catalog).speed(pool.gpu, pool.power.cap_w)
    except ValueError as error:
        holder = place if nearest(pool.spec.power, fleet.power) is not None else ()
        yield ValidationIssue((*holder, "power", "cap_w"), str(error))


def _missing_input_issues(pool: BoundPool, place: Place) -> Iterator[ValidationIssue]:
    """Yield issues of missing inputs for step time and KV cache, and of keys that the model determines."""
    given, model = not isinstance(pool.steptime, Roofline), pool.model
    if model is not None and model.native_quantization and pool.quantization is not None and pool.quantization.native:
        weights = Message(
            "the weights of {id} are stored as {native_quantization!r}, which is not known here",
            model.id,
            model.native_quantization,
        )
        yield ValidationIssue((*place, "quantization"), Message("is missing: {weights}", weights))
    if pool.model is not None and pool.spec.kv_bytes_per_token is not None:
        yield ValidationIssue(
            (*place, "kv_bytes_per_token"), Message("follows from the model {id}: leave it out", pool.model.id)
        )
    if given and pool.batching.num_gpu_blocks is not None:
        return
    why = "the KV cache follows from it; or give batching.num_gpu_blocks" if given else "the step time follows from it"
    for key, value in (("gpu", pool.gpu), ("model", pool.model)):
        if value is None:
            yield ValidationIssue((*place, key), Message("is missing: {why}", why))
    lacks = [
        what for what, known in (("overheads", pool.engine.overheads), ("memory", pool.engine.memory)) if not known
    ]
    if lacks and isinstance(pool.steptime, Roofline):
        yield ValidationIssue(
            (*place, "engine"),
            Message("predictions need {lacks} of {id}, which are not known", " and ".join(lacks), pool.engine.id),
        )


def _backend_issues(pool: BoundPool, place: Place) -> Iterator[ValidationIssue]:
    """Yield issues of kernels that the pool's engine does not have."""
    for key, by_engine in BACKENDS.items():
        stated, kinds = getattr(pool.steptime, key, None), by_engine.get(family_of(pool.engine.id))
        allowed = get_args(kinds)
        if stated is None or stated in allowed:
            continue
        text = (
            not_among(stated, allowed)
            if allowed
            else Message("is an option of {allowed}, not of {engine}", ", ".join(by_engine), pool.engine.id)
        )
        yield ValidationIssue((*place, "steptime", key), text)


def _layout_issues(pool: BoundPool, place: Place) -> Iterator[ValidationIssue]:
    if pool.model is not None and pool.quantization is not None:
        reported: set[str] = set()
        for text in check_parallel(pool.model, pool.quantization, pool.layout, pool.engine.pipeline_split):
            key = next((key for key in type(pool.spec).model_fields if text.startswith(key)), "tensor_parallel_size")
            if key not in reported:
                yield ValidationIssue((*place, key), text.removeprefix(f"{key}: ").removeprefix(f"{key} "))
            reported.add(key)
    yield from _joint_issues(pool, place)
    server = pool.server
    if server is None:
        return
    if server.gpu is not None and pool.gpu is not None and server.gpu != pool.gpu.id:
        yield ValidationIssue(
            (*place, "server"),
            Message("{server} is built for {gpu}, not for {other}", server.id, server.gpu, pool.gpu.id),
        )


def _joint_issues(pool: BoundPool, place: Place) -> Iterator[ValidationIssue]:
    """Yield an issue for a replica over several servers whose connection is not given."""
    server, ranks, gpus = pool.server, pool.layout.tensor_parallel_size, communicating_gpus(pool)
    if server is None:
        if pool.spec.network is not None:
            yield ValidationIssue((*place, "network"), "needs a server, which states how many GPUs share its adapters")
        elif pool.link is not None and pool.spec.link is None and gpus > (most := max(pool.link.allreduce_latency_s)):
            text = Message(
                "{gpus} GPUs of a replica exceed the {most} that {id} can connect: {what_joins}",
                gpus,
                most,
                pool.link.id,
                WHAT_JOINS,
            )
            yield ValidationIssue((*place, "tensor_parallel_size" if ranks > most else "server"), text)
        return
    slots, joined = int(server.gpu_slots.value), joined_gpus(server)
    if pool.spec.network is not None:
        if gpus > joined and (slots % ranks if ranks < slots else ranks % slots):
            text = Message("{ranks} ranks cannot be spread evenly over servers of {slots} GPUs", ranks, slots)
            yield ValidationIssue((*place, "tensor_parallel_size"), text)
    elif ranks > joined:
        text = Message(
            "{ranks} ranks do not fit the {joined} slots of {id}: {what_joins}", ranks, joined, server.id, WHAT_JOINS
        )
        yield ValidationIssue((*place, "tensor_parallel_size"), text)
    elif gpus > joined and pool.spec.link is None:
        text = Message(
            "{gpus} GPUs of a replica do not fit the {joined} slots of {id}: {what_joins}",
            gpus,
            joined,
            server.id,
            WHAT_JOINS,
        )
        yield ValidationIssue((*place, "server"), text)


def _ahead_issues(pool: BoundPool, place: Place) -> Iterator[ValidationIssue]:
    """Yield issues of drafts, and of steps formed ahead, in layouts that do not support them."""
    limits, layout = pool.batching, pool.layout
    lockstep = layout.enable_expert_parallel and layout.data_parallel_size > 1
    if isinstance(limits, PrefillFirst):
        yield from _sglang_issues(limits, layout.pipeline_parallel_size > 1, lockstep, place)
        for key in (key for key in STATE_OPTIONS if getattr(limits, key) is not None and pool.state_cache is None):
            yield ValidationIssue(
                (*place, key), "needs a model with recurrent states on an engine that has a cache for them"
            )
    if isinstance(limits, Reserve) and limits.overlap_scheduler and layout.pipeline_parallel_size > 1:
        yield ValidationIssue((*place, "overlap_scheduler"), "needs one pipeline stage")
    if isinstance(limits, Reserve) and limits.batch_wait_timeout_iters and lockstep:
        yield ValidationIssue((*place, "batch_wait_timeout_iters"), "must be off with ranks that step together")
    if isinstance(limits, Reserve) and limits.attention_dp_timeout_iters and not lockstep:
        yield ValidationIssue(
            (*place, "attention_dp_timeout_iters"), "needs data_parallel_size and enable_expert_parallel"
        )
    if not isinstance(limits, Vllm):
        return
    if limits.kv_groups is not None and limits.kv_groups != "mean":
        if pool.kv_layout is None and limits.kv_groups == "model":
            yield ValidationIssue((*place, "kv_groups"), "model: needs a gpu and a model")
        elif pool.kv_layout is None and not isinstance(pool.steptime, Affine):
            yield ValidationIssue(
                (*place, "kv_groups"), "needs a step time that is given directly (steptime: {model: affine})"
            )
        if 0 in limits.windows and limits.enable_prefix_caching and not limits.enable_chunked_prefill:
            yield ValidationIssue(
                (*place, "enable_chunked_prefill"), "must be on where states are kept in the prefix cache"
            )
        if limits.speculative is not None or lockstep:
            text = "needs ranks that do not step together, and no drafts"
            yield ValidationIssue((*place, "kv_groups"), text)
    if pool.drafter is not None and not isinstance(pool.steptime, Roofline):
        yield ValidationIssue(
            (*place, "speculative", "draft_model"), "needs a step time that is computed from GPU and model"
        )
    if limits.speculative is not None and (layout.pipeline_parallel_size > 1 or lockstep):
        yield ValidationIssue((*place, "speculative"), "needs one pipeline stage, and ranks that do not step together")


def _sglang_issues(limits: PrefillFirst, staged: bool, lockstep: bool, place: Place) -> Iterator[ValidationIssue]:
    """Yield issues of SGLang's options in layouts that do not support them.

    *staged*: the pool has pipeline stages; *lockstep*: its ranks step together.
    """
    several = staged or lockstep
    used = {
        "overlap_schedule": bool(limits.overlap_schedule),
        "scheduler_recv_interval": limits.scheduler_recv_interval > 1,
        "enable_mixed_chunk": limits.enable_mixed_chunk,
        "max_queued_requests": limits.max_queued_requests is not None,
    }
    for key in (key for key, value in used.items() if value):
        if key == "overlap_schedule" and staged:
            yield ValidationIssue((*place, key), "needs one pipeline stage")
        elif several and key != "overlap_schedule":
            yield ValidationIssue((*place, key), "needs one pipeline stage, and ranks that do not step together")
        elif limits.schedule_conservativeness is None:
            yield ValidationIssue(
                (*place, key), "needs schedule_conservativeness: it is an option of SGLang's scheduler"
            )
    if limits.late_output and (several or limits.overlap_schedule or limits.schedule_conservativeness is not None):
        text = "needs one pipeline stage, ranks that do not step together, and another scheduler than SGLang's"
        yield ValidationIssue((*place, "late_output"), text)
    if limits.max_queued_requests is not None and limits.scheduler_recv_interval > 1:
        yield ValidationIssue((*place, "max_queued_requests"), "needs scheduler_recv_interval: 1")
    threshold = "priority_scheduling_preemption_threshold"
    if threshold in limits.model_fields_set and (several or limits.scheduling != "priority"):
        text = "needs scheduling: priority, one pipeline stage, and ranks that do not step together"
        yield ValidationIssue((*place, threshold), text)
    if limits.schedule_conservativeness is None:
        return
    chunk = limits.chunked_prefill_size
    if chunk is not None and chunk % limits.block_size:
        message = Message("{chunk} tokens must be a multiple of block_size ({block_size})", chunk, limits.block_size)
        yield ValidationIssue((*place, "chunked_prefill_size"), message)
    if "watermark" in limits.model_fields_set:
        yield ValidationIssue((*place, "watermark"), "has no effect with schedule_conservativeness: remove it")


def _limit_issues(pool: BoundPool, place: Place) -> Iterator[ValidationIssue]:
    """Yield issues of limits that the engine does not know or with which it does not start, defaults included."""
    limits, given = pool.batching, pool.spec.batching
    for key in foreign(given, pool.engine.batching):
        message = Message(
            "is not an option of {id}, which schedules by {batching}", pool.engine.id, pool.engine.batching
        )
        yield ValidationIssue((*place, "batching", key), message)
    if limits.max_model_len is None and isinstance(limits, Slots):
        yield ValidationIssue((*place, "batching", "max_model_len"), "is missing: it is the context of a slot")
    for key in ("max_num_seqs", "max_num_batched_tokens"):
        if getattr(limits, key) is None and not isinstance(limits, Dynamic):
            yield ValidationIssue(
                (*place, "batching", key), Message("is missing: {id} has no known default", pool.engine.id)
            )
    yield from _ahead_issues(pool, (*place, "batching"))
    max_num_seqs, tokens = limits.max_num_seqs, limits.max_num_batched_tokens
    if isinstance(limits, Vllm) and not limits.enable_chunked_prefill:
        longest = limits.max_model_len or (pool.model.max_context if pool.model else None)
        filled = None in (given.max_num_batched_tokens, given.max_model_len)
        if filled and tokens is not None and longest is not None and tokens < longest:
            message = Message(
                "{tokens} tokens are fewer than the longest request of {longest}: prompts must not be split",
                tokens,
                longest,
            )
            yield ValidationIssue((*place, "batching", "max_num_batched_tokens"), message)
    if (
        max_num_seqs is not None
        and tokens is not None
        and tokens < max_num_seqs
        and None in (given.max_num_seqs, given.max_num_batched_tokens)
    ):
        key = "max_num_seqs" if given.max_num_batched_tokens is None else "max_num_batched_tokens"
        yield ValidationIssue(
            (*place, "batching", key),
            Message(
                "max_num_batched_tokens ({tokens}) must not be below max_num_seqs ({max_num_seqs}); the option not "
                "given is {id}'s default",
                tokens,
                max_num_seqs,
                pool.engine.id,
            ),
        )
    if pool.model is not None and limits.max_model_len is not None and limits.max_model_len > pool.model.max_context:
        holder = (*place, "batching") if given.max_model_len is not None else place
        message = Message(
            "{max_model_len} tokens exceed {max_context}, the context length of {id}",
            limits.max_model_len,
            pool.model.max_context,
            pool.model.id,
        )
        yield ValidationIssue((*holder, "max_model_len"), message)


def unused_calibration(
    path: str | None, pools: Sequence[BoundPool], place: Place, tried: Collection[str] = ()
) -> Iterator[ValidationIssue]:
    """Yield an issue for a calibration of a GPU that neither *pools* nor the candidate ids *tried* have."""
    if path is None or any(pool.calibration for pool in pools):
        return
    try:
        gpu = load_calibration(path).gpu
    except ValueError:
        return  # `id_issues` reports the id
    if gpu not in tried:
        yield ValidationIssue((*place, "calibration"), Message("is for {gpu}, which no pool here has", gpu))
