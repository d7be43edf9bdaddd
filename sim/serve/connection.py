"""Connections that a slow or silent client cannot keep."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 500
"""Connections at once; a further one takes the place of the one that has been silent for longest."""
LONGEST_HEADERS_S = 10
"""Time in which a connection has to bring the whole headers of its next request [s]."""
LONGEST_UNREAD_S = 30
"""Time that a client may leave an answer unread [s]."""
MOST_HEADER_BYTES = 32_000
LOOKS_S = 1.0


class BoundedConnection(H11Protocol):
    """HTTP connection that is cut off where its client takes too long to ask, or to read the answer."""

    _silent_since: float | None = None
    """Time of the loop at which the connection began to wait for a request [s]; None while a request is answered."""
    _unread_since: float | None = None
    """Time of the loop at which the client stopped reading [s]; None while the client reads."""
    _look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to watch the connection; where there are too many, cut off the one that waits for longest."""
        super().connection_made(transport)
        self._silent_since = self.loop.time()
        silent = [one for one in self.connections if isinstance(one, BoundedConnection) and one._silent_since]
        if len(self.connections) > MOST and silent:
            min(silent, key=lambda one: one._silent_since or 0.0).transport.abort()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the watch."""
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read *data*, and record whether a request is complete."""
        super().data_received(data)
        self._note()

    def pause_writing(self) -> None:
        """Record that the client does not read."""
        self._unread_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Record that the client reads again."""
        self._unread_since = None
        super().resume_writing()

    def _note(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = self.loop.time()

    def _watch(self) -> None:
        self._note()
        now = self.loop.time()
        if self.transport.is_closing() and self._unread_since is None:
            self._unread_since = now
        silent_s = now - (self._silent_since or now)
        unread_s = now - (self._unread_since or now)
        if silent_s > LONGEST_HEADERS_S or unread_s > LONGEST_UNREAD_S:
            self.transport.abort()
        else:
            self._look = self.loop.call_later(LOOKS_S, self._watch)


OPTIONS: dict[str, Any] = {"http": BoundedConnection, "h11_max_incomplete_event_size": MOST_HEADER_BYTES}
"""Arguments of uvicorn.Config."""
