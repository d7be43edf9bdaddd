"""Purchase of hardware: GPUs bought singly, and servers with GPUs included in their price.

GPUs in use that are not included in a server's price are bought singly, and empty slots stay empty. The share of
included GPUs that no replica uses is a separate row of the bill.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import Field

from sim.cost.charge import FlatCharge, purchase
from sim.cost.finance import Annuity, StraightLine
from sim.cost.hardware import FleetHardware
from sim.cost.metering import IdleShare
from sim.cost.prices import CostError, PriceBook, Problem, Quotes, offer_item
from sim.message import Message
from sim.spec import Spec


def gpu_capital(hardware: FleetHardware, book: PriceBook, finance: StraightLine | Annuity) -> list[FlatCharge]:
    """Return the cost of GPUs beyond those included in the servers' price, a charge per pool. Raises CostError."""
    included = 0
    if hardware.server is not None:
        included = book.server_purchase(hardware.server.id, hardware.gpu)[1]
        if included >= hardware.slots:
            return []
    if not hardware.gpu:
        raise CostError(
            Problem("cost", Message("pool {pool_names} names no GPU, so there is nothing to buy", hardware.pool_names))
        )
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
    """Bought servers and GPUs, at named offers or the catalogue's default purchase price unless quoted."""

    acquisition: Literal["buy"]
    price: str | tuple[str, ...] | None = None
    """Offers in data/prices for GPUs and servers, `<item>/<offer>` or a list of these. Default: the default purchase of
    each item."""
    quotes: Quotes = Field(default_factory=dict)
    """The planner's own prices by GPU or server id, in dollars each; they override data/prices."""
    owned: bool = False
    """The hardware is owned already: only its running costs count (electricity, space, upkeep), no purchase or resale.
    """
    share: bool = False
    """Pay only for the slots that are used; other users pay for the rest of the server."""

    @property
    def offers(self) -> tuple[str, ...]:
        """Named offers, `<item>/<offer>` each."""
        return (self.price,) if isinstance(self.price, str) else self.price or ()

    def charges(
        self, fleet: Sequence[FleetHardware], book: PriceBook, finance: StraightLine | Annuity
    ) -> list[FlatCharge]:
        """Return the capital cost of *fleet*, a charge per pool and component. Raises CostError for missing prices."""
        result: list[FlatCharge] = []
        problems: dict[Problem, None] = dict.fromkeys(self._misplaced_offers(fleet))
        for hardware in fleet:
            for component in (gpu_capital, server_capital):
                try:
                    result += component(hardware, book, finance)
                except CostError as error:
                    problems.update(dict.fromkeys(error.problems))
        if problems:
            raise CostError(*problems)
        return result

    def _misplaced_offers(self, fleet: Sequence[FleetHardware]) -> Iterator[Problem]:
        """Yield a problem for each named offer of an item that *fleet* does not buy, or that is named twice."""
        items = dict.fromkeys(hardware.gpu for hardware in fleet if hardware.gpu)
        items |= dict.fromkeys(hardware.server.id for hardware in fleet if hardware.server is not None)
        taken: dict[str, str] = {}
        for offer in self.offers:
            item = offer_item(offer)
            if item in taken:
                yield Problem(
                    "cost.price",
                    Message(
                        "{taken} and {offer} are both prices of {item}: name one of them", taken[item], offer, item
                    ),
                )
            elif item not in items:
                yield Problem(
                    "cost.price", Message("{offer} is not a price of what is bought: {items}", offer, ", ".join(items))
                )
            taken.setdefault(item, offer)
