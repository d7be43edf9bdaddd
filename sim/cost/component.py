"""Base classes of the components of `operations`: a section of the scenario, and its charges.

A new component is a module with such a class, and its field in `operations.py`; the bill, its notes and all readers of
charges find it there.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, TypeVar

from sim.cost.charge import Charge, FlatCharge, StatedFigure
from sim.cost.finance import Annuity, StraightLine
from sim.cost.hardware import FleetHardware
from sim.cost.prices import CostError, PriceBook, Problem, collect
from sim.spec import Spec

ChargeT = TypeVar("ChargeT", bound=Charge)


@dataclass(frozen=True, slots=True)
class OwnedFleet:
    """Bought fleet with its purchases so far, as input of further components."""

    fleet: Sequence[FleetHardware]
    purchases: list[FlatCharge]
    """Purchases of servers, GPUs and preceding components."""
    book: PriceBook
    finance: StraightLine | Annuity
    taxes: tuple[StatedFigure, ...] = ()
    """Taxes on purchases that are not refunded, as fractions of the price: sales tax, import duty, VAT."""
    duty: float = 0.0
    """Import duty as a fraction of the price, on which VAT is charged as well."""


class OwnerComponent(Spec):
    """Component that the owner of the hardware pays: for rented hardware, the landlord."""

    buys: ClassVar[bool] = False
    """True if the charges are purchases, to which tax and maintenance apply."""
    expected: ClassVar[bool] = True
    """True if notes on a bill name the component where it is left out."""

    @abstractmethod
    def charges(self, owned: OwnedFleet) -> list[FlatCharge]:
        """Return the charges for a bought fleet. Raises CostError listing all missing prices and terms."""


class UserComponent(Spec):
    """Component that the user of the hardware pays, whether owner or tenant."""

    expected: ClassVar[bool] = True
    """True if notes on a bill name the component where it is left out."""

    @abstractmethod
    def charges(self, fleet: Sequence[FleetHardware]) -> Sequence[Charge]:
        """Return the charges for *fleet*. Raises CostError listing all missing prices and terms."""


def for_each(fleet: Sequence[FleetHardware], price: Callable[[FleetHardware], Sequence[ChargeT]]) -> list[ChargeT]:
    """Return the charges that *price* gives for each hardware of *fleet*. Raises CostError with all problems."""
    problems: list[Problem] = []
    found = [charge for hardware in fleet for charge in collect(problems, partial(price, hardware))]
    if problems:
        raise CostError(*problems)
    return found
