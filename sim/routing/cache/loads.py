"""What a router knows of its replicas: which are open, and what it has sent to them."""

from collections.abc import Iterable

from sim.records import Request


class Loads:
    """Outstanding requests of each replica, and the tokens of their prompts: the KV that a router can count, since
    nobody knows how long answers become.

    A replica that opens again still has requests of before; they count as requests, not as tokens.
    """

    def __init__(self, replicas: int) -> None:
        self.open = dict.fromkeys(range(replicas))
        """Open replicas, in order."""
        self.requests = [0] * replicas
        self.kv_tokens = [0] * replicas
        self._counted: list[set[Request]] = [set() for _ in range(replicas)]

    def least(self, among: Iterable[int] | None = None) -> int:
        """The open replica with the fewest requests, of *among* where given; -1 if there is none."""
        return min(self.open if among is None else among, key=self.requests.__getitem__, default=-1)

    def joined(self, replica: int, request: Request) -> None:
        """One more request at *replica*."""
        self.requests[replica] += 1
        self.kv_tokens[replica] += request.prompt_tokens
        self._counted[replica].add(request)

    def left(self, replica: int, request: Request) -> None:
        """One request fewer at *replica*."""
        self.requests[replica] -= 1
        if request in self._counted[replica]:
            self._counted[replica].remove(request)
            self.kv_tokens[replica] -= request.prompt_tokens

    def opened(self, replica: int, outstanding: int) -> None:
        """*replica* takes new requests; it still has *outstanding* old ones."""
        self.open = dict.fromkeys(sorted([*self.open, replica]))
        self.requests[replica], self.kv_tokens[replica] = outstanding, 0

    def closed(self, replica: int) -> None:
        """*replica* takes no new requests."""
        del self.open[replica]
        self._counted[replica].clear()
