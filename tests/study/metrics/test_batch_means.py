"""Intervals against theory: how often they hold the true value of an M/M/1 queue, by Lindley's recursion."""

from math import exp, log, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.study.metrics import overload
from sim.study.metrics.batch_means import (
    half_widths,
    independent,
    independent_draws,
    mean_half_width,
    percentile_half_width,
    rate_half_width,
)
from sim.study.metrics.overload import Growth, likely_growing, overloaded, queue_growth
from sim.study.metrics.statistics import (
    half_width,
    half_width_within,
    paired_difference,
    ratio,
    ratio_difference,
    share_interval,
    wilson,
)

LOAD = 0.7
"""Arrivals per service time; waits are in units of that time."""


def waits(rng: np.random.Generator, runs: int, requests: int, load: float = LOAD) -> np.ndarray:
    """(runs, requests) waiting times of M/M/1: W_i+1 = max(0, W_i + S_i - A_i), begun in the steady state."""
    steps = rng.exponential(1.0, (runs, requests)) - rng.exponential(1 / load, (runs, requests))
    wait = np.where(rng.random(runs) < load, rng.exponential(1 / (1 - load), runs), 0.0)
    found = np.empty((runs, requests))
    for i in range(requests):
        found[:, i] = wait
        wait = np.maximum(0.0, wait + steps[:, i])
    return found


def percentile_of_m_m_1(share: float) -> float:
    # P(W > t) = load exp(-(1 - load) t)
    return log(LOAD / (1 - share)) / (1 - LOAD)


def covered(centres: np.ndarray, halves: list[float | None], truth: float) -> float:
    known = [abs(c - truth) <= h for c, h in zip(centres, halves, strict=True) if h is not None]
    return sum(known) / len(known)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["mean", "p95"])
def test_intervals_over_five_replications_cover_as_they_say(what: str) -> None:
    found = waits(np.random.default_rng(1), 200 * 5, 2000)
    truth = LOAD / (1 - LOAD) if what == "mean" else percentile_of_m_m_1(0.95)
    values = found.mean(axis=1) if what == "mean" else np.percentile(found, 95, axis=1)
    sets = values.reshape(200, 5)
    share = covered(sets.mean(axis=1), [half_width(five.tolist()) for five in sets], truth)
    # 95 % of 200 give or take three standard errors, and the bias of a short run's percentile
    assert 0.90 <= share <= 0.99


@pytest.mark.slow
@pytest.mark.parametrize("what", ["mean", "p95"])
def test_batch_intervals_of_one_run_cover_as_they_say(what: str) -> None:
    found = waits(np.random.default_rng(2), 200, 10_000)
    truth = LOAD / (1 - LOAD) if what == "mean" else percentile_of_m_m_1(0.95)
    centres = found.mean(axis=1) if what == "mean" else np.percentile(found, 95, axis=1)
    halves = [mean_half_width(run) if what == "mean" else percentile_half_width(run, 95) for run in found]
    assert sum(half is not None for half in halves) > 160
    assert covered(centres, halves, truth) >= 0.94


@pytest.mark.slow
@pytest.mark.parametrize("requests", [1000, 2400])
def test_few_requests_have_no_interval_that_is_too_narrow(requests: int) -> None:
    # without the test of independent draws these cover 70 to 85 %
    found = waits(np.random.default_rng(11), 100, requests, load=0.85)
    halves = [mean_half_width(run) for run in found] + [percentile_half_width(run, 95) for run in found]
    assert sum(half is not None for half in halves) <= 10


@pytest.mark.slow
def test_independent_draws_of_an_autoregressive_series() -> None:
    # x' = 0.8 x + noise: a correlation time of (1 + 0.8) / (1 - 0.8) = 9
    rng = np.random.default_rng(12)
    series = np.zeros(90_000)
    for i, step in enumerate(rng.normal(size=89_999).tolist()):
        series[i + 1] = 0.8 * series[i] + step
    assert independent_draws(series) == pytest.approx(10_000, rel=0.4)
    assert independent_draws(np.exp(series)) == independent_draws(series), "ranks do not change"
    assert independent_draws(np.ones(1000)) == 0


@pytest.mark.slow
def test_batch_intervals_of_a_rate_cover_as_they_say() -> None:
    # what leaves M/M/1 is a Poisson stream (Burke); with amounts of mean 1 the rate is LOAD per second
    rng = np.random.default_rng(8)
    centres, halves = [], []
    for _ in range(200):
        left = np.cumsum(rng.exponential(1 / LOAD, 3000))
        amounts, inside = rng.exponential(1.0, 3000), (left >= 500) & (left < 4000)
        centres.append(amounts[inside].sum() / 3500)
        halves.append(rate_half_width(left[inside], amounts[inside], 500, 4000))
    assert sum(half is not None for half in halves) > 180
    assert covered(np.array(centres), halves, LOAD) >= 0.93


def test_a_run_whose_batches_depend_on_each_other_has_no_interval() -> None:
    # a queue at 99 % of its limit remembers for longer than the run
    found = waits(np.random.default_rng(3), 40, 2000, load=0.99)
    known = [mean_half_width(run) is not None for run in found]
    assert sum(known) == 0
    assert mean_half_width(np.arange(1000.0)) is None


def test_too_few_observations_have_no_interval() -> None:
    noise = np.random.default_rng(4).normal(size=2000)
    assert mean_half_width(noise[:99]) is None
    assert mean_half_width(noise) is not None
    assert percentile_half_width(noise[:190], 95) is None, "fewer than ten beyond the percentile"
    assert percentile_half_width(noise, 95) is not None
    assert mean_half_width((noise[:1000] > 2.5).astype(float)) is None, "fewer than ten of the rarer kind"
    assert mean_half_width(np.ones(1000)) is None, "a share of all does not show how often it fails"
    assert percentile_half_width(noise[:900], 99) is None
    assert mean_half_width(np.append(noise, np.inf)) is None
    assert mean_half_width(np.array([])) is percentile_half_width(np.array([]), 95) is None
    assert rate_half_width(np.arange(199.0), np.ones(199), 0, 199) is None


def test_intervals_of_several_percentiles_are_those_of_each_alone() -> None:
    noise = np.random.default_rng(4).exponential(size=900)
    together = half_widths(noise, (50, 99, 95))
    assert together == [mean_half_width(noise), *(percentile_half_width(noise, one) for one in (50, 99, 95))]
    assert [one is None for one in together] == [False, False, True, False]


def test_a_share_of_all_is_not_certain() -> None:
    # Wilson: of 500 all, the share is above 500 / (500 + 1.96^2)
    assert share_interval(1.0, 0.0, 500) == (pytest.approx(500 / (500 + 1.96**2), rel=1e-4), 1.0)
    assert share_interval(0.0, 0.0, 500) == (0.0, pytest.approx(1.96**2 / (500 + 1.96**2), rel=1e-4))
    assert share_interval(0.98, None, 500) is None


@given(st.floats(0, 1), st.floats(0, 20), st.integers(1, 10**6))
def test_the_interval_of_a_share_stays_within_0_and_1_and_holds_it(share: float, half: float, draws: int) -> None:
    for count in (None, draws):
        low, high = share_interval(share, half, count) or (nan, nan)
        assert 0 <= low <= share + 1 / draws
        assert share - 1 / draws <= high <= 1


def test_the_interval_of_a_share_is_the_mean_plus_or_minus_far_from_the_ends() -> None:
    low, high = share_interval(0.6, 0.001) or (nan, nan)
    assert (low, high) == (pytest.approx(0.599, abs=1e-5), pytest.approx(0.601, abs=1e-5))


def test_wilson_by_effective_draws_is_wilson() -> None:
    # 90 of 100 independent draws: t^2 / n = half^2 / (p q) with half = z sqrt(p q / n)
    half = 1.959964 * (0.9 * 0.1 / 100) ** 0.5
    assert share_interval(0.9, half) == pytest.approx(wilson(90, 100), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("runs", [1, 2])
def test_intervals_of_one_and_two_runs_cover_as_they_say(runs: int) -> None:
    found = waits(np.random.default_rng(9), 150 * runs, 4000).reshape(150, runs, 4000)
    halves = [half_width_within([mean_half_width(run) for run in one]) for one in found]
    known = [half is not None for half in halves]
    assert sum(known) > 90
    assert covered(found.mean(axis=(1, 2)), halves, LOAD / (1 - LOAD)) >= 0.93


def test_two_values_have_no_interval_and_two_runs_have_that_of_their_batches() -> None:
    assert half_width([1.0, 2.0]) is None
    assert half_width([1.0, 2.0, 3.0]) == pytest.approx(4.302653 / 3**0.5)
    assert half_width_within([3.0, 4.0]) == 2.5
    assert half_width_within([3.0, None]) is None
    assert half_width_within([]) is None


def test_von_neumanns_ratio_by_hand() -> None:
    # squared steps 4 + 4 + 4 over 2 x 4: C = 1 - 12 / 8 = -0.5; rising: 3 / (2 x 5) leaves 0.7 x sqrt(15 / 2) = 1.92
    assert independent(np.array([1.0, -1.0, 1.0, -1.0]))
    assert not independent(np.array([1.0, 2.0, 3.0, 4.0]))
    assert independent(np.ones(10))


def growth(rng: np.random.Generator, load: float, requests: int) -> Growth:
    """Return the growth found in a run of M/M/1 that starts empty, after a warm-up of a tenth."""
    arrived = np.cumsum(rng.exponential(1 / load, requests))
    services = rng.exponential(1.0, requests)
    started, left = np.empty(requests), np.empty(requests)
    free = 0.0
    for i in range(requests):
        started[i] = max(arrived[i], free)
        free = left[i] = started[i] + services[i]
    end_s = float(arrived[-1])
    return queue_growth(arrived, started, left, 0.1 * end_s, end_s)


@pytest.mark.slow
@pytest.mark.parametrize(("load", "least", "most"), [(0.5, 0.0, 0.0), (0.9, 0.0, 0.01), (1.3, 0.95, 1.0)])
def test_overload_is_seen_and_not_imagined(load: float, least: float, most: float) -> None:
    rng = np.random.default_rng(5)
    verdicts = [growth(rng, load, 1500).certain for _ in range(100)]
    assert least <= np.mean(verdicts) <= most


@pytest.mark.parametrize(
    ("load", "requests", "least", "most"),
    [(0.5, 100, 0.0, 0.0), (0.5, 600, 0.0, 0.0), (0.7, 100, 0.0, 0.05), (0.7, 600, 0.0, 0.05), (1.3, 600, 0.9, 1.0)],
)
def test_likely_growth_is_seen_in_short_runs_and_not_imagined(
    load: float, requests: int, least: float, most: float
) -> None:
    rng = np.random.default_rng(13)
    runs = [growth(rng, load, requests) for _ in range(100)]
    likely = [likely_growing([run.late], [run.late_error], [0.9 * requests]) for run in runs]
    assert least <= np.mean(likely) <= most
    if least:
        assert np.mean([run.certain for run in runs]) < np.mean(likely)


def test_likely_growth_by_hand() -> None:
    # 100 requests, of which none leaves: 25.5 to 50 in the quarter before the middle, 80 to 100 in the last
    grown = queue_growth(np.arange(0.5, 100.0), np.arange(0.5, 100.0), np.full(100, nan), 0.0, 100.0)
    assert grown.late == pytest.approx(90 - 37.5)
    assert grown.late_error == pytest.approx((90 + 37.5) ** 0.5)
    assert not grown.certain, "each starts at once"
    assert likely_growing([16.0], [10.0], [100])
    assert not likely_growing([14.0], [10.0], [100])
    assert likely_growing([14.0, 14.0], [10.0, 10.0], [100, 100]), "two runs know more than one"
    assert not likely_growing([9.0], [1.0], [100]), "fewer than ten"
    assert not likely_growing([16.0], [1.0], [1000]), "less than 2 % of the arrivals"
    assert not likely_growing([], [], [])


def test_several_runs_together_see_what_one_cannot() -> None:
    rng = np.random.default_rng(6)
    runs = [growth(rng, 1.15, 400) for _ in range(10)]
    assert 2 * sum(run.certain for run in runs) < len(runs)
    grown, waiting = [run.requests for run in runs], [run.waiting for run in runs]
    assert overloaded(grown, waiting, [360] * 10, [run.certain for run in runs])
    assert not overloaded(grown, [2] * 10, [360] * 10, [run.certain for run in runs]), "it only fills up"
    assert not overloaded([-3, 4, 1], [20] * 3, [360] * 3, [False] * 3)
    assert not overloaded([40], [40], [360], [False]), "one run says it for itself"


def test_what_grows_evenly_is_certain_and_what_fills_up_is_not() -> None:
    arrived = np.arange(0.0, 1000.0)
    late = 1.1 * arrived
    grown = queue_growth(arrived, late, late + 1, 0.0, 1000.0)
    assert (grown.requests, grown.certain) == (91, True)
    assert queue_growth(arrived, 2.7 * arrived, 2.7 * arrived + 1, 500.0, 1000.0).certain
    assert not queue_growth(arrived, arrived + 40.0, arrived + 50.0, 100.0, 1000.0).certain
    # answers that take longer than the whole window, each begun at once
    assert not queue_growth(arrived, arrived, arrived + 2000.0, 0.0, 1000.0).certain


@pytest.mark.parametrize("together", [1, 7, 1000])
def test_growth_counts_arrivals_before_an_edge_and_departures_up_to_it(
    monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr(overload, "SORTED_AT_ONCE", together)
    shuffled = np.random.default_rng(8).permutation
    arrived = shuffled(np.append(np.arange(20.0), 3.0))  # each on an edge, one on the fourth twice
    left = shuffled(np.append(arrived + 5.0, [nan, nan]))
    inside = [int((arrived < edge).sum() - (left <= edge).sum()) for edge in range(21)]
    grown = queue_growth(arrived, arrived, left, 0.0, 20.0)
    assert grown.requests == inside[-1] - inside[0]
    assert grown.late == pytest.approx(np.mean(inside[-5:]) - np.mean(inside[5:11]))


def test_pairing_removes_common_noise() -> None:
    shared = np.random.default_rng(7).normal(10.0, 3.0, 8)
    first, second = (shared + 1.0).tolist(), shared.tolist()
    assert paired_difference(first, second) == (pytest.approx(1.0), pytest.approx(0.0, abs=1e-9))
    difference, half = paired_difference(first, second[::-1])
    assert difference == pytest.approx(1.0)
    assert half is not None
    assert half > 1.0


def test_two_pairs_without_any_difference_are_the_same_and_others_have_no_interval() -> None:
    assert paired_difference([1.0, 2.0], [1.0, 2.0]) == (0.0, 0.0)
    assert paired_difference([1.0, 2.0], [2.0, 1.0]) == (0.0, None)
    assert paired_difference([1.0], [1.0]) == (0.0, None)
    same = ([2.0, 4.0], [2.0, 4.0]), ([1.0, 2.0], [1.0, 2.0])
    assert ratio_difference(*same) == (0.0, 0.0)


def test_difference_of_ratios_by_hand() -> None:
    # ratios 2 and 1; residuals (0, 0) and ((1 - 2) / 2, (3 - 2) / 2) = (-0.5, 0.5)
    value, half = ratio_difference(([2.0, 4.0], [1.0, 3.0]), ([1.0, 2.0], [2.0, 2.0]))
    assert value == 1.0
    assert half == pytest.approx(ratio([1.0, 3.0], [2.0, 2.0])[1])
    assert ratio_difference(([1.0], [1.0]), ([0.0], [1.0])) == (float("inf"), None)


def test_percentile_of_m_m_1_matches_theory() -> None:
    assert LOAD * exp(-(1 - LOAD) * percentile_of_m_m_1(0.95)) == pytest.approx(0.05)
