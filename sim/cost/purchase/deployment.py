"""Putting servers into service: freight, racking, cabling, burn-in."""

from sim.cost.bill.charge import FlatCharge, Paid
from sim.cost.finance.finance import Annuity, StraightLine
from sim.cost.hardware import Hardware
from sim.cost.money import Price
from sim.cost.operations.component import Owned, OwnerComponent, for_each
from sim.cost.prices import CostError, Problem


class Deployment(OwnerComponent):
    """Paid once, when the servers come."""

    usd_per_server: Price

    def charges(self, owned: Owned) -> list[FlatCharge]:
        """The work, spread over the life of the servers, a charge per pool. Raises CostError without a server."""
        return for_each(owned.fleet, lambda hardware: self._work(hardware, owned.finance))

    def _work(self, hardware: Hardware, finance: StraightLine | Annuity) -> list[FlatCharge]:
        servers = countable_servers(hardware, "operations.deployment")
        once = self.usd_per_server.unit_price("server", "operations.deployment.usd_per_server")
        price = once.per("server-h", finance.sunk_usd_per_h(once.usd))
        return [
            FlatCharge("deployment", pool.name, pool.server_id, part, price, Paid.AT_DELIVERY, part * once.usd)
            for pool, part in hardware.shared(servers)
        ]


def countable_servers(hardware: Hardware, key: str) -> float:
    """How many servers a price per server applies to. Raises CostError where the pools name none."""
    if hardware.server is None:
        raise CostError(Problem(key, f"pool {hardware.pool_names} names no server to count"))
    return hardware.servers
