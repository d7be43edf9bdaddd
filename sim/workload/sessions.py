"""Sessions, the conversations of users and agents, in which most requests wait for the response to an earlier one.

`Sessions` has the keys of a scenario. Session i is drawn at random and is the same in every fleet and at every load.
Sessions start at a rate, one after the other for each of several users, or as recorded in a trace.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from sim.message import Message
from sim.records import ONLY_SERVICE
from sim.rng import exponential, log_moments, lognormal
from sim.spec import Fraction, NonNegative, Positive, Spec, Tagged, WholeNumber
from sim.workload.arrivals import ClosedLoop
from sim.workload.lengths import Length, Lengths
from sim.workload.requests import LEAST, RequestTable, Streams
from sim.workload.shared_prefix import HASH_BLOCK_TOKENS, Context


class FixedTime(Spec):
    """Constant duration."""

    distribution: Literal["fixed"]
    value: NonNegative
    """Duration [s]."""

    def quantile(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the durations at the cumulative probabilities *u* [s]."""
        return np.full(len(u), self.value)

    def describe(self) -> str:
        """Return a description, as part of a sentence."""
        return f"{self.value:g} s"


class ExponentialTime(Spec):
    """Exponential distribution of a duration."""

    distribution: Literal["exponential"]
    mean: Positive
    """Mean duration [s]."""

    def quantile(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the durations at the cumulative probabilities *u* [s]."""
        return exponential(u, self.mean)

    def describe(self) -> str:
        """Return a description, as part of a sentence."""
        return Message("exponential, mean {mean:g} s", self.mean)


class LognormalTime(Spec):
    """Lognormal distribution of a duration: sigma^2 = ln(1 + cv^2), mu = ln(mean) - sigma^2 / 2."""

    distribution: Literal["lognormal"]
    mean: Positive
    """Mean duration [s]."""
    cv: NonNegative
    """Coefficient of variation (standard deviation over mean)."""

    def quantile(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the durations at the cumulative probabilities *u* [s]."""
        return lognormal(u, *log_moments(self.mean, self.cv))

    def describe(self) -> str:
        """Return a description, as part of a sentence."""
        return Message("lognormal, mean {mean:g} s (cv {cv:g})", self.mean, self.cv)


Duration = Annotated[FixedTime | ExponentialTime | LognormalTime, Tagged("distribution")]


POINTS = 20_000
"""Number of cumulative probabilities at which a distribution is averaged."""


class ToolCalls(Spec):
    """Tool calls of the model before its response; each call is a request of its own with the tool's result."""

    share: Fraction = 1.0
    """Fraction of turns that call tools."""
    calls: Length
    """Number of sequential calls in such a turn."""
    delay_s: Duration
    """Run time of a tool: from the response that calls it to the request with its result [s]."""
    result_tokens: Length
    """Length of the result that is appended to the prompt [tokens]."""


class SubAgents(Spec):
    """Sub-agents: the model delegates parts of a turn to agents that work in parallel.

    Each agent has a context of its own. The turn continues with the last responses of all agents.
    """

    share: Fraction = 1.0
    """Fraction of turns that are delegated."""
    agents: Length
    """Number of parallel agents in such a turn."""
    task_tokens: Length
    """Length of an agent's task after the system prompt [tokens]; an agent calls tools as a turn does."""


class Sessions(Spec):
    """Conversations; each request has the whole preceding conversation in its prompt.

    The next request of a session arrives when the last response is complete and the think time has passed, so that a
    slow fleet receives fewer requests per second: the load depends on the latency.
    """

    turns: Length
    """Number of the user's turns."""
    think_s: Duration
    """Think time from the last response to the user's next turn [s]."""
    system_prompt_tokens: WholeNumber = 0
    """Length of the system prompt, equal for all conversations, in addition to `lengths.prompt` [tokens]."""
    tool_calls: ToolCalls | None = None
    """Tool calls of the model; default: none."""
    sub_agents: SubAgents | None = None
    """Sub-agents of the model; default: none."""

    def mean_requests(self) -> float:
        """Return the mean number of requests in a session.

        Notes
        -----
        turns * (r + share of delegated turns * (1 + agents * r)), with r = 1 + share of turns with tools * calls, and
        means of all counts.

        """
        tools, agents = self.tool_calls, self.sub_agents
        of_turn = 1.0 if tools is None else 1.0 + tools.share * mean_of(tools.calls)
        handed_over = 0.0 if agents is None else agents.share * (1.0 + mean_of(agents.agents) * of_turn)
        return mean_of(self.turns) * (of_turn + handed_over)

    def describe(self) -> str:
        """Return a description, as a phrase."""
        text = Message("sessions of turns {count}, think time {describe}", _count(self.turns), self.think_s.describe())
        if self.system_prompt_tokens:
            text += Message(", a system prompt of {system_prompt_tokens} tokens", self.system_prompt_tokens)
        if self.tool_calls is not None:
            text += Message(", tool calls in {share:.0%} of turns", self.tool_calls.share)
        if self.sub_agents is not None:
            text += Message(", sub-agents in {share:.0%} of turns", self.sub_agents.share)
        return text


def _count(law: Length) -> str:
    return law.describe().removesuffix(" tokens")


@lru_cache(maxsize=64)
def mean_of(law: Length) -> float:
    """Return the mean of *law*, with its limits applied."""
    return float(np.mean(law.quantile((np.arange(POINTS) + 0.5) / POINTS)))


@dataclass(slots=True)
class Turn:
    """Request of a session, before its arrival time is known."""

    prompt_tokens: int
    """Length of the prompt, including the preceding conversation [tokens]."""
    output_tokens: int
    after: tuple[int, ...] = ()
    """Positions in the session of the requests whose responses it waits for; empty at the start of the session."""
    delay_s: float = 0.0
    """Time from the last of these responses to the arrival: think time, or run time of a tool [s]."""
    earliest_s: float = 0.0
    """Earliest arrival time: the time recorded in a trace [s]."""
    number: int = 1
    """Position in the session, from 1, as shown in outputs."""
    block_hashes: Sequence[int] = ()
    hash_block_tokens: int = 1
    priority: int = 0


@dataclass(slots=True)
class Session:
    """Requests of one conversation, some of which wait for the responses to others."""

    name: str
    turns: list[Turn]
    """Requests of the session, each after those that it waits for."""
    tenant: str = ""
    service: str = ONLY_SERVICE


MOST_DRAWS = 1 << 20
"""Numbers of each stream reserved for a session."""
AT_ONCE = 16
"""Number of draws made at once, which is as fast as a single draw."""


class Law(Protocol):
    """Distribution of a length or a duration."""

    def quantile(self, u: NDArray[np.float64]) -> NDArray[Any]:
        """Return the values at the cumulative probabilities *u*."""
        ...


class UnitUniform:
    """Uniform distribution between 0 and 1."""

    def quantile(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return *u*."""
        return u


UNIFORM = UnitUniform()


class SessionDraws:
    """Sessions described by a workload, by number. Each purpose has a random stream, each session a section of it."""

    def __init__(self, spec: Sessions, lengths: Lengths, streams: Streams) -> None:
        self._spec, self._lengths, self._streams = spec, lengths, streams
        self._generators: dict[str, tuple[np.random.Generator, int]] = {}
        """Random stream by purpose, with the current position in it."""

    def session(self, number: int) -> Session:
        """Return session *number*, counted from 0."""
        return Session(str(number), _SessionBuilder(self, self._spec, self._lengths, number).turns())

    def uniforms(self, purpose: str, start: int, count: int) -> NDArray[np.float64]:
        """Return numbers *start* to *start + count* of the stream of *purpose*, strictly between 0 and 1."""
        generator, place = self._generators.get(purpose) or (self._streams(f"session {purpose}"), 0)
        if start != place:
            generator.bit_generator.advance(start - place)  # type: ignore[attr-defined]
        self._generators[purpose] = generator, start + count
        return np.maximum(generator.random(count), LEAST)


class _SessionBuilder:
    """Requests of one session, ordered so that each comes after those that it waits for."""

    def __init__(self, draws: SessionDraws, spec: Sessions, lengths: Lengths, number: int) -> None:
        self._draws, self._spec, self._lengths, self._number = draws, spec, lengths, number
        self._ready: dict[str, list[Any]] = {}
        """Next draws by purpose, in reverse order."""
        self._drawn: dict[str, int] = {}
        self._contexts = 0
        self._turns: list[Turn] = []

    def turns(self) -> list[Turn]:
        """Return all requests of the session."""
        spec, agents = self._spec, self._spec.sub_agents
        context = self._context()
        for place in range(self._next("turns", spec.turns)):
            tokens, pause_s = self._next("prompt", self._lengths.prompt), 0.0
            after: tuple[int, ...] = ()
            if place:
                after, pause_s = (len(self._turns) - 1,), self._next("think", spec.think_s)
            if agents is not None and self._next("handed over", UNIFORM) < agents.share:
                delegated = self._add_request(context, tokens, after, pause_s)
                after, pause_s = self._delegate(agents, delegated), 0.0
                tokens = sum(self._turns[last].output_tokens for last in after)
            self._add_with_tools(context, tokens, after, pause_s)
        return self._turns

    def _delegate(self, agents: SubAgents, delegated: int) -> tuple[int, ...]:
        """Append the requests of agents working on request *delegated*; return the positions of their last requests."""
        tasks = [self._next("task", agents.task_tokens) for _ in range(self._next("agents", agents.agents))]
        return tuple(self._add_with_tools(self._context(), task, (delegated,), 0.0) for task in tasks)

    def _add_with_tools(self, context: Context, tokens: int, after: tuple[int, ...], pause_s: float) -> int:
        """Append a request for *tokens* more tokens and those with tool results; return the last one's position."""
        place = self._add_request(context, tokens, after, pause_s)
        tools = self._spec.tool_calls
        if tools is None or self._next("tools", UNIFORM) >= tools.share:
            return place
        for _ in range(self._next("calls", tools.calls)):
            delay_s = self._next("tool", tools.delay_s)
            place = self._add_request(context, self._next("result", tools.result_tokens), (place,), delay_s)
        return place

    def _add_request(self, context: Context, tokens: int, after: tuple[int, ...], delay_s: float) -> int:
        """Append a request that adds *tokens* to *context*; return its position."""
        answer = self._next("output", self._lengths.output)
        prompt, blocks = context.grown(tokens, answer)
        place = len(self._turns)
        self._turns.append(Turn(prompt, answer, after, delay_s, 0.0, place + 1, blocks, HASH_BLOCK_TOKENS))
        return place

    def _context(self) -> Context:
        self._contexts += 1
        return Context(self._number, self._contexts - 1, self._spec.system_prompt_tokens)

    def _next(self, purpose: str, law: Law) -> Any:
        """Return the next draw from *law* for *purpose*: tokens, a count or seconds."""
        ready = self._ready.setdefault(purpose, [])
        if not ready:
            drawn = self._drawn.get(purpose, 0)
            self._drawn[purpose] = drawn + AT_ONCE
            u = self._draws.uniforms(purpose, self._number * MOST_DRAWS + drawn, AT_ONCE)
            ready.extend(reversed(law.quantile(u).tolist()))
        return ready.pop()


def sample(draws: SessionDraws, start: int, count: int) -> Iterator[Turn]:
    """Yield requests *start* to *start* + *count* of all sessions, one session after the other."""
    number = place = 0
    while place < start + count:
        turns = draws.session(number).turns
        yield from turns[max(0, start - place) : start + count - place]
        place += len(turns)
        number += 1


@dataclass(frozen=True, slots=True)
class SessionStart:
    """Session with its start time."""

    at_s: float
    session: Session
    number: int
    """Number of the session, which identifies it in `OfferedSessions.next_of`."""


class OfferedSessions(Protocol):
    """Source of the sessions that a fleet receives."""

    def starts(self) -> Iterator[SessionStart]:
        """Return the sessions whose start does not depend on the fleet, in order of time."""
        ...

    def next_of(self, number: int) -> tuple[float, SessionStart] | None:
        """Return the think time after session *number* [s] and the same user's next session; None without one."""
        ...


class OpenSessions:
    """Sessions that start at given times."""

    def __init__(self, draws: SessionDraws, begins_s: list[float], tenants: list[str] | None) -> None:
        """Initialise the sessions; *tenants* has the tenant of each session, None without tenants."""
        self._draws, self._begins_s, self._tenants = draws, begins_s, tenants

    def starts(self) -> Iterator[SessionStart]:
        """See `OfferedSessions.starts`."""
        return (
            SessionStart(at_s, _session_of(self._draws, i, self._tenants), i) for i, at_s in enumerate(self._begins_s)
        )

    def next_of(self, number: int) -> None:
        """Return None: no user waits for the end of a session."""


class UserSessions:
    """Users with one session at a time: user u has sessions u, u + users, ..., independent of other users."""

    def __init__(self, draws: SessionDraws, loop: ClosedLoop, streams: Streams, tenants: list[str] | None) -> None:
        """Initialise the users; *tenants* has the tenant of each user, None without tenants."""
        self._draws, self._loop, self._streams, self._tenants = draws, loop, streams, tenants

    def starts(self) -> Iterator[SessionStart]:
        """See `OfferedSessions.starts`."""
        loop = self._loop
        first_s = [0.0] * loop.concurrency
        if loop.random:
            first_s = loop.think_times_s(self._streams, "first pauses", 0, loop.concurrency).tolist()
        for at_s, user in sorted(zip(first_s, count(), strict=False)):
            yield SessionStart(at_s, _session_of(self._draws, user, self._tenants), user)

    def next_of(self, number: int) -> tuple[float, SessionStart]:
        """See `OfferedSessions.next_of`."""
        following = number + self._loop.concurrency
        pause_s = float(self._loop.think_times_s(self._streams, "pauses", number, 1)[0])
        return pause_s, SessionStart(0.0, _session_of(self._draws, following, self._tenants), following)


def _session_of(draws: SessionDraws, number: int, tenants: list[str] | None) -> Session:
    """Return session *number*; with fewer *tenants* than sessions, users' tenants repeat in order."""
    session = draws.session(number)
    if tenants:
        session.tenant = tenants[number % len(tenants)]
    return session


class RecordedSessions:
    """Sessions of a trace; a request arrives at its recorded time, but not before the preceding response."""

    def __init__(self, table: RequestTable) -> None:
        self._table = table

    def starts(self) -> Iterator[SessionStart]:
        """See `OfferedSessions.starts`."""
        return (SessionStart(found.turns[0].earliest_s, found, i) for i, found in enumerate(_sessions(self._table)))

    def next_of(self, number: int) -> None:
        """Return None: no user waits for the end of a session."""


def _sessions(table: RequestTable) -> list[Session]:
    """Return the rows of *table* by session, in order of first requests; rows without a session are separate."""
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
