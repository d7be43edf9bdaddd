from datetime import date

import pytest
from pydantic import TypeAdapter

from sim.catalogue.market import Offer, PriceList
from sim.catalogue.server import Server
from sim.catalogue.value import Value
from sim.cost.cost_plan import Cost, resolve_costs
from sim.cost.finance import Finance
from sim.cost.hardware import PoolFacts
from sim.cost.operations import Operations
from sim.cost.site import Site
from sim.cost.token_api import Api
from sim.records import Interval

COST: TypeAdapter[Cost] = TypeAdapter(Cost)
FINANCE: TypeAdapter[Finance] = TypeAdapter(Finance)
"""Built once: that takes longer than most tests of costs."""


def sourced(value):
    return Value(value=value, source="test", kind="quoted", as_of=date(2024, 7, 1))


def offer(price, what="purchase", unit="each", **more):
    return Offer(what=what, price=sourced(price), unit=unit, **more)


def price_list(item, default=None, **offers):
    return PriceList(id=item, item=item, default_purchase=default, offers=offers)


PRICES = {
    "card": price_list("card", "new", new=offer(1900), used=offer(900), cloud=offer(0.4, "rental", "gpu_hour")),
    "box": price_list("box", "bare", bare=offer(3400, includes_gpus=0), old=offer(1000, includes_gpus=0)),
    "full": price_list("full", "whole", whole=offer(300_000, includes_gpus=8)),
    "silent": price_list("silent", "one", one=offer(9000)),
    "gpt": price_list(
        "gpt", read=offer(2, "api", "million_input_tokens"), write=offer(2, "api", "million_output_tokens")
    ),
    "cluster": price_list("cluster", day=offer(2000, "rental", "instance_day", currency="RMB", includes_gpus=8)),
}


@pytest.fixture(scope="session")
def make_pool():
    """Pool of cards in servers of four slots with a rated power of 2 kW, by default."""

    def make(name="p", gpus=4, replicas=1, server="box", slots=4, nameplate_w=2000.0, gpu="card", tdp_w=400.0):
        chassis = Server(
            id=server,
            name=server,
            gpu_slots=sourced(slots),
            link="pcie",
            base_power_w=sourced(250),
            psu_efficiency=sourced(0.94),
        )
        return PoolFacts(
            name=name,
            gpu=gpu,
            gpus_per_replica=gpus,
            replicas=replicas,
            server=chassis if server else None,
            nameplate_w=nameplate_w if server else None,
            gpu_tdp_w=tdp_w,
        )

    return make


@pytest.fixture(scope="session")
def resolve():
    """`resolve_costs` from what YAML would say, over a small catalogue of prices."""
    site = {"electricity_usd_per_kwh": 0.1, "pue": 1.0}
    finance = {"method": "straight_line", "life_years": 3}

    def run(cost, *pools, site=site, finance=finance, clock=None, operations=None, api=None):
        return resolve_costs(
            COST.validate_python(cost),
            None if site is None else Site.model_validate(site),
            None if finance is None else FINANCE.validate_python(finance),
            pools,
            PRICES.get,
            clock,
            None if operations is None else Operations.model_validate(operations),
            None if api is None else Api.model_validate(api),
        )

    return run


@pytest.fixture(scope="session")
def make_interval():
    """Return a function that makes the interval of a replica with *gpus* GPUs in [start_s, end_s)."""

    def make(
        start_s, end_s, *, pool="p", replica=0, gpus=4, busy=0.0, prefill=0.0, recompute=0.0, wall_w=1e3, idle_w=100.0
    ):
        """Busy time is split by *prefill* and *recompute*; power while busy is even, and *wall_w* in the mean."""
        duration_s = end_s - start_s
        busy_s = busy * duration_s
        wall_j = wall_w * duration_s
        idle_j = min(idle_w * (duration_s - busy_s), wall_j) if busy else wall_j
        return Interval(
            pool=pool,
            server="box",
            replica=replica,
            state="serving",
            start_s=start_s,
            end_s=end_s,
            gpu_s=gpus * duration_s,
            busy_s=busy_s,
            prefill_s=prefill * busy_s,
            recompute_s=recompute * busy_s,
            server_energy_j=wall_j,
            prefill_energy_j=prefill * (wall_j - idle_j),
            recompute_energy_j=recompute * (wall_j - idle_j),
            idle_energy_j=idle_j,
        )

    return make
