"""When requests arrive. A new process: its file here and its name in `Arrivals`."""

from typing import Annotated

from pydantic import Field

from sim.workload.arrivals.burst import Burst
from sim.workload.arrivals.closed_loop import ClosedLoop
from sim.workload.arrivals.constant import Constant
from sim.workload.arrivals.gamma import Gamma
from sim.workload.arrivals.poisson import Poisson
from sim.workload.arrivals.profile import Profile

Arrivals = Annotated[
    Poisson | Gamma | Constant | ClosedLoop | Burst | Profile,
    Field(discriminator="process"),
]

__all__ = ["Arrivals", "Burst", "ClosedLoop", "Constant", "Gamma", "Poisson", "Profile"]
