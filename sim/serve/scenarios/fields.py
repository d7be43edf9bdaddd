"""The usual fields of a scenario, for a form: what most people change, with the values that there are."""

from dataclasses import dataclass, field
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.language import N_, _
from sim.scenario.reading.layers import place_of, value_at

USUAL = (
    ("model", N_("Model"), "models"),
    ("quantization", N_("Precision of the weights"), "quantizations"),
    ("workload.arrivals.rate_rps", N_("Requests per second"), ""),
    ("workload.lengths.prompt.mean", N_("Prompt, mean [tokens]"), ""),
    ("workload.lengths.output.mean", N_("Answer, mean [tokens]"), ""),
    ("slo.ttft_s", N_("TTFT at most [s]"), ""),
    ("slo.tpot_s", N_("TPOT at most [s]"), ""),
    ("site.electricity_usd_per_kwh", N_("Electricity [USD/kWh]"), ""),
    ("horizon_s", N_("Simulated time [s]"), ""),
    ("replications", N_("Replications"), ""),
)
"""Path, label, and the shelf of the catalogue that has the values."""
OF_POOLS = (
    ("gpu", N_("GPU"), "gpus"),
    ("replicas", N_("replicas"), ""),
    ("tensor_parallel_size", N_("tensor parallel"), ""),
)


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
    found = [_field(data, path, _(label), shelf, catalog) for path, label, shelf in USUAL]
    for i, fleet in enumerate(data.get("fleets") or []):
        pools = fleet.get("pools") if isinstance(fleet, dict) else None
        for j, _pool in enumerate(pools if isinstance(pools, list) else []):
            name = f"{fleet.get('name', i)}"
            if len(pools or []) > 1:
                name = _("{fleet}, pool {number}", fleet=name, number=j + 1)
            for key, label, shelf in OF_POOLS:
                place = f"fleets.{i}.pools.{j}.{key}"
                found.append(_field(data, place, _("{name}: {label}", name=name, label=_(label)), shelf, catalog))
    return [one for one in found if one is not None]


def _field(data: dict[str, Any], path: str, label: str, shelf: str, catalog: Catalog) -> Field | None:
    sweep = data.get("sweep")
    swept = sweep.get(path) if isinstance(sweep, dict) else None
    if isinstance(swept, list):
        of_all = _("{label}, values of the sweep", label=label)
        return Field(f"sweep.{path}", of_all, swept)
    try:
        value = value_at(data, place_of(data, path))
    except LookupError:
        return None
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return None
    return Field(path, label, value, catalog.ids(shelf) if shelf else [])
