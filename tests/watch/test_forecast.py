"""Forecast of the load: intervals that hold their share, growth, and too little history."""

import numpy as np
import pytest

from sim.watch.forecast import SHARE, LoadForecast, forecast_of


def rates(seed: int, days: int, growth: float = 0.1) -> np.ndarray:
    hours, generator = np.arange(24 * days), np.random.default_rng(seed)
    logs = growth * hours / 168 + 0.5 * np.sin(2 * np.pi * (hours % 24 - 9) / 24) - 0.4 * (hours // 24 % 7 >= 5)
    return 3 * np.exp(logs + 0.05 * generator.standard_normal(len(hours)))


def forecast(seed: int, days: int) -> tuple[LoadForecast, np.ndarray]:
    every = rates(seed, days + 3)
    found = forecast_of([3600 * place for place in range(24 * days)], every[: 24 * days].tolist(), 3)
    assert found is not None
    return found, every[24 * days :]


@pytest.mark.slow
def test_intervals_hold_their_share_and_growth_is_found() -> None:
    held, growth = [], []
    for seed in range(2):
        found, truth = forecast(seed, 14)
        held.append(np.mean((truth >= found.low) & (truth <= found.high)))
        growth.append(found.growth_per_week)
    assert np.mean(held) == pytest.approx(SHARE, abs=0.15)
    assert np.mean(growth) == pytest.approx(np.expm1(0.1), abs=0.05)


@pytest.mark.slow
def test_a_short_history_has_no_forecast_and_gaps_are_left_out() -> None:
    hours = [3600 * place for place in range(24 * 9)]
    assert forecast_of(hours[: 7 * 24], [1.0] * 7 * 24, 3) is None
    kept = [place for place in range(len(hours)) if place not in range(50, 60)]
    found = forecast_of([hours[one] for one in kept], rates(1, 9)[kept].tolist(), 3)
    assert found is not None
    assert found.starts[0] == hours[-1] + 3600


@pytest.mark.slow
@pytest.mark.parametrize("linear", [True, False])
def test_the_backtest_tells_a_linear_trend_from_an_exponential_one(linear: bool) -> None:
    def rate(hour: np.ndarray) -> np.ndarray:
        day = np.exp(0.4 * np.sin(2 * np.pi * (hour % 24) / 24))
        return np.asarray(day * (1 + 0.3 * hour / 168 if linear else 1.2 ** (hour / 168)))

    hours = np.arange(0, 6 * 168, 5)
    found = forecast_of((3600 * hours).tolist(), rate(hours).tolist(), 28)
    assert found is not None
    assert found.linear == linear
    assert found.growth_per_week == pytest.approx(0.3 / (1 + 0.3 * 6) if linear else 0.2, rel=0.05)
    last = np.array(found.starts[-168:]) / 3600
    assert found.median[-168:].mean() == pytest.approx(rate(last).mean(), rel=0.03)
