from math import erf, inf, log, sqrt

import pytest

from sim.fidelity.calibration import _factor
from sim.study.metrics.batch_means import INDEPENDENT
from sim.study.metrics.statistics import differ, half_width, mean, normal_quantile, ratio, student_t


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 9, 10, 30, 99, 1000])
def test_student_t_is_the_published_quantile(degrees: int) -> None:
    from scipy import stats  # takes seconds, which only who runs this waits for

    assert student_t(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), abs=1e-9)


def test_half_width_by_hand() -> None:
    # Mean 3, variance (4 + 0 + 4) / 2 = 4, t(2) = 4.302653.
    assert half_width([1.0, 3.0, 5.0]) == pytest.approx(4.302653 * sqrt(4 / 3), rel=1e-6)


def test_one_value_or_an_infinite_one_has_no_interval() -> None:
    assert half_width([1.0]) is None
    assert half_width([1.0, inf]) is None
    assert mean([1.0, inf]) == inf
    assert mean([inf, inf]) == inf


def test_ratio_is_of_sums_and_its_interval_that_of_the_estimator() -> None:
    value, half = ratio([2.0, 4.0, 3.0], [1.0, 3.0, 2.0])
    assert value == 1.5
    # Residuals 2 - 1.5, 4 - 4.5 and 3 - 3: variance 0.25, over the mean denominator 2; t(2) = 4.302653.
    assert half == pytest.approx(4.302653 * sqrt(0.25 / 3) / 2, rel=1e-5)
    assert ratio([2.0, 4.0], [1.0, 3.0]) == (1.5, None), "two values are not an interval"
    assert ratio([1.0], [0.0]) == (inf, None)


def test_pairs_differ_though_their_spreads_overlap() -> None:
    assert differ([1.0, 2.0, 3.0], [1.1, 2.1, 3.12]) is True
    assert differ([1.0, 2.0, 3.0], [1.2, 1.9, 3.0]) is False
    assert differ([1.0, 2.0], [2.0, 3.1]) is None


def test_quantiles_of_the_normal_law_are_exact() -> None:
    # erf(z / sqrt 2) is the share within z standard deviations
    for share in (0.75, 0.9, 0.95, 0.975):
        assert erf(normal_quantile(share) / sqrt(2)) == pytest.approx(2 * share - 1, rel=1e-14)
    # the interval of a factor is exp(theta +- z sd); 1.96 would be 0.07 % off here
    factor = _factor(10.0, 5.0, True)
    assert erf((log(factor.high) - 10) / 5 / sqrt(2)) == pytest.approx(0.95, abs=1e-9)
    assert erf(INDEPENDENT / sqrt(2)) == pytest.approx(0.9, rel=1e-14)
