"""MIG slices that the driver would refuse, and settings that a slice cannot have."""

from collections.abc import Iterator

from sim.catalogue.catalog import Catalog
from sim.catalogue.entries.slices.mig import Mig
from sim.scenario.reading.errors import Complaint, Place, did_you_mean
from sim.scenario.resolving.bind import BoundPool

RANKS = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


def slice_complaints(pool: BoundPool, place: Place, catalog: Catalog) -> Iterator[Complaint]:
    """A profile that the GPU lacks; ranks, schedules and power caps on slices."""
    profile = pool.spec.mig
    if profile is None:
        return
    if pool.slicing is None:
        yield Complaint((*place, "mig"), _no_such_profile(pool, profile, catalog))
        return
    for name in RANKS:
        if getattr(pool.spec, name) != 1:
            text = f"must be 1: MIG slices have no link between them; {_larger(pool.slicing.mig, profile)}"
            yield Complaint((*place, name), text)
    for key in ("schedule", "autoscaling"):
        if getattr(pool.spec, key) is not None:
            text = "goes with whole GPUs: a GPU stays on while any of its slices is used"
            yield Complaint((*place, key), text)
    if pool.power.cap_w is not None:
        text = f"{pool.power.cap_w:g} W would hold for the whole GPU; how fast its slices are then is not known"
        yield Complaint((*place, "mig"), f"with power.cap_w: {text}")


def _no_such_profile(pool: BoundPool, profile: str, catalog: Catalog) -> str:
    if pool.gpu is None:
        return "needs a gpu that is cut into slices"
    if pool.gpu.mig is None:
        able = ", ".join(name for name in catalog.ids("gpus") if catalog.gpu(name).mig is not None)
        return f"{pool.gpu.id} has no MIG profiles in the catalogue; these GPUs have: {able}"
    known = pool.gpu.mig.profiles
    each = ", ".join(f"{name} ({one.instances} on a GPU)" for name, one in known.items())
    return f"{pool.gpu.id} has no profile {profile!r}: it has {each}{did_you_mean(profile, known)}"


def _larger(mig: Mig, profile: str) -> str:
    memory = mig.profiles[profile].memory_slices
    larger = [name for name, one in mig.profiles.items() if one.memory_slices > memory]
    return f"a larger slice is {', '.join(larger)}" if larger else "leave mig out for whole GPUs"
