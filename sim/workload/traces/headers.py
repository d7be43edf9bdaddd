"""Columns of request logs under other programs' names: synonyms of headers, units of times, dates.

A log of another program has its own headers. `recognised` finds the columns that a trace needs, `arrivals` reads times
in any common form, and both return sentences on how the file was read.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from math import nan

import numpy as np
from numpy.typing import NDArray

from sim.message import Message
from sim.workload.traces import columns
from sim.workload.traces.trace_file import TraceFaults

SYNONYMS: dict[str, tuple[str, ...]] = {
    "arrival_s": (
        *("arrival", "arrival_time", "arrived", "arrived_at", "timestamp", "time_stamp", "ts", "request_time"),
        *("requested_at", "request_timestamp", "received_at", "created_at", "created", "created_time", "start_time"),
        *("started_at", "start", "submit_time", "submitted_at", "datetime", "date_time", "time", "date", "unix_time"),
        *("epoch", "t"),
    ),
    "prompt_tokens": (
        *("input_tokens", "prompt_len", "input_len", "prompt_length", "input_length", "isl", "context_tokens"),
        *("request_tokens", "tokens_in", "tokens_input", "tokens_prompt", "num_prompt_tokens", "n_prompt_tokens"),
        *("num_input_tokens", "prompt_token_count", "input_token_count", "prompt_size", "input_size", "prefill_tokens"),
        *("num_prefill_tokens", "request_input_tokens"),
    ),
    "output_tokens": (
        *("completion_tokens", "output_len", "output_length", "completion_len", "completion_length", "osl"),
        *("generated_tokens", "generation_tokens", "response_tokens", "answer_tokens", "tokens_out", "tokens_output"),
        *("tokens_completion", "num_output_tokens", "num_generated_tokens", "num_completion_tokens", "n_output_tokens"),
        *("completion_token_count", "output_token_count", "candidates_token_count", "response_len", "response_length"),
        *("decode_tokens", "num_decode_tokens", "request_output_tokens", "output_size"),
    ),
    "session": ("session_id", "conversation_id", "chat_id", "thread_id"),
    "tenant": ("tenant_id", "customer_id"),
}
"""Column of a trace -> synonymous headers of request logs, likeliest first, normalised as by `_plain`."""
UNITS = {"ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Suffix of a header -> unit of its times [s]."""
EPOCHS = ((1e11, 1.0), (1e14, 1e-3), (1e17, 1e-6), (np.inf, 1e-9))
"""Pairs of (upper bound, unit [s]) of Unix times; a date of this century has an unambiguous unit."""


@dataclass(frozen=True, slots=True)
class Headers:
    """Mapping of a file's headers to the columns of a trace."""

    names: Mapping[str, str]
    """Column of a trace -> header in the file."""
    ignored: tuple[str, ...]
    """Headers that do not correspond to any column."""
    near: Mapping[str, str]
    """Ignored header -> column of a trace with a similar name."""

    @property
    def foreign(self) -> bool:
        """True if a column is read under a different name, so that the file comes from another program."""
        return any(own != name for own, name in self.names.items())

    def notes(self) -> list[str]:
        """Return sentences on how the headers are read."""
        read = [f"{name!r} as {own}" for own, name in self.names.items() if own != name]
        found: list[str] = [Message("columns read under other names: {read}", ", ".join(read))] if read else []
        if self.ignored:
            shown = [
                Message("{name!r} (nearly {near!r})", name, self.near[name]) if name in self.near else repr(name)
                for name in self.ignored
            ]
            more = Message(" and {count} more", len(shown) - 8) if len(shown) > 8 else ""
            found.append(Message("ignored columns: {names}{more}", ", ".join(shown[:8]), more))
        return found

    def missing(self, name: str) -> str:
        """Return the error message of a file without the column *name*."""
        meant = next((theirs for theirs, own in self.near.items() if own == name), None)
        if meant:
            return Message(
                "missing column {name!r}; is {meant!r} meant? Name it with columns: {{{key}: {header}}}, in init with "
                "--columns {key}={header}",
                name,
                meant,
                name,
                meant,
            )
        free = Message("; the file has {value}", ", ".join([*self.names.values(), *self.ignored])[:80])
        return Message(
            "missing column {name}: name its header with columns: {{{key}: <header>}}, in init with --columns "
            "{key}=<header>{free}",
            repr(name),
            name,
            free,
        )


def recognised(header: Sequence[str], own: Sequence[str], stated: Mapping[str, str]) -> tuple[Headers, list[str]]:
    """Find the columns *own* of a trace among the headers of a file.

    Parameters
    ----------
    header
        Names in the first line of the file, or keys of its objects.
    own
        Names of the columns that a trace can have.
    stated
        Column of a trace -> header, as the scenario states it. It wins over the column's own name and synonyms.

    Returns
    -------
    The headers that are read, and a sentence for each mistake in *stated*.

    """
    wrong: list[str] = []
    for name, theirs in stated.items():
        if name not in own:
            wrong.append(Message("columns: unknown column {name!r}; a trace has {own}", name, ", ".join(own)))
        elif theirs not in header:
            near = get_close_matches(theirs, header, 1)
            meant = (
                Message("did you mean {near!r}?", near[0])
                if near
                else Message("the file has {header}", ", ".join(header)[:80])
            )
            wrong.append(Message("columns: {name}: there is no column {theirs!r}; {meant}", name, theirs, meant))
    names = {name: theirs for name, theirs in stated.items() if name in own and theirs in header}
    names |= {name: name for name in own if name in header and name not in names and name not in names.values()}
    plain: dict[str, str] = {}
    for theirs in header:
        if theirs not in names.values():
            for word in (_plain(theirs), _plain(theirs.rpartition(".")[2])):
                plain.setdefault(word, theirs)
                plain.setdefault(re.sub(r"_(s|ms|us|ns)$", "", word), theirs)
    for name in own:
        if name not in names:
            found = next((plain[word] for word in (name, *SYNONYMS.get(name, ())) if word in plain), None)
            if found is not None:
                names[name] = found
    ignored = [theirs for theirs in header if theirs not in names.values()]
    free = [name for name in own if name not in names]
    nearly = {theirs: match[0] for theirs in ignored if (match := get_close_matches(_plain(theirs), free, 1, 0.75))}
    return Headers({name: names[name] for name in own if name in names}, tuple(ignored), nearly), wrong


def _plain(header: str) -> str:
    """Return *header* in lower case with words joined by underscores: `prompt_tokens` for `promptTokens`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", header.strip()).lower()
    return re.sub(r"[^a-z0-9]+", "_", words).strip("_")


def arrivals(
    texts: Sequence[str], name: str, lines: Sequence[int], faults: TraceFaults
) -> tuple[NDArray[np.float64], list[str]]:
    """Read the times of requests in the column *name*.

    Parameters
    ----------
    texts
        Cells of the column: seconds from the start (or the unit that the header ends in), Unix times in seconds, ms,
        µs or ns, or dates of ISO 8601. Dates without a UTC offset are taken as UTC; in
        one file, all dates or none state an offset.
    name
        Header of the column.
    lines
        Line of each cell in the file.
    faults
        Receives a fault for each cell that is no time.

    Returns
    -------
    Times [s], and a sentence on what the cells are where they are not seconds.

    """
    known = [text for text in texts[:50] if text.strip()]
    if any(re.match(r"\s*\d{4}-?\d\d-?\d\d", text) and not re.fullmatch(r"[\d.\s]+", text) for text in known):
        return _dates(texts, name, lines, faults), [
            Message("{name!r} holds dates; time counts from the first request", name)
        ]
    values = columns.finite(texts, name, lines, faults)
    ending = _plain(name).rpartition("_")[2]
    unit, latest = UNITS.get(ending, 1.0), float(np.nanmax(values, initial=0.0))
    if latest * unit > columns.LATEST_S:
        unit = next(seconds for below, seconds in EPOCHS if latest < below)
        ending = next((word for word, seconds in UNITS.items() if seconds == unit), "s")
        notes: list[str] = [
            Message("{name!r} holds Unix times in {ending}; time counts from the first request", name, ending)
        ]
        return (values - np.nanmin(values)) * unit, notes
    return values * unit, [f"{name!r} holds {ending}"] if unit != 1.0 else []


def _dates(texts: Sequence[str], name: str, lines: Sequence[int], faults: TraceFaults) -> NDArray[np.float64]:
    stamps = [_stamp(text) for text in texts]
    faults.add_rows(
        np.flatnonzero([stamp is None for stamp in stamps]),
        lines,
        lambda row: Message("{name} must be a date like 2026-11-28T09:30:00Z, not {value!r}", name, texts[row]),
    )
    rows = [row for row, stamp in enumerate(stamps) if stamp is not None]
    zoned = [stamps[row].tzinfo is not None for row in rows]  # type: ignore[union-attr]
    if len(set(zoned)) > 1:
        with_zone, without = rows[zoned.index(True)], rows[zoned.index(False)]
        faults.add(
            lines[max(with_zone, without)],
            Message(
                "dates with and without a time zone are mixed: {zoned!r} (line {line}) and {bare!r} (line {other}); "
                "give all of them a zone, or none",
                texts[with_zone],
                lines[with_zone],
                texts[without],
                lines[without],
            ),
        )
    known = [stamp if stamp is None or stamp.tzinfo else stamp.replace(tzinfo=UTC) for stamp in stamps]
    first = min((stamp for stamp in known if stamp is not None), default=None)
    return np.array([(stamp - first).total_seconds() if stamp and first else nan for stamp in known])


def _stamp(text: str) -> datetime | None:
    """Return the date in *text*; None if it is not a date."""
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        return None
