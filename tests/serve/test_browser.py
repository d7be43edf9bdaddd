"""The page in a real Chromium: what is moved, and what it then says. Left out where there is no browser."""

import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from small_scenario import SMALL

from sim.answers.run import price_run
from sim.catalogue.catalog import load_catalog
from sim.language import speaking
from sim.report.run.json_document import run_document
from sim.report.words.money import showing
from sim.serve import jobs
from sim.serve.guard import Access
from sim.serve.http_server import application, listening
from sim.serve.workspace import Workspace
from sim.study.reprice import load_repriced
from tests.language.english import english

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no browser tests")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: the pages are not tried in a browser"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def workspace(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    shutil.copytree(finished, folder / "demo")
    shutil.copytree(finished, folder / "<b>nasty & odd</b>")
    (folder / "whole.yaml").write_text(SMALL)
    (folder / "<i>mine.yaml").write_text(SMALL.replace("replications: 2", "replications: 500"))
    return folder


@pytest.fixture(scope="module")
def address(workspace: Path) -> Iterator[str]:
    with served(workspace) as found:
        yield found


@contextmanager
def served(workspace: Path) -> Iterator[str]:
    """The address of a server of *workspace*, which speaks as the caller does."""
    waiting = listening("127.0.0.1", 0)
    access = Access.of("127.0.0.1", waiting.getsockname()[1], is_open=True)
    server = uvicorn.Server(uvicorn.Config(application(Workspace(workspace), access), log_level="error", ws="none"))
    thread = threading.Thread(target=copy_context().run, args=(server.run, [waiting]))
    thread.start()
    try:
        yield f"http://127.0.0.1:{access.port}"
    finally:  # a failed test leaves no server behind, which would hold the whole process
        server.should_exit = True
        thread.join()
        waiting.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as tools:
        found = tools.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-quic"]
        )
        yield found
        found.close()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    yield from quiet_page(browser, address)


def quiet_page(browser: Any, address: str) -> Iterator[Any]:
    """A page whose console stays silent, and that asks nobody but its server."""
    found = browser.new_page(viewport={"width": 1280, "height": 1400})
    told: list[str] = []
    found.on("console", lambda message: told.append(message.text))
    found.on("pageerror", lambda error: told.append(str(error)))
    found.on("request", lambda one: None if one.url.startswith((address, "data:")) else told.append(one.url))
    yield found
    found.close()
    assert told == []


def eventually(condition: Any, what: str) -> None:
    for _ in range(400):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(what)


COPY = """
import shutil, sys
shutil.copytree("demo", sys.argv[sys.argv.index("--out") + 1])
"""
"""A command that has run before."""


def test_the_whole_way(
    page: Any, address: str, workspace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A scenario is changed and run, its answer moved, taken along and compared."""
    monkeypatch.setattr(jobs, "COMMAND", (sys.executable, "-S", "-c", COPY))
    page.goto(address)
    page.get_by_role("link", name="whole.yaml").click()
    page.get_by_text("2 simulations to run").wait_for()
    field = page.get_by_label("Replications", exact=True)
    field.fill("3")
    field.press("Tab")
    page.get_by_text("3 simulations to run").wait_for()
    page.get_by_role("button", name="Save and run").click()
    page.locator("[data-state=done] a").click()

    def verdict() -> str:
        return str(page.locator(".verdict").inner_text())

    page.wait_for_selector("svg .limit")
    before = verdict()
    page.get_by_label("electricity", exact=True).last.fill("0.3")
    eventually(lambda: verdict() != before, "the slider changes the verdict")
    assert "site.electricity_usd_per_kwh%3D0.3" in page.url
    priced = tmp_path / "priced"
    catalog = load_catalog()
    scenario = load_repriced(workspace / "demo", ["site.electricity_usd_per_kwh=0.3"], catalog)
    cases = price_run(workspace / "demo", scenario, catalog, priced, report=False, command=["test"])
    with showing(scenario):
        told = run_document(scenario, catalog, cases, [], "")["verdict"]["headline"]
    eventually(lambda: verdict() == told, "the verdict is that of price")
    with page.expect_download() as got:
        page.get_by_role("link", name="Table, CSV").click()
    assert Path(got.value.path()).read_bytes() == (priced / "summary.csv").read_bytes()

    page.get_by_label("All fleets at the same").select_option("utilisation")
    assert "interpolated" in page.get_by_role("region", name="Figures at this place").inner_text()
    page.get_by_role("heading", level=1).scroll_into_view_if_needed()
    line = page.locator("svg .limit.across .reach").first.bounding_box()
    page.mouse.move(line["x"] + line["width"] / 2, line["y"] + 40)
    page.mouse.down()
    page.mouse.move(line["x"] - 400, line["y"] + 40, steps=4)
    page.mouse.up()
    eventually(lambda: verdict() != told, "the limit changes the verdict")
    assert "slo.ttft_s" in page.url
    assert page.locator(".total td").nth(2).inner_text() != ""
    page.reload()
    page.wait_for_selector("svg .limit")
    page.get_by_role("button", name="Reset all").click()
    eventually(lambda: verdict() == before, "all is as it was")

    page.goto(address)
    for name in ("demo", "<b>nasty & odd</b>"):
        page.get_by_label(f"Compare {name}", exact=True).check()
    page.get_by_role("button", name="Compare the two that are ticked").click()
    page.get_by_text("The two runs have the same inputs.").wait_for()
    assert page.get_by_role("cell", name="same").count() > 4


def test_names_are_text_and_narrow_screens_need_no_sideways_scrolling(page: Any, address: str) -> None:
    page.set_viewport_size({"width": 400, "height": 900})
    page.goto(address)
    page.get_by_role("link", name="<b>nasty & odd</b>").click()
    page.wait_for_selector("svg .point")
    assert page.locator("b").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    chart = page.locator("figure").first
    assert chart.locator(".point[tabindex='0']").count() == 1, "Tab stops once among the points of a chart"
    chart.locator(".point[tabindex='0']").focus()
    first = chart.locator(".tip").inner_text()
    page.keyboard.press("ArrowRight")
    assert chart.locator(".tip").inner_text() != first
    page.keyboard.press("Escape")
    assert chart.locator(".tip").is_hidden()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "slider"


OFF_THE_SCALE = """async () => {
    const { Chart } = await import("/static/answer/chart.js");
    const chart = new Chart(() => {}, () => {});
    document.body.append(chart.box);
    const curve = {
        name: "a", fleet: "a", color: "blue", dark: "blue", marker: "o", dashed: false, filled: false,
        x: [1, 2, 40, 90, 0.01], y: [100, 2, 0.001, 1e6, 50], band: [[90, 110], null, null, null, [40, 55]],
        good: [true, true, true, true, true], steady: [true, true, false, false, false],
        keys: ["a", "b", "c", "d", "e"], tags: ["", "", "", "", ""],
    };
    const plain = { title: "t", subtitle: "", xLabel: "x", symbol: "$", judged: false, share: false, anchored: false };
    chart.update({ ...plain, ticks: [], tickNames: [], xLimit: null, yLimit: null, curves: [curve], limit: null });
    const frame = chart.plot.querySelector("svg");
    const axis = frame.querySelector(".axis");
    const [left, right, bottom] = ["x1", "x2", "y1"].map((name) => Number(axis.getAttribute(name)));
    const points = [...chart.plot.querySelectorAll(".point")].map((one) => {
        const [x, y] = one.getAttribute("transform").match(/[-\\d.]+/g).map(Number);
        return [x >= left && x <= right && y >= 0 && y <= bottom, one.querySelector(".name")?.textContent ?? ""];
    });
    const told = chart.plot.querySelector(".point").getAttribute("aria-label").split(";")[0];
    return [points, told, [...chart.plot.querySelectorAll(".line")].map((one) => one.classList.contains("loose"))];
}"""


def test_overloaded_points_off_the_scale_stand_at_its_edge_with_their_value(page: Any, address: str) -> None:
    page.goto(address)
    found, told, loose = page.evaluate(OFF_THE_SCALE)
    assert told == "a at 1: $100 ($90 to $110)", "the interval of a point stands behind its value"
    assert [inside for inside, _ in found] == [True] * 5
    assert [told for _, told in found] == ["", "", "▸ 40", "▸ 90", "◂ 0.01"]
    assert loose == [False, True, True, True], "the line is dotted where an end of it is off the chart"


def test_a_run_that_cannot_be_shown_leaves_its_reason_alone(browser: Any, address: str) -> None:
    page = browser.new_page()
    page.goto(f"{address}/?run=gone")
    page.locator(".answer .problem").wait_for()
    assert not page.get_by_text("Export").is_visible()
    assert not page.get_by_role("button", name="Reset all").is_visible()
    page.close()


def test_a_scenario_is_edited_run_and_cancelled(page: Any, address: str) -> None:
    page.goto(address)
    page.get_by_role("link", name="<i>mine.yaml").click()
    page.get_by_text("500 simulations to run").wait_for()
    text = page.get_by_label("Scenario as YAML")
    text.press("Control+End")
    text.type("horizon: 3\n")
    page.get_by_role("button", name="line 11").click()
    assert "did you mean horizon_s" in page.locator(".mistakes").inner_text()
    assert text.evaluate("one => one.value.slice(one.selectionStart, one.selectionEnd)") == "horizon: 3"
    page.keyboard.type("sl")
    page.get_by_role("button", name="slo", exact=True).click()
    page.keyboard.type("{ttft_s: 2.0}")
    page.get_by_text("No mistakes").wait_for()
    field = page.get_by_label("TTFT at most [s]", exact=True)
    field.fill("0.3")
    field.press("Tab")
    eventually(lambda: "slo.ttft_s" in page.url, "the address holds what is set")
    page.get_by_role("button", name="Save and run").click()
    page.locator("[data-state=running]").wait_for()
    page.get_by_role("button", name="Cancel").click()
    page.locator("[data-state=cancelled]").wait_for()


READ = """() => {
  document.querySelectorAll("details").forEach((one) => (one.open = true));
  document.querySelectorAll("[lang=en]").forEach((one) => one.remove());
  const named = ["aria-label", "title", "placeholder", "aria-valuetext"];
  const heard = [...document.querySelectorAll("*")].flatMap((one) => named.map((name) => one.getAttribute(name) ?? ""));
  return [document.body.innerText, ...heard].join(" | ");
}"""
"""All that is read or heard of a page, but for what says itself that it is English: keys, and what they mean."""


def test_a_chinese_workspace_shows_no_english_sentence(browser: Any, workspace: Path) -> None:
    """Names, ids and keys stay as they are; words that scripts and server say do not, alone or in a sentence."""
    pages = {
        "/": "table",
        "/?run=demo&set=site.pue=1.2": "svg .limit",
        "/?a=demo&b=demo": "table",
        "/?scenario=whole.yaml&set=replications=0": ".mistakes li",
    }
    with speaking("zh"), served(workspace) as address:
        for page in quiet_page(browser, address):
            for query, shown in pages.items():
                page.goto(address + query)
                page.locator(shown).first.wait_for()
                read = page.evaluate(READ)
                assert english(read) == []
                words = r"mistake|simulat|capacity|the SLO|Save|Queue|Compare|limited by|cost|second|done"
                assert re.findall(words, read.replace(".cost.", "")) == []
            assert page.locator("html").get_attribute("lang") == "zh-CN"
