"""Service and cost of each tenant in a fleet: the rows of tenants.csv."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sim.scenario.slo import Slo
from sim.study.metrics.service_level import tenants_met
from sim.study.metrics.statistics import mean
from sim.study.metrics.window_requests import percentile
from sim.study.points import FinishedCase, group
from sim.units import JOULES_PER_KWH, NANO_PER_USD, SECONDS_PER_HOUR
from sim.workload.tenants import UNATTRIBUTED

COUNTS = ("requests", "completed", "rejected", "prompt_tokens", "output_tokens")
LATENCIES = ("ttft_s_mean", "ttft_s_p50", "ttft_s_p95", "ttft_s_p99", "e2e_s_mean", "e2e_s_p95", "e2e_s_p99")
PRICED_COLUMNS = ("it_energy_kwh", "cost_usd")
COLUMNS = ("tenant", *COUNTS, "slo_attainment", "meets_slo", *LATENCIES, *PRICED_COLUMNS)
PHASES = {"prefill": "prefill_s", "recompute": "recompute_s", "decode": "decode_s"}


@dataclass(slots=True)
class TenantShare:
    """Counts and figures of one tenant in one case."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    figures: dict[str, float] = field(default_factory=dict)


def tenant_rows(cases: Sequence[FinishedCase], axes: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row per fleet, point and tenant, means over replications; none where requests have no tenants.

    Where requests have costs (`cost_per_request`), energy and cost of the tenants and of the row for no tenant sum to
    the fleet's.
    """
    rows: list[dict[str, Any]] = []
    for members in group([case for case in cases if case.status == "ok"], axes).values():
        found, met = [_shares(case) for case in members], _met(members)
        for name in dict.fromkeys(name for shares in found for name in shares):
            row: dict[str, Any] = {"fleet": members[0].fleet, "tenant": name}
            row |= {axis: members[0].axes.get(axis) for axis in axes}
            row |= {"meets_slo": met[name]} if name in met else {}
            kept = [shares.get(name, TenantShare()) for shares in found]
            row |= {count: mean([one.counts[count] for one in kept]) for count in COUNTS}
            for figure in ("slo_attainment", *LATENCIES, *PRICED_COLUMNS):
                if values := [one.figures[figure] for one in kept if figure in one.figures]:
                    row[figure] = mean(values)
            rows.append(row)
    return rows


def _met(cases: Sequence[FinishedCase]) -> dict[str, bool]:
    """Return whether each tenant with limits of its own meets them, in every service that it uses."""
    metrics = [case.metrics for case in cases]
    each = [metrics, *([one.services[name] for one in metrics] for name in metrics[0].services)]
    found: dict[str, bool] = {}
    for own in each:
        for name, met in tenants_met(Slo.model_validate(own[0]["slo"] or {}), own).items():
            found[name] = found.get(name, True) and met
    return found


def _shares(case: FinishedCase) -> dict[str, TenantShare]:
    if "tenant" not in case.request_columns():
        return {}
    table = case.requests()
    columns = {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}
    tenants = columns["tenant"].astype(str)
    shares = {name: _share(columns, tenants == name) for name in sorted(set(tenants.tolist()))}
    if "cost_usd" in columns:
        shares[UNATTRIBUTED] = TenantShare()
        _add_energy(shares, case, columns, tenants)
        _add_costs(shares, case, columns, tenants)
    return shares


def _share(columns: Mapping[str, Any], own: Any) -> TenantShare:
    """Return the share of the tenant whose requests *own* marks, over the measured requests."""
    chosen = own & (columns["measured"] == 1)
    status, finished = columns["status"][chosen], columns["status"][chosen] == "finished"
    share = TenantShare()
    share.counts |= {
        "requests": int(chosen.sum()),
        "completed": int(finished.sum()),
        "rejected": int((status == "rejected").sum()),
        "prompt_tokens": int(columns["prompt_tokens"][chosen][finished].sum()),
        "output_tokens": int(columns["output_tokens"][chosen][finished].sum()),
    }
    if chosen.any():
        share.figures["slo_attainment"] = float(columns["slo_met"][chosen].mean())
    for name, at in (("ttft_s", "first_token_s"), ("e2e_s", "finished_s")):
        # unanswered requests count as infinitely late in percentiles
        taken_s = np.where(finished, columns[at][chosen] - columns["arrived_s"][chosen], np.inf)
        if finished.any():
            share.figures[f"{name}_mean"] = float(taken_s[finished].mean())
        for percent in (50, 95, 99) if chosen.any() else ():
            share.figures[f"{name}_p{percent}"] = percentile(taken_s, percent)
    return share


def _add_energy(
    shares: Mapping[str, TenantShare], case: FinishedCase, columns: Mapping[str, Any], tenants: Any
) -> None:
    """Add each tenant's energy: that of each phase of a pool, divided by the time that requests used in the phase.

    Idle energy, and that of a phase without requests, is added to the row for no tenant. That row is a sum, not a
    remainder, which rounding could make negative.
    """
    start_s = case.metrics["warmup_s"]
    usage = _intervals_inside(case.usage(), start_s, start_s + case.metrics["window_h"] * SECONDS_PER_HOUR)
    joules = dict.fromkeys(shares, 0.0)
    for pool in sorted(set(usage["pool"].tolist())):
        of_pool, here = usage["pool"] == pool, columns["pool"] == pool
        wall, idle, prefill, recompute = (
            float(usage[name][of_pool].sum())
            for name in ("server_energy_j", "idle_energy_j", "prefill_energy_j", "recompute_energy_j")
        )
        spent = {"prefill": prefill, "recompute": recompute, "decode": max(0.0, wall - idle - prefill - recompute)}
        joules[UNATTRIBUTED] += idle
        for phase, seconds in PHASES.items():
            total_s = float(columns[seconds][here].sum())
            if total_s == 0:
                joules[UNATTRIBUTED] += spent[phase]
                continue
            for name in shares:
                if name != UNATTRIBUTED:
                    joules[name] += spent[phase] * float(columns[seconds][here & (tenants == name)].sum()) / total_s
    for name, amount in joules.items():
        shares[name].figures["it_energy_kwh"] = amount / JOULES_PER_KWH


def _add_costs(shares: Mapping[str, TenantShare], case: FinishedCase, columns: Mapping[str, Any], tenants: Any) -> None:
    """Add each tenant's cost in whole nano-dollars, so that the sum is exact."""
    amounts = case.costs().column("amount_usd").to_numpy()
    if not len(amounts):
        return
    left = int(nano_usd(amounts).sum())
    nano = nano_usd(columns["cost_usd"].astype(float))
    for name, share in shares.items():
        amount = left if name == UNATTRIBUTED else int(nano[tenants == name].sum())
        share.figures["cost_usd"] = amount / NANO_PER_USD
        left -= amount


def nano_usd(usd: NDArray[np.float64]) -> NDArray[Any]:
    """Return whole nano-dollars, exact for any amount."""
    nano = np.rint(usd * NANO_PER_USD)
    if np.abs(nano).sum() < np.iinfo(np.int64).max / 2:
        return nano.astype(np.int64)
    return np.array([int(amount) for amount in nano], dtype=object)


def _intervals_inside(usage: pa.Table, start_s: float, end_s: float) -> dict[str, Any]:
    """Return the columns of the intervals inside the window."""
    columns = {name: usage.column(name).to_numpy(zero_copy_only=False) for name in usage.column_names}
    middle_s = (columns["start_s"] + columns["end_s"]) / 2
    inside = (start_s <= middle_s) & (middle_s < end_s)
    return {name: column[inside] for name, column in columns.items()}
