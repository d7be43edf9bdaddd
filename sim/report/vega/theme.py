"""What the page fills into its charts: colours of a light and a dark page, and how numbers stand on an axis."""

from collections.abc import Callable
from typing import Any

from sim.report.charts.panels import COLORS
from sim.report.words.money import money_mark, money_thousands, symbol
from sim.report.words.text import percent, plain

FONT = "Helvetica Neue, Helvetica, Arial, Liberation Sans, sans-serif"
DARK = {"#0072B2": "#4BA3E3", "#CE6BA3": "#D87CAF", "#6F5A00": "#E6B000", "#1A94FE": "#A6DAFF", "#000000": "#F2F2F2"}
"""Of a palette on black: the same hues where they would be too dim, or too near to one that was made brighter."""
WORDS = {"#CE6BA3": "#A34A7E", "#1A94FE": "#1F74A8", "#009E73": "#00795A", "#D55E00": "#B84F00"}
"""Of text on white: the same hues, dark enough to read (4.5:1)."""
EXTRA = ("#222222", "#444444", "#666666", "#6f94c4", "#c2703d", "#B3261E")
"""Colours of lines that stand for no fleet."""
TONES = {"#222222": "#e8e8e8", "#444444": "#d0d0d0", "#666666": "#b5b5b5", "#B3261E": "#E5675E"}


def themes() -> dict[str, dict[str, Any]]:
    """light and dark -> name of a parameter -> its value."""
    every = (*COLORS, *EXTRA)
    light = {"ink": "#222222", "soft": "#5c5c5c", "faint": "#e3e3e3", "paper": "#ffffff", "shade": "rgba(0,0,0,0.04)"}
    dark = {
        "ink": "#e8e8e8",
        "soft": "#b5b5b5",
        "faint": "#3a3d42",
        "paper": "#17191c",
        "shade": "rgba(255,255,255,0.07)",
    }
    bright = {color: on_black(color) for color in every}
    return {
        "light": {**light, "palette": {color: color for color in every}, "words": {c: WORDS.get(c, c) for c in every}},
        "dark": {**dark, "palette": bright, "words": bright},
    }


def on_black(color: str) -> str:
    """What a dark page has in place of a *color* of a light one."""
    return DARK.get(color, TONES.get(color, color))


def params() -> list[dict[str, Any]]:
    """The parameters of a chart as those of a light page, with nothing picked and nothing under the pointer."""
    told = {**themes()["light"], "picked": "", "hovered": "", "layout": "wide"}
    return [{"name": name, "value": value} for name, value in told.items()]


def expression(show: Callable[[float], str]) -> str:
    """How a number of an axis is written, as an expression of Vega; what it does not know is written plainly."""
    known = {
        percent: "format(100 * datum.value, '.3~r') + '\\u00a0%'",
        money_mark: f"{symbol()!r} + format(datum.value, ',.6~r')",
        money_thousands: f"datum.value ? {symbol()!r} + format(datum.value / 1000, ',.6~r') + 'k' : {symbol()!r} + '0'",
        plain: "format(datum.value, ',.6~r')",
    }
    return known.get(show, known[plain])
