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
        self._waiting: dict[tuple[int, str], tuple[list[int], Callable[[], None]]] = {}
        """Engine and who takes it out -> all engines that have to be out, and what follows then."""
        self._kept: set[tuple[int, str]] = set()
        """First engines of replicas, and who keeps them out."""

    def withdraw(
        self,
        by: str,
        position: int,
        places: list[int],
        gone: Callable[[], None],
        within_s: float = inf,
        migrate: bool = False,
    ) -> None:
        """The replicas at *places* of a pool drain; *gone* is called when all are out, at the latest after *within_s*.
        Where they *migrate*, others go on with what they have.

        Nobody starts them until everyone has given them back who took them out, each under a name (*by*).
        """
        replicas = [self._scale.replicas[position][place] for place in places]
        engines = [engine for replica in replicas for engine in replica]
        self._scale.barred.update(replica[0] for replica in replicas)
        self._kept.update((replica[0], by) for replica in replicas)
        self._waiting |= {(engine, by): (engines, gone) for engine in engines}
        for engine in engines:
            if self._lives.states[engine] not in BROKEN:
                self._scale.stop([engine])
        self._scale.replace(position)
        for engine in engines if migrate else ():
            if self._lives.states[engine] is State.DRAINING:
                self._losses.empty(engine, self._env.now)
        if within_s < inf:
            self._env.timeout(within_s).callbacks.append(lambda _: self._cut(engines, by))
        self._look(engines[0], by)

    def give_back(self, by: str, position: int, places: list[int]) -> None:
        """The replicas at *places* may start again, if nobody else keeps them out: those that are broken when they have
        been repaired, those that still answer what they have when they are out.
        """
        for place in places:
            replica = self._scale.replicas[position][place]
            if (replica[0], by) in self._waiting:
                engines = self._waiting[replica[0], by][0]
                later = partial(self.give_back, by, position, [place])
                self._waiting |= {(engine, by): (engines, later) for engine in engines}
                continue
            self._kept.discard((replica[0], by))
            if any(engine == replica[0] for engine, _ in self._kept):
                continue
            self._scale.barred.discard(replica[0])
            if all(self._lives.states[engine] is State.OFF for engine in replica):
                self._scale.is_back(position, replica)

    def moved(self, engine: int, following: State) -> None:
        """*engine* goes to the state *following*."""
        if following in (*OUT, State.RESERVE):
            for one, by in self._waiting:
                if one == engine:
                    # others of the same moment, and what follows from this move, come first
                    self._env.timeout(0).callbacks.append(partial(self._look_later, engine, by))

    def _look_later(self, engine: int, by: str, event: simpy.Event) -> None:
        self._look(engine, by)

    def _look(self, engine: int, by: str) -> None:
        """Whether all are out whom the same one takes out with *engine*."""
        engines, gone = self._waiting.get((engine, by), ([], None))
        # a replica that would sleep is switched off
        self._lives.move([one for one in engines if self._lives.states[one] is State.RESERVE], State.OFF)
        if gone is not None and all(self._lives.states[one] in OUT for one in engines):
            for one in engines:
                del self._waiting[one, by]
            gone()

    def _cut(self, engines: list[int], by: str) -> None:
        """The time is up: what has not been answered is lost, and known to be."""
        now, lost = self._env.now, []
        for engine in engines:
            # it may have been back meanwhile, and go for the next time
            waits = self._waiting.get((engine, by), (None,))[0] is engines
            if waits and self._lives.states[engine] is State.DRAINING:
                self._losses.strike(engine, now)
                lost += self._losses.notice(engine, now)
                if self._lives.states[engine] is State.DRAINING:
                    self._lives.move([engine], State.OFF)
        self._losses.send_elsewhere(lost, now)
