"""Sessions drawn at random: session i is the same in every fleet and at every load."""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sim.workload.lengths import Lengths
from sim.workload.sessions.context import Context
from sim.workload.sessions.session import Session, Turn
from sim.workload.sessions.spec import Sessions, SubAgents
from sim.workload.shared_prefix import HASH_BLOCK_TOKENS
from sim.workload.streams import LEAST, Streams

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
