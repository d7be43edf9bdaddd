"""Replicas that are taken out on notice: they drain, and are gone when they have answered or when the time is up."""

from collections.abc import Callable
from functools import partial
from math import inf

import simpy

from sim.fleet.failing.losses import Losses
from sim.fleet.lifecycle import Lives, State
from sim.fleet.scaling.scale import Scale

OUT = (State.OFF, State.REPAIRING)
BROKEN = (State.FAILED, State.REPAIRING)


class Withdrawals:
    """Takes replicas out of a fleet, for as long as somebody says."""

    def __init__(self, env: simpy.Environment, lives: Lives, scale: Scale, losses: Losses) -> None:
        self._env, self._lives, self._scale, self._losses = env, lives, scale, losses
        self._waiting: dict[int, tuple[list[int], Callable[[], None]]] = {}
        """Engine -> all engines that have to be out, and what follows then."""

    def withdraw(
        self, position: int, places: list[int], gone: Callable[[], None], within_s: float = inf, migrate: bool = False
    ) -> None:
        """The replicas at *places* of a pool drain; *gone* is called when all are out, at the latest after *within_s*.
        Where they *migrate*, others go on with what they have.

        Nobody starts them until `give_back`.
        """
        replicas = [self._scale.replicas[position][place] for place in places]
        engines = [engine for replica in replicas for engine in replica]
        self._scale.barred.update(replica[0] for replica in replicas)
        self._waiting |= dict.fromkeys(engines, (engines, gone))
        for engine in engines:
            if self._lives.states[engine] not in BROKEN:
                self._scale.stop([engine])
        self._scale.replace(position)
        for engine in engines if migrate else ():
            if self._lives.states[engine] is State.DRAINING:
                self._losses.empty(engine, self._env.now)
        if within_s < inf:
            self._env.timeout(within_s).callbacks.append(lambda _: self._cut(engines))
        self._look(engines[0])

    def give_back(self, position: int, places: list[int]) -> None:
        """The replicas at *places* may start again: those that are broken when they have been repaired, those that
        still answer what they have when they are out.
        """
        for place in places:
            replica = self._scale.replicas[position][place]
            if replica[0] in self._waiting:
                engines = self._waiting[replica[0]][0]
                self._waiting |= dict.fromkeys(engines, (engines, partial(self.give_back, position, [place])))
                continue
            self._scale.barred.discard(replica[0])
            if all(self._lives.states[engine] is State.OFF for engine in replica):
                self._scale.is_back(position, replica)

    def moved(self, engine: int, following: State) -> None:
        """*engine* goes to the state *following*."""
        if following in (*OUT, State.RESERVE) and engine in self._waiting:
            # others of the same moment, and what follows from this move, come first
            self._env.timeout(0).callbacks.append(lambda _: self._look(engine))

    def _look(self, engine: int) -> None:
        """Whether all who go out with *engine* are."""
        engines, gone = self._waiting.get(engine, ([], None))
        # a replica that would sleep is switched off
        self._lives.move([one for one in engines if self._lives.states[one] is State.RESERVE], State.OFF)
        if gone is not None and all(self._lives.states[one] in OUT for one in engines):
            for one in engines:
                del self._waiting[one]
            gone()

    def _cut(self, engines: list[int]) -> None:
        """The time is up: what has not been answered is lost, and known to be."""
        now, lost = self._env.now, []
        for engine in engines:
            # it may have been back meanwhile, and go for the next time
            waits = self._waiting.get(engine, (None,))[0] is engines
            if waits and self._lives.states[engine] is State.DRAINING:
                self._losses.strike(engine, now)
                lost += self._losses.notice(engine, now)
                if self._lives.states[engine] is State.DRAINING:
                    self._lives.move([engine], State.OFF)
        self._losses.send_elsewhere(lost, now)
