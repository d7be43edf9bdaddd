"""Switches, cables and storage: a share of what the servers and GPUs cost, bought and written off with them."""

from dataclasses import replace
from typing import ClassVar

from sim.cost.bill.charge import FlatCharge, Stated
from sim.cost.finance.finance import Annuity, StraightLine
from sim.cost.operations.component import Owned, OwnerComponent
from sim.spec import Fraction


class NetworkStorage(OwnerComponent):
    """Network and storage as a share of the hardware's price, where no parts list is at hand."""

    fraction_of_hardware: Fraction
    """Price of network and storage over the price of servers and GPUs."""

    buys: ClassVar[bool] = True

    def charges(self, owned: Owned) -> list[FlatCharge]:
        """Network and storage of every server and GPU bought; they lose value as the hardware does."""
        return [_share(charge, self.fraction_of_hardware, owned.finance) for charge in owned.purchases]


def _share(charge: FlatCharge, fraction: float, finance: StraightLine | Annuity) -> FlatCharge:
    bought_usd = fraction * charge.once_usd
    each_usd = finance.usd_per_h(bought_usd / charge.units_per_h) if charge.units_per_h else 0.0
    stated = Stated("operations.network_storage.fraction_of_hardware", fraction, "of the hardware's price")
    price = charge.price.derived(each_usd, charge.price.unit, stated)
    return replace(charge, component="network_storage", price=price, once_usd=bought_usd)
