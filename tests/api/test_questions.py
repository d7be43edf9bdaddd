"""The questions beside `run`: their answers are those of the commands, and all have the same parts."""

import pickle
from typing import Any

import pytest

import sim
from sim.api.result import Result
from sim.report.charts.chart import Chart
from sim.study import breakeven

pytestmark = pytest.mark.usefixtures("coarsely")

CHOICE = {
    "gpus": ["l4"],
    "quantizations": ["fp8"],
    "max_replicas": 2,
    "costs": {"rented": {"acquisition": "rent", "quotes": {"l4": 0.5}}},
}
LATENCY = {"metric": "ttft_s_p95", "inputs": {"workload.arrivals.rate_rps": [1, 3]}}
ASKED: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]] = {
    "capacity": (
        {"precision": {"relative": 0.9, "max_replications": 5}},
        {"relative": 0.3},
        ("search",),
    ),
    "size": ({"fleets": None, "model": "llama3.1-8b", "size": CHOICE}, {}, ("pareto",)),
    "sensitivity": ({"sensitivity": LATENCY}, {}, ()),
    "breakeven": ({}, {}, ("utilisation", "months", "tipping")),
    "plan": ({"plan": {"years": 1, "starts": "2027-01", "discount_rate": 0.08}}, {"relative": 0.3}, ("months",)),
}


@pytest.mark.slow
@pytest.mark.parametrize("question", ASKED)
def test_every_answer_has_a_verdict_a_table_frames_and_figures(
    question: str, scenario: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breakeven, "STEPS", 4)
    monkeypatch.setattr(breakeven, "HALVINGS", 4)
    values, options, frames = ASKED[question]
    found: Result = getattr(sim, question)(
        scenario, {"sweep": None, "horizon_s": 5, **values}, 1, workers=1, quiet=True, **options
    )
    assert found.verdict
    assert len(found.table)
    assert all(len(getattr(found, frame)) for frame in frames)
    assert not list(found.folder.glob("*.png")), "pictures are drawn when they are asked for"
    for name in found.plots[:1]:
        assert isinstance(found.plot(name), Chart)
    html = found._repr_html_()
    assert "<td" in html
    assert ("image/png" in html) == bool(found.plots)
    again: Result = pickle.loads(pickle.dumps(found))
    assert again.table.equals(found.table)
    assert (again.folder != found.folder, again.verdict, again.plots) == (True, found.verdict, found.plots)


@pytest.mark.slow
def test_ignored_sections_are_reported(scenario: dict[str, Any]) -> None:
    values = {"sensitivity": LATENCY, "horizon_s": 10}
    found = sim.sensitivity(scenario, values, 1, workers=1, quiet=True)
    assert any(finding.startswith("sweep is ignored") for finding in found.findings)


@pytest.mark.slow
def test_the_winner_is_a_scenario(scenario: dict[str, Any]) -> None:
    values, _, _ = ASKED["size"]
    found = sim.size(scenario, {"sweep": None, "horizon_s": 5, **values}, 1, workers=1, quiet=True)
    assert found.winner is not None
    run = sim.run(found.winner, workers=1, quiet=True)
    assert run.summary.meets_slo.all()
    assert run.summary.cost_usd_per_h.item() == pytest.approx(found.table.usd_per_h[0])


@pytest.mark.parametrize(
    ("question", "values", "told"),
    [
        ("capacity", {"slo": {}}, "slo: a capacity needs at least one limit"),
        ("size", {}, "size: is missing"),
        ("plan", {}, "plan: is missing"),
        ("breakeven", {"fleets.one.cost": None}, "fleets.0.cost: is missing"),
        ("sensitivity", {"fleets.two.cost": None}, "fleets.1.cost: is missing"),
    ],
)
def test_what_a_question_lacks_is_an_error(
    question: str, values: dict[str, Any], told: str, scenario: dict[str, Any]
) -> None:
    with pytest.raises(sim.ScenarioErrors) as error:
        getattr(sim, question)(scenario, values)
    assert str(error.value).startswith(told)


@pytest.mark.slow
def test_check_has_pools_and_sourced_values(scenario: dict[str, Any]) -> None:
    found = sim.check("4x4090-vs-2xa100", {"workload.arrivals.rate_rps": 0.5})
    assert found.table.memory_weights_gb.gt(5).all()
    assert found.cases == 10
    assert set(found.values.columns) >= {"fleet", "path", "value", "unit", "source", "kind"}
    assert not found.values.duplicated(["fleet", "path"]).any()
    assert "KV tokens per rank" in found._repr_html_()
    assert sim.check(scenario).verdict == "8 cases to simulate. Every fleet can run."


@pytest.mark.slow
def test_the_catalogue_is_a_set_of_mappings() -> None:
    catalog = sim.catalog()
    assert catalog.gpus["rtx-4090"].memory_bytes_per_s.source
    assert "rtx-4090" in list(catalog.gpus)
    with pytest.raises(sim.UnknownId, match="did you mean"):
        catalog.gpus["rtx-409"]
    for shelf in vars(catalog).values():
        assert "rtx-9999" not in shelf
        assert shelf.get("rtx-9999", 1) == shelf.get(None, 1) == 1
        with pytest.raises(KeyError):
            shelf["rtx-9999"]
    assert catalog.gpus.table.set_index("id").loc["rtx-4090", "memory_bytes_per_s"] == 1.008e12
    assert all(len(shelf) for shelf in vars(catalog).values())


@pytest.mark.slow
def test_tables_of_the_catalogue_have_a_column_for_what_every_thing_may_have() -> None:
    catalog = sim.catalog()
    gpus, offers = catalog.gpus.table, catalog.prices.table
    assert not [column for column in gpus if column.startswith("mig.profiles.") or column.endswith(".source")]
    assert "1g.10gb" in gpus.set_index("id").loc["a100-80gb-sxm", "mig.profiles"]
    assert len(offers) == sum(len(prices.offers) for prices in catalog.prices.values())
    assert {"id", "offer", "what", "price", "currency", "unit"} <= set(offers)
