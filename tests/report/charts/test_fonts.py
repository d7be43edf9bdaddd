"""Chinese, Japanese or Korean names stand in the pictures in a font that has them, or one line says what is missing."""

from collections.abc import Iterator

import pytest

from sim.language import current, speaking
from sim.report.charts import fonts
from sim.report.charts.picture import panel_picture

TEXT = "四张 RTX 4090 和两张 A100：哪个更便宜？サーバー"


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    fonts._reported.clear()
    yield
    fonts._reported.clear()


@pytest.mark.slow
def test_without_a_font_one_line_reports_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fonts, "has_glyph", lambda _: False)
    for _ in range(2):
        panel_picture([], TEXT, [])._repr_png_()
    [line] = capsys.readouterr().err.splitlines()
    assert "no font installed here has them" in line
    assert "四" in line


def test_without_a_font_texts_of_a_picture_are_english(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fonts, "has_glyph", lambda _: False)
    with speaking("zh"):
        for _ in range(2):
            with fonts.drawable() as same:
                assert (same, current()) == (False, "en")
    assert len(capsys.readouterr().err.splitlines()) == 1
    monkeypatch.setattr(fonts, "has_glyph", lambda _: True)
    with speaking("zh"), fonts.drawable() as same:
        assert (same, current()) == (True, "zh")


def test_a_character_is_found_where_a_font_has_it() -> None:
    assert fonts.has_glyph("a")
    assert fonts.has_glyph("−")
    assert not fonts.has_glyph("\U0010fffd")


@pytest.mark.slow
@pytest.mark.skipif(not fonts.has_glyph("四"), reason="no East Asian font on this machine")
def test_no_box_where_there_is_a_font(capsys: pytest.CaptureFixture[str]) -> None:
    panel_picture([], TEXT, [])._repr_png_()
    assert capsys.readouterr().err == ""


def test_wide_characters_fill_a_line_sooner() -> None:
    assert fonts.glyphs("ab四") == pytest.approx(2 + fonts.WIDE)
    lines = fonts.lines_of("四张显卡" * 20, 30)
    assert "".join(lines) == "四张显卡" * 20
    assert max(map(fonts.glyphs, lines)) <= 30
    assert fonts.lines_of("one two three", 8) == ["one two", "three"]
