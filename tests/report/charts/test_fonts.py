"""Pictures from several threads: settings of matplotlib are those of the process.

Chinese, Japanese or Korean names stand in the pictures in a font that has them, or one line says what is missing.
"""

import threading
import warnings
from collections.abc import Iterator
from io import BytesIO

import matplotlib as mpl
import pytest
from matplotlib import font_manager

from sim.report.charts import fonts
from sim.report.charts.drawing import figure_of
from sim.report.charts.fonts import SETTINGS, glyphs, settings, shortened


def test_threads_do_not_leave_their_settings_to_one_another() -> None:
    usual = {name: mpl.rcParams[name] for name in SETTINGS}
    drawing, goes_on = threading.Event(), threading.Event()

    def first() -> None:
        with settings():
            drawing.set()
            goes_on.wait(5)

    def second() -> None:
        with settings():  # takes down what is set when it begins, and restores that at its end
            goes_on.set()

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert drawing.wait(5)
    threads[1].start()
    assert not goes_on.wait(0.1), "the second draws while the first does"
    goes_on.set()
    for thread in threads:
        thread.join(5)
    assert {name: mpl.rcParams[name] for name in SETTINGS} == usual


def test_texts_are_cut_where_they_do_not_fit() -> None:
    assert shortened("hardware price", 14) == "hardware price"
    assert shortened("hardware price", 10) == "hardware…"
    assert glyphs(shortened("四块显卡的硬件价格", 8)) <= 8


TEXT = "四张 RTX 4090 和两张 A100：哪个更便宜？サーバー"


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    yield from _forgotten()


def _forgotten() -> Iterator[None]:
    fonts.east_asian_families.cache_clear()
    fonts._told.clear()
    yield
    fonts.east_asian_families.cache_clear()
    fonts._told.clear()


def drawn(text: str) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with fonts.settings():
            figure = figure_of(4, 1)
            figure.text(0.1, 0.5, text)
            data = BytesIO()
            figure.savefig(data, format="png", metadata={"Software": None})
            return data.getvalue()


def test_without_a_font_one_line_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    latin = [font for font in font_manager.fontManager.ttflist if font.name == fonts.LATIN]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", latin)
    monkeypatch.setattr(font_manager, "findSystemFonts", list)
    for _ in range(2):
        drawn(TEXT)
    [line] = capsys.readouterr().err.splitlines()
    assert "no font installed here has them" in line
    assert "四" in line
    assert "Glyph" not in line


def test_an_installed_font_is_used_and_changes_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another family of matplotlib's stands for it: the Latin text is the same, byte for byte."""
    alone = drawn("Latin only")
    fonts.east_asian_families.cache_clear()
    monkeypatch.setattr(fonts, "EAST_ASIAN", ("Nobody Has This", "STIXGeneral"))
    assert fonts.east_asian_families() == ("STIXGeneral",)
    assert drawn("Latin only") == alone
    drawn("\u27e0 \u29d1")  # one of STIX's characters that DejaVu Sans lacks
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(not fonts.east_asian_families(), reason="no East Asian font on this machine")
def test_no_box_where_there_is_a_font(capsys: pytest.CaptureFixture[str]) -> None:
    drawn(TEXT)
    assert capsys.readouterr().err == ""


def test_wide_characters_fill_a_line_sooner() -> None:
    assert fonts.glyphs("ab四") == pytest.approx(2 + fonts.WIDE)
    lines = fonts.lines_of("四张显卡" * 20, 30)
    assert "".join(lines) == "四张显卡" * 20
    assert max(map(fonts.glyphs, lines)) <= 30
    assert fonts.lines_of("one two three", 8) == ["one two", "three"]
