"""Traffic of a running fleet for a new scenario, read from a source like Prometheus."""

import pytest
from made_up_fleet import MadeUpFleet

from sim.watch.source import LacksMetrics
from sim.watch.traffic import watched_traffic


@pytest.mark.slow
def test_the_busiest_hour_that_can_be_read_is_the_traffic() -> None:
    fleet = MadeUpFleet(hours=20, daily=0.5)
    busiest = max(range(20), key=fleet.rate)
    found = watched_traffic(fleet)
    assert found.rate_rps == pytest.approx(fleet.rate(busiest), rel=0.01)
    assert found.workload is not None
    assert found.workload["arrivals"] == {"process": "poisson", "rate_rps": found.rate_rps}
    assert found.workload["lengths"]["output"] == {"distribution": "fixed", "value": 10}
    assert found.workload["lengths"]["prompt"]["value"] == 100
    assert (found.model, found.engine, found.observed_servers) == ("m", "vllm", 1)
    fleet.restart_at = 60 * busiest + 30
    assert watched_traffic(fleet).rate_rps < found.rate_rps


def test_a_fleet_without_a_whole_hour_of_requests_has_no_traffic() -> None:
    with pytest.raises(LacksMetrics, match="no whole hour with requests"):
        watched_traffic(MadeUpFleet(hours=1, rate_rps=0.0))
