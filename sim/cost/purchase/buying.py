"""Buying the hardware and running it at a site."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from sim.cost.bill.charge import FlatCharge
from sim.cost.finance.finance import Annuity, StraightLine
from sim.cost.hardware import Hardware
from sim.cost.prices import CostError, PriceBook, Problem, Quotes
from sim.cost.purchase.gpu_capital import gpu_capital
from sim.cost.purchase.server_capital import server_capital
from sim.spec import Spec


class Buy(Spec):
    """Bought servers and GPUs, at the catalogue's default purchase price unless quoted."""

    acquisition: Literal["buy"]
    quotes: Quotes = Field(default_factory=dict)
    """The planner's own prices by GPU or server id, dollars each; they override data/prices."""
    share: bool = False
    """Pay only for the slots that are used: somebody else fills the rest of the server."""

    def charges(self, fleet: Sequence[Hardware], book: PriceBook, finance: StraightLine | Annuity) -> list[FlatCharge]:
        """Capital of *fleet*, a charge per pool and component. Raises CostError with every price that is missing."""
        result: list[FlatCharge] = []
        problems: dict[Problem, None] = {}
        for hardware in fleet:
            for component in (gpu_capital, server_capital):
                try:
                    result += component(hardware, book, finance)
                except CostError as error:
                    problems.update(dict.fromkeys(error.problems))
        if problems:
            raise CostError(*problems)
        return result
