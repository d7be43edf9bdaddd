"""Batches that cannot lie in the memory of their GPU or slice, with what would fit."""

from collections.abc import Iterator

from sim.batchtime import BatchMemory, OnePass
from sim.catalogue.entries.slices.slice import sliced
from sim.scenario.reading.errors import Complaint, Place
from sim.scenario.resolving.bind import BoundPool
from sim.units import GB


def batch_complaints(pool: BoundPool, place: Place) -> Iterator[Complaint]:
    """A model or a batch beyond the memory of the pool's GPU; only for services whose batch time is computed."""
    memory = memory_of(pool)
    batch = getattr(pool.batching, "max_batch_size", None)
    if memory is None or pool.gpu is None or pool.service is None or batch is None:
        return
    has = pool.gpu.memory_bytes.value
    most = memory.largest_batch(has)
    if memory.fixed_bytes > has:
        parts = "weights and tables" if pool.service.table_elements else "weights"
        text = f"{pool.service.id} needs {memory.fixed_bytes / GB:.1f} GB for its {parts}"
        yield Complaint((*place, "model"), f"{text}, {pool.gpu.name} has {has / GB:.1f}{_elsewhere(pool, memory)}")
    elif memory.needed_bytes(batch) > has and memory.request_bytes:
        each = f"batches of {batch} on each of {memory.instances} instances" if memory.instances > 1 else f"{batch}"
        text = f"{each} need at least {memory.needed_bytes(batch) / GB:.1f} GB, {pool.gpu.name} has {has / GB:.1f}"
        yield Complaint((*place, "batching", "max_batch_size"), f"{text}: at most {most} fit{_elsewhere(pool, memory)}")


def memory_of(pool: BoundPool) -> BatchMemory | None:
    """What a batch of *pool* needs; None where its batch time is not computed."""
    steptime, dynamic = pool.steptime, pool.batching
    if not isinstance(steptime, OnePass) or pool.service is None or pool.quantization is None:
        return None
    precision = pool.quantization.compute
    if precision == "fp4":
        return None
    instances = getattr(dynamic, "instances", 1)
    samples = steptime.samples_per_request
    return BatchMemory.of(pool.service, precision, instances, samples, steptime.resolution, steptime.table_bytes)


def _elsewhere(pool: BoundPool, memory: BatchMemory) -> str:
    """Slices of the card, or the whole, that hold the batch."""
    if pool.slicing is None:
        return ""
    batch, card = getattr(pool.batching, "max_batch_size", 1), pool.slicing.card
    needed = memory.needed_bytes(batch)
    slices = [name for name in pool.slicing.mig.profiles if sliced(card, name).memory_bytes.value >= needed]
    if slices:
        return f"; {batch} fit on a slice {', '.join(slices)}"
    return f"; {batch} fit on the whole {card.name}" if card.memory_bytes.value >= needed else ""
