"""Settings of pools whose replicas are switched while the fleet runs."""

from collections.abc import Iterator

from sim.scenario.reading.errors import Complaint, Place
from sim.scenario.schema import Pool


def switching_complaints(pool: Pool, place: Place) -> Iterator[Complaint]:
    """A schedule and the number of replicas, and how long a start takes."""
    schedule = pool.schedule
    if schedule is None:
        if pool.cold_start is not None:
            yield Complaint((*place, "cold_start"), "nothing switches these replicas: add a schedule, or remove it")
        return
    if schedule.most != pool.replicas:
        text = f"must be {schedule.most}, the most that the schedule wants, not {pool.replicas}"
        yield Complaint((*place, "replicas"), text)
    if schedule.starting_s is None and pool.cold_start is None:
        yield Complaint((*place, "schedule", "starting_s"), "is missing: how long a start takes; or give cold_start")
    if schedule.starting_s is not None and pool.cold_start is not None:
        text = "stands beside cold_start, which says how long a start takes: remove one of them"
        yield Complaint((*place, "schedule", "starting_s"), text)
