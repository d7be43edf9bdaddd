"""Answers of a run under other prices and limits."""

import csv
import json
import re
import shutil
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import openpyxl
import pytest
from starlette.testclient import TestClient

from sim.catalogue.catalog import load_catalog
from sim.scenario.reading.load import load
from sim.serve.adjustable_inputs import adjustable_inputs
from sim.serve.finished_runs import MOST_WAITING, LoadedRuns
from sim.serve.http_server import STATIC
from sim.study.confidence import MARKS

RUN = "outputs/demo"


def asked(client: TestClient, *sets: str, of: str = "answer", run: str = RUN) -> Any:
    return client.get(f"/api/{of}", params=[("run", run), *(("set", one) for one in sets)])


@pytest.mark.slow
def test_the_verdict_equals_that_of_price(
    client: TestClient, folder: Path, gpufleet: Callable[..., CompletedProcess[str]]
) -> None:
    sets = ["site.electricity_usd_per_kwh=0.9", "fleets.1.cost.quotes={a100-80gb-pcie: 40000}"]
    options = [word for one in sets for word in ("--set", one)]
    said = gpufleet("price", folder / RUN, *options, "--no-report", "--format", "json", cwd=folder)
    document = json.loads(said.stdout)
    found = asked(client, *sets).json()
    assert found["verdict"] == document["verdict"]
    assert found["verdict"] != asked(client).json()["verdict"]
    assert asked(client, *sets, of="verdict").json() == document["verdict"]
    costs = [row["usd_per_million_output_tokens"] for row in document["points"]]
    assert [one["total"] for one in found["gap"]] == pytest.approx([usd / 1.25 for usd in costs], rel=1e-11)
    table = client.get("/export", params={"run": RUN, "set": sets, "format": "csv"})
    assert table.content == (folder / document["out"] / "summary.csv").read_bytes()


@pytest.mark.slow
def test_the_parts_of_every_cost_sum_to_it(client: TestClient) -> None:
    gap = asked(client, "site.pue=1.1", of="gap").json()["gap"]
    assert len(gap) == 4
    for one in gap:
        assert sum(one["parts"].values()) == pytest.approx(one["total"], rel=1e-9)


@pytest.mark.slow
def test_a_stricter_limit_lowers_attainment_and_capacity(client: TestClient) -> None:
    def reach(*sets: str) -> list[float | None]:
        return [one["met"] for one in asked(client, *sets, of="capacity").json()["capacity"]]

    loose, strict = reach("slo.ttft_s=100", "slo.tpot_s=10"), reach("slo.ttft_s=0.001")
    assert loose[1] == 2
    assert strict == [None, None]


@pytest.mark.slow
def test_each_chart_names_the_input_of_its_limit_line(client: TestClient) -> None:
    ways = [chart["limit"] and chart["limit"]["path"] for chart in asked(client).json()["charts"]]
    assert ways == ["slo.ttft_s", "slo.tpot_s", None, "slo.ttft_s", "slo.tpot_s", "slo.attainment"]
    only_percentile = asked(client, "slo={ttft_s: {p90: 2}}").json()["errors"]
    assert "is not a limit" in only_percentile[0]["message"]
    named = asked(client, "slo.ttft_s={p90: 2.0}").json()["charts"][0]["limit"]
    assert named == {"path": "slo.ttft_s", "percentile": "p90", "scale": 1.0}


@pytest.mark.slow
def test_charts_have_the_fields_that_their_script_declares(client: TestClient) -> None:
    script = (STATIC / "answer" / "plot.js").read_text(encoding="utf-8")

    def declared(name: str) -> set[str]:
        (block,) = re.findall(rf"@typedef {{object}} {name}\n(.*?)\*/", script, re.S)
        return set(re.findall(r"@property \{(?:[^{}]|\{[^{}]*\})*\} (\w+)", block))

    for chart in asked(client).json()["charts"]:
        assert declared("ChartData") == set(chart)


@pytest.mark.slow
def test_a_price_changes_data_and_axes_of_charts_alone(client: TestClient) -> None:
    """The page draws a chart anew, which is slow, only where the rest of its specification differs."""

    def rest(chart: dict[str, Any]) -> Any:
        spec = dict(chart["spec"])
        layers = [{**layer, "data": layer["data"]["name"]} for layer in spec.pop("layer")]
        return [one["name"] for one in spec.pop("params")], layers, spec

    usual, dear = (asked(client, f"site.electricity_usd_per_kwh={price}").json()["charts"] for price in (0.12, 0.9))
    assert [*map(rest, usual)] == [*map(rest, dear)]
    assert usual[0]["spec"] != dear[0]["spec"]
    assert [one for one in usual if one in dear] == usual[3:], "latencies stay as they are"


@pytest.mark.slow
def test_sliders_are_prices_and_limits_of_the_scenario(client: TestClient) -> None:
    adjustable_inputs = {one["path"]: one["value"] for one in asked(client, "finance.life_years=7").json()["inputs"]}
    assert adjustable_inputs["finance.life_years"] == 7
    assert adjustable_inputs["site.electricity_usd_per_kwh"] == 0.12
    assert adjustable_inputs["fleets.0.cost.quotes.rtx-4090"] == 1900
    for path, value in adjustable_inputs.items():
        if value is not None:
            assert asked(client, f"{path}={value}", of="verdict").status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sets", "text"),
    [
        (["horizon_s=9"], "is not a cost input"),
        (["site.puu=1.2"], "did you mean"),
        (["site.pue={"], "YAML"),
        (["site.pue"], "path=value is needed"),
        (["slo.ttft_s=nan"], "seconds above 0"),
        (["finance.fx.EUR=1.1", "workload.arrivals.rate_rps=1"], "is not a cost input"),
    ],
)
def test_bad_values_are_reported(client: TestClient, sets: list[str], text: str) -> None:
    answer = asked(client, *sets)
    assert answer.status_code == 422
    assert text in json.dumps(answer.json())


@pytest.mark.slow
def test_a_missing_run_is_reported(client: TestClient, folder: Path) -> None:
    assert asked(client).status_code == 200
    shutil.rmtree(folder / RUN)
    answer = asked(client)
    assert (answer.status_code, "no longer exists" in answer.text) == (404, True)
    assert asked(client, run="../outside").status_code == 400
    assert client.get("/api/answer").status_code == 400


@pytest.mark.slow
def test_requests_beyond_the_limit_are_asked_to_retry(folder: Path, client: TestClient) -> None:
    runs: LoadedRuns = client.app.app.routes[3].endpoint.__self__.runs  # type: ignore[attr-defined]
    for _ in range(MOST_WAITING):
        runs._waiting.acquire()
    answer = asked(client)
    assert (answer.status_code, "ask again" in answer.text) == (503, True)
    for _ in range(MOST_WAITING):
        runs._waiting.release()
    assert asked(client).status_code == 200


@pytest.mark.slow
def test_exports_are_downloads(client: TestClient, folder: Path) -> None:
    listed = [one["format"] for one in client.get("/api/exports", params={"run": RUN}).json()["exports"]]
    assert listed == ["xlsx", "csv", "focus", "png", "svg", "html", "yaml"]
    for form in ("xlsx", "csv", "svg"):
        answer = client.get("/export", params={"run": RUN, "format": form})
        assert answer.status_code == 200
        assert answer.headers["content-disposition"] == f"attachment; filename*=utf-8''demo.{form}"
        assert answer.headers["content-security-policy"].startswith("sandbox")
    assert client.get("/export", params={"run": RUN, "format": "png"}).content.startswith(b"\x89PNG")
    assert client.get("/export", params={"run": RUN, "format": "../x"}).status_code == 400
    (folder / RUN / "linked.csv").symlink_to("/etc/hostname")
    assert client.get("/export", params={"run": RUN, "format": "csv"}).status_code == 403


@pytest.mark.slow
def test_a_workbook_has_the_limits_that_are_moved(client: TestClient) -> None:
    def sheets(*sets: str) -> dict[str, list[dict[str, Any]]]:
        content = client.get("/export", params={"run": RUN, "format": "xlsx", "set": [*sets]}).content
        book = openpyxl.load_workbook(BytesIO(content), read_only=True)
        return {name: rows_of(book[name]) for name in ("Summary", "Requests")}

    def rows_of(sheet: Any) -> list[dict[str, Any]]:
        rows = list(sheet.iter_rows(values_only=True))
        top = next(i for i, row in enumerate(rows) if row[0] == "fleet")
        return [dict(zip(rows[top], row, strict=True)) for row in rows[top + 1 :] if row[0]]

    def shares(*sets: str) -> list[float]:
        told = asked(client, *sets).json()["readings"]
        figures = [one for line in told for one in line["figures"] if one["label"] == "requests within the SLO"]
        return [y for one in figures for y in one["y"]]

    moved = sheets("slo.ttft_s=0.9", "site.pue=1.2")
    share = shares("slo.ttft_s=0.9", "site.pue=1.2")
    assert [row["slo_attainment"] for row in moved["Summary"]] == pytest.approx(share)
    assert share != pytest.approx(shares())
    for row in moved["Requests"]:
        in_time = row["finished_s"] is not None and row["first_token_s"] - row["arrived_s"] <= 0.9
        assert row["slo_met"] <= in_time


@pytest.mark.slow
def test_capacity_states_its_basis(client: TestClient) -> None:
    one, other = asked(client, of="capacity").json()["capacity"]
    assert one["text"].startswith("capacity between 0.5 and 2 req/s (simulated), about ")
    assert one["text"].endswith("(interpolated)")
    assert 0.5 < one["about"] < 2
    assert other["text"] == "meets the SLO up to 2 req/s, the highest that was simulated"


@pytest.mark.slow
def test_capacity_follows_a_logistic_curve_through_both_loads(client: TestClient) -> None:
    """A load at which no request is in time lies far beyond the capacity, which is then nearer to the load within."""
    one, _other = asked(client, of="capacity").json()["capacity"]
    line = asked(client).json()["readings"][0]
    [low, high] = next(figure["y"] for figure in line["figures"] if figure["label"] == "requests within the SLO")
    share = (one["about"] - 0.5) / 1.5
    assert low > 0.95 > high
    assert share > (low - 0.95) / (low - high), "beyond the straight line, which falls from the first load on"


@pytest.mark.slow
def test_costs_per_token_are_interpolated_with_their_tokens(client: TestClient) -> None:
    line = asked(client).json()["readings"][0]
    tokens = next(figure for figure in line["figures"] if figure["weights"])
    cost = next(figure for figure in line["figures"] if figure["label"].startswith("cost ["))
    assert tokens["label"].endswith("per million output tokens")
    per_h = [y * weight for y, weight in zip(tokens["y"], tokens["weights"], strict=True)]
    assert per_h[1] / per_h[0] == pytest.approx(cost["y"][1] / cost["y"][0], rel=1e-6)
    assert cost["weights"] is None
    assert len(line["steady"]) == len(line["x"])


@pytest.mark.slow
def test_times_per_token_are_in_milliseconds(client: TestClient, folder: Path) -> None:
    line = asked(client).json()["readings"][0]
    shown = next(figure["y"] for figure in line["figures"] if figure["label"] == "TPOT p95 [ms]")
    with (folder / RUN / "summary.csv").open() as table:
        seconds = [float(row["tpot_s_p95"]) for row in csv.DictReader(table) if row["fleet"] == line["fleet"]]
    assert shown == pytest.approx([1000 * one for one in seconds])


@pytest.mark.slow
def test_prices_in_another_currency_and_of_servers_have_sliders(client: TestClient) -> None:
    quote = "fleets.1.cost.quotes={a100-80gb-pcie: {price: 9000, currency: EUR}}"
    adjustable_inputs = {one["path"]: one for one in asked(client, quote).json()["inputs"]}
    gpu, server = (f"fleets.1.cost.quotes.{item}" for item in ("a100-80gb-pcie.price", "workstation-2xa100-nvlink"))
    assert [(adjustable_inputs[path]["value"], adjustable_inputs[path]["unit"]) for path in (gpu, server)] == [
        (9000, "EUR each"),
        (3600, "USD each"),
    ]

    def total(*sets: str) -> float:
        return float(asked(client, quote, *sets, of="gap").json()["gap"][-1]["total"])

    assert total(f"{gpu}=9000", f"{server}=3600") == pytest.approx(total())
    assert total() < total(f"{server}=9999") < total(f"{gpu}=20000")


@pytest.mark.slow
def test_two_runs_are_compared_in_their_currency_and_the_readers_words(client: TestClient) -> None:
    points = client.get("/api/diff", params={"a": RUN, "b": RUN}).json()["points"]
    costs = [one for one in points if one["metric"] == "usd_per_million_output_tokens"]
    assert {one["words"] for one in costs} == {"EUR/M output tokens"}
    totals = [one["total"] for one in asked(client, of="gap").json()["gap"]]
    assert [one["first"] for one in costs] == pytest.approx(totals)


@pytest.mark.slow
def test_a_change_tells_which_file_is_gone_since_the_first_answer(client: TestClient, folder: Path) -> None:
    assert asked(client).status_code == 200
    for file in (folder / RUN / "points").rglob("tables.arrow"):
        file.unlink()
    assert asked(client, of="marks").status_code == 200
    found = asked(client, "site.pue=1.2")
    assert (found.status_code, found.json()["errors"]) == (
        422,
        [{"message": "tables.arrow: no such file or directory"}],
    )


@pytest.mark.slow
def test_every_point_is_marked_by_how_near_it_is_to_what_was_measured(client: TestClient) -> None:
    found = asked(client, of="marks").json()
    answer = asked(client).json()
    layers = [layer for chart in answer["charts"] for layer in chart["spec"]["layer"] if "params" in layer]
    keys = {row["key"] for layer in layers for row in layer["data"]["values"]}
    assert keys == found["marks"].keys() == {key for line in answer["readings"] for key in line["keys"]}
    assert {one["mark"] for one in found["marks"].values()} <= {*MARKS}
    assert len(found["key"]) == len({one["mark"] for one in found["marks"].values()})
    page = client.get("/export", params={"run": RUN, "format": "html"}).text
    assert all(one["text"].partition(": ")[2] in page for one in found["marks"].values())
    assert all(text in page for text in found["key"])


@pytest.mark.slow
def test_a_catalogue_price_in_another_currency_has_a_slider_in_dollars(root: Path) -> None:
    catalog = load_catalog()
    sets = ["fleets.1.cost={acquisition: buy}", "site={electricity_usd_per_kwh: 0.1, pue: 1.2}"]
    finance = "finance={method: annuity, discount_rate: 0.1, life_years: 3, fx: {RMB: 0.14}}"
    scenario = load(root / "scenarios/energy-mac-vs-4090.yaml", [*sets, finance], catalog=catalog)
    found = {
        one.path: one for one in adjustable_inputs(scenario, catalog, {"Mac Studio, M2 Ultra": ["server_capital"]})
    }
    slider = found["fleets.1.cost.quotes.mac-studio-m2-ultra"]
    assert (slider.value, slider.unit) == (pytest.approx(50000 * 0.14), "USD each")


@pytest.mark.slow
@pytest.mark.parametrize(("command", "status"), [("plan", 200), ("../demo/report", 404)])
def test_the_page_of_another_command_can_be_taken_along(
    client: TestClient, folder: Path, command: str, status: int
) -> None:
    other = folder / "other"
    other.mkdir()
    (other / "plan.html").write_text("the plan")
    manifest = json.loads((folder / RUN / "manifest.json").read_text())
    (other / "manifest.json").write_text(json.dumps(manifest | {"question": {"command": command}}))
    shutil.copy(folder / RUN / "scenario.yaml", other)
    (listed,) = [one for one in client.get("/api/workspace").json()["runs"] if one["path"] == "other"]
    answer = client.get("/export", params={"run": "other", "format": "html"})
    assert (listed["page"], answer.status_code) == (status == 200, status)
    assert (answer.text == "the plan") == (status == 200)
