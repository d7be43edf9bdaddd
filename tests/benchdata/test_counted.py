"""Requests that pages of metrics counted: they come as they were counted, and those that have not ended count, too."""

import numpy as np
import pytest

from sim.benchdata.counted import Counted, all_answers


def counted(running: float = 0.0, waiting: float = 0.0) -> Counted:
    return Counted(running, waiting, ((10.0, 30.0), (20.0, 30.0), (30.0, 75.0)), answer_s=8.0)


@pytest.mark.parametrize("draw", [0, 1])
def test_requests_come_between_the_pages_that_counted_them(draw: int) -> None:
    empty = Counted(0.0, 0.0, counted().came, 8.0, draw)
    arrivals_s = empty.arrivals_s()
    assert np.all(np.diff(arrivals_s) >= 0)
    assert [int((arrivals_s <= until_s).sum()) for until_s, _ in empty.came] == [30, 30, 75]


def test_a_server_that_ran_before_has_as_many_in_flight_at_the_first_page() -> None:
    pages = counted(running=40.0, waiting=12.0)
    before_s = pages.arrivals_s()[pages.arrivals_s() < pages.begin_s]
    in_service = ((before_s <= pages.begin_s - 4.0) & (before_s + 8.0 > pages.begin_s)).sum()
    assert len(before_s) == 3 * 40 + 12
    assert in_service == pytest.approx(20, abs=5)  # half of them began half an answer ago or earlier
    assert len(pages.arrivals_s()) - len(before_s) == 75


@pytest.mark.parametrize("seconds", [40.0, 2000.0])
@pytest.mark.parametrize("shape", [1.0, 4.0, 25.0])
def test_those_that_have_not_ended_count_as_well(seconds: float, shape: float) -> None:
    """Of a server that fills those that have ended are the short ones; in the long run they are as all are."""
    generator, gap_s = np.random.default_rng(3), 0.04
    starts_s = np.sort(generator.uniform(0, seconds, 3000))
    tokens = generator.gamma(shape, 500 / shape, len(starts_s))
    ended = tokens[starts_s + gap_s * tokens <= seconds]
    pages = Counted(0.0, 0.0, tuple((at, float((starts_s <= at).sum())) for at in np.arange(1.0, seconds + 1)), 20.0)
    seen = float(ended.mean()), float(ended.std() / ended.mean())
    mean, cv = all_answers(seen, len(ended), len(tokens) - len(ended), pages, gap_s)
    assert mean == pytest.approx(tokens.mean(), abs=max(0.02 * tokens.mean(), 0.5 * abs(seen[0] - tokens.mean())))
    assert cv == pytest.approx(tokens.std() / tokens.mean(), rel=0.1)
