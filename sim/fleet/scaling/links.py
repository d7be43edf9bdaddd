"""Links that replicas share while they start: each transfer has its part of what the source gives."""

from collections.abc import Callable
from math import inf

import simpy

from sim.coldstart import Transfer

Done = Callable[[], None]


class Ticket:
    """One transfer under way."""

    __slots__ = ("done", "left_bytes", "link", "most_bytes_per_s", "rate_bytes_per_s")

    def __init__(self, link: "SharedLink", transfer: Transfer, done: Done) -> None:
        self.link = link
        self.left_bytes = transfer.size_bytes
        self.most_bytes_per_s = transfer.most_bytes_per_s
        self.rate_bytes_per_s = 0.0
        self.done = done


class SharedLink:
    """A source that serves all transfers at once. Each has an equal part; what a slow taker leaves goes to the others
    (max-min fairness).
    """

    def __init__(self, env: simpy.Environment, bytes_per_s: float) -> None:
        self._env = env
        self._bytes_per_s = bytes_per_s
        self._under_way: list[Ticket] = []
        self._since_s = 0.0
        self._due: simpy.Event | None = None

    def send(self, transfer: Transfer, done: Done) -> Ticket:
        """Begins *transfer*; *done* is called when its last byte is there."""
        self._settle()
        ticket = Ticket(self, transfer, done)
        self._under_way.append(ticket)
        self._share()
        return ticket

    def stop(self, ticket: Ticket) -> None:
        """Gives up a transfer; the others have its part."""
        if ticket in self._under_way:
            self._settle()
            self._under_way.remove(ticket)
            self._share()

    def _settle(self) -> None:
        """Counts what has come since the rates were set."""
        elapsed_s = self._env.now - self._since_s
        for ticket in self._under_way:
            ticket.left_bytes -= ticket.rate_bytes_per_s * elapsed_s
        self._since_s = self._env.now

    def _share(self) -> None:
        """Sets the rates and arms the next end."""
        rest_bytes_per_s, takers = self._bytes_per_s, len(self._under_way)
        for ticket in sorted(self._under_way, key=lambda one: one.most_bytes_per_s):
            ticket.rate_bytes_per_s = min(ticket.most_bytes_per_s, rest_bytes_per_s / takers)
            rest_bytes_per_s -= ticket.rate_bytes_per_s
            takers -= 1
        self._due = None
        next_s = min((max(0.0, one.left_bytes) / one.rate_bytes_per_s for one in self._under_way), default=inf)
        if next_s < inf:
            self._due = self._env.timeout(next_s)
            self._due.callbacks.append(self._end)

    def _end(self, event: simpy.Event) -> None:
        if event is not self._due:
            return
        # the one that is due is the one with the least time left; rounding may leave a part of a byte
        last = min(self._under_way, key=lambda one: one.left_bytes / one.rate_bytes_per_s)
        self._settle()
        least_s = max(0.0, last.left_bytes / last.rate_bytes_per_s)
        ended = [one for one in self._under_way if one.left_bytes / one.rate_bytes_per_s <= least_s + 1e-9]
        self._under_way = [one for one in self._under_way if one not in ended]
        self._share()
        for ticket in ended:
            ticket.done()


class Links:
    """The shared links of a fleet, each made when it is first used."""

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._links: dict[tuple[str, int], SharedLink] = {}

    def send(self, transfer: Transfer, server: int, done: Done) -> Ticket:
        """Begins *transfer* to a replica that stands in *server*."""
        key = (transfer.source, server if transfer.of_server else -1)
        link = self._links.get(key)
        if link is None:
            self._links[key] = link = SharedLink(self._env, transfer.source_bytes_per_s)
        return link.send(transfer, done)
