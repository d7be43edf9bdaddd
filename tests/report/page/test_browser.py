"""A page in a real browser, where there is one: its charts and tables answer, and nothing is fetched."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape
from typing import Any

import pytest

from sim.report.charts.panels import COLORS, ChartCurve, Limit, Panel
from sim.report.charts.picture import KeyEntry
from sim.report.page.page import PageTable, render_page

pytestmark = pytest.mark.slow

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((found for name in BROWSERS if (found := shutil.which(name))), "")
QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--virtual-time-budget=5000", "--window-size=1280,900")  # fmt: skip
WATCH = """<head><script>
const wrong = [];
for (const kind of ["error", "unhandledrejection", "securitypolicyviolation"])
  addEventListener(kind, (event) => wrong.push(`${kind}: ${event.message || event.reason || event.blockedURI}`));
</script>"""
ASK = """<script>
const drawn = () => new Promise((done) => setTimeout(done, 200));
setTimeout(async () => {
  const marks = [...document.querySelectorAll(".mark-symbol path")];
  const shown = () => marks.map((mark) => Number(mark.getAttribute("opacity") ?? 1));
  const point = (mark, kind) => {
    const box = mark.getBoundingClientRect();
    const at = { clientX: box.x + box.width / 2, clientY: box.y + box.height / 2, bubbles: true };
    mark.dispatchEvent(kind === "click" ? new MouseEvent(kind, at) : new PointerEvent(kind, at));
  };
  const told = { marks: marks.length, colors: [...new Set(marks.map((mark) => mark.getAttribute("stroke")))] };
  point(marks[0], "pointermove");
  told.tip = document.querySelector(".tip").innerText;
  point(marks[0], "click");
  await drawn();
  told.picked = shown();
  document.querySelector("button[data-fleet=b]").click();
  await drawn();
  told.other = shown();
  const [fleet, cost] = document.querySelectorAll("th button.sort");
  cost.click();
  told.rising = [...document.querySelectorAll("tbody tr")].map((row) => row.cells[0].textContent);
  cost.click();
  told.falling = [...document.querySelectorAll("tbody tr")].map((row) => row.cells[0].textContent);
  const filter = document.querySelector(".tools input");
  filter.value = "fleet $950";
  filter.dispatchEvent(new Event("input"));
  told.filtered = [...document.querySelectorAll("tbody tr")].filter((row) => !row.hidden).length;
  told.fetched = performance.getEntriesByType("resource").map((entry) => entry.name);
  told.wrong = wrong;
  const answer = document.createElement("pre");
  answer.id = "answer";
  answer.textContent = JSON.stringify(told);
  document.body.append(answer);
}, 2000);
</script></body>"""


def page() -> str:
    def curve(name: str, color: str, y: float) -> ChartCurve:
        keys = (f"{name}/1", f"{name}/2")
        return ChartCurve(name, color, (1.0, 2.0), (y, y + 1), "o", good=(True, False), fleet=name, keys=keys)

    panel = Panel("Cost over load", "USD", "load", (curve("a", COLORS[0], 1.0), curve("b", COLORS[1], 3.0)),
                  y_limit=Limit(2.5, "SLO"))  # fmt: skip
    rows = [[f"fleet {i}", f"${1000 - 10 * i:,}"] for i in range(10)]
    table = PageTable("Fleets", "", ["fleet", "cost"], [*rows, ["fleet x", "inf"]])
    known = {"a/1": {"title": "a at 1", "rows": [("limited by", "memory bandwidth")]}}
    marks = [KeyEntry("a", COLORS[0], "o"), KeyEntry("b", COLORS[1], "o")]
    panels = [panel, replace(panel, title="The same again")]
    return render_page("trial", "Which one?", ["a."], panels, [table], [], key=marks, details=known)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if not BROWSER:
        pytest.skip("no Chromium here: pages are not opened")
    folder = tmp_path_factory.mktemp("browser")
    before, after = page().replace("<head>", WATCH, 1).rsplit("</body>", 1)
    (folder / "page.html").write_text(before + ASK + after)
    command = [BROWSER, *QUIET, f"--user-data-dir={folder}/profile", "--dump-dom", (folder / "page.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    found = re.search(r'<pre id="answer">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    answer: dict[str, Any] = json.loads(unescape(found[1]))
    return answer


def test_pages_open_without_errors_and_without_requests(told: dict[str, Any]) -> None:
    assert (told["wrong"], told["fetched"]) == ([], [])


def test_charts_answer_and_are_linked(told: dict[str, Any]) -> None:
    assert told["marks"] == 8
    assert set(told["colors"]) == {COLORS[0], COLORS[1]}
    assert told["tip"].split("\n") == ["a at 1", "limited by", "memory bandwidth"]
    assert told["picked"] == [1, 1, 0.1, 0.1] * 2  # a alone, in both charts
    assert told["other"] == [0.1, 0.1, 1, 1] * 2


def test_tables_sort_by_their_numbers_and_filter(told: dict[str, Any]) -> None:
    assert told["rising"] == [*(f"fleet {i}" for i in reversed(range(10))), "fleet x"]
    assert told["falling"] == ["fleet x", *(f"fleet {i}" for i in range(10))]
    assert told["filtered"] == 1


def test_the_page_is_small_enough() -> None:
    assert len(page().encode()) < 1_100_000
