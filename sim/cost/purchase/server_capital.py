"""Servers bought, with the GPUs that their price includes; the share of those that no replica uses stands apart."""

from sim.cost.bill.charge import FlatCharge, purchase
from sim.cost.bill.phases import Unused
from sim.cost.finance.finance import Annuity, StraightLine
from sim.cost.hardware import Hardware
from sim.cost.prices import PriceBook


def server_capital(hardware: Hardware, book: PriceBook, finance: StraightLine | Annuity) -> list[FlatCharge]:
    """The servers of *hardware*, a charge per pool; none where the pools name no server. Raises CostError."""
    if hardware.server is None:
        return []
    price, included = book.server_purchase(hardware.server.id, hardware.gpu)
    per_h = price.per("server-h", finance.usd_per_h(price.usd))
    unused = Unused.of(hardware.gpus, included * hardware.servers)
    return [
        purchase("server_capital", pool.name, pool.server_id, servers, per_h, price.usd, unused)
        for pool, servers in hardware.shared(hardware.servers)
    ]
