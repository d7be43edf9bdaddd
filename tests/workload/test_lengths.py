"""Length laws: whole tokens with the moments asked for, clipped and not redrawn, the same however they are cut."""

from functools import partial
from math import log, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from sim.rng import SeededStreams, stream
from sim.workload.lengths import Length, Lengths, Lognormal
from sim.workload.requests import uniforms

STREAMS = partial(stream, 7, 0)
MANY = 200_000
LAW: TypeAdapter[Any] = TypeAdapter(Length)

LAWS = [
    {"distribution": "fixed", "value": 300},
    {"distribution": "uniform", "min": 10, "max": 500},
    {"distribution": "lognormal", "mean": 512, "sigma": 0.7, "min": 8, "max": 3000},
    {"distribution": "lognormal", "mean": 2, "cv": 3.0},
    {"distribution": "geometric", "mean": 100},
    {"distribution": "empirical", "table": "azure-2023-conv/output", "max": 400},
]


def law(**fields: object) -> Any:
    return LAW.validate_python(fields)


def draw(of: Any, count: int = MANY) -> np.ndarray:
    return of.quantile(uniforms(STREAMS, "prompt", 0, count))


def close_to_mean(drawn: np.ndarray, mean: float) -> bool:
    """Return whether the mean is within the 99.9 % interval, with half a token for rounding."""
    return bool(abs(drawn.mean() - mean) < 3.3 * drawn.std() / sqrt(len(drawn)) + 0.01)


@pytest.mark.parametrize("cv", [0.2, 1.0, 2.0])
def test_lognormal_has_the_stated_mean_and_cv(cv: float) -> None:
    drawn = draw(law(distribution="lognormal", mean=10_000, cv=cv))
    assert close_to_mean(drawn, 10_000)
    logs = np.log(drawn)
    assert logs.std() == pytest.approx(sqrt(log(1 + cv**2)), rel=3.3 / sqrt(2 * MANY))


def test_sigma_and_cv_describe_the_same_distribution() -> None:
    cv = sqrt(np.expm1(0.7**2))
    assert np.array_equal(
        draw(law(distribution="lognormal", mean=512, cv=cv)), draw(law(distribution="lognormal", mean=512, sigma=0.7))
    )


def test_the_mean_of_a_lognormal_is_that_before_clipping() -> None:
    drawn = draw(law(distribution="lognormal", mean=512, sigma=0.7, max=600))
    assert drawn.max() == 600
    # P(X > 600) for mu = ln 512 - 0.245: the clipped requests sit on the limit, they are not drawn again.
    beyond = 1 - NormalDist(log(512) - 0.245, 0.7).cdf(log(600))
    assert (drawn == 600).mean() == pytest.approx(beyond, abs=0.005)
    assert drawn.mean() < 450


def test_geometric_has_its_mean_and_its_memorylessness() -> None:
    drawn = draw(law(distribution="geometric", mean=20))
    assert drawn.min() == 1
    assert close_to_mean(drawn, 20)
    assert drawn.var() == pytest.approx(20 * 19, rel=0.03)
    assert (drawn[drawn > 10] - 10).mean() == pytest.approx(20, rel=0.02)


def test_geometric_with_mean_1_is_always_1() -> None:
    assert set(draw(law(distribution="geometric", mean=1)).tolist()) == {1}


def test_uniform_draws_both_limits_equally_often() -> None:
    counts = np.bincount(draw(law(distribution="uniform", min=3, max=7)), minlength=8)
    assert counts[:3].sum() == 0
    assert np.all(np.abs(counts[3:] - MANY / 5) < 3.9 * sqrt(MANY * 0.16))


def test_fixed_is_fixed() -> None:
    assert set(draw(law(distribution="fixed", value=42), 10).tolist()) == {42}


def test_empirical_follows_its_table() -> None:
    drawn = draw(law(distribution="empirical", table="azure-2023-conv/prompt"))
    # Typed in from the trace's published checks: mean 1,155, median 1,020, 99th percentile 4,142.
    assert drawn.mean() == pytest.approx(1155, rel=0.01)
    assert np.median(drawn) == pytest.approx(1020, abs=5)
    assert np.percentile(drawn, 99) == pytest.approx(4142, rel=0.03)


def test_empirical_lengths_are_scaled_before_they_are_clipped() -> None:
    table = {"distribution": "empirical", "table": "azure-2023-conv/prompt"}
    plain, scaled = draw(law(**table)), draw(law(**table, scale=2.0, max=4000))
    assert np.all(np.abs(scaled - np.minimum(2 * plain, 4000)) <= 1)


@pytest.mark.slow
@given(fields=st.sampled_from(LAWS), start=st.integers(0, 5000), cuts=st.lists(st.integers(1, 40), max_size=5))
def test_lengths_do_not_depend_on_how_many_are_drawn_at_once(
    fields: dict[str, object], start: int, cuts: list[int]
) -> None:
    of = law(**fields)
    whole = of.quantile(uniforms(STREAMS, "output", 0, start + sum(cuts)))[start:]
    pieces = [np.empty(0, np.int64)]
    for count in cuts:
        pieces.append(of.quantile(uniforms(STREAMS, "output", start, count)))
        start += count
    assert np.array_equal(np.concatenate(pieces), whole)


@pytest.mark.slow
@given(
    fields=st.sampled_from([LAWS[2], LAWS[4], LAWS[5]]),
    least=st.integers(1, 300),
    span=st.integers(0, 300),
    u=st.lists(st.floats(2**-54, 1 - 2**-53), min_size=1),
)
def test_clipping_moves_only_values_outside(fields: dict[str, object], least: int, span: int, u: list[float]) -> None:
    free = law(**{**fields, "min": 1, "max": None}).quantile(np.array(u))
    clipped = law(**{**fields, "min": least, "max": least + span}).quantile(np.array(u))
    assert np.array_equal(clipped, np.clip(free, least, least + span))


@pytest.mark.slow
@given(fields=st.sampled_from(LAWS), u=st.lists(st.floats(2**-54, 1 - 2**-53), min_size=2))
def test_lengths_are_whole_tokens_that_rise_with_the_quantile(fields: dict[str, object], u: list[float]) -> None:
    drawn = law(**fields).quantile(np.sort(u))
    assert drawn.dtype == np.int64
    assert drawn.min() >= 1
    assert np.all(np.diff(drawn) >= 0)


def test_an_absurd_tail_stays_a_whole_number() -> None:
    assert Lognormal(distribution="lognormal", mean=1e9, sigma=5).quantile(np.array([1 - 2**-53])) == [2**31 - 1]


@pytest.mark.parametrize(("start", "count"), [(0, 30), (1000, 100), (1024, 1024), (5, 0), (16_000, 400)])
def test_lengths_that_are_kept_are_those_drawn_anew(start: int, count: int) -> None:
    lengths = Lengths(prompt=law(**LAWS[2]), output=law(**LAWS[4]))
    kept = [lengths.drawn(SeededStreams(7, 0), start, count) for _ in range(2)]
    for found in zip(*kept, lengths.drawn(STREAMS, start, count), strict=True):
        assert [one.tolist() for one in found] == [found[-1].tolist()] * 3
        found[0][:] = 0  # changes no other copy


def test_different_names_are_different_streams() -> None:
    prompt, output = (uniforms(STREAMS, name, 0, 10_000) for name in ("prompt", "output"))
    assert abs(np.corrcoef(prompt, output)[0, 1]) < 0.033


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"distribution": "lognormal", "mean": 512}, "needs one of cv and sigma"),
        ({"distribution": "lognormal", "mean": 512, "cv": 1, "sigma": 1}, "needs one of cv and sigma, not both"),
        ({"distribution": "lognormal", "mean": 0, "cv": 1}, "greater than 0"),
        (
            {"distribution": "lognormal", "mean": 9, "cv": 1, "min": 9, "max": 8},
            r"max \(8\) must not be below min \(9\)",
        ),
        ({"distribution": "uniform", "min": 9, "max": 8}, r"max \(8\) must not be below min \(9\)"),
        ({"distribution": "geometric", "mean": 0.5}, "greater than or equal to 1"),
        ({"distribution": "fixed", "value": 0}, "greater than 0"),
        ({"distribution": "fixed", "value": 1.5}, "valid integer"),
    ],
)
def test_a_law_that_makes_no_sense_is_refused(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        law(**fields)
