"""Texts of charts: none covers another, a marker, a line or a limit."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from sim.report.charts.layout import (
    GLYPH_WIDTH,
    LINE_HEIGHT,
    OVERHANG,
    AxisScale,
    PlacedText,
    PlotArea,
    _corners_around,
    lay_out,
)
from sim.report.charts.panels import COLORS, ChartCurve, Limit, Panel
from sim.report.charts.vega_lite import HEIGHT, RING_AREA, SIZES, SMALL, USUAL, scales_of


def panel_of(seed: int, fleets: int) -> Panel:
    """Return a chart of cost against latency as runs have them: some points lie far beyond the limit."""
    generator = np.random.default_rng(seed)
    curves = []
    for at in range(fleets):
        x = np.sort(generator.lognormal(0.0, 0.8, 5)) * np.array([1, 1, 1, 1, generator.choice([1.0, 80.0, np.inf])])
        y = np.sort(generator.lognormal(1.0, 0.9, 5))[::-1]
        steady = tuple((x < 20).tolist())
        tags = ("0.25", "0.5", "1", "2", "4")
        name = f"fleet {at} of {generator.integers(1, 9999)}"
        curves.append(
            ChartCurve(
                name, COLORS[at], tuple(x.tolist()), tuple(y.tolist()), "o", steady=steady, good=steady, tags=tags
            )
        )
    return Panel("", "", "", tuple(curves), x_limit=Limit(3.0, "SLO 3 s"), y_limit=Limit(2.0, "target"))


def boxes(texts: list[PlacedText]) -> list[tuple[float, float, float, float]]:
    places = [text.place for text in texts]
    return [(one.x, one.y, one.x + one.width, one.y + one.height) for one in places]


@pytest.mark.parametrize("log", [True, False])
def test_rings_at_an_edge_are_whole(log: bool) -> None:
    axis = AxisScale([1.0, 20.0], False, linear=not log, below=True)
    assert (1 - axis.shares(np.array([axis.high]))[0]) * HEIGHT >= (RING_AREA / np.pi) ** 0.5 + 0.5


@pytest.mark.slow
@pytest.mark.parametrize("layout", SIZES)
@pytest.mark.parametrize("fleets", [2, 4, 6])
def test_texts_cover_neither_each_other_nor_a_limit(layout: str, fleets: int) -> None:
    for seed in range(12):
        panel = panel_of(seed, fleets)
        x, y = scales_of(panel)
        width, height = SIZES[layout]
        found = lay_out(panel, x, y, (width, height), (SMALL, USUAL))
        upright = float(x.shares(np.array([3.0]))[0]) * width
        level = float(y.shares(np.array([2.0]))[0]) * height
        for left, bottom, right, top in boxes(found):
            assert not left < upright < right, seed
            assert not bottom < level < top, seed
        for one, other in combinations(boxes(found), 2):
            apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
            assert apart, seed


def test_a_label_without_room_for_its_value_keeps_its_tag() -> None:
    curve = ChartCurve("a", COLORS[0], (1.0, 1e6), (1.0, 0.5), "o", steady=(True, False), tags=("1", "2"))
    panel = Panel("", "", "", (curve,), x_format=lambda at: f"{at:,.0f} seconds and more", x_limit=Limit(2.0, "SLO"))
    x, y = scales_of(panel)
    texts = {text.text for text in lay_out(panel, x, y, SIZES["narrow"], (SMALL, USUAL))}
    assert "2" in texts


def test_intervals_of_many_fleets_are_drawn_where_they_do_not_overlap() -> None:
    curves = [ChartCurve(str(at), COLORS[at], (1.0,), (float(at),), "o", half=(0.4,)) for at in range(4)]
    assert Panel("", "", "", tuple(curves)).shows_bands
    wide = tuple(replace(curve, half=(0.6,)) for curve in curves)
    assert not Panel("", "", "", wide).shows_bands
    assert Panel("", "", "", wide[:2]).shows_bands
    assert not Panel("", "", "", (replace(curves[0], half=()),)).shows_bands


@pytest.mark.parametrize("count", [3, 60])
def test_a_text_gets_the_first_place_without_a_point(count: int) -> None:
    generator = np.random.default_rng(count)
    anchors = [(float(x), float(y)) for x, y in generator.uniform(0, 240, (count, 2))]
    for points in (0, 40, 400, 1500):
        taken = generator.uniform(0, 240, (points, 2))
        room = PlotArea(240.0, 240.0)
        room.taken = [taken[: points // 3], taken[points // 3 :]] if points else []
        width, height = GLYPH_WIDTH * 11.0 * 6, LINE_HEIGHT * 11.0
        across, up = np.array(anchors).T
        places = np.array(_corners_around(across, up, width, height, 6.0)).transpose(2, 0, 1).reshape(-1, 2)
        inside = (places >= 0).all(axis=1) & (places[:, 0] + width <= 240) & (places[:, 1] + height <= 240 + OVERHANG)
        low, high = places - 1, places + np.array([width + 1, height + 1])
        for _ in range(3):  # the second text keeps clear of the first
            found = room.fit("a name", 11.0, anchors, 6.0)
            free = ~((taken > low[:, None]) & (taken < high[:, None])).all(axis=2).any(axis=1)
            first = next(iter(np.flatnonzero(inside & free)), None)
            assert (found and (found.x, found.y)) == (None if first is None else tuple(places[first]))
            if found:
                grid = np.meshgrid(np.arange(0.0, width + 3, 3.0), np.linspace(0.0, height, 5))
                taken = np.vstack([taken, np.array([found.x, found.y]) + np.array(grid).reshape(2, -1).T])
