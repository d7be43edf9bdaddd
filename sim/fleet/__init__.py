"""The cluster on SimPy's clock: the only place that knows simpy."""

from sim.fleet.fleet import Fleet

__all__ = ["Fleet"]
