"""Published failure rates: data/failures/<id>.yaml."""

from typing import Literal

from sim.catalogue.value import Value
from sim.spec import Spec

FailingComponent = Literal["replica", "gpu", "server", "nic", "psu", "rack", "site"]


class FailureRate(Spec):
    """Failure rate of one kind of component in a published fleet."""

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    component: FailingComponent
    """Component whose failures are counted; a pool's `failures` may use the rate for this component."""
    mtbf_h: Value
    """Mean time between failures: running time of all components over their failures [h]."""
