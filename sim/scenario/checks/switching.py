"""Settings of pools whose replicas are switched, or break down, while the fleet runs."""

from collections.abc import Iterator

from sim.batching.sharing import Swapped
from sim.catalogue.catalog import Catalog, UnknownId
from sim.coldstart import PEER, StartUnknown, start_of
from sim.failures import COMPONENTS, OF_SERVERS
from sim.scenario.experiment import Experiment
from sim.scenario.reading.errors import Complaint, Place, did_you_mean
from sim.scenario.reading.ids import unknown_ids
from sim.scenario.reading.layers import value_at
from sim.scenario.resolving.bind import BoundPool
from sim.scenario.resolving.life.starting import described_start, loaded, start_figures
from sim.scenario.schema import Fleet, Pool


def switching_complaints(bound: BoundPool, place: Place, catalog: Catalog) -> Iterator[Complaint]:
    """Who switches replicas, between which numbers, how long a start takes, and what fails."""
    pool = bound.spec
    yield from _failure_complaints(pool, place, catalog)
    yield from _start(bound, (*place, "cold_start"), catalog)
    if pool.schedule is not None and pool.autoscaling is not None:
        yield Complaint((*place, "autoscaling"), "stands beside schedule: one of them decides, remove the other")
    elif pool.schedule is not None:
        yield from _schedule(pool, place)
    elif pool.autoscaling is not None:
        yield from _autoscaling(pool, place)


def _start(bound: BoundPool, place: Place, catalog: Catalog) -> Iterator[Complaint]:
    """Parts of a start that are not known."""
    spec, figures = described_start(bound.spec), start_figures(catalog)
    if spec is None:
        return
    known = [*figures.weights, PEER]
    if spec.weights_from not in known:
        text = f"unknown source of weights {spec.weights_from!r}{did_you_mean(spec.weights_from, known)}"
        yield Complaint((*place, "weights_from"), text)
        return
    try:
        start_of(spec, loaded(bound, 1.0 if bound.model is not None else 0.0, catalog), figures)
    except StartUnknown as error:
        yield Complaint((*place, error.key) if bound.spec.cold_start else place, str(error))
    except UnknownId:
        return  # id_complaints names it


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


def _failure_complaints(pool: Pool, place: Place, catalog: Catalog) -> Iterator[Complaint]:
    """Components that the pool lacks, rates of others, and spares that cannot be."""
    failures, place = pool.failures, (*place, "failures")
    if failures is None:
        return
    if not failures.components and failures.maintenance is None:
        text = f"names nothing that fails: give {', '.join(COMPONENTS)} or maintenance"
        yield Complaint(place, text, (*COMPONENTS, "maintenance"))
    for kind, one in failures.components.items():
        if kind in OF_SERVERS and pool.server is None and pool.gpu is not None:
            yield Complaint((*place, kind), "needs a server: the pool names none")
        if one.rate is not None and (counted := _counted(one.rate, catalog)) not in (kind, None):
            yield Complaint((*place, kind, "rate"), f"{one.rate} is the rate of a {counted}, not of a {kind}")
    spares = failures.spares
    if spares is None:
        return
    if pool.server is None and pool.gpu is not None:
        yield Complaint((*place, "spares"), "need a server to stand in: the pool names none")
    if spares.count >= pool.replicas:
        text = f"{spares.count} of {pool.replicas} replicas cannot all stand by: at most {pool.replicas - 1}"
        yield Complaint((*place, "spares", "count"), text)
    if pool.schedule is not None or pool.autoscaling is not None:
        text = "stand beside a schedule or an autoscaler, whose idle replicas are spares: remove one of them"
        yield Complaint((*place, "spares"), text)


def switched_together(fleet: Fleet, place: Place) -> Iterator[Complaint]:
    """Spot pools that are interrupted before their notice is over, or fall back on what is not there; starts that
    nobody asks for.
    """
    names = [pool.name for pool in fleet.pools]
    for j, pool in enumerate(fleet.pools):
        spot, here = pool.spot, (*place, "pools", j, "spot")
        if spot is None:
            continue
        if spot.notice_s >= spot.interval_s:
            text = f"{spot.notice_s:g} s are no notice: an interruption comes every {spot.interval_s:g} s in the mean"
            yield Complaint((*here, "notice_s"), text)
        if spot.fallback is not None and (spot.fallback not in names or spot.fallback == pool.name):
            known = [name for name in names if name not in (None, pool.name)]
            text = f"{spot.fallback!r} names no other pool of this fleet{did_you_mean(spot.fallback, known)}"
            yield Complaint((*here, "fallback"), text)
        if pool.schedule is not None or pool.autoscaling is not None:
            yield Complaint(
                here, "stands beside a schedule or an autoscaler: put spot replicas into a pool of their own"
            )
        cost = fleet.costs[j]
        if cost is not None and cost.acquisition == "buy":
            yield Complaint(here, "is rented, and this pool is bought: give it a cost of its own")
        elif cost is not None and cost.spot is not None and cost.spot.availability < 1:
            text = "must be 1 beside spot: interruptions are simulated, and only what runs is paid for"
            yield Complaint((*place, "pools", j, "cost", "spot", "availability"), text)
    fallbacks = {pool.spot.fallback for pool in fleet.pools if pool.spot is not None}
    for j, pool in enumerate(fleet.pools):
        switched = pool.schedule is not None or pool.autoscaling is not None or pool.spot is not None
        on_call = pool.name is not None and pool.name in fallbacks
        sleeps = isinstance(pool.sharing, Swapped)
        serves_on = switched or on_call or pool.failures is not None or sleeps
        if pool.cold_start is not None and not serves_on:
            text = "nothing switches these replicas: add schedule, autoscaling or failures, or remove it"
            yield Complaint((*place, "pools", j, "cold_start"), text, ("schedule", "autoscaling", "failures", "spot"))
        if on_call and switched:
            text = f"{pool.name} is a fallback, which runs on call: neither by schedule, autoscaling nor as spot"
            yield Complaint((*place, "pools", j), text)


def ejection_complaints(scenario: Experiment, fleet: Fleet, place: Place) -> Iterator[Complaint]:
    """Circuit breaking where no client ever times out."""
    client, rules = scenario.client, fleet.admission
    waits = client is None or (client.timeout_s is None and client.patience_s is None)
    if rules is not None and rules.ejection is not None and waits:
        text = "counts timeouts, and clients wait for as long as it takes: give client.timeout_s"
        yield Complaint((*place, "admission", "ejection"), text)


def _counted(rate: str, catalog: Catalog) -> str | None:
    try:
        return catalog.failure_rate(rate).component
    except UnknownId:
        return None  # id_complaints names it


def unknown_rates(pool: object, place: Place, catalog: Catalog) -> Iterator[Complaint]:
    """Failure rates of a raw *pool* at *place* that the catalogue does not know."""
    for kind in COMPONENTS:
        held = ("failures", kind)
        yield from unknown_ids(value_at(pool, held), (*place, *held), {"rate": catalog.failure_rate})
