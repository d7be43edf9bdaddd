"""Purchase of hardware: GPUs bought singly, and servers with GPUs included in their price.

GPUs in use that are not included in a server's price are bought singly, and empty slots stay empty. The share of
included GPUs that no replica uses is a separate row of the bill.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, Self

from pydantic import Field, model_validator

from sim.cost.charge import FlatCharge, StatedFigure, purchase
from sim.cost.finance import Annuity, StraightLine
from sim.cost.hardware import FleetHardware
from sim.cost.metering import IdleShare
from sim.cost.prices import CostError, PriceBook, Problem, Quotes, offer_item
from sim.message import Message
from sim.spec import Count, Fraction, Spec, WholeNumber

PAYMENT_TERMS = "payment_terms"
"""Component of the bill for payments of the price before or after the delivery."""


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


class PaymentTerms(Spec):
    """Times at which servers and GPUs are paid; what is not paid before is due after the delivery."""

    at_order: Fraction = 0.0
    """Deposit at the order, as a fraction of the price; `lead_time_months` is the time to delivery."""
    at_delivery: Fraction | None = None
    """Fraction of the price that is paid at delivery. Default: the rest; with `net_days`, nothing."""
    net_days: Count | None = None
    """Days from delivery until the rest is due (60: net 60), to the nearest month of 30 days."""

    @model_validator(mode="after")
    def _pays_all(self) -> Self:
        if self.net_days is None and self.at_delivery is not None and self.at_order + self.at_delivery != 1:
            text = Message("at_order and at_delivery pay {sum:g} of the price", self.at_order + self.at_delivery)
            raise ValueError(Message("{text}: state net_days, the days until the rest is due", text))
        if self.at_order + (self.at_delivery or 0.0) > 1:
            raise ValueError("at_order and at_delivery are more than the price: their sum is at most 1")
        return self

    def moved(self, lead_time_months: int) -> tuple[tuple[int, float], ...]:
        """Return (month from delivery, fraction of the price) beside a payment of the whole price at delivery.

        >>> PaymentTerms(at_order=0.3, net_days=60).moved(lead_time_months=3)
        ((-3, 0.3), (0, -1.0), (2, 0.7))
        """
        on_delivery = self.at_delivery if self.at_delivery is not None else 0.0 if self.net_days else 1 - self.at_order
        rest = 1 - self.at_order - on_delivery
        parts = ((-lead_time_months, self.at_order), (0, on_delivery - 1.0), (round((self.net_days or 0) / 30), rest))
        return tuple((month, share) for month, share in parts if share)


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
    payment: PaymentTerms | None = None
    """Times at which servers and GPUs are paid. Default: at delivery."""
    lead_time_months: WholeNumber | None = None
    """Months from the order to the delivery. Default: `plan.lead_time_months`."""
    share: bool = False
    """Pay only for the slots that are used; other users pay for the rest of the server."""

    @model_validator(mode="after")
    def _pays_once(self) -> Self:
        if self.payment is not None and self.owned:
            raise ValueError("owned hardware is paid for: remove payment")
        return self

    def payment_charges(self, purchases: Sequence[FlatCharge], finance: StraightLine | Annuity) -> list[FlatCharge]:
        """Return the interest charges of paying *purchases* before or after delivery; none for payments at delivery.

        Raises CostError for a deposit at the order without a lead time.
        """
        if self.payment is not None and self.payment.at_order and self.lead_time_months is None:
            text = "is paid at the order: state cost.lead_time_months, or plan.lead_time_months"
            raise CostError(Problem("cost.payment.at_order", text))
        if self.payment is None or not (moved := self.payment.moved(self.lead_time_months or 0)):
            return []
        found = []
        for one in purchases:
            moved_usd = tuple((month, share * one.once_usd) for month, share in moved)
            each_usd = finance.moved_usd_per_h(moved_usd) / one.units_per_h if one.units_per_h else 0.0
            stated = StatedFigure("cost.payment.at_order", self.payment.at_order, "of the price")
            price = one.price.derived(each_usd, one.price.unit, stated)
            moving = replace(one, component=PAYMENT_TERMS, price=price, once_usd=0.0, resold=False)
            found.append(replace(moving, moved_usd=moved_usd))
        return found

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
