import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pages import charts_of, text_of
from PIL import Image
from rich.console import Console
from sketches import sketch

from sim.report.charts.chart import SIGNATURE, Chart
from sim.report.run.report import write_report
from sim.report.run.terminal import terminal_table

pytestmark = pytest.mark.slow

SLO = {"ttft_s": 3.0, "tpot_s": 0.1, "attainment": 0.95}
RESOLVED = [
    {
        "fleet": "4x RTX 4090",
        "model": "qwen2-72b-instruct",
        "workload": "Poisson arrivals",
        "window_s": {"warmup": 120.0, "horizon": 1800.0},
        "pools": [{"name": "gpu", "gpu": "rtx-4090", "gpus_per_replica": 4, "memory_gb_per_gpu": {"weights": 10.4}}],
        "values": [
            {"path": "fleets.4x RTX 4090.idle_w", "value": 20.0, "unit": "W", "source": "memory", "where": "",
             "kind": "recalled", "as_of": None, "range": None, "note": "not read again"},
        ],
        "sources": {"memory": {"title": "What we <remember>", "url": "https://example.org/a?b=1&c=2"}},
    }
]  # fmt: skip


def report(out: Path, cases: list[Any], axes: list[str], slo: dict[str, float] = SLO, pictures: bool = True) -> str:
    out.mkdir(exist_ok=True)
    write_report(out, cases, RESOLVED, "trial", "Which one? It is a trial.", axes, slo, "csv", pictures)
    return (out / "report.html").read_text() if pictures else ""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, two_fleets: list[Any]) -> Path:
    """The folder of a report on two fleets."""
    out = tmp_path_factory.mktemp("report")
    report(out, two_fleets, ["rate_rps"])
    return out


def test_all_files_of_a_run(written: Path) -> None:
    page = (written / "report.html").read_text()
    names = ["costs.csv", "curves.png", "paired.csv", "report.html", "requests.csv", "resolved.yaml", "summary.csv"]
    assert sorted(path.name for path in written.iterdir()) == [*names, "usage.csv"]
    for text in (
        "is cheaper per million output tokens wherever both meet the SLO",
        "recalled",
        "weights",
        "Which one?",
    ):
        assert text in page


def test_the_picture_opens_and_has_a_sane_size(written: Path) -> None:
    with Image.open(written / "curves.png") as picture:
        picture.load()
        assert 1200 < picture.width < 2400
        assert 600 < picture.height < 2000
        assert len(picture.convert("RGB").getcolors(1 << 20) or []) > 50


def test_nothing_is_fetched(written: Path) -> None:
    page = text_of((written / "report.html").read_text())
    links = re.findall(r'(?:href|xmlns\S*)="((?!#)[^"]*)"', page)
    assert links == ["https://example.org/a?b=1&amp;c=2"]


def test_names_are_escaped(tmp_path: Path, make_case: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Chart, "_render", sketch)
    cases = [make_case("<b>bold</b> & $x$", load, capacity=2.0, usd_per_h=1.0) for load in (0.5, 1.0)]
    page = report(tmp_path, cases, ["rate_rps"])
    page = text_of(page)
    assert "<b>bold" not in page
    assert "<remember>" not in page
    assert "&lt;b&gt;bold&lt;/b&gt; &amp; $x$" in page


def test_same_inputs_same_bytes(
    tmp_path: Path, written: Path, two_fleets: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sketches differ where what is drawn does; tests/report/charts has the bytes of pictures."""
    monkeypatch.setattr(Chart, "_render", sketch)
    for name in ("one", "other"):
        report(tmp_path / name, two_fleets, ["rate_rps"])
    for file in written.iterdir():
        one, other = (tmp_path / name / file.name for name in ("one", "other"))
        assert one.read_bytes() == other.read_bytes(), file.name


def test_without_pictures_there_are_only_tables(tmp_path: Path, two_fleets: list[Any]) -> None:
    report(tmp_path, two_fleets, ["rate_rps"], pictures=False)
    assert not {"curves.png", "report.html"} & {path.name for path in tmp_path.iterdir()}


def infeasible(case: Any) -> Any:
    case.status, case.reason, case.measured = "infeasible", "needs 145.9 GB", {}
    return case


E2E = {"e2e_s": 20.0, "attainment": 0.9}
VARIANTS: dict[str, tuple[list[float], list[Any], list[str], float | None, dict[str, float]]] = {
    "single point": ([1.0], [1], [], 1.0, SLO),
    "single point without cost": ([1.0], [1], [], None, E2E),
    "one overloaded point": ([9.0], [1], [], 1.0, {}),
    "everything overloaded": ([8.0, 16.0], [1], ["rate_rps"], None, SLO),
    "neither cost nor SLO": ([0.5, 1.0], [1], ["rate_rps"], None, {}),
    "limit on the whole time": ([0.5, 1.0], [1], ["rate_rps"], 1.0, E2E),
    "two axes": ([1.0, 2.0], [1, 4], ["rate_rps", "cv"], 1.0, SLO),
    "an axis of words": ([1.0], ["fcfs", "priority"], ["cv"], 1.0, {}),
}
DRAWN = ("everything overloaded", "two axes", "an axis of words")


@pytest.mark.parametrize("name", VARIANTS)
def test_every_kind_of_run_has_its_report(
    tmp_path: Path, make_case: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if name not in DRAWN:
        monkeypatch.setattr(Chart, "_render", lambda *_: SIGNATURE)
    loads, settings, axes, usd, slo = VARIANTS[name]
    cases = [
        make_case(fleet, load, i, capacity=capacity, usd_per_h=usd, cv=setting)
        for fleet, capacity in (("a", 2.3), ("b", 4.6))
        for load in loads
        for setting in settings
        for i in range(2)
    ]
    cases.append(infeasible(make_case("c", loads[0], capacity=1.0, usd_per_h=usd, cv=settings[0])))
    page = report(tmp_path, cases, axes, slo)
    assert "c cannot run: needs 145.9 GB." in page
    assert len(charts_of(page)) >= 2
    assert ("per million" in text_of(page)) == (usd is not None)


def test_a_run_in_which_nothing_is_feasible(tmp_path: Path, make_case: Callable[..., Any]) -> None:
    page = report(tmp_path, [infeasible(make_case("c", 1.0, capacity=1.0, usd_per_h=1.0))], [])
    assert "No fleet can run this." in page


def test_terminal_table_fits_and_marks(two_fleets: list[Any]) -> None:
    console = Console(width=80, record=True, file=None, quiet=False)
    with console.capture() as captured:
        console.print(terminal_table(two_fleets, ["rate_rps"], SLO))
    lines = captured.get().splitlines()
    assert "…" not in captured.get()
    assert sum("kv" in line or "memory" in line for line in lines) == 10
    assert any("no▲" in line for line in lines)
    assert lines[-1].strip() == "± half of the 95 % interval over replications; for a share: its ends"
    assert all("▲" in line.partition("no▲")[2] for line in lines if "no▲" in line), "percentiles are marked, too"
