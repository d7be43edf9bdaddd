"""Finished cases on disk, each in a folder named by the digest of its inputs and written atomically."""

import json
import shutil
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sim.case.result import CaseResult
from sim.cost.ledger import LedgerRow
from sim.fleet.request_columns import column, texts
from sim.infile import opened
from sim.message import Message
from sim.records import ONLY_SERVICE, Interval, Request, RequestOptions
from sim.scenario.resolving.resolved import CasePlan
from sim.scenario.sweep import Case
from sim.study.execution.durable import DamagedFile, atomic_folder, check_folder, warn_of
from sim.study.execution.lean_arrow import forgo_pandas
from sim.study.metrics.case_metrics import CaseMetrics
from sim.study.metrics.metric import MeasuredRun
from sim.units import NANO_PER_USD

forgo_pandas()

CASE_FILE = "case.json"
TABLES_FILE = "tables.arrow"
PACKED_FROM_ROWS = 1_000
"""Number of rows from which a table is compressed, which takes longer than to write a small one."""
SHARES = ("prefill_s", "recompute_s", "decode_s")
"""Columns of the seconds of its (last) replica's time that a request used, by activity."""
VISITS = "earlier_visits"
"""Column of the earlier replicas of a request, with the seconds used there; present only where requests moved."""


@dataclass(frozen=True, slots=True)
class StoredCase:
    """Finished case, read back from disk; its tables are read when they are used."""

    folder: Path
    fleet: str
    axes: dict[str, Any]
    replication: int
    status: str
    """Status of the case: `ok` or `infeasible`."""
    reason: str
    measured: CaseMetrics | None
    """Metrics of the case; None for a fleet that could not run."""
    point: str = ""
    """Name of the folder that the case was written to."""
    rests_on: dict[str, str] = field(default_factory=dict)
    """Inputs of the simulated quantities -> digest; see `digest.rests_on`."""
    tables: dict[str, int] = field(default_factory=dict)
    """Places of the tables in TABLES_FILE: name -> first byte."""

    @property
    def metrics(self) -> CaseMetrics:
        """Metrics of a case that could run; fails for other cases."""
        assert self.measured is not None, f"{self.fleet} could not run"
        return self.measured

    def requests(self) -> pa.Table:
        """Return the table of requests, without rows if the scenario keeps none."""
        return self._table("requests")

    def request_columns(self) -> list[str]:
        """Return the names of the columns of the table of requests, whose rows are not read."""
        if not self.tables:
            return list(self.requests().column_names)
        with opened(self.folder / TABLES_FILE, hidden=True) as file:
            file.seek(self.tables["requests"])
            return list(pa.ipc.open_stream(file).schema.names)

    def usage(self) -> pa.Table:
        """Return the table of replica intervals."""
        return self._table("usage")

    def costs(self) -> pa.Table:
        """Return the table of ledger rows."""
        return self._table("costs")

    def _table(self, name: str) -> pa.Table:
        if self.tables:
            with opened(self.folder / TABLES_FILE, hidden=True) as file:
                file.seek(self.tables[name])
                return pa.ipc.open_stream(file).read_all()
        import pyarrow.parquet as pq

        # a case of an earlier version; pq.read_table would import pandas, which is slow
        with opened(self.folder / f"{name}.parquet", hidden=True) as file:
            return pq.ParquetFile(file).read()


def load_case(folder: Path) -> StoredCase | None:
    """Return the case in *folder* after a check; None if missing or, after a warning, if damaged or another case."""
    if not folder.exists():
        return None
    try:
        stored = _case_of(folder, check_folder(folder, CASE_FILE))
        if stored.point != folder.name:
            raise DamagedFile(Message("holds another point, {point}", stored.point or "without a name"))
    except DamagedFile as error:
        warn_of(folder, error)
        return None
    return stored


def read_case(folder: Path) -> StoredCase:
    """Return the case in *folder*, which this command has written or checked."""
    with opened(folder / CASE_FILE, hidden=True) as file:
        return _case_of(folder, file.read())


def _case_of(folder: Path, content: bytes) -> StoredCase:
    """Return the case in *folder* whose case file has the given *content*."""
    record = json.loads(content)
    metrics = record.pop("metrics")
    return StoredCase(folder, **record, measured=CaseMetrics.of_data(metrics) if metrics else None)


def save_case(
    folder: Path,
    case: Case,
    outcome: MeasuredRun | CasePlan,
    metrics: CaseMetrics | None,
    keep_requests: bool,
    rests_on: dict[str, str],
) -> None:
    """Write *outcome* to *folder* atomically.

    Parameters
    ----------
    folder
        Folder under the points of the run, named by the case's digest.
    case
        Fleet, sweep point and replication.
    outcome
        Measured run of the simulation, or the plan of a fleet that could not run.
    metrics
        Metrics of the run; None for a fleet that could not run.
    keep_requests
        Whether the table of requests has rows.
    rests_on
        Inputs of the simulated quantities -> digest.

    """
    record = {"fleet": case.fleet, "axes": case.axes, "replication": case.replication}
    record |= {"metrics": as_stored(metrics), "rests_on": rests_on}
    if isinstance(outcome, CasePlan):
        record |= {"status": "infeasible", "reason": outcome.infeasible}
        tables = {"requests": no_requests(), "usage": _usage([]), "costs": _ledger([])}
    else:
        record |= {"status": "ok", "reason": ""}
        tables = {
            "requests": requests_table(outcome) if keep_requests else no_requests(),
            "usage": _usage(outcome.log.intervals),
            "costs": _ledger(ledger.rows if (ledger := outcome.result.ledger) else []),
        }
    _write(folder, record, tables)


def as_stored(metrics: CaseMetrics | None) -> dict[str, Any]:
    """Return the figures in the form of the case file; empty for a fleet that could not run."""
    return {} if metrics is None else metrics.as_data()


def save_repriced(folder: Path, stored: StoredCase, result: CaseResult | None, metrics: CaseMetrics | None) -> None:
    """Write *stored* to *folder* with the bill of *result*; unchanged where it could not run."""
    record = {name: getattr(stored, name) for name in ("fleet", "axes", "replication")}
    record |= {"metrics": as_stored(metrics)}
    record |= {name: getattr(stored, name) for name in ("rests_on", "status", "reason")}
    tables = {"requests": stored.requests(), "usage": stored.usage(), "costs": stored.costs()}
    if result is not None:
        tables["costs"] = _ledger(result.ledger.rows if result.ledger else [])
        if result.plan.cost_per_request:
            before = tables["requests"]
            others = [name for name in before.column_names if name not in (*SHARES, VISITS, "cost_usd")]
            tables["requests"] = _with_costs(before.select(others), result.log.requests, result.request_nano_usd)
    _write(folder, record, tables)


def _write(folder: Path, record: dict[str, Any], tables: dict[str, pa.Table]) -> None:
    """Write the case file and the *tables* to *folder* atomically: one file of Arrow streams, one after another."""
    places = {}
    with atomic_folder(folder) as building:
        with (building / TABLES_FILE).open("wb") as file:
            for name, table in tables.items():
                places[name] = file.tell()
                packed = pa.ipc.IpcWriteOptions(compression="zstd" if table.num_rows >= PACKED_FROM_ROWS else None)
                with pa.ipc.new_stream(file, table.schema, options=packed) as stream:
                    stream.write_table(table)
        case = json.dumps(record | {"point": folder.name, "tables": places})
        (building / CASE_FILE).write_text(case, encoding="utf-8")


def discard_unfinished(points: Path) -> None:
    """Remove the partial folders below *points* of workers that were stopped while they wrote."""
    for building in points.glob(".*-*"):
        shutil.rmtree(building, ignore_errors=True)


def requests_table(run: MeasuredRun | None) -> pa.Table:
    """Return the table of requests in arrival order, with the columns of requests.csv; without rows for None."""
    result = run.result if run else None
    requests: Sequence[Request] = result.log.requests if result else []
    count = len(requests)
    cohort = run.cohort if run else None
    options = run.options if run else ()
    pools = [*(result.plan.pools[p].name for p in result.log.pool_of_replica), ""] if result else [""]
    names = list(dict.fromkeys(pools))
    pool_of = np.array([names.index(name) for name in pools])
    costs = result.request_nano_usd if result else None
    replicas = run.replicas if run else np.zeros(0, np.int32)
    table = pa.table(
        {
            "request": pa.array(np.arange(count), pa.int64()),
            "service": _words(requests, "service") if options else _encoded(np.zeros(count, int), [ONLY_SERVICE]),
            "pool": _encoded(pool_of[replicas], names),
            "replica": pa.array(replicas, pa.int32()),
            "priority": _numbers(requests, "priority"),
            "measured": pa.array(cohort.measured.astype("int8") if cohort else [], pa.int8()),
            "arrived_s": _dates(cohort.arrived_s if cohort else []),
            "started_s": _dates(cohort.started_s if cohort else []),
            "first_token_s": _dates(cohort.first_token_s if cohort else []),
            "finished_s": _dates(cohort.finished_s if cohort else []),
            "prompt_tokens": pa.array(cohort.prompt_tokens if cohort else [], pa.int64()),
            "output_tokens": pa.array(cohort.output_tokens if cohort else [], pa.int64()),
            "cached_tokens": _numbers(requests, "cached_tokens"),
            "preemptions": _numbers(requests, "preemptions"),
            "slo_met": pa.array(run.within_limits.astype("int8") if run else [], pa.int8()),
            "status": _words(requests, "status")
            if options or cohort is None
            else _encoded(~cohort.finished, ["finished", "unfinished"]),
        }
    )
    table = _with_sessions(table, requests, options)
    if result and result.plan.may_retry:
        table = table.append_column("attempts", pa.array([r.attempts for r in requests], pa.int32()))
    if result and result.plan.kv_transfer is not None:
        table = table.append_column("kv_transfer_s", _dates([r.kv_transfer_s for r in requests]))
        where = [r.prefill_replica if r.prefill_replica >= 0 else None for r in requests]
        table = table.append_column("prefill_replica", pa.array(where, pa.int32()))
    return _with_costs(table, requests, costs) if result and result.plan.cost_per_request else table


@cache
def no_requests() -> pa.Table:
    """Return the table of requests without rows, which the cases of a search share."""
    return requests_table(None)


def _with_sessions(table: pa.Table, requests: Sequence[Request], options: Collection[RequestOptions]) -> pa.Table:
    """Return *table* with the columns tenant, adapter, session and turn, each only where some request has one."""
    for name in ("tenant", "adapter"):
        if any(getattr(one, name) for one in options):
            table = table.append_column(name, pa.array(texts(requests, name), pa.string()))
    if any(one.session for one in options):
        table = table.append_column("session", pa.array([r.session for r in requests], pa.string()))
        turns = pa.array([r.turn if r.session else None for r in requests], pa.int64())
        table = table.append_column("turn", turns)
    return table


def _with_costs(table: pa.Table, requests: Sequence[Request], costs: Sequence[int] | None) -> pa.Table:
    """Return *table* with each request's replica time [s] and cost [USD], which is empty without a `cost` section."""
    for name in SHARES:
        table = table.append_column(name, pa.array([getattr(r.busy, name) for r in requests], pa.float64()))
    if any(r.left for r in requests):
        visits = [[{"replica": hop.replica, **asdict(hop.busy)} for hop in r.left] for r in requests]
        table = table.append_column(VISITS, pa.array(visits))
    usd = [amount / NANO_PER_USD for amount in costs] if costs is not None else [None] * len(requests)
    return table.append_column("cost_usd", pa.array(usd, pa.float64()))


def _words(requests: Sequence[Request], name: str) -> pa.DictionaryArray:
    """Return the column of the text *name* of *requests*."""
    return pa.array(texts(requests, name), pa.string()).dictionary_encode()


def _encoded(places: NDArray[Any], names: Sequence[str]) -> pa.DictionaryArray:
    """Return the column of the name at each of *places*, with the bytes that `_words` has for these texts."""
    found = pa.array(places.astype(np.int32)).dictionary_encode()
    words = [names[place] for place in found.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(found.indices, pa.array(words, pa.string()))


def _numbers(requests: Sequence[Request], name: str) -> pa.Array:
    """Return the column of the whole number *name* of *requests*."""
    return pa.array(column(requests, name, np.int64), pa.int64())


def _dates(values: Any) -> pa.Array:
    """Return a column of times [s]; nan becomes null."""
    return pa.array(values, pa.float64(), from_pandas=True)


def _usage(intervals: Sequence[Interval]) -> pa.Table:
    """Return the table of replica *intervals*, with the column `unused` only where some interval has an unused part."""
    table = _records(Interval, intervals)
    return table if any(one.unused for one in intervals) else table.drop_columns(["unused"])


def _records(kind: type, rows: Iterable[Any], left_out: str = "") -> pa.Table:
    """Return a table with the fields of the dataclass *kind* as columns, without the field *left_out*."""
    listed = list(rows)
    types = {"str": pa.string(), "int": pa.int64(), "float": pa.float64()}
    columns = {}
    for one in fields(kind):
        if one.name == left_out:
            continue
        name = one.type if isinstance(one.type, str) else one.type.__name__
        columns[one.name] = pa.array(list(map(attrgetter(one.name), listed)), types[name])
    return pa.table(columns)


def _ledger(rows: Sequence[LedgerRow]) -> pa.Table:
    """Return the ledger rows as a table with amounts in USD, exact to the nano-USD in which they are kept."""
    nano = "amount_nano_usd"  # excluded from the integer columns, since extreme prices exceed 64 bits
    position = [column.name for column in fields(LedgerRow)].index(nano)
    usd = pa.array([row.amount_nano_usd / NANO_PER_USD for row in rows], pa.float64())
    return _records(LedgerRow, rows, left_out=nano).add_column(position, "amount_usd", usd)
