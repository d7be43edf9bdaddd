"""Money: what a scenario may say about cost, and the ledger: metered quantities times sourced prices.

Open `ledger.py` first, then `cost_plan.py`. A component of the bill is a class in a file of its own or beside its
like, and a field in `operations.py`.
"""

from sim.cost.carbon import Carbon, CarbonPlan
from sim.cost.clock import MIDNIGHT, Clock, ClockError, Moment
from sim.cost.cost_plan import Cost, CostPlan, costs_by_pool, resolve_costs
from sim.cost.currency import rated
from sim.cost.electricity import Tariff
from sim.cost.finance import Finance
from sim.cost.hardware import PoolFacts
from sim.cost.ledger import Ledger, RequestUse, request_costs
from sim.cost.metering import PHASES
from sim.cost.multi_year import MultiYear
from sim.cost.operations import Operations
from sim.cost.price_book import CostError, Problem
from sim.cost.site import Site
from sim.cost.token_api import Api

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
