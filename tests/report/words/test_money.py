"""A report in another currency: the same amounts divided by the rate, everywhere, and no dollar sign left."""

import csv
from pathlib import Path
from typing import Any

import pytest
from pages import text_of
from typer.testing import CliRunner

from sim.catalogue.catalog import load_catalog
from sim.cli import app
from sim.language import speaking
from sim.report.words.money import amount, cash, converted_column
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.study import breakeven
from sim.yamlio import dump

pytestmark = pytest.mark.usefixtures("coarsely")

RATE = 1.25
FIXED = {"distribution": "fixed", "value": 60}
FINANCE = {"method": "annuity", "discount_rate": 0.08, "life_years": 4, "fx": {"EUR": RATE, "JPY": 0.0067}}
SCENARIO: dict[str, Any] = {
    "name": "s",
    "model": "llama3.1-8b",
    "workload": {"arrivals": {"process": "constant", "rate_rps": 2}, "lengths": {"prompt": FIXED, "output": FIXED}},
    "horizon_s": 7,
    "warmup_s": 2,
    "slo": {"ttft_s": 2.0, "attainment": 0.9},
    "fleets": [
        {
            "name": "bought",
            "pools": [{"gpu": "l4"}],
            "cost": {"acquisition": "buy", "quotes": {"l4": 2500}},
        },
        {
            "name": "rented",
            "pools": [{"gpu": "l4"}],
            "cost": {"acquisition": "rent", "quotes": {"l4": 0.5}},
        },
    ],
    "site": {"electricity_usd_per_kwh": 0.12, "pue": 1.5},
    "finance": FINANCE | {"currency": "EUR"},
    "api": {"input": 0.5, "output": 1.5},
    "plan": {"years": 1, "starts": "2026-01"},
    "size": {"gpus": ["l4"], "max_replicas": 1, "costs": {"rented": {"acquisition": "rent", "quotes": {"l4": 0.5}}}},
}
PAGES = {"run": "report.html", "breakeven": "breakeven.html", "plan": "plan.html", "size": "size.html"}


def called(folder: Path, command: str, data: dict[str, Any]) -> str:
    """Return the output of *command*; its files are in *folder*/out."""
    (folder / "s.yaml").write_text(dump(data))
    arguments = [command, str(folder / "s.yaml"), "--workers", "1", "--out", str(folder / "out")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", list(PAGES))
def test_everything_is_shown_in_the_scenarios_currency(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(breakeven, "STEPS", 4)
    monkeypatch.setattr(breakeven, "HALVINGS", 4)
    printed = called(tmp_path, command, SCENARIO)
    page = text_of((tmp_path / "out" / PAGES[command]).read_text())
    for text in (printed, page):
        assert "$" not in text
        assert "€" in text or text is printed
        assert "EUR" in text
        assert "USD a month" not in text
        assert "USD per million" not in text
    amounts = 0
    for path in (tmp_path / "out").glob("*.csv"):
        for row in csv.DictReader(path.read_text().splitlines()):
            for name, value in row.items():
                if "usd" in name and name != "usd_per_currency":
                    other = row[name.replace("usd", "EUR")]
                    assert bool(other) == bool(value), (path, name)
                    if value:
                        assert float(other) == pytest.approx(float(value) / RATE), (path, name)
                        amounts += 1
    assert amounts > 10


@pytest.mark.slow
def test_dollars_have_no_second_column(tmp_path: Path) -> None:
    called(tmp_path, "run", SCENARIO | {"finance": FINANCE})
    header = (tmp_path / "out" / "summary.csv").read_text().partition("\n")[0].split(",")
    assert "cost_usd_per_h" in header
    assert not [name for name in header if "USD" in name or name in ("currency", "usd_per_currency")]
    assert (cash(1234.5), converted_column("cost_usd_per_h")) == ("$1,234", "")


def test_one_report_has_one_currency(tmp_path: Path) -> None:
    fleets = [SCENARIO["fleets"][0] | {"finance": FINANCE | {"currency": "JPY"}}, SCENARIO["fleets"][1]]
    (tmp_path / "s.yaml").write_text(dump(SCENARIO | {"fleets": fleets}))
    with pytest.raises(ScenarioErrors, match="one report has one currency and one rate") as error:
        load(tmp_path / "s.yaml", catalog=load_catalog())
    assert error.value.errors[0].where == "fleets.0.finance.currency"


def test_a_price_in_another_currency_has_a_unit_in_the_shown_language() -> None:
    assert amount(900.0, "RMB per kW and month") == "900 RMB per kW and month"
    with speaking("zh"):
        assert amount(900.0, "RMB per kW and month") == "900 RMB/kW/月"
