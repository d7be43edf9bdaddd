"""Conversations and agents: requests that follow from the answers to earlier ones."""

from functools import lru_cache

import numpy as np

from sim.spec import Fraction, Spec, WholeNumber
from sim.workload.lengths import Length
from sim.workload.sessions.durations import Duration

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
