"""Traces with a line per request: request logs with any headers (CSV, JSON Lines), Azure's and BurstGPT's CSV.

Azure: Patel et al., "Splitwise", ISCA 2024; github.com/Azure/AzurePublicDataset. BurstGPT: Wang et al., "BurstGPT",
KDD 2025; github.com/HPMLL/BurstGPT.
"""

import re
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sim.message import Message, placed
from sim.workload.requests import RequestTable
from sim.workload.shared_prefix import HASH_BLOCK_TOKENS, Context, ContextBlocks
from sim.workload.tenants import UNATTRIBUTED
from sim.workload.traces import columns
from sim.workload.traces.columns import TraceTable, read_any_table, read_json_lines, read_table
from sim.workload.traces.headers import Headers, arrivals, recognised
from sim.workload.traces.trace_file import TraceError, TraceFaults, TraceFile, TraceReading, rows_of

TOKENS = ("prompt_tokens", "output_tokens")
OWN_COLUMNS = ("arrival_s", *TOKENS, "priority", "session", "turn", "tenant", "service")
OF_UNITS = ("arrival_s", "priority", "tenant", "service")


class RequestLog(TraceFile):
    """Request log: rows with headers `arrival_s`, `prompt_tokens` and `output_tokens`, and optional columns.

    Optional columns are `priority` (lower first), `session`, `turn`, `tenant` and `service`. Headers of other programs
    are recognised (`timestamp`, `input_tokens`, `completion_tokens`, ...), all others are ignored with a note. A
    request of a `session` arrives at its time, but not before the response to the preceding request; `turn` is its
    position in the session, by default counted from 1. For prefix caches, a prompt at least as long as the preceding
    conversation is assumed to start with it. Requests of one-pass services have no tokens, only `arrival_s[,priority]`.
    """

    columns: dict[str, str] = Field(default_factory=dict)
    """Column of a trace -> header in the file, for headers that are not recognised: {arrival_s: my_column}."""
    service: str | None = None
    """Service whose rows are read, by the column `service`; default: all rows."""

    @abstractmethod
    def table(self, faults: TraceFaults) -> TraceTable:
        """Return all columns of the file as text. Raises TraceError if no rows can be separated."""

    def read(self) -> TraceReading:
        """Return the requests of the file, checked. Raises TraceError listing all faults."""
        faults = TraceFaults(self.path)
        table = self.table(faults)
        headers, wrong = recognised([*table.columns], OWN_COLUMNS, self.columns)
        names = headers.names
        units = names.keys() <= set(OF_UNITS) and not headers.ignored
        needed = ("arrival_s",) if units else ("arrival_s", *TOKENS)
        wrong += [headers.missing(name) for name in needed if name not in names and name not in self.columns]
        if wrong:
            raise TraceError([(self.path, 1, text) for text in wrong])
        if not table.lines and not faults:
            raise TraceError([(self.path, 0, "holds no requests")])
        notes = headers.notes()
        lines, texts, arrived_s = self._in_order(table, headers, notes, faults)
        tokens = [columns.tokens(texts[name], names[name], lines, faults) for name in TOKENS if not units]
        requests = RequestTable(arrived_s, *(tokens or _units(len(lines))))
        if "priority" in texts:
            requests.priority = columns.integers(texts["priority"], names["priority"], lines, faults)
        for name in ("session", "tenant", "service"):
            if name in texts:
                setattr(requests, name, [text.strip() for text in texts[name]])
        _number_turns(requests, texts.get("turn"), lines, faults)
        reserved = np.flatnonzero([name == UNATTRIBUTED for name in requests.tenant or ()])
        message = Message(
            "tenant {unattributed!r} is the row of costs that no request causes: choose another name", UNATTRIBUTED
        )
        faults.add_rows(reserved, lines, lambda row: message)
        faults.stop_if_any()
        if requests.session is not None:
            requests.block_hashes, requests.hash_block_tokens = _conversations(requests), HASH_BLOCK_TOKENS
        return TraceReading(requests, tuple(placed(Path(self.path).name, note) for note in notes), units=units)

    def _in_order(
        self, table: TraceTable, headers: Headers, notes: list[str], faults: TraceFaults
    ) -> tuple[list[int], dict[str, list[str]], NDArray[np.float64]]:
        """Return the lines, the columns by name and the arrivals [s] of the requests to replay.

        A file of this program must have them in order. Of other programs' logs, rows with an answer are sorted, times
        start at 0, and *notes* gets sentences on both.
        """
        names = headers.names
        lines, texts = table.lines, {name: table.columns[theirs] for name, theirs in names.items()}
        arrived_s, time_notes = arrivals(texts["arrival_s"], names["arrival_s"], lines, faults)
        if not headers.foreign and not time_notes:
            columns.check_times(arrived_s, texts["arrival_s"], "arrival_s", lines, faults)
            return lines, texts, arrived_s
        rows, left_out = _answered_in_order(arrived_s, texts.get("output_tokens"))
        if not len(rows) and not faults:
            raise TraceError([(self.path, 0, "holds no request with output tokens")])
        notes += [*time_notes, *left_out]
        arrived_s = arrived_s[rows] - np.nanmin(arrived_s[rows], initial=np.inf)
        texts = {k: [column[row] for row in rows] for k, column in texts.items()}
        return [lines[row] for row in rows], texts, arrived_s

    def chosen(self, whole: RequestTable) -> RequestTable:
        """Return the rows of the `service`. Raises TraceError if there are none."""
        if self.service is None:
            return whole
        rows = [row for row, name in enumerate(whole.service or ()) if name == self.service]
        if not rows:
            names = sorted(set(whole.service or ()))
            reason = (
                Message("the column 'service' has {names}", ", ".join(names)[:80])
                if names
                else "there is no column 'service'"
            )
            raise TraceError(
                [(self.path, 0, Message("service {service!r} has no requests: {reason}", self.service, reason))]
            )
        return rows_of(whole, rows)


class CsvTrace(RequestLog):
    """Request log in a file of comma-, semicolon- or tab-separated values, whose first line has the headers."""

    format: Literal["csv"]

    def table(self, faults: TraceFaults) -> TraceTable:
        """Return all columns of the file as text. Raises TraceError if no rows can be separated."""
        return read_any_table(self.path, OWN_COLUMNS[:3], faults)


class JsonlTrace(RequestLog):
    """Request log with a JSON object per line; a nested key is named like `usage.prompt_tokens`."""

    format: Literal["jsonl"]

    def table(self, faults: TraceFaults) -> TraceTable:
        """Return all keys of the file as columns of text. Raises TraceError if the file cannot be read."""
        return read_json_lines(self.path, faults)


def _answered_in_order(arrived_s: NDArray[np.float64], outputs: list[str] | None) -> tuple[NDArray[np.intp], list[str]]:
    """Return the rows of requests with output tokens in the order of their times, and sentences on the others.

    A log has a row for each call, failed ones too, often in the order in which the calls ended.
    """
    notes: list[str] = []
    rows = np.arange(len(arrived_s))
    if outputs is not None:
        answered = np.array([text.strip() not in ("", "0", "0.0") for text in outputs], bool)
        if failed := int(len(rows) - answered.sum()):
            notes.append(
                Message("{failed} of {count} requests have no output tokens (failures); left out", failed, len(rows))
            )
        rows = rows[answered]
    if late := int((np.diff(arrived_s[rows]) < 0).sum()):
        notes.append(Message("requests are out of order ({late} before an earlier request); sorted by time", late))
        rows = rows[np.argsort(arrived_s[rows], kind="stable")]
    return rows, notes


def _units(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return token counts of units of work: no prompt, and one output token."""
    return np.zeros(count, np.int64), np.ones(count, np.int64)


def _number_turns(requests: RequestTable, texts: list[str] | None, lines: Sequence[int], faults: TraceFaults) -> None:
    """Set `turn` of *requests* to positions in their sessions, as given or counted from 1."""
    if requests.session is None:
        if texts is not None:
            faults.add(1, "the column 'turn' counts within sessions, and there is no column 'session'")
        return
    last: dict[str, int] = {}
    if texts is not None:
        given = [text if session else "0" for text, session in zip(texts, requests.session, strict=True)]
        requests.turn = columns.tokens(given, "turn", lines, faults, least=0)
        late = []
        for row, (session, turn) in enumerate(zip(requests.session, requests.turn.tolist(), strict=True)):
            if session and turn <= last.get(session, -1):
                late.append(row)
            last[session] = turn
        message = "turn must rise within a session: requests must be in the order of their turns"
        faults.add_rows(np.array(late, np.intp), lines, lambda row: f"{message}, not {given[row]}")
        return
    counted = []
    for session in requests.session:
        last[session] = last.get(session, 0) + 1
        counted.append(last[session] if session else 0)
    requests.turn = np.array(counted, np.int64)


def _conversations(requests: RequestTable) -> list[Sequence[int]]:
    """Return the block ids of each request; a conversation continues if the prompt is at least as long as it."""
    contexts: dict[str, Context] = {}
    blocks: list[Sequence[int]] = []
    started = 0
    rows = zip(requests.session or (), requests.prompt_tokens.tolist(), requests.output_tokens.tolist(), strict=True)
    for session, prompt, output in rows:
        if not session:
            blocks.append(ContextBlocks(0, 0, 0))
            continue
        context = contexts.get(session)
        if context is None or context.tokens > prompt:
            contexts[session] = context = Context(started, 0, 0)
            started += 1
        blocks.append(context.grown(prompt - context.tokens, output)[1])
    return blocks


STAMP = re.compile(r"(?:19|20|21)\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,9})?", re.ASCII)
NANOSECONDS = 1e9


class AzureTrace(TraceFile):
    """Trace of Azure: `TIMESTAMP,ContextTokens,GeneratedTokens`, with dates read as seconds after the first request."""

    format: Literal["azure"]

    def read(self) -> TraceReading:
        """Return the requests of the file, checked. Raises TraceError listing all faults."""
        faults = TraceFaults(self.path)
        table = read_table(self.path, ("TIMESTAMP", "ContextTokens", "GeneratedTokens"), (), faults)
        texts, lines = table.columns, table.lines
        requests = RequestTable(
            _seconds_after_first(texts["TIMESTAMP"], lines, faults),
            columns.tokens(texts["ContextTokens"], "ContextTokens", lines, faults),
            columns.tokens(texts["GeneratedTokens"], "GeneratedTokens", lines, faults),
        )
        faults.stop_if_any()
        return TraceReading(requests)


def _seconds_after_first(texts: list[str], lines: Sequence[int], faults: TraceFaults) -> NDArray[np.float64]:
    """Return the times after the first date [s]; dates have up to nine decimals and may end in a UTC offset of zero."""
    stamps = _stamps([text.strip().removesuffix("+00:00") for text in texts])
    wrong = np.isnat(stamps)
    faults.add_rows(
        np.flatnonzero(wrong),
        lines,
        lambda row: Message("TIMESTAMP must look like 2023-11-16 18:17:03.97996, not {value!r}", texts[row]),
    )
    if wrong.all():
        return np.zeros(len(stamps))
    elapsed_s: NDArray[np.float64] = (stamps - stamps[~wrong][0]).astype(np.int64) / NANOSECONDS
    columns.check_order(np.where(wrong, np.nan, elapsed_s), texts, "TIMESTAMP", lines, faults)
    return elapsed_s


def _stamps(dates: list[str]) -> NDArray[np.datetime64]:
    """Return *dates* as timestamps, NaT if invalid; an invalid day such as 30 February requires a check one by one."""
    formed = [date if STAMP.fullmatch(date) else "NaT" for date in dates]
    try:
        return np.array(formed, dtype="datetime64[ns]")
    except ValueError:
        return np.array([_stamp(date) for date in formed])


def _stamp(date: str) -> np.datetime64:
    try:
        return np.datetime64(date, "ns")
    except ValueError:
        return np.datetime64("NaT", "ns")


class BurstgptTrace(TraceFile):
    """Trace of BurstGPT, with times in seconds.

    Columns: `Timestamp,[Session ID,Elapsed time,]Model,Request tokens,Response tokens,Total tokens,Log Type`. A row
    without response tokens is a failed request: it is left out and counted in a note. The first request that did not
    fail arrives at 0.
    """

    format: Literal["burstgpt"]

    def read(self) -> TraceReading:
        """Return the requests of the file, checked. Raises TraceError listing all faults."""
        faults = TraceFaults(self.path)
        required = ("Timestamp", "Request tokens", "Response tokens")
        optional = ("Session ID", "Elapsed time", "Model", "Total tokens", "Log Type")
        table = read_table(self.path, required, optional, faults)
        texts, lines = table.columns, table.lines
        times_s = columns.seconds(texts["Timestamp"], "Timestamp", lines, faults)
        prompts = columns.tokens(texts["Request tokens"], "Request tokens", lines, faults, least=0)
        outputs = columns.tokens(texts["Response tokens"], "Response tokens", lines, faults, least=0)
        answered = outputs > 0
        faults.add_rows(
            np.flatnonzero(answered & (prompts == 0)),
            lines,
            lambda row: "Request tokens are 0 although there was a response",
        )
        faults.stop_if_any()
        if not answered.any():
            raise TraceError([(self.path, 0, "holds no request with response tokens")])
        times_s = times_s[answered]
        failed = len(answered) - len(times_s)
        note = Message(
            "{name}: {failed} of {count} requests have no response tokens (failures); they are ignored",
            Path(self.path).name,
            failed,
            len(answered),
        )
        requests = RequestTable(times_s - times_s[0], prompts[answered], outputs[answered])
        return TraceReading(requests, (note,) if failed else ())
