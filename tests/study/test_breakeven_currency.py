"""An input whose price is in another currency tips, too: at the same money, shown in the currency that is stated."""

import csv
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sim.catalogue.catalog import load_catalog
from sim.cli import app
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.study.sensitivity import inputs
from sim.yamlio import dump

RATE = 1.25
FIXED = {"distribution": "fixed", "value": 60}
POOL = {
    "gpu": "rtx-4090",
    "server": "workstation-1x4090",
    "steptime": {"model": "affine", "base_s": 0.01, "per_token_s": 1e-5, "per_context_token_s": 1e-8},
    "batching": {"policy": "vllm", "num_gpu_blocks": 999, "max_num_seqs": 8},
}


def scenario(price: Any) -> dict[str, Any]:
    """Bought machines, dearer than rented ones where electricity is dear."""
    return {
        "name": "tips",
        "workload": {"arrivals": {"process": "constant", "rate_rps": 2}, "lengths": {"prompt": FIXED, "output": FIXED}},
        "horizon_s": 12,
        "slo": {"ttft_s": 1, "tpot_s": 0.05},
        "fleets": [{"name": "own", "pools": [POOL], "cost": {"acquisition": "buy"}}],
        "site": {"electricity_usd_per_kwh": price(0.2), "pue": 1.2, "hosting": {"per": "kw_month", "usd": price(50)}},
        "finance": {"method": "annuity", "discount_rate": 0.1, "life_years": 3, "fx": {"EUR": RATE}},
        "breakeven": {"also": {"own": {"rented": {"acquisition": "rent", "quotes": {"rtx-4090": 0.35}}}}},
    }


def tipping(folder: Path, price: Any) -> tuple[dict[str, dict[str, str]], str]:
    folder.mkdir()
    (folder / "s.yaml").write_text(dump(scenario(price)))
    done = CliRunner().invoke(app, ["breakeven", str(folder / "s.yaml"), "--out", str(folder / "out"), "--no-report"])
    assert done.exit_code == 0, done.output
    with (folder / "out/tipping.csv").open() as file:
        return {row["input"]: row for row in csv.DictReader(file)}, done.stdout


def euros(usd: float) -> dict[str, Any]:
    return {"price": usd / RATE, "currency": "EUR"}


def test_a_price_in_euros_tips_at_the_same_money(tmp_path: Path) -> None:
    dollar, _ = tipping(tmp_path / "dollar", lambda usd: usd)
    euro, said = tipping(tmp_path / "euro", euros)
    assert list(euro) == list(dollar)
    assert (euro["electricity"]["unit"], euro["hosting"]["unit"]) == ("EUR/kWh", "EUR per kW and month")
    for name, row in euro.items():
        rate = RATE if name in ("electricity", "hosting") else 1.0
        assert rate * float(row["now"]) == pytest.approx(float(dollar[name]["now"]))
        for side in ("below", "above"):
            assert row[f"then_{side}"] == dollar[name][f"then_{side}"]
            if row[f"tips_{side}"]:
                assert rate * float(row[f"tips_{side}"]) == pytest.approx(float(dollar[name][f"tips_{side}"]), rel=1e-4)
    assert euro["electricity"]["tips_above"] or euro["electricity"]["tips_below"]
    assert "it is 0.16 EUR/kWh" in said


def test_sensitivity_moves_it_in_that_currency(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(dump(scenario(euros)))
    catalog = load_catalog()
    found = {one.name: one for one in inputs(load(tmp_path / "s.yaml", catalog=catalog), catalog)}
    assert (found["electricity"].unit, found["electricity"].now) == ("EUR/kWh", pytest.approx(0.16))
    assert found["hosting"].unit == "EUR per kW and month"


def test_a_contradiction_in_finance_is_one_error(root: Path, tmp_path: Path) -> None:
    """No fleet is told that it needs finance: it has, once the contradiction is mended."""
    base = root / "scenarios" / "4x4090-vs-2xa100.yaml"
    (tmp_path / "s.yaml").write_text(f"base: {base}\nfinance: {{resale: {{loss_per_year: 0.3}}}}\n")
    with pytest.raises(ScenarioErrors) as caught:
        load(tmp_path / "s.yaml", catalog=load_catalog())
    [told] = caught.value.errors
    assert (told.where, told.message.partition(":")[0]) == (
        "finance",
        "residual_fraction and resale both give the resale value",
    )
    (tmp_path / "s.yaml").write_text(f"base: {base}\nfinance: {{life_years: null}}\nsite: null\n")
    with pytest.raises(ScenarioErrors) as caught:
        load(tmp_path / "s.yaml", catalog=load_catalog())
    assert {one.where for one in caught.value.errors} == {"finance.life_years", "fleets.0.site", "fleets.1.site"}
