"""Arrivals that a server has not read yet: SGLang's receive interval (`managers/scheduler_recv_skipper.py`).

The scheduler looks for new requests before it forms a step: where it is idle, after each step with prompts, and
otherwise every `interval` decode steps. In between a request waits unread, whatever is free.
"""

from sim.engine.sequence import Sequence
from sim.records import Request


class Inbox:
    """Requests between their arrival and the scheduler's next look."""

    def __init__(self, interval: int) -> None:
        self.interval = interval
        """Decode steps from one look to the next."""
        self.unread: list[Sequence] = []
        self._steps = 0
        """Decode steps since the last look, modulo the interval."""

    def __len__(self) -> int:
        return len(self.unread)

    def passed(self, steps: int, prompts: bool) -> None:
        """Counts *steps* more decode steps; a step with *prompts* starts the count anew."""
        self._steps = 0 if prompts else (self._steps + steps) % self.interval

    def read(self, idle: bool) -> list[Sequence]:
        """What the scheduler sees now that it forms a step, or where it is *idle*."""
        if idle:
            self._steps = 0
        if self._steps:
            return []
        seen, self.unread = self.unread, []
        return seen

    def steps_until_read(self, steps: int) -> int:
        """Decode steps, at least *steps*, after which the scheduler looks again."""
        return steps + -(self._steps + steps) % self.interval

    def has(self, asked: int) -> bool:
        """Whether request number *asked* is here."""
        return any(one.request.index == asked for one in self.unread)

    def remove(self, request: Request) -> bool:
        """Takes *request* out; whether it was here."""
        found = next((sequence for sequence in self.unread if sequence.request is request), None)
        if found is None:
            return False
        self.unread.remove(found)
        return True
