"""Checkpoints and failures: Daly's formula against drawn failures, its optimum, and what never fails."""

from math import inf, sqrt
from random import Random

import pytest

from sim.training.run import Interruptions, makespan, optimal_interval_s

HOUR = 3600.0
STOPS = Interruptions(mtbf_s=8 * HOUR, save_s=300.0, restart_s=900.0)


def drawn_s(training_s: float, interval_s: float, stops: Interruptions, random: Random) -> float:
    """Wall-clock time of one job, failure by failure."""
    now, saved, failure = 0.0, 0.0, random.expovariate(1 / stops.mtbf_s)
    while saved < training_s:
        done = now + interval_s + stops.save_s
        if done <= failure:
            now, saved = done, saved + interval_s
            continue
        while True:
            now, failure = failure, failure + random.expovariate(1 / stops.mtbf_s)
            if now + stops.restart_s <= failure:
                now += stops.restart_s
                break
    return now


def test_the_expected_time_is_that_of_drawn_failures() -> None:
    random, training_s = Random(1), 40 * HOUR
    times = [drawn_s(training_s, HOUR, STOPS, random) for _ in range(1500)]
    mean = sum(times) / len(times)
    half = 3 * sqrt(sum((one - mean) ** 2 for one in times)) / len(times)
    assert abs(makespan(training_s, HOUR, STOPS).total_s - mean) < half < 0.01 * mean


def test_the_parts_are_the_whole_and_each_failure_restarts() -> None:
    time = makespan(40 * HOUR, HOUR, STOPS)
    assert time.training_s == 40 * HOUR
    assert time.saving_s == 40 * 300
    assert time.total_s == pytest.approx(time.failures * STOPS.mtbf_s)
    assert 0.97 * 900 < time.restarting_s / time.failures < 900  # a few are cut short by the next failure
    assert HOUR / 2 < time.lost_s / time.failures < HOUR  # about half an interval, and what restarts lose


def test_no_other_interval_is_better_than_the_optimal_one() -> None:
    best = optimal_interval_s(300.0, STOPS.mtbf_s)
    assert best == pytest.approx(sqrt(2 * 300 * STOPS.mtbf_s), rel=0.1)  # Young
    least = makespan(40 * HOUR, best, STOPS).total_s
    assert all(makespan(40 * HOUR, factor * best, STOPS).total_s > least for factor in (0.8, 0.9, 1.1, 1.25))


def test_without_failures_only_saves_take_time() -> None:
    assert makespan(1000.0, 100.0, Interruptions(save_s=5.0)).total_s == 1050
    assert makespan(1000.0, optimal_interval_s(5.0, inf), Interruptions(save_s=5.0)).total_s == 1005
    assert makespan(1000.0, 1000.0, Interruptions()).total_s == 1000


def test_a_job_that_never_ends_takes_for_ever() -> None:
    assert makespan(1e9, 1e9, Interruptions(mtbf_s=HOUR)).total_s == inf
