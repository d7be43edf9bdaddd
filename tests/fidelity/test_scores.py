"""Definition and weights of errors, ranking of two servers, and order and reproducibility of a whole table.

Whether the faster of two servers is named.

A whole table: order, independence of the number of processes.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from sim.benchdata import read_benchmarks
from sim.benchdata.row import BenchRow
from sim.catalogue.catalog import load_catalog
from sim.fidelity.prediction import Prediction
from sim.fidelity.scores import (
    PredictedRow,
    coverage,
    joint_errors,
    joint_scores,
    load_class,
    ranked_servers,
    rankings,
    reasons,
    scores,
    validate,
)

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
def test_ttft_is_scored_separately_by_load(row: dict[str, object], kind: str) -> None:
    told = PredictedRow(replace(ROW, measured={"ttft_p50_ms": 5.0}, **row), Prediction("a", "covered"))  # type: ignore[arg-type]
    assert told.quantities() == {kind: "ttft_p50_ms"}


def test_a_queue_is_scored_apart() -> None:
    told = Prediction("a", "covered", saturated=True)
    row = replace(ROW, measured={"ttft_mean_ms": 5.0, "output_tok_s": 1.0, "req_s": 1.0})
    assert PredictedRow(row, told).quantities() == {"ttft saturated": "ttft_mean_ms", "throughput": "output_tok_s"}


def test_a_run_without_warm_up_is_scored_apart_and_not_jointly() -> None:
    told = Prediction("a", "covered", metrics={"ttft_mean_ms": 4.0, "tpot_mean_ms": 2.0}, cold_start=True)
    row = PredictedRow(replace(ROW, measured={"ttft_mean_ms": 5.0, "tpot_mean_ms": 1.0}), told)
    assert row.quantities() == {"ttft cold": "ttft_mean_ms", "tpot": "tpot_mean_ms"}
    assert not list(joint_errors([row]))


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


MEASURED = BenchRow(2, "a", "", "m", isl=1000, osl=100, concurrency=4)


def entrant(gpu: str, measured: float, predicted: float, metric: str = "output_tok_s", **row: object) -> PredictedRow:
    told = Prediction("a", "covered", metrics={metric: predicted}, gpu=gpu, family="f")
    return PredictedRow(replace(MEASURED, measured={metric: measured}, **row), told)  # type: ignore[arg-type]


def test_the_server_with_more_tokens_or_less_time_is_the_faster_one() -> None:
    (more,) = rankings(ranked_servers([entrant("g", 100, 90), entrant("h", 120, 200)]))
    assert (more.quantity, more.comparisons, more.row_pairs, more.right_share) == ("throughput", 1, 1, 1.0)
    (less,) = rankings(ranked_servers([entrant("g", 30, 90, "tpot_mean_ms"), entrant("h", 20, 91, "tpot_mean_ms")]))
    assert (less.quantity, less.right_share) == ("tpot", 0.0)


@pytest.mark.parametrize(
    "other",
    [
        entrant("h", 109, 200),
        entrant("h", 120, 200, concurrency=8),
        entrant("h", 120, 200, osl=110),
        entrant("h", 120, 200, trust="C"),
        entrant("g", 120, 200),
    ],
    ids=["within 10 % of the first", "other clients", "other lengths", "not trusted", "the same server"],
)
def test_what_is_no_comparison(other: PredictedRow) -> None:
    assert rankings(ranked_servers([entrant("g", 100, 90), other])) == []


def test_the_throughput_of_an_open_loop_is_the_clients_rate() -> None:
    paced = {"load": "poisson", "concurrency": None, "rate_req_s": 2.0}
    assert rankings(ranked_servers([entrant("g", 100, 90, **paced), entrant("h", 120, 95, **paced)])) == []


def test_every_pair_of_servers_weighs_the_same_however_many_rows_it_has() -> None:
    rows = [entrant("g", 100, 90, osl=100 + i) for i in range(3)] + [
        entrant("h", 150, 80),
        entrant("i", 60, 50),
    ]
    (found,) = rankings(ranked_servers(rows))
    assert (found.comparisons, found.row_pairs) == (3, 7)
    assert found.right_share == pytest.approx((0 + 1 + 1) / 3)


TABLE = """\
id,gpu,n_gpus,tp,model,precision,load,isl,osl,concurrency,rate_req_s,output_tok_s,tpot_mean_ms
one,H100-SXM,1,1,llama3.1-8b,bf16,closed_loop,500,100,1,,130,7
two,H100-SXM,2,2,llama3.1-8b,fp8,closed_loop,500,100,16,,2000,8
lost,abacus,1,1,llama3.1-8b,bf16,closed_loop,500,100,1,,130,7
open,rtx-4090,1,1,llama3.1-8b,fp8,poisson,500,100,,2,180,15
big,rtx-4090,1,1,llama3.1-70b,bf16,closed_loop,500,100,1,,1,1
"""


@pytest.mark.slow
def test_rows_come_back_in_order_whatever_the_number_of_processes(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(TABLE)
    rows, catalog, told = read_benchmarks(path), load_catalog(), []
    alone = validate(rows, catalog, 1, lambda *counts: told.append(counts))
    assert [one.row.id for one in alone] == ["one", "two", "lost", "open", "big"]
    assert [one.prediction.status for one in alone] == ["covered", "covered", "not_covered", "covered", "infeasible"]
    assert told == [(done, 5, 0) for done in range(1, 6)]
    assert validate(rows, catalog, 2, lambda *_: None) == alone


def both(ttft: float, tpot: float, layout: str = "TP", saturated: bool = False, **row: object) -> PredictedRow:
    """Return a row measured at 100 ms to the first and 10 ms per further token, and predicted as stated."""
    told = Prediction(
        "a", "covered", metrics={"ttft_mean_ms": ttft, "tpot_mean_ms": tpot}, engine="e", gpu="g", family="f",
        layout=layout, saturated=saturated,
    )  # fmt: skip
    measured = {"ttft_mean_ms": 100.0, "tpot_mean_ms": 10.0}
    return PredictedRow(replace(ROW, measured=measured, osl=11, **row), told)  # type: ignore[arg-type]


def test_joint_errors_keep_both_signs_and_the_whole_answer() -> None:
    (found,) = joint_errors([both(50, 15), outcome(10, 12), both(50, 15, saturated=True)])
    assert (found.ttft, found.tpot) == (pytest.approx(-0.5), pytest.approx(0.5))
    assert found.answer == pytest.approx(0)


@pytest.mark.parametrize(
    ("changed", "clients"),
    [
        ({}, "256 and more clients"),
        ({"num_requests": 100}, "64 to 255 clients"),
        ({"rate_req_s": 10.0}, "16 to 63 clients"),
        ({"rate_req_s": 1000.0}, "256 and more clients"),
    ],
)
def test_clients_never_exceed_requests_nor_what_a_rate_starts_in_an_answer(
    changed: dict[str, object], clients: str
) -> None:
    answer = {"ttft_mean_ms": 1000.0, "tpot_mean_ms": 100.0}
    assert load_class(replace(ROW, concurrency=300, measured=answer, **changed)) == clients  # type: ignore[arg-type]


def test_joint_scores_by_engine_layout_and_load() -> None:
    rows = [both(50, 15), both(150, 5), both(50, 15, layout="EP", concurrency=300)]
    found = {(one.layout, one.load): one for one in joint_scores(joint_errors(rows))}
    assert list(found) == [
        ("all", "all"), ("EP", "all"), ("TP", "all"), ("all", "2 to 15 clients"), ("all", "256 and more clients")
    ]  # fmt: skip
    whole, tensor = found["all", "all"], found["TP", "all"]
    assert (whole.rows, whole.ttft_short_tpot_long, whole.ttft_long_tpot_short, whole.both_short) == (3, 2, 1, 0)
    assert (tensor.ttft_bias, tensor.tpot_bias, tensor.answer_error) == pytest.approx((0, 0, 0))
