"""Spare GPUs on the shelf: bought with the others, never in use."""

from typing import ClassVar

from sim.cost.bill.charge import FlatCharge, Stated, purchase
from sim.cost.bill.phases import Unused
from sim.cost.finance.finance import Annuity, StraightLine
from sim.cost.hardware import Hardware
from sim.cost.operations.component import Owned, OwnerComponent, for_each
from sim.cost.operations.replacement import gpu_price
from sim.cost.prices import PriceBook, QuotedPrice
from sim.spec import Fraction

ON_THE_SHELF = Unused(1.0, "reserve")


class Spares(OwnerComponent):
    """A stock of GPUs, so that a failed one is replaced within hours."""

    fraction_of_gpus: Fraction
    """Spare GPUs over GPUs in use; parts of a GPU stand for a stock that is shared with others."""
    gpu_price: QuotedPrice | None = None
    """Of one GPU, where servers come with theirs and the catalogue has no price for a single one."""

    buys: ClassVar[bool] = True

    def charges(self, owned: Owned) -> list[FlatCharge]:
        """The stock, a charge per pool. Raises CostError without a price of a single GPU."""
        return for_each(owned.fleet, lambda hardware: self._stock(hardware, owned.book, owned.finance))

    def _stock(self, hardware: Hardware, book: PriceBook, finance: StraightLine | Annuity) -> list[FlatCharge]:
        each = gpu_price(hardware, book, self.gpu_price, "operations.spares.gpu_price")
        stated = Stated("operations.spares.fraction_of_gpus", self.fraction_of_gpus, "of the GPUs")
        price = each.derived(finance.usd_per_h(each.usd), "GPU-h", stated)
        return [
            purchase("spares", pool.name, pool.server_id, gpus, price, each.usd, ON_THE_SHELF)
            for pool, gpus in hardware.shared(self.fraction_of_gpus * hardware.gpus)
        ]
