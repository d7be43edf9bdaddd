"""A maintenance contract: a share of the purchase price every year."""

from dataclasses import replace

from sim.cost.bill.charge import FlatCharge, Follows, Stated
from sim.cost.operations.component import Owned, OwnerComponent
from sim.spec import Fraction
from sim.units import HOURS_PER_YEAR


class Maintenance(OwnerComponent):
    """Support and repair by the maker or a third party."""

    fraction_per_year: Fraction
    """Yearly fee over the purchase price of servers, GPUs, network and storage."""

    def charges(self, owned: Owned) -> list[FlatCharge]:
        """The fee for everything in service; spares wait on the shelf without a contract."""
        return [self._fee(charge) for charge in owned.purchases if charge.component != "spares"]

    def _fee(self, charge: FlatCharge) -> FlatCharge:
        usd_per_h = self.fraction_per_year * charge.once_usd / HOURS_PER_YEAR
        each_usd = usd_per_h / charge.units_per_h if charge.units_per_h else 0.0
        stated = Stated("operations.maintenance.fraction_per_year", self.fraction_per_year, "of the price per year")
        price = charge.price.derived(each_usd, charge.price.unit, stated)
        fee = FlatCharge("maintenance", charge.pool, charge.server, charge.units_per_h, price, unused=charge.unused)
        return replace(fee, follows=Follows.MACHINES)
