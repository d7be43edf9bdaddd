"""Jobs beside an inference service that takes GPUs by the clock: worked by hand, and what no schedule may do."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.jobs.cluster import ClusterJob, JobSchedule, JobState, simulate
from sim.jobs.policies import Backfill, Fifo, Priority, SchedulingPolicy

FIFO, BACKFILL, PRIORITY = Fifo(policy="fifo"), Backfill(policy="backfill"), Priority(policy="priority")
DAY_AND_NIGHT = [(0.0, 0), (10.0, 2), (20.0, 0)]
"""Service that holds 2 of 4 GPUs from time 10 to 20."""


def parts(work: JobState) -> list[tuple[float, float, float, float]]:
    """(start, end, restart, lost) of each run."""
    return [(one.start_s, one.end_s, one.restart_s, one.lost_s) for one in work.segments]


def test_a_day_worked_by_hand() -> None:
    jobs = [
        ClusterJob("early", 0, 2, 14),
        ClusterJob("late", 1, 1, 20, checkpoint_s=4, restart_s=1),
        ClusterJob("next", 2, 1, 9, checkpoint_s=4),
    ]
    early, late, following = simulate(jobs, 4, FIFO, 40, DAY_AND_NIGHT).job_states
    # at 10 no GPU is free: the latest started go until the service has 2, and early keeps its own to the end
    assert parts(early) == [(0, 14, 0, 0)]
    # 9 s done at 10, 8 s saved; from 14 on 1 s of restart and the other 12 s
    assert parts(late) == [(1, 10, 0, 1), (14, 27, 1, 0)]
    assert parts(following) == [(2, 10, 0, 0), (14, 15, 0, 0)]
    assert [work.preemptions for work in (early, late, following)] == [0, 1, 1]


def test_the_service_takes_free_gpus_first_and_a_fall_starts_what_waits() -> None:
    schedule = simulate([ClusterJob("a", 0, 2, 30), ClusterJob("b", 12, 2, 5)], 4, FIFO, 50, DAY_AND_NIGHT)
    assert [parts(work) for work in schedule.job_states] == [[(0, 30, 0, 0)], [(20, 25, 0, 0)]]


def test_by_priority_the_least_urgent_goes_first() -> None:
    jobs = [ClusterJob("least", 0, 2, 30, priority=2), ClusterJob("urgent", 1, 2, 30, priority=0)]
    job_states = simulate(jobs, 4, PRIORITY, 100, DAY_AND_NIGHT).job_states
    assert [work.preemptions for work in job_states] == [1, 0]
    assert [work.preemptions for work in simulate(jobs, 4, FIFO, 100, DAY_AND_NIGHT).job_states] == [0, 1]


def test_of_jobs_that_started_together_those_behind_in_the_queue_go_first() -> None:
    job_states = simulate(
        [ClusterJob("a", 0, 2, 30), ClusterJob("b", 0, 2, 30)], 4, FIFO, 100, DAY_AND_NIGHT
    ).job_states
    assert [work.preemptions for work in job_states] == [0, 1]


def test_a_reservation_counts_what_the_service_takes() -> None:
    jobs = [
        ClusterJob("a", 0, 2, 12),
        ClusterJob("wide", 1, 3, 5),
        ClusterJob("fits", 2, 2, 18),
        ClusterJob("long", 3, 2, 25),
    ]

    def starts(held: list[tuple[float, int]]) -> dict[str, float]:
        return {work.job.name: work.started_s for work in simulate(jobs, 4, BACKFILL, 100, held).job_states}

    # alone: a ends at 12, and whatever runs longer on 2 GPUs would delay wide
    assert starts([]) == {"a": 0, "wide": 12, "fits": 17, "long": 17}
    # beside the service wide fits at 20 only, so fits ends in time
    assert starts(DAY_AND_NIGHT)["fits"] == 2
    assert starts(DAY_AND_NIGHT)["wide"] == 20


def test_what_the_service_never_leaves_is_never_started() -> None:
    job_states = simulate(
        [ClusterJob("all", 0, 4, 1), ClusterJob("three", 0, 3, 1)], 4, FIFO, 50, [(0.0, 2), (10.0, 1)]
    ).job_states
    assert [parts(work) for work in job_states] == [[], [(10, 11, 0, 0)]]


JOBS = st.lists(
    st.builds(
        ClusterJob,
        name=st.just(""),
        arrived_s=st.integers(0, 50),
        gpus=st.integers(1, 8),
        duration_s=st.integers(1, 30),
        priority=st.integers(0, 2),
        walltime_s=st.sampled_from([0, 5, 40]),
        checkpoint_s=st.sampled_from([4, 1000]),
        restart_s=st.integers(0, 3),
    ),
    min_size=1,
    max_size=10,
)
LEVELS = st.lists(st.integers(0, 8), min_size=1, max_size=8)


@pytest.mark.slow
@settings(max_examples=60)
@given(JOBS, LEVELS, st.sampled_from([FIFO, BACKFILL, PRIORITY, Priority(policy="priority", preempt=False)]))
def test_service_and_jobs_never_have_more_gpus_than_there_are(
    jobs: list[ClusterJob], levels: list[int], policy: SchedulingPolicy
) -> None:
    held = [(9.0 * place, gpus) for place, gpus in enumerate(levels)]
    schedule: JobSchedule = simulate(jobs, 8, policy, 90, held)
    times = sorted(
        {at for at, _ in held} | {at for work in schedule.job_states for run in parts(work) for at in run[:2]}
    )
    for at in times:
        serving = [gpus for since, gpus in held if since <= at][-1]
        used = sum(work.job.gpus for work in schedule.job_states for run in parts(work) if run[0] <= at < run[1])
        assert serving + used <= 8
    for work in schedule.job_states:
        useful = sum(one.useful_s for one in work.segments)
        assert useful == work.job.duration_s if work.finished_s <= 90 else useful <= work.job.duration_s
        if work.job.gpus > 8 - min(levels):
            assert not work.segments


@pytest.mark.parametrize("policy", [FIFO, BACKFILL, PRIORITY])
def test_a_service_that_holds_nothing_changes_nothing(policy: SchedulingPolicy) -> None:
    jobs = [ClusterJob("", at % 7, 1 + at % 5, 3 + at, at % 3, checkpoint_s=2) for at in range(20)]
    alone, beside = (simulate(jobs, 8, policy, 200, held).job_states for held in ((), [(0.0, 0), (50.0, 0)]))
    assert [parts(work) for work in alone] == [parts(work) for work in beside]
