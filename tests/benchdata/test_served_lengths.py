"""Requests that pages of metrics counted: they come as they were counted, and those that have not ended count, too."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from sim.benchdata.row import BenchRow, CountedTraffic
from sim.benchdata.served.lengths import TokenProgress, all_answers, remaining_answers
from sim.fidelity.calibration import run_count

CAME = ((10.0, 30.0), (20.0, 30.0), (30.0, 75.0))


@pytest.mark.parametrize("draw", [0, 1])
@pytest.mark.parametrize("running", [0, 40])
def test_requests_come_between_the_pages_that_counted_them(running: int, draw: int) -> None:
    pages = CountedTraffic(tuple(10.0 * number for number in range(running)), 12.0, CAME, 500.0, 0.03, draw)
    arrivals_s = pages.arrivals_s()
    assert np.all(np.diff(arrivals_s) >= 0)
    by_then = [int((arrivals_s <= pages.begin_s + until_s).sum()) for until_s in (0.0, 10.0, 20.0, 30.0)]
    assert by_then == [running + 12, running + 42, running + 42, running + 87]
    assert pages.end_s == pages.begin_s + 30.0
    made = pages.running_answers() - np.array(pages.remaining)
    assert np.all(np.diff(made) < 0)  # who has the least left has made the most
    assert made == pytest.approx((pages.begin_s - arrivals_s[:running]) / 0.03, abs=0.5)


def test_parts_of_one_stretch_are_one_run() -> None:
    """Only another run narrows the interval of what is predicted."""
    row = BenchRow(2, "a", "l40s", "llama3.1-8b")
    parts = [
        replace(row, counted=CountedTraffic((), 0.0, CAME, 500.0, 0.03, recording=name)) for name in ("x", "x", "y")
    ]
    assert (run_count(parts[:2]), run_count(parts), run_count([row, row, *parts])) == (1, 2, 4)


def seen(
    answers: NDArray[np.float64], starts: NDArray[np.float64], length: float
) -> tuple[TokenProgress, tuple[float, float]]:
    """Pages at every ten tokens from 0 to *length*, and (mean, spread over mean) of the answers that ended there."""
    at, ends = np.arange(0.0, length + 1, 10.0), starts + answers
    ended = answers[(ends > 0) & (ends <= length)]
    running = [float(((starts <= moment) & (ends > moment)).sum()) for moment in (0.0, at[-1])]
    counts = [np.searchsorted(np.sort(moments[moments > 0]), at, side="right") for moments in (starts, ends)]
    pace = TokenProgress(at, counts[0].astype(float), counts[1].astype(float), (running[0], running[1]))
    return pace, (float(ended.mean()), float(ended.std() / ended.mean()))


@pytest.mark.parametrize("since", [0.0, -20_000.0])
@pytest.mark.parametrize("length", [1000.0, 20_000.0])
@pytest.mark.parametrize("shape", [2.0, 4.0, 25.0])
def test_those_that_have_not_ended_count_as_well(since: float, length: float, shape: float) -> None:
    """On a server that fills up, finished answers are shorter than the mean; in the long run they are not."""
    generator = np.random.default_rng(3)
    starts = np.sort(generator.uniform(since, length, round(2 * (length - since))))
    answers = generator.gamma(shape, 500 / shape, len(starts))
    pace, (mean, cv) = seen(answers, starts, length)
    found, spread = all_answers(mean, cv, pace)
    assert (type(found), type(spread)) == (float, float)  # they go into a file
    assert found == pytest.approx(500, abs=max(25.0, 0.5 * abs(mean - 500)))
    assert spread == pytest.approx(shape**-0.5, rel=0.15)


@pytest.mark.parametrize("shape", [2.0, 25.0])
def test_what_a_running_request_has_yet_to_make_follows_from_when_requests_ended(shape: float) -> None:
    """The remaining lengths are also found where all running requests began at once."""
    generator = np.random.default_rng(4)
    for since in (-20_000.0, -100.0):
        starts = np.sort(generator.uniform(since, 1500, round((1500 - since) / 2)))
        answers = generator.gamma(shape, 500 / shape, len(starts))
        pace, _ = seen(answers, starts, 1500.0)
        left = np.sort((starts + answers)[(starts <= 0) & (starts + answers > 0)])
        found = remaining_answers(500.0, shape**-0.5, pace)
        assert np.all(np.diff(found) >= 0)
        assert np.median(np.abs(found - left)) < 50
