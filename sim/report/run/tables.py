"""CSV and Parquet tables of a run, written case by case to bound memory."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sim.csvio import ROWS_AT_ONCE, write_csv, write_csv_columns
from sim.report.words.money import converted_column, shown, with_converted_amounts, with_converted_columns
from sim.study.metrics.columns import summary_columns
from sim.study.points import FinishedCase, Point, columns_where_known, has_money, service_points

REQUEST_COLUMNS = [
    *["request", "service", "pool", "replica", "priority", "measured"],
    *["arrived_s", "started_s", "first_token_s", "finished_s"],
    *["prompt_tokens", "output_tokens", "cached_tokens", "preemptions", "slo_met", "status"],
]
WHERE_GIVEN = ("tenant", "adapter", "session", "turn", "attempts", "kv_transfer_s", "prefill_replica", "cost_usd")
"""Columns of requests.csv that exist only where some fleet has values for them."""
OF_TEXT = frozenset({"tenant", "adapter", "session"})
"""Columns of text in requests.csv."""
USAGE_COLUMNS = [
    *["service", "pool", "server", "replica", "state", "start_s", "end_s"],
    *["gpu_s", "busy_s", "gpu_energy_j", "server_energy_j", "peak_w"],
    *["prompt_tokens", "cached_tokens", "output_tokens", "recomputed_tokens"],
]
COST_COLUMNS = [
    *["start_s", "end_s", "pool", "server", "component", "phase", "quantity", "unit"],
    *["unit_price_usd", "amount_usd", "currency", "amount_in_currency", "fx_rate", "source"],
]
OF_FLEETS = frozenset({"reason", "servers"})
"""Columns of summary.csv that services.csv lacks."""
PARQUET_FROM_ROWS = 200_000
"""Number of requests from which they are written as Parquet."""

Read = Callable[[FinishedCase], pa.Table]


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> None:
    """Write *rows* under *columns* (default: those of the first row); missing values stay empty."""
    names = with_converted_columns(list(columns or (rows[0] if rows else ())))
    write_csv(path, names, ([row.get(name) for name in names] for row in map(with_converted_amounts, rows)))


def write_summary(path: Path, points: Sequence[Point], axes: Sequence[str]) -> None:
    """Write summary.csv, one row per fleet and sweep point."""
    columns = summary_columns(axes, has_money(points), columns_where_known(points, axes))
    write_rows(path, [point.row for point in points], columns)


def write_services(path: Path, points: Sequence[Point], axes: Sequence[str]) -> None:
    """Write services.csv, one row per service of each fleet and sweep point."""
    found = service_points(points)
    shown = summary_columns(axes, has_money(found), columns_where_known(found, axes))
    columns = [*shown[: 1 + len(axes)], "service", *(name for name in shown[1 + len(axes) :] if name not in OF_FLEETS)]
    write_rows(path, [point.row for point in found], columns)


def write_requests(folder: Path, cases: Sequence[FinishedCase], axes: Sequence[str], requests_format: str) -> None:
    """Write the table of requests, as *requests_format* says; many rows are always written as Parquet."""
    finished = [case for case in cases if case.status == "ok"]
    if requests_format == "none":
        return
    each = {case.fleet: case for case in finished}.values()
    given = {name for case in each for name in case.request_columns()}
    columns = [*REQUEST_COLUMNS, *(name for name in WHERE_GIVEN if name in given)]
    first, rows = _first_tables(finished)

    def table_of(case: FinishedCase) -> pa.Table:
        # cases are written in this order, so that no table is read twice or kept longer than needed
        return _with_all(first.pop(0) if first else case.requests(), columns)

    if requests_format == "parquet" or rows >= PARQUET_FROM_ROWS:
        _write_parquet(folder / "requests.parquet", finished, axes, columns, table_of)
    else:
        _write_csv(folder / "requests.csv", finished, axes, columns, table_of)


def write_usage(path: Path, cases: Sequence[FinishedCase], axes: Sequence[str]) -> None:
    """Write usage.csv, one row per replica interval."""
    _write_csv(path, [case for case in cases if case.status == "ok"], axes, USAGE_COLUMNS, lambda case: case.usage())


def write_costs(path: Path, cases: Sequence[FinishedCase], axes: Sequence[str]) -> None:
    """Write costs.csv, one row per ledger row; only the header where nothing has a cost."""
    _write_csv(path, [case for case in cases if case.status == "ok"], axes, COST_COLUMNS, lambda case: case.costs())


def _with_all(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Add to *table* those of *columns* that it lacks, empty."""
    for name in columns:
        if name not in table.column_names:
            kind = pa.string() if name in OF_TEXT else pa.int64()
            table = table.append_column(name, pa.nulls(table.num_rows, kind))
    return table


def _first_tables(cases: Iterable[FinishedCase]) -> tuple[list[pa.Table], int]:
    """Return the tables of the first *cases*, until their requests suffice for Parquet, and the number of requests."""
    tables: list[pa.Table] = []
    rows = 0
    for case in cases:
        if rows >= PARQUET_FROM_ROWS:
            break
        tables.append(case.requests())
        rows += tables[-1].num_rows
    return tables, rows


def _write_csv(path: Path, cases: Iterable[FinishedCase], axes: Sequence[str], columns: list[str], read: Read) -> None:
    blocks = (
        ([case.fleet, *(case.axes.get(axis) for axis in axes), case.replication], batch.columns)
        for case in cases
        for batch in _with_converted_columns(read(case).select(columns)).to_batches(max_chunksize=ROWS_AT_ONCE)
    )
    write_csv_columns(path, ["fleet", *axes, "replication", *with_converted_columns(columns)], blocks)


def _with_converted_columns(table: pa.Table) -> pa.Table:
    """Return *table* with a column in the shown currency beside each in US dollars."""
    for name in table.column_names:
        if other := converted_column(name):
            amounts = pc.multiply(table.column(name), shown(1.0))
            table = table.add_column(table.column_names.index(name) + 1, other, amounts)
    return table


def _write_parquet(
    path: Path, cases: Sequence[FinishedCase], axes: Sequence[str], columns: list[str], read: Read
) -> None:
    import pyarrow.parquet as pq  # which takes longer than a table in CSV

    kinds = {axis: _axis_type([case.axes.get(axis) for case in cases]) for axis in axes}
    schema: pa.Schema | None = None
    with ExitStack() as stack:
        for case in cases:
            table = _with_converted_columns(read(case).select(columns))
            front = {"fleet": _constant(case.fleet, pa.string(), table)}
            front |= {axis: _constant(case.axes.get(axis), kind, table) for axis, kind in kinds.items()}
            front["replication"] = _constant(case.replication, pa.int64(), table)
            whole = pa.table({**front, **{name: table.column(name) for name in table.column_names}})
            if schema is None:
                schema = whole.schema
                writer = stack.enter_context(pq.ParquetWriter(path, schema))
            writer.write_table(whole.cast(schema))


def _axis_type(values: Sequence[Any]) -> pa.DataType:
    known = [value for value in values if value is not None]
    if all(isinstance(value, bool) for value in known):
        return pa.bool_()
    if all(isinstance(value, int) and not isinstance(value, bool) for value in known):
        return pa.int64()
    return pa.float64() if all(isinstance(value, int | float) for value in known) else pa.string()


def _constant(value: Any, kind: pa.DataType, table: pa.Table) -> pa.Array:
    if value is not None and pa.types.is_string(kind):
        value = str(value)
    return pa.repeat(pa.scalar(value, kind), table.num_rows)
