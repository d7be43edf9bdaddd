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
from financed_answers import answered, few_loads
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

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: the pages are not tried in a browser"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def workspace(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("browser")
    shutil.copytree(finished, folder / "demo")
    shutil.copytree(finished, folder / "<b>nasty & odd</b>")
    (folder / "whole.yaml").write_text(SMALL)
    (folder / "<i>mine.yaml").write_text(SMALL.replace("replications: 2", "replications: 500"))
    with few_loads():
        answered(folder, "breakeven")
        (folder / "s.yaml").unlink()
        yield folder


@pytest.fixture(scope="module")
def address(workspace: Path) -> Iterator[str]:
    with served(workspace) as found:
        yield found


@contextmanager
def served(workspace: Path) -> Iterator[str]:
    """The address of a server of *workspace*, which speaks as the caller does."""
    waiting = listening("127.0.0.1", 0)
    access = Access.of("127.0.0.1", waiting.getsockname()[1], is_open=True)
    app = application(Workspace(workspace), access)
    # A failed test leaves its page open: the server then does not wait for the page's connections to end.
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=copy_context().run, args=(server.run, [waiting]))
    thread.start()
    try:
        yield f"http://127.0.0.1:{access.port}"
    finally:  # a failed test leaves no server behind, which would hold the whole process
        server.should_exit = True
        thread.join()
        waiting.close()


WIDE = {"width": 1280, "height": 1400}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no browser tests")
    with playwright.sync_playwright() as tools:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-quic"]
        found = tools.chromium.launch(executable_path=CHROMIUM, args=flags)
        # one context: its pages share what is fetched, and its compiled scripts
        yield found.new_context(viewport=WIDE)
        found.close()


@pytest.fixture(scope="module")
def tab(browser: Any) -> Any:
    """One page, which a process of its own draws: to start one takes longer than a visit."""
    found = browser.new_page()
    found.set_default_timeout(PATIENCE_MS)
    return found


@pytest.fixture
def page(tab: Any, address: str) -> Iterator[Any]:
    with quiet(tab, address):
        yield tab


@contextmanager
def quiet(page: Any, address: str) -> Iterator[None]:
    """The console of *page* stays empty, and it sends requests to the server at *address* only."""
    told: list[str] = []
    listeners = {
        "console": lambda message: told.append(message.text),
        "pageerror": lambda error: told.append(str(error)),
        "request": lambda one: None if one.url.startswith((address, "data:")) else told.append(one.url),
    }
    page.set_viewport_size(WIDE)
    for event, listener in listeners.items():
        page.on(event, listener)
    yield
    page.goto("about:blank")  # what the page still says as it ends belongs to this test
    for event, listener in listeners.items():
        page.remove_listener(event, listener)
    assert told == []


PATIENCE_MS = 120_000
"""Longest time that a test waits for the page [ms]."""
CHART = ".limit.across:not([hidden])"
DRAWN = ".chart svg"
"""Handle of a limit, which is there once its chart is drawn."""


def eventually(condition: Any, what: str) -> None:
    for _ in range(2400):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(what)


COPY = """
import shutil, sys
shutil.copytree("demo", sys.argv[sys.argv.index("--out") + 1])
"""
"""A command that has run before."""
ANOTHER_RUN = """async () => {
  const { ask } = await import("/static/dom.js");
  return ask("/api/jobs", { method: "POST", body: { path: "whole.yaml", set: ["replications=4"] } });
}"""
EVERY_OTHER_ANSWER_IS_LATE = """() => {
  const send = window.fetch;
  let count = 0;
  window.fetch = async (...given) => {
    const late = String(given[0]).includes("/api/form") && count++ % 2 === 0, answer = await send(...given);
    if (late) await new Promise((then) => setTimeout(then, 120));
    return answer;
  };
}"""
"""Answers about a form that would overtake each other if the page did not wait for one before it asks again."""


def test_a_scenario_is_changed_run_moved_and_compared(
    page: Any, address: str, workspace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A scenario is changed and run, its answer moved, taken along and compared."""
    monkeypatch.setattr(jobs, "COMMAND", (sys.executable, "-S", "-c", COPY))
    page.goto(address)
    page.get_by_role("link", name="whole.yaml").click()
    page.locator("[role=status]:visible", has_text="2 simulations to run").wait_for()
    field = page.get_by_label("Replications", exact=True)
    field.fill("3")
    field.press("Tab")
    page.locator("[role=status]:visible", has_text="3 simulations to run").wait_for()
    page.get_by_role("button", name="Save and run").click()

    def verdict() -> str:
        return str(page.locator(".verdict").inner_text())

    page.wait_for_selector(CHART)
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
    line = page.locator(".limit.across").first.bounding_box()
    page.mouse.move(line["x"] + line["width"] / 2, line["y"] + 40)
    page.mouse.down()
    page.mouse.move(line["x"] - 400, line["y"] + 40, steps=4)
    page.mouse.up()
    eventually(lambda: verdict() != told, "the limit changes the verdict")
    assert "slo.ttft_s" in page.url
    assert page.locator(".total td").nth(2).inner_text() != ""
    page.reload()
    page.wait_for_selector(CHART)
    page.get_by_role("button", name="Reset all").click()
    eventually(lambda: verdict() == before, "all is as it was")

    page.goto(address)
    for name in ("demo", "<b>nasty & odd</b>"):
        page.get_by_label(f"Compare {name}", exact=True).check()
    ended = page.evaluate(ANOTHER_RUN)["job"]["folder"]
    page.get_by_label(f"Compare {ended}", exact=True).wait_for()
    page.get_by_role("button", name="Compare the two that are ticked").click()
    page.get_by_text("The two runs have the same inputs.").wait_for()
    assert page.get_by_role("cell", name="same").count() > 4


SLIDE = """async ([label, value]) => {
    const slider = [...document.querySelectorAll("input[type=range]")].find((one) => one.ariaLabel === label);
    const drawn = () => document.querySelector(".plot").innerHTML;
    const before = drawn(), began = performance.now();
    slider.value = value;
    slider.dispatchEvent(new Event("input"));
    while (drawn() === before && performance.now() - began < 120000) await new Promise((done) => setTimeout(done, 2));
    return [drawn() !== before, document.querySelectorAll(".vega").length];
}"""
"""Moves a slider; whether the first chart has changed, and the number of charts."""


def test_a_run_fits_every_screen_and_its_sliders_and_limits_move(page: Any, address: str) -> None:
    """Names are text, and narrow screens need no sideways scrolling. Sliders move the charts without drawing them anew,
    and keys move a limit together with its line.
    """
    page.set_viewport_size({"width": 400, "height": 900})
    page.goto(address)
    page.get_by_role("link", name="<b>nasty & odd</b>").click()
    page.wait_for_selector(CHART)
    assert page.locator("b").count() == 0
    assert_first_screen(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    chart = page.locator("figure").first
    chart.locator(".plot").focus()
    page.keyboard.press("ArrowRight")
    first = chart.locator(".tip").inner_text()
    page.keyboard.press("ArrowRight")
    assert chart.locator(".tip").inner_text() != first
    page.keyboard.press("Escape")
    assert chart.locator(".tip").is_hidden()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "slider"

    page.set_viewport_size({"width": 1280, "height": 900})
    assert_first_screen(page)
    page.set_viewport_size(WIDE)
    page.evaluate("document.querySelector('.vega').dataset.mine = 'kept'")
    tries = [page.evaluate(SLIDE, ["electricity", value]) for value in ("0.2", "0.25", "0.3", "0.35")]
    assert tries == [[True, 6]] * 4
    assert page.locator(".vega[data-mine=kept]").count() == 1

    line = page.locator(".limit.across").first
    before = float(line.get_attribute("aria-valuenow"))
    line.press("ArrowLeft")
    eventually(lambda: float(line.get_attribute("aria-valuenow")) < before, "the limit is lower")

    def off_px() -> float:
        rule, handle = page.locator(".mark-rule.role-mark line").first.bounding_box(), line.bounding_box()
        return abs(float(rule["x"] - handle["x"] - handle["width"] / 2))

    eventually(lambda: off_px() < 2, "the handle lies on the line")


def assert_first_screen(page: Any) -> None:
    """The verdict and the first limit are on the first screen, 900 px high."""
    slider = page.get_by_label("TPOT at most").last.bounding_box()
    assert slider["y"] + slider["height"] < 900
    assert page.locator(".verdict").bounding_box()["y"] < 300


def test_a_moved_tax_rate_changes_the_verdict_and_a_bad_one_is_refused_in_place(tab: Any, address: str) -> None:
    tab.goto(f"{address}/?run=breakeven")
    tab.wait_for_selector(DRAWN)
    tab.get_by_label("corporate tax rate", exact=True).press("ArrowRight")
    tab.locator(".verdict", has_text="With corporate tax rate 25.3").wait_for()
    field = tab.get_by_label("term of the loan months", exact=True)
    field.fill("9.5")
    field.press("Enter")
    row = tab.locator(".adjustable", has=field)
    row.locator(".problem", has_text="a whole number is needed, not 9.5").wait_for()
    row.get_by_role("button").click()
    row.locator(".problem").wait_for(state="hidden")
    assert field.input_value() == "9"


def test_a_run_that_cannot_be_shown_leaves_its_reason_alone(tab: Any, address: str) -> None:
    tab.goto(f"{address}/?run=gone")
    tab.locator(".answer .problem").wait_for()
    assert not tab.get_by_text("Export").is_visible()
    assert not tab.get_by_role("button", name="Reset all").is_visible()


def test_a_scenario_is_edited_run_and_cancelled(page: Any, address: str) -> None:
    page.goto(address)
    page.get_by_role("link", name="<i>mine.yaml").click()
    page.locator("[role=status]:visible", has_text="500 simulations to run").wait_for()
    text = page.get_by_label("Scenario as YAML")
    text.press("Control+End")
    text.type("horizon: 3\n")
    page.get_by_role("button", name="line 11").click()
    assert "did you mean horizon_s" in page.locator("ol.mistakes").inner_text()
    assert text.evaluate("one => one.value.slice(one.selectionStart, one.selectionEnd)") == "horizon: 3"
    page.keyboard.type("sl")
    page.get_by_role("button", name="slo", exact=True).click()
    page.keyboard.type("{ttft_s: 2.0}")
    page.locator("[role=status]:visible", has_text="No mistakes").wait_for()
    field = page.get_by_label("TTFT at most [s]", exact=True)
    field.fill("0.3")
    field.press("Tab")
    eventually(lambda: "slo.ttft_s" in page.url, "the address holds what is set")
    page.get_by_role("button", name="Save and run").click()
    page.locator("[data-state=running]").wait_for()
    page.get_by_role("button", name="Cancel").click()
    page.locator("[data-state=cancelled]").wait_for()


def test_own_numbers_become_a_run_whose_answer_opens(
    page: Any, address: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "COMMAND", (sys.executable, "-S", "-c", COPY))
    page.goto(address)
    page.get_by_role("link", name="Start from my numbers").click()
    people = page.get_by_label("People at the same time")
    people.wait_for()
    page.evaluate(EVERY_OTHER_ANSWER_IS_LATE)
    people.fill("none")
    wrong = page.locator(".wrong-field", has_text="must be a whole number of 1 or more")
    wrong.wait_for()
    assert people.get_attribute("aria-describedby") == wrong.get_attribute("id")
    page.get_by_role("button", name="Save and run").click()
    eventually(lambda: page.evaluate("document.activeElement.id") == people.get_attribute("id"), "the field is shown")
    assert not (workspace / "my-numbers.yaml").exists(), "a form with a mistake is not saved"
    people.fill("10")
    page.locator("[role=status]:visible", has_text="24 simulations to run").wait_for()
    page.get_by_role("tab", name="YAML").click()
    text = page.get_by_label("Scenario as YAML")
    assert "concurrency: 10\n" in text.input_value()
    text.fill(text.input_value().replace("concurrency: 10\n", "concurrency: 11\n"))
    page.get_by_role("tab", name="My numbers").click()
    eventually(lambda: people.input_value() == "11", "the form has what the text says")
    first = page.get_by_role("group", name="Fleet 1")
    first.get_by_label("Number of GPUs").fill("2")
    first.get_by_label("GPUs for each copy").fill("2")
    page.keyboard.press("Tab")
    eventually(
        lambda: first.get_by_label("Server around").input_value() == "workstation-2x4090", "the server holds a copy"
    )
    page.get_by_role("button", name="Add a fleet").click()
    page.get_by_role("group", name="Fleet 3").get_by_label("Bought or rented").select_option("buy")
    page.locator("[role=status]:visible", has_text="36 simulations to run").wait_for()
    page.set_viewport_size({"width": 400, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    page.get_by_role("button", name="Save and run").click()
    page.wait_for_selector(CHART)
    assert "run=outputs/my-numbers" in page.url


READ = """() => {
  document.querySelectorAll("details").forEach((one) => (one.open = true));
  document.querySelectorAll("[lang=en]").forEach((one) => one.remove());
  const named = ["aria-label", "title", "placeholder", "aria-valuetext"];
  const heard = [...document.querySelectorAll("*")].flatMap((one) => named.map((name) => one.getAttribute(name) ?? ""));
  return [document.body.innerText, ...heard].join(" | ");
}"""
"""All that is read or heard of a page, but for what says itself that it is English: keys, and what they mean."""


def test_a_chinese_workspace_shows_no_english_sentence(tab: Any, workspace: Path) -> None:
    """Names, ids and keys stay as they are; words that scripts and server say do not, alone or in a sentence."""
    pages = {
        "/": "table",
        "/?template=my-numbers": ".fleet",
        "/?run=demo&set=site.pue=1.2": CHART,
        "/?run=breakeven&set=finance.tax.rate=0.4": DRAWN,
        "/?a=demo&b=demo": "table",
        "/?scenario=whole.yaml&set=replications=0": "ol.mistakes li",
    }
    with speaking("zh"), served(workspace) as address, quiet(tab, address):
        for query, shown in pages.items():
            tab.goto(address + query)
            tab.locator(shown).first.wait_for()
            read = tab.evaluate(READ)
            assert english(read) == []
            words = r"mistake|simulat|capacity|the SLO|Save|Queue|Compare|limited by|cost|second|done"
            assert re.findall(words, read.replace(".cost.", "")) == []
        assert tab.locator("html").get_attribute("lang") == "zh-CN"
