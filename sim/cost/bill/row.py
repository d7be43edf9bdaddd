"""Row of the bill."""

from dataclasses import dataclass


@dataclass(slots=True)
class LedgerRow:
    """One amount of money, traceable to its quantity, price and source."""

    start_s: float
    end_s: float
    pool: str
    server: str
    component: str
    phase: str
    quantity: float
    unit: str
    unit_price_usd: float
    amount_nano_usd: int
    currency: str
    amount_in_currency: float
    fx_rate: float
    source: str
