"""Traces with a line for each request: request logs with any headers (CSV, JSON Lines), Azure's and BurstGPT's CSV.

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

from sim.workload.requests import RequestTable
from sim.workload.shared_prefix import HASH_BLOCK_TOKENS, Context, ContextBlocks
from sim.workload.tenants import NOBODY
from sim.workload.traces import columns
from sim.workload.traces.columns import TraceTable, read_any_table, read_json_lines, read_table
from sim.workload.traces.headers import arrivals, recognised
from sim.workload.traces.trace_file import TraceError, TraceFaults, TraceFile, TraceReading, rows_of

TOKENS = ("prompt_tokens", "output_tokens")
OWN = ("arrival_s", *TOKENS, "priority", "session", "turn", "tenant", "service")
OF_UNITS = ("arrival_s", "priority", "tenant", "service")


class RequestLog(TraceFile):
    """Requests in rows with headers: `arrival_s`, `prompt_tokens` and `output_tokens`; `priority` (lower first),
    `session`, `turn`, `tenant` and `service` where there are such columns.

    Headers of other programs are recognised (`timestamp`, `input_tokens`, `completion_tokens`, ...), others are ignored
    with a note. A request of a `session` arrives at its time, but not before the answer to the one before it; `turn` is
    its place there, from 1 by default. A prompt at least as long as the conversation before it is taken to begin with
    that conversation, for prefix caches. Requests of services that answer in one pass have no tokens, only
    `arrival_s[,priority]`.
    """

    columns: dict[str, str] = Field(default_factory=dict)
    """Column of a trace -> header in the file, where the header is not recognised: {arrival_s: my_column}."""
    service: str | None = None
    """Only the rows with this name in the column `service`; left out: all rows."""

    @abstractmethod
    def table(self, faults: TraceFaults) -> TraceTable:
        """Return all columns of the file as text. Raises TraceError where no rows can be separated."""

    def read(self) -> TraceReading:
        """Read and check the file. Raises TraceError with all that is wrong."""
        faults = TraceFaults(self.path)
        table = self.table(faults)
        headers, wrong = recognised([*table.columns], OWN, self.columns)
        names = headers.names
        units = names.keys() <= set(OF_UNITS) and not headers.ignored
        needed = ("arrival_s",) if units else ("arrival_s", *TOKENS)
        wrong += [headers.missing(name) for name in needed if name not in names]
        if wrong:
            raise TraceError([(self.path, 1, text) for text in wrong])
        if not table.lines and not faults:
            raise TraceError([(self.path, 0, "holds no requests")])
        notes = headers.notes()
        lines, texts = table.lines, {name: table.columns[theirs] for name, theirs in names.items()}
        arrived_s, said = arrivals(texts["arrival_s"], names["arrival_s"], lines, faults)
        if headers.foreign or said:
            rows, left_out = _answered_in_order(arrived_s, texts.get("output_tokens"))
            if not len(rows) and not faults:
                raise TraceError([(self.path, 0, "holds no request with output tokens")])
            notes += said + left_out
            arrived_s = arrived_s[rows] - np.nanmin(arrived_s[rows], initial=np.inf)
            lines, texts = (
                [lines[row] for row in rows],
                {k: [column[row] for row in rows] for k, column in texts.items()},
            )
        else:
            columns.check_times(arrived_s, texts["arrival_s"], "arrival_s", lines, faults)
        tokens = [columns.tokens(texts[name], names[name], lines, faults) for name in TOKENS if not units]
        requests = RequestTable(arrived_s, *(tokens or _units(len(lines))))
        if "priority" in texts:
            requests.priority = columns.integers(texts["priority"], names["priority"], lines, faults)
        for name in ("session", "tenant", "service"):
            if name in texts:
                setattr(requests, name, [text.strip() for text in texts[name]])
        _number_turns(requests, texts.get("turn"), lines, faults)
        nobody = np.flatnonzero([name == NOBODY for name in requests.tenant or ()])
        message = f"tenant {NOBODY!r} is the row of what no request causes: choose another name"
        faults.add_rows(nobody, lines, lambda row: message)
        faults.stop_if_any()
        if requests.session is not None:
            requests.block_hashes, requests.hash_block_tokens = _conversations(requests), HASH_BLOCK_TOKENS
        return TraceReading(requests, tuple(f"{Path(self.path).name}: {note}" for note in notes), units=units)

    def chosen(self, whole: RequestTable) -> RequestTable:
        """Return the rows of the `service`. Raises TraceError where there are none."""
        if self.service is None:
            return whole
        rows = [row for row, name in enumerate(whole.service or ()) if name == self.service]
        if not rows:
            names = sorted(set(whole.service or ()))
            told = f"the column 'service' has {', '.join(names)[:80]}" if names else "there is no column 'service'"
            raise TraceError([(self.path, 0, f"no request asks for service {self.service!r}: {told}")])
        return rows_of(whole, rows)


class CsvTrace(RequestLog):
    """A request log in a file of comma-, semicolon- or tab-separated values, whose first line has the headers."""

    format: Literal["csv"]

    def table(self, faults: TraceFaults) -> TraceTable:
        """Return all columns of the file as text. Raises TraceError where no rows can be separated."""
        return read_any_table(self.path, OWN[:3], faults)


class JsonlTrace(RequestLog):
    """A request log with a JSON object a line. A key inside an object inside is `usage.prompt_tokens`."""

    format: Literal["jsonl"]

    def table(self, faults: TraceFaults) -> TraceTable:
        """Return all keys of the file as columns of text. Raises TraceError where the file cannot be read."""
        return read_json_lines(self.path, faults)


def _answered_in_order(arrived_s: NDArray[np.float64], outputs: list[str] | None) -> tuple[NDArray[np.intp], list[str]]:
    """Return the rows of requests with output tokens in the order of their times, and sentences on the others.

    A log has a row for each call, failed ones too, often in the order in which the calls ended.
    """
    notes = []
    rows = np.arange(len(arrived_s))
    if outputs is not None:
        answered = np.array([text.strip() not in ("", "0", "0.0") for text in outputs], bool)
        if failed := int(len(rows) - answered.sum()):
            notes.append(f"{failed} of {len(rows)} requests have no output tokens (failures); left out")
        rows = rows[answered]
    if late := int((np.diff(arrived_s[rows]) < 0).sum()):
        notes.append(f"requests stand out of order ({late} before an earlier one); sorted by time")
        rows = rows[np.argsort(arrived_s[rows], kind="stable")]
    return rows, notes


def _units(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """No prompt, and one unit of work in the place of an answer."""
    return np.zeros(count, np.int64), np.ones(count, np.int64)


def _number_turns(requests: RequestTable, texts: list[str] | None, lines: Sequence[int], faults: TraceFaults) -> None:
    """Fills `turn` with the places of requests in their sessions, as they are given or counted from 1."""
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
        message = "turn must rise within a session: requests stand in the order of their turns"
        faults.add_rows(np.array(late, np.intp), lines, lambda row: f"{message}, not {given[row]}")
        return
    counted = []
    for session in requests.session:
        last[session] = last.get(session, 0) + 1
        counted.append(last[session] if session else 0)
    requests.turn = np.array(counted, np.int64)


def _conversations(requests: RequestTable) -> list[Sequence[int]]:
    """Ids of the blocks of each request: a conversation goes on where a prompt has room for what was said before."""
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
    """`TIMESTAMP,ContextTokens,GeneratedTokens`: absolute dates, read as seconds after the first request."""

    format: Literal["azure"]

    def read(self) -> TraceReading:
        """Read and check the file. Raises TraceError with all that is wrong."""
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
    """Dates with up to nine decimals; a UTC offset of zero may follow."""
    stamps = _stamps([text.strip().removesuffix("+00:00") for text in texts])
    wrong = np.isnat(stamps)
    faults.add_rows(
        np.flatnonzero(wrong),
        lines,
        lambda row: f"TIMESTAMP must look like 2023-11-16 18:17:03.97996, not {texts[row]!r}",
    )
    if wrong.all():
        return np.zeros(len(stamps))
    elapsed_s: NDArray[np.float64] = (stamps - stamps[~wrong][0]).astype(np.int64) / NANOSECONDS
    columns.check_order(np.where(wrong, np.nan, elapsed_s), texts, "TIMESTAMP", lines, faults)
    return elapsed_s


def _stamps(dates: list[str]) -> NDArray[np.datetime64]:
    """NaT for what is no date; a 30th of February is found only one by one."""
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
    """`Timestamp,[Session ID,Elapsed time,]Model,Request tokens,Response tokens,Total tokens,Log Type`, times in s.

    A row without response tokens is a request that failed: it is left out and counted in a note. The first request that
    did not fail arrives at 0.
    """

    format: Literal["burstgpt"]

    def read(self) -> TraceReading:
        """Read and check the file. Raises TraceError with all that is wrong."""
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
        note = (
            f"{Path(self.path).name}: {failed} of {len(answered)} requests have no response tokens (failures); left out"
        )
        requests = RequestTable(times_s - times_s[0], prompts[answered], outputs[answered])
        return TraceReading(requests, (note,) if failed else ())
