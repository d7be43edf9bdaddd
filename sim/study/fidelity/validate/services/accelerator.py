"""The accelerator that an MLPerf row names."""

import re
from dataclasses import dataclass

from sim.catalogue.catalog import Catalog, UnknownId
from sim.catalogue.entries.gpu import Gpu

MIG = re.compile(r"\(\s*(\d+)\s*x\s*(\d+g\.\d+gb)(?:\s*MIG)?\s*\)|MIG\D*(\d+)x(\d+g\.\d+gb)", re.IGNORECASE)
"""`(1x1g.10gb MIG)`: how many slices of which profile the system ran on."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A GPU, or one kind of its slices."""

    gpu: Gpu
    profile: str | None = None
    slices: int = 0
    """Slices of the whole system that worked; 0: whole GPUs."""


def accelerator_of(name: str, catalog: Catalog) -> Accelerator:
    """What *name* means. Raises UnknownId, also for a profile that the GPU does not have."""
    found = MIG.search(name)
    gpu = _gpu(MIG.sub("", name).strip(), catalog)
    if found is None:
        return Accelerator(gpu)
    count, profile = (found[1], found[2]) if found[1] else (found[3], found[4])
    profiles = {} if gpu.mig is None else gpu.mig.profiles
    if profile.lower() not in profiles:
        raise UnknownId("MIG profile", profile, tuple(profiles)[:4])
    return Accelerator(gpu, profile.lower(), int(count))


def _gpu(name: str, catalog: Catalog) -> Gpu:
    first: UnknownId | None = None
    for spelling in spellings(name):
        try:
            return catalog.gpu(spelling)
        except UnknownId as error:
            first = first or error
    raise first or UnknownId("gpu", name, ())


def spellings(name: str) -> list[str]:
    """*name* and what is left of it without maker, form factor and memory, the least changed first.

    >>> spellings("AMD Instinct MI300X 192GB HBM3")
    ['AMD Instinct MI300X 192GB HBM3', 'MI300X 192GB HBM3', 'MI300X']
    """
    plain = re.sub(r"\s*\(.*?\)", "", name).strip()
    maker = re.sub(
        r"^(virtualized\s+)?(nvidia|amd)\s+(instinct\s+|geforce\s+|tesla\s+)?", "", plain, flags=re.IGNORECASE
    )
    memory = re.sub(r"[\s_-]*\d+\s?GB\S*(\s+HBM\S*)?$", "", maker, flags=re.IGNORECASE)
    return [spelling for spelling in dict.fromkeys((name, plain, maker, memory)) if spelling]
