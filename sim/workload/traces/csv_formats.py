"""Traces in comma-separated files: the plain format of one line a request, Azure's and BurstGPT's.

Azure: Patel et al., "Splitwise", ISCA 2024; github.com/Azure/AzurePublicDataset. BurstGPT: Wang et al., "BurstGPT",
KDD 2025; github.com/HPMLL/BurstGPT.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sim.workload.requests import RequestTable
from sim.workload.shared_prefix import HASH_BLOCK_TOKENS, Context, ContextBlocks
from sim.workload.tenants import NOBODY
from sim.workload.traces import columns
from sim.workload.traces.columns import header, read_table
from sim.workload.traces.trace_file import TraceError, TraceFaults, TraceFile, TraceReading, rows_of

TOKENS = ("prompt_tokens", "output_tokens")
OPTIONAL = ("priority", "session", "turn", "tenant", "service")
OF_UNITS = ("arrival_s", "priority", "tenant", "service")


class CsvTrace(TraceFile):
    """`arrival_s,prompt_tokens,output_tokens[,priority][,session][,turn][,tenant][,service]`, times in seconds as they
    are, lower priorities first.

    A request of a `session` arrives at its time, but not before the answer to the one before it; `turn` is its place
    there, from 1 by default. A prompt that is at least as long as the conversation before it is taken to begin with
    it, for prefix caches. Requests of services that answer in one pass have no tokens: `arrival_s[,priority]`.
    """

    format: Literal["csv"]
    service: str | None = None
    """Only the rows with this name in the column `service`; left out: all rows."""

    def read(self) -> TraceReading:
        """Read and check the file. Raises TraceError with all that is wrong."""
        faults = TraceFaults(self.path)
        units = "arrival_s" in (names := header(self.path)) and names <= set(OF_UNITS)
        table = read_table(self.path, ("arrival_s", *(() if units else TOKENS)), OPTIONAL, faults)
        texts, lines = table.columns, table.lines
        arrived_s = columns.seconds(texts["arrival_s"], "arrival_s", lines, faults)
        requests = RequestTable(
            columns.since_the_start(arrived_s, texts["arrival_s"], "arrival_s", lines, faults),
            *(_units(len(lines)) if units else (columns.tokens(texts[name], name, lines, faults) for name in TOKENS)),
        )
        if "priority" in texts:
            requests.priority = columns.integers(texts["priority"], "priority", lines, faults)
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
        return TraceReading(requests, units=units)

    def chosen(self, whole: RequestTable) -> RequestTable:
        """The rows of the `service`. Raises TraceError where there are none."""
        if self.service is None:
            return whole
        rows = [row for row, name in enumerate(whole.service or ()) if name == self.service]
        if not rows:
            names = sorted(set(whole.service or ()))
            told = f"the column 'service' has {', '.join(names)[:80]}" if names else "there is no column 'service'"
            raise TraceError([(self.path, 0, f"no request asks for service {self.service!r}: {told}")])
        return rows_of(whole, rows)


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
