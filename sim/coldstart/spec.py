"""What a scenario says of the start of a pool's replicas."""

from sim.spec import NonNegative, Spec


class ColdStart(Spec):
    """How long a replica takes from being switched on to its first request."""

    total_s: NonNegative
    """The whole start, machine, engine and weights [s]."""
