"""Sessions, the conversations of users and agents: most requests wait for the answer to an earlier one.

`Sessions` has the keys of a scenario. Session i is drawn at random and is the same in every fleet and at every
load. Sessions begin at a rate, one after the other for each of some users, or as a trace has recorded them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from math import log, log1p
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sim.records import ONLY_SERVICE
from sim.spec import Fraction, NonNegative, Positive, Spec, WholeNumber
from sim.workload.arrivals import ClosedLoop
from sim.workload.lengths import Length, Lengths
from sim.workload.requests import LEAST, RequestTable, Streams
from sim.workload.shared_prefix import HASH_BLOCK_TOKENS, Context


class FixedTime(Spec):
    """Always as long."""

    distribution: Literal["fixed"]
    value: NonNegative
    """Duration [s]."""

    def quantile(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds at the cumulative probabilities *u*."""
        return np.full(len(u), self.value)

    def describe(self) -> str:
        """Half a sentence."""
        return f"{self.value:g} s"


class ExponentialTime(Spec):
    """Memoryless."""

    distribution: Literal["exponential"]
    mean: Positive
    """Mean [s]."""

    def quantile(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds at the cumulative probabilities *u*."""
        return -self.mean * np.log1p(-u)

    def describe(self) -> str:
        """Half a sentence."""
        return f"exponential, mean {self.mean:g} s"


class LognormalTime(Spec):
    """Many short ones and a long tail: sigma^2 = ln(1 + cv^2), mu = ln(mean) - sigma^2 / 2."""

    distribution: Literal["lognormal"]
    mean: Positive
    """Mean [s]."""
    cv: NonNegative
    """Standard deviation over mean."""

    def quantile(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds at the cumulative probabilities *u*."""
        from scipy.special import ndtri  # slow to import; a scenario is also read without being run

        variance = log1p(self.cv**2)
        seconds: NDArray[np.float64] = np.exp(log(self.mean) - variance / 2 + variance**0.5 * ndtri(u))
        return seconds

    def describe(self) -> str:
        """Half a sentence."""
        return f"lognormal, mean {self.mean:g} s (cv {self.cv:g})"


Duration = Annotated[FixedTime | ExponentialTime | LognormalTime, Field(discriminator="distribution")]


POINTS = 20_000
"""Cumulative probabilities at which a law is averaged."""


class ToolCalls(Spec):
    """The model asks for tools before it answers: each call is a request of its own, with the tool's result."""

    share: Fraction = 1.0
    """Of the turns, those that call tools."""
    calls: Length
    """Calls in such a turn, one after the other."""
    delay_s: Duration
    """How long a tool runs: from the answer that calls it to the request with its result."""
    result_tokens: Length
    """What the result adds to the prompt."""


class SubAgents(Spec):
    """The model hands parts of a turn to agents that work side by side, each in a context of its own, and goes on with
    the last answers of all of them.
    """

    share: Fraction = 1.0
    """Of the turns, those that are handed over."""
    agents: Length
    """Agents in such a turn, all at once."""
    task_tokens: Length
    """What an agent is told, behind the system prompt. It calls tools as a turn does."""


class Sessions(Spec):
    """Users who go on where the last answer ended. Each request has the whole conversation in its prompt.

    The next request of a session comes when the last answer is complete and the user has thought, so that a slow fleet
    gets fewer requests per second: the load depends on the latency.
    """

    turns: Length
    """Times that the user speaks."""
    think_s: Duration
    """From the last answer to what the user says next."""
    system_prompt_tokens: WholeNumber = 0
    """What every conversation begins with, the same for all; `lengths.prompt` comes on top."""
    tool_calls: ToolCalls | None = None
    """Left out: no tools."""
    sub_agents: SubAgents | None = None
    """Left out: no agents."""

    def mean_requests(self) -> float:
        """Requests of a session in the mean."""
        tools, agents = self.tool_calls, self.sub_agents
        of_turn = 1.0 if tools is None else 1.0 + tools.share * mean_of(tools.calls)
        handed_over = 0.0 if agents is None else agents.share * (1.0 + mean_of(agents.agents) * of_turn)
        return mean_of(self.turns) * (of_turn + handed_over)

    def describe(self) -> str:
        """A phrase."""
        told = f"sessions of turns {_count(self.turns)}, think time {self.think_s.describe()}"
        if self.system_prompt_tokens:
            told += f", a system prompt of {self.system_prompt_tokens} tokens"
        if self.tool_calls is not None:
            told += f", tool calls in {self.tool_calls.share:.0%} of turns"
        if self.sub_agents is not None:
            told += f", sub-agents in {self.sub_agents.share:.0%} of turns"
        return told


def _count(law: Length) -> str:
    return law.describe().removesuffix(" tokens")


@lru_cache(maxsize=64)
def mean_of(law: Length) -> float:
    """Mean of *law* as it is clipped."""
    return float(np.mean(law.quantile((np.arange(POINTS) + 0.5) / POINTS)))


@dataclass(slots=True)
class Turn:
    """A request of a session, before it is known when it arrives."""

    prompt_tokens: int
    """The conversation so far included."""
    output_tokens: int
    after: tuple[int, ...] = ()
    """Places in the session of the requests whose answers it waits for; none at the start of the session."""
    delay_s: float = 0.0
    """From the last of these answers to its arrival: think time, or a tool that runs."""
    earliest_s: float = 0.0
    """It does not arrive before; the time that a trace says."""
    number: int = 1
    """Its place in the session, from 1, as outputs show it."""
    block_hashes: Sequence[int] = ()
    hash_block_tokens: int = 1
    priority: int = 0


@dataclass(slots=True)
class Session:
    """Requests of which some wait for the answers to others."""

    name: str
    turns: list[Turn]
    """Each one behind those that it waits for."""
    tenant: str = ""
    service: str = ONLY_SERVICE


MOST_DRAWS = 1 << 20
"""Numbers of each stream that are set aside for a session."""
AT_ONCE = 16
"""Draws that are made together: one is as slow as a few."""


class Law(Protocol):
    """A length or a duration."""

    def quantile(self, u: NDArray[np.float64]) -> NDArray[Any]:
        """Its values at the cumulative probabilities *u*."""
        ...


class Uniform:
    """Between 0 and 1."""

    def quantile(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        """*u* itself."""
        return u


EVENLY = Uniform()


class SessionDraws:
    """The sessions that a workload describes, by number. Every purpose has a stream, every session a stretch of it."""

    def __init__(self, spec: Sessions, lengths: Lengths, streams: Streams) -> None:
        self._spec, self._lengths, self._streams = spec, lengths, streams
        self._generators: dict[str, tuple[np.random.Generator, int]] = {}
        """Purpose -> its stream, and the place in it."""

    def session(self, number: int) -> Session:
        """Session *number*, from 0."""
        return Session(str(number), _Script(self, self._spec, self._lengths, number).turns())

    def uniforms(self, purpose: str, start: int, count: int) -> NDArray[np.float64]:
        """Numbers *start* to *start + count* of the stream of *purpose*, strictly between 0 and 1."""
        generator, place = self._generators.get(purpose) or (self._streams(f"session {purpose}"), 0)
        if start != place:
            generator.bit_generator.advance(start - place)  # type: ignore[attr-defined]
        self._generators[purpose] = generator, start + count
        return np.maximum(generator.random(count), LEAST)


class _Script:
    """The requests of one session, in an order in which each stands behind those that it waits for."""

    def __init__(self, draws: SessionDraws, spec: Sessions, lengths: Lengths, number: int) -> None:
        self._draws, self._spec, self._lengths, self._number = draws, spec, lengths, number
        self._ready: dict[str, list[Any]] = {}
        """Purpose -> its next draws, the first one last."""
        self._drawn: dict[str, int] = {}
        self._contexts = 0
        self._turns: list[Turn] = []

    def turns(self) -> list[Turn]:
        """All of them."""
        spec, agents = self._spec, self._spec.sub_agents
        context = self._context()
        for place in range(self._next("turns", spec.turns)):
            tokens, pause_s = self._next("prompt", self._lengths.prompt), 0.0
            after: tuple[int, ...] = ()
            if place:
                after, pause_s = (len(self._turns) - 1,), self._next("think", spec.think_s)
            if agents is not None and self._next("handed over", EVENLY) < agents.share:
                asked = self._ask(context, tokens, after, pause_s)
                after, pause_s = self._side_by_side(agents, asked), 0.0
                tokens = sum(self._turns[last].output_tokens for last in after)
            self._ask_with_tools(context, tokens, after, pause_s)
        return self._turns

    def _side_by_side(self, agents: SubAgents, asked: int) -> tuple[int, ...]:
        """Agents work on what request *asked* has told them; the places of their last requests."""
        tasks = [self._next("task", agents.task_tokens) for _ in range(self._next("agents", agents.agents))]
        return tuple(self._ask_with_tools(self._context(), task, (asked,), 0.0) for task in tasks)

    def _ask_with_tools(self, context: Context, tokens: int, after: tuple[int, ...], pause_s: float) -> int:
        """A request for *tokens* more and those with the results of tools; the place of the last one."""
        place = self._ask(context, tokens, after, pause_s)
        tools = self._spec.tool_calls
        if tools is None or self._next("tools", EVENLY) >= tools.share:
            return place
        for _ in range(self._next("calls", tools.calls)):
            delay_s = self._next("tool", tools.delay_s)
            place = self._ask(context, self._next("result", tools.result_tokens), (place,), delay_s)
        return place

    def _ask(self, context: Context, tokens: int, after: tuple[int, ...], delay_s: float) -> int:
        """A request that adds *tokens* to *context*; its place."""
        answer = self._next("output", self._lengths.output)
        prompt, blocks = context.grown(tokens, answer)
        place = len(self._turns)
        self._turns.append(Turn(prompt, answer, after, delay_s, 0.0, place + 1, blocks, HASH_BLOCK_TOKENS))
        return place

    def _context(self) -> Context:
        self._contexts += 1
        return Context(self._number, self._contexts - 1, self._spec.system_prompt_tokens)

    def _next(self, purpose: str, law: Law) -> Any:
        """The next draw from *law* for *purpose*: tokens, a count or seconds."""
        ready = self._ready.setdefault(purpose, [])
        if not ready:
            drawn = self._drawn.get(purpose, 0)
            self._drawn[purpose] = drawn + AT_ONCE
            u = self._draws.uniforms(purpose, self._number * MOST_DRAWS + drawn, AT_ONCE)
            ready.extend(reversed(law.quantile(u).tolist()))
        return ready.pop()


def sample(draws: SessionDraws, start: int, count: int) -> Iterator[Turn]:
    """Requests *start* to *start* + *count* of all sessions, one session after the other."""
    number = place = 0
    while place < start + count:
        turns = draws.session(number).turns
        yield from turns[max(0, start - place) : start + count - place]
        place += len(turns)
        number += 1


@dataclass(frozen=True, slots=True)
class SessionStart:
    """A session and when it begins."""

    at_s: float
    session: Session
    number: int
    """Of the session: who asks for the next one of the same user names it."""


class ComingSessions(Protocol):
    """What the fleet asks for."""

    def starts(self) -> Iterator[SessionStart]:
        """Sessions that begin whatever the fleet does, in order of time."""
        ...

    def next_of(self, number: int) -> tuple[float, SessionStart] | None:
        """What the user of session *number* does when it is over: the pause [s] and the next session; None: nothing."""
        ...


class OpenSessions:
    """Sessions that begin at given times."""

    def __init__(self, draws: SessionDraws, begins_s: list[float], tenants: list[str] | None) -> None:
        """*tenants* has the tenant of each session, where anybody is told apart."""
        self._draws, self._begins_s, self._tenants = draws, begins_s, tenants

    def starts(self) -> Iterator[SessionStart]:
        """See `ComingSessions.starts`."""
        return (
            SessionStart(at_s, _session_of(self._draws, i, self._tenants), i) for i, at_s in enumerate(self._begins_s)
        )

    def next_of(self, number: int) -> None:
        """Nobody waits for the end of a session."""


class UserSessions:
    """Users with one session at a time: user u has sessions u, u + users, ..., whatever the others do."""

    def __init__(self, draws: SessionDraws, loop: ClosedLoop, streams: Streams, tenants: list[str] | None) -> None:
        """*tenants* has the tenant of each user, where anybody is told apart."""
        self._draws, self._loop, self._streams, self._tenants = draws, loop, streams, tenants

    def starts(self) -> Iterator[SessionStart]:
        """See `ComingSessions.starts`."""
        loop = self._loop
        first_s = [0.0] * loop.concurrency
        if loop.random:
            first_s = loop.pauses_s(self._streams, "first pauses", 0, loop.concurrency).tolist()
        for at_s, user in sorted(zip(first_s, count(), strict=False)):
            yield SessionStart(at_s, _session_of(self._draws, user, self._tenants), user)

    def next_of(self, number: int) -> tuple[float, SessionStart]:
        """See `ComingSessions.next_of`."""
        following = number + self._loop.concurrency
        pause_s = float(self._loop.pauses_s(self._streams, "pauses", number, 1)[0])
        return pause_s, SessionStart(0.0, _session_of(self._draws, following, self._tenants), following)


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

    def starts(self) -> Iterator[SessionStart]:
        """See `ComingSessions.starts`."""
        return (SessionStart(found.turns[0].earliest_s, found, i) for i, found in enumerate(_sessions(self._table)))

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


__all__ = ["Sessions"]
