"""Settings of pools whose replicas are switched while the fleet runs."""

from collections.abc import Iterator

from sim.scenario.reading.errors import Complaint, Place
from sim.scenario.schema import Pool


def switching_complaints(pool: Pool, place: Place) -> Iterator[Complaint]:
    """Who switches replicas, between which numbers, and how long a start takes."""
    if pool.schedule is not None and pool.autoscaling is not None:
        yield Complaint((*place, "autoscaling"), "stands beside schedule: one of them decides, remove the other")
    elif pool.schedule is not None:
        yield from _schedule(pool, place)
    elif pool.autoscaling is not None:
        yield from _autoscaling(pool, place)
    elif pool.cold_start is not None:
        text = "nothing switches these replicas: add schedule or autoscaling, or remove it"
        yield Complaint((*place, "cold_start"), text)


def _schedule(pool: Pool, place: Place) -> Iterator[Complaint]:
    schedule = pool.schedule
    if schedule is None:
        return
    if schedule.most != pool.replicas:
        text = f"must be {schedule.most}, the most that the schedule wants, not {pool.replicas}"
        yield Complaint((*place, "replicas"), text)
    if schedule.starting_s is None and pool.cold_start is None:
        yield Complaint((*place, "schedule", "starting_s"), "is missing: how long a start takes; or give cold_start")
    if schedule.starting_s is not None and pool.cold_start is not None:
        text = "stands beside cold_start, which says how long a start takes: remove one of them"
        yield Complaint((*place, "schedule", "starting_s"), text)


def _autoscaling(pool: Pool, place: Place) -> Iterator[Complaint]:
    scaler = pool.autoscaling
    if scaler is None:
        return
    if not scaler.min_replicas <= pool.first_replicas <= scaler.max_replicas:
        bounds = f"{scaler.min_replicas} to {scaler.max_replicas}"
        text = f"serve at first, {pool.replicas}: must be within the autoscaler's bounds, {bounds}; or leave it out"
        yield Complaint((*place, "replicas"), text)
    if pool.cold_start is None:
        yield Complaint((*place, "cold_start"), "is missing: how long a start takes, for example {total_s: 60}")
