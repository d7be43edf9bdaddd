"""What `gpufleet breakeven` compares, as a scenario says it."""

from typing import Annotated

from pydantic import Field

from sim.cost import Cost
from sim.spec import Count, Positive, Spec


class Breakeven(Spec):
    """Ways to pay for the same hardware, and for how long. Every section is optional."""

    also: dict[str, dict[Annotated[str, Field(min_length=1)], Cost]] = Field(default_factory=dict)
    """Fleet -> label -> another `cost` of the same hardware: {a: {rented: {acquisition: rent, ...}}}."""
    load: Positive | None = None
    """Load of the months and of the verdict, in the workload's own unit (requests per second, clients, or the trace's
    speed); left out: the workload's. With a `load_profile` it is the mean over the year, to which the profile is
    scaled; left out: the profile's own."""
    months: Count = 60
    """How far the cash flows reach."""
