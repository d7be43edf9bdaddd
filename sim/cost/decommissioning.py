"""Taking servers out of service at the end of their life: removal, wiping of data, disposal."""

from sim.cost.charge import FlatCharge, Paid, Stated, UnitPrice
from sim.cost.deployment import countable_servers
from sim.cost.finance import Annuity, StraightLine
from sim.cost.hardware import Hardware
from sim.spec import NonNegative, Spec


class Decommissioning(Spec):
    """Paid once, at the end of the life."""

    usd_per_server: NonNegative

    def charges(self, hardware: Hardware, finance: StraightLine | Annuity) -> list[FlatCharge]:
        """The work for *hardware*, saved up over its life, a charge per pool. Raises CostError without a server."""
        servers = countable_servers(hardware, "operations.decommissioning")
        stated = Stated("operations.decommissioning.usd_per_server", self.usd_per_server, "USD/server")
        price = UnitPrice(
            finance.end_usd_per_h(self.usd_per_server), "server-h", f"scenario: {stated.path}", stated=(stated,)
        )
        return [
            FlatCharge(
                "decommissioning", pool.name, pool.server_id, part, price, Paid.AT_END, part * self.usd_per_server
            )
            for pool, part in hardware.shared(servers)
        ]
