"""Future prices: expected values at known months, the law of the process, and refused paths."""

import runpy
from math import exp, log
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from rank_correlation import rank_correlation

from sim.catalogue.catalog import load_catalog
from sim.cost.price_paths import PriceOutlook, PricePath, PricePaths
from sim.rng import correlated, largest_scale

ROOT = Path(__file__).parents[2]
STARTS = "2027-01"
RNG = np.random.default_rng(7)
SHOCKS = RNG.standard_normal((36, 40_000))


@pytest.mark.parametrize(
    ("path", "month", "expected"),
    [
        (PricePath(), 30, 1.0),
        (PricePath(decline_per_year=0.2), 24, 0.64),
        (PricePath(decline_per_year=-0.1), -12, 1 / 1.1),
        (PricePath(decline_per_year=0.2, steps={"2027-07": -0.5}), 5, 0.8 ** (5 / 12)),
        (PricePath(decline_per_year=0.2, steps={"2027-07": -0.5}), 6, 0.5 * 0.8**0.5),
        (PricePath(by_month={"2028-01": 0.6, "2029-01": 0.9}), 6, 0.8),
        (PricePath(by_month={"2028-01": 0.6, "2029-01": 0.9}), 18, 0.75),
        (PricePath(by_month={"2028-01": 0.6, "2029-01": 0.9}), 99, 0.9),
        (PricePath(by_month={"2026-01": 3, "2027-01": 2, "2028-01": 1}), 6, 1.5),
    ],
)
def test_the_expected_price_at_known_months(path: PricePath, month: int, expected: float) -> None:
    assert path.mean(month, STARTS) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("half_life", [None, 6.0])
def test_every_month_has_the_expected_mean_and_the_variance_of_the_process(half_life: float | None) -> None:
    """Var ln S(t) = s^2 t, or s^2 (1 - e^(-2kt)) / 2k with k = ln 2 / half-life; the mean over 40,000 draws is 1."""
    path = PricePath(volatility=0.4, half_life_months=half_life)
    found = path.deviations(SHOCKS)
    assert (found[0] == 1).all()
    for month in (1, 12, 36):
        years = month / 12
        k = log(2) / (half_life / 12) if half_life else 0.0
        variance = 0.16 * ((1 - exp(-2 * k * years)) / (2 * k) if k else years)
        assert np.log(found[month]).var() == pytest.approx(variance, rel=0.04)
        error = np.sqrt(exp(variance) - 1) / np.sqrt(found.shape[1])
        assert found[month].mean() == pytest.approx(1, abs=4 * error)


def test_half_of_a_deviation_disappears_in_the_half_life() -> None:
    shocks = np.zeros((7, 2))
    shocks[0, 0] = 1.0  # the second draw has no shock: the ratio of both is the deviation alone
    found = np.log(PricePath(volatility=0.4, half_life_months=6).deviations(shocks))
    gap = found[:, 0] - found[:, 1]
    assert gap[7] == pytest.approx(gap[1] / 2)


@pytest.mark.parametrize("rank", [-0.8, 0.0, 0.5, 1.0])
def test_a_gaussian_copula_has_the_stated_rank_correlation(rank: float) -> None:
    u = RNG.random((20_000, 2))
    found = correlated(u, np.array([[1, rank], [rank, 1]]))
    assert (np.abs(found[:, 0] - u[:, 0]) < 1e-7).all()
    assert rank_correlation(*found.T)[0, 1] == pytest.approx(rank, abs=0.02)
    assert np.quantile(found[:, 1], [0.1, 0.5, 0.9]) == pytest.approx([0.1, 0.5, 0.9], abs=0.015)


def test_iman_conover_reorders_the_sample_to_the_ranks_of_its_scores() -> None:
    u, ranks = RNG.random((500, 3)), np.array([[1, 0.7, -0.3], [0.7, 1, 0.2], [-0.3, 0.2, 1]])
    found = correlated(u, ranks, "iman_conover")
    assert (np.sort(found, axis=0) == np.sort(u, axis=0)).all()
    assert rank_correlation(*found.T) == pytest.approx(ranks, abs=0.03)
    moved = correlated(u**3, ranks, "iman_conover")  # ranks alone decide: any marginal distribution has the same order
    assert (np.argsort(moved, axis=0) == np.argsort(found, axis=0)).all()


def test_further_draws_leave_earlier_ones_unchanged() -> None:
    u, ranks = RNG.random((300, 2)), np.array([[1, 0.6], [0.6, 1]])
    assert (correlated(u, ranks)[:100] == correlated(u[:100], ranks)).all()


def test_the_largest_scale_is_where_a_matrix_stops_to_exist() -> None:
    ranks = np.array([[1, 0.9, 0.9], [0.9, 1, -0.9], [0.9, -0.9, 1]])
    scale = largest_scale(ranks)
    assert 0 < scale < 1
    scaled = np.eye(3) + scale * (ranks - np.eye(3))
    assert np.linalg.eigvalsh(2 * np.sin(np.pi * scaled / 6)).min() == pytest.approx(0, abs=1e-8)
    assert np.isfinite(correlated(RNG.random((50, 3)), scaled)).all()


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"volatility": 0}, "greater than 0"),
        ({"volatility": -0.2}, "greater than 0"),
        ({"half_life_months": 6}, "needs volatility"),
        ({"decline_per_year": 0.1, "by_month": {"2028-01": 1}}, "both give the price"),
        ({"decline_per_year": 12}, "less than 1"),
        ({"steps": {"2027-13": -0.1}}, "a month is needed"),
        ({"steps": {"2027-06": -1}}, "greater than -1"),
        ({"by_month": {}}, "at least 1"),
    ],
)
def test_a_path_that_cannot_be_is_refused(keys: dict[str, object], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        PricePath.model_validate(keys)


def test_an_outlook_is_exact_before_the_first_month() -> None:
    paths = PricePaths(hardware=PricePath(decline_per_year=0.2, volatility=0.3))
    drawn = PriceOutlook(paths, STARTS, {"hardware": paths.stated["hardware"].deviations(SHOCKS[:12, :4000])})
    assert drawn.factor("hardware", -12) == pytest.approx(np.full(4000, 1.25))
    assert drawn.factor("hardware", 12).mean() == pytest.approx(0.8, rel=0.02)
    assert drawn.factor("rent", 12) == 1.0


def test_shipped_quotes_support_no_decline_as_the_docs_state() -> None:
    found = runpy.run_path(str(ROOT / "benchmarks" / "price_decline.py"))
    for row in found["table"](load_catalog())[2:]:
        without_decline, with_median_decline = (float(cell.rstrip(" %")) for cell in row.strip("| ").split(" | ")[-2:])
        assert without_decline < with_median_decline
    assert "support no other rate (`benchmarks/price_decline.py`)" in (ROOT / "docs" / "rent-or-buy.md").read_text()
