"""What every component of `operations` is: a section of the scenario, and the charges that follow from it.

A new component is a file with such a class, and its field in `operations.py`; the bill, its notes and whoever reads
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

Priced = TypeVar("Priced", bound=Charge)


@dataclass(frozen=True, slots=True)
class Owned:
    """A bought fleet, as far as its bill has come."""

    fleet: Sequence[FleetHardware]
    purchases: list[FlatCharge]
    """Servers, GPUs, and what components before the present one have bought."""
    book: PriceBook
    finance: StraightLine | Annuity
    sales_tax: StatedFigure | None = None
    """Rate of the sales tax on what is bought; None: there is none."""


class OwnerComponent(Spec):
    """A component that the owner of the hardware pays: of rented hardware it is the landlord's."""

    buys: ClassVar[bool] = False
    """Whether its charges are purchases, to which tax and maintenance apply."""

    @abstractmethod
    def charges(self, owned: Owned) -> list[FlatCharge]:
        """The component's charges for a bought fleet. Raises CostError with every price or term that is missing."""


class UserComponent(Spec):
    """A component that whoever uses the hardware pays, an owner or a tenant."""

    @abstractmethod
    def charges(self, fleet: Sequence[FleetHardware]) -> Sequence[Charge]:
        """The component's charges for *fleet*. Raises CostError with every price or term that is missing."""


def for_each(fleet: Sequence[FleetHardware], price: Callable[[FleetHardware], Sequence[Priced]]) -> list[Priced]:
    """The charges that *price* gives for each hardware of *fleet*. Raises CostError with the problems of all."""
    problems: list[Problem] = []
    found = [charge for hardware in fleet for charge in collect(problems, partial(price, hardware))]
    if problems:
        raise CostError(*problems)
    return found
