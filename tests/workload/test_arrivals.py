"""Arrival processes: their laws, and that request i is the same request at every rate."""

from functools import partial
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.rng import stream
from sim.workload import Burst, ClosedLoop, Constant, Gamma, Poisson, Profile, arrivals

STREAMS = partial(stream, 7, 0)
MANY = 200_000


def poisson(rate_rps: float, num_requests: int | None = None) -> Poisson:
    return Poisson(process="poisson", rate_rps=rate_rps, num_requests=num_requests)


def gamma(rate_rps: float, cv: float, num_requests: int | None = None) -> Gamma:
    return Gamma(process="gamma", rate_rps=rate_rps, cv=cv, num_requests=num_requests)


def profile(hourly_rps: list[float], rate_rps: float | None = None) -> Profile:
    return Profile(process="profile", hourly_rps=tuple(hourly_rps), rate_rps=rate_rps)


def gaps(arrivals_s: np.ndarray) -> np.ndarray:
    return np.diff(arrivals_s, prepend=0.0)


@pytest.mark.parametrize("cv", [0.3, 1.0, 2.5])
def test_gaps_have_the_stated_mean_and_spread(cv: float) -> None:
    drawn = gaps(gamma(4.0, cv, MANY).arrivals_s(STREAMS, None))
    # 99.9 % interval of the mean; the spread of a sample spread is about cv * sqrt(1 + 3 cv^2) / sqrt(2 n).
    assert drawn.mean() * 4 == pytest.approx(1, abs=3.3 * cv / sqrt(MANY))
    assert drawn.std() / drawn.mean() == pytest.approx(cv, abs=3.3 * cv * sqrt((1 + 3 * cv**2) / (2 * MANY)))


def test_poisson_counts_have_a_variance_equal_to_their_mean() -> None:
    counts = np.bincount((poisson(5.0).arrivals_s(STREAMS, 20_000)).astype(int), minlength=20_000)
    assert counts.mean() == pytest.approx(5, abs=3.3 * sqrt(5 / 20_000))
    assert counts.var() / counts.mean() == pytest.approx(1, abs=3.3 * sqrt(2 / 20_000))


def test_gamma_with_cv_1_is_poisson() -> None:
    assert np.array_equal(gamma(3.0, 1.0).arrivals_s(STREAMS, 100.0), poisson(3.0).arrivals_s(STREAMS, 100.0))


@pytest.mark.parametrize("process", [poisson(1.0, 500), gamma(1.0, 2.0, 500)])
def test_at_twice_the_rate_the_same_requests_come_in_half_the_time(process: Poisson | Gamma) -> None:
    twice = process.model_copy(update={"rate_rps": 2.0})
    assert np.array_equal(twice.arrivals_s(STREAMS, None) * 2, process.arrivals_s(STREAMS, None))


@pytest.mark.parametrize("process", [poisson(2.0), gamma(2.0, 3.0), profile([0.5, 0, 3])])
def test_arrivals_do_not_depend_on_how_many_are_drawn_at_once(
    process: Poisson | Gamma | Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = process.arrivals_s(STREAMS, 15_000.0)
    assert len(at_once) > 5000
    monkeypatch.setattr(arrivals, "MOST_AT_ONCE", 17)
    assert np.array_equal(process.arrivals_s(STREAMS, 15_000.0), at_once)


@given(horizon_s=st.floats(0.1, 50), num_requests=st.integers(1, 100), cv=st.floats(0.1, 3))
def test_horizon_and_num_requests_cut_one_and_the_same_sequence(horizon_s: float, num_requests: int, cv: float) -> None:
    whole = gamma(3.0, cv, 1000).arrivals_s(STREAMS, None)
    expected = whole[:num_requests][whole[:num_requests] < horizon_s]
    assert np.array_equal(gamma(3.0, cv, num_requests).arrivals_s(STREAMS, horizon_s), expected)


def test_constant_arrivals_start_at_0_and_fill_the_horizon_exactly() -> None:
    constant = Constant(process="constant", rate_rps=2.0)
    assert constant.arrivals_s(STREAMS, 2.0).tolist() == [0.0, 0.5, 1.0, 1.5]
    assert constant.arrivals_s(STREAMS, 1.6).tolist() == [0.0, 0.5, 1.0, 1.5]
    assert constant.model_copy(update={"num_requests": 3}).arrivals_s(STREAMS, None).tolist() == [0.0, 0.5, 1.0]


def test_a_burst_is_all_at_0() -> None:
    assert Burst(process="burst", num_requests=3).arrivals_s(STREAMS, 10.0).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.slow
def test_a_flat_profile_is_poisson() -> None:
    flat = profile([2.0, 2.0]).arrivals_s(STREAMS, 9000.0)
    assert flat == pytest.approx(poisson(2.0).arrivals_s(STREAMS, 9000.0), rel=1e-12)


@pytest.mark.slow
def test_each_hour_gets_its_rate_and_the_profile_repeats() -> None:
    rates = np.array([2.0, 0.0, 0.0, 5.0, 0.5, 0.0])
    arrivals_s = profile(rates.tolist()).arrivals_s(STREAMS, 20 * 6 * 3600.0)
    counts = np.bincount((arrivals_s // 3600).astype(int), minlength=120).reshape(20, 6)
    assert counts[:, rates == 0].sum() == 0
    expected = 20 * 3600 * rates[rates > 0]
    assert np.all(np.abs(counts.sum(axis=0)[rates > 0] - expected) < 3.3 * np.sqrt(expected))
    assert np.all(np.diff(arrivals_s) >= 0)


def test_profile_is_scaled_to_the_stated_mean() -> None:
    scaled = profile([1.0, 3.0], rate_rps=10.0)
    assert scaled.mean_rate_rps() == 10.0
    assert np.array_equal(scaled.arrivals_s(STREAMS, 7200.0), profile([5.0, 15.0]).arrivals_s(STREAMS, 7200.0))
    assert scaled.describe() == "Poisson arrivals over 2 hourly rates, mean 10, peak 15 requests/s"


def test_a_profile_at_twice_the_rate_has_the_same_requests_earlier() -> None:
    slow, fast = (profile([1.0, 0.0, 3.0], rate).arrivals_s(STREAMS, 40_000.0) for rate in (1.0, 2.0))
    assert np.all(fast[: len(slow)] <= slow)


@pytest.mark.parametrize(
    ("hours", "complaint"),
    [
        ({}, "needs one of hourly_rps and shape"),
        ({"hourly_rps": [1], "shape": "servegen-m-small"}, "needs one of hourly_rps and shape, not both"),
        ({"hourly_rps": [0, 0]}, "hourly_rps must have an hour with a rate above 0"),
        ({"shape": "servegen-m-small"}, "shape is only a shape: rate_rps must give its mean"),
        ({"hourly_rps": []}, "at least 1 item"),
        ({"hourly_rps": [1, -1]}, "greater than or equal to 0"),
    ],
)
def test_incomplete_profile_is_refused(hours: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Profile.model_validate({"process": "profile", **hours})


@pytest.mark.parametrize("process", [poisson(1.0), Constant(process="constant", rate_rps=1.0)])
def test_arrivals_without_an_end_are_refused(process: Poisson | Constant) -> None:
    with pytest.raises(ValueError, match="without an end"):
        process.arrivals_s(STREAMS, None)


def test_descriptions() -> None:
    closed = {"process": "closed_loop", "concurrency": 8, "think_s": 2}
    assert ClosedLoop.model_validate(closed).describe() == (
        "8 clients send one request at a time, a mean of 2 s after the last answer"
    )
    assert ClosedLoop(process="closed_loop", concurrency=1).describe() == "1 client sends one request at a time"
    assert not ClosedLoop(process="closed_loop", concurrency=8).random
    assert ClosedLoop.model_validate(closed).random
    assert not ClosedLoop.model_validate(closed | {"pauses": "constant"}).random
    think_times_s = ClosedLoop.model_validate(closed).think_times_s(STREAMS, "pauses", 0, 20_000)
    assert (think_times_s.mean(), think_times_s.std()) == (pytest.approx(2, rel=0.03), pytest.approx(2, rel=0.03))
    assert (ClosedLoop.model_validate(closed).think_times_s(STREAMS, "pauses", 500, 20) == think_times_s[500:520]).all()
    assert poisson(1.5).describe() == "Poisson arrivals at 1.5 requests/s"
    assert gamma(1.5, 2).describe() == "gamma arrivals at 1.5 requests/s (cv 2)"
