"""What a scenario says of the failures of a pool."""

from math import inf
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from sim.failures.domains import FailureTimes, RepairLaw
from sim.spec import Count, Fraction, NonNegative, Positive, Spec, WholeNumber
from sim.units import SECONDS_PER_HOUR


def _hours(value: Any) -> float:
    """Hours from the start; what went through JSON as a key is text."""
    try:
        hours = float(value)
    except (TypeError, ValueError):
        hours = -1.0
    if isinstance(value, bool) or not 0 <= hours < inf:
        raise ValueError(f"a number of hours from the start is needed, not {value!r}")
    return hours


Hour = Annotated[float, BeforeValidator(_hours)]


class ComponentSpec(Spec):
    """One kind of component: how often it fails, and how long that takes."""

    mtbf_h: Positive | None = None
    """Mean time between a repair and the next failure of one of them [h]; or `rate`."""
    rate: str | None = None
    """Id in data/failures: a published rate in place of `mtbf_h`."""
    repair_h: NonNegative
    """Mean time of a repair, until the replica may start again [h]."""
    shape: Positive = 1.0
    """Weibull shape of the time to a failure: 1 without memory (exponential), less where the new fail most, more where
    the old do."""
    repair: RepairLaw = "exponential"
    """Distribution of repair times."""
    repair_cv: NonNegative = 1.0
    """Standard deviation over mean of lognormal repair times."""
    part_share: Fraction = 0.0
    """Share of repairs that need a part which is not on the shelf."""
    part_h: NonNegative = 0.0
    """How long such a part takes to come [h]."""

    @model_validator(mode="after")
    def _one_rate(self) -> Self:
        if (self.mtbf_h is None) == (self.rate is None):
            raise ValueError("either mtbf_h or rate (an id in data/failures) is needed")
        return self

    def law(self, mtbf_h: float) -> FailureTimes:
        """Times of the component, *mtbf_h* as it says itself or as the catalogue does."""
        hour = SECONDS_PER_HOUR
        times = (mtbf_h * hour, self.repair_h * hour, self.shape, self.repair, self.repair_cv)
        return FailureTimes(*times, self.part_share, self.part_h * hour)


class Rack(ComponentSpec):
    """Power supply or top switch of a rack: its servers go down together."""

    servers: Count
    """Servers of a rack."""


class MaintenanceSpec(Spec):
    """Planned work, one server after another: its replicas are drained first."""

    every_h: Positive
    """From one maintenance of a server to the next [h]; the servers are spread evenly over it."""
    takes_h: Positive
    """How long a server is out, once its replicas have nothing to answer [h]."""

    @model_validator(mode="after")
    def _comes_back(self) -> Self:
        if self.takes_h >= self.every_h:
            raise ValueError(f"takes_h ({self.takes_h:g}) must be below every_h ({self.every_h:g})")
        return self


class StandbyReplicas(Spec):
    """Replicas that stand by until another one fails."""

    count: Count
    """How many of the pool's `replicas` stand by."""
    kind: Literal["hot", "warm", "cold"] = "warm"
    """hot: serves with the others from the start. warm: switched on, with the weights in memory. cold: switched off."""
    takeover_s: NonNegative = 0.0
    """From the alarm until a warm spare serves; a cold one goes through its whole start [s]."""

    @model_validator(mode="after")
    def _takes_over(self) -> Self:
        if self.takeover_s and self.kind != "warm":
            raise ValueError(f"takeover_s is of warm spares: a {self.kind} one has none")
        return self


COMPONENTS = ("replica", "gpu", "server", "nic", "psu", "rack", "site")
"""What may fail, from the smallest to the largest."""
OF_SERVERS = ("server", "nic", "psu", "rack")


class FailureSpec(Spec):
    """What fails in a pool, who notices when, and what is kept for it. Each component fails by itself."""

    replica: ComponentSpec | None = None
    """The engine of one replica: a crash, a hang. The hardware beneath it is fine."""
    gpu: ComponentSpec | None = None
    """One GPU: its replica goes down."""
    server: ComponentSpec | None = None
    """One server: all replicas on it go down, here and below."""
    nic: ComponentSpec | None = None
    """The network card of a server."""
    psu: ComponentSpec | None = None
    """The power supply of a server."""
    rack: Rack | None = None
    site: ComponentSpec | None = None
    """The whole site, with all pools that state the same."""
    detection_s: NonNegative = 0.0
    """From a failure until the router knows [s]: until then it goes on sending requests there."""
    crews: Count | None = None
    """Repairs that can go on at once; left out: as many as there are failures."""
    maintenance: MaintenanceSpec | None = None
    spares: StandbyReplicas | None = None

    @property
    def components(self) -> dict[str, ComponentSpec]:
        """Those that fail, by kind."""
        return {kind: one for kind in COMPONENTS if (one := getattr(self, kind)) is not None}


class SpotInterruptions(Spec):
    """Instances that the landlord takes back at short notice; each replica is one."""

    interruptions_per_h: Positive | None = None
    """Interruptions of a running instance per hour, at any moment (exponential); or `trace`."""
    recovery_h: NonNegative | None = None
    """Mean time until the capacity can be had again (exponential) [h]; needed with `interruptions_per_h`."""
    trace: Annotated[dict[Hour, WholeNumber], Field(min_length=1)] | None = None
    """Time [h] -> how many instances can be had from then on: {0: 4, 2.5: 1, 6: 4}; all of them before the first."""
    notice_s: NonNegative
    """From the landlord's notice until an instance is gone [s]: its replica takes no new requests."""
    on_notice: Literal["drain", "migrate"] = "drain"
    """drain: the replica answers what it has; what is left at the end of the notice is lost and asked for again.
    migrate: other replicas go on at once with what it has; they compute prompts and streamed tokens again."""
    fallback: str | None = None
    """Name of a pool of the same fleet whose replicas stay off until one here is interrupted, one for one."""

    @model_validator(mode="after")
    def _one_law(self) -> Self:
        if (self.interruptions_per_h is None) == (self.trace is None):
            raise ValueError("either interruptions_per_h or trace is needed")
        if (self.interruptions_per_h is None) != (self.recovery_h is None):
            raise ValueError("recovery_h belongs to interruptions_per_h: give both, or a trace")
        return self

    @property
    def interval_s(self) -> float:
        """Mean time between two interruptions of an instance [s]; without a rate there is none."""
        return SECONDS_PER_HOUR / self.interruptions_per_h if self.interruptions_per_h else inf
