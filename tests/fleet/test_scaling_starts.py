"""Starts of replicas: stages follow each other, links are shared, and every state's time has its phase."""

from math import fsum

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from sim.coldstart import Transfer
from sim.cost.metering import OF_STATE, PHASES, gpu_s_by_phase, seconds_by_phase, wall_j_by_phase
from sim.fleet.replica import LIFE, State
from sim.fleet.scaling import Links
from sim.records import Interval


def arrivals(transfers: list[tuple[float, Transfer, int]]) -> list[float]:
    """When each of (begins [s], transfer, server) has its last byte."""
    env = simpy.Environment()
    links, ended = Links(env), [-1.0] * len(transfers)

    def begin(place: int, transfer: Transfer, server: int) -> None:
        links.send(transfer, server, lambda: ended.__setitem__(place, env.now))

    for place, (at_s, transfer, server) in enumerate(transfers):
        env.timeout(at_s).callbacks.append(lambda _, p=place, t=transfer, s=server: begin(p, t, s))
    env.run()
    return ended


def store(size_bytes: float, most: float = 1e9, of_server: bool = False) -> Transfer:
    return Transfer(size_bytes, "store", of_server, 1e9, most)


def test_those_who_load_at_once_share_the_link() -> None:
    # alone 10 s; the second comes at 4 s: 6 GB + 10 GB are left for 1 GB/s, the first ends when both have had 6 GB
    assert arrivals([(0, store(10e9), 0), (4, store(10e9), 1)]) == pytest.approx([16.0, 20.0])
    # who can take a quarter only leaves the rest to the other
    assert arrivals([(0, store(5e9, most=0.25e9), 0), (0, store(15e9), 1)]) == pytest.approx([20.0, 20.0])
    # each server has its own disk
    assert arrivals([(0, store(10e9, of_server=True), server) for server in (0, 1)]) == pytest.approx([10.0, 10.0])
    assert arrivals([(0, store(10e9, of_server=True), 0)] * 2) == pytest.approx([20.0, 20.0])


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20), st.sampled_from([0.1, 0.5, 1.0])), max_size=8))
def test_a_shared_link_gives_no_more_than_it_has(
    wanted: list[tuple[int, int, float]],
) -> None:
    transfers = [(at, store(size * 1e9, most * 1e9), 0) for at, size, most in wanted]
    ended = arrivals(transfers)
    for end_s, (at_s, transfer, _) in zip(ended, transfers, strict=True):
        assert end_s >= at_s + transfer.alone_s - 1e-6
    if wanted:
        assert max(ended) >= min(at for at, *_ in wanted) + sum(size for _, size, _ in wanted) - 1e-6


def test_a_start_that_is_called_off_leaves_its_part_to_the_others() -> None:
    env = simpy.Environment()
    links, ended = Links(env), []
    first = links.send(store(10e9), 0, lambda: ended.append(("first", env.now)))
    links.send(store(10e9), 1, lambda: ended.append(("second", env.now)))
    env.timeout(4).callbacks.append(lambda _: first.link.stop(first))
    env.run()
    assert ended == [("second", pytest.approx(12.0))]


@pytest.mark.parametrize("state", State)
def test_time_and_energy_of_every_state_have_one_phase(state: State) -> None:
    one = Interval("p", "", 0, state.value, 0.0, 10.0, 40.0, server_energy_j=500.0, idle_energy_j=500.0)
    phase = OF_STATE.get(state.value, "idle")
    for split, whole in ((seconds_by_phase(one), 10.0), (gpu_s_by_phase(one), 40.0), (wall_j_by_phase(one), 500.0)):
        assert fsum(split) == whole
        assert getattr(split, phase) == whole
    assert split._fields == tuple(name.replace(" ", "_") for name in PHASES)
    assert (phase == "idle") == (LIFE[state].routed or state in (State.OFF, State.DRAINING))
