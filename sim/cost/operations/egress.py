"""Data that leaves the site with the answers."""

from dataclasses import dataclass

from sim.cost.bill.charge import Metered, Stated, UnitPrice
from sim.cost.bill.phases import ByPhase
from sim.cost.bill.window import Window
from sim.cost.hardware import PoolFacts
from sim.cost.money import Price
from sim.records import Interval
from sim.spec import NonNegative, Spec
from sim.units import GB


class Egress(Spec):
    """Traffic that the provider bills by the gigabyte."""

    usd_per_gb: Price
    """Per 10^9 bytes."""
    bytes_per_output_token: NonNegative
    """On the wire: 4 to 5 of plain English, some 200 when every token is streamed in a JSON event of its own."""

    def charge(self, pool: PoolFacts) -> "EgressCharge":
        """What the answers of *pool* cost to send."""
        sent = Stated("operations.egress.bytes_per_output_token", self.bytes_per_output_token, "bytes")
        price = self.usd_per_gb.unit_price("GB", "operations.egress.usd_per_gb", "GB", sent)
        return EgressCharge(pool.name, pool.server_id, self.bytes_per_output_token, price)


@dataclass(frozen=True, slots=True)
class EgressCharge(Metered):
    """Answers of one pool, booked to the decoding that made them."""

    pool: str
    server: str
    bytes_per_output_token: float
    price: UnitPrice
    component: str = "egress"

    def by_phase(self, interval: Interval) -> ByPhase:
        """Data sent [GB]."""
        return ByPhase(0.0, interval.output_tokens * self.bytes_per_output_token / GB, 0.0, 0.0)

    def quantity(self, followed: float, window: Window) -> float:
        """What was sent [GB]."""
        return followed
