"""Tax and duties on what is bought, where they are not refunded."""

from dataclasses import replace

from sim.cost.bill.charge import FlatCharge, Stated
from sim.cost.finance.finance import Annuity, StraightLine
from sim.cost.operations.component import Owned, OwnerComponent
from sim.spec import Fraction


class SalesTax(OwnerComponent):
    """Sales tax, VAT or import duty that the buyer pays."""

    fraction_of_purchases: Fraction
    """Tax over the purchase prices, those of replaced GPUs included; a resale does not bring it back."""

    @property
    def stated(self) -> Stated:
        """The rate as the scenario has it."""
        return Stated("operations.sales_tax.fraction_of_purchases", self.fraction_of_purchases, "of the price")

    def charges(self, owned: Owned) -> list[FlatCharge]:
        """The tax on every purchase, spread over the life; `failures` carries that on replacements."""
        return [self._tax(charge, owned.finance) for charge in owned.purchases]

    def _tax(self, charge: FlatCharge, finance: StraightLine | Annuity) -> FlatCharge:
        paid_usd = self.fraction_of_purchases * charge.once_usd
        each_usd = finance.sunk_usd_per_h(paid_usd / charge.units_per_h) if charge.units_per_h else 0.0
        price = charge.price.derived(each_usd, charge.price.unit, self.stated)
        return replace(charge, component="sales_tax", price=price, once_usd=paid_usd, resold=False)
