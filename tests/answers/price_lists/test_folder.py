"""Imported prices as catalogue entries: added, compared, old ones, and finished runs billed at them."""

from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import sim
from sim.answers.price_lists.comparison import changes_of, old_prices
from sim.answers.price_lists.folder import rows_in, written_to
from sim.answers.price_lists.repricing import rebill, runs_in
from sim.answers.price_lists.row import PriceListErrors, PriceRow
from sim.answers.price_lists.successors import successor_of
from sim.catalogue.catalog import load_catalog
from sim.yamlio import parse
from tests.small_scenario import SMALL

TODAY = date(2026, 11, 28)


def row(price: float, day: date = date(2026, 11, 1), **changes: Any) -> PriceRow:
    """Return a price of an H100 from AWS."""
    keys = {"gpu": "h100-80gb-sxm", "provider": "AWS", "region": "us-east-1", "terms": "on demand", "currency": "USD"}
    return PriceRow(price=price, as_of=day, where="p5.48xlarge", **(keys | changes))


@pytest.mark.slow
def test_imported_prices_are_offers_of_the_catalogue(tmp_path: Path) -> None:
    rows = [row(6.88), row(5.5, currency="EUR", region="eu-central-1")]
    assert written_to(tmp_path, rows, "AWS", TODAY, "index.csv") == (2, 0, 0)
    catalog = load_catalog(own=[tmp_path])
    offer = catalog.offer("aws-h100-80gb-sxm/us-east-1-on-demand-2026-11-01")
    assert (offer.price.value, offer.region, catalog.price_list("aws-h100-80gb-sxm").item) == (
        6.88,
        "us-east-1",
        "h100-80gb-sxm",
    )
    assert catalog.source(offer.price.source).title == "AWS price list (index.csv)"
    assert sorted(rows_in(tmp_path), key=lambda one: one.price) == sorted(rows, key=lambda one: one.price)


def test_a_second_import_adds_dates_and_counts_changes(tmp_path: Path) -> None:
    written_to(tmp_path, [row(6.88)], "AWS", TODAY, "a")
    assert written_to(tmp_path, [row(6.88), row(5.0, date(2026, 11, 20))], "AWS", TODAY, "b") == (1, 0, 1)
    assert written_to(tmp_path, [row(7.0)], "AWS", TODAY, "c") == (0, 1, 0)
    assert {one.price for one in rows_in(tmp_path)} == {7.0, 5.0}


def test_a_file_written_by_hand_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "prices" / "aws-h100-80gb-sxm.yaml"
    path.parent.mkdir()
    path.write_text("id: mine\n")
    with pytest.raises(PriceListErrors, match="was written by hand"):
        written_to(tmp_path, [row(1.0)], "AWS", TODAY, "a")
    assert [one.name for one in tmp_path.iterdir()] == ["prices"]


def test_differences_and_old_prices(tmp_path: Path) -> None:
    before = [row(6.88), row(1.0, gpu="l4"), row(2.0, gpu="t4")]
    after = [row(5.16, date(2026, 11, 20)), row(1.0, gpu="l4"), row(9.0, gpu="h200-141gb-sxm")]
    changes = changes_of(before, after)
    assert [(one.row.gpu, one.change) for one in changes] == [
        ("h100-80gb-sxm", pytest.approx(-0.25)),
        ("h200-141gb-sxm", None),
        ("t4", None),
    ]
    assert changes_of(before, before) == []
    assert [one.gpu for one in old_prices([row(1.0, date(2026, 1, 1)), *after], TODAY, 26)] == [
        "h200-141gb-sxm",
        "l4",
    ]


@pytest.mark.slow
def test_the_successor_of_an_offer_has_its_terms(tmp_path: Path) -> None:
    rows = [row(6.88), row(5.0, date(2026, 11, 20)), row(1.0, date(2026, 11, 25), terms="spot")]
    written_to(tmp_path, rows, "AWS", TODAY, "a")
    catalog = load_catalog(own=[tmp_path])
    old, new = (f"aws-h100-80gb-sxm/us-east-1-on-demand-2026-11-{day}" for day in ("01", "20"))
    assert successor_of(old, catalog) == new
    assert successor_of(new, catalog) == new


@pytest.mark.slow
def test_all_runs_are_billed_at_the_newest_offers(tmp_path: Path) -> None:
    entries = tmp_path / "gpufleet.d"
    written_to(entries, [row(4.0, gpu="rtx-4090")], "AWS", TODAY, "a")
    data = parse(SMALL)
    cost = {"acquisition": "rent", "price": "aws-rtx-4090/us-east-1-on-demand-2026-11-01"}
    data["fleets"] = [{"name": "one", "pools": [{"gpu": "rtx-4090"}], "cost": cost}]
    run = tmp_path / "outputs" / "one"
    sim.run(data, out=run, quiet=True, catalog=[entries])
    (tmp_path / "outputs" / "notes").mkdir()
    assert runs_in(tmp_path / "outputs") == [run]
    written_to(entries, [row(3.0, date(2026, 11, 20), gpu="rtx-4090")], "AWS", TODAY, "b")
    bills = rebill(run, (), [], False, ["gpufleet"])
    assert {one.change for one in bills} == {"-25.0%"}
    assert {one.newer[0][2] for one in bills} == {"aws-rtx-4090/us-east-1-on-demand-2026-11-20"}
    assert runs_in(tmp_path / "outputs") == [run]


def test_a_full_disk_leaves_the_entries_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written_to(tmp_path, [row(6.88)], "AWS", TODAY, "index.csv")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    monkeypatch.setattr(
        "sim.study.execution.durable.os.fsync", Mock(side_effect=OSError(28, "No space left on device"))
    )
    with pytest.raises(OSError, match="No space"):
        written_to(tmp_path, [row(5.0)], "CSV", TODAY, "mine.csv")
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before
