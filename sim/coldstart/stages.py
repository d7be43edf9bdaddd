"""A start as a row of stages: fixed times, and bytes over links that those who start at once share."""

from dataclasses import dataclass
from typing import Literal

Doing = Literal["provisioning", "booting", "loading"]
"""State of the replica meanwhile, as usage.csv shows it."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes that a starting replica fetches."""

    size_bytes: float
    source: str
    """Where they come from; transfers from the same source share what it gives."""
    of_server: bool
    """Whether each server has a source of its own (a local disk); otherwise the fleet has one."""
    source_bytes_per_s: float
    """What the source gives to all who fetch at once."""
    most_bytes_per_s: float
    """What a single replica can take."""

    @property
    def alone_s(self) -> float:
        """Time that it takes while nobody else fetches [s]."""
        return self.size_bytes / min(self.source_bytes_per_s, self.most_bytes_per_s)


@dataclass(frozen=True, slots=True)
class Stage:
    """One part of a start."""

    what: str
    """In words: container image, weights, CUDA graphs."""
    doing: Doing
    seconds: float = 0.0
    """Fixed time [s]; it runs before the transfer, if there is one."""
    transfer: Transfer | None = None

    @property
    def alone_s(self) -> float:
        """Time that it takes while nobody else starts [s]."""
        return self.seconds + (self.transfer.alone_s if self.transfer is not None else 0.0)


def at_once(total_s: float) -> tuple[Stage, ...]:
    """A start of which nothing is known but its length [s]."""
    return (Stage("start", "booting", total_s),)
