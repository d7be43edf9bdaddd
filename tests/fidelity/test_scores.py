"""How errors are defined and what weighs how much."""

from dataclasses import replace

import pytest

from sim.benchdata.row import BenchRow
from sim.fidelity.prediction import Prediction
from sim.fidelity.scores import PredictedRow, coverage, reasons, scores

ROW = BenchRow(2, "a", "g", "m", isl=10, osl=10, concurrency=4)


def outcome(measured: float, predicted: float | None, gpu: str = "g", **row: object) -> PredictedRow:
    told = Prediction("a", "covered", metrics={"tpot_mean_ms": predicted or 0.0}, gpu=gpu, family="f")
    if predicted is None:
        told = Prediction("a", "not_covered", "unknown engine 'x'", gpu=gpu, family="f")
    return PredictedRow(replace(ROW, measured={"tpot_mean_ms": measured}, **row), told)  # type: ignore[arg-type]


def test_the_error_is_predicted_over_measured_minus_one() -> None:
    assert outcome(10, 12).error("tpot_mean_ms") == pytest.approx(0.2)
    assert outcome(10, 5).error("tpot_mean_ms") == pytest.approx(-0.5)
    assert outcome(10, None).error("tpot_mean_ms") is None
    assert outcome(10, 12).error("ttft_mean_ms") is None


def test_every_pair_weighs_the_same_however_many_rows_it_has() -> None:
    many = [outcome(10, 11)] * 9
    (score,) = scores([*many, outcome(10, 13, gpu="h"), outcome(10, 15, gpu="i")], lambda _: ("all",))
    assert (score.rows, score.pairs, score.covered) == (11, 3, 11)
    assert score.median_error == pytest.approx(0.3)
    assert score.p90_error == pytest.approx(0.46)
    assert score.bias == pytest.approx(0.3)


def test_a_row_without_a_prediction_counts_as_all_wrong() -> None:
    (score,) = scores([outcome(10, 11), outcome(10, None, gpu="h"), outcome(10, None, gpu="i")], lambda _: ("all",))
    assert score.median_error == 1
    assert (score.covered_median_error, score.covered) == (pytest.approx(0.1), 1)


def test_covered_and_uncovered_rows_of_a_pair_meet() -> None:
    (score,) = scores([outcome(10, 10), outcome(10, None)], lambda _: ("all",))
    assert (score.pairs, score.median_error) == (1, 0.5)


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ({"load": "single"}, "ttft alone"),
        ({"load": "closed_loop", "concurrency": 1}, "ttft alone"),
        ({"load": "closed_loop", "concurrency": 2}, "ttft loaded"),
        ({"load": "poisson", "rate_req_s": 1}, "ttft loaded"),
    ],
)
def test_ttft_is_told_apart_by_load(row: dict[str, object], kind: str) -> None:
    told = PredictedRow(replace(ROW, measured={"ttft_p50_ms": 5.0}, **row), Prediction("a", "covered"))  # type: ignore[arg-type]
    assert told.quantities() == {kind: "ttft_p50_ms"}


def test_a_queue_is_scored_apart() -> None:
    told = Prediction("a", "covered", saturated=True)
    row = replace(ROW, measured={"ttft_mean_ms": 5.0, "output_tok_s": 1.0, "req_s": 1.0})
    assert PredictedRow(row, told).quantities() == {"ttft saturated": "ttft_mean_ms", "throughput": "output_tok_s"}


def test_classes_and_their_coverage() -> None:
    rows = [
        outcome(1, 1),
        outcome(1, None, trust="C"),
        outcome(1, 1, use="own_class"),
        outcome(1, None, use="score", trust="B"),
        outcome(1, 1, spec_decode="ngram"),
    ]
    found = coverage(rows)
    assert [(one.category, one.rows, one.covered) for one in found] == [
        ("score", 2, 1),
        ("not trusted", 1, 0),
        ("own class", 1, 1),
        ("speculative decoding", 1, 1),
    ]
    assert found[0].share == 0.5
    assert reasons(rows) == [("unknown engine 'x'", 2)]
