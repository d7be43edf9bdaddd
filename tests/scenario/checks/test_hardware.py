"""A fleet that buys GPUs without a server says so, in the terminal and on the page."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim.catalogue.catalog import load_catalog
from sim.cli import app
from sim.scenario.checks.hardware import gpus_without_server_notes
from sim.scenario.reading.load import load

pytestmark = pytest.mark.usefixtures("coarsely")

SCENARIO = """\
name: bare
model: llama3.1-8b
quantization: fp8
max_model_len: 4096
workload:
  arrivals: {process: constant, rate_rps: 1}
  lengths:
    prompt: {distribution: fixed, value: 300}
    output: {distribution: fixed, value: 100}
horizon_s: 20
slo: {ttft_s: 2, tpot_s: 0.1}
fleets:
  - name: card
    pools: [{gpu: rtx-4090}]
    cost: {acquisition: buy}
  - name: box
    pools: [{gpu: rtx-4090, server: workstation-1x4090}]
    cost: {acquisition: buy}
  - name: rented
    pools: [{gpu: rtx-4090}]
    cost: {acquisition: rent, quotes: {rtx-4090: 0.4}}
site: {electricity_usd_per_kwh: 0.3, pue: 1.2}
finance: {method: straight_line, life_years: 3, residual_fraction: 0}
plan: {years: 1, starts: 2026-01}
"""
TOLD = "Host not included: card buys rtx-4090 without a server"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "page"),
    [
        ("run", "report"),
        ("capacity", "capacity"),
        ("breakeven", "breakeven"),
        ("plan", "plan"),
        ("sensitivity", "sensitivity"),
    ],
)
def test_every_command_reports_gpus_without_a_server(tmp_path: Path, command: str, page: str) -> None:
    text = SCENARIO[: SCENARIO.index("  - name: box")] + SCENARIO[SCENARIO.index("site:") :]
    text = text.replace("horizon_s: 20", "horizon_s: 5")
    if command == "sensitivity":
        text = text.replace("plan:", "sensitivity: {inputs: {site.pue: [1.1, 1.3]}}\nplan:")
    (tmp_path / "s.yaml").write_text(text)
    asked = [command, str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out"), "--workers", "1"]
    done = CliRunner().invoke(app, asked + (["--relative", "0.5"] if command in ("capacity", "plan") else []))
    assert done.exit_code == 0, done.stderr
    assert TOLD in done.stdout
    html = (tmp_path / f"out/{page}.html").read_text()
    assert TOLD in html
    assert ("older than six months" in html) == ("older than six months" in done.stdout) == (command == "run")


def notes(folder: Path, text: str) -> list[str]:
    (folder / "s.yaml").write_text(text)
    return gpus_without_server_notes(load(folder / "s.yaml", catalog=load_catalog()), load_catalog())


@pytest.mark.slow
def test_only_bought_gpus_that_need_a_host(tmp_path: Path) -> None:
    told, host = notes(tmp_path, SCENARIO)
    assert told.startswith(TOLD)
    assert host == (
        "A server for rtx-4090: workstation-1x4090 (GPU slots: 1) draws 150 W, 100 to 250 W, beside its GPUs."
    )
    also = "breakeven: {also: {rented: {bought: {acquisition: buy}}}}\n"
    assert len(notes(tmp_path, SCENARIO + also)) == 3, "another way to pay buys it"
    swept = SCENARIO.replace("[{gpu: rtx-4090}]", "[{gpu: rtx-4090, server: workstation-1x4090}]", 1)
    assert notes(tmp_path, swept) == []
    swept += "sweep: {fleets.card.pools.0.server: [workstation-1x4090, null]}\n"
    assert notes(tmp_path, swept)[0].partition(",")[0] == TOLD


def test_power_without_costs_is_reported_as_that_of_gpus_alone(tmp_path: Path) -> None:
    unpaid = SCENARIO[: SCENARIO.index("    cost: ")]
    assert notes(tmp_path, unpaid)[0] == (
        "Host not included: the power of card is that of rtx-4090 alone: give the pool a server."
    )


def test_cards_without_known_power_have_none(tmp_path: Path) -> None:
    unpaid = SCENARIO[: SCENARIO.index("    cost: ")].replace("rtx-4090", "ascend-910c")
    assert notes(tmp_path, unpaid) == [
        "The power of card is not known: the catalogue has no power limit of ascend-910c."
    ]
