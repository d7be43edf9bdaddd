"""A run's bill as rows of the FinOps Open Cost and Usage Specification, FOCUS 1.2 (focus.finops.org).

Each case (fleet, sweep point, replication) is an alternative, so each is a billing account of its own: sums within one
are bills, sums over several mean nothing. The tokens of a charge stand in Tags.
"""

import csv
import json
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from math import isclose
from pathlib import Path
from typing import Any, NamedTuple, cast
from zoneinfo import ZoneInfo

import pandas as pd

from sim.cost.bill.charge import Paid
from sim.language import _
from sim.report.export.answer import StoredAnswer

COLUMNS = (
    *("BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd"),
    *("BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency"),
    *("ChargePeriodEnd", "ChargePeriodStart", "ConsumedQuantity", "ConsumedUnit", "ContractedCost"),
    *("ContractedUnitPrice", "EffectiveCost", "InvoiceIssuerName", "ListCost", "ListUnitPrice", "PricingCategory"),
    *("PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "ResourceId", "ResourceName"),
    *("ResourceType", "ServiceCategory", "ServiceName", "ServiceSubcategory", "SkuId", "SkuMeter", "SkuPriceId"),
    "Tags",
)
"""Those that the specification makes mandatory, and the conditional ones whose conditions a simulated bill meets."""
ISSUER = "gpufleet (simulated)"
SERVICE = {"ServiceCategory": "AI and Machine Learning", "ServiceSubcategory": "Machine Learning"}
TOKENS = {"prefill": "input", "decode": "output", "recompute": "recomputed"}
"""Phase of a ledger row -> the tokens that it is for; the rest is for none."""
TIME_UNITS = {"h": "Hours", "month": "Months", "year": "Years"}
TAX = "tax"
AMORTISED = (Paid.AT_DELIVERY.value, Paid.AT_END.value)


class Place(NamedTuple):
    """What all rows of a case have in common."""

    account: str
    began: datetime
    tags: dict[str, Any]


def write_focus(path: Path, answer: StoredAnswer) -> list[str]:
    """Writes the rows to the file *path*; returns what a reader must know of their dates."""
    start, told = _start(answer)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for row in _rows(answer, start):
            writer.writerow({name: _text(value) for name, value in row.items()})
    return told


def unit_of(unit: str) -> str:
    """A ledger's unit as the specification writes it.

    >>> [unit_of(one) for one in ("GPU-h", "server-year", "kWh", "failure")]
    ['GPU-Hours', 'Server-Years', 'kWh', 'Failures']
    """
    what, dash, span = unit.rpartition("-")
    if dash and span in TIME_UNITS:
        return f"{_capital(what)}-{TIME_UNITS[span]}"
    return unit if unit[:1].isupper() or unit == "kWh" else f"{_capital(unit)}s"


def _capital(word: str) -> str:
    return word if word[:2] == "kW" else word[:1].upper() + word[1:]


def _start(answer: StoredAnswer) -> tuple[datetime, list[str]]:
    """When the simulated time begins, in UTC."""
    given = answer.scenario.get("starts_at")
    if given is None:
        made = datetime.fromisoformat(answer.manifest["started_at"]).date()
        began = datetime.combine(made, time(), UTC)
        return began, [
            _("The scenario has no starts_at: charges are dated from {date}, the day of the run.", date=began.date())
        ]
    at = datetime.fromisoformat(str(given))
    zone = (answer.scenario.get("site") or {}).get("timezone")
    return (at if at.tzinfo else at.replace(tzinfo=ZoneInfo(zone) if zone else UTC)).astimezone(UTC), []


def _rows(answer: StoredAnswer, start: datetime) -> Iterator[dict[str, Any]]:
    costs, axes = answer.table("costs"), answer.axes
    charges = {
        (str(plan["fleet"]), one["pool"], one["component"]): one["paid"]
        for plan in answer.resolved
        for one in plan["charges"]
    }
    per_currency = 1.0
    if answer.currency != "USD":
        per_currency = float(answer.summary["usd_per_currency"].dropna().iloc[0])
    for case, rows in costs.groupby(["fleet", *axes, "replication"], sort=False, dropna=False):
        fleet, *at, replication = cast(tuple[Any, ...], case)
        where = {axis: value for axis, value in zip(axes, at, strict=True) if pd.notna(value)}
        name = "/".join([answer.manifest["scenario"], fleet, *(f"{a}={v}" for a, v in where.items()), str(replication)])
        tags = {"gpufleet/fleet": fleet, **{f"gpufleet/{axis}": _plain(value) for axis, value in where.items()}}
        place = Place(name, start, {**tags, "gpufleet/replication": int(replication)})
        seconds = float(rows["start_s"].min())
        for one in _delivered(answer, fleet, where):
            yield _purchase(answer, place, one["pool"], one["component"], one["once_usd"] / per_currency, seconds)
        for row in rows.to_dict("records"):
            yield _usage(answer, place, row, charges[fleet, row["pool"], row["component"]])


def _delivered(answer: StoredAnswer, fleet: str, where: dict[str, Any]) -> list[dict[str, Any]]:
    """What *fleet* is charged at delivery at one point; a sweep may change the machines, and with them their price."""
    summary = answer.summary
    here = summary["fleet"] == fleet
    for axis, value in where.items():
        here &= summary[axis] == value
    capex_usd = float(summary.loc[here, "capex_usd"].iloc[0])
    plan = next(one for one in answer.plans if one["fleet"] == fleet and isclose(one["capex_usd"], capex_usd))
    return [one for one in plan["charges"] if one["paid"] == Paid.AT_DELIVERY.value and one["once_usd"]]


def _usage(answer: StoredAnswer, place: Place, row: dict[Any, Any], paid: str) -> dict[str, Any]:
    """A ledger row. What was paid once is billed when it is paid, and only its part of the life counts here."""
    price, quantity = row[answer.amount("unit_price_usd")], row["quantity"]
    amount, component, unit = row[answer.amount("amount_usd")], row["component"], unit_of(row["unit"])
    sale = price * quantity
    tokens = {"gpufleet/token_type": TOKENS[row["phase"]]} if row["phase"] in TOKENS else {}
    metered = paid in (Paid.METERED.value, Paid.SWITCHED_ON.value)
    cells = {
        **_common(answer, place, row["pool"], component, row["start_s"], row["end_s"]),
        "BilledCost": 0.0 if paid in AMORTISED else amount,
        "EffectiveCost": amount,
        "ListCost": sale,
        "ContractedCost": sale,
        "ChargeCategory": "Usage",
        "ChargeDescription": f"{component.replace('_', ' ')}, {row['phase']}",
        "ChargeFrequency": "Usage-Based" if metered else "Recurring",
        "ListUnitPrice": price,
        "ContractedUnitPrice": price,
        "PricingCategory": "Dynamic" if "spot" in component else "Standard",
        "PricingQuantity": quantity,
        "PricingUnit": unit,
        "ConsumedQuantity": quantity,
        "ConsumedUnit": unit,
        "SkuPriceId": f"{component} ({row['source']})" if isinstance(row["source"], str) else component,
        "Tags": json.dumps({**place.tags, "gpufleet/phase": row["phase"], **tokens}),
    }
    return _taxed(cells, amount) if component == TAX else cells


def _purchase(
    answer: StoredAnswer, place: Place, pool: str, component: str, amount: float, seconds: float
) -> dict[str, Any]:
    """What is paid at delivery; its use is charged by the rows of the ledger, so nothing of it is effective."""
    cells = {
        **_common(answer, place, pool, component, seconds, seconds + 3600),
        "BilledCost": amount,
        "EffectiveCost": 0.0,
        "ListCost": amount,
        "ContractedCost": amount,
        "ChargeCategory": "Purchase",
        "ChargeDescription": f"{component.replace('_', ' ')}, paid at delivery",
        "ChargeFrequency": "One-Time",
        "ListUnitPrice": amount,
        "ContractedUnitPrice": amount,
        "PricingCategory": "Standard",
        "PricingQuantity": 1,
        "PricingUnit": "Units",
        "SkuPriceId": f"{component} (at delivery)",
        "Tags": json.dumps(place.tags),
    }
    return _taxed(cells, amount) if component == TAX else cells


def _common(
    answer: StoredAnswer, place: Place, pool: str, component: str, start_s: float, end_s: float
) -> dict[str, Any]:
    start, end = (place.began + timedelta(seconds=round(at)) for at in (start_s, end_s))
    month = start.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return {
        "BillingAccountId": place.account,
        "BillingAccountName": place.account,
        "BillingCurrency": answer.currency,
        "BillingPeriodStart": month,
        "BillingPeriodEnd": (month + timedelta(days=32)).replace(day=1),
        "ChargePeriodStart": start,
        "ChargePeriodEnd": end,
        "InvoiceIssuerName": ISSUER,
        "ProviderName": ISSUER,
        "PublisherName": ISSUER,
        "ResourceId": f"{place.account}/{pool}",
        "ResourceName": pool,
        "ResourceType": "GPU pool",
        **SERVICE,
        "ServiceName": str(answer.scenario.get("model") or "model serving"),
        "SkuId": component,
        "SkuMeter": component.replace("_", " "),
    }


def _taxed(cells: dict[str, Any], amount: float) -> dict[str, Any]:
    """A tax has no quantity and no price of its own."""
    none: tuple[str, ...] = (
        "ListUnitPrice",
        "ContractedUnitPrice",
        "PricingQuantity",
        "PricingUnit",
        "PricingCategory",
    )
    none += ("ConsumedQuantity", "ConsumedUnit", "SkuId", "SkuMeter", "SkuPriceId")
    return cells | dict.fromkeys(none) | {"ChargeCategory": "Tax", "ListCost": amount, "ContractedCost": amount}


def _plain(value: Any) -> Any:
    """A number of numpy's as JSON knows it."""
    return value.item() if hasattr(value, "item") else value


def _text(value: Any) -> Any:
    """A cell: a moment in UTC, a number without a plus sign in its exponent, nothing for null."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, float):
        return repr(value).replace("e+", "e")
    return value
