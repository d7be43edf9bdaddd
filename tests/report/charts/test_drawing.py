"""Panels as pictures."""

from itertools import pairwise

from sim.report.charts.drawing import figure_of, plot
from sim.report.charts.panels import ChartCurve, Panel


def test_wide_numbers_stand_within_the_panel_and_apart() -> None:
    figure, curve = figure_of(4.6, 3.3), ChartCurve("a", "#000000", (1e6, 9e6), (1e6, 3e6))
    told = "IDR {:,.0f}".format
    plot(figure, Panel("Cost", "IDR", "IDR", (curve,), told, told, x_anchored=False), 0.0, 0.0)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert min(label.get_window_extent().x0 for label in axes.get_yticklabels()) > 0
    heads = [text.get_window_extent().x0 for text in axes.texts if text.get_text() in ("Cost", "IDR")]
    assert max(heads) < axes.bbox.x0 - 26
    below = sorted(label.get_window_extent().extents[[0, 2]].tolist() for label in axes.get_xticklabels())
    assert len(below) > 1
    assert all(left[1] < right[0] for left, right in pairwise(below))
