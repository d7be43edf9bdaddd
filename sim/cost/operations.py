"""Operations section: components of total cost of ownership beyond hardware, space and electricity."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, get_args

from sim.cost.acquisition import (
    Decommissioning,
    Deployment,
    ImportDuty,
    NetworkStorage,
    SalesTax,
    ValueAddedTax,
)
from sim.cost.charge import Charge, FlatCharge
from sim.cost.component import OwnedFleet, OwnerComponent, UserComponent
from sim.cost.egress import Egress
from sim.cost.finance import Annuity, StraightLine
from sim.cost.hardware import FleetHardware
from sim.cost.prices import CostError, PriceBook, Problem, collect
from sim.cost.replacement import FailureCost, SpareStock
from sim.cost.upkeep import Insurance, MaintenanceContract, PropertyTax, Software, Staff
from sim.message import Message
from sim.spec import Spec


class Operations(Spec):
    """Further components of total cost of ownership, in the order of the bill.

    A component that is left out is not charged, as the report states.
    """

    network_storage: NetworkStorage | None = None
    """Switches, cables and storage, as a fraction of the hardware's price."""
    spares: SpareStock | None = None
    """Stock of spare GPUs."""
    sales_tax: SalesTax | None = None
    """Sales tax on all purchases, including replaced GPUs."""
    import_duty: ImportDuty | None = None
    """Import duty on all purchases, including replaced GPUs."""
    vat: ValueAddedTax | None = None
    """VAT or GST on all purchases and their import duty, of which a part is recovered."""
    maintenance: MaintenanceContract | None = None
    """Maintenance contract at a fraction of the purchase price per year."""
    property_tax: PropertyTax | None = None
    """Property tax on the machines' book value."""
    insurance: Insurance | None = None
    """Insurance of the machines' book value."""
    failures: FailureCost | None = None
    """Replacement of failed GPUs."""
    deployment: Deployment | None = None
    """Deployment, paid once at delivery."""
    decommissioning: Decommissioning | None = None
    """Decommissioning, paid once at the end of life."""
    staff: Staff | None = None
    """Salaries, allocated over the machines that the team operates."""
    software: Software | None = None
    """Software licences."""
    egress: Egress | None = None
    """Outgoing data."""

    def bought_charges(
        self,
        fleet: Sequence[FleetHardware],
        capital: Sequence[FlatCharge],
        book: PriceBook,
        finance: StraightLine | Annuity,
    ) -> list[Charge]:
        """Return the charges of all components for a bought *fleet*; *capital* is its hardware. Raises CostError."""
        problems: list[Problem] = []
        duty = 0.0 if self.import_duty is None else self.import_duty.fraction_of_purchases
        taxes = [one.stated for one in (self.sales_tax, self.import_duty) if one is not None]
        taxes += [self.vat.lost(duty)] if self.vat is not None and self.vat.recoverable < 1 else []
        owned = OwnedFleet(fleet, [*capital], book, finance, tuple(taxes), duty)
        added: list[Charge] = []
        for component in self._stated.values():
            if not isinstance(component, OwnerComponent):
                continue
            charges = collect(problems, partial(component.charges, owned))
            added += charges
            owned.purchases.extend(charges if component.buys else ())
        added += collect(problems, lambda: self.rented_charges(fleet))
        if problems:
            raise CostError(*dict.fromkeys(problems))
        return added

    def rented_charges(self, fleet: Sequence[FleetHardware]) -> list[Charge]:
        """Return the charges of the components that tenants pay for, too. Raises CostError."""
        problems: list[Problem] = []
        added = [
            charge
            for component in self._stated.values()
            if isinstance(component, UserComponent)
            for charge in collect(problems, partial(component.charges, fleet))
        ]
        if problems:
            raise CostError(*problems)
        return added

    @property
    def landlords(self) -> list[str]:
        """Names of the stated components that the landlord pays for rented hardware."""
        return [name for name, component in self._stated.items() if isinstance(component, OwnerComponent)]

    @property
    def _stated(self) -> dict[str, OwnerComponent | UserComponent]:
        """Components that the scenario states, in the order of the bill."""
        components = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: component for name, component in components.items() if component is not None}


def left_out(operations: Operations | None, rented: bool) -> Iterator[str]:
    """Yield a sentence for the report that names the components missing from this bill; nothing if complete."""
    kinds = UserComponent if rented else (OwnerComponent, UserComponent)
    applying = [name for name, field in Operations.model_fields.items() if _is_expected(field.annotation, kinds)]
    missing = [name for name in applying if operations is None or getattr(operations, name) is None]
    if missing:
        yield Message("Left out of the bill: {costs}.", in_words(missing))


def in_words(components: Sequence[str]) -> str:
    """Return the names of *components* for a sentence.

    >>> in_words(["network_storage", "sales_tax"])
    'network and storage, sales tax'
    """
    shown = {"network_storage": "network and storage", "vat": "VAT"}
    return ", ".join(shown.get(name, name) for name in components).replace("_", " ")


def _is_expected(annotation: Any, kinds: type[Spec] | tuple[type[Spec], ...]) -> bool:
    """Return whether a field of type *annotation*, `Component | None`, is one of *kinds* that bills usually have."""
    found = [one for one in get_args(annotation) if isinstance(one, type) and issubclass(one, kinds)]
    return any(getattr(one, "expected", True) for one in found)
