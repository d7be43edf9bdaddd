"""A maintenance contract: a share of the purchase price every year."""

from collections.abc import Sequence

from sim.cost.bill.charge import FlatCharge, Follows, Stated
from sim.spec import NonNegative, Spec
from sim.units import HOURS_PER_YEAR


class Maintenance(Spec):
    """Support and repair by the maker or a third party."""

    fraction_per_year: NonNegative
    """Yearly fee over the purchase price of servers, GPUs, network and storage."""

    def charges(self, bought: Sequence[FlatCharge]) -> list[FlatCharge]:
        """The fee for every purchase in *bought*."""
        return [self._fee(charge) for charge in bought]

    def _fee(self, charge: FlatCharge) -> FlatCharge:
        usd_per_h = self.fraction_per_year * charge.once_usd / HOURS_PER_YEAR
        each_usd = usd_per_h / charge.units_per_h if charge.units_per_h else 0.0
        stated = Stated("operations.maintenance.fraction_per_year", self.fraction_per_year, "of the price per year")
        price = charge.price.derived(each_usd, charge.price.unit, stated)
        return FlatCharge(
            "maintenance", charge.pool, charge.server, charge.units_per_h, price, follows=Follows.MACHINES
        )
