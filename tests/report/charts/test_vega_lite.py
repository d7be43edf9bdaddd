"""Charts of pages: the same description as the pictures', as a specification that Vega-Lite compiles."""

import json
from dataclasses import replace
from itertools import combinations
from math import floor, inf, nan
from typing import Any

import numpy as np
import pytest

from sim.report.charts.panels import COLORS, SCALE, ChartCurve, Limit, Panel, scale_colors
from sim.report.charts.tornado import SideBar
from sim.report.charts.vega_bars import GLYPH, GLYPHS, bar_figure
from sim.report.charts.vega_lite import bundle, chart_spec, themes
from sim.report.page.template import script_json
from sim.report.words.money import money_mark

CURVE = ChartCurve(
    "a", COLORS[0], (0.04, 0.2, inf), (3.0, 2.0, 1.0), "o", half=(0.5, None, 0.1), good=(True, True, False),
    steady=(True, True, False), tags=("1", "2", "4"), fleet="fleet a", keys=("a/1", "a/2", "a/4"),
)  # fmt: skip
PANEL = Panel(
    "Cost against time", "USD", "p95 [s]", (CURVE,), y_format=money_mark, x_limit=Limit(0.5, "SLO 0.5 s"),
    y_limit=Limit(2.5, "target"),
)  # fmt: skip


def rows(spec: dict[str, Any], mark: str) -> list[dict[str, Any]]:
    layers = [layer for layer in spec["layer"] if layer["mark"]["type"] == mark]
    return [row for layer in layers for row in layer["data"]["values"]]


def dashes(spec: dict[str, Any]) -> list[list[float]]:
    """Return the dashes at both ends of a line."""
    found = []
    for layer in spec["layer"]:
        if layer["mark"]["type"] == "line":
            looks = json.loads(layer["mark"]["strokeDash"]["expr"].partition(")[datum.part]")[0][1:])
            found += [looks[row["part"]]["dash"] for row in layer["data"]["values"]]
    return found


def test_points_keep_what_the_drawing_language_says() -> None:
    first, second, last = rows(chart_spec(PANEL), "point")
    assert [first["good"], second["good"], last["good"]] == [True, True, False]  # hollow where the SLO is missed
    assert [first["shape"], last["shape"]] == ["circle", "triangle-right"]  # an arrow at the edge where off the chart
    assert first["said"] == ["0.04", "$3 ± 0.5"]
    assert last["said"][0] == "inf"
    assert (first["key"], first["fleet"]) == ("a/1", "fleet a")
    assert last["x"] < inf


def test_lines_bands_limits_and_texts() -> None:
    spec = chart_spec(PANEL)
    assert dashes(spec) == [[1, 0]] * 2 + [[1, 2]] * 2  # dotted to an overloaded point
    assert [(row["y"], row["hi"]) for row in rows(spec, "area")] == [(2.5, 3.5)]
    assert rows(spec, "rule") == [{"x": 0.5}, {"y": 2.5}]
    assert rows(spec, "rect") == [{"x": 0.5}]  # the side that misses the limit
    texts = {(row["layout"], row["t"]) for row in rows(spec, "text")}
    assert {("wide", "a"), ("narrow", "a"), ("wide", "SLO 0.5 s"), ("wide", "1")} <= texts
    assert spec["encoding"]["x"]["scale"]["type"] == "log"
    assert spec == chart_spec(PANEL)


def test_points_without_a_value_have_no_text() -> None:
    spec = chart_spec(replace(PANEL, curves=(replace(CURVE, y=(nan, 2.0, nan)),)))
    assert {row["t"] for row in rows(spec, "text")} & {"1", "2", "4", "a"} == {"2", "a"}
    assert "NaN" not in script_json(spec)


@pytest.mark.parametrize("width", [240.0, 330.0, 600.0])
def test_texts_beside_bars_have_room_in_a_plot_of_any_width(width: float) -> None:
    text = "95.45 per kW and month"
    bars = [SideBar(0, "a", 1.0, np.float64(end), "#000", text, end, end > 1) for end in (0.9, 1.3)]
    scale = bar_figure("t", "", bars, "USD", 1.0).spec["encoding"]["x"]["scale"]
    known = {"width": width, "max": max, "min": min, "floor": floor}
    low, high = (eval(scale[end]["expr"], known) for end in ("domainMin", "domainMax"))  # Python reads them, too
    px, shown = width / (high - low), min(len(text), eval(GLYPHS, known))
    assert (0.9 - low) * px == pytest.approx((high - 1.3) * px)
    assert (high - 1.3) * px >= shown * GLYPH
    assert shown == len(text) or width < 400


@pytest.mark.slow
def test_vega_lite_compiles_it() -> None:
    vl_convert = pytest.importorskip("vl_convert")
    told = vl_convert.vegalite_to_vega(chart_spec(PANEL))
    assert {scale["name"] for scale in told["scales"]} == {"x", "y"}
    assert {"picked", "hovered", "layout", "palette"} <= {signal["name"] for signal in told["signals"]}


def test_light_and_dark_fill_in_the_same_names() -> None:
    light, dark = themes()["light"], themes()["dark"]
    assert light.keys() == dark.keys()
    assert light["palette"].keys() == dark["palette"].keys() >= set(COLORS)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_enough_contrast(theme: str) -> None:
    """WCAG 2.1, 1.4.3: 4.5 to 1 for text; 1.4.11: 3 to 1 for what is drawn."""
    given = themes()[theme]
    assert all(contrast(given[name], given["paper"]) >= 4.5 for name in ("ink", "soft"))
    assert all(contrast(given["words"][color], given["paper"]) >= 4.5 for color in COLORS)
    assert min(contrast(color, given["paper"]) for color in given["palette"].values()) >= 3


SEEN = {
    "usual": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
"""Linear RGB as it is seen. Machado, Oliveira and Fernandes, IEEE TVCG 15(6), 2009, severity 1."""
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
D65 = np.array([0.9505, 1.0, 1.089])


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("seen", SEEN)
def test_fleets_differ_for_the_colour_blind(theme: str, seen: str) -> None:
    """Distances are in CIELAB, where 2.3 is just noticeable."""
    rgb = np.array([linear(themes()[theme]["palette"][color]) for color in COLORS])
    xyz = np.clip(rgb @ np.array(SEEN[seen]).T, 0, 1) @ TO_XYZ.T / D65
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116).T
    lab = np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)]).T
    assert min(np.linalg.norm(a - b) for a, b in combinations(lab, 2)) > 12


def linear(color: str) -> list[float]:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def contrast(one: str, other: str) -> float:
    def luminance(color: str) -> float:
        red, green, blue = linear(color)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_program_ends_no_script_and_is_small_enough() -> None:
    text = bundle()
    assert "</script" not in text
    assert "vegaEmbed" in text
    assert len(text) < 1_000_000


def test_names_cannot_end_a_script() -> None:
    text = script_json({"fleet": "</script><b>"})
    assert "<" not in text
    assert json.loads(text) == {"fleet": "</script><b>"}


@pytest.mark.slow
def test_a_constant_part_of_a_curve_takes_two_points_and_one_label() -> None:
    steps = ChartCurve("one", "#0072B2", (0, 1, 2, 3, 3, 4, 5), (1, 1, 1, 1, 2, 2, 2), good=(True,) * 7)
    layers = {one["mark"]["type"]: one for one in chart_spec(Panel("", "", "x", (steps,)))["layer"]}
    ends = [(row["x"], row["y"]) for row in layers["line"]["data"]["values"]]
    assert ends == [(0, 1), (3, 1), (3, 2), (5, 2)]
    assert [(row["x"], row["y"]) for row in layers["point"]["data"]["values"]] == [(0, 1), (3, 2)]
    many = ChartCurve("one", "#0072B2", tuple(range(999)), tuple(range(999)), good=(True,) * 999)
    points = chart_spec(Panel("", "", "x", (many,)))["layer"]
    assert max(len(one["data"]["values"]) for one in points if one["mark"]["type"] == "point") <= 130


def test_a_colour_of_the_scale_stands_out_on_both_pages() -> None:
    colors = scale_colors(20)
    assert len(set(colors)) == 20
    assert colors[:: len(colors) - 1] == [SCALE[0], SCALE[-1]]
    for color in colors:
        for theme in ("light", "dark"):
            assert contrast(color, str(themes()[theme]["paper"])) >= 3, color
