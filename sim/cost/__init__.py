"""Money: what a scenario may say about cost, and the ledger: metered quantities times sourced prices.

Open `ledger.py` first, then `plan.py`; each component of the bill is a file of its own.
"""

from sim.cost.api import Api
from sim.cost.carbon import Carbon, CarbonPlan
from sim.cost.clock import MIDNIGHT, Clock, ClockError, Moment
from sim.cost.finance import Finance
from sim.cost.hardware import PoolFacts
from sim.cost.ledger import Ledger
from sim.cost.money import rated
from sim.cost.multi_year import MultiYear
from sim.cost.operations import Operations
from sim.cost.phases import PHASES
from sim.cost.plan import Cost, CostPlan, resolve_costs
from sim.cost.pools import costs_by_pool
from sim.cost.prices import CostError, Problem
from sim.cost.requests import RequestUse, request_costs
from sim.cost.site import Site
from sim.cost.tariff import Tariff

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
