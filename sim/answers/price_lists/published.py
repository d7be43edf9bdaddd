"""Readers of price lists in the formats in which clouds publish them.

AWS: price list bulk files of EC2, CSV and JSON (docs.aws.amazon.com, "Reading the service price list file").
Azure: pages of the Retail Prices API (learn.microsoft.com, "Azure Retail Prices overview").
Google: pages of SKUs of the Cloud Billing Catalog API (cloud.google.com/billing/v1/how-tos/catalog-api).
Lambda: `GET /api/v1/instance-types`. RunPod: `gpuTypes` of its GraphQL API. Others: a CSV with a row per price.
"""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from sim.answers.from_files.gpu_labels import INSTANCES, gpu_of
from sim.answers.price_lists.row import ON_DEMAND, SPOT, PriceListErrors, PriceRow, day_of, terms_of
from sim.catalogue.catalog import Catalog
from sim.catalogue.data_folder import UnknownId
from sim.catalogue.market import ISO_4217, USD, iso_code
from sim.infile import json_objects, opened
from sim.message import Message, os_reason

MOST_BYTES = 2_000_000_000
"""Largest list: AWS' file of all regions has several gigabytes, that of a region about 0.3 [bytes]."""
YEAR_H = 8760
AZURE_GPUS = (
    (r"standard_nd\d+\w*", 8),
    (r"standard_nc(40ads_h100|24ads_a100|4as_t4|8as_t4|16as_t4)\w*", 1),
    (r"standard_nc(80adis_h100|48ads_a100)\w*", 2),
    (r"standard_nc(96ads_a100|64as_t4)\w*", 4),
    (r"standard_nv36ads_a10\w*", 1),
    (r"standard_nv72ads_a10\w*", 2),
)
"""Prefixes of Azure's VM sizes, with the number of whole GPUs in them, which Azure's list does not state."""
GOOGLE_GPUS = {
    "tesla t4": "t4",
    "tesla v100": "v100-16gb-sxm2",
    "tesla a100": "a100-40gb-sxm",
    "a100 80gb": "a100-80gb-sxm",
    "l4 ": "l4",
    "h100 80gb": "h100-80gb-sxm",
    "h200": "h200-141gb-sxm",
    "b200": "b200-180gb-sxm",
}
"""Patterns in the descriptions of Google's SKUs -> GPU."""
COLUMNS = {
    "gpu": ("gpu", "gpu_name", "gpu_type", "accelerator", "instance", "instance_type"),
    "price": (
        "usd_per_gpu_hour",
        "price_per_gpu_hour",
        "price_usd_per_gpu_hour",
        "gpu_hour",
        "price",
        "price_per_hour",
    ),
    "gpus": ("gpus", "gpu_count", "num_gpus"),
    "unit": ("unit", "per", "billing_unit"),
    "provider": ("provider", "cloud", "vendor"),
    "region": ("region", "location", "zone"),
    "terms": ("terms", "type", "pricing_model", "commitment"),
    "currency": ("currency", "currency_code"),
    "date": ("date", "as_of", "effective_date"),
}
"""Columns of a user's own CSV list, with their accepted headers."""
HOURLY = re.compile(r"(per |1 )?(gpu[ _/-]?)?(hours?|hrs?|h|hourly)")
"""Units of a price per hour."""


@dataclass(slots=True)
class PublishedList:
    """Prices of a list, with counts of the rows that give no price of a GPU of the catalogue."""

    kind: str
    """Provider and format."""
    rows: list[PriceRow] = field(default_factory=list)
    others: int = 0
    """Rows for other machines, systems and terms."""
    unknown: Counter[str] = field(default_factory=Counter)
    """Instances or names that look like GPUs but are not in the catalogue -> number of rows."""


def read_list(
    path: Path, catalog: Catalog, day: date | None = None, provider: str = "", regions: tuple[str, ...] = ()
) -> PublishedList:
    """Return the prices in the list *path*.

    Parameters
    ----------
    path
        File as published.
    catalog
        Catalogue of GPUs.
    day
        Date of the list, for lists that state none.
    provider
        Provider of a CSV without that column.
    regions
        Regions to read; empty for all.

    Raises
    ------
    PriceListErrors
        All mistakes, with file and line.

    """
    try:
        with opened(path) as file:
            content = file.read(MOST_BYTES)
        text = content.decode("utf-8-sig")
    except OSError as error:
        reason = Message("cannot be read: {reason}", os_reason(error))
        raise PriceListErrors([(str(path), 0, reason)]) from None
    except UnicodeDecodeError as error:
        raise PriceListErrors([(str(path), 0, Message("is not UTF-8 text (byte {position})", error.start))]) from None
    reader = _Reader(str(path), catalog, day, provider)
    reader.read(text)
    if reader.problems:
        raise PriceListErrors(reader.problems)
    if regions:
        known = sorted({row.region for row in reader.found.rows})
        if missing := [one for one in regions if one not in known]:
            text = Message("has no region {region}; it has {regions}", missing[0], ", ".join(known[:20]) or "none")
            raise PriceListErrors([(str(path), 0, text)])
        reader.found.rows = [row for row in reader.found.rows if row.region in regions]
    if not reader.found.rows:
        raise PriceListErrors([(str(path), 0, "has no price for a GPU of the catalogue")])
    reader.found.rows = _cheapest(reader.found.rows)
    return reader.found


def _cheapest(rows: Iterable[PriceRow]) -> list[PriceRow]:
    """Return the cheapest of *rows* for each offer, since several instance types have the same GPU."""
    found: dict[tuple[str, str, str], PriceRow] = {}
    for row in rows:
        key = row.item, row.offer, row.currency
        found[key] = min(found.get(key, row), row, key=lambda one: one.price)
    return list(found.values())


class _Reader:
    def __init__(self, path: str, catalog: Catalog, day: date | None, provider: str) -> None:
        self.path, self.catalog, self.day, self.provider = path, catalog, day, provider
        self.problems: list[tuple[str, int, str]] = []
        self.found = PublishedList("")

    def read(self, text: str) -> None:
        if not text.strip():
            self.fault(0, "is empty")
        elif text.lstrip()[0] in "{[":
            try:
                pages = json_objects(text)
            except json.JSONDecodeError as error:
                self.fault(error.lineno, Message("is not valid JSON: {reason}", error.msg))
                return
            self._json(pages)
        elif text.startswith(('"FormatVersion"', "FormatVersion")):
            self._aws_csv(text)
        else:
            self._csv(text)

    def fault(self, line: int, text: str) -> None:
        """Add a mistake."""
        self.problems.append((self.path, line, text))

    def _json(self, pages: list[Any]) -> None:
        kinds = (("Items", self._azure), ("skus", self._google), ("products", self._aws_json), ("data", self._cloud))
        for page in pages:
            reader = next((read for key, read in kinds if isinstance(page, dict) and key in page), None)
            if reader is None:
                text = "is not a price list of AWS (products), Azure (Items), Google (skus), Lambda or RunPod (data)"
                self.fault(0, text)
                return
            reader(page)

    # AWS

    def _aws_csv(self, text: str) -> None:
        self.found.kind = "AWS"
        lines = text.splitlines()
        header = next((at for at, line in enumerate(lines[:20]) if "OfferTermCode" in line), None)
        if header is None:
            self.fault(0, "has no row of column names with OfferTermCode")
            return
        for line, row in enumerate(csv.DictReader(lines[header:]), header + 2):
            product = {
                "instanceType": row.get("Instance Type"),
                "regionCode": row.get("Region Code"),
                "location": row.get("Location"),
                "tenancy": row.get("Tenancy"),
                "operatingSystem": row.get("Operating System"),
                "capacitystatus": row.get("CapacityStatus"),
                "preInstalledSw": row.get("Pre Installed S/W"),
                "gpu": row.get("GPU"),
            }
            term = {
                "LeaseContractLength": row.get("LeaseContractLength"),
                "PurchaseOption": row.get("PurchaseOption"),
                "OfferingClass": row.get("OfferingClass"),
            }
            self._aws_price(
                product,
                term if row.get("TermType") == "Reserved" else {},
                str(row.get("Unit")),
                str(row.get("PricePerUnit")),
                str(row.get("Currency") or USD),
                str(row.get("EffectiveDate")),
                line,
            )

    def _aws_json(self, page: Mapping[str, Any]) -> None:
        self.found.kind = "AWS"
        products = {sku: one.get("attributes") or {} for sku, one in page["products"].items()}
        for kind, by_sku in (page.get("terms") or {}).items():
            for sku, offers in by_sku.items():
                for offer in offers.values():
                    term = offer.get("termAttributes") or {} if kind == "Reserved" else {}
                    for dimension in (offer.get("priceDimensions") or {}).values():
                        for currency, price in (dimension.get("pricePerUnit") or {}).items():
                            self._aws_price(
                                products.get(sku, {}),
                                term,
                                str(dimension.get("unit")),
                                str(price),
                                str(currency),
                                str(offer.get("effectiveDate")),
                                0,
                            )

    def _aws_price(
        self,
        product: Mapping[str, Any],
        term: Mapping[str, Any],
        unit: str,
        price: str,
        currency: str,
        effective: str,
        line: int,
    ) -> None:
        instance = str(product.get("instanceType") or "")
        usual = {
            "tenancy": "Shared",
            "operatingSystem": "Linux",
            "capacitystatus": "Used",
            "preInstalledSw": "NA",
        }
        plain = all(product.get(key) == value for key, value in usual.items())
        paid_hourly = not term or (
            term.get("PurchaseOption") == "No Upfront" and term.get("OfferingClass") == "standard"
        )
        gpu, count = _instance(instance), str(product.get("gpu") or "")
        if not plain or not paid_hourly or unit not in ("Hrs", "hours") or gpu is None:
            self.found.others += 1
            if gpu is None and count.isdecimal() and int(count) > 0:
                self.found.unknown[instance] += 1
            return
        if not count.isdecimal() or int(count) < 1:
            self.fault(line, Message("{instance}: the number of GPUs is missing (GPU)", instance))
            return
        terms = terms_of(str(term.get("LeaseContractLength"))) if term else ON_DEMAND
        region = str(product.get("regionCode") or product.get("location") or "")
        self._add(gpu, "AWS", region, terms, price, int(count), currency, effective, instance, line)

    # Azure

    def _azure(self, page: Mapping[str, Any]) -> None:
        self.found.kind = "Azure"
        for item in page["Items"]:
            size = str(item.get("armSkuName") or "")
            gpu = _instance(size)
            kind, meter = str(item.get("type")), f"{item.get('skuName')} {item.get('meterName')}"
            gpus = next((count for pattern, count in AZURE_GPUS if re.fullmatch(pattern, size.lower())), None)
            term = str(item.get("reservationTerm") or "")
            left_out = kind not in ("Consumption", "Reservation") or "Low Priority" in meter
            if gpu is None or left_out or "Windows" in str(item.get("productName")):
                self.found.others += 1
                continue
            if gpus is None:
                self.found.unknown[size] += 1
                continue
            years = int(term.split()[0]) if kind == "Reservation" and term[:1].isdecimal() else 0
            price = item.get("retailPrice")
            hourly = price / (years * YEAR_H) if years and isinstance(price, int | float) else price
            terms = terms_of(term) if years else SPOT if "Spot" in meter else ON_DEMAND
            region, currency = str(item.get("armRegionName") or ""), str(item.get("currencyCode") or USD)
            since = str(item.get("effectiveStartDate") or "")
            self._add(gpu, "Azure", region, terms, hourly, gpus, currency, since, size, 0)

    # Google

    def _google(self, page: Mapping[str, Any]) -> None:
        self.found.kind = "Google"
        for sku in page["skus"]:
            category, name = sku.get("category") or {}, str(sku.get("description") or "")
            gpu = next((one for words, one in GOOGLE_GPUS.items() if words in f"{name.lower()} "), None)
            if category.get("resourceGroup") != "GPU":
                self.found.others += 1
                continue
            if gpu is None:
                self.found.unknown[name] += 1
                continue
            for info in (sku.get("pricingInfo") or [])[:1]:
                expression = info.get("pricingExpression") or {}
                rates = expression.get("tieredRates") or []
                if expression.get("usageUnit") != "h" or not rates:
                    self.fault(0, Message("{name}: a price per hour is needed (usageUnit h)", name))
                    continue
                money = rates[-1].get("unitPrice") or {}
                price = float(money.get("units") or 0) + float(money.get("nanos") or 0) / 1e9
                terms, since = terms_of(str(category.get("usageType") or "")), str(info.get("effectiveTime") or "")
                currency = str(money.get("currencyCode") or USD)
                for region in sku.get("serviceRegions") or [""]:
                    self._add(gpu, "Google", str(region), terms, price, 1, currency, since, f"{name}, GPU alone", 0)

    # Lambda and RunPod

    def _cloud(self, page: Mapping[str, Any]) -> None:
        data = page["data"]
        if isinstance(data, dict) and isinstance(data.get("gpuTypes"), list):
            self.found.kind = "RunPod"
            for one in data["gpuTypes"]:
                gpu = self._named(str(one.get("id") or one.get("displayName") or ""))
                for key, terms in (("securePrice", ON_DEMAND), ("secureSpotPrice", SPOT)):
                    if gpu and one.get(key):
                        self._add(gpu, "RunPod", "", terms, one[key], 1, USD, "", str(one.get("id")), 0)
            return
        self.found.kind = "Lambda"
        for name, one in data.items() if isinstance(data, dict) else ():
            held = one.get("instance_type") or {} if isinstance(one, dict) else {}
            count, cents = (held.get("specs") or {}).get("gpus"), held.get("price_cents_per_hour")
            gpu = self._named(str(held.get("gpu_description") or held.get("description") or name))
            if not gpu or not isinstance(count, int) or count < 1 or cents is None:
                continue
            self._add(gpu, "Lambda", "", ON_DEMAND, cents / 100, count, USD, "", str(name), 0)

    def _named(self, name: str) -> str:
        """Return the GPU called *name*, also with a number of GPUs or the memory in brackets; empty if unknown."""
        plain = re.sub(r"^\d+x\s*", "", name)
        found = re.fullmatch(r"(.*?)\s*\((\d+) ?GB(?: (\w+))?\)", plain)
        spellings = [plain, f"{found[1]}-{found[2]}GB-{found[3] or ''}".strip("-")] if found else [plain]
        for spelling in (*spellings, *((found[1],) if found else ())):
            with suppress(UnknownId):
                return gpu_of(spelling, self.catalog)
        self.found.unknown[name] += 1
        return ""

    # own CSV

    def _csv(self, text: str) -> None:
        self.found.kind = "CSV"
        first = text.splitlines()[0]
        mark = max(",;\t", key=first.count)
        reader = csv.DictReader(text.splitlines(), delimiter=mark)
        heads = [str(one or "").strip() for one in reader.fieldnames or ()]
        names = {re.sub(r"\W+", "_", head.lower()).strip("_"): head for head in heads}
        columns = {key: next((names[one] for one in known if one in names), "") for key, known in COLUMNS.items()}
        missing = [key for key in ("gpu", "price") if not columns[key]]
        if missing:
            text = Message("has no column {column}; it has {columns}", missing[0], ", ".join(heads)[:200])
            self.fault(1, text)
            return
        per_gpu = "gpu" in re.sub(r"\W+", "_", columns["price"].lower())
        for line, row in enumerate(reader, 2):
            given = {key: str(row.get(head) or "").strip() if head else "" for key, head in columns.items()}
            try:
                gpu = gpu_of(given["gpu"], self.catalog)
            except UnknownId as error:
                self.fault(line, str(error))
                continue
            count = given["gpus"] or "1"
            if not count.isdecimal() or int(count) < 1:
                self.fault(line, Message("{name} must be a whole number, not {value!r}", "gpus", count))
                continue
            provider = given["provider"] or self.provider
            if not provider:
                self.fault(line, "has no provider: add the column or --provider")
                continue
            if given["unit"] and not HOURLY.fullmatch(given["unit"].lower()):
                self.fault(line, Message("unit {unit!r}: the price of a GPU-hour is needed", given["unit"]))
                continue
            terms, currency = terms_of(given["terms"]), given["currency"] or USD
            gpus = 1 if per_gpu else int(count)
            price, day = given["price"].lstrip("$"), given["date"]
            self._add(gpu, provider, given["region"], terms, price, gpus, currency, day, given["gpu"], line)

    def _add(
        self,
        gpu: str,
        provider: str,
        region: str,
        terms: str,
        price: Any,
        gpus: int,
        currency: str,
        day: str,
        what: str,
        line: int,
    ) -> None:
        try:
            amount = float(price)
        except (TypeError, ValueError):
            self.fault(line, Message("{what}: the price must be a number, not {price!r}", what, str(price)[:40]))
            return
        if not 0 < amount < 1e6:
            if amount:
                self.fault(line, Message("{what}: the price {price:g} is not between 0 and a million", what, amount))
            else:
                self.found.others += 1
            return
        if iso_code(currency) not in ISO_4217:
            self.fault(line, Message("{what}: {currency!r} is not a currency code", what, currency))
            return
        try:
            as_of = day_of(day) if day else self.day
        except ValueError as error:
            self.fault(line, str(error))
            return
        if as_of is None:
            self.fault(line, Message("{what}: has no date: add the column, or --date", what))
            return
        where = what if gpus == 1 else f"{what}: {amount:g} an hour for {gpus} GPUs"
        self.found.rows.append(PriceRow(gpu, provider, region, terms, round(amount / gpus, 6), currency, as_of, where))


def _instance(name: str) -> str | None:
    """Return the GPU in an instance type; None if it has none that the catalogue knows."""
    return next((gpu for pattern, gpu in INSTANCES if re.match(pattern, name.lower())), None)
