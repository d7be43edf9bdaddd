"""Switches, cables and storage: a share of what the servers and GPUs cost, bought and written off with them."""

from collections.abc import Sequence
from dataclasses import replace

from sim.cost.bill.charge import FlatCharge, Stated
from sim.cost.finance.finance import Annuity, StraightLine
from sim.spec import NonNegative, Spec


class NetworkStorage(Spec):
    """Network and storage as a share of the hardware's price, where no parts list is at hand."""

    fraction_of_hardware: NonNegative
    """Price of network and storage over the price of servers and GPUs."""

    def charges(self, hardware: Sequence[FlatCharge], finance: StraightLine | Annuity) -> list[FlatCharge]:
        """For every purchase in *hardware*, its network and storage; they lose value as the hardware does."""
        return [_share(charge, self.fraction_of_hardware, finance) for charge in hardware]


def _share(charge: FlatCharge, fraction: float, finance: StraightLine | Annuity) -> FlatCharge:
    bought_usd = fraction * charge.once_usd
    each_usd = finance.usd_per_h(bought_usd / charge.units_per_h) if charge.units_per_h else 0.0
    stated = Stated("operations.network_storage.fraction_of_hardware", fraction, "of the hardware's price")
    price = charge.price.derived(each_usd, charge.price.unit, stated)
    return replace(charge, component="network_storage", price=price, once_usd=bought_usd)
