"""Orders: dates and replicas by hand."""

import numpy as np
import pytest
from small_scenario import TINY, variant

from sim.catalogue.catalog import load_catalog
from sim.scenario.reading.load import load
from sim.watch.forecast import LoadForecast
from sim.watch.orders import DAY_S, outlook_of, with_order
from sim.watch.predicted import at_most
from sim.yamlio import Document, parse


def straight(days: int = 60) -> LoadForecast:
    """A load of 1 req/s that grows by 0.1 a day, within 10 %."""
    starts = [3600 * place for place in range(24 * days)]
    median = 1 + 0.1 * np.array(starts) / DAY_S
    return LoadForecast(starts, median, 0.9 * median, 1.1 * median, 0.5, (0.4, 0.6), 0, None, None)


def test_the_order_is_due_a_lead_time_before_the_load_may_reach_the_capacity() -> None:
    found = outlook_of(straight(), 2.2, None, 1.0, replicas=2, lead_days=5, cover_days=10)
    assert [found.early, found.middle, found.late] == [
        pytest.approx(day * DAY_S, abs=3600) for day in (10.0, 12.0, 2.2 / 0.9 * 10 - 10)
    ]
    assert found.order_by == (found.early or 0) - 5 * DAY_S
    assert found.order_by_median == (found.middle or 0) - 5 * DAY_S
    assert found.replicas == 1  # 3.2 req/s on day 22 need 2.9 replicas of 1.1 req/s each


def test_an_order_covers_its_time_and_none_is_needed_below_the_capacity() -> None:
    assert outlook_of(straight(), 2.2, None, 1.0, replicas=2, lead_days=0, cover_days=14).replicas == 2
    found = outlook_of(straight(), 50.0, None, 1.0, replicas=2, lead_days=0, cover_days=14)
    assert (found.early, found.order_by, found.replicas) == (None, None, 0)


@pytest.mark.slow
def test_an_order_keeps_the_ratio_of_the_pools() -> None:
    text = variant(TINY, {"fleets.0.pools.0.replicas": 2})
    fleet = load(Document("tiny.yaml", parse(text), None), (), catalog=load_catalog()).fleets[0]
    pool = fleet.pools[0]
    both = fleet.model_copy(update={"pools": (pool.model_copy(update={"replicas": 1}), pool)})
    for count, expected in ((1, [1, 3]), (2, [2, 3]), (3, [2, 4])):
        assert [one.replicas for one in with_order(both, count).pools] == expected
    assert with_order(fleet, 2).name == "a + 2"


@pytest.mark.slow
def test_an_order_raises_the_limit_of_an_autoscaler() -> None:
    scaling = {"policy": "hpa", "metric": "outstanding_per_replica", "target": 8, "max_replicas": 3}
    values = {"fleets.0.pools.0.autoscaling": scaling, "fleets.0.pools.0.cold_start": {"total_s": 5}}
    fleet = load(Document("tiny.yaml", parse(variant(TINY, values)), None), (), catalog=load_catalog()).fleets[0]
    [pool] = with_order(fleet, 2).pools
    assert (pool.autoscaling.max_replicas, pool.replicas) == (5, 5)
    assert at_most(fleet).pools[0].autoscaling is None
    assert at_most(fleet).pools[0].replicas == 3
