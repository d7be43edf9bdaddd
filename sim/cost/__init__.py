"""Money: what a scenario may say about cost, and the ledger: metered quantities times sourced prices.

Open `ledger.py` first, then `plan.py`; each component of the bill is a file of its own.
"""

from sim.cost.bill.ledger import Ledger
from sim.cost.bill.phases import PHASES
from sim.cost.bill.requests import RequestUse, request_costs
from sim.cost.cost_plan import Cost, CostPlan, resolve_costs
from sim.cost.finance.finance import Finance
from sim.cost.finance.multi_year import MultiYear
from sim.cost.hardware import PoolFacts
from sim.cost.money import rated
from sim.cost.operations.operations import Operations
from sim.cost.pools import costs_by_pool
from sim.cost.prices import CostError, Problem
from sim.cost.rent.api import Api
from sim.cost.site.carbon import Carbon, CarbonPlan
from sim.cost.site.clock import MIDNIGHT, Clock, ClockError, Moment
from sim.cost.site.site import Site
from sim.cost.site.tariff import Tariff

__all__ = [
    "MIDNIGHT",
    "PHASES",
    "Api",
    "Carbon",
    "CarbonPlan",
    "Clock",
    "ClockError",
    "Cost",
    "CostError",
    "CostPlan",
    "Finance",
    "Ledger",
    "Moment",
    "MultiYear",
    "Operations",
    "PoolFacts",
    "Problem",
    "RequestUse",
    "Site",
    "Tariff",
    "costs_by_pool",
    "rated",
    "request_costs",
    "resolve_costs",
]
