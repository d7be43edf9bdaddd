"""Price of a GPU-hour from a published list."""

import re
from dataclasses import dataclass
from datetime import date

from sim.answers.from_files.source import FileErrors
from sim.message import Message

ON_DEMAND, SPOT, ONE_YEAR, THREE_YEARS = "on demand", "spot", "1-year reserved", "3-year reserved"
TERMS = {
    "on demand": ON_DEMAND,
    "on-demand": ON_DEMAND,
    "ondemand": ON_DEMAND,
    "consumption": ON_DEMAND,
    "spot": SPOT,
    "preemptible": SPOT,
    "interruptible": SPOT,
    "1yr": ONE_YEAR,
    "1 year": ONE_YEAR,
    "1-year reserved": ONE_YEAR,
    "commit1yr": ONE_YEAR,
    "3yr": THREE_YEARS,
    "3 years": THREE_YEARS,
    "3-year reserved": THREE_YEARS,
    "commit3yr": THREE_YEARS,
}
"""Terms by their names in lists."""


class PriceListErrors(FileErrors):
    """Mistakes in price lists; the message has a line `file:line: mistake` per mistake."""


@dataclass(frozen=True, slots=True)
class PriceRow:
    """Price of one GPU-hour of a kind of GPU from a provider, in a region, on stated terms, at a date."""

    gpu: str
    """Id of the GPU."""
    provider: str
    region: str
    terms: str
    price: float
    """Price of a GPU-hour in `currency`."""
    currency: str
    as_of: date
    where: str
    """Instance type and the price as listed."""

    @property
    def item(self) -> str:
        """Id of the price list: provider and GPU."""
        return f"{slug(self.provider)}-{self.gpu}"

    @property
    def offer(self) -> str:
        """Name of the offer in its list: region, terms and date."""
        return "-".join(filter(None, [slug(self.region), slug(self.terms), self.as_of.isoformat()]))

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Provider, GPU, region and terms, by which the prices of two lists are matched."""
        return self.provider, self.gpu, self.region, self.terms


def slug(text: str) -> str:
    """Return *text* as part of an id.

    >>> slug("Lambda Cloud (US)")
    'lambda-cloud-us'
    """
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")


def terms_of(text: str) -> str:
    """Return the terms that a list calls *text*; unknown text stays."""
    return TERMS.get(text.strip().lower(), text.strip().lower() or ON_DEMAND)


def day_of(text: str) -> date:
    """Return the date of a time stamp such as 2026-11-01T00:00:00Z. Raises ValueError."""
    try:
        return date.fromisoformat(text.strip()[:10])
    except ValueError:
        raise ValueError(Message("{text!r} is not a date: 2026-11-01 is needed", text[:30])) from None
