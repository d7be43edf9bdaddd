"""Replacement of failed GPUs: price of a single GPU, expected failures per year, and a stock of spares."""

from collections.abc import Sequence
from dataclasses import replace
from math import fsum
from typing import ClassVar, Self

from pydantic import model_validator

from sim.cost.charge import FlatCharge, MarketPrice, StatedFigure, UnitPrice, purchase
from sim.cost.component import OwnedFleet, OwnerComponent, for_each
from sim.cost.finance import Annuity, StraightLine
from sim.cost.hardware import FleetHardware, PoolFacts
from sim.cost.metering import IdleShare
from sim.cost.prices import CostError, Price, PriceBook, Problem, Quote, QuotedPrice, RateMissing
from sim.message import Message, joined
from sim.spec import Fraction, NonNegative
from sim.units import HOURS_PER_YEAR


def gpu_price(hardware: FleetHardware, book: PriceBook, stated: Quote | None, key: str) -> UnitPrice:
    """Return the price of one GPU of *hardware*: *stated* at *key*, else the quote, else the catalogue's.

    Raises CostError if none is known.
    """
    if stated is not None:
        return book.stated(stated, "each", key)
    try:
        return book.purchase(hardware.gpu).price
    except RateMissing:
        raise
    except CostError as error:
        text = joined("; ", [problem.text for problem in error.problems])
        raise CostError(Problem(key, Message("{text}; or state it here", text))) from error


class FailureCost(OwnerComponent):
    """Expected cost of failed GPUs, at a rate given here or, without one, the rate of each pool's `failures.gpu`.

    The outage of the GPUs is simulated where a pool has `failures`.

    Notes
    -----
    failures * (handling + (1 - covered_fraction) * GPU price * (1 + taxes)) per year.

    """

    per_gpu_year: NonNegative | None = None
    """Failures per GPU and year: about 0.09 on H100 with their memory (Llama 3 training: 220 in 54 days on 16,384)."""
    rate: str | None = None
    """Id of a GPU failure rate in data/failures, in place of `per_gpu_year`; a pool's `failures` may name the same
    rate."""
    covered_fraction: Fraction = 0.0
    """Fraction of replacements that warranty or the maintenance contract pays; the others carry `sales_tax`."""
    handling_usd: Price = Price(price=0.0)
    """Work and freight per replacement, covered or not."""
    gpu_price: QuotedPrice | None = None
    """Price of one GPU, for servers that include GPUs for which the catalogue has no single price."""

    @model_validator(mode="after")
    def _one_rate(self) -> Self:
        if self.per_gpu_year is not None and self.rate is not None:
            raise ValueError("per_gpu_year and rate (an id in data/failures) give the same quantity: give one of them")
        return self

    def at(self, mtbf_h: float) -> Self:
        """Return a copy with the failure rate given as a mean time between failures of one GPU [h]."""
        # model_copy does not validate, so that `rate` and `per_gpu_year` may both be set
        return self.model_copy(update={"per_gpu_year": HOURS_PER_YEAR / mtbf_h})

    @model_validator(mode="after")
    def _something_costs(self) -> Self:
        if self.covered_fraction == 1 and self.gpu_price is not None:
            raise ValueError("covered_fraction: 1 leaves nothing to pay gpu_price for")
        return self

    def charges(self, owned: OwnedFleet) -> list[FlatCharge]:
        """Return the cost of replacements, a charge per pool. Raises CostError without a rate or a GPU price."""
        return for_each(owned.fleet, lambda hardware: self._replacements(hardware, owned.book, owned.taxes))

    def _replacements(
        self, hardware: FleetHardware, book: PriceBook, taxes: Sequence[StatedFigure]
    ) -> list[FlatCharge]:
        yearly = [self._per_gpu_year(pool) for pool in hardware.pools]
        covered = StatedFigure("operations.failures.covered_fraction", self.covered_fraction, "of the replacements")
        others = [self.handling_usd.stated("operations.failures.handling_usd"), covered]
        handling = self.handling_usd
        paid_usd = handling.usd
        price = UnitPrice(handling.usd, "failure", "", handling.currency, handling.fx_rate)
        if self.covered_fraction < 1:
            price = gpu_price(hardware, book, self.gpu_price, "operations.failures.gpu_price")
            paid_usd += (1 - self.covered_fraction) * price.usd * (1 + fsum(tax.value for tax in taxes))
            others += taxes
        of_gpus = 1 - handling.usd / paid_usd if paid_usd else 0.0
        found = []
        for place, rate in enumerate(yearly):
            pool, failures_per_h = hardware.per_pool(rate.value * hardware.gpus / HOURS_PER_YEAR)[place]
            per_failure = price.derived(paid_usd, "failure", rate, *others)
            charge = FlatCharge("failures", pool.name, pool.server_id, failures_per_h, per_failure)
            found.append(replace(charge, follows=MarketPrice.HARDWARE, follows_share=of_gpus))
        return found

    def _per_gpu_year(self, pool: PoolFacts) -> StatedFigure:
        """Return the failures per GPU and year of *pool*, with the scenario key. Raises CostError if unknown."""
        unit = "failures per GPU and year"
        if self.per_gpu_year is not None:
            key = "per_gpu_year" if self.rate is None else "rate"
            return StatedFigure(f"operations.failures.{key}", self.per_gpu_year, unit)
        if pool.gpu_mtbf_h is None:
            text = Message(
                "give per_gpu_year or rate: pool {name} has no failures.gpu whose rate could be booked", pool.name
            )
            raise CostError(Problem("operations.failures", text))
        return StatedFigure(f"pools.{pool.name}.failures.gpu", HOURS_PER_YEAR / pool.gpu_mtbf_h, unit)


ON_THE_SHELF = IdleShare(1.0, "reserve")


class SpareStock(OwnerComponent):
    """Stock of spare GPUs, so that a failed one is replaced within hours."""

    fraction_of_gpus: Fraction
    """Spare GPUs divided by GPUs in use; a fraction of a GPU represents a stock shared with others."""
    gpu_price: QuotedPrice | None = None
    """Price of one GPU, for servers that include GPUs for which the catalogue has no single price."""

    buys: ClassVar[bool] = True

    def charges(self, owned: OwnedFleet) -> list[FlatCharge]:
        """Return the cost of the stock, a charge per pool. Raises CostError without a price of a single GPU."""
        return for_each(owned.fleet, lambda hardware: self._stock(hardware, owned.book, owned.finance))

    def _stock(self, hardware: FleetHardware, book: PriceBook, finance: StraightLine | Annuity) -> list[FlatCharge]:
        each = gpu_price(hardware, book, self.gpu_price, "operations.spares.gpu_price")
        stated = StatedFigure("operations.spares.fraction_of_gpus", self.fraction_of_gpus, "of the GPUs")
        price = each.derived(finance.usd_per_h(each.usd), "GPU-h", stated)
        return [
            purchase("spares", pool.name, pool.server_id, gpus, price, each.usd, ON_THE_SHELF)
            for pool, gpus in hardware.per_pool(self.fraction_of_gpus * hardware.gpus)
        ]
