"""The cluster on SimPy's clock: the only place that knows simpy."""

from sim.fleet.fleet import RunningFleet, run_fleet

__all__ = ["RunningFleet", "run_fleet"]
