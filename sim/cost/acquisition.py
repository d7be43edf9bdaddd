"""Costs of acquiring servers besides their price: network and storage, taxes, deployment, decommissioning.

Network and storage are a fraction of the price of servers and GPUs, and are bought and depreciated with them. Tax and
duties are charged where they are not refunded. Deployment puts servers into service; decommissioning removes them at
the end of their life. VAT is paid at delivery; its recoverable part comes back months later.
"""

from dataclasses import replace
from typing import ClassVar

from sim.cost.charge import FlatCharge, PaymentTime, StatedFigure
from sim.cost.component import OwnedFleet, OwnerComponent, for_each
from sim.cost.finance import Annuity, StraightLine
from sim.cost.hardware import FleetHardware
from sim.cost.prices import CostError, Price, Problem
from sim.message import Message
from sim.spec import Fraction, WholeNumber


class NetworkStorage(OwnerComponent):
    """Network and storage as a fraction of the hardware's price, for use without a parts list.

    Notes
    -----
    Price [USD] = fraction_of_hardware * price of servers and GPUs, financed and resold like these.

    """

    fraction_of_hardware: Fraction
    """Price of network and storage divided by the price of servers and GPUs."""

    buys: ClassVar[bool] = True

    def charges(self, owned: OwnedFleet) -> list[FlatCharge]:
        """Return the charge of network and storage for each purchase; they lose value as the hardware does."""
        return [_share(charge, self.fraction_of_hardware, owned.finance) for charge in owned.purchases]


def _share(charge: FlatCharge, fraction: float, finance: StraightLine | Annuity) -> FlatCharge:
    bought_usd = fraction * charge.once_usd
    each_usd = finance.usd_per_h(bought_usd / charge.units_per_h) if charge.units_per_h else 0.0
    stated = StatedFigure("operations.network_storage.fraction_of_hardware", fraction, "of the hardware's price")
    price = charge.price.derived(each_usd, charge.price.unit, stated)
    return replace(charge, component="network_storage", price=price, once_usd=bought_usd)


class SalesTax(OwnerComponent):
    """Sales tax, or another tax on purchases that is not refunded."""

    fraction_of_purchases: Fraction
    """Tax divided by the purchase prices, including those of replaced GPUs; a resale does not refund it."""

    @property
    def stated(self) -> StatedFigure:
        """Tax rate as stated in the scenario."""
        return StatedFigure("operations.sales_tax.fraction_of_purchases", self.fraction_of_purchases, "of the price")

    def charges(self, owned: OwnedFleet) -> list[FlatCharge]:
        """Return the tax on every purchase, spread over the life; tax on replacements is part of `failures`."""
        return [self._tax(charge, owned.finance) for charge in owned.purchases]

    def _tax(self, charge: FlatCharge, finance: StraightLine | Annuity) -> FlatCharge:
        return _taxed(charge, finance, "sales_tax", self.stated, self.fraction_of_purchases * charge.once_usd)


def _taxed(
    charge: FlatCharge,
    finance: StraightLine | Annuity,
    component: str,
    stated: StatedFigure,
    paid_usd: float,
    moved_usd: tuple[tuple[int, float], ...] = (),
) -> FlatCharge:
    """Return the charge of a tax of *paid_usd* on the purchase *charge*, with payments *moved_usd* beside it."""
    usd_per_h = finance.sunk_usd_per_h(paid_usd) + (finance.moved_usd_per_h(moved_usd) if moved_usd else 0.0)
    each_usd = usd_per_h / charge.units_per_h if charge.units_per_h else 0.0
    price = charge.price.derived(each_usd, charge.price.unit, stated)
    taxed = replace(charge, component=component, price=price, once_usd=paid_usd, resold=False)
    return replace(taxed, moved_usd=moved_usd)


class ImportDuty(OwnerComponent):
    """Import duty on purchases."""

    fraction_of_purchases: Fraction
    """Duty divided by the purchase prices, including those of replaced GPUs; a resale does not refund it."""

    expected: ClassVar[bool] = False

    @property
    def stated(self) -> StatedFigure:
        """Duty as stated in the scenario."""
        return StatedFigure("operations.import_duty.fraction_of_purchases", self.fraction_of_purchases, "of the price")

    def charges(self, owned: OwnedFleet) -> list[FlatCharge]:
        """Return the duty on every purchase, spread over the life; duty on replacements is part of `failures`."""
        share = self.fraction_of_purchases
        return [_taxed(one, owned.finance, "import_duty", self.stated, share * one.once_usd) for one in owned.purchases]


class ValueAddedTax(OwnerComponent):
    """VAT (value-added tax) or GST on purchases and import duty: paid at delivery, recovered in part or whole.

    Notes
    -----
    VAT = rate * price * (1 + import duty). Its recoverable part is not a cost but is paid and returned later; bills per
    hour contain only the interest on it.

    """

    rate: Fraction
    """VAT divided by the price, as a fraction: 0.13 is 13 %."""
    recoverable: Fraction = 1.0
    """Fraction of the VAT that the tax office returns."""
    recovered_after_months: WholeNumber = 1
    """Months from delivery to the recovery; at the end of the hardware's life or of the plan at the latest."""

    expected: ClassVar[bool] = False

    def lost(self, duty: float) -> StatedFigure:
        """Return the VAT that is not recovered, as a fraction of the price, with the import *duty*."""
        return StatedFigure("operations.vat.rate", self.rate * (1 - self.recoverable) * (1 + duty), "of the price")

    def charges(self, owned: OwnedFleet) -> list[FlatCharge]:
        """Return the VAT on every purchase; VAT on replacements that is not recovered is part of `failures`."""
        stated = StatedFigure("operations.vat.rate", self.rate, "of the price")
        found = []
        for one in owned.purchases:
            paid_usd = self.rate * (1 + owned.duty) * one.once_usd
            back_usd = self.recoverable * paid_usd
            later = self.recovered_after_months and back_usd
            moved = ((0, back_usd), (self.recovered_after_months, -back_usd)) if later else ()
            found.append(_taxed(one, owned.finance, "vat", stated, paid_usd - back_usd, moved))
        return found


class Deployment(OwnerComponent):
    """Deployment cost, paid once at delivery of the servers."""

    usd_per_server: Price
    """Deployment cost per server [USD]."""

    def charges(self, owned: OwnedFleet) -> list[FlatCharge]:
        """Return the deployment cost spread over the life of the servers, a charge per pool.

        Raises CostError if the pools name no server.
        """
        return for_each(owned.fleet, lambda hardware: self._work(hardware, owned.finance))

    def _work(self, hardware: FleetHardware, finance: StraightLine | Annuity) -> list[FlatCharge]:
        servers = countable_servers(hardware, "operations.deployment")
        once = self.usd_per_server.unit_price("server", "operations.deployment.usd_per_server")
        price = once.per("server-h", finance.sunk_usd_per_h(once.usd))
        return [
            FlatCharge("deployment", pool.name, pool.server_id, part, price, PaymentTime.AT_DELIVERY, part * once.usd)
            for pool, part in hardware.per_pool(servers)
        ]


def countable_servers(hardware: FleetHardware, key: str) -> float:
    """Return the number of servers that a price per server applies to. Raises CostError if the pools name none."""
    if hardware.server is None:
        raise CostError(Problem(key, Message("pool {pool_names} names no server to count", hardware.pool_names)))
    return hardware.servers


class Decommissioning(OwnerComponent):
    """Decommissioning cost, paid once at the end of the servers' life."""

    usd_per_server: Price
    """Decommissioning cost per server [USD]."""

    def charges(self, owned: OwnedFleet) -> list[FlatCharge]:
        """Return the decommissioning cost, accumulated over the life of the servers, a charge per pool.

        Raises CostError if the pools name no server.
        """
        return for_each(owned.fleet, lambda hardware: self._work(hardware, owned.finance))

    def _work(self, hardware: FleetHardware, finance: StraightLine | Annuity) -> list[FlatCharge]:
        servers = countable_servers(hardware, "operations.decommissioning")
        once = self.usd_per_server.unit_price("server", "operations.decommissioning.usd_per_server")
        price = once.per("server-h", finance.end_usd_per_h(once.usd))
        return [
            FlatCharge("decommissioning", pool.name, pool.server_id, part, price, PaymentTime.AT_END, part * once.usd)
            for pool, part in hardware.per_pool(servers)
        ]
