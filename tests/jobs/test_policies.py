"""Schedules: worked by hand, against queueing theory, and what no policy may do."""

from heapq import heappop, heappush
from math import factorial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.jobs.cluster import ClusterJob, JobSchedule, simulate
from sim.jobs.policies import Backfill, Fifo, Priority, SchedulingPolicy

FIFO, BACKFILL, PRIORITY = Fifo(policy="fifo"), Backfill(policy="backfill"), Priority(policy="priority")
POLICIES = (FIFO, BACKFILL, PRIORITY, Priority(policy="priority", preempt=False))

FOUR = [ClusterJob("a", 0, 4, 10), ClusterJob("b", 1, 8, 5), ClusterJob("c", 2, 4, 8), ClusterJob("d", 3, 4, 20)]


def starts(schedule: JobSchedule) -> dict[str, float]:
    return {work.job.name: work.started_s for work in schedule.job_states}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        # b needs all 8 GPUs and waits for a; nobody overtakes it
        (FIFO, {"a": 0, "b": 10, "c": 15, "d": 15}),
        # c ends when a does, so it does not delay b; d would
        (BACKFILL, {"a": 0, "b": 10, "c": 2, "d": 15}),
    ],
)
def test_a_schedule_worked_by_hand(policy: SchedulingPolicy, expected: dict[str, float]) -> None:
    schedule = simulate(FOUR, 8, policy)
    assert starts(schedule) == expected
    assert schedule.end_s == 35


def test_backfilling_may_use_what_the_reservation_leaves_over() -> None:
    jobs = [
        ClusterJob("a", 0, 4, 10),
        ClusterJob("b", 1, 6, 5),
        ClusterJob("long", 2, 2, 100),
        ClusterJob("wide", 3, 3, 100),
    ]
    # b gets 6 of 8 GPUs at 10: two are spare however long their job lasts, three are not there
    assert starts(simulate(jobs, 8, BACKFILL)) == {"a": 0, "b": 10, "long": 2, "wide": 15}


def test_backfilling_plans_with_estimates() -> None:
    jobs = [ClusterJob("a", 0, 4, 10, walltime_s=30), ClusterJob("b", 1, 8, 5), ClusterJob("c", 2, 4, 20)]
    # a is thought to last until 30, so c may start; a ends at 10, and b waits for c until 22
    assert starts(simulate(jobs, 8, BACKFILL)) == {"a": 0, "b": 22, "c": 2}


def test_preempted_work_continues_from_its_last_checkpoint() -> None:
    jobs = [
        ClusterJob("low", 0, 8, 100, priority=1, checkpoint_s=15, restart_s=5),
        ClusterJob("high", 40, 2, 10, priority=0),
    ]
    low, high = simulate(jobs, 8, PRIORITY).job_states
    assert (high.started_s, high.finished_s) == (40, 50)
    # 30 of 40 s are saved; from 50 on 5 s of restart and the other 70 s
    assert low.finished_s == 125
    assert low.preemptions == 1
    assert [(one.useful_s, one.lost_s, one.restart_s) for one in low.segments] == [(30, 10, 0), (70, 0, 5)]


def test_without_preemption_the_urgent_job_only_goes_first() -> None:
    jobs = [
        ClusterJob("low", 0, 8, 100, priority=1),
        ClusterJob("next", 1, 8, 10, priority=1),
        ClusterJob("high", 2, 8, 10, priority=0),
    ]
    assert starts(simulate(jobs, 8, POLICIES[3])) == {"low": 0, "next": 110, "high": 100}


def test_at_the_horizon_everything_stops() -> None:
    schedule = simulate(FOUR, 8, FIFO, until_s=20)
    assert schedule.end_s == 20
    assert [len(work.segments) for work in schedule.job_states] == [1, 1, 1, 1]
    assert schedule.job_states[3].segments[0].end_s == 20
    assert schedule.job_states[3].preemptions == 0


def test_the_horizon_takes_no_work_away() -> None:
    """Unsaved work counts at the horizon; only what a preemption undid is lost."""
    jobs = [
        ClusterJob("low", 0, 8, 100, priority=1, checkpoint_s=30, restart_s=5),
        ClusterJob("high", 40, 8, 10, priority=0),
    ]
    [low, high] = simulate(jobs, 8, POLICIES[2], until_s=60).job_states
    assert [(one.useful_s, one.lost_s, one.restart_s) for one in low.segments] == [(30, 10, 0), (5, 0, 5)]
    assert (low.done_s, high.finished_s) == (35, 50)


def test_what_is_larger_than_the_cluster_never_starts_and_blocks_nobody() -> None:
    schedule = simulate([ClusterJob("huge", 0, 9, 1), ClusterJob("a", 0, 8, 1)], 8, FIFO)
    assert schedule.job_states[0].segments == []
    assert schedule.job_states[1].finished_s == 1


def erlang_c(servers: int, load: float) -> float:
    """Probability that an arrival of M/M/c has to wait."""
    busy = load**servers / factorial(servers) * servers / (servers - load)
    return busy / (sum(load**k / factorial(k) for k in range(servers)) + busy)


def poisson_jobs(number: int, rate: float, seed: int) -> list[ClusterJob]:
    random, now, jobs = Random(seed), 0.0, []
    for _ in range(number):
        now += random.expovariate(rate)
        jobs.append(ClusterJob("", now, 1, random.expovariate(1.0)))
    return jobs


def test_each_start_is_that_of_kiefer_and_wolfowitz() -> None:
    jobs, free = poisson_jobs(2000, 3.2, seed=5), [0.0] * 4
    for work in simulate(jobs, 4, FIFO).job_states:
        assert work.started_s == max(work.job.arrived_s, heappop(free))
        heappush(free, work.finished_s)


@pytest.mark.slow
def test_waiting_is_that_of_m_m_c() -> None:
    job_states = simulate(poisson_jobs(20_000, 2.0, seed=104), 4, FIFO).job_states
    waits = [work.started_s - work.job.arrived_s for work in job_states]
    assert sum(wait > 0 for wait in waits) / len(waits) == pytest.approx(erlang_c(4, 2.0), rel=0.05)
    assert sum(waits) / len(waits) == pytest.approx(erlang_c(4, 2.0) / (4 - 2.0), rel=0.1)


JOBS = st.lists(
    st.builds(
        ClusterJob,
        name=st.just(""),
        arrived_s=st.integers(0, 50),
        gpus=st.integers(1, 8),
        duration_s=st.integers(1, 30),
        priority=st.integers(0, 2),
        checkpoint_s=st.sampled_from([4, 7, 1000]),
        restart_s=st.integers(0, 3),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=60)
@given(JOBS, st.sampled_from(POLICIES))
def test_no_work_is_lost_or_invented_and_nobody_shares_a_gpu(jobs: list[ClusterJob], policy: SchedulingPolicy) -> None:
    job_states = simulate(jobs, 8, policy).job_states
    changes: dict[float, int] = {}
    for work in job_states:
        assert sum(one.useful_s for one in work.segments) == work.job.duration_s
        assert work.started_s >= work.job.arrived_s
        assert sum(one.restart_s > 0 for one in work.segments) <= work.preemptions
        for one in work.segments:
            changes[one.start_s] = changes.get(one.start_s, 0) + work.job.gpus
            changes[one.end_s] = changes.get(one.end_s, 0) - work.job.gpus
    used = 0
    for at in sorted(changes):
        used += changes[at]
        assert 0 <= used <= 8


@pytest.mark.slow
@settings(max_examples=60)
@given(JOBS)
def test_backfilling_never_delays_the_first_that_waits(jobs: list[ClusterJob]) -> None:
    by_fifo, filled = (simulate(jobs, 8, policy).job_states for policy in (FIFO, BACKFILL))
    first = next((i for i, work in enumerate(by_fifo) if work.started_s > work.job.arrived_s), None)
    if first is not None:
        assert filled[first].started_s <= by_fifo[first].started_s
