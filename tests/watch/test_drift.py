"""Drift: the rate of false alarms, and the time until a change is found."""

import numpy as np
import pytest

from sim.watch.drift import REFERENCE, drift_of, threshold

HOURS = [3600 * place for place in range(336)]


def states(seed: int, count: int, change: float = 1.0, kept: float = 0.0) -> list[int | None]:
    """Hours from the change on day ten to the alarm, of *count* metrics; None without one."""
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        noise = generator.normal(0, 0.04, len(HOURS))
        for place in range(1, len(HOURS)):
            noise[place] = kept * noise[place - 1] + np.sqrt(1 - kept**2) * noise[place]
        ratios = np.exp(noise) * np.where(np.arange(len(HOURS)) >= 240, change, 1.0)
        alarm = drift_of("ttft_s_mean", HOURS, ratios.tolist(), threshold(6)).alarm
        found.append(None if alarm is None else alarm.raised // 3600 - 240)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0.0, 0.3])
def test_two_unchanged_weeks_seldom_raise_an_alarm(kept: float) -> None:
    assert sum(one is not None for one in states(1, 100, kept=kept)) <= 3


@pytest.mark.parametrize("change", [1.15, 0.87])
def test_a_change_is_found_within_a_day(change: float) -> None:
    found = states(2, 20, change)
    assert all(one is not None and 0 <= one < 24 for one in found)


def test_a_single_odd_hour_raises_no_alarm() -> None:
    ratios: list[float | None] = [1.0] * 336
    ratios[300], ratios[310] = 50.0, None
    state = drift_of("ttft_s_mean", HOURS, ratios, threshold(6))
    assert state.alarm is None
    assert state.level < 1.0
    assert drift_of("ttft_s_mean", HOURS, ratios[: REFERENCE - 1] + [None] * (337 - REFERENCE), 6.0).reference is None


def test_an_alarm_names_the_first_hour_of_the_change() -> None:
    ratios = [1.0 + 0.01 * (place % 3) for place in range(300)] + [1.2] * 36
    alarm = drift_of("tpot_s_mean", HOURS, ratios, threshold(6)).alarm
    assert alarm is not None
    assert (alarm.since, alarm.ratio) == (300 * 3600, pytest.approx(1.2 / 1.01, rel=0.005))
