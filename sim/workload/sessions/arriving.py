"""When sessions begin: at a rate, one after the other for each of some users, or as a trace has recorded them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from sim.records import ONLY_SERVICE
from sim.workload.arrivals import ClosedLoop
from sim.workload.requests import RequestTable
from sim.workload.sessions.drawn import SessionDraws
from sim.workload.sessions.session import Session, Turn
from sim.workload.streams import Streams


@dataclass(frozen=True, slots=True)
class Start:
    """A session and when it begins."""

    at_s: float
    session: Session
    number: int
    """Of the session: who asks for the next one of the same user names it."""


class ComingSessions(Protocol):
    """What the fleet asks for."""

    def starts(self) -> Iterator[Start]:
        """Sessions that begin whatever the fleet does, in order of time."""
        ...

    def next_of(self, number: int) -> tuple[float, Start] | None:
        """What the user of session *number* does when it is over: the pause [s] and the next session; None: nothing."""
        ...


class OpenSessions:
    """Sessions that begin at given times."""

    def __init__(self, draws: SessionDraws, begins_s: list[float], tenants: list[str] | None) -> None:
        """*tenants* has the tenant of each session, where anybody is told apart."""
        self._draws, self._begins_s, self._tenants = draws, begins_s, tenants

    def starts(self) -> Iterator[Start]:
        """See `ComingSessions.starts`."""
        return (Start(at_s, _session_of(self._draws, i, self._tenants), i) for i, at_s in enumerate(self._begins_s))

    def next_of(self, number: int) -> None:
        """Nobody waits for the end of a session."""


class UserSessions:
    """Users with one session at a time: user u has sessions u, u + users, ..., whatever the others do."""

    def __init__(self, draws: SessionDraws, loop: ClosedLoop, streams: Streams, tenants: list[str] | None) -> None:
        """*tenants* has the tenant of each user, where anybody is told apart."""
        self._draws, self._loop, self._streams, self._tenants = draws, loop, streams, tenants

    def starts(self) -> Iterator[Start]:
        """See `ComingSessions.starts`."""
        loop = self._loop
        first_s = [0.0] * loop.concurrency
        if loop.random:
            first_s = loop.pauses_s(self._streams, "first pauses", 0, loop.concurrency).tolist()
        for at_s, user in sorted(zip(first_s, count(), strict=False)):
            yield Start(at_s, _session_of(self._draws, user, self._tenants), user)

    def next_of(self, number: int) -> tuple[float, Start]:
        """See `ComingSessions.next_of`."""
        following = number + self._loop.concurrency
        pause_s = float(self._loop.pauses_s(self._streams, "pauses", number, 1)[0])
        return pause_s, Start(0.0, _session_of(self._draws, following, self._tenants), following)


def _session_of(draws: SessionDraws, number: int, tenants: list[str] | None) -> Session:
    """Session *number*; of one user after the other where there are fewer *tenants* than sessions."""
    session = draws.session(number)
    if tenants:
        session.tenant = tenants[number % len(tenants)]
    return session


class RecordedSessions:
    """Sessions of a trace. A request comes when the trace says, but not before the answer to the one before it."""

    def __init__(self, table: RequestTable) -> None:
        self._table = table

    def starts(self) -> Iterator[Start]:
        """See `ComingSessions.starts`."""
        return (Start(found.turns[0].earliest_s, found, i) for i, found in enumerate(_sessions(self._table)))

    def next_of(self, number: int) -> None:
        """Nobody waits for the end of a session."""


def _sessions(table: RequestTable) -> list[Session]:
    """The rows of *table* by session, in the order of their first requests; a row without a session stands alone."""
    found: dict[object, list[int]] = {}
    for row, name in enumerate(table.session or [""] * len(table.arrived_s)):
        found.setdefault(name or row, []).append(row)
    return [_session(table, rows) for rows in found.values()]


def _session(table: RequestTable, rows: list[int]) -> Session:
    first = rows[0]
    session = Session("" if table.session is None else table.session[first], [])
    session.tenant = "" if table.tenant is None else table.tenant[first]
    session.service = (table.service[first] if table.service else "") or ONLY_SERVICE
    places = {row: place for place, row in enumerate(rows)}
    for place, row in enumerate(rows):
        turn = Turn(int(table.prompt_tokens[row]), int(table.output_tokens[row]), (place - 1,) if place else ())
        turn.earliest_s = float(table.arrived_s[row])
        if table.follows is not None:
            before, turn.delay_s = table.follows[row]
            turn.after = (places[before],) if before >= 0 else ()
            turn.earliest_s = turn.earliest_s if before < 0 else 0.0
        if session.name:
            turn.number = place + 1 if table.turn is None else int(table.turn[row])
        if table.priority is not None:
            turn.priority = int(table.priority[row])
        if table.block_hashes is not None:
            turn.block_hashes, turn.hash_block_tokens = table.block_hashes[row], table.hash_block_tokens
        session.turns.append(turn)
    return session
