"""Delays between the attempts of a client."""

import pytest

from sim.workload.client import Client


@pytest.mark.parametrize(
    ("attempts", "chance", "pause_s"),
    [(1, 0.0, 1.0), (2, 0.0, 2.0), (4, 0.0, 8.0), (5, 0.0, 10.0), (500, 0.0, 10.0), (2, 0.5, 1.8), (5, 0.5, 9.0)],
)
def test_a_delay_doubles_up_to_its_maximum_and_jitter_shortens_it(attempts: int, chance: float, pause_s: float) -> None:
    client = Client(backoff_s=1.0, backoff_most_s=10.0, jitter=0.2)
    assert client.pause_s(attempts, chance) == pytest.approx(pause_s)
