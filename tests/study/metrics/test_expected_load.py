"""Costs per token at a few requests a minute rest on the workload's mean lengths and not on which ones came."""

from pathlib import Path

import pytest

from sim.catalogue.catalog import load_catalog
from sim.scenario.reading.load import load
from sim.scenario.year import hours_of
from sim.study.breakeven_costs import CandidateLedgers
from sim.study.capacity import FleetCapacity
from sim.study.execution.cores import ProcessPool
from sim.study.metrics.expected_load import mean_tokens

CATALOG = load_catalog()
SCENARIO = """\
name: luck
model: llama3.1-8b
workload:
  arrivals: {process: poisson, rate_rps: 2}
  lengths:
    prompt: {distribution: uniform, min: 100, max: 300}
    output: {distribution: geometric, mean: 50}
horizon_s: 60
slo: {ttft_s: 1, tpot_s: 0.05}
fleets:
  - name: own
    pools: [{gpu: rtx-4090, server: workstation-2x4090}]
    cost: {acquisition: buy, quotes: {rtx-4090: 2000, workstation-2x4090: 3000}}
site: {electricity_usd_per_kwh: 0.2, pue: 1.4, hosting: none}
finance: {method: annuity, discount_rate: 0.08, life_years: 4, residual_fraction: 0.2}
api: {input: 0.1, output: 0.4}
"""


@pytest.mark.slow
def test_tokens_at_every_load_are_rate_times_mean_length(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO)
    scenario = load(tmp_path / "s.yaml", (), catalog=CATALOG)
    # half a request a second at the highest load, one a minute at the lowest
    ledgers = CandidateLedgers(
        scenario, CATALOG, tmp_path / "out", ProcessPool(1), [FleetCapacity("own", 0.5, None, ())]
    )
    (own,) = ledgers.candidates
    for utilisation, cost in ledgers.curve(own):
        assert cost.output_tokens_per_h == pytest.approx(3600 * 50 * 0.5 * utilisation, rel=1e-3)
        # an answer of 50 tokens to 200: 200 at 0.1 $ and 50 at 0.4 $ a million
        assert cost.api_usd_per_h == pytest.approx(3600 * 0.5 * utilisation * (200 * 0.1 + 50 * 0.4) / 1e6, rel=1e-3)


@pytest.mark.parametrize(
    ("law", "mean"),
    [
        ("{distribution: fixed, value: 7}", 7),
        ("{distribution: uniform, min: 3, max: 8}", 5.5),
        # p = 1/4 and at most 2: 1 with probability 1/4, else 2
        ("{distribution: geometric, mean: 4, max: 2}", 1.75),
        # a lognormal without spread
        ("{distribution: lognormal, mean: 30, cv: 0}", 30),
    ],
)
def test_means_are_those_of_the_clipped_laws(tmp_path: Path, law: str, mean: float) -> None:
    text = SCENARIO.replace("{distribution: geometric, mean: 50}", law)
    (tmp_path / "s.yaml").write_text(text)
    prompt, output = mean_tokens(load(tmp_path / "s.yaml", (), catalog=CATALOG))
    assert prompt == pytest.approx(200, rel=1e-4)
    assert output == pytest.approx(mean, rel=1e-4)


def test_the_mean_of_a_trace_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,10,1\n1,20,2\n2,60,6\n")
    workload = SCENARIO[SCENARIO.index("workload:") : SCENARIO.index("horizon_s")]
    text = SCENARIO.replace(workload, "workload: {trace: {path: t.csv, format: csv}}\n")
    (tmp_path / "s.yaml").write_text(text)
    assert mean_tokens(load(tmp_path / "s.yaml", (), catalog=CATALOG)) == (30, 3)


def test_the_hours_of_a_week_keep_their_prices(tmp_path: Path) -> None:
    week = [2.0] * 120 + [0.5] * 48
    (tmp_path / "s.yaml").write_text(
        f"{SCENARIO}sweep: {{workload.arrivals.rate_rps: [0.5, 2]}}\nload_profile: {week}\n"
    )
    hours = hours_of(load(tmp_path / "s.yaml", (), catalog=CATALOG))
    mean = (120 * 2.0 + 48 * 0.5) / 168
    assert [(one.share, one.relative) for one in hours] == [
        (pytest.approx(120 / 168), pytest.approx(2.0 / mean)),
        (pytest.approx(48 / 168), pytest.approx(0.5 / mean)),
    ]
    assert [one.calendar.by_hour for one in hours] == [(1.0,) * 120 + (0.0,) * 48, (0.0,) * 120 + (1.0,) * 48]
