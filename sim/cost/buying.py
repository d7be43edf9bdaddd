"""Purchase of hardware: GPUs bought singly, and servers with GPUs included in their price.

GPUs in use that are not included in a server's price are bought singly, and empty slots stay empty. The share of
included GPUs that no replica uses is a separate row of the bill.
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from sim.cost.charge import FlatCharge, purchase
from sim.cost.finance import Annuity, StraightLine
from sim.cost.hardware import FleetHardware
from sim.cost.metering import IdleShare
from sim.cost.prices import CostError, PriceBook, Problem, Quotes
from sim.spec import Spec


def gpu_capital(hardware: FleetHardware, book: PriceBook, finance: StraightLine | Annuity) -> list[FlatCharge]:
    """Return the cost of GPUs beyond those included in the servers' price, a charge per pool. Raises CostError."""
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
        for pool, gpus in hardware.per_pool(bought)
    ]


def server_capital(hardware: FleetHardware, book: PriceBook, finance: StraightLine | Annuity) -> list[FlatCharge]:
    """Return the cost of the servers, a charge per pool; none if the pools name no server. Raises CostError."""
    if hardware.server is None:
        return []
    price, included = book.server_purchase(hardware.server.id, hardware.gpu)
    per_h = price.per("server-h", finance.usd_per_h(price.usd))
    unused = IdleShare.of(hardware.gpus, included * hardware.servers)
    return [
        purchase("server_capital", pool.name, pool.server_id, servers, per_h, price.usd, unused)
        for pool, servers in hardware.per_pool(hardware.servers)
    ]


class Buy(Spec):
    """Bought servers and GPUs, at the catalogue's default purchase price unless quoted."""

    acquisition: Literal["buy"]
    quotes: Quotes = Field(default_factory=dict)
    """The planner's own prices by GPU or server id, in dollars each; they override data/prices."""
    owned: bool = False
    """The hardware is owned already: only its running costs count (electricity, space, upkeep), no purchase or resale.
    """
    share: bool = False
    """Pay only for the slots that are used; other users pay for the rest of the server."""

    def charges(
        self, fleet: Sequence[FleetHardware], book: PriceBook, finance: StraightLine | Annuity
    ) -> list[FlatCharge]:
        """Return the capital cost of *fleet*, a charge per pool and component. Raises CostError for missing prices."""
        result: list[FlatCharge] = []
        problems: dict[Problem, None] = {}
        for hardware in fleet:
            for component in (gpu_capital, server_capital):
                try:
                    result += component(hardware, book, finance)
                except CostError as error:
                    problems.update(dict.fromkeys(error.problems))
        if problems:
            raise CostError(*problems)
        return result
