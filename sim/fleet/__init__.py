"""The cluster on SimPy's clock: the only place that knows simpy."""

from sim.fleet.fleet import RunningFleet

__all__ = ["RunningFleet"]
