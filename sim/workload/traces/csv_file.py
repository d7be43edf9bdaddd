"""The plain format: one line a request."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sim.workload.requests import RequestTable
from sim.workload.sessions.context import Context, ContextBlocks
from sim.workload.shared_prefix import HASH_BLOCK_TOKENS
from sim.workload.tenants import NOBODY
from sim.workload.traces import columns
from sim.workload.traces.faults import Faults, TraceError
from sim.workload.traces.file import TraceFile, TraceReading, rows_of
from sim.workload.traces.table import header, read_table

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
        faults = Faults(self.path)
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


def _number_turns(requests: RequestTable, texts: list[str] | None, lines: Sequence[int], faults: Faults) -> None:
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
