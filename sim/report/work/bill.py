"""The bill of work by component, a column a row of the summary."""

from collections.abc import Sequence

from sim.cost import Ledger
from sim.report.words.money import cash
from sim.report.words.names import name_told
from sim.units import NANO_PER_USD


def component_rows(ledgers: Sequence[Ledger]) -> list[list[str]]:
    """Component, amount in each of *ledgers*; empty where one has none of it."""
    bills = [ledger.by_component() for ledger in ledgers]
    names = list(dict.fromkeys(name for bill in bills for name in bill))
    return [
        [name_told(name), *(cash(bill[name] / NANO_PER_USD) if name in bill else "" for bill in bills)]
        for name in names
    ]
