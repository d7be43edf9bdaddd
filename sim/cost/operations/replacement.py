"""What one more GPU costs: for spares and for those that fail."""

from sim.cost.bill.charge import UnitPrice
from sim.cost.hardware import Hardware
from sim.cost.prices import CostError, PriceBook, Problem, Quote, RateMissing


def gpu_price(hardware: Hardware, book: PriceBook, stated: Quote | None, key: str) -> UnitPrice:
    """Price of one GPU of *hardware*: *stated* under *key*, else the quote, else the catalogue's. Raises CostError."""
    if stated is not None:
        return book.stated(stated, "each", key)
    try:
        return book.purchase(hardware.gpu).price
    except RateMissing:
        raise
    except CostError as error:
        text = "; ".join(problem.text for problem in error.problems)
        raise CostError(Problem(key, f"{text}; or state it here")) from error
