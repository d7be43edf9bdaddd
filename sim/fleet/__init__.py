"""The cluster on SimPy's clock: the only place that knows simpy."""

from sim.fleet.fleet import RunningFleet
from sim.fleet.sharing.together import run_fleet

__all__ = ["RunningFleet", "run_fleet"]
