"""Resale, payback, and costs that follow a price, against figures worked by hand."""

import csv
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from sim.cli import app
from sim.cost.finance import Annuity
from sim.study.plan_units import Declines, value_of
from sim.yamlio import dump

pytestmark = pytest.mark.slow

FIXED = {"distribution": "fixed", "value": 60}
STEPS = {"model": "affine", "base_s": 0.01, "per_token_s": 1e-5, "per_context_token_s": 1e-8}
POOL = {
    "gpu": "rtx-4090",
    "server": "workstation-2x4090",
    "steptime": STEPS,
    "batching": {"policy": "vllm", "num_gpu_blocks": 999, "max_num_seqs": 8},
}
SCENARIO: dict[str, Any] = {
    "name": "tips",
    "workload": {"arrivals": {"process": "constant", "rate_rps": 2}, "lengths": {"prompt": FIXED, "output": FIXED}},
    "horizon_s": 20,
    "slo": {"ttft_s": 1, "tpot_s": 0.05},
    "replications": 1,
    "fleets": [
        {
            "name": "own",
            "pools": [POOL],
            "cost": {"acquisition": "buy", "quotes": {"rtx-4090": 2000, "workstation-2x4090": 3000}},
        }
    ],
    "site": {"electricity_usd_per_kwh": 0.0, "pue": 1.0, "hosting": "none"},
    "finance": {"method": "annuity", "discount_rate": 0.1, "life_years": 3, "residual_fraction": 0.25},
    "operations": {
        "sales_tax": {"fraction_of_purchases": 0.2},
        "maintenance": {"fraction_per_year": 0.12},
        "deployment": {"usd_per_server": 700},
        "staff": {"fte": 1, "usd_per_fte_year": 876, "over_gpus": 1},
    },
    "breakeven": {
        "months": 12,
        "also": {"own": {"rented": {"acquisition": "rent", "quotes": {"rtx-4090": 0.45}}}},
    },
}


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("tips")
    (folder / "s.yaml").write_text(dump(SCENARIO))
    options = ["--out", str(folder / "out"), "--no-report"]
    result = CliRunner().invoke(app, ["breakeven", str(folder / "s.yaml"), *options])
    assert result.exit_code == 0, result.output
    return folder / "out", result.stdout


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_tax_and_deployment_are_not_sold_again(answer: tuple[Path, str]) -> None:
    out, _ = answer
    path = {int(row["month"]): row for row in rows(out / "months.csv") if row["candidate"] == "own bought"}
    # 5,000 of hardware, 1,000 of tax, 700 of deployment; each month 50 of maintenance and 73 of staff
    assert float(path[0]["cash_usd"]) == pytest.approx(6_700)
    assert float(path[0]["net_present_cost_usd"]) == pytest.approx(1_700)
    year = sum(1.1 ** (-month / 12) for month in range(1, 13))
    # after a year of three the hardware fetches 1 - 0.75/3 of its price
    expected = 6_700 + 123 * year - 5_000 * 0.75 / 1.1
    assert float(path[12]["net_present_cost_usd"]) == pytest.approx(expected)


def test_a_purchase_pays_back_within_its_life_or_not_at_all(answer: tuple[Path, str]) -> None:
    # the rent is 328.5 + 73 a month: 278.5 are saved, 6,700 take 24 months
    assert "own bought ($6,700) pays for itself in 24" in " ".join(answer[1].lower().split())


def test_only_the_rent_moves_with_the_rent(answer: tuple[Path, str]) -> None:
    out, _ = answer
    tips = {row["input"]: row for row in rows(out / "tipping.csv")}
    cost = {row["candidate"]: float(row["usd_per_h"]) for row in rows(out / "ranking.csv")}
    rent = tips["rent of own rented"]
    assert float(rent["now"]) == pytest.approx(0.45)
    staff = 876 / 8760
    # the bought machine costs as much as a rent of its bill less the staff, who are paid either way
    tips_at = float(rent["tips_below"] or rent["tips_above"])
    assert tips_at == pytest.approx(cost["own bought"] - staff, rel=1e-4)


def test_what_moves_with_the_price_of_hardware(answer: tuple[Path, str]) -> None:
    out, _ = answer
    tips = {row["input"]: row for row in rows(out / "tipping.csv")}
    price = tips["hardware price of own bought"]
    assert float(price["now"]) == pytest.approx(5_000)
    tips_at = float(price["tips_above"] or price["tips_below"])
    # maintenance and tax follow the price, deployment and staff do not: bills are equal there
    annuity = Annuity(method="annuity", discount_rate=0.1, life_years=3, residual_fraction=0.25)
    hardware = annuity.usd_per_h(tips_at) + annuity.sunk_usd_per_h(0.2 * tips_at) + 0.12 * tips_at / 8760
    assert hardware + annuity.sunk_usd_per_h(700) == pytest.approx(0.45, rel=1e-4)


@given(
    decline=st.floats(-0.5, 0.95),
    ordered=st.integers(0, 60),
    lead=st.integers(0, 12),
    residual=st.floats(0, 1),
    age=st.integers(0, 48),
)
def test_a_used_machine_never_fetches_more_than_a_new_one(
    decline: float, ordered: int, lead: int, residual: float, age: int
) -> None:
    finance = Annuity(method="annuity", discount_rate=0.1, life_years=4, residual_fraction=residual)
    declines = Declines(decline, 0.0, finance)
    delivered = ordered + lead
    worth = [value_of(finance, declines, ordered, delivered, delivered + months) for months in range(age + 1)]
    assert worth[-1] <= declines.hardware(delivered + age)
    assert worth[0] <= declines.hardware(ordered)
    assert all(later <= earlier * (1 + 1e-12) for earlier, later in pairwise(worth))
