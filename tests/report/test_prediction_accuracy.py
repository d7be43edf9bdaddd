"""Rings around points: how near they are to what was measured."""

from sim.catalogue.catalog import load_catalog
from sim.report.charts.panels import ChartCurve, Panel
from sim.report.charts.vega_lite import RINGS, chart_spec
from sim.report.prediction_accuracy import KEY, NAMES, confidence_text, extrapolated_note, marked, ring_key
from sim.scenario.schema import Scenario
from sim.study.confidence import MARKS, PredictionConfidence

NEAR, BETWEEN, BEYOND = (
    PredictionConfidence(mark, why) for mark, why in zip(MARKS, ((), ("a", "b"), ("c",)), strict=True)
)
CURVE = ChartCurve("one", "#0072B2", (1, 2, 3, 4), (1, 2, 3, 4), "o", keys=("k1", "k2", "k3", "k4"))
PANEL = Panel("title", "", "x", (CURVE,))


def rings(panel: Panel) -> list[tuple[float, list[float]]]:
    layers = chart_spec(panel)["layer"]
    return [
        (row["x"], row["dash"]) for one in layers if one["mark"].get("size") == 200 for row in one["data"]["values"]
    ]


def test_every_point_that_was_not_measured_near_has_the_ring_of_its_mark() -> None:
    assert rings(PANEL) == []
    (panel,) = marked([PANEL], {"k1": NEAR, "k2": BETWEEN, "k3": BEYOND})
    assert panel.curves[0].marks == (NEAR.mark, BETWEEN.mark, BEYOND.mark, "")
    assert rings(panel) == [(2, RINGS[BETWEEN.mark]), (3, RINGS[BEYOND.mark])]


def test_the_key_explains_the_marks_that_there_are_and_a_mark_gives_its_reasons() -> None:
    assert ring_key([BEYOND, NEAR, BEYOND]) == [KEY[NEAR.mark], KEY[BEYOND.mark]]
    assert {*KEY} == {*MARKS} == {*NAMES}
    assert {*RINGS} == {*MARKS[1:]}
    assert [confidence_text(one) for one in (NEAR, BETWEEN)] == ["measured near here", "interpolated: a; b"]


def test_note_on_extrapolated_fleets_has_factors_that_hold_for_each() -> None:
    lengths = {name: {"distribution": "fixed", "value": 99} for name in ("prompt", "output")}
    workload = {"arrivals": {"process": "poisson", "rate_rps": 1}, "lengths": lengths}
    pools = {"spark": {"gpu": "dgx-spark-128gb"}, "slice": {"gpu": "h100-80gb-sxm", "mig": "3g.40gb"}}
    told = {}
    for names in (["spark"], ["slice"], ["spark", "slice"], ["slice", "spark"]):
        fleets = [{"name": name, "pools": [pools[name]]} for name in names]
        data = {"name": "x", "model": "llama3.1-8b", "horizon_s": 9, "workload": workload, "fleets": fleets}
        [told[tuple(names)]] = extrapolated_note(Scenario.model_validate(data), load_catalog())
    factors = {names: note.partition("80 %")[2] for names, note in told.items()}
    assert factors["spark", "slice"] == factors["slice", "spark"] == factors["spark",] != factors["slice",]
