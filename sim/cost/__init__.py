"""Money: what a scenario may say about cost, and the ledger: metered quantities times sourced prices.

Open `ledger.py` first, then `plan.py`; each component of the bill is a file of its own.
"""

from sim.cost.finance import Finance
from sim.cost.hardware import PoolFacts
from sim.cost.ledger import Ledger
from sim.cost.phases import PHASES
from sim.cost.plan import Cost, CostPlan, resolve_costs
from sim.cost.prices import CostError, Problem
from sim.cost.site import Site

__all__ = [
    "PHASES",
    "Cost",
    "CostError",
    "CostPlan",
    "Finance",
    "Ledger",
    "PoolFacts",
    "Problem",
    "Site",
    "resolve_costs",
]
