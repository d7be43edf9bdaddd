"""Catalogue entries of the names in rows of serving benchmarks, and the reasons if there are none."""

import re
from dataclasses import dataclass

from sim.benchdata.campaigns import Campaigns
from sim.benchdata.row import BenchRow
from sim.catalogue.catalog import Catalog
from sim.catalogue.checkpoint_names import KV_DTYPES, model_of, weight_format
from sim.catalogue.data_folder import UnknownId
from sim.catalogue.engine import Engine, Version, at_version, family_of, version_distance, version_of
from sim.catalogue.gpu import Gpu
from sim.catalogue.hf_config.config import ConfigError
from sim.catalogue.model import Model
from sim.catalogue.quantization import KvCacheDtype, gguf_format
from sim.message import Message, joined


@dataclass(frozen=True, slots=True)
class Names:
    """Catalogue entries of a row."""

    gpu: Gpu
    model: Model
    quantization: str
    kv_cache_dtype: KvCacheDtype
    engine: Engine
    link: str


class NotCovered(ValueError):
    """Error for a row with names that the catalogue lacks, or without lengths.

    The attributes hold the entries that were found.
    """

    def __init__(
        self, reason: str, gpu: Gpu | None = None, model: Model | None = None, engine: Engine | None = None
    ) -> None:
        self.gpu, self.model, self.engine = gpu, model, engine
        super().__init__(reason)


def match(row: BenchRow, catalog: Catalog, campaigns: Campaigns) -> Names:
    """Return the catalogue entries of *row*. Raises NotCovered with everything that is missing."""
    missing = []
    if row.isl is None or row.osl is None:
        missing.append("missing " + " and ".join(name for name in ("isl", "osl") if getattr(row, name) is None))
    gpu = model = engine = None
    quantization = "none"
    try:
        gpu = catalog.gpu(row.gpu)
    except UnknownId as error:
        missing.append(Message("unknown gpu {gpu!r}{hint}", row.gpu, _nearest_ids(error)))
    try:
        model = model_of(row.model, catalog)
    except UnknownId as error:
        missing.append(Message("unknown model {model!r}{hint}", row.model, _nearest_ids(error)))
    except ConfigError as error:
        missing.append(Message("unknown model {model!r}: {error}", row.model, error))
    try:
        # without a stated precision, the name of the checkpoint or its own format decides
        if model is None:
            catalog.quantization(row.precision or "none")
        else:
            quantization = weight_format(row.precision, row.model, model, catalog)
    except UnknownId:
        missing.append(Message("unknown precision {precision!r}", row.precision))
    kv = KV_DTYPES.get(row.kv_dtype.lower())
    if kv is None:
        missing.append(Message("unknown precision of the KV cache {kv_dtype!r}", row.kv_dtype))
    try:
        engine = engine_of(row.engine or "vllm", row.engine_version, catalog, campaigns)
        if engine.overheads is None:
            missing.append(Message("unknown engine {engine!r}: its overheads have not been measured", row.engine))
    except UnknownId:
        missing.append(Message("unknown engine {engine!r}", row.engine))
    if missing or gpu is None or model is None or engine is None or kv is None:
        raise NotCovered(joined("; ", missing), gpu, model, engine)
    quantization = gguf_format(quantization, model, engine.id)
    return Names(gpu, model, quantization, kv, engine, link_of(row.interconnect, gpu, catalog, campaigns))


def _nearest_ids(error: UnknownId) -> str:
    return f" (near: {', '.join(error.suggestions)})" if error.suggestions else ""


def engine_of(name: str, version: str, catalog: Catalog, campaigns: Campaigns) -> Engine:
    """Return the entry of engine *name* that covers *version*, or its newest if the version is unknown.

    Raises UnknownId.
    """
    newest = catalog.engine(name)
    wanted = _release(newest, version, campaigns)
    if not wanted:
        return newest
    eras = [catalog.engine(one) for one in catalog.ids("engines") if family_of(one) == family_of(newest.id)]
    return at_version(min(eras, key=lambda era: version_distance(era.versions, wanted)), wanted)


def engine_release(engine: Engine, version: str, campaigns: Campaigns) -> str:
    """Return the scenario's name of *engine* at *version*, which selects the defaults of that release.

    It is the engine's id if the version is unknown or outside the entry's versions.
    """
    wanted = _release(engine, version, campaigns)
    inside = wanted and not any(version_distance(engine.versions, wanted))
    return f"{family_of(engine.id)}-{'.'.join(map(str, wanted))}" if inside else engine.id


def _release(engine: Engine, version: str, campaigns: Campaigns) -> Version:
    usual = campaigns.version_by_year.get(family_of(engine.id), {})
    return version_of(version) or version_of(usual.get(_year(version), ""))


def link_of(text: str, gpu: Gpu, catalog: Catalog, campaigns: Campaigns) -> str:
    """Return the id of the link that *text* is or describes; the GPU's own if it describes none."""
    if text in catalog.ids("links"):
        return text
    lower = text.lower()
    if re.search(r"nvlink", lower) and not re.search(r"(no|without) nvlink|not stated", lower):
        return gpu.link if gpu.link.startswith("nvlink") else campaigns.nvlink_bridges.get(gpu.id, gpu.link)
    found = re.search(r"pcie\s*(?:gen\s*)?(\d)(?:\.0)?(?:\s*x(\d+))?", lower)
    if not found:
        return gpu.link if "pcie" not in lower or not gpu.link.startswith("nvlink") else "pcie4-x16"
    plain = f"pcie{found[1]}-x{found[2] or 16}"
    direct = "p2p" in lower and "no p2p" not in lower
    staged = (gpu.geforce or gpu.link == f"{plain}-no-p2p") and not direct
    known = catalog.ids("links")
    wanted = [f"{plain}-no-p2p", plain] if staged else [f"{plain}-p2p-patched" if gpu.geforce else plain, plain]
    return next((link for link in wanted if link in known), gpu.link)


def _year(text: str) -> int:
    found = re.search(r"\b20\d\d\b", text)
    return int(found.group()) if found else 0
