"""Pictures of charts: the same bytes in every process, in every form, with nothing that only a page needs."""

import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from sim.report.charts.chart import Chart
from sim.report.charts.fonts import converter
from sim.report.charts.panels import COLORS, DASHES, ChartCurve, Panel, for_print
from sim.report.charts.picture import KeyEntry, for_paper, panel_picture, picture
from sim.report.charts.tornado import TornadoBar, side_bars
from sim.report.charts.vega_bars import bar_figure

NO_FONTS = '<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig><dir>/nowhere</dir></fontconfig>'


def chart() -> Chart:
    curve = ChartCurve("a fleet", "#0072B2", (1e6, 9e6), (1e6, 3e6), "o", good=(True, False), fleet="a fleet")
    told = "IDR {:,.0f}".format
    panel = Panel("Cost", "IDR per day", "load", (curve,), told, told, x_anchored=False, kind="cost")
    return panel_picture([panel], "Which is cheaper?", ["This one."], [KeyEntry("a fleet", "#0072B2", "o")])


def texts(one: Chart, tmp_path: Path) -> list[str]:
    one.save(tmp_path / "picture.svg")
    root = ElementTree.parse(tmp_path / "picture.svg").getroot()
    return [element.text for element in root.iter("{http://www.w3.org/2000/svg}text") if element.text]


@pytest.mark.slow
def test_a_picture_has_each_text_of_its_chart_once(tmp_path: Path) -> None:
    found = texts(chart(), tmp_path)
    for text in ("Which is cheaper?", "This one.", "Cost", "IDR per day", "load"):
        assert found.count(text) == 1
    assert found.count("a fleet") == 2, "in the key and beside its curve; texts of narrow pages are left out"


@pytest.mark.slow
def test_each_suffix_has_its_form_and_others_are_refused(tmp_path: Path) -> None:
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<svg"), (".pdf", b"%PDF")):
        chart().save(tmp_path / f"picture{suffix}")
        assert (tmp_path / f"picture{suffix}").read_bytes().startswith(start)
    with pytest.raises(ValueError, match=r"saved as .png, .svg or .pdf"):
        chart().save(tmp_path / "picture.gif")


@pytest.mark.slow
def test_packing_changes_no_pixel() -> None:
    shown = chart()._repr_png_()
    plain = converter().vegalite_to_png(dict(chart().spec), scale=1.5)
    assert len(shown) < len(plain)
    with Image.open(BytesIO(shown)) as one, Image.open(BytesIO(plain)) as other:
        assert one.tobytes() == other.tobytes()


@pytest.mark.slow
def test_another_process_draws_the_same_bytes() -> None:
    code = (
        "import sys, hashlib; sys.path.insert(0, sys.argv[1]); from test_picture import chart;"
        "print(hashlib.sha256(chart()._repr_png_()).hexdigest())"
    )
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", code, str(Path(__file__).parent)]
    done = subprocess.run(command, env=paths, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == hashlib.sha256(chart()._repr_png_()).hexdigest()


@pytest.mark.slow
def test_a_machine_without_fonts_writes_its_texts(tmp_path: Path) -> None:
    (tmp_path / "fonts.conf").write_text(NO_FONTS)
    code = (
        "from sim.report.charts.fonts import has_glyph; print(has_glyph('a'), has_glyph('\u2212'), has_glyph('\u56db'))"
    )
    bare = {**os.environ, "FONTCONFIG_FILE": str(tmp_path / "fonts.conf"), "HOME": str(tmp_path)}
    bare["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run([sys.executable, "-c", code], env=bare, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "False"]


def test_expressions_on_the_width_of_a_page_have_a_width_in_a_picture() -> None:
    bars = side_bars(10.0, [TornadoBar("input", 9, 11, "low", "high")])
    figure = bar_figure("Tornado", "", bars, "USD", 10.0)
    assert "width" in str(figure.spec["encoding"]["x"]["scale"])

    assert "width" not in str(picture([figure], "", []).spec["vconcat"][0]["hconcat"][1]["encoding"]["x"]["scale"])


@pytest.mark.slow
def test_a_figure_for_a_paper_has_axes_legend_and_width_but_no_heading(tmp_path: Path) -> None:
    curves = tuple(
        ChartCurve(name, color, (1.0, 2.0), (1.0, 2.0 + at), marker="o")
        for at, (name, color) in enumerate((("4x RTX 4090", COLORS[0]), ("2x A100 80GB", COLORS[1])))
    )
    panel = Panel("Latency", "p95 [s]", "load", curves, y_label="p95 latency [s]")
    key = [KeyEntry(curve.name, curve.color, "o") for curve in curves]
    for width_in in (3.3, 7.0):
        with for_paper(width_in):
            drawn = panel_picture([panel], "Which one?", ["The other."], key)
        text = json.dumps(drawn.spec)
        assert "p95 latency [s]" in text
        assert "4x RTX 4090" in text
        assert not any(heading in text for heading in ("Which one?", "The other.", '"Latency"', "p95 [s]"))
        drawn.save(tmp_path / "figure.svg")
        assert f'width="{width_in:g}in"' in (tmp_path / "figure.svg").read_text(encoding="utf-8")
        drawn.save(tmp_path / "figure.png")
        assert int.from_bytes((tmp_path / "figure.png").read_bytes()[16:20]) == round(300 * width_in)
        drawn.save(tmp_path / "figure.pdf")
        box = re.search(rb"MediaBox *\[0 0 ([\d.]+)", (tmp_path / "figure.pdf").read_bytes())
        assert box is not None
        assert float(box[1]) == pytest.approx(72 * width_in, abs=0.5)
    assert "Which one?" in json.dumps(panel_picture([panel], "Which one?", [], key).spec)


def test_curves_of_a_paper_differ_without_colour() -> None:
    curves = tuple(ChartCurve(str(at), color, (1.0,), (1.0,), marker="o") for at, color in enumerate(COLORS[:4]))
    printed = for_print(Panel("", "", "", curves))
    assert len({str(curve.dash) for curve in printed.curves}) == 4
    by_setting = tuple(replace(curve, dash=DASHES["dashed"] if at else "-") for at, curve in enumerate(curves))
    assert for_print(Panel("", "", "", by_setting)).curves == by_setting
