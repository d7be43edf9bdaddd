"""What a finance department adds to hardware, space and electricity; each component is a file of its own."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from sim.cost.bill.charge import Charge, FlatCharge
from sim.cost.finance.finance import Annuity, StraightLine
from sim.cost.hardware import Hardware
from sim.cost.operations.egress import Egress
from sim.cost.operations.failures import Failures
from sim.cost.operations.maintenance import Maintenance
from sim.cost.operations.software import Software
from sim.cost.operations.staff import Staff
from sim.cost.prices import CostError, PriceBook, Problem, collect
from sim.cost.purchase.decommissioning import Decommissioning
from sim.cost.purchase.deployment import Deployment
from sim.cost.purchase.network_storage import NetworkStorage
from sim.cost.purchase.spares import Spares
from sim.cost.purchase.tax import Tax
from sim.spec import Spec

OWNERS = ("network_storage", "spares", "tax", "maintenance", "failures", "deployment", "decommissioning")
"""Components that a landlord pays when hardware is rented."""


class Operations(Spec):
    """The rest of total cost of ownership; a component that is left out is not charged, and the report says so."""

    network_storage: NetworkStorage | None = None
    """Switches, cables, storage, as a share of the hardware's price."""
    spares: Spares | None = None
    """GPUs on the shelf."""
    tax: Tax | None = None
    """On all purchases."""
    maintenance: Maintenance | None = None
    """A contract at a share of the purchase price a year."""
    failures: Failures | None = None
    """Replacement of GPUs that fail."""
    deployment: Deployment | None = None
    """Once, at the start."""
    decommissioning: Decommissioning | None = None
    """Once, at the end."""
    staff: Staff | None = None
    """Salaries over the machines that the team looks after."""
    software: Software | None = None
    """Licences."""
    egress: Egress | None = None
    """Outgoing data."""

    def bought_charges(
        self,
        fleet: Sequence[Hardware],
        capital: Sequence[FlatCharge],
        book: PriceBook,
        finance: StraightLine | Annuity,
    ) -> list[Charge]:
        """All components for a bought *fleet* whose hardware is charged by *capital*. Raises CostError."""
        problems: list[Problem] = []
        bought = list(capital)
        if self.network_storage is not None:
            bought += self.network_storage.charges(capital, finance)
        if self.spares is not None:
            bought += _each(problems, fleet, partial(self.spares.charges, book=book, finance=finance))
        added: list[Charge] = [*bought[len(capital) :]]
        if self.tax is not None:
            added += self.tax.charges(bought, finance)
        if self.maintenance is not None:
            added += self.maintenance.charges([charge for charge in bought if charge.component != "spares"])
        if self.failures is not None:
            added += _each(problems, fleet, partial(self.failures.charges, book=book))
        for once in (self.deployment, self.decommissioning):
            if once is not None:
                added += _each(problems, fleet, partial(once.charges, finance=finance))
        added += collect(problems, lambda: self.rented_charges(fleet))
        if problems:
            raise CostError(*dict.fromkeys(problems))
        return added

    def rented_charges(self, fleet: Sequence[Hardware]) -> list[Charge]:
        """The components that a tenant pays too. Raises CostError."""
        problems: list[Problem] = []
        added: list[Charge] = []
        for component in (self.staff, self.software):
            if component is not None:
                added += _each(problems, fleet, component.charges)
        if self.egress is not None:
            added += [self.egress.charge(pool) for hardware in fleet for pool in hardware.pools]
        if problems:
            raise CostError(*problems)
        return added


def left_out(operations: Operations | None, rented: bool) -> Iterator[str]:
    """A sentence for the report that names the components nobody pays for in this bill."""
    applying = [name for name in Operations.model_fields if not (rented and name in OWNERS)]
    missing = [name for name in applying if operations is None or getattr(operations, name) is None]
    if missing:
        yield f"Left out of the bill: {', '.join(missing).replace('_', ' and ')}."


def _each(
    problems: list[Problem], fleet: Sequence[Hardware], price: Callable[[Hardware], Sequence[FlatCharge]]
) -> list[FlatCharge]:
    return [charge for hardware in fleet for charge in collect(problems, partial(price, hardware))]
