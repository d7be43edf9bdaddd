"""Split of the bill among tenants: rows of chargeback.csv, which sum to costs.csv exactly, and of showback.csv.

A tenant pays for the time of its requests in each pool and phase. What no request causes (idle, unused, other) is a
line of its own, which a rule divides among the tenants of the pool, or which no tenant pays. Requests without
tenants count for their service.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sim.cost.ledger import split
from sim.scenario.sections.chargeback import Chargeback, CommonLine
from sim.study.execution.store import SHARES, VISITS
from sim.study.metrics.statistics import mean
from sim.study.points import FinishedCase, group
from sim.study.tenants import PHASES, nano_usd
from sim.units import HOURS_PER_MONTH, NANO_PER_USD
from sim.workload.tenants import UNATTRIBUTED

USED = "used"
"""Line of the cost that a tenant's requests cause."""
LINES: dict[str, CommonLine] = {"idle": "idle", "unused": "unused", "unused commitment": "unused"}
"""Phase of the ledger -> line that tenants share; all other phases without requests are `other`."""
EVERY_LINE = (USED, "idle", "unused", "other")
KEYS = ("replication", "tenant", "pool", "component", "phase", "line", "rule", "amount_usd")
"""Columns of chargeback.csv after the fleet and the sweep axes."""


class ChargedAmount(NamedTuple):
    """Part of the bill of one case."""

    tenant: str
    pool: str
    component: str
    phase: str
    line: str
    rule: str
    nano_usd: int


class ChargedCase(NamedTuple):
    """Case with its bill, split among tenants."""

    case: FinishedCase
    amounts: Sequence[ChargedAmount]

    @property
    def months(self) -> float:
        """Length of the window in months of 730 hours."""
        return float(self.case.metrics["window_h"]) / HOURS_PER_MONTH


def charged_cases(terms: Chargeback | None, cases: Sequence[FinishedCase]) -> list[ChargedCase]:
    """Return the cases that could run with their split bills; empty without *terms*, or without costs."""
    if terms is None:
        return []
    split_cases = (ChargedCase(one, charged_amounts(terms, one)) for one in cases if one.status == "ok")
    return [one for one in split_cases if one.amounts]


def chargeback_rows(charged: Sequence[ChargedCase]) -> list[dict[str, Any]]:
    """Return the rows of chargeback.csv: the ledger of every case by pool, component and phase, split among tenants."""
    rows = []
    for case, amounts in charged:
        for one in amounts:
            row = {"fleet": case.fleet, **case.axes, "replication": case.replication, **one._asdict()}
            rows.append({**row, "amount_usd": row.pop("nano_usd") / NANO_PER_USD})
    return rows


def charged_amounts(terms: Chargeback, case: FinishedCase) -> list[ChargedAmount]:
    """Return the bill of *case* split among its tenants; the amounts sum to the ledger exactly."""
    costs = case.costs()
    names = (costs.column(name).to_pylist() for name in ("pool", "component", "phase"))
    totals = Counter[tuple[str, ...]]()
    for place, nano in zip(zip(*names, strict=True), nano_usd(costs.column("amount_usd").to_numpy()), strict=True):
        totals[place] += int(nano)
    seconds = _seconds(case)
    found, common = [], []
    used = defaultdict[str, Counter[str]](Counter)  # pool -> tenant -> cost of its requests
    for (pool, component, phase), nano in totals.items():
        if phase not in PHASES:
            common.append((pool, component, phase, nano))
            continue
        weights = seconds.get((pool, phase), {})
        for tenant, part in _parts(nano, weights):
            line, rule = (USED, "") if tenant != UNATTRIBUTED else ("other", "none")
            found.append(ChargedAmount(tenant, pool, component, phase, line, rule, part))
            if tenant != UNATTRIBUTED:
                used[pool][tenant] += part
    everywhere = sum(used.values(), Counter[str]())
    for pool, component, phase, nano in common:
        # tenants without requests in the pool pay nothing of it
        line = LINES.get(phase, "other")
        rule, users = terms.rule(line), used.get(pool) or everywhere
        stated = terms.weights(rule)
        weights = {tenant: users[tenant] if rule == "by_use" else stated.get(tenant, 0.0) for tenant in users}
        for tenant, part in _parts(nano, {} if rule == "none" else weights):
            kept = rule if tenant != UNATTRIBUTED else "none"
            found.append(ChargedAmount(tenant, pool, component, phase, line, kept, part))
    return found


def _parts(nano: int, weights: Mapping[str, float]) -> Iterator[tuple[str, int]]:
    """Yield (tenant, part) of an amount by *weights*; an amount without weights remains without a tenant."""
    if nano <= 0 or not any(weights.values()):
        if nano:
            yield UNATTRIBUTED, nano
        return
    for tenant, part in zip(weights, split(nano, list(weights.values())), strict=True):
        if part:
            yield tenant, part


def _seconds(case: FinishedCase) -> dict[tuple[str, str], dict[str, float]]:
    """Return (pool, phase) -> tenant -> time that its requests used there [s]."""
    table = case.requests()
    if SHARES[0] not in table.column_names:
        return {}
    tenants, pools = (table.column(name).to_numpy(zero_copy_only=False).astype(str) for name in (_key(table), "pool"))
    found: dict[tuple[str, str], dict[str, float]] = {}

    def add(pool: str, phase: str, tenant: str, seconds: float) -> None:
        if seconds > 0:
            of_place = found.setdefault((pool, phase), {})
            of_place[tenant] = of_place.get(tenant, 0.0) + seconds

    for phase, name in PHASES.items():
        seconds = table.column(name).to_numpy(zero_copy_only=False)
        for tenant in dict.fromkeys(sorted(set(tenants.tolist()))):
            for pool in sorted(set(pools[tenants == tenant].tolist())):
                add(pool, phase, tenant, float(np.sum(seconds[(tenants == tenant) & (pools == pool)])))
    if VISITS in table.column_names:
        usage = case.usage()
        pool_of = dict(zip(usage.column("replica").to_pylist(), usage.column("pool").to_pylist(), strict=True))
        for tenant, visits in zip(tenants.tolist(), table.column(VISITS).to_pylist(), strict=True):
            for visit in visits or ():
                for phase, name in PHASES.items():
                    add(pool_of[visit["replica"]], phase, tenant, visit[name])
    return found


def _key(table: Any) -> str:
    return "tenant" if "tenant" in table.column_names else "service"


def showback_rows(charged: Sequence[ChargedCase], axes: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows of showback.csv: each tenant's month at each point by line, and its unit costs.

    Amounts are means over replications; `share_of_bill` is of the fleet's.
    """
    rows: list[dict[str, Any]] = []
    by_case = {id(one.case): one for one in charged}
    for cases in group([one.case for one in charged], axes).values():
        members = [by_case[id(case)] for case in cases]
        lines = [_by_tenant(one) for one in members]
        counts = [_counts(one) for one in members]
        bill = mean([sum(sum(one.values()) for one in each.values()) for each in lines])
        names = dict.fromkeys(name for each in lines for name in each)
        for tenant in sorted(names, key=lambda name: name == UNATTRIBUTED):
            own = {line: mean([each.get(tenant, {}).get(line, 0.0) for each in lines]) for line in EVERY_LINE}
            total = sum(own.values())
            requests, tokens = (mean([each.get(tenant, (0.0, 0.0))[i] for each in counts]) for i in (0, 1))
            row: dict[str, Any] = {"fleet": cases[0].fleet, **{axis: cases[0].axes.get(axis) for axis in axes}}
            row |= {"tenant": tenant, **{f"{line}_usd_per_month": usd for line, usd in own.items()}}
            row |= {"usd_per_month": total, "share_of_bill": total / bill}
            row |= {"requests_per_month": requests, "output_tokens_per_month": tokens}
            row |= {"usd_per_thousand_requests": 1e3 * total / requests if requests else None}
            row |= {"usd_per_million_output_tokens": 1e6 * total / tokens if tokens else None}
            rows.append(row)
    return rows


def _by_tenant(charged: ChargedCase) -> dict[str, dict[str, float]]:
    """Return tenant -> line -> cost of a month [USD]."""
    nano: dict[str, dict[str, int]] = {}
    for one in charged.amounts:
        lines = nano.setdefault(one.tenant, {})
        lines[one.line] = lines.get(one.line, 0) + one.nano_usd
    scale = charged.months * NANO_PER_USD
    return {name: {line: amount / scale for line, amount in lines.items()} for name, lines in nano.items()}


def _counts(charged: ChargedCase) -> dict[str, tuple[float, float]]:
    """Return tenant -> (requests, output tokens) of a month, of requests that arrive in the window and finish."""
    table = charged.case.requests()
    status = table.column("status").to_numpy(zero_copy_only=False)
    done = (table.column("measured").to_numpy() == 1) & (status == "finished")
    tenants = table.column(_key(table)).to_numpy(zero_copy_only=False).astype(str)
    tokens, months = table.column("output_tokens").to_numpy(), charged.months
    return {
        name: (float(own.sum()) / months, float(tokens[own].sum()) / months)
        for name in sorted(set(tenants.tolist()))
        for own in [done & (tenants == name)]
    }
