"""Operations, API and carbon from the scenario file to the metrics of a case."""

from pathlib import Path
from typing import Any

import pytest
from small_scenario import ran

from sim.case.result import CaseResult
from sim.catalogue.catalog import load_catalog
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.resolving.describe import describe
from sim.study.execution.store import StoredCase
from sim.study.metrics.case_metrics import measure
from sim.study.points import summarize

FIXED = {"distribution": "fixed", "value": 100}
BASIS: dict[str, Any] = {
    "model": "llama3.1-8b",
    "workload": {"arrivals": {"process": "poisson", "rate_rps": 2}, "lengths": {"prompt": FIXED, "output": FIXED}},
    "horizon_s": 120,
    "warmup_s": 20,
    "fleets": [
        {
            "name": "f",
            "pools": [{"gpu": "rtx-4090", "server": "workstation-1x4090"}],
            "cost": {"acquisition": "buy", "quotes": {"rtx-4090": 1900, "workstation-1x4090": 1000}},
        }
    ],
    "site": {"electricity_usd_per_kwh": 0.1, "pue": 1.1, "cooling": {"cop": 2.5}},
    "finance": {"method": "straight_line", "life_years": 4, "resale": {"by_age": {2: 0.5, 5: 0.2}}},
    "operations": {"staff": {"fte": 1, "usd_per_fte_year": 87_600, "over_gpus": 100}},
    "api": {"input": 2.0, "output": "api-gpt-3.5-turbo/openai-output-2023-03"},
    "carbon": {"grid_g_per_kwh": 500, "embodied": {"gpu_kg": 100, "server_kg": 300, "life_years": 5}},
}


def run(folder: Path, **changes: Any) -> tuple[CaseResult, dict[str, Any]]:
    result = ran(folder, BASIS | changes)
    return result, describe(result.plan, load_catalog())


@pytest.mark.slow
def test_all_three_reach_the_metrics(tmp_path: Path) -> None:
    result, described = run(tmp_path)
    found = measure(result)
    assert found["component_usd_per_h"]["staff"] == pytest.approx(0.1)
    tokens = found["total_tokens"]
    assert found["api_usd"] == pytest.approx(2e-6 * tokens)  # 2 $ per million, read or written
    energy_kwh = found["it_power_w_mean"] * found["window_h"] / 1000
    assert found["facility_power_w_mean"] == pytest.approx(1.5 * found["it_power_w_mean"])
    assert found["operational_kg_co2e"] == pytest.approx(1.5 * energy_kwh * 0.5)
    assert found["embodied_kg_co2e"] == pytest.approx(400 / (5 * 8760) * 100 / 3600)
    values = {value["path"]: (value["value"], value["unit"]) for value in described["values"]}
    assert values["fleets.f.cost.quotes.workstation-1x4090"] == (1000, "USD/each")
    assert values["fleets.f.operations.staff.fte"] == (1, "FTE")
    assert values["fleets.f.carbon.grid_g_per_kwh"] == (500, "g CO2e/kWh")
    assert values["fleets.f.cost.api-gpt-3.5-turbo/openai-output-2023-03"][0] == 2
    assert "After 4 years the hardware is sold for 30% of its price." in described["notes"]


@pytest.mark.slow
def test_the_report_may_have_a_currency_of_its_own(tmp_path: Path) -> None:
    terms = BASIS["finance"] | {"fx": {"RMB": 0.138}, "currency": "RMB"}
    found = measure(run(tmp_path, finance=terms)[0])
    assert (found["currency"], found["usd_per_currency"]) == ("RMB", 0.138)
    case = StoredCase(tmp_path, "f", {}, 0, "ok", "", found)
    row = summarize([case], [], {"attainment": 0.95})[0].row
    assert (row["currency"], row["usd_per_currency"]) == ("RMB", 0.138)
    assert row["kg_co2e_per_million_tokens"] == pytest.approx(
        (found["operational_kg_co2e"] + found["embodied_kg_co2e"]) / found["total_tokens"] * 1e6
    )
    assert row["api_usd_per_million_output_tokens"] == pytest.approx(found["api_usd"] / found["output_tokens"] * 1e6)
    with pytest.raises(ScenarioErrors, match="whose rate is missing"):
        run(tmp_path, finance=terms | {"currency": "EUR"})


@pytest.mark.slow
def test_a_fleet_has_its_own(tmp_path: Path) -> None:
    own = {"operations": {"software": {"usd_per_gpu_year": 8760}}, "api": {"input": 0, "output": 1}}
    result, _ = run(tmp_path, fleets=[BASIS["fleets"][0] | own])
    found = measure(result)
    assert found["component_usd_per_h"]["software"] == pytest.approx(1.0)
    assert "staff" not in found["component_usd_per_h"]
    assert found["api_usd"] == pytest.approx(found["output_tokens"] / 1e6)


@pytest.mark.parametrize(
    ("section", "value", "where", "text"),
    [
        ("api", {"input": "gpt/x", "output": 1}, "api.input", "data/prices/gpt.yaml"),
        ("api", {"input": "cheap", "output": 1}, "api.input", "<item>/<offer>"),
        ("carbon", {"grid_g_per_kwh": [1, 2]}, "carbon.grid_g_per_kwh", "one value or 24"),
        ("carbon", {"grid_g_per_kwh": 1, "embodied": {"gpu_kg": {"a40": 1}, "server_kg": 1, "life_years": 1}},
         "carbon.embodied.gpu_kg", "no figure for rtx-4090"),
        ("operations", {"staff": {"fte": 1}}, "operations.staff.usd_per_fte_year", "missing"),
        ("operations", {"stuff": {}}, "operations.stuff", "did you mean staff"),
        ("operations", {"maintenance": {"fraction_per_year": 5}}, "fraction_per_year", "at most 1, not 5"),
        ("finance", {"method": "annuity", "discount_rate": 7, "life_years": 4}, "discount_rate", "at most 1, not 7"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_with_their_line(tmp_path: Path, section: str, value: Any, where: str, text: str) -> None:
    with pytest.raises(ScenarioErrors) as error:
        run(tmp_path, **{section: value})
    [told] = [str(problem) for problem in error.value.errors]
    assert where in told
    assert text in told
    assert "s.yaml:" in told
