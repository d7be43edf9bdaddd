"""The usual fields of a scenario, for a form: what most people change, with the values that there are."""

from dataclasses import dataclass, field
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.scenario.reading.layers import place_of, value_at

USUAL = (
    ("model", "Model", "models"),
    ("quantization", "Precision of the weights", "quantizations"),
    ("workload.arrivals.rate_rps", "Requests per second", ""),
    ("workload.lengths.prompt.mean", "Prompt, mean [tokens]", ""),
    ("workload.lengths.output.mean", "Answer, mean [tokens]", ""),
    ("slo.ttft_s", "TTFT at most [s]", ""),
    ("slo.tpot_s", "TPOT at most [s]", ""),
    ("site.electricity_usd_per_kwh", "Electricity [USD/kWh]", ""),
    ("horizon_s", "Simulated time [s]", ""),
    ("replications", "Replications", ""),
)
"""Path, label, and the shelf of the catalogue that has the values."""
OF_POOLS = (("gpu", "GPU", "gpus"), ("replicas", "replicas", ""), ("tensor_parallel_size", "tensor parallel", ""))


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the form."""

    path: str
    """As `--set` calls it."""
    label: str
    value: Any
    choices: list[str] = field(default_factory=list)
    """Empty: any number or text."""


def fields_of(data: dict[str, Any], catalog: Catalog) -> list[Field]:
    """Those that the scenario *data* has; a load that is swept is the list of its values."""
    found = [_field(data, *one, catalog) for one in USUAL]
    for i, fleet in enumerate(data.get("fleets") or []):
        pools = fleet.get("pools") if isinstance(fleet, dict) else None
        for j, _ in enumerate(pools if isinstance(pools, list) else []):
            name = f"{fleet.get('name', i)}" + (f", pool {j + 1}" if len(pools or []) > 1 else "")
            for key, label, shelf in OF_POOLS:
                found.append(_field(data, f"fleets.{i}.pools.{j}.{key}", f"{name}: {label}", shelf, catalog))
    return [one for one in found if one is not None]


def _field(data: dict[str, Any], path: str, label: str, shelf: str, catalog: Catalog) -> Field | None:
    sweep = data.get("sweep")
    swept = sweep.get(path) if isinstance(sweep, dict) else None
    if isinstance(swept, list):
        return Field(f"sweep.{path}", f"{label}, values of the sweep", swept)
    try:
        value = value_at(data, place_of(data, path))
    except LookupError:
        return None
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return None
    return Field(path, label, value, catalog.ids(shelf) if shelf else [])
