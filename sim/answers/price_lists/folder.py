"""Catalogue entries of imported prices: files of gpufleet.d, one per provider and GPU."""

from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from sim.answers.price_lists.row import PriceListErrors, PriceRow, slug
from sim.catalogue.data_folder import CatalogError
from sim.catalogue.market import PriceList
from sim.message import Message
from sim.study.execution.durable import write_atomically
from sim.yamlio import YamlError, dump, dump_line, read

MARK = "# Written by gpufleet prices import: later imports add to it."
RENTAL = "rental"


def written_to(folder: Path, rows: Sequence[PriceRow], kind: str, today: date, file: str) -> tuple[int, int, int]:
    """Add *rows* to the catalogue entries in *folder*, and return the numbers of new, changed and known offers.

    Parameters
    ----------
    folder
        Folder laid out like data/; it is made where it is missing.
    rows
        Prices of one list.
    kind
        Provider and format of the list.
    today
        Date of access.
    file
        Name of the list's file.

    Raises
    ------
    PriceListErrors
        A file of the folder was not written by an import, or cannot be read; nothing is written.

    """
    source = f"prices-{slug(kind)}-{max(row.as_of for row in rows).isoformat()}"
    texts: dict[Path, str] = {}
    problems: list[tuple[str, int, str]] = []
    new = changed = known = 0
    for item in sorted({row.item for row in rows}):
        own = [row for row in rows if row.item == item]
        path = folder / "prices" / f"{item}.yaml"
        try:
            offers = _offers(path)
        except YamlError as error:
            problems.append((error.path, error.line, error.message))
            continue
        except PriceListErrors as error:
            problems += error.problems
            continue
        for row in own:
            before, after = offers.get(row.offer), _offer(row, source)
            same = before is not None and before["price"]["value"] == row.price
            new, changed, known = new + (before is None), changed + (before is not None and not same), known + same
            if not same:
                offers[row.offer] = after
        data = {"id": item, "item": own[0].gpu, "offers": dict(sorted(offers.items()))}
        PriceList.model_validate(data | {"offers": {key: _typed(one) for key, one in offers.items()}})
        texts[path] = f"{MARK}\n{dump(data)}"
    if problems:
        raise PriceListErrors(problems)
    title = f"{kind} price list ({file})"
    keys = {"title": title, "accessed": today.isoformat(), "trust": "good" if kind == "CSV" else "high"}
    sources = folder / "sources.yaml"
    held = sources.read_text("utf-8") if sources.is_file() else ""
    if f"\n{source}:" not in f"\n{held}":
        texts[sources] = f"{held}{'' if held.endswith(chr(10)) or not held else chr(10)}{source}: {dump_line(keys)}\n"
    for path, text in sorted(texts.items(), key=lambda one: one[0] != sources):  # prices cite their source
        write_atomically(path.resolve(), text)
    return new, changed, known


def rows_in(folder: Path) -> list[PriceRow]:
    """Return the rental prices per GPU-hour in the catalogue entries of *folder*. Raises PriceListErrors."""
    found: list[PriceRow] = []
    problems: list[tuple[str, int, str]] = []
    for path in sorted((folder / "prices").glob("*.yaml")):
        try:
            prices = PriceList.model_validate(read(path).data)
        except (YamlError, ValueError, CatalogError) as error:
            problems.append((str(path), getattr(error, "line", 0), str(getattr(error, "message", error))))
            continue
        found += _rows(prices)
    if problems:
        raise PriceListErrors(problems)
    return found


def _rows(prices: PriceList) -> Iterable[PriceRow]:
    for offer in prices.offers.values():
        if offer.what == RENTAL and offer.unit == "gpu_hour" and offer.price.as_of is not None:
            value = offer.price
            yield PriceRow(
                *(prices.item, offer.provider, offer.region, offer.terms, value.value, offer.currency),
                as_of=offer.price.as_of,
                where=value.where,
            )


def _offers(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    text = path.read_text("utf-8")
    if not text.startswith(MARK):
        raise PriceListErrors([(str(path), 1, "was written by hand: rename it, or name another folder (--into)")])
    data = read(path).data
    return dict(data.get("offers") or {}) if isinstance(data, dict) else {}


def _offer(row: PriceRow, source: str) -> dict[str, Any]:
    price = {
        "value": row.price,
        "source": source,
        "where": row.where,
        "kind": "quoted",
        "as_of": row.as_of.isoformat(),
    }
    return {
        "what": RENTAL,
        "price": price,
        **({"currency": row.currency} if row.currency != "USD" else {}),
        "unit": "gpu_hour",
        "terms": row.terms,
        "provider": row.provider,
        **({"region": row.region} if row.region else {}),
    }


def _typed(offer: dict[str, Any]) -> dict[str, Any]:
    """Return the stored *offer* with its date as a date."""
    price = dict(offer["price"])
    return offer | {"price": price | {"as_of": date.fromisoformat(str(price["as_of"]))}}


def message_of(kind: str, counts: tuple[int, int, int], folder: Path) -> str:
    """Return a sentence on an import: *counts* of new, changed and known offers of *kind* in *folder*."""
    new, changed, known = counts
    return Message(
        "{kind}: {new} offers added, {changed} changed, {known} known already, in {folder}",
        kind,
        new,
        changed,
        known,
        folder,
    )
