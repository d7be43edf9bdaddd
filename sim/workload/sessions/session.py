"""A session as the fleet plays it."""

from collections.abc import Sequence
from dataclasses import dataclass

from sim.records import ONLY_SERVICE


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
