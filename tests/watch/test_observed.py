"""Hourly observations: restarts and gaps of counters, hours without data, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_fleet import HOUR_S, START, MadeUpFleet

from sim.watch.observed import BRIDGED_S, LEAST_COVERED, STEP_S, HourObserved, increases, observed_hours
from sim.watch.source import MixedSeries


def hours_of(fleet: MadeUpFleet) -> list[HourObserved]:
    series = fleet.engine_series(START - BRIDGED_S, START + fleet.hours * HOUR_S, STEP_S)
    return observed_hours(series, [], START, fleet.hours, fleet.shown)


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), min_size=2, max_size=40))
def test_restarts_conserve_what_was_counted(steps: list[tuple[int, bool]]) -> None:
    samples, total, now = [0.0], 0, 0
    for more, restarts in steps:
        now = more if restarts and more < now else now + more  # a restart shows only where the value falls
        total += more
        samples.append(float(now))
    grown, _ = increases(np.array(samples), np.ones(len(samples), bool))
    assert grown.sum() == total


@given(st.sets(st.integers(1, 58), max_size=9))
def test_short_gaps_conserve_what_was_counted(missing: set[int]) -> None:
    values = np.cumsum(np.arange(60.0))
    values[sorted(missing)] = np.nan
    assert increases(values, ~np.isnan(values))[0].sum() == pytest.approx(values[-1] - values[0])


def test_a_long_gap_counts_nothing_and_a_new_series_counts_from_zero() -> None:
    values = np.array([10.0, 20.0, *[np.nan] * 11, 500.0, 510.0])
    assert increases(values, ~np.isnan(values))[0].sum() == 20.0
    late = np.array([np.nan, np.nan, 7.0, 9.0])
    assert increases(late, np.ones(4, bool))[0].sum() == 9.0
    assert increases(late, ~np.isnan(late))[0].sum() == 2.0


def test_hours_sum_to_the_counters_with_a_restart() -> None:
    plain, restarted = hours_of(MadeUpFleet(hours=4)), hours_of(MadeUpFleet(hours=4, restart_at=130))
    assert sum(one.requests for one in plain) == pytest.approx(
        MadeUpFleet(hours=4).counts()["prompt_tokens_total"][-1] / 100
    )
    lost = MadeUpFleet(hours=4).rate(2) * 60
    assert sum(one.requests for one in restarted) == pytest.approx(sum(one.requests for one in plain) - lost)
    assert [one.restarts for one in restarted] == [0, 0, 1, 0]


def test_rates_and_means_are_those_of_the_hour() -> None:
    fleet = MadeUpFleet(hours=3)
    one = hours_of(fleet)[1]
    assert one.rate_rps == pytest.approx(fleet.rate(1))
    assert (one.prompt_tokens, one.output_tokens) == (pytest.approx(100), pytest.approx(10))
    assert one.tpot_s_mean == pytest.approx(0.006, rel=0.02)
    assert one.ttft_s_p95 is not None
    assert 0.01 < one.ttft_s_p95 <= 0.05
    assert (one.running, one.waiting, one.gpu_power_w_mean) == (1.0, None, None)


def test_percentiles_do_without_the_last_bucket_and_odd_bounds() -> None:
    fleet = MadeUpFleet(hours=1)
    series = fleet.engine_series(START - BRIDGED_S, START + HOUR_S, STEP_S)
    buckets = [one for one in series if one[0].endswith("_bucket")]
    slow = {one: {at: value / 2 for at, value in series[one].items()} for one in buckets}
    kept = {one: points for one, points in {**series, **slow}.items() if ("le", "inf") not in one[1]}
    odd = ("vllm:time_to_first_token_seconds_bucket", (("instance", "a:8000"), ("le", "x"), ("model_name", "m")))
    [one] = observed_hours({**kept, odd: series[buckets[0]]}, [], START, 1, fleet.shown)
    assert one.ttft_s_p95 == 1.0  # half of the requests are above the last bound


def test_hours_without_data_are_left_out() -> None:
    found = hours_of(MadeUpFleet(hours=4, gap=range(70, 190)))
    assert [one.usable for one in found] == [True, False, False, True]
    assert found[1].covered_s == 9 * 60
    assert found[2].covered_s == 0.0
    assert found[3].covered_s >= LEAST_COVERED * HOUR_S
    assert found[3].rate_rps == pytest.approx(MadeUpFleet().rate(3))


def test_values_repeated_before_a_gap_are_part_of_it() -> None:
    fleet = MadeUpFleet(hours=2)
    series = fleet.engine_series(START, START + 2 * HOUR_S, STEP_S)
    kept = {}
    for name, points in series.items():
        at = {time_s: points[min(time_s, START + 40 * 60.0)] for time_s in points if time_s <= START + 45 * 60}
        kept[name] = at
    one = observed_hours(kept, [], START, 1, fleet.shown)[0]
    assert one.covered_s == 40 * 60
    assert one.rate_rps == pytest.approx(fleet.rate(0))


@pytest.mark.parametrize(
    ("label", "value", "text"), [("model_name", "other", "several models (m, other)"), (None, "sglang", "of SGLang")]
)
def test_series_of_several_models_or_engines_are_refused(label: str | None, value: str, text: str) -> None:
    series = MadeUpFleet(hours=1).engine_series(START, START + HOUR_S, STEP_S)
    (name, labels), points = next(iter(series.items()))
    other = (name, (("model_name", value),)) if label else (name.replace("vllm", value), labels)
    with pytest.raises(MixedSeries, match=text.replace("(", r"\(").replace(")", r"\)")):
        observed_hours({**series, other: points}, [], START, 1, "http://here")
