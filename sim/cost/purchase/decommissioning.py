"""Taking servers out of service at the end of their life: removal, wiping of data, disposal."""

from sim.cost.bill.charge import FlatCharge, Paid
from sim.cost.finance.finance import Annuity, StraightLine
from sim.cost.hardware import Hardware
from sim.cost.money import Price
from sim.cost.operations.component import Owned, OwnerComponent, for_each
from sim.cost.purchase.deployment import countable_servers


class Decommissioning(OwnerComponent):
    """Paid once, at the end of the life."""

    usd_per_server: Price

    def charges(self, owned: Owned) -> list[FlatCharge]:
        """The work, saved up over the life of the servers, a charge per pool. Raises CostError without a server."""
        return for_each(owned.fleet, lambda hardware: self._work(hardware, owned.finance))

    def _work(self, hardware: Hardware, finance: StraightLine | Annuity) -> list[FlatCharge]:
        servers = countable_servers(hardware, "operations.decommissioning")
        once = self.usd_per_server.unit_price("server", "operations.decommissioning.usd_per_server")
        price = once.per("server-h", finance.end_usd_per_h(once.usd))
        return [
            FlatCharge("decommissioning", pool.name, pool.server_id, part, price, Paid.AT_END, part * once.usd)
            for pool, part in hardware.shared(servers)
        ]
