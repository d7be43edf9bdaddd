"""A published failure rate."""

from typing import Literal

from sim.catalogue.value import Value
from sim.spec import Spec

FailingComponent = Literal["replica", "gpu", "server", "nic", "psu", "rack", "site"]


class FailureRate(Spec):
    """How often one component of a kind failed in a published fleet."""

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    component: FailingComponent
    """What the rate counts, and what it may stand for in a pool's `failures`."""
    mtbf_h: Value
    """Time that all of them ran over their failures [h of one component]."""
