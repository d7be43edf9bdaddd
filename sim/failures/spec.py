"""Scenario keys for failures, maintenance, spares and spot interruptions of a pool."""

from math import inf
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from sim.failures.domains import FailureTimes, RepairLaw
from sim.message import Message
from sim.spec import Count, Fraction, NonNegative, Positive, Spec, WholeNumber
from sim.units import SECONDS_PER_HOUR


def _hours(value: Any) -> float:
    """Convert *value* to hours from the start; a key that went through JSON is text."""
    try:
        hours = float(value)
    except (TypeError, ValueError):
        hours = -1.0
    if isinstance(value, bool) or not 0 <= hours < inf:
        raise ValueError(Message("a number of hours from the start is needed, not {value!r}", value))
    return hours


Hour = Annotated[float, BeforeValidator(_hours)]


class ComponentSpec(Spec):
    """Failure rate and repair time of one kind of component."""

    mtbf_h: Positive | None = None
    """Mean time between a repair and the next failure of one component [h]; alternative to `rate`."""
    rate: str | None = None
    """Published failure rate in place of `mtbf_h`, an id in data/failures."""
    repair_h: NonNegative
    """Mean time of a repair, until the replica may start again [h]."""
    shape: Positive = 1.0
    """Weibull shape of the time to a failure: 1 is memoryless (exponential), below 1 new components fail most, above 1
    old components."""
    repair: RepairLaw = "exponential"
    """Distribution of repair times."""
    repair_cv: NonNegative = 1.0
    """Coefficient of variation of lognormal repair times."""
    part_share: Fraction = 0.0
    """Fraction of repairs that wait for a spare part which is not in stock."""
    part_h: NonNegative = 0.0
    """Delivery time of a spare part [h]."""

    @model_validator(mode="after")
    def _one_rate(self) -> Self:
        if (self.mtbf_h is None) == (self.rate is None):
            raise ValueError("either mtbf_h or rate (an id in data/failures) is needed")
        return self

    def law(self, mtbf_h: float) -> FailureTimes:
        """Return the distributions of this component with a mean uptime of *mtbf_h*, its own or the catalogue's."""
        hour = SECONDS_PER_HOUR
        times = (mtbf_h * hour, self.repair_h * hour, self.shape, self.repair, self.repair_cv)
        return FailureTimes(*times, self.part_share, self.part_h * hour)


class Rack(ComponentSpec):
    """Power supply or top-of-rack switch: a failure takes down all servers of the rack."""

    servers: Count
    """Servers per rack."""


class MaintenanceSpec(Spec):
    """Planned maintenance of one server after another, whose replicas are drained first."""

    every_h: Positive
    """Time between two maintenances of a server [h]; the servers are spread evenly over it."""
    takes_h: Positive
    """Downtime of a server once its replicas are drained [h]."""

    @model_validator(mode="after")
    def _comes_back(self) -> Self:
        if self.takes_h >= self.every_h:
            raise ValueError(
                Message("takes_h ({takes_h:g}) must be below every_h ({every_h:g})", self.takes_h, self.every_h)
            )
        return self


class StandbyReplicas(Spec):
    """Spare replicas that replace failed ones."""

    count: Count
    """Number of the pool's `replicas` that are spares."""
    kind: Literal["hot", "warm", "cold"] = "warm"
    """Readiness of spares. hot: serves with the others from the start; warm: switched on, with the weights in memory;
    cold: switched off."""
    takeover_s: NonNegative = 0.0
    """Time from the detection of a failure until a warm spare serves [s]; a cold spare has its whole start."""

    @model_validator(mode="after")
    def _takes_over(self) -> Self:
        if self.takeover_s and self.kind != "warm":
            raise ValueError(Message("takeover_s applies to warm spares: a {kind} spare has none", self.kind))
        return self


COMPONENTS = ("replica", "gpu", "server", "nic", "psu", "rack", "site")
"""Kinds of components that may fail, from the smallest to the largest."""
SERVER_COMPONENTS = ("server", "nic", "psu", "rack")


class FailureSpec(Spec):
    """Failures of a pool: failing components, detection, repair crews, maintenance and spares.

    Components fail independently of each other.
    """

    replica: ComponentSpec | None = None
    """Engine of one replica: a crash or hang that leaves the hardware intact."""
    gpu: ComponentSpec | None = None
    """Single GPU: a failure takes down its replica."""
    server: ComponentSpec | None = None
    """Server: a failure takes down all replicas on it."""
    nic: ComponentSpec | None = None
    """Network card: a failure takes down all replicas on its server."""
    psu: ComponentSpec | None = None
    """Power supply unit: a failure takes down all replicas on its server."""
    rack: Rack | None = None
    """Rack: a failure takes down all replicas on its servers."""
    site: ComponentSpec | None = None
    """Whole site: a failure takes down all pools that state the same `site` failures."""
    detection_s: NonNegative = 0.0
    """Time from a failure until the router notices [s], during which it keeps sending requests there."""
    crews: Count | None = None
    """Repairs that can proceed at once. Default: unlimited."""
    maintenance: MaintenanceSpec | None = None
    """Planned maintenance of the servers, one after another. Default: none."""
    spares: StandbyReplicas | None = None
    """Replicas of the pool that replace failed ones. Default: none."""

    @property
    def components(self) -> dict[str, ComponentSpec]:
        """Failing components, keyed by kind."""
        return {kind: one for kind in COMPONENTS if (one := getattr(self, kind)) is not None}


class SpotInterruptions(Spec):
    """Spot instances that the provider reclaims at short notice; each replica is one instance."""

    interruptions_per_h: Positive | None = None
    """Interruption rate of a running instance [1/h], exponential; alternative to `trace`."""
    recovery_h: NonNegative | None = None
    """Mean time until the capacity is available again, exponential [h]; required with `interruptions_per_h`."""
    trace: Annotated[dict[Hour, WholeNumber], Field(min_length=1)] | None = None
    """Trace of capacity: time [h] -> number of instances available from then on ({0: 4, 2.5: 1, 6: 4}); all instances
    before the first entry."""
    notice_s: NonNegative
    """Time from the provider's notice until an instance is reclaimed [s], during which its replica accepts no new
    requests."""
    on_notice: Literal["drain", "migrate"] = "drain"
    """Handling of requests on notice. drain: the replica completes its requests; those unfinished at the end of the
    notice are lost and sent again. migrate: other replicas continue them at once, recomputing prompts and streamed
    tokens."""
    fallback: str | None = None
    """Pool of the same fleet that stays off until instances here are interrupted, and replaces each of them by one
    replica."""

    @model_validator(mode="after")
    def _one_law(self) -> Self:
        if (self.interruptions_per_h is None) == (self.trace is None):
            raise ValueError("either interruptions_per_h or trace is needed")
        if (self.interruptions_per_h is None) != (self.recovery_h is None):
            raise ValueError("recovery_h belongs to interruptions_per_h: give both, or a trace")
        return self

    @property
    def interval_s(self) -> float:
        """Mean time between two interruptions of an instance [s]; infinite without a rate."""
        return SECONDS_PER_HOUR / self.interruptions_per_h if self.interruptions_per_h else inf
