"""Bill of a run as rows of the FinOps Open Cost and Usage Specification, FOCUS 1.2 (focus.finops.org).

Each case (fleet, sweep point, replication) is an alternative and so a billing account of its own: the sum within an
account is a bill, the sum over several has no meaning. The tokens of a charge are in Tags.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, time, timedelta
from math import isclose
from pathlib import Path
from typing import Any, NamedTuple, cast
from zoneinfo import ZoneInfo

import pandas as pd

from sim.catalogue.market import iso_code
from sim.cost.charge import PaymentTime
from sim.cost.ledger import split
from sim.cost.rental import UNUSED
from sim.csvio import write_csv
from sim.language import _
from sim.report.export.stored_answer import StoredAnswer
from sim.units import NANO_PER_USD, SECONDS_PER_HOUR

COLUMNS = (
    *("BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd"),
    *("BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency"),
    *("ChargePeriodEnd", "ChargePeriodStart", "CommitmentDiscountCategory", "CommitmentDiscountId"),
    *("CommitmentDiscountName", "CommitmentDiscountQuantity", "CommitmentDiscountStatus", "CommitmentDiscountType"),
    *("CommitmentDiscountUnit", "ConsumedQuantity", "ConsumedUnit", "ContractedCost", "ContractedUnitPrice"),
    *("EffectiveCost", "InvoiceId", "InvoiceIssuerName", "ListCost", "ListUnitPrice", "PricingCategory"),
    *("PricingCurrency", "PricingCurrencyContractedUnitPrice", "PricingCurrencyEffectiveCost"),
    *("PricingCurrencyListUnitPrice", "PricingQuantity", "PricingUnit", "ProviderName", "PublisherName"),
    *("ResourceId", "ResourceName", "ResourceType", "ServiceCategory", "ServiceName", "ServiceSubcategory"),
    *("SkuId", "SkuMeter", "SkuPriceDetails", "SkuPriceId", "Tags"),
)
"""Mandatory columns of the specification, and the conditional columns whose conditions a simulated bill meets."""
ISSUER = "gpufleet (simulated)"
SERVICE = {"ServiceCategory": "AI and Machine Learning", "ServiceSubcategory": "Machine Learning"}
TOKENS = {"prefill": "input", "decode": "output", "recompute": "recomputed"}
"""Phase of a ledger row -> type of its tokens; other phases have no tokens."""
TIME_UNITS = {"h": "Hours", "month": "Months", "year": "Years"}
TAXES = ("sales_tax", "tax", "import_duty", "vat", "property_tax")
"""Components that are a tax; stored answers may have the last name."""
COMMITTED = {"rental_reserved": "Used", UNUSED: "Unused", "rental_unused": "Unused"}
"""Component that a commitment covers -> status of its use; stored answers may have the last name."""
DIVIDED = ("ListCost", "ContractedCost", "PricingQuantity", "ConsumedQuantity", "PricingCurrencyEffectiveCost")
"""Columns of a row that a chargeback divides, beside its costs."""
AMORTISED = (PaymentTime.AT_DELIVERY.value, PaymentTime.AT_END.value)
"""Times of payments whose cost is spread over the life of the hardware."""


class CaseColumns(NamedTuple):
    """Values common to all rows of a case."""

    account: str
    fleet: str
    began: datetime
    tags: dict[str, Any]
    usd_per_currency: float
    """Exchange rate of the billing currency [US dollars per unit]."""
    discount: float
    """Discount of the fleet's commitment, as a fraction; 0 without a commitment."""


def write_focus(path: Path, answer: StoredAnswer) -> list[str]:
    """Write the rows to the file *path*; return notes on their dates."""
    start, remarks = _start(answer)
    write_csv(path, COLUMNS, ([_shown(row.get(name)) for name in COLUMNS] for row in _rows(answer, start)))
    return remarks


def unit_of(unit: str) -> str:
    """Return the specification's name for the unit of a ledger row.

    >>> [unit_of(one) for one in ("GPU-h", "server-year", "kWh", "failure")]
    ['GPU-Hours', 'Server-Years', 'kWh', 'Failures']
    """
    what, dash, span = unit.rpartition("-")
    if dash and span in TIME_UNITS:
        return f"{_capital(what)}-{TIME_UNITS[span]}"
    return unit if unit[:1].isupper() or unit in ("kWh", "kg CO2e") else f"{_capital(unit)}s"


def _capital(word: str) -> str:
    return word if word[:2] == "kW" else word[:1].upper() + word[1:]


def _start(answer: StoredAnswer) -> tuple[datetime, list[str]]:
    """Return the start of the simulated time in UTC, and notes on it."""
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
    charged = _charged(answer)
    per_currency = 1.0
    if answer.currency != "USD":
        per_currency = float(answer.summary["usd_per_currency"].dropna().iloc[0])
    for case, rows in costs.groupby(["fleet", *axes, "replication"], sort=False, dropna=False):
        fleet, *at, replication = cast(tuple[Any, ...], case)
        where = {axis: value for axis, value in zip(axes, at, strict=True) if pd.notna(value)}
        name = "/".join([answer.manifest["scenario"], fleet, *(f"{a}={v}" for a, v in where.items()), str(replication)])
        tags = {"gpufleet/fleet": fleet, **{f"gpufleet/{axis}": _plain(value) for axis, value in where.items()}}
        tags["gpufleet/replication"] = int(replication)
        place = CaseColumns(name, fleet, start, tags, per_currency, _discount(answer, fleet))
        seconds = float(rows["start_s"].min())
        booked = rows.to_dict("records")
        for one in _delivered(answer, fleet, where):
            like = next(row for row in booked if all(row[key] == one[key] for key in ("pool", "component")))
            yield _purchase(answer, place, like, one["once_usd"] / per_currency, seconds)
        for row in booked:
            usage = _usage(answer, place, row, charges[fleet, row["pool"], row["component"]])
            parts = charged.get((*case, row["pool"], row["component"], row["phase"]), [])
            for one in _split(usage, parts):
                yield from _under_a_commitment(one, place) if row["component"] in COMMITTED else [one]


def _charged(answer: StoredAnswer) -> dict[tuple[Any, ...], list[tuple[str, str, float]]]:
    """Return (case, pool, component, phase) -> (tenant, line, amount) of a chargeback; empty without one."""
    if not (answer.folder / "chargeback.csv").exists():
        return {}
    found: dict[tuple[Any, ...], list[tuple[str, str, float]]] = {}
    keys = ["fleet", *answer.axes, "replication", "pool", "component", "phase"]
    for row in answer.table("chargeback").to_dict("records"):
        part = (str(row["tenant"]), str(row["line"]), float(row[answer.amount("amount_usd")]))
        found.setdefault(tuple(row[key] for key in keys), []).append(part)
    return found


def _split(usage: dict[str, Any], parts: Sequence[tuple[str, str, float]]) -> Iterator[dict[str, Any]]:
    """Yield *usage* divided among tenants in proportion to their *parts*, each with its tags; the sums stay exact."""
    whole = round(usage["EffectiveCost"] * NANO_PER_USD)
    weights = [max(0.0, amount) for _tenant, _line, amount in parts]
    if whole <= 0 or not any(weights):
        yield usage
        return
    for (tenant, line, _amount), nano in zip(parts, split(whole, weights), strict=True):
        if nano:
            cells = {name: usage[name] * (nano / whole) for name in DIVIDED if usage[name] is not None}
            tags = {"gpufleet/tenant": tenant, "gpufleet/line": line}
            billed = {name: nano / NANO_PER_USD for name in ("BilledCost", "EffectiveCost") if usage[name]}
            yield {**usage, **cells, **billed, "Tags": json.dumps({**json.loads(usage["Tags"]), **tags})}


def _discount(answer: StoredAnswer, fleet: str) -> float:
    """Return the discount of the commitment of *fleet* on its hourly price, as a fraction."""
    found: dict[str, Any] = next((one for one in answer.scenario["fleets"] if one["name"] == fleet), {})
    commitment = (found.get("cost") or {}).get("commitment") or {}
    return float(commitment.get("discount", 0.0))


def _delivered(answer: StoredAnswer, fleet: str, where: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the charges that *fleet* pays at delivery at a point; a sweep may change the machines and their price."""
    summary = answer.summary
    here = summary["fleet"] == fleet
    for axis, value in where.items():
        here &= summary[axis] == value
    capex_usd = float(summary.loc[here, "capex_usd"].iloc[0])
    plan = next(one for one in answer.plans if one["fleet"] == fleet and isclose(one["capex_usd"], capex_usd))
    return [one for one in plan["charges"] if one["paid"] == PaymentTime.AT_DELIVERY.value and one["once_usd"]]


def _usage(answer: StoredAnswer, place: CaseColumns, row: dict[Any, Any], paid: str) -> dict[str, Any]:
    """Build the usage row of a ledger row; of amounts paid once, it has only the effective cost."""
    price, quantity = row[answer.amount("unit_price_usd")], row["quantity"]
    amount, component, unit = row[answer.amount("amount_usd")], row["component"], unit_of(row["unit"])
    sale = price * quantity
    tokens = {"gpufleet/token_type": TOKENS[row["phase"]]} if row["phase"] in TOKENS else {}
    metered = paid in (PaymentTime.METERED.value, PaymentTime.SWITCHED_ON.value)
    cells = {
        **_common(answer, place, row, row["start_s"], row["end_s"]),
        **_in_pricing_currency(place, row, price, row["amount_in_currency"]),
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
        "Tags": json.dumps({**place.tags, "gpufleet/phase": row["phase"], **tokens}),
    }
    return _taxed(cells, amount) if component in TAXES else cells


def _under_a_commitment(usage: dict[str, Any], place: CaseColumns) -> Iterator[dict[str, Any]]:
    """Yield the purchase of reserved units, billed whether used or not, and their use, which is effective."""
    component = usage["SkuId"].partition("/")[0]
    quantity, unit = usage["PricingQuantity"], usage["PricingUnit"]
    commitment = {
        "CommitmentDiscountCategory": "Usage",
        "CommitmentDiscountId": f"{usage['ResourceId']}/commitment",
        "CommitmentDiscountName": f"{usage['ResourceName']}, reserved",
        "CommitmentDiscountType": "Reserved",
        "CommitmentDiscountQuantity": quantity,
        "CommitmentDiscountUnit": unit,
    }
    yield {
        **usage,
        **commitment,
        "ResourceId": commitment["CommitmentDiscountId"],
        "ResourceName": commitment["CommitmentDiscountName"],
        "ResourceType": "Commitment",
        "SkuPriceId": f"{usage['SkuPriceId']}, commitment",
        "ChargeCategory": "Purchase",
        "ChargeFrequency": "Recurring",
        "EffectiveCost": 0.0,
        "PricingCurrencyEffectiveCost": 0.0,
        "ConsumedQuantity": None,
        "ConsumedUnit": None,
    }
    unused = {"ConsumedQuantity": None, "ConsumedUnit": None} if COMMITTED[component] == "Unused" else {}
    paid_share = 1 - place.discount or 1.0
    hourly: tuple[str, ...] = ("ListUnitPrice", "ContractedUnitPrice", "ListCost", "ContractedCost")
    hourly += ("PricingCurrencyListUnitPrice", "PricingCurrencyContractedUnitPrice")
    yield {
        **usage,
        **commitment,
        **unused,
        **{name: usage[name] / paid_share for name in hourly},
        "CommitmentDiscountStatus": COMMITTED[component],
        "BilledCost": 0.0,
        "PricingCategory": "Committed",
    }


def _in_pricing_currency(place: CaseColumns, row: dict[Any, Any], price: float, effective: float) -> dict[str, Any]:
    """Return *price* and effective cost in the pricing currency, both given in the billing currency."""
    stated = price * place.usd_per_currency / row["fx_rate"]
    return {
        "PricingCurrency": iso_code(str(row["currency"])),
        "PricingCurrencyListUnitPrice": stated,
        "PricingCurrencyContractedUnitPrice": stated,
        "PricingCurrencyEffectiveCost": effective,
    }


def _purchase(
    answer: StoredAnswer, place: CaseColumns, like: dict[Any, Any], amount: float, seconds: float
) -> dict[str, Any]:
    """Build the row of a purchase at delivery.

    Its use is charged by the rows of the ledger (*like* this row), so that its effective cost is zero.
    """
    component = like["component"]
    cells = {
        **_common(answer, place, like, seconds, seconds + SECONDS_PER_HOUR),
        **_in_pricing_currency(place, like, amount, 0.0),
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
        "SkuPriceId": f"{place.fleet}/{like['pool']}/{component}, at delivery",
        "Tags": json.dumps(place.tags),
    }
    return _taxed(cells, amount) if component in TAXES else cells


def _common(
    answer: StoredAnswer, place: CaseColumns, row: dict[Any, Any], start_s: float, end_s: float
) -> dict[str, Any]:
    pool, component, source = row["pool"], row["component"], row["source"]
    start, end = (place.began + timedelta(seconds=round(at)) for at in (start_s, end_s))
    month = start.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return {
        "BillingAccountId": place.account,
        "BillingAccountName": place.account,
        "BillingCurrency": iso_code(answer.currency),
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
        "SkuId": f"{component}/{pool}",
        "SkuMeter": component.replace("_", " "),
        "SkuPriceId": f"{place.fleet}/{pool}/{component}",
        "SkuPriceDetails": json.dumps({"x_Source": source}) if isinstance(source, str) else None,
    }


def _taxed(cells: dict[str, Any], amount: float) -> dict[str, Any]:
    """Clear the quantities and prices of a tax, which has none."""
    none: tuple[str, ...] = (
        "ListUnitPrice",
        "ContractedUnitPrice",
        "PricingQuantity",
        "PricingUnit",
        "PricingCategory",
    )
    none += ("ConsumedQuantity", "ConsumedUnit", "SkuId", "SkuMeter", "SkuPriceId", "SkuPriceDetails")
    none += ("PricingCurrencyListUnitPrice", "PricingCurrencyContractedUnitPrice")
    return cells | dict.fromkeys(none) | {"ChargeCategory": "Tax", "ListCost": amount, "ContractedCost": amount}


def _plain(value: Any) -> Any:
    """Convert a numpy scalar for JSON."""
    return value.item() if hasattr(value, "item") else value


class _Number(float):
    """Number that is written without a plus sign in its exponent."""

    def __str__(self) -> str:
        return float.__repr__(self).replace("e+", "e")


def _shown(value: Any) -> Any:
    """Format *value* as the specification requires: times in UTC, numbers, nothing for null."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    return _Number(value) if isinstance(value, float) else value
