import csv
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sim.report.run import tables
from sim.report.run.tables import REQUEST_COLUMNS, write_costs, write_requests, write_usage

HEAD = ["fleet", "rate_rps", "replication"]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_requests_of_all_cases_with_their_place_in_front(tmp_path: Path, two_fleets: list[Any]) -> None:
    write_requests(tmp_path, two_fleets, ["rate_rps"], "csv")
    rows = rows_of(tmp_path / "requests.csv")
    assert list(rows[0]) == [*HEAD, *REQUEST_COLUMNS]
    assert len(rows) == 50 * len(two_fleets)
    assert {row["replication"] for row in rows} == {"0", "1", "2", "3", "4"}


def test_times_round_trip_and_what_never_happened_is_empty(tmp_path: Path, two_fleets: list[Any]) -> None:
    write_requests(tmp_path, two_fleets[:1], ["rate_rps"], "csv")
    rows = rows_of(tmp_path / "requests.csv")
    table = two_fleets[0].requests()
    assert [float(row["first_token_s"]) for row in rows] == table.column("first_token_s").to_pylist()
    assert rows[0]["first_token_s"] == repr(table.column("first_token_s")[0].as_py())
    assert (rows[49]["status"], rows[49]["finished_s"]) == ("unfinished", "")


@pytest.mark.slow
def test_parquet_when_asked_for_or_when_there_are_many(
    tmp_path: Path, two_fleets: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_requests(tmp_path, two_fleets, ["rate_rps"], "parquet")
    table = pq.read_table(tmp_path / "requests.parquet")
    assert table.column_names == [*HEAD, *REQUEST_COLUMNS]
    assert table.num_rows == 50 * len(two_fleets)
    monkeypatch.setattr(tables, "PARQUET_FROM_ROWS", 100)
    (tmp_path / "many").mkdir()
    write_requests(tmp_path / "many", two_fleets, ["rate_rps"], "csv")
    assert [path.name for path in (tmp_path / "many").iterdir()] == ["requests.parquet"]


def test_none_writes_no_requests(tmp_path: Path, two_fleets: list[Any]) -> None:
    write_requests(tmp_path, two_fleets, ["rate_rps"], "none")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_usage_and_costs(tmp_path: Path, two_fleets: list[Any]) -> None:
    write_usage(tmp_path / "usage.csv", two_fleets, ["rate_rps"])
    write_costs(tmp_path / "costs.csv", two_fleets, ["rate_rps"])
    assert list(rows_of(tmp_path / "usage.csv")[0])[:5] == [*HEAD, "service", "pool"]
    assert len(rows_of(tmp_path / "costs.csv")) == 2 * len(two_fleets)
