"""GPUs bought one by one: those in use that no server's price includes. Empty slots stay empty."""

from sim.cost.bill.charge import FlatCharge, purchase
from sim.cost.finance.finance import Annuity, StraightLine
from sim.cost.hardware import Hardware
from sim.cost.prices import CostError, PriceBook, Problem


def gpu_capital(hardware: Hardware, book: PriceBook, finance: StraightLine | Annuity) -> list[FlatCharge]:
    """The GPUs that *hardware* needs beyond those in its servers' price, a charge per pool. Raises CostError."""
    included = 0
    if hardware.server is not None:
        included = book.server_purchase(hardware.server.id, hardware.gpu)[1]
        if included >= hardware.slots:
            return []
    if not hardware.gpu:
        raise CostError(Problem("cost", f"pool {hardware.pool_names} names no GPU, so there is nothing to buy"))
    price = book.purchase(hardware.gpu).price
    bought = max(0.0, hardware.gpus - included * hardware.servers)
    per_h = price.per("GPU-h", finance.usd_per_h(price.usd))
    return [
        purchase("gpu_capital", pool.name, pool.server_id, gpus, per_h, price.usd)
        for pool, gpus in hardware.shared(bought)
    ]
