"""Whether the faster of two servers is named."""

from dataclasses import replace

import pytest

from sim.benchdata.row import BenchRow
from sim.fidelity.prediction import Prediction
from sim.fidelity.scores import PredictedRow, entrants, rankings

ROW = BenchRow(2, "a", "", "m", isl=1000, osl=100, concurrency=4)


def outcome(gpu: str, measured: float, predicted: float, metric: str = "output_tok_s", **row: object) -> PredictedRow:
    told = Prediction("a", "covered", metrics={metric: predicted}, gpu=gpu, family="f")
    return PredictedRow(replace(ROW, measured={metric: measured}, **row), told)  # type: ignore[arg-type]


def test_the_server_with_more_tokens_or_less_time_is_the_faster_one() -> None:
    (more,) = rankings(entrants([outcome("g", 100, 90), outcome("h", 120, 200)]))
    assert (more.quantity, more.comparisons, more.row_pairs, more.right_share) == ("throughput", 1, 1, 1.0)
    (less,) = rankings(entrants([outcome("g", 30, 90, "tpot_mean_ms"), outcome("h", 20, 91, "tpot_mean_ms")]))
    assert (less.quantity, less.right_share) == ("tpot", 0.0)


@pytest.mark.parametrize(
    "other",
    [
        outcome("h", 109, 200),
        outcome("h", 120, 200, concurrency=8),
        outcome("h", 120, 200, osl=110),
        outcome("h", 120, 200, trust="C"),
        outcome("g", 120, 200),
    ],
    ids=["within 10 % of the first", "other clients", "other lengths", "not trusted", "the same server"],
)
def test_what_is_no_comparison(other: PredictedRow) -> None:
    assert rankings(entrants([outcome("g", 100, 90), other])) == []


def test_the_throughput_of_an_open_loop_is_the_clients_rate() -> None:
    paced = {"load": "poisson", "concurrency": None, "rate_req_s": 2.0}
    assert rankings(entrants([outcome("g", 100, 90, **paced), outcome("h", 120, 95, **paced)])) == []


def test_every_pair_of_servers_weighs_the_same_however_many_rows_it_has() -> None:
    rows = [outcome("g", 100, 90, osl=100 + i) for i in range(3)] + [outcome("h", 150, 80), outcome("i", 60, 50)]
    (found,) = rankings(entrants(rows))
    assert (found.comparisons, found.row_pairs) == (3, 7)
    assert found.right_share == pytest.approx((0 + 1 + 1) / 3)
