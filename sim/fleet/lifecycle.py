"""A replica's life: the states it can be in, what each means, and which may follow.

Whoever switches replicas (a schedule, an autoscaler, a failure) moves them through `Lives`; routing, metering
and rent only read the table.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """What a replica is doing, as usage.csv shows it."""

    OFF = "off"
    PROVISIONING = "provisioning"
    BOOTING = "booting"
    LOADING = "loading"
    SERVING = "serving"
    DRAINING = "draining"
    FAILED = "failed"
    REPAIRING = "repairing"
    RESERVE = "reserve"


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a state means to the rest of the fleet."""

    then: frozenset[State]
    """States that may follow."""
    routed: bool = False
    """The router may send it new requests."""
    powered: bool = False
    """It draws power: idle power at least."""
    rented: bool = False
    """A landlord who bills by the time switched on counts this time."""


def _then(*states: State) -> frozenset[State]:
    return frozenset(states)


LIFE: dict[State, Meaning] = {
    # switched off, or given back
    State.OFF: Meaning(_then(State.PROVISIONING, State.BOOTING, State.REPAIRING)),
    # asked for and not there yet: clouds bill from the start of the machine
    State.PROVISIONING: Meaning(_then(State.BOOTING, State.OFF)),
    # machine, container and engine start, and the engine warms up behind its weights; a start given as one time stays
    # here to its end
    State.BOOTING: Meaning(
        _then(State.LOADING, State.SERVING, State.RESERVE, State.FAILED, State.OFF), powered=True, rented=True
    ),
    # weights on their way into GPU memory
    State.LOADING: Meaning(
        _then(State.BOOTING, State.SERVING, State.RESERVE, State.FAILED, State.OFF), powered=True, rented=True
    ),
    State.SERVING: Meaning(
        _then(State.DRAINING, State.RESERVE, State.FAILED, State.OFF), routed=True, powered=True, rented=True
    ),
    # answers what it has; it can be taken back before it is off
    State.DRAINING: Meaning(
        _then(State.SERVING, State.RESERVE, State.FAILED, State.OFF), powered=True, rented=True
    ),
    # stands still with the power on until somebody notices: a router that does not know goes on sending requests
    State.FAILED: Meaning(
        _then(State.REPAIRING, State.PROVISIONING, State.BOOTING, State.OFF), powered=True, rented=True
    ),
    # in the workshop, or exchanged by the landlord
    State.REPAIRING: Meaning(_then(State.PROVISIONING, State.BOOTING, State.OFF)),
    # a spare, or asleep: the machine is on, and serving is a shorter start away
    State.RESERVE: Meaning(
        _then(State.BOOTING, State.LOADING, State.SERVING, State.FAILED, State.OFF), powered=True, rented=True
    ),
}  # fmt: skip


WITHOUT_MEMORY = frozenset({State.OFF, State.PROVISIONING, State.REPAIRING})
"""States that a replica leaves with empty caches."""


class IllegalMove(ValueError):
    """A replica was to go from one state to another that cannot follow it."""


class Lives:
    """The states of all replicas of a fleet, by index."""

    def __init__(
        self, states: list[State], before_move: Callable[[int, State, State], None], opened: Callable[[], None]
    ) -> None:
        """*before_move* gets a replica, its state and the next one while it still is in the former; *opened* is called
        when replicas take requests that did not before.
        """
        self.states = states
        self.moves = [0] * len(states)
        """How often each has moved: a start that was called off must not end in serving."""
        self._before_move = before_move
        self._opened = opened

    def move(self, replicas: Iterable[int], state: State) -> None:
        """Takes *replicas*, which belong together, from their states to *state*. Who is in it already stays.

        Raises `IllegalMove` where *state* cannot follow.
        """
        opened = False
        for replica in replicas:
            before = self.states[replica]
            if before is state:
                continue
            if state not in LIFE[before].then:
                raise IllegalMove(f"replica {replica} is {before} and cannot be {state} next")
            self._before_move(replica, before, state)
            self.states[replica] = state
            self.moves[replica] += 1
            opened |= LIFE[state].routed
        if opened:
            self._opened()
