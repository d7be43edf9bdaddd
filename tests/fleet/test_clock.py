"""Laws of the fleet's clock: one order of events and wake-up calls, and calls that are moved."""

import weakref
from math import inf

from engine_workloads import skip_if_compiled

from sim.fleet.arrivals import OpenSource
from sim.fleet.clock import FleetClock, TimedWakeup
from sim.records import Request


class Sleeper(TimedWakeup):
    """Sleeper that logs its name at each call, and may then move another one's call to now."""

    def __init__(self, clock: FleetClock, name: str, log: list[tuple[str, float]]) -> None:
        super().__init__()
        self._clock, self._name, self._log = clock, name, log
        self.moves: Sleeper | None = None

    def plan(self, at_s: float) -> None:
        self._clock.move_call(self, at_s)

    def wake(self) -> None:
        self._log.append((self._name, self._clock.now))
        if self.moves is not None:
            self.moves.plan(0.0)


def drained(clock: FleetClock) -> None:
    while clock.next_s() < inf:
        clock.step()


def test_what_is_due_at_one_time_happens_in_the_order_of_scheduling() -> None:
    skip_if_compiled()
    log: list[tuple[str, float]] = []
    clock = FleetClock()
    first, second, third = (Sleeper(clock, name, log) for name in "abc")
    first.plan(2.0)
    clock.timeout(2.0).callbacks.append(lambda _: log.append(("event", clock.now)))
    second.plan(2.0)
    third.plan(1.0)
    drained(clock)
    assert log == [("c", 1.0), ("a", 2.0), ("event", 2.0), ("b", 2.0)]


def test_a_moved_call_comes_once_and_after_those_planned_before_it() -> None:
    skip_if_compiled()
    log: list[tuple[str, float]] = []
    clock = FleetClock()
    first, second, third = (Sleeper(clock, name, log) for name in "abc")
    for one in (first, second, third):
        one.plan(3.0)
    first.plan(5.0)
    first.plan(3.0)  # back to the same time: behind the others
    second.moves = third  # to a time that is over: now
    drained(clock)
    assert log == [("b", 3.0), ("a", 3.0), ("c", 3.0)]
    first.plan(9.0)
    assert clock.next_s() == 9.0
    first.plan(inf)
    drained(clock)
    assert len(log) == 3


def test_many_calls_come_in_order_of_time_whatever_is_moved_or_cancelled() -> None:
    skip_if_compiled()
    log: list[tuple[str, float]] = []
    clock, planned = FleetClock(), {}
    sleepers = [Sleeper(clock, str(number), log) for number in range(60)]
    for turn in range(300):
        one = turn * turn % 61 % 60
        at_s = inf if turn % 11 == 3 else float(turn * 7919 % 97)
        sleepers[one].plan(at_s)
        planned[str(one)] = at_s, turn
    drained(clock)
    due = {name: (at_s, turn) for name, (at_s, turn) in planned.items() if at_s < inf}
    assert log == [(name, due[name][0]) for name in sorted(due, key=due.__getitem__)]


def test_a_sleeper_may_move_or_cancel_its_call_while_it_wakes() -> None:
    skip_if_compiled()
    log: list[tuple[str, float]] = []
    clock = FleetClock()
    first, second = (Sleeper(clock, name, log) for name in "ab")
    first.moves = second  # comes now, behind the call that is due
    second.plan(9.0)
    first.plan(1.0)
    clock.step()
    assert clock.next_s() == 1.0
    drained(clock)
    clock.timeout(2.0).callbacks.append(lambda _: (second.plan(7.0), second.plan(inf)))
    drained(clock)
    assert log == [("a", 1.0), ("b", 1.0)]


def test_requests_of_an_open_source_come_together_across_batches_and_stop_with_the_last() -> None:
    clock, sent = FleetClock(), list[tuple[float, list[int]]]()
    times = [[0.5, 0.5], [], [1.0], [1.0, 2.0]]
    batches = iter([[Request(10 * place, at_s, 1, 1) for at_s in part] for place, part in enumerate(times)])
    source = OpenSource(clock, batches, lambda requests, now: sent.append((now, [one.index for one in requests])))
    drained(clock)
    assert sent == [(0.5, [0, 0]), (1.0, [20, 30]), (2.0, [30])]
    assert source.exhausted
    assert len(source.requests) == 5


def test_an_exhausted_source_keeps_its_list_of_requests_alone() -> None:
    class Batch(list[Request]):
        """List that can be referred to weakly."""

    clock, batch = FleetClock(), Batch([Request(0, 0.5, 1, 1), Request(1, 1.0, 1, 1)])
    left = weakref.ref(batch)
    source = OpenSource(clock, iter([batch]), lambda requests, now: None)
    del batch
    drained(clock)
    assert len(source.requests) == 2
    assert left() is None
