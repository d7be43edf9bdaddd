"""Cost of data that leaves the site with the responses."""

from collections.abc import Sequence
from dataclasses import dataclass

from sim.cost.charge import Metered, StatedFigure, UnitPrice
from sim.cost.component import UserComponent
from sim.cost.hardware import FleetHardware, PoolFacts
from sim.cost.metering import ByPhase, MeteredWindow
from sim.cost.prices import Price
from sim.records import Interval
from sim.spec import NonNegative
from sim.units import GB


class Egress(UserComponent):
    """Outgoing traffic, billed per gigabyte.

    Notes
    -----
    Amount [USD] = output tokens * bytes_per_output_token / 10^9 * usd_per_gb.

    """

    usd_per_gb: Price
    """Price per 10^9 bytes."""
    bytes_per_output_token: NonNegative
    """Bytes on the wire per output token: 4 to 5 for plain English, about 200 if every token is streamed in its own
    JSON event."""

    def charges(self, fleet: Sequence[FleetHardware]) -> "list[EgressCharge]":
        """Return the cost of sending the responses, a charge per pool."""
        return [self._charge(pool) for hardware in fleet for pool in hardware.pools]

    def _charge(self, pool: PoolFacts) -> "EgressCharge":
        sent = StatedFigure("operations.egress.bytes_per_output_token", self.bytes_per_output_token, "bytes")
        price = self.usd_per_gb.unit_price("GB", "operations.egress.usd_per_gb", "GB", sent)
        return EgressCharge(pool.name, pool.server_id, self.bytes_per_output_token, price)


@dataclass(frozen=True, slots=True)
class EgressCharge(Metered):
    """Traffic charge of one pool, booked to the decoding phase."""

    pool: str
    server: str
    bytes_per_output_token: float
    price: UnitPrice
    component: str = "egress"

    def by_phase(self, interval: Interval, window: MeteredWindow) -> ByPhase:
        """Return the data sent in *interval*, all in the decoding phase [GB]."""
        return ByPhase(0.0, interval.output_tokens * self.bytes_per_output_token / GB, 0.0, 0.0)
